"""What a study is: settings as data, one item per process, and one small score function."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedpick import atomic, store
from fedpick.errors import StoreError, unknown_name
from fedpick.experiment import executors
from fedpick.studies import _plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Finding", "Reproduction", "Result", "Settings", "Study", "Verdict", "conduct", "save", "save_index"]

Settings = Mapping[str, Any]
Result = dict[str, Any]
Verdict = Literal["reproduced", "in part", "not reproduced"]


@dataclass(frozen=True)
class Finding:
    """A claim of a paper beside what we saw.

    Args:
        claim: in words.
        paper: what the paper prints, or that it prints nothing.
        ours: our figure with its 95% interval over seeds.
        verdict: whether the claim holds here.
        note: what we saw where it does not (fully) hold, and what we chose where the paper is silent.
    """

    claim: str
    paper: str
    ours: str
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment of a paper.

    Args:
        id: "paper/figure".
        title: one line.
        paper: citation.
        settings: everything chosen, plain data.
        quick: what `--quick` changes: rounds and seeds only.
        items: settings -> one piece of plain data per job.
        job: item -> what it measured; at the top of a module, since it runs in other processes.
        gather: (settings, what the jobs measured) -> the result, small and plain.
        score: result -> findings.
        plot: result -> the paper's figure.
    """

    id: str
    title: str
    paper: str
    settings: Settings
    quick: Settings
    items: Callable[[Settings], Sequence[Any]]
    job: Callable[[Any], Any]
    gather: Callable[[Settings, list[Any]], Result]
    score: Callable[[Result], list[Finding]]
    plot: Callable[[Result], "Figure"]

    def choose(self, quick: bool = False, **changes: Any) -> dict[str, Any]:
        """The settings, in full or quick, with these changes."""
        for name in changes:
            if name not in self.settings:
                raise unknown_name(f"setting of {self.id}", name, list(self.settings))
        return {**self.settings, **(self.quick if quick else {}), **changes}

    def jobs(self, settings: Settings) -> int:
        """How many items `run` will go through."""
        return len(self.items(settings))

    def run(
        self,
        settings: Settings,
        workers: int | None = None,
        executor: str = "local",
        on_done: Callable[[int], None] | None = None,
    ) -> Result:
        """Measure; arguments as in `fedpick.experiment.executors.each`."""
        items = self.items(settings)
        done = executors.each(self.job, items, workers=workers, executor=executor, on_done=on_done)
        return self.gather(settings, done)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A study that was run."""

    study: Study
    settings: dict[str, Any]
    result: Result
    findings: list[Finding]

    def table(self) -> str:
        """The findings as a Markdown table."""
        rows = [
            [f.claim, f.paper, f.ours, f"**{f.verdict}**" + (f": {f.note}" if f.note else "")] for f in self.findings
        ]
        head = ["claim", "paper", "ours (mean and 95% interval over seeds)", "verdict"]
        lines = [head, ["---"] * len(head), *rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def conduct(
    study: Study,
    settings: dict[str, Any],
    workers: int | None = None,
    executor: str = "local",
    on_done: Callable[[int], None] | None = None,
) -> Reproduction:
    """Run a study at these settings and score it."""
    # Through JSON, so that a result scores and plots the same when it is read back from its file.
    result: Result = json.loads(json.dumps(study.run(settings, workers, executor, on_done)))
    return Reproduction(study, settings, result, study.score(result))


def _replace(path: Path, write: Callable[[Path], object]) -> Path:
    try:
        with atomic.replacing(path) as temporary:
            write(temporary)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write ({error.strerror or error}); choose a folder you may write to"
        ) from None
    return path


def save(outcome: Reproduction, folder: str | os.PathLike[str]) -> list[Path]:
    """Write result.json, findings.md, figure.png, figure.svg and manifest.json into the folder; returns their paths."""
    at, study = Path(folder), outcome.study
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{at}: cannot make the folder ({error.strerror or error}); choose another") from None
    text = f"# {study.id}: {study.title}\n\n{study.paper}\n\n{outcome.table()}\n![{study.title}](figure.png)\n"
    manifest = {"study": study.id, "title": study.title, "paper": study.paper, "settings": outcome.settings}
    with _plots.style():
        figure = study.plot(outcome.result)
        pictures = [_replace(at / f"figure.{kind}", _plots.writer(figure, kind)) for kind in ("png", "svg")]
    return [
        _replace(at / "result.json", lambda path: path.write_text(json.dumps(outcome.result) + "\n")),
        _replace(at / "findings.md", lambda path: path.write_text(text)),
        *pictures,
        _replace(
            at / "manifest.json",
            lambda path: path.write_text(json.dumps({**manifest, **store.machine()}, indent=2) + "\n"),
        ),
    ]


def save_index(outcomes: Sequence[Reproduction], folder: str | os.PathLike[str]) -> Path:
    """Write index.md: a line for each study saved under the folder, with how many of its claims hold."""
    head = ["study", "what", "claims reproduced", "in part", "not"]
    lines = [head, ["---", "---", "---:", "---:", "---:"]]
    for outcome in outcomes:
        verdicts = [finding.verdict for finding in outcome.findings]
        counts = [str(verdicts.count(each)) for each in ("reproduced", "in part", "not reproduced")]
        lines.append([f"[{outcome.study.id}]({outcome.study.id}/findings.md)", outcome.study.title, *counts])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    text = (
        "# The papers' experiments, rerun\n\nEach page sets a paper's claims beside our figures, with 95% intervals "
        f"over seeds, and says which hold. `fedpick reproduce` writes them.\n\n{table}\n"
    )
    return _replace(Path(folder) / "index.md", lambda path: path.write_text(text))
