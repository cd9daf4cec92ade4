"""E3CS, Tables II and III, Fig. 5 and 6: seven schemes train the paper's networks on images, with volatile clients."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show, steps, times
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, beside, seeds_of
from fedpick_papers.studies._verdicts import POINT, Judged, Limit, above, judge, not_testable, order, within
from fedpick_papers.studies.e3cs._accuracy import first_of, measured, when
from fedpick_papers.studies.e3cs._common import LOOKS, LOSS, PAPER, SCHEMES
from fedpick_papers.studies.e3cs._printed import Row
from fedpick_papers.studies.e3cs._tasks import CIFAR10, LETTERS, PARTITIONS, SMALL, TRAIN, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LIMITS", "STUDIES"]


AT_LEAST = ("pow-d > Random", "Random > E3CS-0.8")  # printed as '≥': the check has no size
AS_GOOD = "as good at the end"
LIMITS = {
    AS_GOOD: Limit(1.0, "point below Random at most: in print, E3CS-inc is at most 0.9 below Random"),
    "final": Limit(
        1.0,
        "points that Random gains in the last quarter, at most: with more, data that stands in cannot tell the end",
        "2026-11-19: new; 'ends lowest' was contradicted and 'ends near Random' reproduced while all still rose",
    ),
}


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    left_out = ("schemes", "seeds", "seed0", "model", "kind")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    shared["train"] = {**settings["train"], "model": settings["model"]}
    return {**shared, "policy": policy.replace("{rounds}", str(settings["rounds"])), "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, policy, seed) for seed in seeds_of(settings) for policy in settings["schemes"].values()]


def _gather(task: Task, settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    result: Result = {name: settings[name] for name in ("kind", "rounds", "seeds", "model")}
    result |= {"prox": settings["train"].get("prox", 0.0), "first": {}, "final": {}, "cep": {}, "early": {}}
    result |= {"rise": {}, "curves": {}}
    for name, policy in settings["schemes"].items():
        some = [found[_item(settings, policy, seed)] for seed in seeds_of(settings)]
        one = measured(some, rounds, task.levels, last=max(len(some[0]["at"]) // 50, 1))
        result["first"][name] = one["first"]
        for key in ("final", "rise"):
            result[key][name] = rounded(100 * one[key])
        for key in ("cep", "early"):
            result[key][name] = rounded(one[key])
        shown = steps(len(one["at"]), 125) - 1
        mean, half = band(one["accuracy"][:, shown])
        result["at"] = rounded(one["at"][shown])
        result["curves"][name] = {"mean": rounded(100 * mean), "half": rounded(100 * half)}
    return result


def _printed(value: float | None) -> str:
    return "never" if value is None else str(value)


def _with(task: Task, level: int) -> str:
    """The printed level, if ours is another one."""
    same = task.levels == task.printed_levels
    return "" if same else f" (with {task.printed_levels[level]:.0%})"


def _in_print(
    printed: dict[str, Row], column: int, links: Sequence[str]
) -> tuple[dict[str, tuple[float | None, float]], list[str]]:
    """The links "A > B" that hold in a column of the printed table, with both numbers, and the links that do not."""
    held: dict[str, tuple[float | None, float]] = {}
    for link in links:
        a, b = (printed[name][column] for name in link.split(" > "))
        if b is not None and (a is None or a > b):
            held[link] = (a, b)
    return held, [link for link in links if link not in held]


def _unasked(dropped: Sequence[str]) -> str:
    """The links that the table itself contradicts, in words."""
    return f"not asked for, since not so in print: {', '.join(dropped)}" if dropped else ""


def _speed(task: Task, result: Result, printed: dict[str, Row]) -> Finding:
    """Rounds to the two lower levels; the printed ratio is the size, unless other data stands in."""
    checks, dropped, end = [], [], result["rounds"]
    levels = [f"{level:.0%}" for level in task.levels[:2]]
    rows = [first_of(result["first"], level) for level in (0, 1)]
    for column, (level, first) in enumerate(zip(levels, rows, strict=True)):
        held, others = _in_print(printed, column, task.slower)
        dropped += [f"{link} ({task.printed_levels[column]:.0%})" for link in others]
        for link, (a, b) in held.items():
            sizes = None if a is None or task.instead else {link: float(np.log(a / b))}
            checks += order(first, link, ratio=True, sizes=sizes, where=f"{level}: ").checks
    late = [name for name in printed if any((first[name] > end).any() for first in rows)]
    pairs = [
        f"{name} {' and '.join(times(first[name], first['Random']) for first in rows)}"
        for name in printed
        if name != "Random"
    ]
    remarks = [
        "by ratios of rounds" + ("" if task.instead else ", with the printed ratio as the size"),
        _unasked(dropped),
        *task.remarks,
        "said of FedAvg, with 'similar observations and trends' for FedProx" if task.instead and result["prox"] else "",
        f"not always there: {', '.join(late)} (the round after the last counts)" if late else "",
    ]
    return Finding(
        f"More early participation makes training faster: rounds to {levels[0]} and {levels[1]}",
        task.speed,
        f"rounds to {levels[0]} and {levels[1]} over those of Random: " + "; ".join(pairs),
        judge(checks),
        "; ".join(filter(None, remarks)),
    )


def _end(task: Task, result: Result, printed: dict[str, Row]) -> Finding:
    """The final accuracy; the printed gap is the size, unless other data stands in or the paper says only ">="."""
    final, ordered = result["final"], task.order if result["kind"] == "iid" else ()
    above_e3cs_0 = [f"{name} > E3CS-0" for name in ("E3CS-0.5", "E3CS-0.8", "E3CS-inc", "Random", "pow-d")]
    held, dropped = _in_print(printed, 3, ordered or above_e3cs_0)
    above = [link.split(" > ")[0] for link in held]
    if not ordered:
        lowest = [f"{link.split(' > ')[0]} > FedCS" for link in dropped]
        held |= _in_print(printed, 3, ["E3CS-0 > FedCS", *lowest])[0]
    checks = []
    for link, (a, b) in held.items():
        sizes = None if task.instead or link in AT_LEAST or a is None else {link: a - b}
        checks += order(final, link, margin=POINT, digits=1, sizes=sizes).checks
    judged = judge(checks)
    remarks = [
        "mean of the last fiftieth of the evaluations; in the last quarter of the rounds Random still gained "
        f"{show(result['rise']['Random'], 1)} points",
        _unasked(dropped),
    ]
    return Finding(
        "Final accuracy: the order of the seven schemes, where it holds in print"
        if ordered
        else f"FedCS ends lowest, and {', '.join(above[:-1])} and {above[-1]} end above E3CS-0",
        "'pow-d ≥ Random ≥ E3CS-0.8 > E3CS-inc > E3CS-0.5 ≫ E3CS-0 > FedCS' (iid)" if ordered else task.fair,
        "; ".join(f"{name} {show(final[name], 1, '%')}" for name in printed),
        _unless_still_rising(task, result, judged),
        "; ".join(filter(None, remarks)),
    )


def _unless_still_rising(task: Task, result: Result, judged: Judged) -> Judged:
    """The verdict on final accuracies: none on data that stands in, if they are not final."""
    rise = float(np.mean(result["rise"]["Random"]))
    if not task.instead or rise <= LIMITS["final"].value:
        return judged
    return not_testable(
        f"on this data the accuracy after {result['rounds']} rounds is not final: Random gained {rise:.1f} points in "
        "the last quarter"
    )


def _score(task: Task, result: Result) -> list[Finding]:
    printed, end = task.printed[result["kind"], result["prox"]], result["rounds"]
    last, top = first_of(result["first"], 2), f"{task.levels[2]:.0%}"
    never = [within(last[n] - end, f"{n} never has {top}", low=1.0) for n in printed if printed[n][2] is None]
    there = [name for name, row in printed.items() if row[2] is not None]
    some = [within(last[name], f"{name}'s first round with {top}", high=end, digits=0) for name in there]
    reach = Finding(
        f"Which schemes reach {top}, and which never do",
        ", ".join(f"{name} {_printed(row[2])}" for name, row in printed.items()) + _with(task, 2),
        "; ".join(f"{name} {when(last[name], end)}" for name in printed),
        not_testable(f"{top} on other data is another level") if task.instead else judge([*never, *some]),
        "" if task.instead else "judged for all seven; before the runs it was only for those that never do in print",
    )
    below = LIMITS[AS_GOOD].value
    gap = np.asarray(result["final"]["E3CS-inc"]) - np.asarray(result["final"]["Random"])
    good = Finding(
        f"E3CS-inc ends at most {below:g} point below Random",
        f"'{task.adaptive}': {printed['E3CS-inc'][3]}%, Random {printed['Random'][3]}%",
        f"E3CS-inc less Random: {show(gap, 1)} points",
        _unless_still_rising(
            task, result, judge([within(gap, "E3CS-inc less Random at the end", low=-below, digits=1)])
        ),
        "that it is faster than Random is part of the first claim",
    )
    participation = order(result["cep"], "FedCS > E3CS-0 > E3CS-0.5 > E3CS-0.8 > Random > pow-d")
    returned = Finding(
        "Effective participation: FedCS > E3CS-0 > E3CS-0.5 > E3CS-0.8 > Random > pow-d",
        "said of Fig. 4, and counted in e3cs/fig4",
        f"returned in all: {participation.shown}",
        judge(participation.checks),
        extension=True,
    )
    most, table_of_most = _most_printed(task)
    asked = (
        [_twice(task, result, most)] if (result["kind"], result["prox"]) == table_of_most and not task.instead else []
    )
    return [_speed(task, result, printed), reach, _end(task, result, printed), good, *asked, returned]


def _most_printed(task: Task) -> tuple[float, tuple[str, float]]:
    """How many times as fast as Random a variant of E3CS is in print, at most, and in which table."""
    ratios = [
        (rows["Random"][level] / row[level], kind)  # type: ignore[operator]
        for kind, rows in task.printed.items()
        for name, row in rows.items()
        for level in range(3)
        if name.startswith("E3CS") and rows["Random"][level] and row[level]
    ]
    return max(ratios)


def _twice(task: Task, result: Result, most: float) -> Finding:
    """What the abstract claims."""
    first = first_of(result["first"], 1)
    logs = np.log(first["Random"]) - np.log(first["E3CS-inc"])
    gap = np.subtract(result["final"]["E3CS-inc"], result["final"]["Random"])
    return Finding(
        "E3CS is up to twice as fast as Random, and ends as well (abstract)",
        "'up to 2x faster convergence to a fixed model accuracy while maintaining the same level of final model "
        f"accuracy'; in its tables at most {most:.2f} times, here",
        f"E3CS-inc, rounds to {task.levels[1]:.0%}: {times(first['Random'], first['E3CS-inc'])} times as fast; finally "
        f"{show(gap, 1)} points",
        judge(
            [
                above(logs, "E3CS-inc is faster than Random", size=float(np.log(2)), ratio=True),
                within(gap, "E3CS-inc less Random at the end", low=-LIMITS[AS_GOOD].value, digits=1),
            ]
        ),
        "asked of the table in which the printed ratio is the largest",
    )


def _how(task: Task, kind: str, prox: float) -> str:
    """What was done, for the page."""
    data = {"iid": "drawn alike for all", "non-iid": "80% of one primary label each"}[kind]
    network = "a network like the printed one" if task.instead else "the printed network"
    method = f"FedProx with gamma = {prox:g}" if prox else "FedAvg"
    often = f"every {task.every} rounds" if task.every > 1 else "in every round"
    return (
        (f"{task.instead}. " if task.instead else "")
        + f"100 clients with 500 images of {task.name}, {data}, of which each holds 10% out for the test; each seed "
        "draws the clients' data anew. Clients are volatile: in four classes, they return their model with probability "
        f"0.1, 0.3, 0.6 and 0.9. 20 are chosen a round and train {network} ({task.network}) with {method}: "
        "SGD 0.01 with momentum 0.9, batches of 40, 1 to 4 epochs. Models are averaged as o2, where clients that do "
        "not return count with the old model, as do those that are not chosen. E3CS draws with an exact design "
        "(pivotal), not with the "
        f"paper's multinomialNR. Accuracy is measured {often}. pow-d "
        "has 40 candidates: the paper gives no d"
    )


def _body(task: Task, result: Result) -> str:
    levels, end = list(zip(task.levels, task.printed_levels, strict=True)), result["rounds"]
    head = ["scheme", *(f"{a:.0%}" if a == b else f"{a:.0%} ({b:.0%})" for a, b in levels), "finally"]
    first = [first_of(result["first"], level) for level in range(len(levels))]
    ours = {
        name: [*(when(one[name], end) for one in first), show(final, 1, "%")] for name, final in result["final"].items()
    }
    printed = task.printed[result["kind"], result["prox"]]
    paper = {name: [*map(_printed, row[:3]), f"{row[3]:.1f}%"] for name, row in printed.items()}
    return beside(head, ours, paper)


def _plot(task: Task, result: Result) -> "Figure":
    figure, axes = _plots.figure(7.2, 4.4)
    axis, printed = axes[0][0], task.printed[result["kind"], result["prox"]]
    for name, curve in result["curves"].items():
        i = LOOKS[name]
        _plots.banded(axis, result["at"], curve["mean"], curve["half"], i, name, result["seeds"])
        marks = [(row, 100 * level) for row, level in zip(printed[name], task.printed_levels, strict=False) if row]
        marks.append((result["rounds"], printed[name][3]))
        colour = _plots.line(i)["color"]
        axis.plot(*zip(*marks, strict=True), linestyle="none", marker=_plots.MARKERS[i], color=colour)
    axis.set_xlabel("communication rounds")
    axis.set_ylabel("test accuracy, % (marks: printed)")
    _plots.closer(axis, start=0.05)
    label = _plots.seeds_label(result["seeds"])
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, title=label)
    return figure


def _study(task: Task, kind: str, prox: float = 0.0) -> Study:
    """A quarter of a table: clients' data ("iid" or "non-iid") and FedProx's gamma (0: FedAvg)."""
    method = "FedProx" if prox else "FedAvg"
    train = {**TRAIN, "evaluate_every": task.every, **({"prox": prox} if prox else {})}
    return Study(
        id=f"e3cs/{task.id}-{kind}" + ("-fedprox" if prox else ""),
        title=f"Accuracy over rounds on {task.name}, {kind}, {method}, seven schemes",
        paper=f"{PAPER}, {task.table} ({method}, {kind})",
        settings={
            "kind": kind,
            "data": task.data,
            "partition": PARTITIONS[kind],
            "data_settings": {"hold_out": 0.1, "test": "held-out"},
            "world": "e3cs",
            "clients": 100,
            "cohort_size": 20,
            "rounds": task.rounds,
            "seeds": 3,
            "model": task.model,
            "train": train,
            "schemes": {**SCHEMES, **LOSS},
        },
        quick={"rounds": 2, "seeds": 1, "model": SMALL[task.data], "train": {**train, "evaluate_every": 1}},
        items=_items,
        job=play_training,
        gather=partial(_gather, task),
        score=partial(_score, task),
        plot=partial(_plot, task),
        limits=LIMITS if task.instead else {AS_GOOD: LIMITS[AS_GOOD]},
        body=partial(_body, task),
        about=_how(task, kind, prox),
        trains=True,
    )


STUDIES = tuple(
    _study(task, kind, prox) for task in (LETTERS, CIFAR10) for prox in (0.0, 0.5) for kind in ("non-iid", "iid")
)
