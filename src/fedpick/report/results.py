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

from fedpick.core.errors import StoreError, require, unknown_name
from fedpick.core.metrics import Target, read_target
from fedpick.report import citations, formats, methods, plots, tables
from fedpick.report._extras import needed
from fedpick.report.groups import Group, Summary, reference_policy, span
from fedpick.report.labels import labelled, read_labels
from fedpick.report.layout import Sheet
from fedpick.report.played import Played, read_runs
from fedpick.report.runs import RunInfo, find_runs, planned_runs, read_info
from fedpick.report.scores import cep
from fedpick.report.summaries import summaries
from fedpick.report.versions import tell_apart

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from fedpick.report.page import Content

__all__ = ["Results", "RunInfo", "load"]

_ABOUT = ("policy", "world", "cohort_size", "data", "train", "seed", "engine", "oracle", "num_clients")


def load(
    *folders: str | os.PathLike[str],
    reference: str | None = None,
    target: Any = None,
    metric: str | None = None,
    label: Mapping[str, str] | Iterable[str] | None = None,
) -> "Results":
    """Load the results in these folders: of a run, a comparison, an experiment, a deployment.

    No run is built and no code of the user's own is imported. In a folder that is not a run's own, runs are found up
    to three levels below.

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
    there = {run.folder.name.rsplit("_", 1)[-1] for run in found}
    planned = {key for folder in folders for key in planned_runs(Path(folder))}
    if planned - there:
        results._absent = (
            f"{len(planned - there)} of {len(planned)} planned runs are missing: not begun, or not readable"
        )
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
        found, self._versions = tell_apart(found)
        found, self._twice = _once(found)
        self.runs = labelled(found, read_labels(label))
        self.reference = reference_policy(reference, self.runs)
        self._metric = metric
        self._most = rounds
        self._each = False  # whether every run is read to its own end
        self._absent = ""  # a note on planned runs that have no folder
        self._title = ""  # words in place of the settings
        self._about: list[str] = []

    def titled(self, title: str, *notes: str) -> "Results":
        """These results with a title in words instead of the settings, and notes of your own; in tables and pages."""
        self._title, self._about = title, list(notes)
        self.__dict__.pop("_sheet", None)
        return self

    @cached_property
    def _read(self) -> tuple[list[Played], list[RunInfo]]:
        return read_runs(self.runs, self._most, self._each)

    @cached_property
    def _summarised(self) -> tuple[list[Summary], list[str]]:
        played, waiting = self._read
        rows, notes = summaries(played, self.reference, self._target, self._metric)
        notes[:0] = [*([self._absent] if self._absent else []), *_unfinished(played, self._most)]
        if waiting:
            names = ", ".join(dict.fromkeys(f"{run.policy} seed {run.seed}" for run in waiting[:5]))
            more = ", ..." if len(waiting) > 5 else ""
            of = f"{len(played)} of {len(self.runs)} runs have rounds so far"
            notes.insert(0, f"{of}; left out: {names}{more}")
        notes += self._versions
        if self._twice:
            many = "run is" if self._twice == 1 else "runs are"
            notes.append(f"{self._twice} {many} there twice, with the same configuration and seed; shown once")
        return rows, notes

    @property
    def _called(self) -> str:
        """The reference's name in tables."""
        return next(run.name for run in self.runs if self.reference in (run.name, run.policy))

    @property
    def _rows(self) -> list[Summary]:
        return self._summarised[0]

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
        return [*self._about, *self._summarised[1]]

    @property
    def target(self) -> float | None:
        """The target's value; None if there is none, or if blocks have different ones."""
        found = {row.target for row in self._rows}
        one = found.pop() if len(found) == 1 else self._target
        return None if one is None else one.value

    def data(self) -> dict[str, Any]:
        """All scores over seeds as plain data for JSON; None for a number that is unknown or not finite."""
        return tables.as_data(self._rows, self._called, self.target, self.notes)

    @cached_property
    def _sheet(self) -> Sheet:
        given = self._target is not None
        return tables.make_sheet(self._rows, self._called, self.notes, given=given, title=self._title)

    def table(self, format: str = "rich") -> Any:
        """Scores over seeds with intervals, differences and notes.

        Args:
            format: "rich" returns an object that fits itself to a terminal or notebook; "text", "markdown", "latex"
                (booktabs), "csv" and "json" return text. The last two contain all scores with all digits. For a paper
                also "methods", a paragraph in LaTeX that says what was done, and "bibtex", what it cites.
        """
        if format in ("methods", "bibtex"):
            keys = methods.cited(self._blocks)
            return methods.paragraph(self._blocks, self._called) if format == "methods" else citations.bibtex(keys)
        return formats.write(format, lambda: self._sheet, self.data)

    def trouble(self) -> Any:
        """The clients of a single run that failed or were late most often, as a table; None if there are none."""
        played = self._read[0]
        return tables.trouble_table(played[0].trouble) if len(played) == 1 and played[0].trouble else None

    def frame(self) -> Any:
        """A pandas DataFrame with a row per run (policy, world, cohort size, data, seed) and a column per score."""
        pandas = needed("pandas", "a frame", "report")
        rows = []
        for row in self._rows:
            for run in row.group.runs:
                where = {name: getattr(run.info, name) for name in _ABOUT} | {"policy": row.group.label}
                ends = {"rounds": len(run.rounds), "folder": str(run.info.folder)}
                value, metric = (row.target.value, row.target.metric) if row.target is not None else (None, None)
                ends |= {"target": value, "target_metric": metric}
                rows.append({**where, **ends, **run.scores})
        return pandas.DataFrame(rows)

    def rounds(self) -> Any:
        """A pandas DataFrame with a row per run and round, with all rounds and all columns."""
        pandas = needed("pandas", "a frame", "report")
        frames = []
        for row in self._rows:
            for run in row.group.runs:
                frame = run.all_rounds.to_pandas()
                for i, name in enumerate(_ABOUT[:7]):
                    frame.insert(i, name, row.group.label if name == "policy" else getattr(run.info, name))
                frames.append(frame)
        whole = [name for frame in frames for name in frame.columns]
        return pandas.concat([frame.reindex(columns=list(dict.fromkeys(whole))) for frame in frames], ignore_index=True)

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

        given, played = self._target is not None, self._read[0]
        title = self._title if len(self._blocks) == 1 else ""
        return Content(
            title=self._sheet.title,
            blocks=self._blocks,
            panels=drawn._panels(),
            sheets=[tables.make_sheet(rows, self._called, [], given=given, title=title) for rows in self._blocks],
            drawn=drawn._blocks,
            notes=[tables.printable(note) for note in self.notes],
            csv=self.table("csv"),
            trouble=[{**row, "client": tables.printable(row["client"])} for row in played[0].trouble],
        )

    def _to_its_end(self) -> "Results":
        """The same runs, each with all its rounds: to be drawn while they go on, not to be compared."""
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
            from fedpick.report.figures import draw_figure

            return draw_figure(panels, size, metric, over)
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

    def one(run: Played) -> Iterator[tuple[str, Any]]:
        here = np.isin(run.rounds["round"].to_numpy(), common)
        for name in run.rounds.column_names:
            yield name, run.rounds[name].to_numpy().astype(np.float64)[here]
        yield "cep", cep(run.rounds)[here]
        yield "counts", run.counts

    return [dict(one(run)) for run in group.runs]


def _unfinished(played: Sequence[Played], most: int | None) -> list[str]:
    """A note if runs have fewer rounds than planned: they were stopped, or go on."""
    wanted = [run.info.rounds if most is None else min(run.info.rounds or 0, most) for run in played]
    lasts = [int(run.all_rounds["round"].to_numpy().max()) for run in played]
    short = [i for i, run in enumerate(played) if run.info.simulated and lasts[i] < (wanted[i] or 0)]
    if not short:
        return []
    many = "the run is" if len(played) == 1 else f"{len(short)} of {len(played)} runs are"
    at, of = span(lasts[i] for i in short), span(wanted[i] for i in short)
    return [f"{many} not complete: at round {at} of {of}; if stopped, fedpick resume FOLDER continues"]


def _belongs(run: RunInfo) -> None:
    """Raise where the rounds of a run that is left out are of another: its manifest is in a wrong place."""
    from fedpick.store.tables import table_files  # Parquet is an extra

    table_files(run.folder, "rounds")


def _once(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], int]:
    """Remove duplicates: a folder given twice, and a simulated run in two folders (the longer one is kept)."""
    kept: dict[Any, RunInfo] = {}
    twice = 0
    seen: set[Path] = set()
    for run in runs:
        folder = run.folder.resolve()
        if folder in seen:
            continue
        seen.add(folder)
        key: Any = (run.policy, run.identity, run.seed) if run.simulated and run.identity else folder
        if key in kept:
            twice += 1
            _belongs(run)
            if (run.rounds or 0) <= (kept[key].rounds or 0):
                continue
        kept[key] = run
    return list(kept.values()), twice
