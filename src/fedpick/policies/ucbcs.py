"""UCB-CS: clients whose data have a high loss by what they last said, or of whom little has been heard lately.

In each round client k has the discounted sum of its losses L_k, the discounted number of its participations N_k, and T
is the discounted number of rounds: all are multiplied by gamma, then those of the chosen grow. The cohort are the m
highest p_k (L_k / N_k + sqrt(2 sigma^2 ln T / N_k)), p_k the share of the data and sigma the largest standard deviation
of a client's losses over mini-batches, by the clients' last reports (`loss_std`); where nobody reports it, it is the
deviation of the last cohort's losses.

Not the CS-UCB of Xia et al. (`fp.CSUCB`), which learns how fast clients are. L / N changes only when a client takes
part, and N fades by gamma a round, so that a client's numbers are written only when it is chosen. N is kept as a
logarithm: after 2,000 rounds it is below all floating-point numbers.

Clients never tried come first, in random order. A client that was late or failed counts as one that took part with the
lowest loss of its cohort, or its own if that is lower. Without rounds (`fp.Buffered`) the model's changes are counted.

Trusts: the losses that clients report, data sizes, and `loss_std`. A client that claims a high loss is chosen as
long as it claims it; one that claims a large deviation makes the choice that of those not heard for longest.

The server learns what it learns with rpow-d: the mean training loss of each client that took part, and one number about
its spread, if it is reported.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import EXCUSES, ByValue, nobody, places, told, unheard_lowest, valid_losses
from fedpick.policies.about import About, Paper

__all__ = ["UCBCS", "UCBCSState"]

PAPER = Paper(
    "cho2020bandit",
    "Cho, Yae Jee and Gupta, Samarth and Joshi, Gauri and Ya{\\u{g}}an, Osman",
    "Bandit-based Communication-Efficient Client Selection Strategies for Federated Learning",
    2020,
    "booktitle = {Asilomar Conference on Signals, Systems, and Computers}",
    "https://arxiv.org/abs/2012.08009",
)

LARGEST_EXPONENT = 600.0  # beyond, bonuses are scaled down together; exp(709) is the largest number


@dataclass
class UCBCSState:
    """What each client said, and how often it was heard."""

    value: Floats  # L / N; NaN: never tried
    log_heard: Floats  # ln N, just after the client took part
    last: Ints  # the round of that; 0: never
    spread: Floats  # loss_std of its last report; 0: none
    counts: Ints  # how often it was chosen, also where nobody waited for it
    sigma: float = shared_field()  # deviation of the last cohort's losses


@dataclass(frozen=True, eq=False)
class UCBCS(ByValue):
    """The highest discounted losses plus a bonus for clients that were not heard for long.

    Args:
        cohort_size: m.
        gamma: what a round counts for one round later, in (0, 1].

    >>> import fedpick as fp
    >>> fp.UCBCS(cohort_size=3).gamma
    0.7
    """

    cohort_size: int
    gamma: float = 0.7

    about = About(("ucb-cs",), PAPER)
    wants = (ReportSpec("loss_std", 0, instead="the deviation of the cohort's losses"),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "gamma", low=0.0, high=1.0, open=True)

    def init(self, clients: Clients) -> UCBCSState:
        """Return the state before the first round: nobody was tried."""
        count = len(clients)
        none = np.zeros(count, dtype=np.int64)
        unknown = np.full(count, np.nan)
        return UCBCSState(unknown, np.full(count, -np.inf), none, np.zeros(count), none.copy(), 0.0)

    def index(self, state: UCBCSState, ids: Ints, sizes: Floats, round: int) -> Floats:
        """p (L / N + sqrt(2 sigma^2 ln T / N)) of these clients, all tried, up to a common factor."""
        sigma = float(state.spread.max()) or state.sigma
        past = round - 1
        total = past if self.gamma == 1.0 else (1.0 - self.gamma**past) / (1.0 - self.gamma)  # T
        width = np.sqrt(2.0 * np.log(max(total, 1.0))) * sigma
        if width == 0.0:
            return sizes * state.value[ids]
        half = -0.5 * (state.log_heard[ids] + (past - state.last[ids]) * np.log(self.gamma))  # ln of sqrt(1 / N)
        common = max(float(half.max(initial=0.0)) - LARGEST_EXPONENT, 0.0)
        found: Floats = sizes * (state.value[ids] * np.exp(-common) + width * np.exp(half - common))
        return found

    def select(self, state: UCBCSState, view: View, rng: np.random.Generator) -> Choice:
        """Clients never tried first, then the highest indices."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        untried = np.isnan(state.value[ids])
        index = np.full(len(ids), np.inf)
        tried = ids[~untried]
        if len(tried):
            sizes = view.clients.sizes[tried] / view.clients.sizes.max()
            index[~untried] = self.index(state, tried, sizes, view.round)
            often = untried & (state.counts[ids] >= EXCUSES)  # was never waited for; else it would come first for ever
            if often.any():
                index[often] = np.median(index[~untried])
        return Choice(ids[solvers.top(index, m, rng)])

    def observe(self, state: UCBCSState, view: View, choice: Choice, outcome: Outcome) -> UCBCSState:
        """Discount and add the losses of those who took part."""
        check_outcome(view, choice, outcome)
        ids, loss = choice.ids, outcome.loss
        state.counts[ids] += 1
        heard = outcome.succeeded & valid_losses(loss)
        before = state.value[ids]
        told_of = told(outcome, loss)
        value = unheard_lowest(np.where(heard, loss, before), heard)[told_of]
        those = ids[told_of]
        faded = state.log_heard[those] + (view.round - state.last[those]) * np.log(self.gamma)
        held = np.exp(faded)  # gamma^rounds N; 0 for one never tried
        old = np.where(held > 0.0, np.nan_to_num(before[told_of]), 0.0)
        state.value[those] = (held * old + value) / (held + 1.0)
        state.log_heard[those] = np.log1p(held)
        state.last[those] = view.round
        sigma = float(np.std(loss[heard])) if np.count_nonzero(heard) > 1 else state.sigma
        if "loss_std" in outcome.reports:
            said = np.asarray(outcome.reports["loss_std"], dtype=np.float64)
            usable = outcome.succeeded & valid_losses(said) & (said >= 0.0)
            state.spread[ids[usable]] = said[usable]
        return UCBCSState(state.value, state.log_heard, state.last, state.spread, state.counts, sigma)
