"""RBCS-F: reputation-based selection with a long-term fairness guarantee.

A linear contextual bandit predicts each client's exchange time; a virtual queue per client grows by the guaranteed rate
each round and shrinks when the client is chosen. The cohort minimises V max_S tau_bar - sum_S Z (21), which
`fedpick.solvers.bottleneck` solves exactly.

Trusts: contexts and durations, each only for the client's own estimate. A client can make itself look fast, but the
queues still guarantee every client's rate where that is feasible. A client whose context is unusable (NaN, infinite,
above 1e100) counts as the slowest, and is not chosen while enough others are available, however long its queue.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpick import solvers
from fedpick._support.native import native
from fedpick.core.errors import ContractError, MissingError, SettingError, require
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, Truth, nobody, present, truth
from fedpick.policies.about import About, Paper

__all__ = ["RBCSF", "RBCSFState"]

PAPER = Paper(
    "huang2021efficiency",
    "Huang, Tiansheng and Lin, Weiwei and Wu, Wentai and He, Ligang and Li, Keqin and Zomaya, Albert Y.",
    "An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness Guarantee",
    2021,
    "journal = {IEEE Transactions on Parallel and Distributed Systems},\n  volume = {32},\n  number = {7},\n"
    "  pages = {1552--1564},\n  doi = {10.1109/TPDS.2020.3040887}",
    "https://doi.org/10.1109/TPDS.2020.3040887",
)

log = logging.getLogger(__name__)

ABSENT = ("grow", "freeze")
_LIMIT = 1e100  # larger contexts and times are ignored; their squares would overflow


@dataclass
class RBCSFState:
    """Ridge regression and queue of each client; numbers of rounds that each was enrolled and there."""

    factor: Floats  # (K, d, d), lower Cholesky factor of H = lambda I + sum c c' (18)
    b: Floats  # (K, d), sum tau c
    theta: Floats  # (K, d), H^-1 b; in the oracle form theta*
    queue: Floats  # Z (6)
    enrolled: NDArray[np.int32]
    there: NDArray[np.int32]

    @property
    def h_inverse(self) -> Floats:
        """H^-1 of every client, (K, d, d)."""
        inverse = np.linalg.inv(self.factor)
        product: Floats = inverse.transpose(0, 2, 1) @ inverse
        return product


@native
def _estimate(context: Floats, factor: Floats, theta: Floats, ids: Ints, alpha: float) -> Floats:
    """tau_bar of (19) for these clients, +inf where the context is unusable."""
    d = context.shape[1]
    out = np.empty(len(ids))
    u = np.empty(d)
    for j in range(len(ids)):
        k = ids[j]
        time = 0.0
        width = 0.0
        usable = True
        for p in range(d):
            c = context[k, p]
            if not abs(c) <= _LIMIT:
                usable = False
            time += c * theta[k, p]
            if alpha > 0.0:  # c'H^-1 c = |L^-1 c|^2, by forward substitution
                for q in range(p):
                    c -= factor[k, p, q] * u[q]
                u[p] = c / factor[k, p, p]
                width += u[p] * u[p]
        if alpha > 0.0:
            time -= alpha * np.sqrt(width)
        out[j] = max(time, 0.0) if usable and np.isfinite(time) else np.inf
    return out


@native
def _learn(context: Floats, factor: Floats, b: Floats, theta: Floats, ids: Ints, times: Floats) -> None:
    """Add c c' to H and tau c to b, and solve for theta, for the clients whose time is known.

    H is stored as its Cholesky factor and updated by Givens rotations: an inverse updated by Sherman-Morrison loses all
    its digits after one context that is large compared with lambda.
    """
    d = context.shape[1]
    x = np.empty(d)
    for j in range(len(ids)):
        k = ids[j]
        for p in range(d):
            x[p] = context[k, p]
            b[k, p] += times[j] * context[k, p]
        for p in range(d):
            r = np.hypot(factor[k, p, p], x[p])
            c = factor[k, p, p] / r
            s = x[p] / r
            factor[k, p, p] = r
            for q in range(p + 1, d):
                kept = factor[k, q, p]
                factor[k, q, p] = c * kept + s * x[q]
                x[q] = c * x[q] - s * kept
        for p in range(d):  # L y = b
            y = b[k, p]
            for q in range(p):
                y -= factor[k, p, q] * theta[k, q]
            theta[k, p] = y / factor[k, p, p]
        for p in range(d - 1, -1, -1):  # L' theta = y
            y = theta[k, p]
            for q in range(p + 1, d):
                y -= factor[k, q, p] * theta[k, q]
            theta[k, p] = y / factor[k, p, p]


@dataclass(frozen=True, eq=False)
class RBCSF(ByValue):
    """Short rounds, with a guaranteed rate of participation for every client.

    Args:
        cohort_size: m.
        penalty: V, the weight of the round's time against the queues. The paper gives no value; in its world, 1, 10 and
            50 are fair, and values from 100 are unfair within 500 rounds.
        guarantee: beta, the rate at which every client is chosen in the long run, at most m/K; None: 0.75 m/K, the
            paper's ratio.
        ridge: lambda of the regression.
        exploration: alpha_t, a number or a callable round -> number (the paper's: `theory.Lemma1` of fedpick-papers).
        context: d, the number of columns of `view.context`; the paper's are [1/mu, s, M/B], with s = 1 for clients
            that did not take part in the last round (they have a cold start; the paper's text is contradictory).
        absent: "grow" lets the queues of absent clients grow (as in the paper): after 200 rounds of absence a client
            is chosen 38 times in 60 rounds; "freeze" keeps them constant.
        queue_cap: largest length of a queue; None: no limit.
        deadline: seconds used in the regression for late and failed clients; None: those of the slowest in the cohort.
        theta: (K, d) true coefficients, or a function of fp.Clients: the oracle that (23) compares with.
    """

    cohort_size: int
    penalty: float = 10.0
    guarantee: float | None = None
    ridge: float = 1.0
    exploration: float | Callable[[int], float] = 0.1
    context: int = 3
    absent: str = "grow"
    queue_cap: float | None = None
    deadline: float | None = None
    theta: Truth | None = None

    about = About(("rbcs-f",), PAPER)
    rounds_only = "it makes rounds short, and without rounds there is no length to make short"
    needs = ("context",)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "penalty", low=0.0)
        check.number(self, "guarantee", low=0.0, high=1.0)
        check.number(self, "ridge", "queue_cap", "deadline", low=0.0, open=True)
        if not callable(self.exploration):
            check.number(self, "exploration", low=0.0)
        check.whole(self, "context", low=1)
        check.one_of(self, "absent", ABSENT, "rule for absent clients")

    @property
    def oracle(self) -> bool:
        """Whether it was given the coefficients, which it otherwise learns."""
        return self.theta is not None

    def beta(self, clients: int) -> float:
        """The guaranteed rate among this many clients."""
        return 0.75 * min(self.cohort_size / max(clients, 1), 1.0) if self.guarantee is None else self.guarantee

    def init(self, clients: Clients) -> RBCSFState:
        """Return the state before the first round."""
        count, d = len(clients), self.context
        beta = self.beta(count)
        if beta * count > self.cohort_size * (1 + 1e-9) and self.cohort_size <= count:
            raise SettingError(
                f"RBCSF: guarantee = {beta:g} for each of {count} clients asks for {beta * count:g} clients a round, "
                f"but must be at most m/K = {self.cohort_size / count:g}; reduce it, or increase cohort_size = "
                f"{self.cohort_size}"
            )
        theta = np.zeros((count, d))
        if self.theta is not None:
            theta = truth(self, "theta", self.theta, clients, ndim=2).copy()
            require(theta.shape[1] == d, "RBCSF: theta's columns", theta.shape[1], f"context = {d}")
        factor = np.tile(np.sqrt(self.ridge) * np.eye(d), (count, 1, 1))
        zeros = np.zeros(count, dtype=np.int32)
        return RBCSFState(factor, np.zeros((count, d)), theta, np.zeros(count), zeros, zeros.copy())

    def select(self, state: RBCSFState, view: View, rng: np.random.Generator) -> Choice:
        """The optimum of (21)."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        alpha = self.exploration(view.round) if callable(self.exploration) else self.exploration
        times = _estimate(
            self._context(view), state.factor, state.theta, ids, 0.0 if self.theta is not None else float(alpha)
        )
        # Line 9 of Algorithm 2 omits the max(., 0) of (19); _estimate has it.
        value = -self.penalty * times if self.penalty > 0 else np.zeros(len(ids))
        return Choice(ids[solvers.bottleneck(value, state.queue[ids], self.cohort_size, rng=rng)])

    def _context(self, view: View) -> Floats:
        if view.context is None:
            raise MissingError(
                "RBCSF: times are predicted from view.context, but that is None; give the View an array with one row "
                f"per client and {self.context} columns, such as [1/mu, s, M/B]"
            )
        if view.context.shape[1] != self.context:
            raise ContractError(
                f"RBCSF: view.context has {view.context.shape[1]} columns, but context = {self.context}; make the "
                f"policy with context={view.context.shape[1]}"
            )
        return np.ascontiguousarray(view.context)

    def observe(self, state: RBCSFState, view: View, choice: Choice, outcome: Outcome) -> RBCSFState:
        """Learn the times, update the queues by (6)."""
        check_outcome(view, choice, outcome)
        context = self._context(view)
        ids = choice.ids
        if self.theta is None:
            with np.errstate(invalid="ignore"):
                answered = (outcome.status != Status.FAILED) & (outcome.duration <= _LIMIT)
                longest = outcome.duration.max(where=answered, initial=0.0)  # 0, which is not learned: nobody answered
                times = np.where(
                    outcome.succeeded, outcome.duration, longest if self.deadline is None else self.deadline
                )
                known = (times > 0.0) & (times <= _LIMIT) & (np.abs(context[ids]) <= _LIMIT).all(axis=1)
            _learn(context, state.factor, state.b, state.theta, ids[known], times[known])
        beta = self.beta(len(view.clients))
        if self.absent == "grow":
            state.queue += beta
        else:
            state.queue[view.there] += beta
        state.queue[ids] -= 1.0  # also of late and failed clients: they were chosen
        np.clip(state.queue, 0.0, self.queue_cap, out=state.queue)
        state.enrolled += 1
        state.there += view.there
        self._warn_if_infeasible(state, view, beta)
        return RBCSFState(state.factor, state.b, state.theta, state.queue, state.enrolled, state.there)

    def _warn_if_infeasible(self, state: RBCSFState, view: View, beta: float) -> None:
        """Log a warning in rounds 64, 128, 256, ... if the guarantee cannot be kept."""
        if view.round < 64 or view.round & (view.round - 1):
            return
        if beta * len(view.clients) > self.cohort_size and self.cohort_size <= len(view.clients):
            log.warning(
                "RBCSF: guarantee = %g for each of %d clients is more than cohort_size = %d can give, since more "
                "clients were enrolled; create the policy again with guarantee=None or a lower one",
                beta,
                len(view.clients),
                self.cohort_size,
            )
        rate = state.there / np.maximum(state.enrolled, 1)
        too_rare = int(np.count_nonzero((rate < beta) & (state.enrolled >= 64)))
        if too_rare:
            log.warning(
                "RBCSF: %d clients were available in less than guarantee = %g of the rounds, so their queues cannot "
                "become empty; reduce guarantee, or use absent='freeze'",
                too_rare,
                beta,
            )
