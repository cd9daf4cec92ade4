"""The lines below a table: how to read it, and what readers should know before they trust the numbers."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedpick.core.errors import printable
from fedpick.core.metrics import LABELS, Target, main_metric
from fedpick.report import scores
from fedpick.report.groups import Group, direction_of, evaluated, span
from fedpick.report.paces import is_mixed
from fedpick.report.run_data import RunData
from fedpick.report.runs import RunInfo, is_buffered
from fedpick.report.summaries import Summary, shown_metrics, user_trainer

__all__ = ["legend", "row_notes", "run_notes"]

ENOUGH = 5  # seeds; with fewer, an interval depends strongly on the distribution of the scores


# ---- how to read the table


def legend(rows: Sequence[Summary], shown: Sequence[str], reference: str, given: bool) -> list[str]:
    """How to read a table that shows these scores; a target that the user gave needs no explanation."""
    lines = []
    cells = [row.scores[name] for row in rows for name in shown if name in row.scores]
    until = next((name for name in ("rounds_to", "tasks_to") if name in shown), "")
    gaps = [cell.difference for cell in cells if cell.difference is not None]
    if gaps:
        lines.append(
            f"± is a 95% interval over seeds; differences are to {printable(reference)}, paired by seed "
            "(bold, *: the interval excludes 0)"
        )
    elif any(cell.over.has_width for cell in cells):
        lines.append("± is a 95% interval over seeds")
    if any(cell.over.half == 0 for cell in cells) or any(gap.half == 0 != gap.mean for gap in gaps):
        lines.append("without ±: all seeds give the same number, so there is no interval")
    if until and any(row.target is not None for row in rows):
        lines += [] if given else _default_targets(rows, reference)
        every = _evaluated_every(row for row in rows if until in row.scores)
        if every > 1 and until == "rounds_to":
            what = "moves" if all(row.group.block.buffered for row in rows) else "rounds"
            lines.append(f"models are evaluated every {every} {what}: {what} to the target are multiples of {every}")
        elif every > 1:
            lines.append(f"models are evaluated every {every} rounds or moves: a target is reached at one of these")
        missed = [row.scores[until] for row in rows if row.scores[until].reached != len(row.group.runs)]
        if missed:
            some = next((each for each in missed if each.reached), missed[0])
            lines.append(
                f"({some.reached} of {len(some.values)}): number of seeds that reached the target; the mean is over "
                "those, without interval or difference"
            )
    if any(row.group.block.buffered for row in rows) and "stale_mean" in shown:
        lines.append("staleness: moves of the model between asking a client and using its answer; a fresh one has 0")
    if any(name in shown for name in ("client_hours", "client_hours_to")):
        lines.append("client hours (minutes, seconds): of computing, also for work that is not used, and for probes")
    if is_mixed(rows) and until:
        first = "rounds" if any(not row.group.block.buffered for row in rows) else "the first pace"
        lines.append(
            f"times sooner, times the ...: compared with {first}, for the same policy; geometric means over seeds, in "
            "brackets 95% intervals (*: it excludes 1). A client task is one client's training, used or not"
        )
    more = [printable(name) for name in shown_metrics(rows) if name not in shown] if rows[0].metric in shown else []
    if more:
        lines.append(f"not shown here, but in CSV and JSON: {', '.join(more)}")
    if any(row.group.given for row in rows):
        lines.append("is given: what the policy needs that others do without; what clients send for it is in the bytes")
    if any("server data" in row.group.given for row in rows):
        lines.append(
            "server data: labelled examples of the server's, taken from the test examples (set_aside); all policies of "
            "a comparison are tested without them"
        )
    if any(row.group.oracle for row in rows):
        lines.append("(oracle): knows the truth about the clients, which no server knows; a bound, not a competitor")
    return lines


def _default_targets(rows: Sequence[Summary], reference: str) -> list[str]:
    """Where the targets come from that the user did not give."""
    found: dict[str, list[Target]] = {}
    for target in sorted({row.target for row in rows if row.target is not None}, key=str):
        found.setdefault(target.metric or "accuracy", []).append(target)
    lines = []
    for metric, targets in found.items():
        texts, has = " and ".join(printable(str(each)) for each in targets), f"{printable(reference)} has at the end"
        has += " under the worse pace" if is_mixed(rows) else ""
        label = LABELS.get(metric, printable(metric))
        if direction_of((row.group for row in rows), metric) == "larger":
            digits = " to a whole percent" if metric == "accuracy" else ""
            lines.append(f"{texts}: 95% of the {label} that {has}, rounded down{digits}")
        else:
            lines.append(f"{texts}: the {label} that {has} divided by 0.95, rounded up; smaller is better")
    return lines


def _evaluated_every(rows: Iterable[Summary]) -> int:
    """The largest number of rounds that divides every round in which the target's metric was evaluated."""
    rounds = []
    for row in rows:
        for run in row.group.runs:
            column = scores.metrics_of(run.rounds).get(row.target.metric or "") if row.target is not None else None
            if column is not None:
                known = np.isfinite(run.rounds[column].to_numpy().astype(float))
                rounds.append(run.rounds["round"].to_numpy()[known])
    return int(np.gcd.reduce(np.concatenate(rounds))) if rounds else 1


# ---- what readers should know


def row_notes(rows: Sequence[Summary], reference: str, target: Target | None, metric: str | None) -> list[str]:
    """What readers should know before they trust the numbers; the arguments are those of `summaries`."""
    groups = [row.group for row in rows]
    absent = [] if metric is None or any(row.metric == metric for row in rows) else [_absent(groups, metric)]
    return [
        *_pairing(rows, reference),
        *_few_seeds(groups),
        *_not_finite(groups),
        *_untested(groups),
        *_lacking(groups),
        *_fresh_starts(groups),
        *absent,
        *_odd_targets(rows, target),
    ]


def run_notes(runs: Sequence[RunData], waiting: Sequence[RunInfo], absent: str, most: int | None) -> list[str]:
    """Notes on runs without rounds, without a folder, and with fewer rounds than planned: stopped, or going on.

    Args:
        runs: those with rounds.
        waiting: those without.
        absent: the note on planned runs without a folder; "": there are none.
        most: rounds that are compared at most.
    """
    found = []
    if waiting:
        names = ", ".join(dict.fromkeys(f"{run.policy} seed {run.seed}" for run in waiting[:5]))
        more = ", ..." if len(waiting) > 5 else ""
        total = len(runs) + len(waiting)
        found.append(f"{len(runs)} of {total} runs have rounds so far; left out: {names}{more}")
    found += [absent] if absent else []
    planned = [run.info.rounds or 0 if most is None else min(run.info.rounds or 0, most) for run in runs]
    short = [i for i, run in enumerate(runs) if run.info.simulated and run.reached < planned[i]]
    if short:
        many = "the run is" if len(runs) == 1 else f"{len(short)} of {len(runs)} runs are"
        at, of = span(runs[i].reached for i in short), span(planned[i] for i in short)
        what = "move" if all(is_buffered(runs[i].info.pace) for i in short) else "round"
        found.append(f"{many} not complete: at {what} {at} of {of}; if stopped, fedpick resume FOLDER continues")
    return found


def _seed_list(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _pairing(rows: Sequence[Summary], reference: str) -> list[str]:
    """Where runs cannot be compared, or only in part: other lengths, other seeds, no reference."""
    found = []
    groups = [row.group for row in rows]
    for what, lasts in _lengths(groups).items():
        if len(set(lasts)) > 1:
            found.append(f"the runs have {span(lasts)} {what}; all scores are of the first {min(lasts):,} {what}")
    for group, base in ((row.group, row.base) for row in rows):
        if base is not None and base.seeds != group.seeds:
            common = [seed for seed in group.seeds if seed in base.seeds]
            over = f"differences use the {len(common)} in common" if len(common) > 1 else "no difference is computed"
            seeds, others = _seed_list(group.seeds), _seed_list(base.seeds)
            found.append(f"{group.label} has seeds {seeds} and {base.label} {others}; {over}")
    blocks = dict.fromkeys(group.block for group in groups if group.block.simulated)
    known = [(group.block, name) for group in groups for name in (group.label, group.policy)]
    without = [block for block in blocks if (block, reference) not in known]
    if without:
        places = "; ".join(", ".join(str(part) for part in block if part not in (None, "")) for block in without)
        name = next((group.label for group in groups if group.policy == reference), reference)
        found.append(f"the reference {name} has no rounds in: {places}; no differences are computed there")
    versions = [group.label for group in groups if group.policy == reference and group.runs[0].info.version]
    if len(set(versions)) > 1:
        found.append(
            f"the reference {reference} has several versions of its code, so no differences are computed; name one: "
            f"--reference '{versions[-1]}'"
        )
    return found


def _lengths(groups: Sequence[Group]) -> dict[str, list[int]]:
    """How long the runs are, by what counts: rounds, or moves of the model under a pace without."""
    found: dict[str, list[int]] = {}
    moving = {group.block.pace for group in groups if group.block.buffered}
    for group in groups:
        name = f"moves of the model under {printable(group.block.pace)}" if len(moving) > 1 else "moves of the model"
        found.setdefault(name if group.block.buffered else "rounds", []).extend(run.reached for run in group.runs)
    return found


def _few_seeds(groups: Sequence[Group]) -> list[str]:
    fewest = min(len(group.runs) for group in groups)
    if fewest == 1 and not any(group.block.simulated for group in groups):  # real clients; one server is no comparison
        several = len(groups) > 1
        return ["each server ran once, with clients of its own: differences may be chance"] if several else []
    if fewest == 1:
        return [f"one seed gives no interval, and differences may be chance; use {ENOUGH} or more"]
    if fewest < ENOUGH:
        return [
            f"only {fewest} seeds: the intervals are valid only if scores are normally distributed; use {ENOUGH} or "
            "more before you rely on a difference"
        ]
    return []


def _not_finite(groups: Sequence[Group]) -> list[str]:
    return [
        f"{group.label}: {lost:,} updates were not finite (NaN or infinity) and count as failed; a lower "
        "learning rate may help"
        for group in groups
        if (lost := sum(run.unusable for run in group.runs))
    ]


def _untested(groups: Sequence[Group]) -> list[str]:
    """Why runs that train a model have no metric of it, and what to do."""
    found = []
    simulated = [group for group in groups if group.block.simulated and group.block.data is not None]
    for data, user in dict.fromkeys((group.block.data, user_trainer(group.block)) for group in simulated):
        inside = [group for group in simulated if (group.block.data, user_trainer(group.block)) == (data, user)]
        runs = [run for group in inside for run in group.runs]
        names = [name for run in runs for name in scores.metrics_of(run.rounds) if name in run.scores]
        if main_metric(names, training=user) is not None:
            continue
        over = all(run.info.rounds is not None and len(run.all_rounds) >= run.info.rounds for run in runs)  # not live
        rounds = span(len(run.rounds) for run in runs)
        if "train_loss" in names:
            found.append(
                f"{data}: no accuracy, because there are no test examples; add some (test_x and test_y in a .npz, a "
                "column test in a .parquet), or keep a share of each client's: hold_out = 0.1 in [data] (in Python, "
                "data={'name': ..., 'hold_out': 0.1} or fp.data.hold_out)"
            )
        elif over and user:
            found.append(
                f"{data}: no metric of the model, because the trainer's evaluate gave none in {rounds} rounds; return "
                "some from it, such as {'macro_f1': 0.8}"
            )
        elif over:
            found.append(
                f"{data}: no accuracy, because the model was not evaluated in {rounds} rounds; play more, or set "
                "evaluate_every in [train], which is 10 rounds unless set"
            )
    return found


def _lacking(groups: Sequence[Group]) -> list[str]:
    """What a trainer does not give: the direction of a metric, scores of the clients, reports that a policy uses."""
    found = []
    trained = [group for group in groups if group.block.simulated and evaluated([group])]
    unknown = [name for name in _all_metrics(trained) if direction_of(trained, name) is None]
    if unknown:
        found.append(
            f"{', '.join(unknown)}: not known whether larger or smaller is better, so there is no target and no "
            f"verdict; declare it in the trainer: directions = {{{unknown[0]!r}: 'larger'}}"
        )
    if any(user_trainer(group.block) and group.values("worst_decile") is None for group in trained):
        found.append(
            "no worst tenth of clients: the trainer gives no scores of single clients; give it a method "
            "client_scores(model, round), see fp.Trainer"
        )
    for group in groups:
        for report, instead in dict(item for run in group.runs for item in run.info.lacking.items()).items():
            took = f"it took {instead} instead" if instead else "it went on without"
            found.append(f"{group.label}: no client reported {report!r}, which it uses where it can; {took}")
    return found


def _fresh_starts(groups: Sequence[Group]) -> list[str]:
    """Which curves are of several trainings, because a restarted server began with another model."""
    return [
        f"{group.label}: the model began again before round {', '.join(map(str, starts))}, because the server was "
        "restarted without the model of the round before (model='folder' keeps it): its curves are of several "
        "trainings, and no target is derived from them"
        for group in groups
        for run in group.runs
        if (starts := scores.fresh_starts(run.rounds))
    ]


def _all_metrics(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in evaluated([group])))


def _absent(groups: Sequence[Group], metric: str) -> str:
    """Why the main metric is not the one that the user gave."""
    known = _all_metrics(groups)
    have = f"they have {', '.join(known)}" if known else "they were not evaluated"
    return f"the metric {metric} is not the main one: these runs do not all have it; {have}"


def _odd_targets(rows: Sequence[Summary], given: Target | None) -> list[str]:
    """Targets that no run can reach, or why the target that the user gave is ignored."""
    found = []
    for block in dict.fromkeys(row.group.block for row in rows):
        inside = [row.group for row in rows if row.group.block == block]
        target = next(row.target for row in rows if row.group.block == block)
        if target is None or target.metric is None or direction_of(inside, target.metric) != "larger":
            continue
        most = max(max(group.values(target.metric) or [0.0]) for group in inside)
        if 0 < most <= 1 < target.value:
            found.append(
                f"the target {target} is above 1, but no value is; write {target.value / 100:g} for {target.value:g}%"
            )
    if given is not None and all(row.target is None for row in rows):
        found.append(_ignored(rows, given))
    return list(dict.fromkeys(found))


def _ignored(rows: Sequence[Summary], given: Target) -> str:
    """Why a target is not used."""
    groups = [row.group for row in rows]
    metric = given.metric or next((row.metric for row in rows if row.metric is not None), None)
    target = f"{given.value:g}" if given.metric is None else f"{given.metric}={given.value:g}"
    if metric is not None and direction_of(groups, metric) is None and metric in evaluated(groups):
        why = f"it is not known whether larger or smaller values of {metric} are better"
        return f"the target {target} is ignored: {why}"
    what = "a test accuracy" if given.metric is None else given.metric
    known = _all_metrics(groups)
    have = f"; they have {', '.join(known)}" if known and given.metric is not None else ""
    return f"the target {target} is ignored: these runs do not all have {what}{have}"
