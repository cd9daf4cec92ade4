"""The command line: run, compare, resume, report, reproduce, data, policies, worlds, check.

A mistake of the user's gives one line and exit code 2, never a traceback.
"""

import datetime
import importlib.util
import inspect
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedpick import __version__, checks, policy_names, store
from fedpick.cli import data as cli_data
from fedpick.errors import CheckError, ConfigError, FedpickError, unknown_name
from fedpick.experiment import config, executors
from fedpick.report import plots, tables
from fedpick.worlds import WORLDS

__all__ = ["app", "main"]

app = typer.Typer(
    help="Choose which clients train in each round of federated learning, and see what it does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(cli_data.app, name="data")
out = Console()
err = Console(stderr=True)

Workers = Annotated[int | None, typer.Option(help="Processes; one per core if not given.", min=1)]
Executor = Annotated[str, typer.Option(help="'local', or 'ray' for a Ray cluster.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to; made up if not given.")]
Policies = Annotated[list[str], typer.Option("--policy", "-p", help="Such as 'e3cs(quota=0.5)'; once for each.")]
Cohort = Annotated[int, typer.Option("--cohort-size", "-m", help="Clients chosen a round.", min=1)]
Seeds = Annotated[int, typer.Option("--seeds", "-s", help="Every policy meets the same world at one seed.", min=1)]
Data = Annotated[str, typer.Option("--data", "-d", help="What clients train on; 'none': nothing is trained.")]
Version = Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version.")]


def _run_all(
    configs: list[config.Config], names: list[str], folders: list[Path], workers: int | None, executor: str
) -> None:
    executors.check_names(executor)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=err
    )
    tasks = [progress.add_task(escape(name), total=c.rounds) for name, c in zip(names, configs, strict=True)]
    jobs = [executors.Job(c, folder) for c, folder in zip(configs, folders, strict=True)]
    with progress:
        executors.play(
            jobs,
            executor=executor,
            workers=workers,
            tell=lambda i, rounds: progress.update(tasks[i], completed=rounds),
        )


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="Configuration file (TOML), see the README.")],
    folder: Out = None,
) -> None:
    """Run one configuration: `fedpick run CONFIG.toml`. Goes on where it was if it was interrupted."""
    settings = config.load(file)
    target = folder or Path("fedpick-runs") / file.stem
    _interruptible(lambda: _run_all([settings], [settings.policy], [target], 1, "local"), target)
    out.print(*tables.summary([(settings.policy, [target])])[0], sep="\n")
    out.print(f"written to {escape(str(target))}")


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or of a comparison.")],
    rounds: Annotated[int | None, typer.Option(help="Go on to this round, past the first horizon.", min=1)] = None,
    workers: Workers = None,
    executor: Executor = "local",
) -> None:
    """Go on with a run or a comparison that was interrupted, or past its horizon with `--rounds`."""
    if (folder / "compare.json").is_file():
        _compare(folder, _plan(folder), rounds, workers, executor)
        return
    with store.Folder(folder) as opened:
        settings = config.Config(**opened.config)
    settings = replace(settings, rounds=rounds or settings.rounds)
    _interruptible(lambda: _run_all([settings], [settings.policy], [folder], 1, "local"), folder)
    out.print(*tables.summary([(settings.policy, [folder])])[0], sep="\n")
    out.print(f"written to {escape(str(folder))}")


@app.command()
def compare(
    policy: Policies,
    world: Annotated[str, typer.Option("--world", "-w", help="A world of `fedpick worlds`.")] = "volatile",
    num_clients: Annotated[
        int | None,
        typer.Option(
            "--num-clients", "-k", "--clients", help="Number of clients; the world's own if not given.", min=1
        ),
    ] = None,
    cohort_size: Cohort = 20,
    rounds: Annotated[int, typer.Option("--rounds", "-t", help="Rounds of each run.", min=1)] = 500,
    seeds: Seeds = 5,
    data: Data = "synthetic(1, 1)",
    partition: Annotated[
        str | None, typer.Option(help="Who holds what of a data set, such as 'dirichlet(alpha=0.3)'.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Such as 'mlp(hidden=(64, 30))'; else the usual for the data.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the clients; else the usual for the data.")] = None,
    folder: Out = None,
    workers: Workers = None,
    executor: Executor = "local",
) -> None:
    """Compare policies in one world over several seeds; differences are paired, seed by seed.

    Clients train a model on their data: `--data digits`, `fashion-mnist`, `cifar10` (see `fedpick data list`), or
    `none` for a numerical experiment.

    Example: `fedpick compare -p 'e3cs(quota=0.5)' -p uniform --world volatile --seeds 5 --data digits`
    """
    settings: dict[str, Any] = {"name": world} | ({} if num_clients is None else {"num_clients": num_clients})
    base: dict[str, Any] = {"cohort_size": cohort_size, "rounds": rounds, "world": settings}
    if data != "none":
        base["data"] = {"name": data} | ({} if partition is None else {"partition": partition})
        base["train"] = {key: value for key, value in (("model", model), ("lr", lr)) if value is not None}
    plan = {"policies": policy, "seeds": seeds, "base": base}
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    target = folder or Path("fedpick-runs") / f"compare-{world}-{stamp}"
    if (target / "compare.json").is_file() and _plan(target) != plan:
        raise ConfigError(f"{target}: holds another comparison; choose another folder, or remove this one")
    _compare(target, plan, None, workers, executor)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, deployments, comparisons.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for report.json and the plot.")] = None,
) -> None:
    """Show runs side by side: simulated ones, comparisons, and deployments with Flower (`Selected(records=...)`).

    A run that is still going on shows the rounds that it has played.

    Example: `fedpick report fedpick-runs/flower`
    """
    groups: tables.Groups = []
    for given in folders:
        if (given / "compare.json").is_file():
            plan = _plan(given)
            for name in dict.fromkeys(plan["policies"]):
                runs = [given / _slug(name) / f"seed-{seed}" for seed in range(plan["seeds"])]
                begun = [run for run in runs if any(run.glob("**/rounds*.parquet"))]  # it may be going on
                if len(begun) < len(runs):
                    err.print(f"{escape(name)}: {len(begun)} of {len(runs)} runs have rounds so far")
                if begun:
                    groups.append((name, begun))
        else:
            groups.append((tables.about(given).policy, [given]))
    if not groups:
        raise ConfigError(f"{folders[0]}: has no rounds yet; wait for the first, or go on with fedpick resume")
    names = [name for name, _ in groups]
    if len(set(names)) < len(names):  # the same policy twice: told apart by the folder
        groups = [(f"{name} in {runs[0] if len(runs) == 1 else runs[0].parent.parent}", runs) for name, runs in groups]
    shown, data = tables.summary(groups)
    if len(groups) == 1 and len(groups[0][1]) == 1:
        shown.append(tables.trouble(groups[0][1][0]) or "nobody failed or was late")
    out.print(*shown, sep="\n")
    target = folder or folders[0]
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "report.json").write_text(json.dumps(_finite(data), indent=1) + "\n")
        pictures = plots.save(plots.comparison(tables.curves(groups), ", ".join(map(str, folders))), target / "report")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror}); choose another folder with --out") from None
    out.print(f"written to {escape(str(target))}: report.json, {', '.join(p.name for p in pictures)}")


def _plan(folder: Path) -> dict[str, Any]:
    """What a comparison's folder compares."""
    try:
        plan = json.loads((folder / "compare.json").read_text())
        return {"policies": list(plan["policies"]), "seeds": int(plan["seeds"]), "base": dict(plan["base"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder}/compare.json: cannot be read ({type(error).__name__}: {error}); put a whole one back, or choose "
            "another folder"
        ) from None


def _finite(data: Any) -> Any:
    """The data with null for NaN and infinity, which JSON does not know."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-")


def _compare(target: Path, plan: dict[str, Any], rounds: int | None, workers: int | None, executor: str) -> None:
    base = plan["base"] | ({} if rounds is None else {"rounds": rounds})
    names = list(dict.fromkeys(plan["policies"]))
    configs = [config.Config(policy=name, seed=seed, **base) for name in names for seed in range(plan["seeds"])]
    for first in configs[:: plan["seeds"]]:
        first.build()  # a mistake in any policy shows before anything runs
    folders = [target / _slug(c.policy) / f"seed-{c.seed}" for c in configs]
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "compare.json").write_text(json.dumps(plan, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror}); choose another folder with --out") from None
    labels = [f"{c.policy} seed {c.seed}" for c in configs]
    _interruptible(lambda: _run_all(configs, labels, folders, workers, executor), target)
    groups = [(name, [f for f, c in zip(folders, configs, strict=True) if c.policy == name]) for name in names]
    shown, data = tables.summary(groups)
    out.print(*shown, sep="\n")
    (target / "summary.json").write_text(json.dumps(_finite(data), indent=1) + "\n")
    where = " with ".join([base["world"]["name"], *([base["data"]["name"]] if "data" in base else [])])
    title = f"{where}: {base['cohort_size']} clients a round, {plan['seeds']} seeds"
    pictures = plots.save(plots.comparison(tables.curves(groups), title), target / "compare")
    files = ", ".join(picture.name for picture in pictures)
    out.print(f"written to {escape(str(target))}: summary.json, {files}, and a folder for each run")


def _interruptible(work: Any, folder: Path) -> None:
    try:
        work()
    except KeyboardInterrupt:
        err.print(f"\nstopped; nothing is lost. Go on with: fedpick resume {folder}")
        raise typer.Exit(130) from None


@app.command()
def policies(name: Annotated[str | None, typer.Argument(help="Show one policy's settings in full.")] = None) -> None:
    """List the policies and their settings."""
    known = policy_names()
    if name is not None:
        if name not in known:
            raise unknown_name("policy", name, list(known))
        made = known[name]
        out.print(escape(inspect.getdoc(getattr(made, "func", made)) or ""))
        return
    table = Table(title="write them like e3cs(quota=0.5); fedpick policies NAME tells more")
    table.add_column("policy")
    table.add_column("what it does")
    table.add_column("settings")
    for text, maker in known.items():
        target = getattr(maker, "func", maker)
        line = (inspect.getdoc(target) or "").splitlines()[0]
        taken = [p for p in inspect.signature(maker).parameters if p != "cohort_size"]
        table.add_row(text, escape(line), ", ".join(taken))
    out.print(table)


@app.command()
def worlds() -> None:
    """List the worlds, and the parts that a configuration file can put into them."""
    table = Table(title="worlds: fedpick compare --world NAME, or name = in [world] of a configuration")
    table.add_column("world")
    table.add_column("what it is")
    for name, maker in WORLDS.items():
        table.add_row(name, escape((maker.__doc__ or "").splitlines()[0]))
    out.print(table)
    parts = Table(title='parts: availability = "bernoulli(p=0.8)" in [world]')
    parts.add_column("part")
    parts.add_column("names and settings")
    for part, makers in config.PARTS.items():
        lines = [f"{name}({', '.join(inspect.signature(maker).parameters)})" for name, maker in makers.items()]
        parts.add_row(part, escape("\n".join(lines)))
    out.print(parts)


@app.command()
def reproduce(
    study: Annotated[str | None, typer.Argument(help="Id of a study; all of them if not given.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds.")] = False,
    folder: Annotated[Path, typer.Option("--out", help="Folder for results and plots.")] = Path("fedpick-studies"),
    workers: Workers = None,
    executor: Executor = "local",
) -> None:
    """Rerun the papers' experiments and set our figures beside what they print."""
    from fedpick import studies

    if study is not None and study not in studies.STUDIES:
        raise unknown_name("study", study, list(studies.STUDIES))
    outcomes = []
    for name in [study] if study else list(studies.STUDIES):
        entry = studies.STUDIES[name]
        with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=err) as progress:
            task = progress.add_task(name, total=entry.jobs(entry.choose(quick)))

            def done(_: int, progress: Progress = progress, task: Any = task) -> None:
                progress.advance(task)

            outcome = studies.reproduce(name, quick=quick, workers=workers, executor=executor, on_done=done)
        paths = studies.save(outcome, folder / name)
        outcomes.append(outcome)
        table = Table(title=f"{name}: {entry.title}" + (" (quick)" if quick else ""), show_lines=True)
        for heading in ("claim", "paper", "ours", "verdict", "note"):
            table.add_column(heading, overflow="fold")
        colours = {"reproduced": "green", "in part": "yellow", "not reproduced": "red"}
        for finding in outcome.findings:
            verdict = f"[{colours[finding.verdict]}]{finding.verdict}[/]"
            claim, paper, ours, note = map(escape, (finding.claim, finding.paper, finding.ours, finding.note))
            table.add_row(claim, paper, ours, verdict, note)
        out.print(table)
        out.print(f"written to {Path(paths[0]).parent}")
    if study is None:
        out.print(f"all of them: {studies.save_index(outcomes, folder)}")


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="FILE.py:POLICY", help="A file and the policy's name in it.")],
    cohort_size: Cohort = 5,
) -> None:
    """Tell whether a policy of yours keeps the rules of the contract."""
    file, _, name = target.partition(":")
    if not name:
        raise ConfigError(f"{target!r} names no policy; write it like examples/my_policy.py:RoundRobin")
    if not Path(file).is_file():
        raise ConfigError(f"{file}: there is no such file")
    spec = importlib.util.spec_from_file_location("checked_policy", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["checked_policy"] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from None
    found = getattr(module, name, None)
    if found is None:
        raise unknown_name(f"name in {file}", name, [n for n in vars(module) if not n.startswith("_")])
    if isinstance(found, type):
        try:
            found = found(cohort_size=cohort_size)
        except TypeError as error:
            raise ConfigError(f"{name}(cohort_size={cohort_size}): {error}; name an instance instead") from None
    try:
        for rule in checks.check_policy(found):
            out.print(f"[green]keeps[/]  {rule}")
    except CheckError as error:
        out.print(escape(str(error)))
        raise typer.Exit(1) from None
    out.print(f"{name} keeps all rules")


@app.callback(invoke_without_command=True)
def _options(version: Version = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: errors of the user's are one line."""
    try:
        app()
    except FedpickError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
