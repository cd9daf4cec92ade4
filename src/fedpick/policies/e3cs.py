"""E3CS: Exp3-based client selection for volatile clients.

An adversarial bandit with k plays per round: exponential weights favour clients that return their models, and a quota
is a lower bound of every client's probability.

Trusts: only the server's own record of which clients answered (unless `reward` names a report). A client's probability
is never below quota * k/K or above 1, whatever it reports.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpick import sampling
from fedpick.core.errors import MissingError, SettingError, require
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.schedules import Cosine, Linear, Schedule, Step
from fedpick.core.state import shared_field
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present, valid_losses
from fedpick.policies.about import About, Paper

__all__ = ["E3CS", "E3CSState", "allocate"]

PAPER = Paper(
    "huang2022stochastic",
    "Huang, Tiansheng and Lin, Weiwei and Shen, Li and Li, Keqin and Zomaya, Albert Y.",
    "Stochastic Client Selection for Federated Learning with Volatile Clients",
    2022,
    "journal = {IEEE Internet of Things Journal},\n  volume = {9},\n  number = {20},\n"
    "  doi = {10.1109/JIOT.2022.3172113}",
    "https://arxiv.org/abs/2011.08756",
)

SAMPLERS: dict[str, Callable[[Floats, int, np.random.Generator], Ints]] = {
    "pivotal": lambda p, k, rng: sampling.pivotal(p, rng),
    "systematic": lambda p, k, rng: sampling.systematic(p, rng),
    "multinomial": sampling.multinomial_nr,
}
QUOTAS = ("inc", "linear", "cosine")
SURPLUS = int(Status.SURPLUS)  # NumPy takes longer with an enum


def allocate(log_weights: ArrayLike, k: int, sigma: float) -> tuple[Floats, Bools]:
    """Probabilities of Algorithm 2, and the mask S_t of the clients whose weight was capped.

    p = sigma + (k - K sigma) w'/sum w', with w' = min(w, (1 - sigma) alpha). Equations (23), (24) compare with
    Psi = w/(1 - sigma) and give p > 1 in some cases of overflow; here alpha is the unique solution of (22), and S_t is
    a strict inequality as in line 3. Weights are given as logarithms, because they overflow within a few hundred
    rounds.

    Args:
        log_weights: one per client that can be chosen.
        k: number of clients to choose.
        sigma: the quota per client, 0 <= sigma <= k/K.

    >>> allocate([0.0, 0.0, 9.0], k=2, sigma=0.1)[0].tolist()
    [0.5, 0.5, 1.0]
    """
    logs = np.asarray(log_weights, dtype=np.float64)
    require(0 <= k <= len(logs), "allocate: k", k, f"between 0 and the number of clients, {len(logs)}")
    most = k / len(logs) if len(logs) else 0.0
    require(0.0 <= sigma <= most * (1 + 1e-9), "allocate: sigma", sigma, f"between 0 and k/K = {most:g}")
    p, over = sampling.capped(logs, max(k - len(logs) * sigma, 0.0), 1.0 - sigma)
    p += sigma
    p[over] = 1.0
    return np.minimum(p, 1.0, out=p), over


@dataclass
class E3CSState:
    """Logarithms of the weights w_{i,t}, up to a common constant."""

    log_weights: Floats
    eta: float = shared_field()


@dataclass(frozen=True, eq=False)
class E3CS(ByValue):
    """Clients that return their models, with a fairness quota (Exp3 with k plays per round).

    Args:
        cohort_size: k.
        quota: the share of k/K guaranteed to every client, in [0, 1]: a number (E3CS-0, -0.5, -0.8), "inc" (0 for the
            first quarter of the horizon, then 1), "linear" or "cosine" (from 0 to 1 over the horizon), or any
            callable round -> share.
        learning_rate: eta of (17), or "optimal" for sqrt(K ln K / sum_t (k - K sigma_t)), which needs the horizon.
        sampler: "pivotal" or "systematic" (inclusion is exactly p), or "multinomial" (the paper's; inclusion is not p).
        max_step: the largest step of a log-weight; None: no limit, as in the paper. The paper's Fact 8 (step <= 1) does
            not hold, because 1/p is unbounded: steps of thousands occur at quota 0. It holds with max_step = 1.0.
        horizon: number of rounds T, for quotas and rates that need it; later rounds keep the last value.
        reward: name of a report in [0, 1] that replaces the success flag x_{i,t}.

    >>> import fedpick as fp
    >>> fp.E3CS(cohort_size=20, quota="inc", horizon=2500).share(625)
    0.0
    """

    cohort_size: int
    quota: float | str | Schedule = 0.0
    learning_rate: float | str = 0.5
    sampler: str = "pivotal"
    max_step: float | None = None
    horizon: int | None = None
    reward: str | None = None

    about = About(("e3cs",), PAPER)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        if isinstance(self.quota, str):
            check.one_of(self, "quota", QUOTAS)
        elif not callable(self.quota):
            number = isinstance(self.quota, int | float | np.number) and not isinstance(self.quota, bool)
            require(
                number and 0.0 <= self.quota <= 1.0,
                "E3CS: quota",
                self.quota,
                "in [0, 1]",
                "it is the share of k/K guaranteed to every client: 0 is greedy, 1 uniform",
            )
        if isinstance(self.learning_rate, str):
            require(self.learning_rate == "optimal", "E3CS: learning_rate", self.learning_rate, "a number or 'optimal'")
        else:
            check.number(self, "learning_rate", low=0.0, open=True)
        check.one_of(self, "sampler", SAMPLERS)
        check.number(self, "max_step", low=0.0, open=True)
        check.whole(self, "horizon", low=2)
        if self.horizon is None and (isinstance(self.quota, str) or self.learning_rate == "optimal"):
            asks = f"quota={self.quota!r}" if isinstance(self.quota, str) else "learning_rate='optimal'"
            raise SettingError(f"E3CS: {asks} needs the number of rounds: pass horizon=T")

    @property
    def needs(self) -> tuple[ReportSpec, ...]:
        """The report named by `reward`, one number per client."""
        return () if self.reward is None else (ReportSpec(self.reward, width=0),)

    def share(self, round: int) -> float:
        """The quota in this round, as a share of k/K."""
        quota = self.quota
        if isinstance(quota, str):
            assert self.horizon is not None
            named: dict[str, Schedule] = {
                "inc": Step(0.0, 1.0, at=self.horizon / 4),
                "linear": Linear(0.0, 1.0, horizon=self.horizon),
                "cosine": Cosine(0.0, 1.0, horizon=self.horizon),
            }
            quota = named[quota]
        value = float(quota(round) if callable(quota) else quota)
        require(0.0 <= value <= 1.0, f"E3CS: quota in round {round}", value, "in [0, 1]", "correct the schedule")
        return value

    def _eta(self, clients: int) -> float:
        if not isinstance(self.learning_rate, str):
            return float(self.learning_rate)
        assert self.horizon is not None
        k = min(self.cohort_size, clients)
        open_plays = k * sum(1.0 - self.share(t) for t in range(1, self.horizon + 1))
        return math.sqrt(clients * math.log(clients) / open_plays) if open_plays > 0 and clients > 1 else 1.0

    def init(self, clients: Clients) -> E3CSState:
        """Return the state before the first round: all weights equal."""
        return E3CSState(np.zeros(len(clients)), self._eta(len(clients)))

    def _odds(self, view: View) -> tuple[int, int, float]:
        """K, k and sigma for the available clients (not in the paper; the others have p = 0)."""
        n = int(np.count_nonzero(view.available))
        k = min(self.cohort_size, n)
        return n, k, self.share(view.round) * k / n if n else 0.0

    def _allocate(self, state: E3CSState, view: View, odds: tuple[int, int, float]) -> tuple[Ints, Floats, Bools]:
        """Available clients, their probabilities, and the mask S_t of those whose weight is capped."""
        ids, (n, k, sigma) = present(view), odds
        logs = state.log_weights if n == len(state.log_weights) else state.log_weights[ids]
        return ids, *allocate(logs, k, sigma)

    def select(self, state: E3CSState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort."""
        n, k, sigma = self._odds(view)
        if n == 0:
            return nobody()
        ids, p, capped = self._allocate(state, view, (n, k, sigma))
        drawn = SAMPLERS[self.sampler](p, k, rng)
        known, mine = self.sampler != "multinomial", p[drawn]
        kept = {"gain": self._gain(state, mine, capped[drawn], (n, k, sigma))}
        return Choice(ids[drawn], inclusion=mine if known else None, chances=p if known else None, kept=kept)

    def _gain(self, state: E3CSState, p: Floats, capped: Bools, odds: tuple[int, int, float]) -> Floats:
        """What (17) adds to the log-weights of clients that return: (k - K sigma) eta / (K p), 0 for those in S_t."""
        n, k, sigma = odds
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            gain = (k - n * sigma) * state.eta / (p * n)
        return np.where(capped, 0.0, gain)

    def observe(self, state: E3CSState, view: View, choice: Choice, outcome: Outcome) -> E3CSState:
        """Increase the weights of the clients that returned, by (16) and (17).

        In a round that did not wait for some clients, these keep their weights, and the estimate (16) of the others is
        of x minus its mean over them, so that no weight falls behind for want of news: where all who answer return
        their models, nothing changes. p is then the probability of being chosen and heard, on average over those who
        did not fail.
        """
        check_outcome(view, choice, outcome)
        good, surplus = outcome.succeeded, bool((outcome.status == SURPLUS).any())
        news = outcome.known if surplus else None  # None: of all
        if news is not None:
            good &= news
        x = good.astype(np.float64)
        if self.reward is not None:
            if self.reward not in outcome.reports:
                raise MissingError(
                    f"E3CS: reward={self.reward!r}, but the outcome's reports are {list(outcome.reports)}"
                )
            reported = np.asarray(outcome.reports[self.reward], dtype=np.float64)
            x *= np.clip(np.where(valid_losses(reported), reported, 0.0), 0.0, 1.0)  # an impossible reward counts as 0
        if len(choice) == 0:
            return E3CSState(state.log_weights, state.eta)
        if news is not None and not news.all():
            x = np.where(news, x - (x[news].mean() if news.any() else 0.0), 0.0)
        logs, ids = state.log_weights, choice.ids
        gain = self._gain_of(state, view, choice)
        if surplus:
            gain = gain * (np.count_nonzero(outcome.succeeded) / np.count_nonzero(good)) if good.any() else gain
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.where(x == 0.0, 0.0, gain * x)
        most = 1e6 if self.max_step is None else self.max_step  # 1e6: beyond any other weight
        logs[ids] += np.clip(step, -most, most)
        return E3CSState(logs, state.eta)

    def _gain_of(self, state: E3CSState, view: View, choice: Choice) -> Floats:
        """The `_gain` of each chosen client when it was chosen."""
        if choice.kept is not None:
            return choice.kept["gain"]
        # Without it, as when a server's journal is replayed, the state and the view are those of select.
        odds = self._odds(view)
        there, p, capped = self._allocate(state, view, odds)
        at = np.searchsorted(there, choice.ids)
        return self._gain(state, p[at], capped[at], odds)

    def before_admit(self, state: E3CSState) -> E3CSState:
        """Shift the log-weights so that 0, the newcomers' value, gives an average probability."""
        k = min(self.cohort_size, len(state.log_weights))
        p, over = allocate(state.log_weights, k, 0.0)
        share = np.where(over, 0.0, p)
        if share.any():
            at = int(np.argmax(share))  # outside S_t, p is proportional to the weight
            shift = state.log_weights[at] + math.log(k / len(p) / share[at])
            return E3CSState(state.log_weights - shift, state.eta)
        return state
