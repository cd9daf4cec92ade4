"""Power-of-Choice, figures that are about gains over rand: Fig. 5, 9 to 11 and 12 to 15."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedpick_papers.studies._stats import show
from fedpick_papers.studies._study import Finding, Result, Study
from fedpick_papers.studies._trained import NAMES
from fedpick_papers.studies._verdicts import POINT, Limit, above, judge, order, within
from fedpick_papers.studies.power_of_choice._common import PAPER
from fedpick_papers.studies.power_of_choice._fashion import (
    FASHION,
    JUDGED_RATE,
    QUICK,
    Paper,
    about,
    alike,
    early_gains,
    gather,
    items,
    plot,
    train,
)

__all__ = ["PARTITIONS", "gains"]

PARTITIONS = {"alpha = 2": "dirichlet(alpha=2)", "alpha = 0.3": "dirichlet(alpha=0.3)"}
NEAR = 2.0  # points of accuracy


def _limits(paper: Paper) -> dict[str, Limit]:
    """The threshold up to which schemes count as alike, with the words of the figure; none if it has no such claim."""
    alike = [claim["paper"].partition(";")[0] for claims in paper.values() for claim in claims if "alike" in claim]
    words = ", ".join(dict.fromkeys(part for part in alike if part.startswith("'")))
    why = f"points of accuracy: {words} is read as a difference that a curve hardly shows"
    return {"similar": Limit(NEAR, why)} if alike else {}


def _score(paper: Paper, result: Result) -> list[Finding]:
    """A finding for each claim of the paper: gains with their sizes, orders, who is faster, and who is alike."""
    findings = []
    for partition, rates in result["partitions"].items():
        for claim in paper[partition]:
            for rate, one in rates.items():
                findings.append(_finding(result, partition, rate, one, claim))
    return findings


def _finding(result: Result, partition: str, rate: str, one: Mapping[str, Any], claim: Mapping[str, Any]) -> Finding:
    accuracy, checks = one["accuracy"], []
    for a, b, size in claim.get("gains", []):
        least, gap = claim.get("least") if size is None else size, np.subtract(accuracy[a], accuracy[b])
        checks.append(above(gap, f"{a} > {b} (points)", size=least, margin=POINT, digits=1))
    for a, b in claim.get("sooner", []):
        for moment in list(one["at_moments"][a])[:1]:  # none in a run of a few rounds
            gap = np.subtract(one["at_moments"][a][moment], one["at_moments"][b][moment])
            checks.append(above(gap, f"{a} > {b} at round {moment} (points)", margin=POINT, digits=1))
    for link in claim.get("orders", []):
        checks += order(accuracy, link, margin=POINT, digits=1).checks
    for a, b in claim.get("alike", []):
        gap = np.subtract(accuracy[a], accuracy[b])
        checks.append(within(gap, f"{a} is like {b} (points)", low=-NEAR, high=NEAR, digits=1))
    judged = judge(checks)
    if set(claim) <= {"words", "paper", "alike"}:
        judged = alike(judged, accuracy, [name for pair in claim["alike"] for name in pair], NEAR)
    named = [name for name in accuracy if name != "rand"]
    return Finding(
        f"{partition}, learning rate {rate}: {claim['words']}",
        claim["paper"],
        "; ".join(f"{name} {show(values, 1)}%" for name, values in accuracy.items() if name in _of(claim)),
        judged,
        ". ".join(
            [
                *filter(None, [claim.get("note")]),
                f"Accuracy is the mean of the last {result['over']} evaluations of {result['rounds']:,} rounds. Gains "
                f"over rand: {early_gains(one, named) or 'too few rounds'}",
            ]
        ),
        extension=rate != JUDGED_RATE,
    )


def _of(claim: Mapping[str, Any]) -> set[str]:
    """The schemes that a claim is about."""
    groups = [link.split(" > ") for link in claim.get("orders", [])]
    groups += [*claim.get("sooner", []), *claim.get("alike", []), *([a, b] for a, b, _ in claim.get("gains", []))]
    return {name for group in groups for name in group}


def gains(
    id: str,
    title: str,
    figures: str,
    schemes: dict[str, list[Any]],
    paper: Paper,
    instead: str = "",
    also: str = "",
    **more: Any,
) -> Study:
    """One of the figures.

    Args:
        id: of the figure.
        title: what is particular to it.
        figures: where it is in the paper.
        schemes: by name: policy and share of clients.
        paper: the claims of each partition.
        instead: what stands in for the paper's data.
        also: what else a reader should know.
        more: settings that differ from the tables'.
    """
    settings = {**FASHION, "rounds": 300, "partitions": PARTITIONS, "schemes": schemes, **more}
    return Study(
        id=f"power-of-choice/{id}",
        title=f"{NAMES[settings['data']]}, {title}: test accuracy and training loss",
        paper=f"{PAPER}, {figures}",
        settings=settings,
        quick={**QUICK, "rounds": 2, "seeds": 1},
        items=items,
        job=train,
        gather=gather,
        score=partial(_score, paper),
        plot=partial(plot, paper),
        limits=_limits(paper),
        about=". ".join(part for part in (instead, about(settings), also) if part),
        trains=True,
    )
