"""Verdicts: what the seeds say about a claim, by rules that neither flatter nor condemn by chance.

A claim has one or more checks, each on one number per seed. A check is decided by the 95% t-interval of the mean:

    reproduced       the interval excludes 0 on the claim's side; where a size is printed, it also contains the size or
                     lies beyond it, and its half-width is at most half the size
    direction only   it excludes 0 on the claim's side, but lies below the printed size or is wider
    contradicted     it excludes the claim: it lies on the other side of 0 or, where a size is printed, contains 0 but
                     not even half the size
    undecided        neither: more seeds are needed, and the check says about how many

A claim is contradicted if one of its checks is, else undecided if one is, else direction only if one is. Two verdicts
are stated by the study itself: vacuous (the claim holds trivially) and not testable here (for a named reason).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats
from fedpick.report.intervals import Interval, interval
from fedpick_papers.studies._stats import ALONE, PAIR, show

__all__ = [
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

Verdict = Literal["reproduced", "direction only", "contradicted", "undecided", "vacuous", "not testable here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

FEWEST = 3  # seeds: with two, the width is itself a guess
FEWEST_ALIKE = 6  # seeds, if all give the same number, so that there is no width: the sign test, 2 * 0.5**6 < 0.05
TOO_MANY = 1000  # seeds; nobody will run more to decide a claim
AS_CLAIMED = "as claimed"
_COUNTS = np.arange(FEWEST, TOO_MANY + 1)
_HALVES = stdtrit(_COUNTS - 1, 0.975) / np.sqrt(_COUNTS)  # half-width of the interval for a spread of 1


class Limit(NamedTuple):
    """A threshold of a study, and why it has this value."""

    value: float
    why: str


@dataclass(frozen=True)
class Check:
    """One part of a claim.

    Args:
        verdict: of this part.
        seen: what was seen, in words.
        seeds: about how many would decide, if it is undecided; more than `TOO_MANY` means hopelessly many.
        few: where there are too few seeds for any verdict, whether their mean is as claimed: AS_CLAIMED, or what it is.
    """

    verdict: Verdict
    seen: str
    seeds: int | None = None
    few: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict on a claim.

    Args:
        verdict: on the claim.
        reasons: the checks that are not reproduced, in words, the worst first.
        parts: how many of the checks are reproduced, in words, where some are.
        seeds: about how many would decide, if it is undecided.
        as_claimed: where there are too few seeds for any verdict, whether all means are as claimed; else None.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    parts: str = ""
    seeds: int | None = None
    as_claimed: bool | None = None


class Order(NamedTuple):
    """The checks of a claimed order, and the values as text."""

    checks: list[Check]
    shown: str


def _decided(seen: Interval) -> bool:
    """Whether there are enough seeds for any verdict."""
    return seen.n >= (FEWEST if seen.has_width else FEWEST_ALIKE)


def _seeds(seen: Interval, distance: float) -> int:
    """Number of seeds whose interval would be narrower than this distance, if mean and spread stay as they are."""
    if seen.n < 2 or not np.isfinite(seen.half) or not np.isfinite(distance):
        return FEWEST
    if not seen.has_width:
        return FEWEST_ALIKE
    spread = seen.half / stdtrit(seen.n - 1, 0.975) * np.sqrt(seen.n)
    enough = spread * _HALVES < distance
    return FEWEST + int(np.argmax(enough)) if enough.any() else TOO_MANY + 1


def _words(seen: Interval, digits: int, ratio: bool, sign: str = "") -> str:
    few = PAIR if seen.n == 2 else "" if np.isfinite(seen.half) else ALONE
    if ratio:
        ends = few or f" (95% {np.exp(seen.low):.2f} to {np.exp(seen.high):.2f})"
        return f"ratio {np.exp(seen.mean):.2f}{ends}"
    return f"{seen.mean:{sign},.{digits}f}" + (few or f" ± {seen.half:,.{digits}f}")


def _few(seen: Interval, words: str, holds: bool) -> str:
    """What fewer than three seeds show: their mean may be as claimed, which decides nothing."""
    return "" if seen.n >= FEWEST else AS_CLAIMED if holds else words.replace(ALONE, "").replace(PAIR, "")


def above(
    values: ArrayLike,
    what: str,
    *,
    size: float | None = None,
    half: float | None = None,
    digits: int = 2,
    ratio: bool = False,
) -> Check:
    """Check that the mean is above 0 and, where a size is printed, that it is about that size or more.

    Args:
        values: one number per seed, with the sign that makes the claim "above 0".
        what: the claim in words, such as "A > B".
        size: the printed size, > 0.
        half: the largest half-width that tells the size; by default half the size.
        digits: decimals in the text.
        ratio: the values and the size are logarithms of ratios; shown as ratios.

    >>> above([1.0, 1.1, 1.2, 0.9], "A > B").verdict
    'reproduced'
    >>> above([1.0, 1.1, 1.2, 0.9], "A > B", size=2.0).verdict
    'direction only'
    >>> above([1.0], "A > B").verdict
    'undecided'
    """
    seen = interval(values)
    words = _words(seen, digits, ratio, sign="+")
    if size is not None and not size > 0:
        raise ContractError(f"the printed size of '{what}' is {size}, but must be > 0")
    printed = "" if size is None else f"{np.exp(size):.2f} times" if ratio else f"{size:,.{digits}f}"
    if not _decided(seen):
        few = _few(seen, f"{what}: {words}", bool(seen.mean > 0))
        return Check("undecided", f"{what} is undecided: {words}", _seeds(seen, abs(seen.mean)), few)
    if seen.high <= 0:
        return Check("contradicted", f"{what} is contradicted: {words}")
    if size is not None and seen.low <= 0 and seen.high < size / 2:
        return Check("contradicted", f"{what} by {printed} is contradicted, not even half of it is there: {words}")
    if not seen.low > 0:
        return Check("undecided", f"{what} is undecided: {words}", _seeds(seen, abs(seen.mean)))
    if size is None:
        return Check("reproduced", f"{what} holds: {words}")
    if seen.high < size:
        return Check("direction only", f"{what} holds, but not by {printed}: {words}")
    if seen.half > (size / 2 if half is None else half):
        if seen.low > size:
            return Check("direction only", f"{what} by more than {printed} holds, but the interval is wide: {words}")
        return Check("direction only", f"{what} holds, but the interval is too wide to tell {printed}: {words}")
    return Check("reproduced", f"{what} holds: {words}")


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
    seen = interval(values)
    bounds = [
        f"at {side} {f'{np.exp(bound):.2f} times' if ratio else f'{bound:,.{digits}f}'}"
        for side, bound in (("least", low), ("most", high))
        if np.isfinite(bound)
    ]
    words = f"{_words(seen, digits, ratio)}, to be {' and '.join(bounds)}"
    if _decided(seen):
        if low <= seen.low and seen.high <= high:
            return Check("reproduced", f"{what} holds: {words}")
        if seen.high < low or seen.low > high:
            return Check("contradicted", f"{what} is contradicted: {words}")
    distance = min(abs(seen.mean - low), abs(seen.mean - high))
    few = _few(seen, f"{what}: {words}", bool(low <= seen.mean <= high))
    return Check("undecided", f"{what} is undecided: {words}", _seeds(seen, distance), few)


def order(
    values: Mapping[str, ArrayLike],
    claim: str,
    *,
    digits: int = 0,
    same: float = 0.0,
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
                checks.append(above(gap(a, b), where + link, size=(sizes or {}).get(link), digits=digits, ratio=ratio))
    names = re.split(" [>=] ", claim)
    return Order(checks, "; ".join(f"{name} {show(values[name], digits)}" for name in names))


def judge(checks: Sequence[Check]) -> Judged:
    """The verdict on a claim all of whose checks must hold.

    >>> judge([Check("reproduced", "A > B holds"), Check("contradicted", "B > C is contradicted: -1")]).verdict
    'contradicted'
    """
    if not checks:
        raise ContractError("a claim has no checks, but must have at least one")
    if all(check.few for check in checks):
        return _too_few([check.few for check in checks])
    found = {check.verdict for check in checks}
    worst_first: tuple[Verdict, ...] = ("contradicted", "undecided", "direction only")
    verdict: Verdict = next((each for each in worst_first if each in found), "reproduced")
    failing = sorted((c for c in checks if c.verdict != "reproduced"), key=lambda c: worst_first.index(c.verdict))
    held = len(checks) - len(failing)
    parts = f"{held} of {len(checks)} parts {'is' if held == 1 else 'are'} reproduced" if failing and held else ""
    seeds = max((check.seeds or FEWEST for check in failing if check.verdict == "undecided"), default=None)
    return Judged(verdict, tuple(check.seen for check in failing), parts, seeds if verdict == "undecided" else None)


def _too_few(means: Sequence[str]) -> Judged:
    """The verdict "undecided" for lack of seeds, with a sentence on the parts whose mean is as claimed."""
    others = [each for each in means if each != AS_CLAIMED]
    parts = (
        "it is"
        if len(means) == 1
        else f"{len(means) - len(others)} of {len(means)} parts {'is' if len(means) - len(others) == 1 else 'are'}"
    )
    seen_so_far = f"not so: {others[0]}" if len(means) == len(others) == 1 else f"{parts} as claimed"
    if others and len(means) > 1:
        seen_so_far += f", not so: {'; '.join(others)}"
    return Judged("undecided", (f"At least {FEWEST} seeds are needed; so far {seen_so_far}",), as_claimed=not others)


def most(checks: Sequence[Check], what: str) -> Check:
    """One check that more than half of these hold."""
    if checks and all(check.few for check in checks):
        so = sum(check.few == AS_CLAIMED for check in checks)
        few = AS_CLAIMED if so > len(checks) / 2 else f"{what}: {so} of {len(checks)}"
        return Check("undecided", f"{what} is undecided: too few seeds", FEWEST, few)
    verdicts = [check.verdict for check in checks]
    held, lost = verdicts.count("reproduced"), verdicts.count("contradicted")
    words = f"{held} of {len(checks)} hold, {lost} are contradicted"
    if held > len(checks) / 2:
        return Check("reproduced", f"{what} holds: {words}")
    if lost >= len(checks) / 2:
        return Check("contradicted", f"{what} is contradicted: {words}")
    # The checks that need the fewest seeds complete the majority, for or against.
    open_ones = sorted(check.seeds or FEWEST for check in checks if check.verdict == "undecided")
    missing = min(len(checks) // 2 + 1 - held, -(-len(checks) // 2) - lost)
    seeds = open_ones[min(missing, len(open_ones)) - 1] if open_ones else TOO_MANY + 1
    return Check("undecided", f"{what} is undecided: {words}", seeds)


def vacuous(reason: str) -> Judged:
    """The claim holds, but would hold for anything."""
    return Judged("vacuous", (reason,))


def not_testable(reason: str) -> Judged:
    """The claim cannot be tested here, for this reason."""
    return Judged("not testable here", (reason,))
