"""Runs over seeds: who is compared with whom, means with intervals, paired differences, and what to be wary of."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedpick.errors import bare_name, unknown_name
from fedpick.report import scores
from fedpick.report.intervals import Interval, interval, paired
from fedpick.report.played import Played
from fedpick.report.runs import RunInfo

__all__ = ["Block", "Group", "Score", "Summary", "reference_policy", "span", "summaries"]

ENOUGH = 5  # seeds; with fewer, an interval leans on how the scores are distributed
SHARE = 0.95  # of what the reference reaches at the end: the target unless another is given


class Block(NamedTuple):
    """What policies are compared within: all but the policy and the seed."""

    world: str | None
    cohort_size: int | None
    data: str | None
    train: str
    engine: str


def block_of(run: RunInfo) -> Block:
    """Where a run stands."""
    return Block(run.world, run.cohort_size, run.data, run.train, run.engine)


@dataclass(frozen=True)
class Group:
    """One policy in one block, with its runs by seed."""

    label: str  # the policy, with its folder where it is there twice
    policy: str
    block: Block
    runs: tuple[Played, ...]

    @property
    def seeds(self) -> list[int]:
        """Of its runs."""
        return [run.info.seed for run in self.runs]

    @property
    def oracle(self) -> bool:
        """Whether it was told what no server knows."""
        return any(run.info.oracle for run in self.runs)

    def values(self, name: str) -> list[float] | None:
        """A score, seed by seed (NaN where a target was not reached); None where a run lacks it."""
        found = [run.scores.get(name) for run in self.runs]
        return None if None in found else [float(value) for value in found if value is not None]


@dataclass(frozen=True)
class Score:
    """One score of a group: over the seeds that have it, and against the reference."""

    values: list[float]
    over: Interval  # of those that are not missing
    reached: int | None  # how many seeds got to the target; None: no score of a target
    difference: Interval | None  # paired by seed; None: no reference, or too few seeds


@dataclass(frozen=True)
class Summary:
    """A row of the table: a group, its scores, and what they were compared with."""

    group: Group
    base: Group | None  # the reference of its block; None: it is that, or there is none
    target: float | None
    scores: dict[str, Score]


def span(numbers: Iterable[int | None]) -> str:
    """One number, or the least and the largest; "?" if none is known.

    >>> span([4, 6, 5])
    '4 to 6'
    """
    ordered = sorted({each for each in numbers if each is not None})
    if not ordered:
        return "?"
    return f"{ordered[0]:,}" if len(ordered) == 1 else f"{ordered[0]:,} to {ordered[-1]:,}"


def labels(runs: Sequence[RunInfo]) -> list[str]:
    """A name for each run's policy; what stands twice under one seed is told apart by its folder."""
    found = [run.policy for run in runs]
    members: dict[tuple[str, Block], list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault((run.policy, block_of(run)), []).append(i)
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
                found[i] = f"{runs[i].policy} in {where}"
    return found


def grouped(played: Sequence[Played], reference: str) -> list[Group]:
    """The groups, block by block, first the reference, then policies in the order in which they came."""
    places = [block_of(run.info) for run in played]
    played = sorted(played, key=lambda run: run.info.policy != reference)  # stable
    names = labels([run.info for run in played])
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


def reference_policy(wanted: str | None, policies: Sequence[str]) -> str:
    """The policy that the others are compared with: the first unless another is named."""
    known = list(dict.fromkeys(policies))
    if wanted is None:
        return known[0]
    for same in (lambda name: name == wanted, lambda name: bare_name(name) == bare_name(wanted)):
        for name in known:
            if same(name):
                return name
    raise unknown_name("reference among the policies of these runs", wanted, known)


def default_target(anchor: Group) -> float | None:
    """95% of the mean accuracy that this policy has at the end, down to a whole percent; None: nothing to reach."""
    last = anchor.values("accuracy")
    reached = sum(last) / len(last) if last else math.nan
    target = math.floor(SHARE * reached * 100 + 1e-9) / 100 if math.isfinite(reached) else 0.0
    return target if target > 0 else None


def set_targets(groups: Sequence[Group], reference: str, given: float | None) -> dict[Block, float]:
    """The target of each block that has accuracies; every run there gets what it took to reach it, NaN if it never did.

    Simulated rounds, hours and gigabytes are of the first evaluation that reached the target.
    """
    targets: dict[Block, float] = {}
    for block in dict.fromkeys(group.block for group in groups):
        inside = [group for group in groups if group.block == block]
        if any(group.values("accuracy") is None for group in inside):
            continue
        anchor = next((group for group in inside if group.policy == reference), inside[0])
        target = default_target(anchor) if given is None else given
        if target is None:
            continue
        targets[block] = target
        for run in (run for group in inside for run in group.runs):
            took = scores.reach(run.rounds, "accuracy", target) or {}
            run.scores.update({f"{key}_to": took.get(key, math.nan) for key in ("rounds", "hours", "gigabytes")})
    return targets


def score(group: Group, name: str, base: Group | None) -> Score | None:
    """A score over seeds, and its paired difference to the reference; None where a run lacks it.

    Where some seeds never reached a target, the mean is over those that did, without interval or difference.
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
    """Seeds in few words."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def warnings(groups: Sequence[Group], reference: str, bases: Sequence[Group | None]) -> list[str]:
    """What a reader should know before trusting the numbers."""
    notes = []
    runs = [run for group in groups for run in group.runs]
    lasts = [int(run.all_rounds["round"].to_numpy().max()) for run in runs]
    if len(set(lasts)) > 1:
        notes.append(f"the runs have {span(lasts)} rounds; all scores are of the first {min(lasts):,}, which all have")
    for group, base in zip(groups, bases, strict=True):
        if base is not None and base.seeds != group.seeds:
            common = [seed for seed in group.seeds if seed in base.seeds]
            over = f"differences are over the {len(common)} in common" if len(common) > 1 else "there is no difference"
            notes.append(f"{group.label} has seeds {_which(group.seeds)} and {base.label} {_which(base.seeds)}; {over}")
    blocks = dict.fromkeys(group.block for group in groups if group.block.engine == "simulator")
    without = [b for b in blocks if reference not in [group.policy for group in groups if group.block == b]]
    if without:
        places = "; ".join(", ".join(str(part) for part in block if part not in (None, "")) for block in without)
        notes.append(f"the reference {reference} has no rounds in: {places}; there are no differences there")
    fewest = min(len(group.runs) for group in groups)
    if fewest == 1:
        notes.append(f"one seed gives no interval, and what it shows may be chance; take {ENOUGH} or more")
    elif fewest < ENOUGH:
        notes.append(
            f"only {fewest} seeds: such intervals hold only if scores vary like a normal law; take {ENOUGH} or more "
            "before a difference is believed"
        )
    for group in groups:
        lost = sum(run.unusable for run in group.runs)
        if lost:
            notes.append(
                f"{group.label}: {lost:,} updates were not finite (NaN or infinity) and count as failed; a lower "
                "learning rate may help"
            )
    return notes


def summaries(played: Sequence[Played], reference: str, target: float | None) -> tuple[list[Summary], list[str]]:
    """The rows of the table, and what a reader should know before trusting them."""
    groups = grouped(played, reference)
    targets = set_targets(groups, reference, target)
    bases = [_base(group, groups, reference) for group in groups]
    rows = []
    for group, base in zip(groups, bases, strict=True):
        found = {name: score(group, name, base) for name in group.runs[0].scores}
        kept = {name: each for name, each in found.items() if each is not None}
        rows.append(Summary(group, base, targets.get(group.block), kept))
    notes = warnings(groups, reference, bases)
    if target is not None and not targets:
        notes.append(f"the target {target:g} is of no use here: these runs do not all have a test accuracy")
    return rows, notes


def _base(group: Group, groups: Sequence[Group], reference: str) -> Group | None:
    """What a group is compared with; real clients are not the same at one seed, so that nothing is paired there."""
    if group.block.engine != "simulator":
        return None
    first = next((each for each in groups if each.block == group.block and each.policy == reference), None)
    return None if first is group else first
