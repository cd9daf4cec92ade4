"""Comparisons of paces: how much sooner asynchronous training reaches a level than rounds, and what that costs.

Rounds and moves of the model are no common measure, so paces are compared by time, traffic and tasks until the target:
as ratios between two paces, for the same policy in the same place, paired by seed. The interval of a ratio is the
t-interval of the mean of its logarithms.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedpick.core.errors import printable
from fedpick.report.groups import Group
from fedpick.report.intervals import Interval, paired
from fedpick.report.layout import Cell, listed, short
from fedpick.report.summaries import Summary

__all__ = ["MEASURES", "Comparison", "Ratio", "comparisons", "is_mixed", "pace_verdict", "ratio_cells", "traffic"]


class Measure(NamedTuple):
    """What paces are compared by, until the target."""

    score: str
    heading: str  # of a column with ratios
    words: str  # for so many times the ...


MEASURES = {
    "hours_to": Measure("hours_to", "times sooner", "time"),
    "gigabytes_to": Measure("gigabytes_to", "times the traffic", "traffic"),
    "messages_to": Measure("messages_to", "times the messages", "messages"),
    "tasks_to": Measure("tasks_to", "times the client work", "client work"),
}


@dataclass(frozen=True)
class Ratio:
    """How many times as much one pace needs as another: the geometric mean over seeds, and its 95% interval."""

    logs: Interval  # of the logarithms

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return math.exp(self.logs.mean)

    @property
    def low(self) -> float:
        """The lower end."""
        return math.exp(self.logs.low)

    @property
    def high(self) -> float:
        """The upper end; infinite for one seed."""
        return math.exp(self.logs.high) if self.logs.high < 700 else math.inf

    @property
    def n(self) -> int:
        """The number of pairs."""
        return self.logs.n

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 1."""
        return self.logs.clear

    @property
    def inverse(self) -> "Ratio":
        """The other pace's."""
        return Ratio(Interval(-self.logs.mean, self.logs.half, self.logs.n))

    def __str__(self) -> str:
        if not self.logs.has_width:
            return f"{_number(self.mean)} times"
        low, high = _number(self.low), _number(self.high)
        return f"{low} times" if low == high else f"{low} to {high} times"

    @property
    def cell(self) -> Cell:
        """For a table."""
        if not self.logs.has_width:
            return Cell(_number(self.mean))
        return Cell(f"{_number(self.mean)} [{_number(self.low)}, {_number(self.high)}]{'*' * self.clear}")


@dataclass(frozen=True)
class Comparison:
    """A policy under two paces in one place."""

    base: Summary  # under the pace that the other is compared with
    row: Summary
    seeds: tuple[int, ...]  # that both have
    ratios: dict[str, Ratio]  # by score: what `row` needs over what `base` needs; only where all seeds reached it


def is_mixed(rows: Sequence[Summary]) -> bool:
    """Whether they have several paces of which one is without rounds: then rounds are no common measure."""
    blocks = [row.group.block for row in rows]
    return any(block.buffered for block in blocks) and len({block.pace for block in blocks}) > 1


def traffic(rows: Sequence[Summary]) -> str:
    """The score of what is sent until the target: bytes, or messages where no bytes are known."""
    values = [value for row in rows if (score := row.scores.get("gigabytes_to")) for value in score.values]
    return "messages_to" if all(math.isnan(value) or value == 0.0 for value in values) else "gigabytes_to"


def comparisons(rows: Sequence[Summary]) -> list[Comparison]:
    """Each policy under each further pace of its place, compared with the first pace: one with rounds if there is one.

    A policy with over-selection is compared with itself without, which is how it runs without rounds.
    """
    if not is_mixed(rows):
        return []
    found = []
    for place in dict.fromkeys(row.group.block.place for row in rows if row.group.block.simulated):
        inside = [row for row in rows if row.group.block.place == place]
        first = next((row for row in inside if not row.group.block.buffered), inside[0]).group.block.pace
        for base in (row for row in inside if row.group.block.pace == first):
            names = (base.group.label, _plain(base.group.label))
            found += [
                _compared(base, row)
                for row in inside
                if row.group.block.pace != first
                and row.group.label in (names if row.group.block.buffered else names[:1])
            ]
    return found


def _plain(policy: str) -> str:
    """A policy without over-selection.

    >>> _plain("over-select(e3cs(quota=0.5), 1.3)"), _plain("uniform")
    ('e3cs(quota=0.5)', 'uniform')
    """
    inside = re.fullmatch(r"over-?select\((.*)\)", policy)
    if inside is None:
        return policy
    depth, text = 0, inside[1].removeprefix("policy=")
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            return text[:at]
    return text


def _compared(base: Summary, row: Summary) -> Comparison:
    seeds = tuple(seed for seed in base.group.seeds if seed in row.group.seeds)
    ratios = {}
    for score in MEASURES:
        ours, theirs = _values(row.group, score, seeds), _values(base.group, score, seeds)
        if len(seeds) and all(0.0 < value < math.inf for value in (*ours, *theirs)):
            ratios[score] = Ratio(paired(np.log(ours), np.log(theirs)))
    return Comparison(base, row, seeds, ratios)


def _values(group: Group, score: str, seeds: Sequence[int]) -> list[float]:
    known = dict(zip(group.seeds, group.values(score) or [math.nan] * len(group.runs), strict=True))
    return [known[seed] for seed in seeds]


def _number(value: float) -> str:
    """Two digits, or all before the point.

    >>> _number(2.449), _number(13.2), _number(0.0834), _number(1.0)
    ('2.4', '13', '0.083', '1.0')
    """
    if not math.isfinite(value):
        return "any number of"
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


# ---- in a table


def ratio_cells(rows: Sequence[Summary]) -> list[tuple[str, list[Cell]]]:
    """Columns with what each row needs beside the first pace: headings, and a cell for each row."""
    found = comparisons(rows)
    columns = []
    for score in ("hours_to", traffic(rows), "tasks_to"):
        if any(score in each.ratios for each in found):
            cells = [Cell(", ".join(_cells(found, row, score))) for row in rows]
            columns.append((MEASURES[score].heading, cells))
    return columns


def _cells(found: Sequence[Comparison], row: Summary, score: str) -> list[str]:
    ratios = [each.ratios[score] for each in found if each.row is row and score in each.ratios]
    return [(ratio.inverse if score == "hours_to" else ratio).cell.main for ratio in ratios] or ["–"]


# ---- in words


def pace_verdict(rows: Sequence[Summary], places: Sequence[str] = ()) -> list[str]:
    """Sentences about each policy under two paces; `places` are the names of the rows' places, if they differ."""
    found = comparisons(rows)
    if not found:
        return []
    if all(each.row.target is None for each in found):
        return [
            "Paces are compared by the time to a level of a metric, and there is none: the time and the traffic in the "
            "table are those of all that was played."
        ]
    paces = [row.group.block.pace for row in rows]
    where = {id(row): place for row, place in zip(rows, places, strict=False)}
    return [_sentence(each, traffic(rows), paces, where.get(id(each.row), "")) for each in found]


def _pace(row: Summary, paces: Sequence[str]) -> str:
    """A pace in a sentence: "rounds" and "asynchronous" where there is only one of the kind."""
    block = row.group.block
    kind = {pace for pace in paces if pace.startswith("buffered(") == block.buffered}
    if len(kind) == 1:
        return "asynchronous" if block.buffered else "rounds"
    return printable(short(block.pace or "rounds", 80))


def _sentence(each: Comparison, sent: str, paces: Sequence[str], place: str) -> str:
    ours, theirs = _pace(each.row, paces), _pace(each.base, paces)
    name = printable(short(each.row.group.label, 60))
    if each.base.group.label != each.row.group.label:
        theirs = f"{theirs} of {printable(short(each.base.group.label, 60))}"
    begin = f"{name} ({short(place, 80)}): " if place else f"{name}: "
    target = printable(str(each.row.target)) if each.row.target is not None else "the target"
    if not each.seeds:
        return f"{begin}{ours} and {theirs} have no seed in common, so they are not compared."
    if "tasks_to" not in each.ratios:
        return begin + _missed(each, ours, theirs, target)
    costs = [
        f"{each.ratios[score]} the {MEASURES[score].words}" for score in (sent, "tasks_to") if score in each.ratios
    ]
    over = f"{len(each.seeds)} paired seeds" if len(each.seeds) > 1 else "one seed: a difference may be chance"
    time = each.ratios.get("hours_to")
    if time is None:  # nothing takes time in its world
        return f"{begin}{ours} reaches {target} with {listed(costs)} of {theirs}; {over}."
    if time.clear or (not time.logs.has_width and abs(time.logs.mean) > 1e-9):
        how = f"{time.inverse} sooner" if time.logs.mean < 0 else f"in {time} the time, so later,"
        than = "than" if time.logs.mean < 0 else "compared with"
        return f"{begin}{ours} reaches {target} {how} {than} {theirs}, for {listed(costs)}; {over}."
    return (
        f"{begin}no difference in the time to {target} could be shown: {ours} takes {time} the time of {theirs}, for "
        f"{listed(costs)}; {over}."
    )


def _missed(each: Comparison, ours: str, theirs: str, target: str) -> str:
    """Where not all seeds reached the target."""
    seeds = len(each.seeds)
    pairs = ((each.row, ours), (each.base, theirs))
    reached = [_reached(row, each.seeds) for row, _ in pairs]
    if reached == [0, 0]:
        return f"{target} was never reached, neither by {ours} nor by {theirs} ({_many(seeds)})."
    ends = [f"{name} with {count} of {_many(seeds)}" for count, (_, name) in zip(reached, pairs, strict=True) if count]
    never = [name for count, (_, name) in zip(reached, pairs, strict=True) if not count]
    if never:
        text = f"{target} was never reached by {never[0]}; it was by {ends[0]}"
    else:
        text = f"{target} was reached by {listed(ends)}, so there is no ratio: the seeds that reached it are not all"
    (row, name), (other, _) = pairs if reached[0] < reached[1] else pairs[::-1]
    if _mean_end(row) < _mean_time(other):
        text += f". The runs of {name} end before the others reach it: give them more"
        text += " moves of the model" if row.group.block.buffered else " rounds"
    return text + "."


def _many(seeds: int) -> str:
    return f"{seeds} seeds" if seeds > 1 else "one seed"


def _reached(row: Summary, seeds: Sequence[int]) -> int:
    return sum(not math.isnan(value) for value in _values(row.group, "tasks_to", seeds))


def _mean_time(row: Summary) -> float:
    """Hours until the target, over the seeds that reached it."""
    known = [value for value in row.group.values("hours_to") or [] if not math.isnan(value)]
    return sum(known) / len(known) if known else 0.0


def _mean_end(row: Summary) -> float:
    """Hours that the runs last."""
    known = row.group.values("hours") or [math.inf]
    return sum(known) / len(known)
