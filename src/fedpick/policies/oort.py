"""Oort: clients whose data are worth most to the model and that are fast enough, with a share of newcomers.

Algorithm 1 (the training selector); the testing selector is in the package fedpick-papers, because it is no policy.

Trusts: reported losses and durations, and data sizes. A utility counts at most as the 95th percentile, the draw among
the best is random, `at_most` bounds how often a client is chosen, and durations can be measured on the server.
"""

from dataclasses import dataclass, field

import numpy as np

from fedpick import sampling, solvers
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import LOSS_LIMIT, Bools, Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, Truth, nobody, places, truth
from fedpick.policies.about import About, Paper

__all__ = ["Oort", "OortState"]

PAPER = Paper(
    "lai2021oort",
    "Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf",
    "{Oort}: Efficient Federated Learning via Guided Participant Selection",
    2021,
    "booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)}",
    "https://www.usenix.org/conference/osdi21/presentation/lai",
)


@dataclass
class OortState:
    """What each client reported last (NaN: nothing yet), and the utility of past cohorts."""

    utility: Floats  # size times the root of the mean squared loss, from the last report; NaN again after a failure
    duration: Floats  # seconds, of the last round it answered or was late in; infinity after a failure
    counts: Ints  # how often it was chosen
    last: Ints  # the last round that told something about it, 0: none, it was never tried or never waited for
    speed: Floats  # what is known of its speed before it was tried
    gathered: Floats = shared_field()  # utility of the cohorts of this window of rounds and of the one before
    relaxed: int = shared_field()  # how often the pacer gave way


@dataclass(frozen=True, eq=False)
class Oort(ByValue):
    """Clients of the highest utility that are fast enough, and a share of clients never tried.

    Args:
        cohort_size: K of Algorithm 1.
        alpha: how hard slow clients are punished: utility times (T / duration)^alpha if they take longer than T.
        explore: share of the cohort for clients never tried, in round 1; 0.9 in the paper.
        decay: of that share, each round.
        explore_least: lower bound of that share.
        cutoff: c: clients with at least this share of the utility at the last exploited place can be drawn.
        clip: a quantile: utilities above it count as equal to it.
        window: rounds after which the pacer compares the utility gathered with that of as many rounds before.
        step: seconds by which the pacer raises T, and T at first, as Algorithm 1 has it; None takes for T a quantile of
            the durations heard: 30% at first, 5% more at each step, as the authors' code does.
        fairness: f in [0, 1]: utility becomes (1 - f) times itself plus f times how little the client was used.
        at_most: clients chosen this often are excluded while others are available; None: no limit.
        speed: what is known of clients' speeds before they are tried, one number > 0 each or a function of fp.Clients:
            those never tried are explored in proportion; None: all alike.
        excluded: the largest share of all clients that `at_most` excludes, those chosen most often first.

    >>> import fedpick as fp
    >>> [spec.name for spec in fp.traits(fp.Oort(cohort_size=10)).reports]
    ['squared_loss']
    """

    cohort_size: int
    alpha: float = 2.0
    explore: float = 0.9
    decay: float = 0.98
    explore_least: float = 0.2
    cutoff: float = 0.95
    clip: float = 0.95
    window: int = 20
    step: float | None = None
    fairness: float = 0.0
    at_most: int | None = None
    speed: Truth | None = None
    excluded: float = field(default=0.3, metadata={"added": True})

    about = About(("oort",), PAPER)
    wants = (ReportSpec("squared_loss", 0, instead="the square of the mean loss"),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "alpha", low=0.0)
        check.number(self, "explore", "decay", "explore_least", "cutoff", "fairness", "excluded", low=0.0, high=1.0)
        check.number(self, "clip", low=0.0, high=1.0, open=True)
        check.whole(self, "window", "at_most", low=1)
        check.number(self, "step", low=0.0, open=True)

    def init(self, clients: Clients) -> OortState:
        """Return the state before the first round: no client was tried."""
        count = len(clients)
        speed = np.ones(count) if self.speed is None else truth(self, "speed", self.speed, clients)
        none = np.zeros(count, dtype=np.int64)
        unknown = np.full(count, np.nan)
        return OortState(unknown, unknown.copy(), none, none.copy(), speed, np.zeros(2 * self.window), 0)

    def preferred(self, state: OortState) -> float:
        """T, the duration beyond which clients are punished."""
        if self.step is not None:
            return self.step * (1 + state.relaxed)
        heard = state.duration[np.isfinite(state.duration)]
        share = 0.3 + 0.05 * state.relaxed
        return float(np.quantile(heard, share)) if len(heard) and share < 1.0 else np.inf

    def scores(self, state: OortState, ids: Ints, round: int) -> Floats:
        """Util of Algorithm 1 for these clients, all of whom were tried.

        Utilities are brought to [0, 1] before the bonus is added, as in the authors' code: as printed, the bonus is
        below 1 and the utility in the hundreds. A client that never reported, or failed in its last attempt, gets the
        lowest value; one that failed also counts as taking as long as the slowest.
        """
        utility, took = state.utility[ids], state.duration[ids]
        known = ~np.isnan(utility)
        if known.any():
            low, limit = utility[known].min(), np.quantile(utility[known], self.clip)
            utility = (np.minimum(np.where(known, utility, low), limit) - low) / max(limit - low, 1e-300)
        else:
            utility = np.zeros(len(ids))
        # The round is today's, so that the bonus of a client grows while it is not chosen.
        found: Floats = utility + np.sqrt(0.1 * np.log(round) / state.last[ids])
        preferred = self.preferred(state)
        took[np.isinf(took)] = state.duration.max(where=np.isfinite(state.duration), initial=0.0)
        slow = took > preferred  # NaN is not
        found[slow] *= (preferred / took[slow]) ** self.alpha
        if self.fairness > 0.0:
            used = state.counts[ids]
            found = (1.0 - self.fairness) * found + self.fairness * (used.max() - used) / max(used.max(), 1)
        return found

    def select(self, state: OortState, view: View, rng: np.random.Generator) -> Choice:
        """Draw the exploited among the best, then the explored among those never tried."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        tried = state.last[ids] > 0
        fresh, known = ids[~tried], ids[tried]
        if self.at_most is not None:
            out = self._excluded(state, rng)
            known, fresh = known[~out[known]], fresh[~out[fresh]]
        share = max(self.explore * self.decay ** (view.round - 1), min(self.explore, self.explore_least))
        explored = int(share * m + rng.random())  # rounded at random, so that small cohorts explore too
        explored = min(max(min(explored, len(fresh)), m - len(known)), len(fresh))
        chosen = [self._exploit(state, known, min(m - explored, len(known)), view.round, rng)]
        if explored:
            chosen.append(fresh[sampling.weighted(state.speed[fresh], explored, rng)])
        cohort: Ints = np.concatenate(chosen)
        if len(cohort) < m:  # no other client is available: use those at the limit
            rest = np.setdiff1d(ids, cohort)
            cohort = np.concatenate([cohort, rng.choice(rest, m - len(cohort), replace=False)])
        return Choice(np.sort(cohort))

    def _excluded(self, state: OortState, rng: np.random.Generator) -> Bools:
        """Mask of the clients that were chosen too often; ties at random."""
        used = state.counts.astype(np.float64)
        out: Bools = used >= (np.inf if self.at_most is None else self.at_most)
        most = int(self.excluded * len(used))
        if np.count_nonzero(out) > most:
            out[:] = False
            out[solvers.top(used, most, rng)] = True
        return out

    def _exploit(self, state: OortState, ids: Ints, places: int, round: int, rng: np.random.Generator) -> Ints:
        """Clients for these places, drawn in proportion to utility among those near the top."""
        if places == 0:
            return ids[:0]
        score = self.scores(state, ids, round)
        last = np.partition(score, len(score) - places)[len(score) - places]
        pool = np.flatnonzero(score >= self.cutoff * last)
        odds = np.maximum(score[pool], 1e-12 * max(float(score.max()), 1e-12))
        return ids[pool[sampling.weighted(odds, places, rng)]]

    def observe(self, state: OortState, view: View, choice: Choice, outcome: Outcome) -> OortState:
        """Keep utilities and durations; every `window` rounds the pacer compares two windows."""
        check_outcome(view, choice, outcome)
        ids = choice.ids
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.square(outcome.loss)
            if "squared_loss" in outcome.reports:
                reported = np.asarray(outcome.reports["squared_loss"], dtype=np.float64)
                square = np.where(np.isnan(reported), square, reported)
            heard = outcome.succeeded & (square >= 0.0) & (square <= LOSS_LIMIT)
            timed = (outcome.duration > 0.0) & np.isfinite(outcome.duration)  # LATE has the deadline
        # The authors' param_server.py gives stragglers the round's mean utility, and those who went away nothing new; a
        # client that always fails is then asked again and again. Hence the lowest utility, and the longest duration.
        failed = outcome.status == Status.FAILED
        utility = view.clients.sizes[ids[heard]] * np.sqrt(square[heard])
        state.utility[ids[heard]] = utility
        state.duration[ids[timed]] = outcome.duration[timed]
        state.utility[ids[failed]], state.duration[ids[failed]] = np.nan, np.inf
        # As in the authors' code, who answered and was not used, so that no loss of its is known, gets the mean.
        spare = (outcome.status == Status.SURPLUS) & timed & ~heard
        if heard.any():
            state.utility[ids[spare]] = np.average(utility, weights=view.clients.sizes[ids[heard]])
        state.counts[ids] += 1
        state.last[ids[outcome.known]] = view.round  # one that was not waited for stays as it was
        gathered, relaxed = state.gathered, state.relaxed
        at = (view.round - 1) % self.window
        if at == 0:  # a new window begins
            gathered[: self.window], gathered[self.window :] = gathered[self.window :].copy(), 0.0
        known = state.utility[~np.isnan(state.utility)]
        limit = np.quantile(known, self.clip) if heard.any() else 0.0  # no liar fills a window alone
        gathered[self.window + at] = np.minimum(utility, limit).sum()
        if at == self.window - 1 and gathered[: self.window].sum() > gathered[self.window :].sum():
            relaxed += 1
        return OortState(state.utility, state.duration, state.counts, state.last, state.speed, gathered, relaxed)
