"""Skew and bounds of Power-of-Choice (https://arxiv.org/abs/2010.01243); equation numbers are of this paper."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats
from fedpick_papers.theory._arrays import checked

__all__ = [
    "Bound",
    "PowProblem",
    "Skews",
    "pow_bound_decaying",
    "pow_bound_fixed",
    "pow_bound_weighted",
    "pow_gap",
    "pow_share",
    "pow_skew",
    "pow_skew_extremes",
]


class Skews(NamedTuple):
    """The extremes (6) of the selection skew."""

    rho_bar: float
    rho_tilde: float


class Bound(NamedTuple):
    """A bound on E[F(w_T)] - F*: a part that goes to 0 as T grows, and a bias that does not."""

    vanishing: float
    bias: float

    @property
    def total(self) -> float:
        """The sum of both."""
        return self.vanishing + self.bias


def _fractions(what: str, values: ArrayLike, *shape: int | None) -> Floats:
    """Check that the values along the last axis are >= 0 and sum to 1."""
    array = checked(what, values, *shape)
    sums = array.sum(axis=-1).ravel()
    worst = float(sums[np.argmax(np.abs(sums - 1))])
    require(abs(worst - 1) < 1e-6, f"sum of {what}", worst, "1", "divide by the sum")
    require(bool(array.min() >= 0), f"smallest of {what}", float(array.min()), ">= 0")
    return array


def _excess(losses: ArrayLike, minima: ArrayLike, *shape: int | None) -> Floats:
    """F_k(w) - F_k*; the last axis is the client."""
    low = checked("minima", minima, None)
    excess = checked("losses", losses, *shape, len(low)) - low
    bound = -1e-9 * max(1.0, float(np.abs(low).max()))
    require(
        bool(excess.min() >= bound), "smallest loss - minimum", float(excess.min()), ">= 0", "the minima are too high"
    )
    return np.maximum(excess, 0.0)


def pow_gap(F_at_optimum: ArrayLike, F_star: ArrayLike, p: ArrayLike) -> float:
    """Local-global objective gap Gamma (4), from F_k(w*), the clients' own minima F_k* and data fractions p.

    >>> pow_gap([2.0, 1.0], [1.0, 1.0], p=[0.5, 0.5])
    0.5
    """
    excess = _excess(F_at_optimum, F_star)
    return float(_fractions("p", p, len(excess)) @ excess)


def pow_share(cohorts: ArrayLike, K: int) -> Floats:
    """Each client's expected share of the cohort, E[(1/m) 1{k in S}], from drawn cohorts (D, m).

    >>> pow_share([[0, 1], [0, 2]], K=3).tolist()
    [0.5, 0.25, 0.25]
    """
    drawn = np.asarray(cohorts, dtype=np.int64).ravel()
    if drawn.size == 0 or drawn.min() < 0 or drawn.max() >= K:
        raise ContractError(f"cohorts must hold ids 0..{K - 1} and not be empty; K = {K} is the number of all clients")
    return np.bincount(drawn, minlength=K) / drawn.size


def pow_skew(losses: ArrayLike, minima: ArrayLike, p: ArrayLike, share: ArrayLike) -> float:
    """Selection skew rho(S, w') (5); 1 if the paper's fraction is 0/0 (every client at its minimum).

    Args:
        losses: F_k(w').
        minima: F_k*.
        p: data fractions.
        share: expected share of each client in S (`pow_share`); E[q_k 1{k in S}] gives the rho_q of (76).

    >>> pow_skew([3.0, 1.0], [0.0, 0.0], p=[0.5, 0.5], share=[1.0, 0.0])
    1.5
    """
    excess = _excess(losses, minima)
    gap = float(_fractions("p", p, len(excess)) @ excess)
    return float(_fractions("share", share, len(excess)) @ excess) / gap if gap > 0 else 1.0


def pow_skew_extremes(
    shares: ArrayLike, losses: ArrayLike, optimum_losses: ArrayLike, minima: ArrayLike, p: ArrayLike
) -> Skews:
    """Extremes (6) over grids: rho_bar over all pairs (w, w'), rho_tilde over w at the optimum w*.

    w* is added to the grid of w', so that rho_bar <= rho_tilde. The result depends on the grid: over the whole space
    rho_bar is often 0, because a client chosen for its loss at w may be at its minimum at w' (the paper's
    "rho_bar >= 1" overlooks that).

    Args:
        shares: (G, K) expected shares of the cohort chosen at each w.
        losses: (G', K) F_k at each w'.
        optimum_losses, minima, p: (K) F_k(w*), F_k* and data fractions.

    >>> pow_skew_extremes([[1, 0], [0, 1]], [[3.0, 1.0]], [1.0, 1.0], [0.0, 0.0], p=[0.5, 0.5])
    Skews(rho_bar=0.5, rho_tilde=1.0)
    """
    excess = np.vstack([_excess(losses, minima, None), _excess(optimum_losses, minima)])
    gap = excess @ _fractions("p", p, excess.shape[1])
    chosen = _fractions("shares", shares, None, excess.shape[1]) @ excess.T
    rho = np.divide(chosen, gap, out=np.ones_like(chosen), where=gap > 0)
    return Skews(float(rho.min()), float(rho[:, -1].max()))


@dataclass(frozen=True)
class PowProblem:
    """The quantities in the bounds of Power-of-Choice (Assumptions 3.1-3.4)."""

    L: float  # smoothness of every F_k
    mu: float  # their strong convexity
    G: float  # bound on the norm of stochastic gradients
    sigma: float  # bound on their noise
    tau: int  # local steps per round
    m: int  # clients per round
    Gamma: float  # `pow_gap`
    rho_bar: float = 1.0  # `pow_skew_extremes`; 1 is size-weighted selection
    rho_tilde: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.mu <= self.L, "mu", self.mu, f"> 0 and <= L = {self.L}", "curvature is at most L")
        require(self.m >= 1 and self.tau >= 1, "(m, tau)", (self.m, self.tau), ">= 1")
        require(self.Gamma >= 0, "Gamma", self.Gamma, ">= 0", "see pow_gap")
        require(
            self.rho_bar > 0, "rho_bar", self.rho_bar, "> 0", "compute it on a grid closer to the models of the run"
        )
        bound = f">= rho_bar = {self.rho_bar}"
        require(self.rho_tilde >= self.rho_bar, "rho_tilde", self.rho_tilde, bound, "see pow_skew_extremes")


def pow_bound_decaying(T: int, on: PowProblem, distance: float) -> Bound:
    """Theorem 3.1 (7) after T local steps, eta_t = 1/(mu (t + gamma)), gamma = 4L/mu, distance = ||w_0 - w*||.

    From (65)-(67) with beta = 1/mu and the maximum in (66) replaced by the sum. The proof also needs eta_t0 <= 2 eta_t
    within a round, that is tau <= 1 + gamma, which the theorem does not state.

    >>> pow_bound_decaying(1000, PowProblem(L=2, mu=1, G=1, sigma=1, tau=2, m=4, Gamma=0.5), distance=1.0).bias
    0.0
    """
    L, mu, gamma = on.L, on.mu, 4 * on.L / on.mu
    noise = 4 * L * (32 * on.tau**2 * on.G**2 + on.sigma**2 / on.m) / (3 * mu**2 * on.rho_bar)
    vanishing = (noise + 8 * L**2 * on.Gamma / mu**2 + L * gamma * distance**2 / 2) / (T + gamma)
    return Bound(vanishing, 8 * L * on.Gamma / (3 * mu) * (on.rho_tilde / on.rho_bar - 1))


def pow_bound_fixed(T: int, on: PowProblem, excess: float, eta: float) -> Bound:
    """Theorem A.1 (8) after T local steps at learning rate eta, from excess = F(w_0) - F*.

    The vanishing part is negative if the start is better than the limit for this eta.

    >>> on = PowProblem(L=2, mu=1, G=1, sigma=1, tau=2, m=4, Gamma=0.5, rho_tilde=1.5)
    >>> round(pow_bound_fixed(10**6, on, excess=9.0, eta=1e-4).total, 3)
    0.373
    """
    L, mu, rho, B = on.L, on.mu, on.rho_bar, 1 + 3 * on.rho_bar / 8
    most = min(1 / (2 * mu * B), 1 / (4 * L))
    require(0 < eta <= most, "eta", eta, f"> 0 and <= min(1/(2 mu B), 1/(4L)) = {most:g}", "take a smaller step")
    C = 32 * on.tau**2 * on.G**2 + on.sigma**2 / on.m + 6 * rho * L * on.Gamma
    floor = 4 * (eta * C + 2 * on.Gamma * (on.rho_tilde - rho)) / (8 + 3 * rho)
    return Bound(L / mu * (1 - eta * mu * B) ** T * (excess - floor), L / mu * floor)


def pow_bound_weighted(T: int, on: PowProblem, distance: float) -> Bound:
    """(85): as (7), but averaged with weights q_k, with the skews rho_q of (76)-(78).

    From (82)-(84): B = 1/m + rho_q/2, beta = m/mu, eta_t = m/(mu (t + gamma)), gamma = 4m(1+m)L/mu. The factor 1/2
    needs eta <= 1/(4L(1+m)), which holds for these steps; the paper's 1/(2L(1+m)) does not suffice. Weights must sum to
    1 in every cohort; then (74) holds without its factor m, and (85) is loose: q_k = 1/m does not give (7).

    >>> on = PowProblem(L=2, mu=1, G=1, sigma=1, tau=2, m=1, Gamma=0.5, rho_tilde=2)
    >>> pow_bound_weighted(1000, on, distance=1.0).bias
    2.0
    """
    L, mu, m, gamma = on.L, on.mu, on.m, 4 * on.m * (1 + on.m) * on.L / on.mu
    noise = L * m**2 * (32 * m * (m - 1) * on.tau**2 * on.G**2 + on.sigma**2) / (mu**2 * on.rho_bar)
    vanishing = (noise + 2 * L**2 * m * (m + 2) * on.Gamma / mu**2 + L * gamma * distance**2 / 2) / (T + gamma)
    return Bound(vanishing, 2 * L * on.Gamma / mu * (on.rho_tilde / on.rho_bar - 1))
