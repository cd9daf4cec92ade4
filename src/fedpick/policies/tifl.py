"""TiFL: tiers of clients of similar speed; each cohort comes from one tier, more often from one of low accuracy.

Algorithm 2 (adaptive tier selection); with `odds`, the static selection that the paper compares it with. The paper
measures every client's time before it trains; here clients never tried come first, a cohort at a time, unless `times`
says how long they take. If no tier with credits has an available client, credits are ignored: Algorithm 2 as printed
would loop for ever. A tier with too few available clients is filled up from the nearest ones; the tier that was drawn
pays the credit and is compared, also if most of the cohort are of others. A client that was not waited for three times,
so that its time is still not known, is put into a tier at random in each round.

Trusts: durations, which put a client into a tier (measure them on the server), and the reported accuracies of a tier's
clients, whose mean decides how often the tier is chosen: at most tiers times as often as the best one. Inside a tier
all clients have the same probability.
"""

from dataclasses import dataclass, field

import numpy as np

from fedpick.core.errors import SettingError
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import EXCUSES, ByValue, Truth, nobody, places, told, truth, valid_losses
from fedpick.policies.about import About, Paper

__all__ = ["TiFL", "TiFLState"]

PAPER = Paper(
    "chai2020tifl",
    "Chai, Zheng and Ali, Ahsan and Zawad, Syed and Truex, Stacey and Anwar, Ali and Baracaldo, Nathalie and "
    "Zhou, Yi and Ludwig, Heiko and Yan, Feng and Cheng, Yue",
    "{TiFL}: A Tier-based Federated Learning System",
    2020,
    "booktitle = {International Symposium on High-Performance Parallel and Distributed Computing (HPDC)}",
    "https://arxiv.org/abs/2001.09249",
)

STATIC = {  # odds of the paper's tables for five tiers; the "fast" ones are two sets, for different data
    "slow": (0.0, 0.0, 0.0, 0.0, 1.0),
    "uniform": (0.2, 0.2, 0.2, 0.2, 0.2),
    "random": (0.7, 0.1, 0.1, 0.05, 0.05),
    "fast": (1.0, 0.0, 0.0, 0.0, 0.0),
    "fast1": (0.225, 0.225, 0.225, 0.225, 0.1),
    "fast2": (0.2375, 0.2375, 0.2375, 0.2375, 0.05),
    "fast3": (0.25, 0.25, 0.25, 0.25, 0.0),
}


@dataclass
class TiFLState:
    """What is known about each client (NaN: nothing yet) and each tier."""

    counts: Ints
    duration: Floats  # mean seconds; infinite for one that was tried and never answered
    timed: Ints  # how many durations are in that mean
    value: Floats  # its last accuracy, or minus its last loss
    odds: Floats = shared_field()  # of each tier
    credits: Ints = shared_field()  # how often each tier may still be chosen; -1: always
    before: Floats = shared_field()  # each tier's accuracy `interval` rounds ago


@dataclass(frozen=True, eq=False)
class TiFL(ByValue):
    """Clients of one tier of similar speed, more often of a tier of low accuracy.

    Args:
        cohort_size: how many train; if a tier has too few available clients, the nearest tiers are used too.
        tiers: how many, of equal size.
        interval: rounds after which the odds change, if the accuracy of the tier that was just chosen has not risen.
        credits: how often each tier may be chosen, the fastest first; None: always.
        times: seconds that each client takes, or a function of fp.Clients; None learns them.
        odds: of each tier, the fastest first, which then never change (the paper's static selection): numbers, or for
            five tiers "slow", "uniform", "random", "fast", "fast1", "fast2" or "fast3"; None: adaptive.
    """

    cohort_size: int
    tiers: int = 5
    interval: int = 10
    credits: tuple[int, ...] | None = None
    times: Truth | None = None
    odds: str | tuple[float, ...] | None = field(default=None, metadata={"added": True})

    about = About(("tifl",), PAPER)
    rounds_only = "clients of one tier are to answer at the same time, which only a round waits for"
    wants = (ReportSpec("accuracy", 0, instead="minus the mean loss"),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "tiers", "interval", low=1)
        if self.credits is not None:
            if len(self.credits) != self.tiers:
                raise SettingError(
                    f"TiFL: credits has {len(self.credits)} numbers, but there are {self.tiers} tiers: give one each"
                )
            for each in self.credits:
                check.whole_number("TiFL: credits", each, 0)
        if self.odds is not None:
            self._fixed()  # raises

    def _fixed(self) -> Floats:
        """The odds that were set, which sum to 1."""
        if isinstance(self.odds, str):
            check.one_of(self, "odds", STATIC)
            given = np.array(STATIC[self.odds])
        else:
            given = np.array(self.odds, dtype=np.float64)
        if given.shape != (self.tiers,):
            raise SettingError(f"TiFL: odds has {given.size} numbers, but there are {self.tiers} tiers: give one each")
        if not (np.isfinite(given) & (given >= 0.0)).all() or given.sum() <= 0.0:
            raise SettingError(f"TiFL: odds = {self.odds!r}, but must be numbers >= 0, of which one is > 0")
        shares: Floats = given / given.sum()
        return shares

    def init(self, clients: Clients) -> TiFLState:
        """Return the state before the first round: equal odds."""
        count = len(clients)
        duration = np.full(count, np.nan) if self.times is None else truth(self, "times", self.times, clients)
        credits = np.full(self.tiers, -1) if self.credits is None else np.array(self.credits)
        none = np.zeros(count, dtype=np.int64)
        return TiFLState(
            none,
            duration,
            none.copy(),
            np.full(count, np.nan),
            np.full(self.tiers, 1.0 / self.tiers) if self.odds is None else self._fixed(),
            credits.astype(np.int64),
            np.full(self.tiers, -np.inf),
        )

    def tier_of(self, state: TiFLState) -> Ints:
        """The tier of each client, 0 the fastest; -1 for those whose time is not known. Equal times are in one tier."""
        known = ~np.isnan(state.duration)
        times = state.duration[known]
        tier: Ints = np.full(len(known), -1, dtype=np.int64)
        first = -(-np.arange(1, self.tiers) * len(times) // self.tiers)  # the place at which each tier but 0 begins
        first = first[first < len(times)]
        tier[known] = np.searchsorted(np.partition(times, first)[first], times, side="right") if len(first) else 0
        return tier

    def select(self, state: TiFLState, view: View, rng: np.random.Generator) -> Choice:
        """Clients never tried first; then a tier, and clients of it."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        tier = self.tier_of(state)[ids]
        often = (tier < 0) & (state.counts[ids] >= EXCUSES)  # was never waited for; else it would come first for ever
        if often.any():
            tier[often] = rng.integers(self.tiers, size=np.count_nonzero(often))
        fresh = ids[tier < 0]
        if len(fresh) >= m:
            return Choice(np.sort(rng.choice(fresh, m, replace=False, shuffle=False)))
        cohort = [fresh]
        there = np.bincount(tier[tier >= 0], minlength=self.tiers) > 0
        odds = np.where(there & (state.credits != 0), state.odds, 0.0)
        if not odds.any():
            odds = np.where(there, state.odds, 0.0)
        if not odds.any():
            odds = there.astype(np.float64)
        chosen = int(rng.choice(self.tiers, p=odds / odds.sum()))
        left = m - len(fresh)
        for near in sorted(range(self.tiers), key=lambda t: (abs(t - chosen), t)):
            members = ids[tier == near]
            taken = min(left, len(members))
            cohort.append(rng.choice(members, taken, replace=False, shuffle=False))
            left -= taken
            if left == 0:
                break
        return Choice(np.sort(np.concatenate(cohort)), kept={"tier": np.full(m, float(chosen))})

    def observe(self, state: TiFLState, view: View, choice: Choice, outcome: Outcome) -> TiFLState:
        """Learn times and accuracies; spend a credit; every `interval` rounds compare the tier's accuracy."""
        check_outcome(view, choice, outcome)
        ids, odds, credits, before = choice.ids, state.odds, state.credits, state.before
        due = view.round % self.interval == 0 and self.odds is None
        current = (
            -1 if choice.kept is None or len(ids) == 0 else int(choice.kept["tier"][0])
        )  # -1: all were never tried
        if current >= 0 and credits[current] > 0:
            credits[current] -= 1
        self._learn(state, choice, outcome)
        if due and current >= 0:
            tier = self.tier_of(state)
            now = self._accuracy(state, tier)
            if before[current] >= now[current]:
                odds = self._change(now, credits)
            before = now
        state.counts[ids] += 1
        return TiFLState(state.counts, state.duration, state.timed, state.value, odds, credits, before)

    def _learn(self, state: TiFLState, choice: Choice, outcome: Outcome) -> None:
        """Mean durations (unless `times` gives them) and the last accuracies."""
        ids, duration = choice.ids, outcome.duration
        with np.errstate(invalid="ignore"):
            timed = (outcome.status != Status.FAILED) & (duration > 0.0) & (duration <= 1e12)
        if self.times is None:
            heard, took = ids[timed], duration[timed]
            old = np.where(np.isfinite(state.duration[heard]), state.duration[heard], 0.0)
            state.timed[heard] += 1
            state.duration[heard] = old + (took - old) / state.timed[heard]
            silent = ids[~timed & told(outcome, duration)]
            state.duration[silent[np.isnan(state.duration[silent])]] = np.inf  # the slowest, until it answers
        value = np.where(outcome.succeeded & valid_losses(outcome.loss), -outcome.loss, np.nan)
        if "accuracy" in outcome.reports:
            accuracy = np.asarray(outcome.reports["accuracy"], dtype=np.float64)
            with np.errstate(invalid="ignore"):
                value = np.where(outcome.succeeded & (accuracy >= 0.0) & (accuracy <= 1.0), accuracy, np.nan)
        known = ~np.isnan(value)
        state.value[ids[known]] = value[known]

    def _accuracy(self, state: TiFLState, tier: Ints) -> Floats:
        """Mean accuracy of each tier's clients; minus infinity if none was reported."""
        known = (tier >= 0) & ~np.isnan(state.value)
        number = np.bincount(tier[known], minlength=self.tiers)
        total = np.bincount(tier[known], state.value[known], minlength=self.tiers)
        found: Floats = np.where(number > 0, total / np.maximum(number, 1), -np.inf)
        return found

    def _change(self, accuracy: Floats, credits: Ints) -> Floats:
        """ChangeProbs of Algorithm 2: tiers with credits by accuracy, the lowest first, with odds n, n - 1, ..., 1."""
        able = np.flatnonzero(credits != 0)
        odds = np.zeros(self.tiers)
        n = len(able)
        odds[able[np.argsort(accuracy[able], kind="stable")]] = (n - np.arange(n)) / (n * (n + 1) / 2 or 1)
        return odds
