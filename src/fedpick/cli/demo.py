"""Two short comparisons that show when selection matters, and what it costs; `fedpick demo` runs them.

Each scene has a sentence that is made from its numbers, whatever they are, and a table of the scores in the sentence.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedpick.cli import console
from fedpick.cli.options import Device, Executor, Workers
from fedpick.experiment import Experiment, executors
from fedpick.report.comparison import make_results
from fedpick.report.files import write
from fedpick.report.formats import Table
from fedpick.report.layout import Cell, Row, Sheet
from fedpick.report.tables import number

__all__ = ["SCENES", "Scene", "app"]

app = typer.Typer()

_DIGITS = {"name": "digits", "partition": "labels-per-client(2)"}


@dataclass(frozen=True)
class Scene:
    """A comparison, and what it shows in words.

    Args:
        name: of its folder.
        title: the setting, in words.
        about: what a reader should know about it.
        experiment: the runs.
        target: test accuracy of the columns "rounds to" and "hours to".
        columns: of the table: heading, score, digits, and what the score is multiplied by.
        answer: results (`Results.data`) -> a sentence about these columns.
    """

    name: str
    title: str
    about: str
    experiment: Experiment
    target: float
    columns: Sequence[tuple[str, str, int, float]]
    answer: Callable[[Mapping[str, Any]], str]

    def table(self, data: Mapping[str, Any]) -> Table:
        """The columns for each policy; a star where the difference to the reference is clear."""
        lines = []
        for row in data["rows"]:
            name = row["policy"] + (" (oracle)" if row["oracle"] else "")
            cells = [_cell(row["scores"].get(score), digits, times) for _, score, digits, times in self.columns]
            lines.append(Row([name], cells))
        legend = (
            f"±: 95% interval over {_seeds(data)}; *: differs from {data['reference']}, seed by seed, by more than "
            f"chance. {self.about}"
        )
        return Table(Sheet("", ["policy"], [heading for heading, *_ in self.columns], lines, [legend]))


def _seeds(data: Mapping[str, Any]) -> str:
    return f"{len(data['rows'][0]['seeds'])} seeds"


def _cell(score: Mapping[str, Any] | None, digits: int, times: float) -> Cell:
    if not score or score["mean"] is None:
        return Cell("–")
    clear = (score.get("difference") or {}).get("clear")
    half = math.inf if score["half"] is None else times * score["half"]
    return Cell(number(times * score["mean"], half, digits) + ("*" if clear else " "))


def _pair(data: Mapping[str, Any], policy: str, score: str, digits: int, unit: str = "", times: float = 1.0) -> str:
    """The means of a policy and of the reference, and what the seeds say about the difference; `times` as much."""
    scores = {row["policy"]: row["scores"].get(score) for row in data["rows"]}
    mine, theirs = scores[policy], scores[data["reference"]]
    if not mine or not theirs or mine["mean"] is None or theirs["mean"] is None:
        return "not known"  # for instance a target that was not reached
    means = f"{times * mine['mean']:.{digits}f} against {times * theirs['mean']:.{digits}f}{unit}"
    gap = mine.get("difference")
    if not gap or gap["half"] is None:
        return means
    shown = f"{times * gap['mean']:+.{digits}f} ±{times * gap['half']:.{digits}f}"
    return f"{means} ({shown})" if gap["clear"] else f"{means} ({shown}: no clear difference)"


def _biased(data: Mapping[str, Any]) -> str:
    rounds, accuracy = _pair(data, "fedgs", "rounds_to", 0, " rounds"), _pair(data, "fedgs", "accuracy", 3)
    worst = _pair(data, "e3cs(quota=0.5)", "worst_decile", 3)
    return (
        f"Compared with uniform over {_seeds(data)}, fedgs takes {rounds} to {data['target']:.0%} test accuracy, and "
        f"ends at {accuracy}; e3cs(quota=0.5), which prefers clients that are often there, leaves the worst tenth of "
        f"clients at {worst}."
    )


def _slow(data: Mapping[str, Any]) -> str:
    minutes = _pair(data, "rbcs-f", "hours_to", 1, " minutes", 60.0)
    accuracy, worst = (_pair(data, "fedcs", score, 3) for score in ("accuracy", "worst_decile"))
    return (
        f"Compared with uniform over {_seeds(data)}, rbcs-f takes {minutes} to {data['target']:.0%} test accuracy; "
        f"fedcs, which always takes the fastest clients, ends at {accuracy}, and its worst tenth of clients at {worst}."
    )


_ACCURACY = ("test accuracy", "accuracy", 3, 1.0)
_WORST = ("worst tenth of clients", "worst_decile", 3, 1.0)

SCENES = (
    Scene(
        "biased",
        "Clients with small digits are often away",
        "50 clients with two digits each, 10 of them a round. This is one of FedGS's own worlds: elsewhere its gain is "
        "smaller.",
        Experiment(
            policy=["uniform", "fedgs", "pow-d", "e3cs(quota=0.5)"],
            world="fedgs-ymf(num_clients=50)",
            cohort_size=10,
            data=_DIGITS,
            rounds=100,
            seeds=5,
        ),
        0.8,
        (("rounds to 80%", "rounds_to", 0, 1.0), _ACCURACY, _WORST),
        _biased,
    ),
    Scene(
        "slow",
        "Some devices are slow, and a round waits for its slowest",
        "40 clients with two digits each in four classes of speed (RBCS-F's world), 8 of them a round; minutes are "
        "simulated. The oracle fedcs is told all speeds, which no server knows.",
        Experiment(
            policy=["uniform", "rbcs-f", "over-select(uniform, 1.3)", "fedcs"],
            world="rbcs-f",
            cohort_size=8,
            data=_DIGITS,
            rounds=100,
            seeds=5,
        ),
        0.9,
        (("minutes to 90%", "hours_to", 1, 60.0), _ACCURACY, _WORST),
        _slow,
    ),
)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("fedpick-runs/demo"),
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Show in two short comparisons what selection can gain, and what it costs."""
    with executors.staying():
        pages = []
        for number, scene in enumerate(SCENES, start=1):
            console.out.print(f"\n[bold]{number}. {escape(scene.title)}[/]\n")
            where = folder / scene.name
            how: dict[str, Any] = {"executor": executor, "workers": workers, "device": device}
            with console.stoppable(where):
                results = make_results(scene.experiment, where, target=scene.target, console=console.err, **how)
            results.titled(scene.title, scene.about)
            console.out.print(escape(scene.answer(results.data())), "", highlight=False, sep="\n")
            console.out.print(scene.table(results.data()))
            made, missed = write(results, where, "results")
            console.missed(missed)
            pages += [where / file for file in made if file.endswith(".html")]
    lines = ["", "Charts and all scores are on these pages:", *(f"  {page}" for page in pages)] if pages else []
    lines += ["", "Next, compare a policy of your own:"]
    lines += ["  fedpick compare -p uniform -p examples/my_policy.py:RoundRobin --data digits"]
    console.out.print(console.plain("\n".join(lines)), markup=False, highlight=False, soft_wrap=True)
