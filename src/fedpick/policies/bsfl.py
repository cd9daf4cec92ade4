"""BSFL: bandit scheduling that trades the round's time against how well the model generalises.

The cohort maximises  min_S ucb(k, t) + alpha/m sum_S g_k  (13), where g is larger for clients chosen less often than
their target. The paper uses simulated annealing; `fedpick.solvers.bottleneck` solves the problem exactly.

Trusts: the durations. If they are measured on the server and `tau_min` is given, a client gains nothing by a false
one; and whatever a client reports, g falls each time it is chosen. If `tau_min` is learned, one false, very short
duration makes all other clients look equally slow. With `quality`, data sizes as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpick import solvers
from fedpick.core.errors import ContractError, require
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, Truth, nobody, places, present, truth
from fedpick.policies._speed import SpeedState, fresh_speed, learn_speed, never_timed, upper_bound
from fedpick.policies.about import About, Paper

__all__ = ["BSFL", "BSFLState", "Genie", "GenieState", "generalisation"]

PAPER = Paper(
    "benami2023client",
    "{Ben Ami}, Dan and Cohen, Kobi and Zhao, Qing",
    "Client Selection for Generalization in Accelerated Federated Learning: A Multi-Armed Bandit Approach",
    2023,
    "journal = {arXiv preprint arXiv:2303.10373}",
    "https://arxiv.org/abs/2303.10373",
)

SOLVERS = ("exact", *solvers.NEIGHBOURS)
Generalisation = Callable[[Ints, int, Clients], ArrayLike]  # (counts, round, clients) -> g in [-1, 1]


def generalisation(counts: ArrayLike, round: int, target: ArrayLike, beta: float = 1.0) -> Floats:
    """g of eq. (3) and (4): |target - c/t|^beta with the sign of target - c/t.

    >>> generalisation([0, 4], round=4, target=0.5).tolist()
    [0.5, -0.5]
    """
    gap = np.asarray(target, dtype=np.float64) - np.asarray(counts) / round
    return gap if beta == 1 else np.sign(gap) * np.abs(gap) ** beta


@dataclass
class BSFLState:
    """Counts and speeds of the clients, and the worth of their data (targets are proportional to it)."""

    speed: SpeedState
    worth: Floats

    @property
    def counts(self) -> Ints:
        """How often each client was chosen."""
        return self.speed.counts


def _worth(policy: "BSFL | Genie", clients: Clients) -> Floats:
    """q_k |X_k| of (4), or 1 for every client (3)."""
    if policy.quality is None:
        return np.ones(len(clients))
    quality = truth(policy, "quality", policy.quality, clients)
    require(bool(((quality >= 0) & (quality <= 1)).all()), f"{type(policy).__name__}: quality", quality, "in [0, 1]")
    return quality * clients.sizes


def _bonus(policy: "BSFL | Genie", counts: Ints, worth: Floats, view: View, ids: Ints) -> Floats:
    """alpha/m g for these clients."""
    m = policy.cohort_size
    if policy.g is not None:
        g = np.asarray(policy.g(counts, view.round, view.clients), dtype=np.float64)
        if g.shape != counts.shape or not np.isfinite(g).all():
            raise ContractError(
                f"g returned shape {g.shape}, but must return one finite number per client: {counts.shape}"
            )
        g = g[ids]
    else:
        total = worth.sum()
        g = generalisation(counts[ids], view.round, m * worth[ids] / total if total > 0 else 0.0, policy.beta)
    return policy.alpha / m * g


def _check(policy: "BSFL | Genie") -> None:
    check.cohort_size(policy)
    check.number(policy, "alpha", low=0.0)
    check.number(policy, "beta", low=0.0, open=True)


@dataclass(frozen=True, eq=False)
class BSFL(ByValue):
    """Fast clients, by upper confidence bounds, with a bonus for those chosen too rarely; the exact optimum.

    Args:
        cohort_size: m.
        alpha: weight of generalisation against speed.
        beta: exponent of g.
        solver: "exact", or the paper's annealing: "alsa", "alsa-drop", "sa" (see `fedpick.solvers.annealing`).
        quality: None aims at equal participation (3); a number in [0, 1], one per client, or a function of fp.Clients
            aims at participation proportional to quality * size (4).
        g: your own generalisation function (counts, round, clients) -> one number per client, instead of (3), (4).
        tau_min: the shortest possible duration, in seconds; None: the shortest seen.
        tau_max: the deadline, used as the duration of late and failed clients; None: the longest seen.
        steps: proposals of the annealing solvers.
    """

    cohort_size: int
    alpha: float = 1.0
    beta: float = 1.0
    solver: str = "exact"
    quality: Truth | None = None
    g: Generalisation | None = None
    tau_min: float | None = None
    tau_max: float | None = None
    steps: int = 5000

    about = About(("bsfl",), PAPER)
    rounds_only = "it makes rounds short, and without rounds there is no length to make short"

    def __post_init__(self) -> None:
        _check(self)
        check.one_of(self, "solver", SOLVERS)
        check.times(self)
        check.whole(self, "steps", low=0)

    def init(self, clients: Clients) -> BSFLState:
        """Return the state before the first round."""
        return BSFLState(fresh_speed(len(clients)), _worth(self, clients))

    def select(self, state: BSFLState, view: View, rng: np.random.Generator) -> Choice:
        """First clients never chosen, ties at random; then the optimum of (13) for the rest of the cohort."""
        # ucb = +inf does not force their choice under (13): by (4), a client never chosen need not have the largest g.
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        first = never_timed(state.speed, ids)
        never = ids[first]
        if len(never) >= m:
            return Choice(np.sort(rng.choice(never, m, replace=False, shuffle=False)))
        if len(never):
            ids = ids[~first]
        value = upper_bound(state.speed, ids, self.tau_min, self.cohort_size, view.round)
        bonus = _bonus(self, state.counts, state.worth, view, ids)
        if self.solver == "exact":
            best = solvers.bottleneck(value, bonus, m - len(never), rng=rng)
        else:
            best = solvers.anneal(value, bonus, m - len(never), self.steps, rng, self.solver)
        return Choice(np.sort(np.concatenate([never, ids[best]])))

    def observe(self, state: BSFLState, view: View, choice: Choice, outcome: Outcome) -> BSFLState:
        """Learn the speeds, by (10) and (11)."""
        check_outcome(view, choice, outcome)
        return BSFLState(learn_speed(state.speed, choice, outcome, self.tau_min, self.tau_max), state.worth)


@dataclass
class GenieState:
    """What the genie knows about each client, and how often each was chosen."""

    speed: Floats
    worth: Floats
    counts: Ints


@dataclass(frozen=True, eq=False)
class Genie(ByValue):
    """As BSFL, but with the true mean speeds of eq. (6), which no server knows.

    Args:
        cohort_size: m.
        speed: mean of tau_min/tau for each client, or a function of fp.Clients.
        alpha: weight of generalisation against speed.
        beta: exponent of g.
        quality: as in BSFL.
        g: as in BSFL.
    """

    cohort_size: int
    speed: Truth
    alpha: float = 1.0
    beta: float = 1.0
    quality: Truth | None = None
    g: Generalisation | None = None

    about = About(("genie",), PAPER, kind="oracle", given="speed")
    rounds_only = "it makes rounds short, and without rounds there is no length to make short"
    truths = ("speed",)

    def __post_init__(self) -> None:
        _check(self)

    def init(self, clients: Clients) -> GenieState:
        """Return the state before the first round."""
        speed = truth(self, "speed", self.speed, clients)
        return GenieState(speed, _worth(self, clients), np.zeros(len(clients), dtype=np.int64))

    def select(self, state: GenieState, view: View, rng: np.random.Generator) -> Choice:
        """The optimum of (6)."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        bonus = _bonus(self, state.counts, state.worth, view, ids)
        return Choice(ids[solvers.bottleneck(state.speed[ids], bonus, self.cohort_size, rng=rng)])

    def observe(self, state: GenieState, view: View, choice: Choice, outcome: Outcome) -> GenieState:
        """Count the chosen clients; there is nothing to learn."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        return GenieState(state.speed, state.worth, state.counts)
