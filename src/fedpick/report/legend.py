"""How to read a table: the lines below it."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedpick.core.metrics import LABELS, Target
from fedpick.report import scores
from fedpick.report.groups import Summary
from fedpick.report.summaries import shown_metrics, way

__all__ = ["evaluated_every", "legend", "printable"]


def printable(text: str) -> str:
    """Text without control characters, which names of clients and manifests may contain."""
    return "".join(char if char.isprintable() else "?" for char in text)


def legend(rows: Sequence[Summary], shown: Sequence[str], reference: str, given: bool) -> list[str]:
    """How to read the table."""
    said = []
    cells = [row.scores[name] for row in rows for name in shown]
    gaps = [cell.difference for cell in cells if cell.difference is not None]
    if gaps:
        said.append(
            f"± is a 95% interval over seeds; differences are to {printable(reference)}, paired by seed "
            "(bold, *: the interval excludes 0)"
        )
    elif any(cell.over.has_width for cell in cells):
        said.append("± is a 95% interval over seeds")
    flat = [cell.over for cell in cells if cell.over.half == 0] + [gap for gap in gaps if gap.half == 0 != gap.mean]
    if flat:
        said.append("without ±: all seeds give the same number, so there is no interval")
    targets = {row.target for row in rows if row.target is not None}
    if targets and "rounds_to" in shown:
        said += [] if given else _default_targets(rows, reference)
        every = evaluated_every(row for row in rows if "rounds_to" in row.scores)
        if every > 1:
            said.append(f"models are evaluated every {every} rounds: rounds to the target are multiples of {every}")
        missed = [row.scores["rounds_to"] for row in rows if row.scores["rounds_to"].reached != len(row.group.runs)]
        if missed:
            some = next((each for each in missed if each.reached), missed[0])
            said.append(
                f"({some.reached} of {len(some.values)}): number of seeds that reached the target; the mean is over "
                "those, without interval or difference"
            )
    more = [printable(name) for name in shown_metrics(rows) if name not in shown] if rows[0].metric in shown else []
    if more:
        said.append(f"not shown here, but in CSV and JSON: {', '.join(more)}")
    if any(row.group.oracle for row in rows):
        said.append("(oracle): knows the truth about the clients, which no server knows; a bound, not a competitor")
    return said


def _default_targets(rows: Sequence[Summary], reference: str) -> list[str]:
    """Where the targets come from that the user did not give."""
    found: dict[str, list[Target]] = {}
    for target in sorted({row.target for row in rows if row.target is not None}, key=str):
        found.setdefault(target.metric or "accuracy", []).append(target)
    said = []
    for metric, targets in found.items():
        texts, has = " and ".join(printable(str(each)) for each in targets), f"{printable(reference)} has at the end"
        label = LABELS.get(metric, printable(metric))
        if metric == "accuracy":
            said.append(f"{texts}: 95% of the {label} that {has}, rounded down to a whole percent")
        elif way(rows, metric) == "larger":
            said.append(f"{texts}: 95% of the {label} that {has}, rounded down")
        else:
            said.append(f"{texts}: the {label} that {has} divided by 0.95, rounded up; smaller is better")
    return said


def evaluated_every(rows: Iterable[Summary]) -> int:
    """The largest number of rounds that divides every round in which the target's metric was evaluated."""
    evaluated = []
    for row in rows:
        for run in row.group.runs:
            column = scores.metrics_of(run.rounds).get(row.target.metric or "") if row.target is not None else None
            if column is not None:
                known = np.isfinite(run.rounds[column].to_numpy().astype(float))
                evaluated.append(run.rounds["round"].to_numpy()[known])
    return int(np.gcd.reduce(np.concatenate(evaluated))) if evaluated else 1
