"""Group runs by policy and setting: means over seeds with intervals, paired differences, and warnings.

`fedpick.report.summaries` makes the rows of the table of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedpick.core.errors import bare_name, unknown_name
from fedpick.core.metrics import Target
from fedpick.report.intervals import Interval, interval, paired
from fedpick.report.played import Played
from fedpick.report.runs import RunInfo

__all__ = ["Block", "Group", "Score", "Summary", "base_of", "grouped", "reference_policy", "score", "span", "warnings"]

ENOUGH = 5  # seeds; with fewer, an interval depends strongly on the distribution of the scores


class Block(NamedTuple):
    """The settings besides policy and seed; policies are compared within a block."""

    world: str | None
    cohort_size: int | None
    data: str | None
    train: str
    engine: str
    code: str = ""  # versions of the user's own code in world, data and trainer, where there are several


def block_of(run: RunInfo) -> Block:
    """The block of a run."""
    return Block(run.world, run.cohort_size, run.data, run.train, run.engine, run.around)


@dataclass(frozen=True)
class Group:
    """One policy in one block, with its runs by seed."""

    label: str  # the policy, with its folder if the block has the same policy twice
    policy: str
    block: Block
    runs: tuple[Played, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [run.info.seed for run in self.runs]

    @property
    def declared(self) -> dict[str, str]:
        """The directions of metrics that their trainers declare."""
        return {name: way for run in self.runs for name, way in run.info.directions.items()}

    @property
    def oracle(self) -> bool:
        """Whether the policy knows the truth about the clients, which no server knows."""
        return any(run.info.oracle for run in self.runs)

    def values(self, name: str) -> list[float] | None:
        """A score for each seed (NaN where a target was not reached); None if a run lacks it."""
        found = [run.scores.get(name) for run in self.runs]
        return None if None in found else [float(value) for value in found if value is not None]


@dataclass(frozen=True)
class Score:
    """One score of a group over its seeds, and the difference to the reference."""

    values: list[float]
    over: Interval  # of the values that are not NaN
    reached: int | None  # number of seeds that reached the target; None: the score has no target
    difference: Interval | None  # paired by seed; None: no reference, or too few seeds


@dataclass(frozen=True)
class Summary:
    """A row of the table: a group, its scores, and the group that it is compared with."""

    group: Group
    base: Group | None  # the reference of its block; None: there is none, or it is this group
    target: Target | None
    scores: dict[str, Score]
    metric: str | None = None  # the main metric of its block

    @property
    def takes_time(self) -> bool:
        """Whether rounds take time in its world; in some nothing does."""
        return "hours" not in self.scores or any(value != 0.0 for value in self.scores["hours"].values)


def span(numbers: Iterable[int | None]) -> str:
    """One number, or the smallest and the largest; "?" if none is known.

    >>> span([4, 6, 5])
    '4 to 6'
    """
    ordered = sorted({each for each in numbers if each is not None})
    if not ordered:
        return "?"
    return f"{ordered[0]:,}" if len(ordered) == 1 else f"{ordered[0]:,} to {ordered[-1]:,}"


def labels(runs: Sequence[RunInfo]) -> list[str]:
    """A label for each run's policy, with the version of its code; if it has a seed twice, the folder is added."""
    found = [run.name for run in runs]
    members: dict[tuple[str, Block], list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault((found[i], block_of(run)), []).append(i)
    ways: tuple[Callable[[RunInfo], str], ...] = (
        lambda run: str(run.source or run.folder),
        lambda run: run.identity,
        lambda run: str(run.folder),
    )
    for inside in members.values():
        if len({runs[i].seed for i in inside}) == len(inside):
            continue
        for way in ways:
            parts: dict[str, list[int]] = {}
            for i in inside:
                parts.setdefault(way(runs[i]), []).append(i)
            if all(len({runs[i].seed for i in part}) == len(part) for part in parts.values()):
                break
        for text, part in parts.items():
            where = text if way is ways[0] else str(runs[part[0]].folder)
            for i in part:
                found[i] = f"{runs[i].name} in {where}"
    return found


def grouped(played: Sequence[Played], reference: str) -> list[Group]:
    """The groups by block; in a block the reference first, then the policies in their given order."""
    places = [block_of(run.info) for run in played]
    played = sorted(played, key=lambda run: run.info.policy != reference)  # stable
    names = labels([run.info for run in played])
    played, names = _first(reference, played, names)
    blocks = list(dict.fromkeys(places))
    found: dict[tuple[int, int], list[Played]] = {}
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}
    for name, run in zip(names, played, strict=True):
        found.setdefault((blocks.index(block_of(run.info)), order[name]), []).append(run)
    called = list(order)
    return [
        Group(called[j], runs[0].info.policy, blocks[i], tuple(sorted(runs, key=lambda run: run.info.seed)))
        for (i, j), runs in sorted(found.items())
    ]


def _first(reference: str, played: Sequence[Played], names: list[str]) -> tuple[list[Played], list[str]]:
    """The runs and their labels, those with the reference's label first: it may name a version of a policy's code."""
    order = sorted(range(len(names)), key=lambda i: names[i] != reference)
    return [played[i] for i in order], [names[i] for i in order]


def reference_policy(wanted: str | None, runs: Sequence[RunInfo]) -> str:
    """What the others are compared with: the policy of this text or label, or the first if it is None.

    A label with a version of the policy's code stands for that version alone.
    """
    if wanted is None:
        return runs[0].policy
    for same in (lambda name: name == wanted, lambda name: bare_name(name) == bare_name(wanted)):
        for run in runs:
            if same(run.policy) or same(run.label):
                return run.policy
            if same(run.name):
                return run.name
    raise unknown_name("reference among the policies of these runs", wanted, list({run.name: 0 for run in runs}))


def score(group: Group, name: str, base: Group | None) -> Score | None:
    """A score over seeds, and its paired difference to the reference; None if a run lacks it.

    If some seeds never reached a target, the mean is over those that did, without interval or difference.
    """
    values = group.values(name)
    if values is None:
        return None
    got = [value for value in values if not math.isnan(value)]
    reached = len(got) if name.endswith("_to") else None
    missing = reached is not None and reached < len(values)
    over = interval(got or [math.nan]) if missing else interval(values)
    if missing:
        over = Interval(over.mean, math.inf, len(got))
    other = base.values(name) if base is not None else None
    if base is None or other is None or missing or (reached is not None and any(map(math.isnan, other))):
        return Score(values, over, reached, None)
    mine, theirs = dict(zip(group.seeds, values, strict=True)), dict(zip(base.seeds, other, strict=True))
    common = [seed for seed in mine if seed in theirs]
    gap = paired([mine[s] for s in common], [theirs[s] for s in common]) if len(common) > 1 else None
    return Score(values, over, reached, gap)


def _which(seeds: Sequence[int]) -> str:
    """Seeds as a short text."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def warnings(groups: Sequence[Group], reference: str, bases: Sequence[Group | None]) -> list[str]:
    """What readers should know before they trust the numbers."""
    notes = []
    runs = [run for group in groups for run in group.runs]
    lasts = [int(run.all_rounds["round"].to_numpy().max()) for run in runs]
    if len(set(lasts)) > 1:
        notes.append(f"the runs have {span(lasts)} rounds; all scores are of the first {min(lasts):,} rounds")
    for group, base in zip(groups, bases, strict=True):
        if base is not None and base.seeds != group.seeds:
            common = [seed for seed in group.seeds if seed in base.seeds]
            over = f"differences use the {len(common)} in common" if len(common) > 1 else "no difference is computed"
            notes.append(f"{group.label} has seeds {_which(group.seeds)} and {base.label} {_which(base.seeds)}; {over}")
    blocks = dict.fromkeys(group.block for group in groups if group.block.engine == "simulator")
    known = [(group.block, name) for group in groups for name in (group.label, group.policy)]
    without = [block for block in blocks if (block, reference) not in known]
    if without:
        places = "; ".join(", ".join(str(part) for part in block if part not in (None, "")) for block in without)
        called = next((group.label for group in groups if group.policy == reference), reference)
        notes.append(f"the reference {called} has no rounds in: {places}; no differences are computed there")
    versions = [group.label for group in groups if group.policy == reference and group.runs[0].info.version]
    if len(set(versions)) > 1:
        notes.append(
            f"the reference {reference} has several versions of its code, so no differences are computed; name one: "
            f"--reference '{versions[-1]}'"
        )
    fewest = min(len(group.runs) for group in groups)
    if fewest == 1 and not blocks:  # real clients; one server is no comparison
        if len(groups) > 1:
            notes.append("each server ran once, with clients of its own: differences may be chance")
    elif fewest == 1:
        notes.append(f"one seed gives no interval, and differences may be chance; use {ENOUGH} or more")
    elif fewest < ENOUGH:
        notes.append(
            f"only {fewest} seeds: the intervals are valid only if scores are normally distributed; use {ENOUGH} or "
            "more before you rely on a difference"
        )
    for group in groups:
        lost = sum(run.unusable for run in group.runs)
        if lost:
            notes.append(
                f"{group.label}: {lost:,} updates were not finite (NaN or infinity) and count as failed; a lower "
                "learning rate may help"
            )
    return notes


def base_of(group: Group, groups: Sequence[Group], reference: str) -> Group | None:
    """The group that a group is compared with; none for real clients, which are not the same for the same seed."""
    if group.block.engine != "simulator":
        return None
    inside = [each for each in groups if each.block == group.block]
    named = [each for each in inside if each.label == reference] or [
        each for each in inside if each.policy == reference
    ]
    if len({each.label for each in named}) > 1 and any(each.runs[0].info.version for each in named):
        return None  # several versions of its code: which one is meant?
    return None if not named or named[0] is group else named[0]
