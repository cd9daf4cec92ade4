"""One part of a claim: a number for each seed, the rule that decides, and what is said of it.

A part is decided by t-intervals of its mean. What speaks for it is asked of the 95% interval, however many parts the
claim has: for all parts to be accepted, each must be (an intersection-union test). What speaks against it is asked of
the interval that holds for all n parts of the claim together (Bonferroni: 1 - 0.05/n), since one such part is enough.
"""

from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import stdtrit

from fedpick.core.types import Floats
from fedpick.report.intervals import Interval, interval
from fedpick_papers.studies._stats import ALONE, PAIR

__all__ = ["AS_CLAIMED", "FEWEST", "TOO_MANY", "VERDICTS", "Check", "Part", "Verdict"]

Verdict = Literal[
    "reproduced",
    "direction only",
    "no difference",
    "contradicted",
    "undecided",
    "too few seeds",
    "vacuous",
    "not testable here",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ERROR = 0.05  # of all parts of a claim together
FEWEST = 3  # seeds: with two, the width is itself a guess
TOO_MANY = 1000  # seeds; nobody will run more to decide a claim
AS_CLAIMED = "as claimed"


@dataclass(frozen=True)
class Part:
    """The numbers of a part, and its rule.

    Args:
        rule: "above": the mean is above 0; "within": it lies between two bounds.
        what: the claim in words, such as "A > B".
        values: one number per seed; logarithms, if it is about ratios.
        size: the printed size of what is above 0.
        half: the largest half-width that tells the size; None: half the size.
        margin: a mean within it of 0 is no difference; None: no such verdict.
        low: the lower bound of "within".
        high: the upper bound.
        digits: decimals in the text.
        ratio: whether the numbers are logarithms of ratios, which are shown as ratios.
    """

    rule: Literal["above", "within"]
    what: str
    values: tuple[float, ...]
    size: float | None = None
    half: float | None = None
    margin: float | None = None
    low: float = -np.inf
    high: float = np.inf
    digits: int = 2
    ratio: bool = False

    def check(self, parts: int = 1) -> "Check":
        """The verdict on this part of a claim that has this many."""
        if len(self.values) < (FEWEST if self.seen.has_width else _alike(1)):
            return self._undecided(parts)
        return self._above(parts) if self.rule == "above" else self._within(parts)

    def data(self) -> dict[str, Any]:
        """The numbers and the rule, without what is not set, as plain data."""
        unset = {each.name: each.default for each in fields(self)}
        kept = {name: value for name, value in asdict(self).items() if name != "digits" and value != unset[name]}
        return {"what": kept.pop("what"), **kept}

    @cached_property
    def seen(self) -> Interval:
        """The mean with its 95% interval."""
        return interval(self.values)

    def _joint(self, parts: int) -> Interval:
        """The mean with the interval that holds for all parts together."""
        mean, half, n = self.seen.mean, self.seen.half, self.seen.n
        few = not self.seen.has_width and n < _alike(parts)
        return Interval(mean, np.inf if few else half * _wider(n, parts), n)

    def _above(self, parts: int) -> "Check":
        seen, all_parts, size, words = self.seen, self._joint(parts), self.size, self._words("+")
        if seen.low > 0:
            return self._at_least_so(all_parts)
        if size is None and self.margin is not None and -self.margin < all_parts.low <= all_parts.high < self.margin:
            less = f"{self.what}: no difference, less than {self._bare(self.margin)}"
            return self._as("no difference", f"{less}: {words}")
        if all_parts.high <= 0:
            return self._as("contradicted", f"{self.what} is contradicted: {words}")
        if size is not None and all_parts.high < size / 2:
            short = "is contradicted, not even half of it is there"
            return self._as("contradicted", f"{self.what} by {self._bare(size)} {short}: {words}")
        return self._undecided(parts)

    def _at_least_so(self, all_parts: Interval) -> "Check":
        """The direction is as claimed: is the size?"""
        seen, size, words = self.seen, self.size, self._words("+")
        if size is None or seen.low > size:
            return self._as("reproduced", f"{self.what} holds: {words}")
        printed = self._bare(size)
        if all_parts.high < size:
            return self._as("direction only", f"{self.what} holds, but not by {printed}: {words}")
        if seen.half > (size / 2 if self.half is None else self.half):
            wide = f"the interval is too wide to tell {printed}"
            return self._as("direction only", f"{self.what} holds, but {wide}: {words}")
        return self._as("reproduced", f"{self.what} holds: {words}")

    def _within(self, parts: int) -> "Check":
        seen, all_parts, words = self.seen, self._joint(parts), f"{self._words()}, {self._bounds()}"
        if self.low <= seen.low and seen.high <= self.high:
            return self._as("reproduced", f"{self.what} holds: {words}")
        if all_parts.high < self.low or all_parts.low > self.high:
            return self._as("contradicted", f"{self.what} is contradicted: {words}")
        return self._undecided(parts)

    def _undecided(self, parts: int) -> "Check":
        seen, above = self.seen, self.rule == "above"
        words = self._words("+") if above else f"{self._words()}, {self._bounds()}"
        few = ""
        if seen.n < FEWEST:
            holds = seen.mean > 0 if above else self.low <= seen.mean <= self.high
            few = AS_CLAIMED if holds else f"{self.what}: {words}".replace(ALONE, "").replace(PAIR, "")
        return Check("undecided", f"{self.what} is undecided: {words}", self._enough(parts), few, self)

    def _enough(self, parts: int) -> int:
        """About how many seeds would decide, if mean and spread stay as they are."""
        mean = self.seen.mean
        if self.rule == "within":
            for_it = self.low <= mean <= self.high
            return self._seeds(min(abs(mean - self.low), abs(mean - self.high)), 1 if for_it else parts)
        direction = self._seeds(abs(mean), 1 if mean > 0 else parts)
        if self.size is not None or self.margin is None or abs(mean) >= self.margin:
            return direction
        return min(direction, self._seeds(self.margin - abs(mean), parts))

    def _seeds(self, distance: float, parts: int) -> int:
        """Number of seeds whose interval would be narrower than this distance."""
        seen = self.seen
        if seen.n < 2 or not np.isfinite(seen.half) or not np.isfinite(distance):
            return FEWEST
        if not seen.has_width:
            return _alike(parts)
        enough = np.std(self.values, ddof=1) * _halves(parts) < distance
        return FEWEST + int(np.argmax(enough)) if enough.any() else TOO_MANY + 1

    def _as(self, verdict: Verdict, seen: str) -> "Check":
        return Check(verdict, seen, part=self)

    def _bare(self, number: float) -> str:
        return f"{np.exp(number):.2f} times" if self.ratio else f"{number:,.{self.digits}f}"

    def _bounds(self) -> str:
        sides = [("least", self.low), ("most", self.high)]
        return "to be " + " and ".join(f"at {side} {self._bare(at)}" for side, at in sides if np.isfinite(at))

    def _words(self, sign: str = "") -> str:
        seen = self.seen
        few = PAIR if seen.n == 2 else "" if np.isfinite(seen.half) else ALONE
        if self.ratio:
            return f"ratio {np.exp(seen.mean):.2f}" + (
                few or f" (95% {np.exp(seen.low):.2f} to {np.exp(seen.high):.2f})"
            )
        return f"{seen.mean:{sign},.{self.digits}f}" + (few or f" ± {seen.half:,.{self.digits}f}")


@dataclass(frozen=True)
class Check:
    """The verdict on one part of a claim.

    Args:
        verdict: of this part.
        seen: what was seen, in words.
        seeds: about how many would decide, if it is undecided; more than `TOO_MANY` means hopelessly many.
        few: where there are too few seeds for any verdict, whether their mean is as claimed: AS_CLAIMED, or what it is.
        part: its numbers and its rule.
    """

    verdict: Verdict
    seen: str
    seeds: int | None = None
    few: str = ""
    part: Part | None = None


def _alike(parts: int) -> int:
    """Seeds that decide if all give the same number, so that there is no width: the sign test, 2 * 0.5**n < 0.05."""
    return int(np.floor(np.log2(2 * parts / ERROR))) + 1


@lru_cache
def _wider(n: int, parts: int) -> float:
    """How many times as wide the interval of n seeds is that holds for all parts together."""
    return float(stdtrit(n - 1, 1 - ERROR / (2 * parts)) / stdtrit(n - 1, 1 - ERROR / 2))


@lru_cache
def _halves(parts: int) -> Floats:
    """Half-widths of the intervals of `FEWEST` to `TOO_MANY` seeds for a spread of 1."""
    counts = np.arange(FEWEST, TOO_MANY + 1)
    return np.asarray(stdtrit(counts - 1, 1 - ERROR / (2 * parts)) / np.sqrt(counts), dtype=np.float64)
