"""Pisces: the clients whose data are worth most to the model, less if their updates are usually stale, and newcomers.

Section 4.1 of the paper, for asynchronous training (`fp.Buffered`): whenever places are free, some go to clients never
tried and the others to the highest utilities. The utility is Oort's, but slow clients are not punished for being slow,
only for updates that come late: a stale update is worth less. In rounds no update is stale.

Trusts: reported losses and data sizes. The highest utility is chosen, without a limit: a client that reports a high
loss is asked whenever it is idle. The paper excludes clients whose losses are outliers among those of the same version
five times; here `Guard(Pisces(m))` limits losses, and how often a client is chosen.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import LOSS_LIMIT, Bools, Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places, unheard_lowest
from fedpick.policies.about import About, Paper

__all__ = ["Pisces", "PiscesState"]

PAPER = Paper(
    "jiang2022pisces",
    "Jiang, Zhifeng and Wang, Wei and Li, Baochun and Li, Bo",
    "{Pisces}: Efficient Federated Learning via Guided Asynchronous Training",
    2022,
    "booktitle = {ACM Symposium on Cloud Computing (SoCC)}",
    "https://arxiv.org/abs/2206.09264",
)
LAGS = 5  # answers of a client whose staleness is averaged, as in the authors' code


@dataclass
class PiscesState:
    """What each client reported last, and how stale its last answers were."""

    utility: Floats  # size times the root of the mean squared loss; NaN: nothing yet
    lags: Ints  # (K, 5): staleness of its last answers; -1: there were fewer
    counts: Ints  # how often it was chosen
    tried: Bools


@dataclass(frozen=True, eq=False)
class Pisces(ByValue):
    """Clients of the highest utility, less for stale updates, and a share of clients never tried.

    Args:
        cohort_size: how many are chosen; under `fp.Buffered` as many as places are free.
        beta: utility counts (1 + mean staleness of the client's last five answers)^-beta times.
        explore: with this probability each free place is for a client never tried, in round 1.
        decay: of that probability, with each round or move of the model.
        explore_least: lower bound of that probability.

    >>> import fedpick as fp
    >>> [spec.name for spec in fp.traits(fp.Pisces(cohort_size=10)).reports]
    ['squared_loss']
    """

    cohort_size: int
    beta: float = 0.5
    explore: float = 0.9
    decay: float = 0.98
    explore_least: float = 0.3

    about = About(("pisces",), PAPER)
    wants = (ReportSpec("squared_loss", 0, instead="the square of the mean loss"),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "beta", low=0.0)
        check.number(self, "explore", "decay", "explore_least", low=0.0, high=1.0)

    def init(self, clients: Clients) -> PiscesState:
        """Return the state before the first round: no client was tried."""
        count = len(clients)
        none = np.zeros(count, dtype=np.int64)
        lags = np.full((count, LAGS), -1, dtype=np.int64)
        return PiscesState(np.full(count, np.nan), lags, none, np.zeros(count, dtype=np.bool_))

    def scores(self, state: PiscesState, ids: Ints) -> Floats:
        """Utility of these clients, all of whom were tried, times what is left of it by their usual staleness."""
        lags = state.lags[ids]
        known = lags >= 0
        lag = np.where(known, lags, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        found: Floats = state.utility[ids] * (1.0 + lag) ** -self.beta
        return found

    def select(self, state: PiscesState, view: View, rng: np.random.Generator) -> Choice:
        """The places that chance gives to newcomers, and the best for the others."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        tried = state.tried[ids] | view.held[ids]  # whose first answer waits is no newcomer, and not known yet
        fresh, known = ids[~tried], ids[tried]
        # The code lets the probability decay with each ask, of which there are more if clients are asked one by one.
        chance = max(self.explore * self.decay ** (view.round - 1), min(self.explore, self.explore_least))
        explored = min(int(rng.binomial(m, chance)), len(fresh))
        exploited = min(m - explored, len(known))
        best = known[solvers.top(self.scores(state, known), exploited, rng)]
        others = fresh[rng.choice(len(fresh), m - exploited, replace=False)]
        return Choice(np.sort(np.concatenate([best, others])))

    def observe(self, state: PiscesState, view: View, choice: Choice, outcome: Outcome) -> PiscesState:
        """Keep utilities and staleness; who reports no possible loss gets the lowest utility of the others."""
        check_outcome(view, choice, outcome)
        ids, news = choice.ids, outcome.known
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.square(outcome.loss)
            if "squared_loss" in outcome.reports:
                reported = np.asarray(outcome.reports["squared_loss"], dtype=np.float64)
                square = np.where(np.isnan(reported), square, reported)
            heard = outcome.succeeded & (square >= 0.0) & (square <= LOSS_LIMIT)
        utility = np.where(heard, view.clients.sizes[ids] * np.sqrt(np.where(heard, square, 0.0)), state.utility[ids])
        state.utility[ids[news]] = unheard_lowest(utility, heard)[news]
        if "staleness" in outcome.reports:
            lag = np.asarray(outcome.reports["staleness"], dtype=np.float64)
            came = (outcome.status != Status.FAILED) & (lag >= 0.0) & (lag <= LOSS_LIMIT)
            state.lags[ids[came]] = np.column_stack([state.lags[ids[came], 1:], lag[came].astype(np.int64)])
        state.counts[ids] += 1
        state.tried[ids[news]] = True
        return PiscesState(state.utility, state.lags, state.counts, state.tried)
