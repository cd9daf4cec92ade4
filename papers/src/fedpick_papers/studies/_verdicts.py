"""Verdicts: what the seeds say about a claim, by rules that neither flatter nor condemn by chance.

A claim has one or more parts, each on one number per seed; `_parts` decides a part:

    reproduced       the 95% interval excludes 0 on the claim's side; where a size is printed, it also contains it, with
                     a half-width of at most half the size, or lies beyond it
    direction only   it excludes 0 on the claim's side, but lies below the printed size or is too wide to tell it
    no difference    a claim of a direction whose interval lies within a stated margin on both sides of 0
    contradicted     the interval excludes the claim: it lies on the other side of 0 or, where a size is printed,
                     contains 0 but not even half the size
    undecided        none of these: more seeds are needed, and the part says about how many
    too few seeds    of a claim all of whose parts have one or two seeds: numbers, and no verdict

What speaks against one of n parts must hold at 1 - 0.05/n. A claim is contradicted if one of its parts is, else no
difference if one is, else undecided, else direction only. Two verdicts are stated by the study itself: vacuous (the
claim holds trivially) and not testable here (for a named reason). `RULES` has the changes of these rules with dates.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats
from fedpick_papers.studies._parts import AS_CLAIMED, FEWEST, TOO_MANY, VERDICTS, Check, Part, Verdict
from fedpick_papers.studies._stats import show

__all__ = [
    "FEWEST",
    "POINT",
    "RULES",
    "TOO_MANY",
    "VERDICTS",
    "Check",
    "Judged",
    "Limit",
    "Order",
    "Verdict",
    "above",
    "judge",
    "most",
    "not_testable",
    "order",
    "vacuous",
    "within",
]

POINT = 1.0  # margin, in points of accuracy: a smaller difference is called none
TWENTIETH = float(np.log(1.05))  # margin of ratios
RULES: tuple[tuple[str, str], ...] = (  # date, and what was changed after results were known
    (
        "2026-11-19",
        "what speaks against one of the n parts of a claim must hold at the level 1 - 0.05/n (it was 95% for each); a "
        "claim of a direction is called no difference if the whole interval lies within a stated margin of 0 (one "
        "point of accuracy, a twentieth of a ratio; before, such a claim was undecided for ever); an interval wholly "
        "beyond the printed size is no longer called direction only because it is wide; one or two seeds are no "
        "verdict",
    ),
)


class Limit(NamedTuple):
    """A threshold of a study, why it has this value, and when and how it was changed after a run, if it was."""

    value: float
    why: str
    changed: str = ""

    @property
    def dated(self) -> str:
        """The change as a sentence; "" if there was none."""
        return f". Changed on {self.changed}" if self.changed else ""


@dataclass(frozen=True)
class Judged:
    """The verdict on a claim.

    Args:
        verdict: on the claim.
        reasons: the checks that are not reproduced, in words, the worst first.
        parts: how many of the checks are reproduced, in words, where some are.
        seeds: about how many would decide, if it is undecided.
        as_claimed: where there are too few seeds for any verdict, whether all means are as claimed; else None.
        checks: all of them.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    parts: str = ""
    seeds: int | None = None
    as_claimed: bool | None = None
    checks: tuple[Check, ...] = ()


class Order(NamedTuple):
    """The checks of a claimed order, and the values as text."""

    checks: list[Check]
    shown: str


def above(
    values: ArrayLike,
    what: str,
    *,
    size: float | None = None,
    half: float | None = None,
    margin: float | None = None,
    digits: int = 2,
    ratio: bool = False,
) -> Check:
    """Check that the mean is above 0 and, where a size is printed, that it is about that size or more.

    Args:
        values: one number per seed, with the sign that makes the claim "above 0".
        what: the claim in words, such as "A > B".
        size: the printed size, > 0.
        half: the largest half-width that tells the size; by default half the size.
        margin: a mean this close to 0 is no difference; by default a twentieth for ratios, else without this verdict.
        digits: decimals in the text.
        ratio: the values and the size are logarithms of ratios; shown as ratios.

    >>> above([1.0, 1.1, 1.2, 0.9], "A > B").verdict
    'reproduced'
    >>> above([1.0, 1.1, 1.2, 0.9], "A > B", size=2.0).verdict
    'direction only'
    >>> above([-0.1, 0.1, 0.05], "A > B", margin=1.0).verdict
    'no difference'
    >>> above([1.0], "A > B").verdict
    'undecided'
    """
    if size is not None and not size > 0:
        raise ContractError(f"the printed size of '{what}' is {size}, but must be > 0")
    margin = TWENTIETH if margin is None and ratio else margin
    return Part("above", what, _floats(values), size, half, margin, digits=digits, ratio=ratio).check()


def within(
    values: ArrayLike,
    what: str,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    digits: int = 2,
    ratio: bool = False,
) -> Check:
    """Check that the mean lies between two bounds: the whole interval must, not its favourable end.

    Args:
        values: one number per seed.
        what: the claim in words.
        low: the lower bound.
        high: the upper bound.
        digits: decimals in the text.
        ratio: values and bounds are logarithms of ratios; shown as ratios.

    >>> within([0.9, 1.1, 1.0], "about 1", low=0.5, high=1.5).verdict
    'reproduced'
    >>> within([0.0, 2.0, 1.0], "about 1", low=0.5, high=1.5).verdict
    'undecided'
    """
    return Part("within", what, _floats(values), low=low, high=high, digits=digits, ratio=ratio).check()


def _floats(values: ArrayLike) -> tuple[float, ...]:
    return tuple(np.atleast_1d(np.asarray(values, dtype=np.float64)).tolist())


def order(
    values: Mapping[str, ArrayLike],
    claim: str,
    *,
    digits: int = 0,
    same: float = 0.0,
    margin: float | None = None,
    ratio: bool = False,
    sizes: Mapping[str, float] | None = None,
    where: str = "",
) -> Order:
    """Check "A > B = C > D" by differences in pairs of seeds.

    Args:
        values: one number per seed for each name, the same seeds throughout.
        claim: names joined by " > " (the first is larger) and " = ".
        digits: decimals in the texts.
        same: "=" means that the difference is at most this.
        margin: a difference smaller than this is none; see `above`.
        ratio: compare logarithms, for numbers > 0 whose size varies from seed to seed.
        sizes: printed sizes of some links, such as {"A > B": 2.0}; with `ratio` their logarithms.
        where: begins the texts, if a claim is checked in several cases.

    >>> [check.verdict for check in order({"A": [3.0, 4.0, 5.0], "B": [1.0, 2.1, 2.9]}, "A > B").checks]
    ['reproduced']
    """
    groups = [part.split(" = ") for part in claim.split(" > ")]

    def gap(a: str, b: str) -> Floats:
        x, y = np.asarray(values[a], dtype=np.float64), np.asarray(values[b], dtype=np.float64)
        return np.log(x) - np.log(y) if ratio else x - y

    checks = [
        within(gap(a, b), f"{where}{a} = {b}", low=-same, high=same, digits=digits)
        for group in groups
        for a, b in pairwise(group)
    ]
    for group, following in pairwise(groups):
        for a in group:
            for b in following:
                link = f"{a} > {b}"
                size = (sizes or {}).get(link)
                checks.append(above(gap(a, b), where + link, size=size, margin=margin, digits=digits, ratio=ratio))
    names = re.split(" [>=] ", claim)
    return Order(checks, "; ".join(f"{name} {show(values[name], digits)}" for name in names))


def judge(checks: Sequence[Check]) -> Judged:
    """The verdict on a claim all of whose checks must hold.

    >>> judge([Check("reproduced", "A > B holds"), Check("contradicted", "B > C is contradicted: -1")]).verdict
    'contradicted'
    """
    if not checks:
        raise ContractError("a claim has no checks, but must have at least one")
    many = len(checks)  # what is reproduced alone is so beside others
    checks = [c.part.check(many) if c.part and many > 1 and c.verdict != "reproduced" else c for c in checks]
    if all(check.few for check in checks):
        return _too_few(checks)
    found = {check.verdict for check in checks}
    worst_first: tuple[Verdict, ...] = ("contradicted", "no difference", "undecided", "direction only")
    verdict: Verdict = next((each for each in worst_first if each in found), "reproduced")
    failing = sorted((c for c in checks if c.verdict != "reproduced"), key=lambda c: worst_first.index(c.verdict))
    held = len(checks) - len(failing)
    parts = f"{held} of {len(checks)} parts {'is' if held == 1 else 'are'} reproduced" if failing and held else ""
    seeds = max((check.seeds or FEWEST for check in failing if check.verdict == "undecided"), default=None)
    reasons = tuple(check.seen for check in failing)
    return Judged(verdict, reasons, parts, seeds if verdict == "undecided" else None, checks=tuple(checks))


def _too_few(checks: Sequence[Check]) -> Judged:
    """No verdict for lack of seeds, with a sentence on the parts whose mean is as claimed."""
    means = [check.few for check in checks]
    others = [each for each in means if each != AS_CLAIMED]
    parts = (
        "it is"
        if len(means) == 1
        else f"{len(means) - len(others)} of {len(means)} parts {'is' if len(means) - len(others) == 1 else 'are'}"
    )
    seen_so_far = f"not so: {others[0]}" if len(means) == len(others) == 1 else f"{parts} as claimed"
    if others and len(means) > 1:
        seen_so_far += f", not so: {'; '.join(others)}"
    why = f"At least {FEWEST} seeds are needed; so far {seen_so_far}"
    return Judged("too few seeds", (why,), as_claimed=not others, checks=tuple(checks))


def most(checks: Sequence[Check], what: str) -> Check:
    """One check that more than half of these hold."""
    if checks and all(check.few for check in checks):
        so = sum(check.few == AS_CLAIMED for check in checks)
        few = AS_CLAIMED if so > len(checks) / 2 else f"{what}: {so} of {len(checks)}"
        return Check("undecided", f"{what} is undecided: too few seeds", FEWEST, few)
    verdicts = [check.verdict for check in checks]
    held, lost, none = (verdicts.count(each) for each in ("reproduced", "contradicted", "no difference"))
    words = f"{held} of {len(checks)} hold, {lost} are contradicted"
    if held > len(checks) / 2:
        return Check("reproduced", f"{what} holds: {words}")
    if lost >= len(checks) / 2:
        return Check("contradicted", f"{what} is contradicted: {words}")
    if lost + none >= len(checks) / 2:
        return Check("no difference", f"{what}: no difference in {none} of {len(checks)}, {held} hold, {lost} do not")
    # The checks that need the fewest seeds complete the majority, for or against.
    open_ones = sorted(check.seeds or FEWEST for check in checks if check.verdict == "undecided")
    missing = min(len(checks) // 2 + 1 - held, -(-len(checks) // 2) - lost - none)
    seeds = open_ones[min(missing, len(open_ones)) - 1] if open_ones else TOO_MANY + 1
    return Check("undecided", f"{what} is undecided: {words}", seeds)


def vacuous(reason: str) -> Judged:
    """The claim holds, but would hold for anything."""
    return Judged("vacuous", (reason,))


def not_testable(reason: str) -> Judged:
    """The claim cannot be tested here, for this reason."""
    return Judged("not testable here", (reason,))
