"""The results of runs: tables, frames, plots; `fp.load` finds them in folders.

    results = fp.load("fedpick-runs/demo")
    results.table()                         # scores over seeds, paired differences; in a notebook just `results`
    results.table("latex")                  # or markdown, csv, json, text
    results.frame()                         # pandas: a row per run, with all scores
    results.rounds()                        # pandas: a row per run and round
    results.plot().savefig("demo.png")
    results.plot(size="column").savefig("demo.pdf")                     # or .pgf: for a paper
    Path("demo.html").write_text(results.page(), encoding="utf-8")      # interactive charts, offline

Manifests are read when `Results` is made, tables when they are first needed; each file is read once.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick._support.extras import needed
from fedpick.core.errors import StoreError, printable, require, unknown_name
from fedpick.core.metrics import Target, read_target
from fedpick.report import citations, methods, plots, tables
from fedpick.report.formats import format_table
from fedpick.report.groups import Group, reference_policy, span
from fedpick.report.labels import labelled, read_labels, with_versions
from fedpick.report.layout import Sheet
from fedpick.report.notes import row_notes, run_notes
from fedpick.report.run_data import RunData, read_runs
from fedpick.report.runs import RunInfo, find_runs, planned_runs, read_info
from fedpick.report.scores import cep, metrics_of
from fedpick.report.summaries import Summary, summaries

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from fedpick.report.page import Content

__all__ = ["Results", "RunInfo", "load"]


def load(
    *folders: str | os.PathLike[str],
    reference: str | None = None,
    target: Any = None,
    metric: str | None = None,
    label: Mapping[str, str] | Iterable[str] | None = None,
) -> "Results":
    """Load the results in these folders: of a run, a comparison, an experiment, a deployment.

    No run is built and no code of the user's is imported. In a folder that is not of one run, runs are found up to
    three levels below.

    Args:
        folders: of the runs.
        reference: the policy that the others are compared with; None: the first.
        target: of the columns rounds_to, hours_to and gigabytes_to, such as 0.85 or "macro_f1=0.8"; see `Results`.
        metric: the main one; see `Results`.
        label: names of policies, such as {"my.py:X": "Ours"}; None: those that the comparison was made with.
    """
    require(len(folders) > 0, "load: folders", folders, "one folder or more")
    found = [run for folder in folders for run in find_runs(folder)]
    results = Results(found, reference=reference, target=target, metric=metric, label=label)
    planned = {key for folder in folders for key in planned_runs(Path(folder))}
    absent = planned - {run.key for run in found}
    if absent:
        results._absent = f"{len(absent)} of {len(planned)} planned runs are missing: not begun, or not readable"
    return results


class Results:
    """Results of runs with different seeds, policies, worlds, cohort sizes and data.

    Args:
        runs: folders of the runs, or what `read_info` returned for them.
        reference: the policy that the others are compared with, paired by seed; None: the first.
        target: for the columns rounds_to, hours_to and gigabytes_to (rounds, hours and gigabytes until it is reached):
            "macro_f1=0.8", {"perplexity": 20}, or a number alone, of the main metric. None: for each world, cohort size
            and data, 95% of the reference's final value of the main metric (mean over seeds), rounded down (accuracies
            to a whole percent); if smaller is better, the value divided by 0.95, rounded up.
        metric: the main one, which is first in the table and in figures. None: accuracy, or else the first that the
            trainer gave and that is no loss, or else its loss.
        label: names of policies in tables and legends, such as {"my.py:X": "Ours"} or ["my.py:X=Ours"].
        rounds: number of rounds to compare; None: as many as all runs have.
    """

    def __init__(
        self,
        runs: Sequence[RunInfo | Path],
        *,
        reference: str | None = None,
        target: Any = None,
        metric: str | None = None,
        label: Mapping[str, str] | Iterable[str] | None = None,
        rounds: int | None = None,
    ) -> None:
        self._target: Target | None = read_target(target, metric)
        found = [run if isinstance(run, RunInfo) else read_info(run) for run in runs]
        if not found:
            raise StoreError("there are no runs to show; give the folder of one")
        found, self._version_notes = with_versions(found)
        found, self._repeated = _once(found)
        self.runs = labelled(found, read_labels(label))
        self.reference = reference_policy(reference, self.runs)
        self._metric = metric
        self._most = rounds
        self._each = False  # whether every run is scored up to its last round
        self._absent = ""  # a note on planned runs that have no folder
        self._title = ""  # words in place of the settings
        self._user_notes: list[str] = []

    def titled(self, title: str, *notes: str) -> "Results":
        """These results with a title in words instead of the settings, and notes of yours; in tables and pages."""
        self._title, self._user_notes = title, list(notes)
        self.__dict__.pop("_sheet", None)
        return self

    @cached_property
    def _read(self) -> tuple[list[RunData], list[RunInfo]]:
        """The runs with rounds, and those without."""
        return read_runs(self.runs, self._most, self._each)

    @cached_property
    def _rows(self) -> list[Summary]:
        return summaries(self._read[0], self.reference, self._target, self._metric)

    @property
    def _reference_name(self) -> str:
        """The reference's name in tables."""
        return next(run.name for run in self.runs if self.reference in (run.name, run.policy))

    @property
    def _blocks(self) -> list[list[Summary]]:
        """The rows of each block."""
        blocks: dict[Any, list[Summary]] = {}
        for row in self._rows:
            blocks.setdefault(row.group.block, []).append(row)
        return list(blocks.values())

    @property
    def notes(self) -> list[str]:
        """What readers should know before they trust the numbers: few seeds, different lengths, missing seeds."""
        found = [*self._user_notes, *run_notes(*self._read, self._absent, self._most)]
        found += [*row_notes(self._rows, self.reference, self._target, self._metric), *self._version_notes]
        if self._repeated:
            many = "run is" if self._repeated == 1 else "runs are"
            found.append(f"{self._repeated} {many} there twice, with the same configuration and seed; shown once")
        return found

    @property
    def target(self) -> float | None:
        """The target's value; None if there is none, or if blocks have different ones."""
        targets = {row.target for row in self._rows}
        target = targets.pop() if len(targets) == 1 else self._target
        return None if target is None else target.value

    def data(self) -> dict[str, Any]:
        """All scores over seeds as plain data for JSON; None for a number that is unknown or not finite."""
        return tables.as_data(self._rows, self._reference_name, self.target, self.notes)

    @cached_property
    def _sheet(self) -> Sheet:
        return self._make_sheet(self._rows, self.notes, self._title)

    def _make_sheet(self, rows: Sequence[Summary], notes: Sequence[str], title: str) -> Sheet:
        given = self._target is not None
        return tables.make_sheet(rows, self._reference_name, notes, given=given, title=title)

    def table(self, format: str = "rich") -> Any:
        """Scores over seeds with intervals, differences and notes.

        Args:
            format: "rich" returns an object that fits itself to a terminal or notebook; "text", "markdown", "latex"
                (booktabs), "csv" and "json" return text. The last two contain all scores with all digits. For a paper
                also "methods", a paragraph in LaTeX that says what was done, and "bibtex", what it cites.
        """
        if format == "methods":
            return methods.paragraph(self._blocks, self._reference_name)
        if format == "bibtex":
            return citations.bibtex(methods.cited(self._blocks))
        return format_table(format, lambda: self._sheet, self.data)

    def trouble(self) -> Any:
        """The clients of a single run that failed or were late most often, as a table; None if there are none."""
        runs = self._read[0]
        return tables.trouble_table(runs[0].trouble) if len(runs) == 1 and runs[0].trouble else None

    def frame(self) -> Any:
        """A pandas DataFrame with a row per run (policy, world, cohort size, data, seed) and a column per score."""
        pandas = needed("pandas", "a frame", "report")
        rows = []
        for row in self._rows:
            value, metric = (row.target.value, row.target.metric) if row.target is not None else (None, None)
            for run in row.group.runs:
                about = run.info.settings | {"policy": printable(row.group.label), "code": run.info.setting_version}
                about |= {"oracle": run.info.oracle, "given": ", ".join(run.info.given)}
                about |= {"num_clients": run.info.num_clients, "rounds": len(run.rounds)}
                about |= {"folder": printable(run.info.folder), "target": value, "target_metric": metric}
                rows.append(about | run.scores)
        return pandas.DataFrame(rows)

    def rounds(self) -> Any:
        """A pandas DataFrame with a row per run and round, with all rounds and all columns."""
        pandas = needed("pandas", "a frame", "report")
        frames = []
        for row in self._rows:
            for run in row.group.runs:
                shown = {column: name for name, column in metrics_of(run.all_rounds).items()}
                frame = run.all_rounds.to_pandas().rename(columns=shown)
                for i, (name, value) in enumerate((run.info.settings | {"policy": printable(row.group.label)}).items()):
                    frame.insert(i, name, value)
                frames.append(frame)
        names = list(dict.fromkeys(name for frame in frames for name in frame.columns))
        return pandas.concat([frame.reindex(columns=names) for frame in frames], ignore_index=True)

    def _panels(self) -> list[plots.Panel]:
        """The curves of each block."""
        titles = tables.place_names([rows[0].group for rows in self._blocks])
        return [
            plots.Panel(title, {tables.group_name(row.group): _curves(row.group) for row in rows})
            for title, rows in zip(titles, self._blocks, strict=True)
        ]

    def page(self) -> str:
        """One HTML page with tables and interactive charts, which needs no other file and no network."""
        from fedpick.report.page import make_page  # Jinja2 is an extra

        return make_page(self._content(self))

    def _content(self, drawn: "Results") -> "Content":
        """What a page shows; the charts are of `drawn`, the same runs."""
        from fedpick.report.page import Content

        title = self._title if len(self._blocks) == 1 else ""
        return Content(
            title=self._sheet.title,
            blocks=self._blocks,
            panels=drawn._panels(),
            sheets=[self._make_sheet(rows, [], title) for rows in self._blocks],
            drawn=drawn._blocks,
            notes=[printable(note) for note in self.notes],
            csv=self.table("csv"),
            trouble=[{**row, "client": printable(row["client"])} for row in self._read[0][0].trouble],
        )

    def _to_last_rounds(self) -> "Results":
        """The same runs, each up to its last round: to be drawn while they go on, not to be compared."""
        other = Results(self.runs, reference=self.reference, target=self._target, metric=self._metric)
        other._each = True
        return other

    def plot(self, metric: str | None = None, *, size: str = "screen", over: str = "rounds") -> Any:
        """A matplotlib figure with bands, the 95% intervals of the mean over seeds.

        Save it with `savefig`: .png, .svg, .pdf, and .pgf for LaTeX (which need not be installed).

        Args:
            metric: a column of the rounds, such as "test_loss", or "cep" for models returned so far; None: the main
                metric if all runs have the same, else test accuracy or loss if all have it, else "cep".
            size: "screen" shows it over rounds and time, and how often clients were chosen; "column" and "text" are
                for a paper: the metric alone, as wide as a column (3.35 in) or the text (6.9 in).
            over: "rounds", "time" or "bytes" (sent), for a paper.
        """
        panels = self._panels()
        everywhere = set.intersection(*(set(seed) for panel in panels for seed in panel.seeds))
        known = sorted(everywhere - {"round", "counts", "clock"})
        if metric is not None and metric not in known:
            raise unknown_name("metric of all these runs", metric, known)
        mains = {row.metric for row in self._rows}
        usual = [*(mains if len(mains) == 1 else ()), "accuracy", "test_loss", "cep"]
        metric = metric or next(name for name in usual if name in known)
        if size != "screen":
            return plots.draw_figure(panels, size, metric, over)
        return plots.draw(panels, self._sheet.title, metric)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        yield self.table()

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        policies = len({run.policy for run in self.runs})
        seeds = span(len({run.seed for run in self.runs if run.policy == name}) for name in {self.reference})
        return f"Results({len(self.runs)} runs: {policies} policies, {seeds} seeds)"

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())


def _curves(group: Group) -> list[dict[str, Any]]:
    """A group's curves for each seed, at the rounds that all its runs have (a deployment may lack some)."""
    common = reduce(np.intersect1d, [run.rounds["round"].to_numpy() for run in group.runs])

    def one(run: RunData) -> Iterator[tuple[str, Any]]:
        here = np.isin(run.rounds["round"].to_numpy(), common)
        for name in run.rounds.column_names:
            yield name, run.rounds[name].to_numpy().astype(np.float64)[here]
        yield "cep", cep(run.rounds)[here]
        yield "counts", run.counts

    return [dict(one(run)) for run in group.runs]


def _once(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], int]:
    """Remove duplicates: a folder given twice, and a simulated run in two folders, of which the longer run is kept.

    Returns also how many runs were in two folders.
    """
    kept: dict[Any, RunInfo] = {}
    folders: dict[Path, RunInfo] = {}
    repeated = 0
    for run in runs:
        folders.setdefault(run.folder.resolve(), run)
    for folder, run in folders.items():
        key: Any = (run.policy, run.identity, run.numbers, run.seed) if run.simulated and run.identity else folder
        if key in kept:
            from fedpick.store.tables import table_files  # Parquet is an extra

            repeated += 1
            table_files(run.folder, "rounds")  # raises if the rounds are of another run than the manifest
            if (run.rounds or 0) <= (kept[key].rounds or 0):
                continue
        kept[key] = run
    return list(kept.values()), repeated
