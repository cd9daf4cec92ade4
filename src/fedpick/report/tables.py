"""The table of a comparison: its columns, headings and legend; and the same as plain data."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedpick.core.errors import printable
from fedpick.core.metrics import LABELS
from fedpick.report.formats import Table
from fedpick.report.groups import Group, span
from fedpick.report.intervals import Interval
from fedpick.report.layout import SAME, Cell, Row, Sheet
from fedpick.report.notes import legend
from fedpick.report.paces import Comparison, Ratio, comparisons, is_mixed, pace_verdict, ratio_cells, traffic
from fedpick.report.run_data import RunData
from fedpick.report.summaries import Score, Summary, shown_metrics

__all__ = [
    *("Units", "as_data", "cell_of", "columns_of", "finite", "fitting", "group_name", "make_sheet"),
    *("metric_columns", "number", "place_names", "trouble_table"),
]

COLUMNS = {  # score -> heading, digits; `as_data` has the other scores, too
    "returned": ("models returned", 0),
    "success": ("success rate", 2),
    "hours": ("simulated {time}", 2),
    "jain": ("fairness (Jain)", 2),
    "never": ("never chosen", 2),
    "gigabytes": ("{sent}", 1),
    "client_hours": ("client {time}", 2),
    "stale_mean": ("mean staleness", 2),
}
TRAINED = {  # the columns after the metrics if a model was trained; `as_data` has losses and gigabytes, too
    "worst_decile": ("worst tenth of clients", 3),
    "rounds_to": ("rounds to {target}", 0),
    "hours_to": ("{time} to {target}", 2),
    "gigabytes_to": ("{sent} to {target}", 1),
    "client_hours_to": ("client {time} to {target}", 2),
    "returned": ("models returned", 0),
    "jain": ("fairness (Jain)", 2),
    "stale_mean": ("mean staleness", 2),
}
MIXED = {  # the same where paces are compared, of which rounds are no common measure
    "worst_decile": ("worst tenth of clients", 3),
    "hours_to": ("{time} to {target}", 2),
    "gigabytes_to": ("{sent} to {target}", 1),
    "messages_to": ("messages to {target}", 0),
    "tasks_to": ("client tasks to {target}", 0),
    "client_hours_to": ("client {time} to {target}", 2),
    "jain": ("fairness (Jain)", 2),
    "stale_mean": ("mean staleness", 2),
}
_SOME = ("stale_mean",)  # of rows without rounds only: the others have none
MOST_METRICS = 6  # in a table; `as_data` has the others, too
GIVEN = "is given"  # heading of what a policy has that others do without
_USUAL = ("none", "usual", "their own", "rounds")  # settings that a title leaves out


def group_name(group: Group) -> str:
    """A policy's label in tables and legends."""
    return printable(group.label) + (" (oracle)" if group.oracle else "")


# ---- as data


def finite(value: Any) -> Any:
    """The data with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(over: Interval) -> dict[str, Any]:
    known = math.isfinite(over.half)
    low, high = (over.low, over.high) if known else (None, None)
    return {"mean": over.mean, "half": over.half, "low": low, "high": high, "n": over.n}


def _score_data(score: Score, base: Group | None) -> dict[str, Any]:
    found = {**_interval(score.over), "values": score.values}
    if score.reached is not None:
        found["reached"] = score.reached
    if score.difference is not None and base is not None:
        found["difference"] = {"to": base.label, **_interval(score.difference), "clear": score.difference.clear}
    return found


def as_data(rows: Sequence[Summary], reference: str, target: float | None, notes: Sequence[str]) -> dict[str, Any]:
    """All scores with the values of each seed, as plain data."""
    found = [
        {
            "policy": row.group.label,
            **row.group.block._asdict(),
            "oracle": row.group.oracle,
            "given": list(row.group.given),
            "num_clients": row.group.num_clients,
            "seeds": row.group.seeds,
            "rounds": len(row.group.runs[0].rounds),
            "metric": row.metric,
            "target": None if row.target is None else row.target.value,
            "target_metric": None if row.target is None else row.target.metric,
            "folders": [run.info.folder.name for run in row.group.runs],
            "scores": {name: _score_data(score, row.base) for name, score in row.scores.items()},
        }
        for row in rows
    ]
    of = {id(row): row_data for row, row_data in zip(rows, found, strict=True)}
    for each in comparisons(rows):
        scores: Any = of[id(each.row)]["scores"]
        for name, ratio in each.ratios.items():
            scores[name].setdefault("ratios", []).append(_ratio_data(ratio, each))
    content = {"reference": reference, "target": target, "rows": found, "paces": _pace_verdict(rows)}
    return dict(finite(content | {"notes": list(notes)}))


def _ratio_data(ratio: Ratio, each: Comparison) -> dict[str, Any]:
    known = ratio.n > 1
    low, high = (ratio.low, ratio.high) if known else (None, None)
    to = {"policy": each.base.group.label, "pace": each.base.group.block.pace or "rounds"}
    return {"to": to, "mean": ratio.mean, "low": low, "high": high, "n": ratio.n, "clear": ratio.clear}


# ---- columns


class Units(NamedTuple):
    """What `fitting` shows time and traffic in."""

    time: str = "hours"
    sent: str = "GB sent"

    def fill(self, heading: str, **more: str) -> str:
        """A heading with the units in place of {time} and {sent}."""
        return heading.format(time=self.time, sent=self.sent, **more)

    def digits(self, heading: str, digits: int) -> int:
        """Digits below a heading."""
        return 1 if "{time}" in heading and self.time != "hours" else digits


def fitting(rows: Sequence[Summary]) -> tuple[list[Summary], Units]:
    """The rows with time and traffic in units that fit the largest: seconds to hours, MB to TB; and the units."""

    def most(score: str) -> float:
        known = [row.scores[score].over.mean for row in rows if score in row.scores]
        return max((value for value in known if math.isfinite(value)), default=1.0)

    gigabytes, hours = most("gigabytes"), most("hours")
    many, sent = (1e3, "MB sent") if gigabytes < 1.0 else (1.0, "GB sent") if gigabytes < 1e3 else (1e-3, "TB sent")
    long, time = (3600.0, "seconds") if hours < 1 / 12 else (60.0, "minutes") if hours < 3 else (1.0, "hours")

    def scaled(score: Score, by: float) -> Score:
        def times(over: Interval | None) -> Any:
            return over and Interval(by * over.mean, by * over.half, over.n)

        values = [by * value for value in score.values]
        return replace(score, values=values, over=times(score.over), difference=times(score.difference))

    by = {"gigabytes": many, "gigabytes_to": many}
    by |= dict.fromkeys(("hours", "hours_to", "client_hours", "client_hours_to"), long)
    return [
        replace(row, scores={name: scaled(each, by.get(name, 1.0)) for name, each in row.scores.items()})
        for row in rows
    ], Units(time, sent)


def metric_columns(rows: Sequence[Summary], metrics: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Headings and digits of the columns of metrics."""
    found = {}
    for name in metrics:
        values = [abs(value) for row in rows for value in row.scores[name].values if math.isfinite(value)]
        most = max(values, default=1.0)
        size = math.floor(math.log10(most)) if most > 0 else 0
        digits = 3 if name in LABELS or -1 <= size < 1 else max(0, min(3 - size, 8) - (size < 0))
        found[name] = LABELS.get(name, printable(name)), digits
    return found


def columns_of(rows: Sequence[Summary], units: Units) -> dict[str, tuple[str, int]]:
    """The scores that all rows have and that are not all 0, with headings and digits; for units see `fitting`."""
    common = {name for name in rows[0].scores if all(name in row.scores for row in rows)}
    common |= {name for name in _SOME if any(name in row.scores for row in rows)}
    mixed, moves = is_mixed(rows), all(row.group.block.buffered for row in rows)
    metrics = shown_metrics(rows)[:MOST_METRICS] if all(row.metric is not None for row in rows) else []
    columns = metric_columns(rows, metrics) | (MIXED if mixed else TRAINED) if metrics else COLUMNS
    for name in ("hours", "hours_to", "gigabytes", "client_hours"):  # in some worlds nothing takes time or is sent
        if name in common and all(value == 0.0 for row in rows for value in row.scores[name].values):
            common -= {name, f"{name}_to"}
    common -= {"gigabytes_to", "messages_to"} - {traffic(rows)}
    targets = {row.target for row in rows}
    target = printable(str(targets.pop() or "target")) if len(targets) == 1 else "target"
    simulated = all(row.group.block.simulated for row in rows)
    found = {}
    for name, (heading, digits) in columns.items():
        if name not in common:
            continue
        text = heading if name in metrics else units.fill(heading, target=target)
        if moves and name == "rounds_to":
            text = text.replace("rounds", "moves", 1)
        if name in ("gigabytes", "gigabytes_to") and max(row.scores[name].over.mean for row in rows) >= 100:
            digits = 0
        found[name] = text if simulated else text.removeprefix("simulated "), units.digits(heading, digits)
    return found


# ---- cells


def number(value: float, half: float, digits: int, sign: str = "", clear: bool = False) -> str:
    """A mean with its ±, with enough digits that the ± is not shown as 0, and a clear difference exceeds it."""
    if not math.isfinite(value):
        return "–"
    if not math.isfinite(half) or half <= 0:
        return f"{value:{sign}z,.{digits}f}"
    digits = max(digits, -math.floor(math.log10(half)) if half <= 0.5 * 10**-digits else 0)
    while clear and round(abs(value), digits) <= round(half, digits) and digits < 15:
        digits += 1
    return f"{value:{sign}z,.{digits}f} ±{half:,.{digits}f}"


def cell_of(score: Score, digits: int) -> Cell:
    """A score as text: mean and interval, and below them the difference to the reference."""
    over, gap, seeds = score.over, score.difference, len(score.values)
    if score.reached is not None and score.reached < seeds:
        of = f"{score.reached} of {seeds}"
        return Cell(f"{number(over.mean, math.inf, digits)} ({of})" if score.reached else of)
    main = number(over.mean, over.half if over.has_width else math.inf, digits)
    if gap is None or not math.isfinite(gap.mean):
        return Cell(main)
    if gap.mean == gap.half == 0:
        return Cell(main, SAME)
    below = number(gap.mean, gap.half if gap.has_width else math.inf, digits, "+", gap.clear)
    return Cell(main, below, gap.clear)


# ---- the table


def _places(groups: Sequence[Group]) -> tuple[list[dict[str, str]], list[str]]:
    """Each group's block as texts, by heading; and the headings whose texts differ."""
    places = [
        {
            "world": printable(block.world or f"real clients ({block.engine})"),
            "clients a round": "any" if block.cohort_size is None else str(block.cohort_size),
            "pace": printable(block.pace or "rounds"),
            "data": printable(block.data or ("none" if block.simulated else "their own")),
            "training": printable(block.train or "usual"),
            "code": printable(block.code),
        }
        for block in (group.block for group in groups)
    ]
    return places, [key for key in places[0] if len({place[key] for place in places}) > 1]


def place_names(groups: Sequence[Group]) -> list[str]:
    """A text for each group's block, with the settings that differ between the groups."""
    places, varying = _places(groups)
    forms = {"clients a round": "{} clients a round", "data": "data: {}", "training": "training: {}"}
    return [", ".join(forms.get(key, "{}").format(place[key]) for key in varying) for place in places]


def _pace_verdict(rows: Sequence[Summary]) -> list[str]:
    """The sentences about paces, with the names of their places where there are several."""
    places, varying = _places([row.group for row in rows])
    named = [", ".join(each[key] for key in varying if key != "pace") for each in places]
    return pace_verdict(rows, named)


def _title(rows: Sequence[Summary], fixed: dict[str, str], words: str) -> str:
    runs = [run for row in rows for run in row.group.runs]
    kinds = {"rounds": [run for row in rows if not row.group.block.buffered for run in row.group.runs]}
    kinds["moves of the model"] = [run for row in rows if row.group.block.buffered for run in row.group.runs]
    rounds = " and ".join(_length(inside, what) for what, inside in kinds.items() if inside)
    of = f"{span(run.info.cohort_size for run in runs)} of {span(run.info.num_clients for run in runs)} clients a round"
    if kinds["moves of the model"]:
        of = f"{span(run.info.num_clients for run in runs)} clients"
    seeds = {len(row.group.runs) for row in rows}
    over = f", {span(seeds)} seeds" if seeds != {1} else f", seed {span(run.info.seed for run in runs)}"
    if seeds == {1} and not any(run.info.simulated for run in runs):
        over = ""  # real clients do not depend on it
    settings = (fixed[key] for key in ("world", "pace", "data", "training") if fixed.get(key, "none") not in _USUAL)
    where = words or ", ".join(settings)
    return f"{where}: {rounds}, {of}{over}" if where else f"{rounds}, {of}{over}"


def _length(runs: Sequence[RunData], what: str) -> str:
    lasts, used = {run.reached for run in runs}, {run.last for run in runs}
    return f"{span(lasts)} {what}" if lasts == used else f"the first {span(used)} of {span(lasts)} {what}"


def make_sheet(
    rows: Sequence[Summary], reference: str, notes: Sequence[str], given: bool = False, title: str = ""
) -> Sheet:
    """The table, ready to be written in any format.

    Args:
        rows: of the table.
        reference: the policy that they are compared with.
        notes: shown below the legend.
        given: whether the user gave the target, so that the legend need not explain it.
        title: words in place of the settings in the title; "": the settings.
    """
    rows, units = fitting(rows)
    columns, (places, varying) = columns_of(rows, units), _places([row.group for row in rows])
    targets = len({row.target for row in rows}) > 1 and bool({"rounds_to", "tasks_to"} & columns.keys())
    ratios, given_more = ratio_cells(rows), any(row.group.given for row in rows)
    lines = []
    for at, (row, place) in enumerate(zip(rows, places, strict=True)):
        names = [group_name(row.group), *([", ".join(map(printable, row.group.given))] if given_more else [])]
        names += [place[key] for key in varying]
        names += [printable(str(row.target or "–"))] if targets else []
        none = (*_SOME, "hours", "hours_to") if not row.takes_time else _SOME
        known = {name for name in columns if name in row.scores and (name in _SOME or name not in none)}
        cells = [cell_of(row.scores[name], columns[name][1]) if name in known else Cell("–") for name in columns]
        lines.append(Row(names, [*cells, *(column[at] for _, column in ratios)]))
    fixed = {key: value for key, value in places[0].items() if key not in varying}
    names = ["policy", *([GIVEN] if given_more else []), *varying, *(["target"] if targets else [])]
    heads = [heading for heading, _ in (*columns.values(), *ratios)]
    below = [*legend(rows, list(columns), reference, given), *map(printable, notes)]
    return Sheet(_title(rows, fixed, title), names, heads, lines, below, _pace_verdict(rows))


def trouble_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The clients that failed or were late most often."""
    heads = ["chosen", "late", "failed", "seconds when in time"]
    lines = []
    for row in rows:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:,.1f}"
        cells = [*(Cell(f"{row[name]:,}") for name in heads[:3]), Cell(seconds)]
        lines.append(Row([printable(row["client"])], cells))
    return Table(Sheet("clients that failed or were late most often", ["client"], heads, lines))
