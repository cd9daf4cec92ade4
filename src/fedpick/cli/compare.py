"""`fedpick compare`."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli import console, options
from fedpick.cli.options import count
from fedpick.cli.watch import beside
from fedpick.core.errors import ConfigError, bare_name
from fedpick.core.metrics import MEASURED
from fedpick.experiment import Experiment, files
from fedpick.experiment.worlds import DEFAULT_WORLD
from fedpick.policies.text import installed_policies, policy_names
from fedpick.report.comparison import OUT, make_results
from fedpick.report.files import write

__all__ = ["app", "make_and_show"]

app = typer.Typer()


@app.command()
def compare(
    file: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.toml]", help="An experiment; options override its settings.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            *("--policy", "-p"),
            help="For example 'e3cs(quota=0.5)', 'my.py:EpsGreedy(eps=0.1)'; needed, here or in the file; repeatable.",
            autocompletion=options.complete_policy,
        ),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(
            *("--world", "-w"),
            help=f"A world of `fedpick worlds` (default: {DEFAULT_WORLD}); repeatable.",
            autocompletion=options.complete_world,
        ),
    ] = None,
    num_clients: Annotated[
        int | None, count("--num-clients", "-k", help="Number of clients (default: the world's).")
    ] = None,
    cohort_size: Annotated[
        list[int] | None, count("--cohort-size", "-m", help="Clients chosen per round (default: 20); repeatable.")
    ] = None,
    rounds: Annotated[int | None, count("--rounds", "-t", help="Rounds per run (default: 500).")] = None,
    pace: Annotated[
        list[str] | None,
        typer.Option(
            help="'buffered(concurrency=30, size=10)': asynchronous training, in which --rounds counts moves of the "
            "model; 'rounds(deadline=30)' (default: rounds with the world's settings); repeatable."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        count(
            *("--seeds", "-s"),
            help="Number of seeds (default: 5); with the same seed, all policies get the same world.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            *("--data", "-d"),
            help="Data set (default: 'synthetic(1, 1)', or what the file says); 'none': no training; repeatable.",
            autocompletion=options.complete_data,
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="How to divide a data set among clients, for example 'dirichlet(alpha=0.3)' (default: the data set's)."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="'mlp(hidden=(64, 30))', or 'net.py:Net', a torch.nn.Module or a fedpick.learn.Model (default: "
            "depends on the data)."
        ),
    ] = None,
    lr: Annotated[
        str | None,
        typer.Option(
            help="Learning rate of the clients: 0.1, or 'halving(0.1, every=100)' (default: depends on the data)."
        ),
    ] = None,
    batch: Annotated[int | None, count(help="Examples per local step (default: depends on the data).")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="fedavg (default), scaffold, 'feddyn(alpha=0.01)' or fednova.")
    ] = None,
    prox: Annotated[float | None, typer.Option(help="FedProx's mu (default: 0, which is FedAvg).")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="The server's optimiser: 'fedavgm(lr=1.0, momentum=0.9)', 'fedadam(lr=0.01)', fedyogi or fedadagrad "
            "(default: the mean update is added)."
        ),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="float32 (default), bfloat16 or float64.")] = None,
    trainer: Annotated[
        str | None, typer.Option(help="A trainer of your own instead of fedpick's: 'loop.py:Trainer(lr=0.1)'.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help=f"The main metric: {', '.join(MEASURED)}, 'my.py:score', or one of your trainer's (default: accuracy)."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = OUT,
    target: options.Target = None,
    label: options.Label = None,
    workers: options.Workers = None,
    executor: options.Executor = "auto",
    device: options.Device = "auto",
    watch: Annotated[bool, typer.Option("--watch", help="Show a page on this machine that follows the runs.")] = False,
) -> None:
    """Compare policies over several seeds; differences are paired by seed.

    Clients train a model on their data: `--data digits`, `fashion-mnist`, `cifar10` (see `fedpick data list`), a file
    `mine.npz`, or `none` to simulate only the selection. Runs are kept in `--out`: if you repeat the command with more
    seeds, policies, worlds or rounds, only the missing runs and rounds are computed.

    Example: `fedpick compare -p 'e3cs(quota=0.5)' -p uniform --world volatile --seeds 5 --data digits`
    """
    _refuse_folders(file, policy or [])
    runs = {
        "policy": policy,
        "world": world,
        "cohort_size": cohort_size,
        "rounds": rounds,
        "seeds": seeds,
        "pace": pace,
    }
    training: dict[str, Any] = {"model": model, "lr": _rate(lr), "batch": batch, "prox": prox, "server": server}
    training |= {"algorithm": algorithm, "precision": precision, "trainer": trainer}
    experiment = files.experiment_from(
        file,
        {key: value for key, value in {**runs, "pace": pace, "data": data}.items() if value},
        num_clients=num_clients,
        partition=partition,
        train={key: value for key, value in training.items() if value is not None},
    )
    _, shown = experiment.measuring(metric)
    how = {"executor": executor, "workers": workers, "device": device}
    with beside(folder, target, shown) if watch else nullcontext():
        make_and_show(experiment, folder, target=target, metric=metric, label=label, **how)


def make_and_show(experiment: Experiment, folder: Path, **how: Any) -> None:
    """Make the missing runs of a plan, print the table and write the files; `how` is that of `make_results`."""
    with console.stoppable(folder, experiment.references()):
        results = make_results(experiment, folder, console=console.err, **how)
    console.out.print(results.table())
    made, missed = write(results, folder, "results")
    console.written(folder, [*made, "runs/"], missed)


def _rate(text: str | None) -> float | str | None:
    """A learning rate: a number, or the text of a schedule."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _refuse_folders(file: Path | None, policies: list[str]) -> None:
    """Raise where the folder of a comparison, or a policy's name, is given in place of a file or a policy."""
    known = [bare_name(name) for name in (*policy_names(), *installed_policies())]
    for each in [] if file is None else [str(file)], [text for text in policies if bare_name(text) not in known]:
        for text in filter(os.path.isdir, each):
            raise ConfigError(
                f"{text}: is a folder, but a policy or a file is needed here; fedpick report {text} shows its runs, "
                f"fedpick resume {text} continues them, and --out {text} adds to them"
            )
    if file is not None and bare_name(str(file)) in known and not file.exists():
        raise ConfigError(f"{file}: there is no such file; policies are given with -p: fedpick compare -p {file}")
