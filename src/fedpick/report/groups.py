"""Group runs by policy and setting: means over seeds with intervals, paired differences, and warnings."""

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

ENOUGH = 5  # seeds; with fewer, an interval depends strongly on the distribution of the scores
SHARE = 0.95  # default target, as a share of the reference's final accuracy


class Block(NamedTuple):
    """The settings besides policy and seed; policies are compared within a block."""

    world: str | None
    cohort_size: int | None
    data: str | None
    train: str
    engine: str


def block_of(run: RunInfo) -> Block:
    """The block of a run."""
    return Block(run.world, run.cohort_size, run.data, run.train, run.engine)


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
    target: float | None
    scores: dict[str, Score]

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
    """A label for each run's policy; if a policy has a seed twice, the folder is added."""
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
    """The groups by block; in a block the reference first, then the policies in their given order."""
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
    """The policy that the others are compared with: `wanted`, or the first if it is None."""
    known = list(dict.fromkeys(policies))
    if wanted is None:
        return known[0]
    for same in (lambda name: name == wanted, lambda name: bare_name(name) == bare_name(wanted)):
        for name in known:
            if same(name):
                return name
    raise unknown_name("reference among the policies of these runs", wanted, known)


def default_target(anchor: Group) -> float | None:
    """95% of this policy's mean final accuracy, rounded down to a whole percent; None if that is 0 or not known."""
    last = anchor.values("accuracy")
    reached = sum(last) / len(last) if last else math.nan
    target = math.floor(SHARE * reached * 100 + 1e-9) / 100 if math.isfinite(reached) else 0.0
    return target if target > 0 else None


def set_targets(groups: Sequence[Group], reference: str, given: float | None) -> dict[Block, float]:
    """Set the target of each block that has accuracies.

    Every run there gets the scores rounds_to, hours_to and gigabytes_to: at the first evaluation that reached the
    target, NaN if none did.
    """
    targets: dict[Block, float] = {}
    for block in dict.fromkeys(group.block for group in groups):
        inside = [group for group in groups if group.block == block]
        if any(group.values("accuracy") is None for group in inside):
            continue
        anchor = next((group for group in inside if group.policy == reference), inside[0])
        mixed = any(scores.fresh(run.rounds) for group in inside for run in group.runs)
        target = given if given is not None else None if mixed else default_target(anchor)
        if target is None:
            continue
        targets[block] = target
        for run in (run for group in inside for run in group.runs):
            took = scores.reach(run.rounds, "accuracy", target) or {}
            run.scores.update({f"{key}_to": took.get(key, math.nan) for key in ("rounds", "hours", "gigabytes")})
    return targets


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
    without = [b for b in blocks if reference not in [group.policy for group in groups if group.block == b]]
    if without:
        places = "; ".join(", ".join(str(part) for part in block if part not in (None, "")) for block in without)
        notes.append(f"the reference {reference} has no rounds in: {places}; no differences are computed there")
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


def _untested(groups: Sequence[Group]) -> list[str]:
    """Why runs that train a model have no accuracy, and what to do."""
    notes = []
    for data in dict.fromkeys(group.block.data for group in groups if group.block.engine == "simulator"):
        runs = [run for group in groups if group.block.data == data for run in group.runs]
        found = set().union(*(run.scores for run in runs))
        if data is None or found & {"accuracy", "test_loss"}:
            continue
        if "train_loss" in found:
            notes.append(
                f"{data}: no accuracy, because there are no test examples; add some (test_x and test_y in a .npz, a "
                "column test in a .parquet), or keep a share of each client's: hold_out = 0.1 in [data] (in Python, "
                "data={'name': ..., 'hold_out': 0.1} or fp.data.hold_out)"
            )
        elif all(run.info.rounds is not None and len(run.all_rounds) >= run.info.rounds for run in runs):  # not live
            notes.append(
                f"{data}: no accuracy, because the model was not evaluated in {span(len(run.rounds) for run in runs)} "
                "rounds; play more, or set evaluate_every in [train], which is 10 rounds unless set"
            )
    return notes


def _mixed(groups: Sequence[Group]) -> list[str]:
    """Which curves are of several trainings, because a restarted server began with another model."""
    return [
        f"{group.label}: the model began again before round {', '.join(map(str, again))}, because the server was "
        "restarted without the model of the round before (model='folder' keeps it): its curves are of several "
        "trainings, and no target is derived from them"
        for group in groups
        for run in group.runs
        if (again := scores.fresh(run.rounds))
    ]


def summaries(played: Sequence[Played], reference: str, target: float | None) -> tuple[list[Summary], list[str]]:
    """The rows of the table, and notes that readers should know before they trust the numbers."""
    groups = grouped(played, reference)
    targets = set_targets(groups, reference, target)
    bases = [_base(group, groups, reference) for group in groups]
    rows = []
    for group, base in zip(groups, bases, strict=True):
        found = {name: score(group, name, base) for name in group.runs[0].scores}
        kept = {name: each for name, each in found.items() if each is not None}
        rows.append(Summary(group, base, targets.get(group.block), kept))
    notes = [*warnings(groups, reference, bases), *_untested(groups), *_mixed(groups)]
    if target is not None and not targets:
        notes.append(f"the target {target:g} is ignored: these runs do not all have a test accuracy")
    return rows, notes


def _base(group: Group, groups: Sequence[Group], reference: str) -> Group | None:
    """The group that a group is compared with; none for real clients, which are not the same for the same seed."""
    if group.block.engine != "simulator":
        return None
    first = next((each for each in groups if each.block == group.block and each.policy == reference), None)
    return None if first is group else first
