"""The rows of a comparison's table: scores over seeds, differences to the reference, targets and main metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpick.core.metrics import SIDES, Target, is_loss, main_metric
from fedpick.report import scores
from fedpick.report.groups import Block, Group, base_of, direction_of, evaluated, grouped
from fedpick.report.intervals import Interval, interval, paired
from fedpick.report.run_data import RunData

__all__ = ["Score", "Summary", "shown_metrics", "summaries", "user_trainer"]

SHARE = 0.95  # default target, as a share of the reference's final value


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


def _score(group: Group, name: str, base: Group | None) -> Score | None:
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


def user_trainer(block: Block) -> bool:
    """Whether the trainer is code of the user's."""
    return block.train.startswith("trainer=")


def _main(inside: Sequence[Group], wanted: str | None) -> str | None:
    """The main metric of a block: the wanted one if all its runs have it, else the usual one."""
    names = evaluated(inside)
    return wanted if wanted in names else main_metric(names, training=user_trainer(inside[0].block))


def _default_target(anchor: Group, metric: str, larger: bool) -> float | None:
    """95% of this policy's mean final value, rounded down; if smaller is better, the value / 0.95, rounded up.

    Accuracies are rounded to a whole percent, others to three digits; None if the value is 0, negative or not known.
    """
    last = anchor.values(metric)
    reached = sum(last) / len(last) if last else math.nan
    if not (math.isfinite(reached) and reached > 0):
        return None
    value = SHARE * reached if larger else reached / SHARE
    digits = 2 if metric == "accuracy" else 2 - math.floor(math.log10(value))
    slack = 1e-9 if larger else -1e-9
    rounded = (math.floor if larger else math.ceil)(value * 10.0**digits + slack) / 10.0**digits
    return rounded if rounded > 0 else None


def _set_targets(
    groups: Sequence[Group], reference: str, given: Target | None, mains: Mapping[Block, str | None]
) -> dict[Block, Target]:
    """Set the target of each place that has its metric, the same for all its paces.

    Every run there gets the scores of `scores.TO`, such as rounds_to: at the first evaluation that reached the target,
    NaN if none did. With several paces, the default is the one of them that is easiest to reach.
    """
    targets: dict[Block, Target] = {}
    for place, main in mains.items():
        inside = [group for group in groups if group.block.place == place]
        runs = [run for group in inside for run in group.runs]
        metric = given.metric if given is not None and given.metric is not None else main
        if metric is None or metric not in evaluated(inside):
            continue
        way = direction_of(inside, metric)
        if way is None or (given is None and any(scores.fresh_starts(run.rounds) for run in runs)):
            continue
        value = None if given is None else given.value
        if value is None:
            found = [_default_target(each, metric, way == "larger") for each in _anchors(inside, reference)]
            known = [each for each in found if each is not None]
            if not known:
                continue
            value = min(known) if way == "larger" else max(known)
        targets[place] = Target(metric, value)
        for run in runs:
            took = scores.reach(run.rounds, metric, value, smaller=way == "smaller") or {}
            has = [key for key in scores.TO if key in run.scores or key == "rounds"]  # older runs lack some
            run.scores.update({f"{key}_to": took.get(key, math.nan) for key in has})
    return targets


def _anchors(inside: Sequence[Group], reference: str) -> list[Group]:
    """The group of the reference under each pace of a place, or the first where there is none."""
    paces: dict[str, list[Group]] = {}
    for group in inside:
        paces.setdefault(group.block.pace, []).append(group)
    return [
        next((group for group in each if reference in (group.label, group.policy)), each[0]) for each in paces.values()
    ]


def summaries(
    runs: Sequence[RunData], reference: str, target: Target | None, metric: str | None = None
) -> list[Summary]:
    """The rows of the table; the other arguments are those of `Results`."""
    groups = grouped(runs, reference)
    places = dict.fromkeys(group.block.place for group in groups)
    mains = {place: _main([group for group in groups if group.block.place == place], metric) for place in places}
    targets = _set_targets(groups, reference, target, mains)
    rows = []
    for group in groups:
        base = base_of(group, groups, reference)
        found = {name: _score(group, name, base) for name in group.runs[0].scores}
        kept = {name: each for name, each in found.items() if each is not None}
        rows.append(Summary(group, base, targets.get(group.block.place), kept, mains[group.block.place]))
    return rows


def shown_metrics(rows: Sequence[Summary]) -> list[str]:
    """The metrics that a table of these rows has: the main one, and others on test data that are no losses."""
    names = evaluated([row.group for row in rows])
    mains = [main for main in dict.fromkeys(row.metric for row in rows) if main in names]
    others = [name for name in names if not (name in (*mains, *SIDES) or is_loss(name) or name.startswith("train_"))]
    return [*mains, *others]
