"""Read the tables of runs: each file once, and of the selections only the columns that scores need."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpick._support.extras import needed
from fedpick.core.errors import StoreError
from fedpick.core.types import Ints
from fedpick.report import scores
from fedpick.report.runs import RunInfo, is_buffered

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RunData", "read_runs", "selections_until"]

SELECTIONS = ["round", "client", "status", "duration"]  # the columns that scores need


@dataclass(frozen=True)
class RunData:
    """A run's tables and scores."""

    info: RunInfo
    all_rounds: "pa.Table"  # all rounds of the run
    rounds: "pa.Table"  # the rounds that all compared runs of its pace have
    scores: dict[str, float]  # of `rounds`
    counts: Ints  # how often each client was chosen in `rounds`
    unusable: int  # answers that were not finite
    trouble: list[dict[str, Any]]  # clients that failed or were late most often; only for a single run

    @property
    def last(self) -> int:
        """The last of the compared rounds."""
        return _last(self.rounds)

    @property
    def reached(self) -> int:
        """The last round of the run."""
        return _last(self.all_rounds)


def _until(table: "pa.Table", last: int) -> "pa.Table":
    return table.filter(table["round"].to_numpy() <= last)


def _last(rounds: "pa.Table") -> int:
    return int(rounds["round"].to_numpy().max(initial=0))


def _kind(run: RunInfo) -> str:
    """What its rounds are: rounds of any pace, or moves of the model under one without."""
    return run.pace if is_buffered(run.pace) else ""


def selections_until(info: RunInfo, last: int, *more: str) -> "pa.Table":
    """The selections of a run up to this round: the columns that scores need, and those of `more` that exist."""
    from fedpick import store

    selections = store.read_selections(info.folder, [*SELECTIONS, *more])
    lacking = [name for name in SELECTIONS if name not in selections.column_names]
    if lacking:
        raise StoreError(
            f"{info.folder}: selections.parquet has no column {lacking[0]!r}, so it is not a table of selections; "
            "restore it from a backup"
        )
    return _until(selections, last)


def _score(info: RunInfo, rounds: "pa.Table", last: int, alone: bool) -> RunData:
    from fedpick import store

    more = ["staleness"] if "flying" in rounds.column_names else []
    selections, common = selections_until(info, last, *more), _until(rounds, last)
    names = None if info.simulated else store.read_clients(info.folder)
    largest = int(selections["client"].to_numpy().max(initial=-1)) + 1
    joined = max(filter(None, common["joined"].to_pylist()), default=0) if "joined" in common.column_names else 0
    clients = max(info.num_clients or 0, len(names or ()), largest, joined, 1)  # more may have joined since
    trouble = scores.trouble(selections) if alone else []
    for row in trouble:
        known = names[row["client"]] if names and row["client"] < len(names) else ""
        row["client"] = known or str(row["client"])
    return RunData(
        info=dataclasses.replace(info, num_clients=clients),
        all_rounds=rounds,
        rounds=common,
        scores=scores.summary(common, selections, clients),
        counts=scores.counts(selections, clients),
        unusable=scores.unusable(common, selections),
        trouble=trouble,
    )


def read_runs(
    runs: Sequence[RunInfo], most: int | None = None, each: bool = False
) -> tuple[list[RunData], list[RunInfo]]:
    """Read runs and score the rounds that all of a pace have; returns also the runs without rounds.

    A move of the model is no round: runs without rounds are as long as all with the same pace.

    Args:
        runs: to read.
        most: rounds at most.
        each: whether every run is scored up to its last round instead.
    """
    arrow = needed("pyarrow", "reading a run", "report")
    from fedpick import store
    from fedpick.store.tables import has_begun

    begun = [run for run in runs if has_begun(run.folder)]
    if not begun:
        where = runs[0].source or runs[0].folder
        raise StoreError(f"{where}: has no rounds yet; wait for the first, or continue with fedpick resume {where}")
    tables, found = [store.read_rounds(run.folder) for run in begun], []
    for run, table in zip(begun, tables, strict=True):
        if not len(table):
            raise StoreError(f"{run.folder}: has no rounds in its rounds.parquet; restore it from a backup")
    if most is not None:
        tables = [_until(table, most) for table in tables]
    lasts: dict[str, int] = {}
    for run, table in zip(begun, tables, strict=True):
        lasts[_kind(run)] = min(_last(table), lasts.get(_kind(run), _last(table)))
    for run, table in zip(begun, tables, strict=True):
        last = _last(table) if each else lasts[_kind(run)]
        try:
            found.append(_score(run, table, last, alone=len(begun) == 1))
        except (KeyError, TypeError, ValueError, arrow.ArrowException) as error:
            raise StoreError(
                f"{run.folder}: its tables are not a run's ({type(error).__name__}: {error}); restore a backup"
            ) from None
    return found, [run for run in runs if run not in begun]
