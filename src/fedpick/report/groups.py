"""Group runs by policy and setting; `fedpick.report.summaries` makes the rows of a table of the groups."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedpick.core.errors import bare_name, unknown_name
from fedpick.core.metrics import direction
from fedpick.report.run_data import RunData
from fedpick.report.runs import RunInfo, is_buffered
from fedpick.report.scores import metrics_of

__all__ = ["Block", "Group", "base_of", "direction_of", "evaluated", "grouped", "reference_policy", "span"]


class Block(NamedTuple):
    """The settings besides policy and seed; policies are compared within a block."""

    world: str | None
    cohort_size: int | None
    data: str | None
    train: str
    engine: str
    pace: str = ""  # if it is not rounds with the world's settings
    code: str = ""  # versions of the user's code of world, data and trainer, where there are several

    @property
    def simulated(self) -> bool:
        """Whether its clients and its time are simulated."""
        return self.engine == "simulator"

    @property
    def buffered(self) -> bool:
        """Whether there are no rounds: a row of its records is a move of the model."""
        return is_buffered(self.pace)

    @property
    def place(self) -> "Block":
        """Everything but the pace: in one place, with one seed, all paces meet the same clients."""
        return self._replace(pace="")


def _block(run: RunInfo) -> Block:
    return Block(run.world, run.cohort_size, run.data, run.train, run.engine, run.pace, run.setting_version)


@dataclass(frozen=True)
class Group:
    """One policy in one block, with its runs by seed."""

    label: str  # the policy, with its folder if the block has the same policy twice
    policy: str
    block: Block
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [run.info.seed for run in self.runs]

    @property
    def num_clients(self) -> int:
        """The number of clients; of a deployment, that of the largest run."""
        return max(run.info.num_clients or 0 for run in self.runs)

    @property
    def oracle(self) -> bool:
        """Whether the policy knows the truth about the clients, which no server knows."""
        return any(run.info.oracle for run in self.runs)

    @property
    def given(self) -> tuple[str, ...]:
        """What the policy is given that others do without."""
        return tuple(dict.fromkeys(each for run in self.runs for each in run.info.given))

    def values(self, name: str) -> list[float] | None:
        """A score for each seed (NaN where a target was not reached); None if a run lacks it."""
        found = [run.scores.get(name) for run in self.runs]
        return None if None in found else [float(value) for value in found if value is not None]


def direction_of(groups: Iterable[Group], metric: str) -> str | None:
    """Whether "larger" or "smaller" values of a metric are better for these groups; None if that is not known."""
    declared = [run.info.directions for group in groups for run in group.runs]
    return direction(metric, {name: way for each in declared for name, way in each.items()})


def evaluated(groups: Sequence[Group]) -> list[str]:
    """The metrics that all runs of these groups have, in the order in which they were first given."""
    names = metrics_of(groups[0].runs[0].rounds)
    return [name for name in names if all(group.values(name) is not None for group in groups)]


def span(numbers: Iterable[int | None]) -> str:
    """One number, or the smallest and the largest; "?" if none is known.

    >>> span([4, 6, 5])
    '4 to 6'
    """
    ordered = sorted({each for each in numbers if each is not None})
    if not ordered:
        return "?"
    return f"{ordered[0]:,}" if len(ordered) == 1 else f"{ordered[0]:,} to {ordered[-1]:,}"


def _labels(runs: Sequence[RunInfo]) -> list[str]:
    """A label for each run's policy, with the version of its code; if it has a seed twice, the folder is added."""
    found = [run.name for run in runs]
    members: dict[tuple[str, Block], list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault((found[i], _block(run)), []).append(i)
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


def grouped(runs: Sequence[RunData], reference: str) -> list[Group]:
    """The groups by block; in a block the reference first, then the policies in their given order."""
    blocks = list(dict.fromkeys(_block(run.info) for run in runs))
    runs = sorted(runs, key=lambda run: run.info.policy != reference)  # stable
    named = list(zip(_labels([run.info for run in runs]), runs, strict=True))
    named.sort(key=lambda pair: pair[0] != reference)  # the reference may be the label of a version of the code
    labels = list(dict.fromkeys(label for label, _ in named))
    found: dict[tuple[int, int], list[RunData]] = {}
    for label, run in named:
        found.setdefault((blocks.index(_block(run.info)), labels.index(label)), []).append(run)
    return [
        Group(labels[j], inside[0].info.policy, blocks[i], tuple(sorted(inside, key=lambda run: run.info.seed)))
        for (i, j), inside in sorted(found.items())
    ]


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
    raise unknown_name("reference", wanted, list({run.name: 0 for run in runs}))


def base_of(group: Group, groups: Sequence[Group], reference: str) -> Group | None:
    """The group that a group is compared with; none for real clients, which are not the same for the same seed."""
    if not group.block.simulated:
        return None
    inside = [each for each in groups if each.block == group.block]
    named = [each for each in inside if each.label == reference] or [
        each for each in inside if each.policy == reference
    ]
    if len({each.label for each in named}) > 1 and any(each.runs[0].info.version for each in named):
        return None  # several versions of its code: which one is meant?
    return None if not named or named[0] is group else named[0]
