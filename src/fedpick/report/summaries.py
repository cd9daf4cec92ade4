"""The rows of a comparison's table: the main metric and the target of each block, and notes on what is missing."""

import math
from collections.abc import Iterable, Mapping, Sequence

from fedpick.core.metrics import SIDES, Target, direction, is_loss, main_metric
from fedpick.report import scores
from fedpick.report.groups import Block, Group, Summary, base_of, grouped, score, span, warnings
from fedpick.report.played import Played

__all__ = ["SHARE", "shown_metrics", "summaries", "way"]

SHARE = 0.95  # default target, as a share of the reference's final value


def way(rows: Iterable[Summary], metric: str) -> str | None:
    """Whether larger or smaller values of a metric are better in these rows; None if that is not known."""
    return direction(metric, _declared(row.group for row in rows))


def _declared(groups: Iterable[Group]) -> dict[str, str]:
    return {name: each for group in groups for name, each in group.declared.items()}


def _evaluated(groups: Sequence[Group]) -> list[str]:
    """The metrics that all runs of these groups have, in the order in which they were first given."""
    names = scores.metrics_of(groups[0].runs[0].rounds)
    return [name for name in names if all(group.values(name) is not None for group in groups)]


def _own(block: Block) -> bool:
    """Whether the trainer was one of the user's own."""
    return block.train.startswith("trainer=")


def _main(inside: Sequence[Group], wanted: str | None) -> str | None:
    """The main metric of a block: the wanted one if all its runs have it, else the usual one."""
    names = _evaluated(inside)
    return wanted if wanted in names else main_metric(names, training=_own(inside[0].block))


def default_target(anchor: Group, metric: str, better: str) -> float | None:
    """95% of this policy's mean final value, rounded down; if smaller is better, the value / 0.95, rounded up.

    Accuracies are rounded to a whole percent, others to three digits; None if the value is 0, negative or not known.
    """
    last = anchor.values(metric)
    reached = sum(last) / len(last) if last else math.nan
    if not (math.isfinite(reached) and reached > 0):
        return None
    larger = better == "larger"
    value = SHARE * reached if larger else reached / SHARE
    digits = 2 if metric == "accuracy" else 2 - math.floor(math.log10(value))
    slack = 1e-9 if larger else -1e-9
    rounded = (math.floor if larger else math.ceil)(value * 10.0**digits + slack) / 10.0**digits
    return rounded if rounded > 0 else None


def set_targets(
    groups: Sequence[Group], reference: str, given: Target | None, mains: Mapping[Block, str | None]
) -> tuple[dict[Block, Target], list[str]]:
    """Set the target of each block that has its metric; returns also notes on targets that make no sense.

    Every run there gets the scores rounds_to, hours_to and gigabytes_to: at the first evaluation that reached the
    target, NaN if none did.
    """
    targets: dict[Block, Target] = {}
    notes: list[str] = []
    for block, main in mains.items():
        inside = [group for group in groups if group.block == block]
        metric = given.metric if given is not None and given.metric is not None else main
        if metric is None or metric not in _evaluated(inside):
            continue
        better = direction(metric, _declared(inside))
        if better is None:
            continue
        anchor = next((group for group in inside if reference in (group.label, group.policy)), inside[0])
        value = default_target(anchor, metric, better) if given is None else given.value
        if value is None or (given is None and any(scores.fresh(run.rounds) for each in inside for run in each.runs)):
            continue
        targets[block] = Target(metric, value)
        for run in (run for group in inside for run in group.runs):
            took = scores.reach(run.rounds, metric, value, smaller=better == "smaller") or {}
            run.scores.update({f"{key}_to": took.get(key, math.nan) for key in ("rounds", "hours", "gigabytes")})
        most = max(max(group.values(metric) or [0.0]) for group in inside)
        if better == "larger" and 0 < most <= 1 < value:
            notes.append(
                f"the target {targets[block]} is above 1, but no value is; write {value / 100:g} for {value:g}%"
            )
    if given is not None and not targets:
        notes.append(_ignored(groups, given, mains))
    return targets, list(dict.fromkeys(notes))


def _ignored(groups: Sequence[Group], given: Target, mains: Mapping[Block, str | None]) -> str:
    """Why a target is not used."""
    metric = given.metric or next((main for main in mains.values() if main is not None), None)
    said = f"{given.value:g}" if given.metric is None else f"{given.metric}={given.value:g}"
    if metric is not None and direction(metric, _declared(groups)) is None and metric in _evaluated(groups):
        return f"the target {said} is ignored: it is not known whether larger or smaller values of {metric} are better"
    what = "a test accuracy" if given.metric is None else given.metric
    known = list(dict.fromkeys(name for group in groups for name in _evaluated([group])))
    have = f"; they have {', '.join(known)}" if known and given.metric is not None else ""
    return f"the target {said} is ignored: these runs do not all have {what}{have}"


def _untested(groups: Sequence[Group]) -> list[str]:
    """Why runs that train a model have no metric of it, and what to do."""
    notes = []
    simulated = [group for group in groups if group.block.engine == "simulator" and group.block.data is not None]
    for data, own in dict.fromkeys((group.block.data, _own(group.block)) for group in simulated):
        inside = [group for group in simulated if (group.block.data, _own(group.block)) == (data, own)]
        runs = [run for group in inside for run in group.runs]
        found = [name for run in runs for name in scores.metrics_of(run.rounds) if name in run.scores]
        if main_metric(found, training=own) is not None:
            continue
        over = all(run.info.rounds is not None and len(run.all_rounds) >= run.info.rounds for run in runs)  # not live
        rounds = span(len(run.rounds) for run in runs)
        if "train_loss" in found:
            notes.append(
                f"{data}: no accuracy, because there are no test examples; add some (test_x and test_y in a .npz, a "
                "column test in a .parquet), or keep a share of each client's: hold_out = 0.1 in [data] (in Python, "
                "data={'name': ..., 'hold_out': 0.1} or fp.data.hold_out)"
            )
        elif over and own:
            notes.append(
                f"{data}: no metric of the model, because the trainer's evaluate gave none in {rounds} rounds; return "
                "some from it, such as {'macro_f1': 0.8}"
            )
        elif over:
            notes.append(
                f"{data}: no accuracy, because the model was not evaluated in {rounds} rounds; play more, or set "
                "evaluate_every in [train], which is 10 rounds unless set"
            )
    return notes


def _lacking(groups: Sequence[Group]) -> list[str]:
    """What a trainer does not give: the direction of a metric, scores of the clients, reports that a policy uses."""
    notes = []
    trained = [group for group in groups if group.block.engine == "simulator" and _evaluated([group])]
    names = dict.fromkeys(name for group in trained for name in _evaluated([group]))
    unknown = [name for name in names if direction(name, _declared(trained)) is None]
    if unknown:
        notes.append(
            f"{', '.join(unknown)}: not known whether larger or smaller is better, so there is no target and no "
            f"verdict; declare it in the trainer: directions = {{{unknown[0]!r}: 'larger'}}"
        )
    if any(_own(group.block) and group.values("worst_decile") is None for group in trained):
        notes.append(
            "no worst tenth of clients: the trainer gives no scores of single clients; give it a method "
            "client_scores(model, round), see fedpick.core.protocol.Trainer"
        )
    for group in groups:
        for report, instead in dict(item for run in group.runs for item in run.info.lacking.items()).items():
            took = f"it took {instead} instead" if instead else "it went on without"
            notes.append(f"{group.label}: no client reported {report!r}, which it uses where it can; {took}")
    return notes


def summaries(
    played: Sequence[Played], reference: str, target: Target | None, metric: str | None = None
) -> tuple[list[Summary], list[str]]:
    """The rows of the table, and notes that readers should know before they trust the numbers.

    Args:
        played: the runs.
        reference: the policy that the others are compared with.
        target: given by the user.
        metric: the main one, if the user gave it.
    """
    groups = grouped(played, reference)
    blocks = dict.fromkeys(group.block for group in groups)
    mains = {block: _main([group for group in groups if group.block == block], metric) for block in blocks}
    targets, said = set_targets(groups, reference, target, mains)
    bases = [base_of(group, groups, reference) for group in groups]
    rows = []
    for group, base in zip(groups, bases, strict=True):
        found = {name: score(group, name, base) for name in group.runs[0].scores}
        kept = {name: each for name, each in found.items() if each is not None}
        rows.append(Summary(group, base, targets.get(group.block), kept, mains[group.block]))
    if metric is not None and metric not in mains.values():
        said.insert(0, _absent(groups, metric))
    return rows, [
        *warnings(groups, reference, bases),
        *_untested(groups),
        *_lacking(groups),
        *_begun_again(groups),
        *said,
    ]


def _begun_again(groups: Sequence[Group]) -> list[str]:
    """Which curves are of several trainings, because a restarted server began with another model."""
    return [
        f"{group.label}: the model began again before round {', '.join(map(str, again))}, because the server was "
        "restarted without the model of the round before (model='folder' keeps it): its curves are of several "
        "trainings, and no target is derived from them"
        for group in groups
        for run in group.runs
        if (again := scores.fresh(run.rounds))
    ]


def _absent(groups: Sequence[Group], metric: str) -> str:
    """Why the main metric is not the one that the user gave."""
    known = list(dict.fromkeys(name for group in groups for name in _evaluated([group])))
    have = f"they have {', '.join(known)}" if known else "they were not evaluated"
    return f"the metric {metric} is not the main one: these runs do not all have it; {have}"


def shown_metrics(rows: Sequence[Summary]) -> list[str]:
    """The metrics that a table of these rows has: the main one, and others on test data that are no losses."""
    names = _evaluated([row.group for row in rows])
    mains = [main for main in dict.fromkeys(row.metric for row in rows) if main in names]
    others = [name for name in names if not (name in (*mains, *SIDES) or is_loss(name) or name.startswith("train_"))]
    return [*mains, *others]
