"""Regret, bounds, selection skew: what the five papers prove, as functions over arrays.

Names begin with the paper's, arguments keep its letters, each formula has its number. A bound holds under its paper's
assumptions only; the docstrings say where a proof needs more than the paper states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.errors import ContractError, require
from fedpick.solvers import bottleneck
from fedpick.types import Bools, Floats


def _array(what: str, values: ArrayLike, *shape: int | None) -> Floats:
    """`values` as finite floats of this shape (None: any length)."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        asked = ", ".join("any" if n is None else str(n) for n in shape)
        raise ContractError(f"{what} has shape {array.shape}, but must have ({asked}): arrays must be aligned")
    if array.size == 0 or not np.isfinite(array).all():
        raise ContractError(f"{what} is empty or holds NaN or infinity, but must be finite; drop such entries first")
    return array


# E3CS: volatile clients (papers/000) -------------------------------------------------------------------------------


class BestStatic(NamedTuple):
    """The comparator of E3CS's regret: shares q (K), probabilities p (T, K), and the CEP that they reach."""

    q: Floats
    p: Floats
    cep: float


def _residual(K: int, k: int, sigma: Floats) -> Floats:
    """k - K sigma_t: what is left to allocate once every client has its quota."""
    require(1 <= k <= K, "k", k, f"from 1 to K = {K}")
    worst = float(sigma.min() if sigma.min() < 0 else sigma.max())
    fix = "sigma is a client's probability floor, not the fraction of k/K"
    require(0 <= worst <= k / K * (1 + 1e-9), "sigma", worst, f"from 0 to k/K = {k / K:g}", fix)
    left = k - K * sigma
    return np.where(left > 1e-9 * k, left, 0.0)


def _quotas(sigma: ArrayLike, T: int | None = None) -> Floats:
    """One quota a round; where T is known, a single number stands for T of them."""
    quota = np.asarray(sigma, dtype=np.float64)
    return _array("sigma (a quota for each round)", quota if T is None or quota.ndim else np.full(T, quota), T)


def e3cs_best_static(x: ArrayLike, k: int, sigma: ArrayLike) -> BestStatic:
    """The best static allocation: one q for all rounds that maximises (26) under Fact 9, by a greedy.

    The paper writes q*_{i,t}, but from (41) on its proof keeps q fixed over t: against an oracle that moves from round
    to round the bound (28) fails.

    Args:
        x: (T, K) success flags, or rewards in [0, 1].
        k: clients a round.
        sigma: quota per client, one number or one a round.

    >>> e3cs_best_static([[1, 0, 1], [1, 0, 0]], k=2, sigma=0.0).p[0].tolist()
    [1.0, 0.0, 1.0]
    """
    reward = _array("x", x, None, None)
    require(bool(reward.min() >= 0 and reward.max() <= 1), "x", (reward.min(), reward.max()), "within 0..1", "scale it")
    quota, K = _quotas(sigma, len(reward)), reward.shape[1]
    left = _residual(K, k, quota)
    room = float(np.min((1 - quota[left > 0]) / left[left > 0], initial=1.0))  # the most that one client's q can be
    q = np.empty(K)
    q[np.argsort(-(left @ reward), kind="stable")] = np.clip(1 - room * np.arange(K), 0, room)
    p = left[:, None] * q + quota[:, None]
    return BestStatic(q, p, float(np.sum(p * reward)))


def e3cs_regret(x: ArrayLike, p: ArrayLike, k: int, sigma: ArrayLike) -> float:
    """Regret (27): CEP of the best static allocation less that of the policy, whose probabilities were p (T, K).

    >>> round(e3cs_regret([[1, 0], [1, 0]], p=[[0.5, 0.5], [0.8, 0.2]], k=1, sigma=0.0), 6)
    0.7
    """
    best = e3cs_best_static(x, k, sigma)
    return best.cep - float(np.sum(_array("p", p, *best.p.shape) * np.asarray(x, dtype=np.float64)))


def e3cs_bound(T: int, K: int, k: int, sigma: ArrayLike, eta: float) -> float:
    """Bound (28) on the regret after T rounds at learning rate eta; 0 where nothing is left to allocate.

    As printed it leaves K ln K / eta at sigma = k/K, though the regret is 0 there (the paper's remark). The proof needs
    steps <= 1 (Fact 8, false as stated): see `e3cs_safe_quota`.

    >>> round(e3cs_bound(2500, 100, 20, 0.1, eta=0.5))
    13421
    """
    total = float(_residual(K, k, _quotas(sigma, T)).sum())
    if total == 0 or K == 1:
        return 0.0
    require(eta > 0, "eta", eta, "> 0", "e3cs_optimal_rate gives the best")
    return eta * total + K / eta * math.log(K)


def e3cs_optimal_rate(K: int, k: int, sigma: ArrayLike) -> float:
    """The learning rate that minimises (28), for quotas sigma, one a round; 0 where any would do (sigma = k/K).

    >>> round(e3cs_optimal_rate(100, 20, np.zeros(2500)), 4)
    0.096
    """
    total = float(_residual(K, k, _quotas(sigma)).sum())
    return math.sqrt(K * math.log(K) / total) if total > 0 else 0.0


def e3cs_optimal_bound(K: int, k: int, sigma: ArrayLike) -> float:
    """Bound (29): (28) at the optimal rate, for quotas sigma, one a round.

    >>> round(e3cs_optimal_bound(100, 20, np.zeros(2500)))
    9597
    """
    return 2 * math.sqrt(K * math.log(K) * float(_residual(K, k, _quotas(sigma)).sum()))


def e3cs_safe_quota(K: int, k: int, eta: float) -> float:
    """The least sigma at which no step (37) exceeds 1: k eta / (K (1 + eta)).

    Fact 8 claims it for every sigma because xhat < 1; but xhat = x/p, and p may be anything down to sigma.

    >>> round(e3cs_safe_quota(100, 20, eta=0.5), 4)
    0.0667
    """
    require(eta > 0, "eta", eta, "> 0")
    return k * eta / (K * (1 + eta))


# Power-of-Choice: biased selection (papers/001) --------------------------------------------------------------------


class Skews(NamedTuple):
    """The extremes (6) of the selection skew."""

    rho_bar: float
    rho_tilde: float


class Bound(NamedTuple):
    """A bound on E[F(w_T)] - F*: a part that goes to 0 as T grows, and a bias that stays."""

    vanishing: float
    bias: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.vanishing + self.bias


def _fractions(what: str, values: ArrayLike, *shape: int | None) -> Floats:
    """Shares along the last axis: >= 0, sum 1."""
    array = _array(what, values, *shape)
    sums = array.sum(axis=-1).ravel()
    worst = float(sums[np.argmax(np.abs(sums - 1))])
    require(abs(worst - 1) < 1e-6, f"sum of {what}", worst, "1", "divide by the sum")
    require(bool(array.min() >= 0), f"least of {what}", float(array.min()), ">= 0")
    return array


def _excess(losses: ArrayLike, minima: ArrayLike, *shape: int | None) -> Floats:
    """F_k(w) - F_k*, the last axis being the client."""
    low = _array("minima", minima, None)
    excess = _array("losses", losses, *shape, len(low)) - low
    bound = -1e-9 * max(1.0, float(np.abs(low).max()))
    require(bool(excess.min() >= bound), "least loss - minimum", float(excess.min()), ">= 0", "the minima are too high")
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
    """Selection skew rho(S, w') (5); 1 where the paper's fraction is 0/0 (every client at its minimum).

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

    w* joins the grid of w', so that rho_bar <= rho_tilde. The grid decides: over all of space rho_bar is often 0, since
    a client chosen for its loss at w may be at its minimum at w' (the paper's "rho_bar >= 1" overlooks that).

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
    """What the bounds of Power-of-Choice are about (Assumptions 3.1-3.4)."""

    L: float  # smoothness of every F_k
    mu: float  # their strong convexity
    G: float  # bound on the norm of stochastic gradients
    sigma: float  # bound on their noise
    tau: int  # local steps a round
    m: int  # clients a round
    Gamma: float  # `pow_gap`
    rho_bar: float = 1.0  # `pow_skew_extremes`; 1 is size-weighted selection
    rho_tilde: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.mu <= self.L, "mu", self.mu, f"> 0 and <= L = {self.L}", "curvature is at most L")
        require(self.m >= 1 and self.tau >= 1, "(m, tau)", (self.m, self.tau), ">= 1")
        require(self.Gamma >= 0, "Gamma", self.Gamma, ">= 0", "see pow_gap")
        require(self.rho_bar > 0, "rho_bar", self.rho_bar, "> 0", "take its grid nearer to the models that are met")
        bound = f">= rho_bar = {self.rho_bar}"
        require(self.rho_tilde >= self.rho_bar, "rho_tilde", self.rho_tilde, bound, "see pow_skew_extremes")


def pow_bound_decaying(T: int, on: PowProblem, distance: float) -> Bound:
    """Theorem 3.1 (7) after T local steps, eta_t = 1/(mu (t + gamma)), gamma = 4L/mu, distance = ||w_0 - w*||.

    From (65)-(67) with beta = 1/mu, the maximum in (66) taken as the sum. The proof also needs eta_t0 <= 2 eta_t within
    a round, that is tau <= 1 + gamma, which the theorem does not state.

    >>> pow_bound_decaying(1000, PowProblem(L=2, mu=1, G=1, sigma=1, tau=2, m=4, Gamma=0.5), distance=1.0).bias
    0.0
    """
    L, mu, gamma = on.L, on.mu, 4 * on.L / on.mu
    noise = 4 * L * (32 * on.tau**2 * on.G**2 + on.sigma**2 / on.m) / (3 * mu**2 * on.rho_bar)
    vanishing = (noise + 8 * L**2 * on.Gamma / mu**2 + L * gamma * distance**2 / 2) / (T + gamma)
    return Bound(vanishing, 8 * L * on.Gamma / (3 * mu) * (on.rho_tilde / on.rho_bar - 1))


def pow_bound_fixed(T: int, on: PowProblem, excess: float, eta: float) -> Bound:
    """Theorem A.1 (8) after T local steps at learning rate eta, from excess = F(w_0) - F*.

    The vanishing part is negative where the start is better than the floor that eta allows.

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

    From (82)-(84): B = 1/m + rho_q/2, beta = m/mu, eta_t = m/(mu (t + gamma)), gamma = 4m(1+m)L/mu. The half needs
    eta <= 1/(4L(1+m)), which these steps keep; the paper's 1/(2L(1+m)) would not do. Weights must sum to 1 in every
    cohort; then (74) holds without its factor m, and (85) is loose: q_k = 1/m does not give (7) back.

    >>> on = PowProblem(L=2, mu=1, G=1, sigma=1, tau=2, m=1, Gamma=0.5, rho_tilde=2)
    >>> pow_bound_weighted(1000, on, distance=1.0).bias
    2.0
    """
    L, mu, m, gamma = on.L, on.mu, on.m, 4 * on.m * (1 + on.m) * on.L / on.mu
    noise = L * m**2 * (32 * m * (m - 1) * on.tau**2 * on.G**2 + on.sigma**2) / (mu**2 * on.rho_bar)
    vanishing = (noise + 2 * L**2 * m * (m + 2) * on.Gamma / mu**2 + L * gamma * distance**2 / 2) / (T + gamma)
    return Bound(vanishing, 2 * L * on.Gamma / mu * (on.rho_tilde / on.rho_bar - 1))


# BSFL: speed against generalisation (papers/002) -------------------------------------------------------------------


def bsfl_reward(speed: ArrayLike, g: ArrayLike, alpha: float, cohort: ArrayLike) -> float:
    """Reward (5) of a cohort: its least speed plus alpha times its mean g. Give mean speeds (see `bsfl_regret`).

    >>> bsfl_reward([0.9, 0.5, 0.7], [0.0, 0.5, 0.1], alpha=1.0, cohort=[0, 1])
    0.75
    """
    ids = np.asarray(cohort, dtype=np.int64)
    return float(np.asarray(speed)[ids].min() + alpha * np.asarray(g)[ids].mean())


def bsfl_regret(
    chosen: Sequence[ArrayLike], speeds: ArrayLike, g: ArrayLike, alpha: float, available: ArrayLike | None = None
) -> Floats:
    """Cumulative regret (7), one entry a round, against the genie (6) with the same history and cohort size.

    Both sides count the least *mean* speed: E[min] < min E, so that with drawn speeds the genie itself would regret.

    Args:
        chosen: T cohorts; an empty one costs nothing.
        speeds: (K) mean speeds.
        g: (T, K) g before each round, or (K) where it does not change.
        alpha: weight of g.
        available: (T, K) mask of those among whom the genie may choose.

    >>> bsfl_regret([[0, 1], [0, 2]], speeds=[0.9, 0.5, 0.7], g=[0.0, 0.0, 0.0], alpha=1.0).round(2).tolist()
    [0.2, 0.2]
    """
    mu, bonus = _array("speeds", speeds, None), np.asarray(g, dtype=np.float64)
    shape = (len(chosen), len(mu))
    bonus = _array("g", np.tile(bonus, (len(chosen), 1)) if bonus.ndim == 1 else bonus, *shape)
    masks = _array("available", np.ones(shape) if available is None else available, *shape) > 0
    lost = np.zeros(len(chosen))
    for t, cohort in enumerate(chosen):
        if m := np.size(cohort):
            genie = bottleneck(mu, alpha / m * bonus[t], m, mask=masks[t])
            lost[t] = bsfl_reward(mu, bonus[t], alpha, genie) - bsfl_reward(mu, bonus[t], alpha, cohort)
    return np.cumsum(lost)


def bsfl_bound(n: int, K: int, m: int, delta_max: float, delta_min: float) -> float:
    """Theorem 1 (15): bound on BSFL's regret after n rounds, for rewards in steps of delta_min.

    >>> round(bsfl_bound(1000, K=20, m=5, delta_max=2.5, delta_min=0.1))
    829145
    """
    require(n >= 1, "n", n, ">= 1 round")
    fix = "(15) says nothing of a continuous g"
    require(0 < delta_min <= delta_max, "delta_min", delta_min, f"> 0 and <= delta_max = {delta_max}", fix)
    return delta_max * K * (4 * (m + 1) * math.log(n) / delta_min**2 + 1 + math.pi**2 / 3)


def bsfl_delta_max(alpha: float, speeds: ArrayLike) -> float:
    """The paper's bound on Delta_max (14): 2 alpha + mu_max - mu_min, for any g in [-1, 1].

    >>> bsfl_delta_max(1.0, [0.25, 0.5, 0.75])
    2.5
    """
    return 2 * alpha + float(np.ptp(_array("speeds", speeds, None)))


# RBCS-F: exchange time with a fairness guarantee (papers/003) ------------------------------------------------------


@dataclass(frozen=True)
class Lemma1:
    """Exploration alpha_t of Lemma 1, a callable round -> alpha_t that makes (20) hold.

    For all N clients at once give delta/N: the lemma says "any arm" and leaves the union bound out.

    >>> round(Lemma1(R=1.0, L=1.0, S=1.0, delta=0.1, ridge=1.0)(10), 3)
    4.755
    """

    R: float  # the noise of the exchange time is R-sub-Gaussian
    L: float  # bound on the norm of the contexts
    S: float  # bound on the norm of theta*
    delta: float  # (20) fails with at most this probability
    ridge: float = 1.0  # lambda
    d: int = 3  # length of the contexts, 3 in the paper

    def __post_init__(self) -> None:
        require(0 < self.delta < 1, "delta", self.delta, "between 0 and 1", "it is the probability of failure")
        require(self.ridge > 0, "ridge", self.ridge, "> 0")

    def __call__(self, round: int) -> float:
        """alpha_t in this round."""
        spread = math.log((1 + round * self.L**2 / self.ridge) / self.delta)
        return self.R * math.sqrt(self.d * spread) + math.sqrt(self.ridge) * self.S


rbcsf_exploration = Lemma1


def rbcsf_regret(times: ArrayLike, oracle_times: ArrayLike) -> float:
    """Time-average regret (23), from the rounds' times and those of the optimal policy in the same world.

    For (24) give the cohorts' max of c'theta*, not drawn times: E[max] > max E, and the policy aims at the latter.

    >>> rbcsf_regret([3.0, 2.0], [2.0, 2.0])
    0.5
    """
    spent = _array("times", times, None)
    return float(np.mean(spent - _array("oracle_times", oracle_times, len(spent))))


def rbcsf_bound(
    T: int, N: int, V: float, beta: float, L: float, lambda_: float, R: float, S: float, delta: float, K: float = 1
) -> float:
    """Theorem 3 (24) as printed, with probability (1 - delta)^2.

    zeta_T holds a "constant value" K that the paper does not give (its appendix is not at hand). N clients learn apart
    and (20) doubles all of alpha_t, where zeta_T doubles R's part only: by the elliptical potential lemma
    K = 2 sqrt(N max(1, L^2/lambda)) covers both, and the default 1 can be too small while T is not far above N.

    >>> round(rbcsf_bound(500, 40, V=50, beta=0.15, L=8, lambda_=1, R=2, S=5, delta=0.1), 2)
    10.31
    """
    require(T >= 1, "T", T, ">= 1 round")
    require(V > 0, "V", V, "> 0", "without a weight on time there is no bound")
    zeta = max(K, 1) * max(Lemma1(2 * R, L, S, delta, lambda_)(T), 1)
    return N * (1 + beta**2) / (2 * V) + zeta * math.sqrt(6 * math.log(1 + T * L**2 / (3 * lambda_)) / T)


def rbcsf_rate_stability(queues: ArrayLike) -> Floats:
    """Z_T / T of each client, from the queues (T, N) after each round; Theorem 4: all go to 0.

    By (6) a client has been in at least beta - Z_T / T of the rounds, in every run.

    >>> rbcsf_rate_stability([[0.5, 0.5], [1.0, 0.0]]).tolist()
    [0.5, 0.0]
    """
    lengths = _array("queues", queues, None, None)
    rates: Floats = lengths[-1] / len(lengths)
    return rates


@dataclass(frozen=True, eq=False)
class Feasible:
    """Whether a guarantee can be kept (truthy if so), and if not, why."""

    holds: bool
    largest: float  # the largest guarantee that can be kept
    served: float  # E[min(m, available)], the places of a round
    clients: Bools  # those that cannot all be served; nobody if it holds
    reason: str  # empty if it holds

    def __bool__(self) -> bool:
        return self.holds


def rbcsf_feasible(guarantee: float, cohort_size: int, availability: ArrayLike) -> Feasible:
    """Whether (2) can hold at beta = guarantee, for clients that are there independently with these probabilities.

    Theorem 4 assumes it tacitly. Exact: every s clients need s beta <= E[min(m, how many of them are there)], and the s
    least available are the worst. s = 1 and s = K do not suffice: availability 1/3, 1/3, 1 with m = 1, beta = 1/3.

    >>> bool(rbcsf_feasible(0.15, 8, np.full(40, 0.8)))
    True
    >>> rbcsf_feasible(0.3, 1, [0.2, 0.9]).reason
    'the 1 least available need 0.3 places a round, but there are 0.2 for them; lower the guarantee to 0.2'
    """
    there = _array("availability", availability, None)
    require(bool(there.min() >= 0 and there.max() <= 1), "availability", (there.min(), there.max()), "within 0..1")
    require(cohort_size >= 1, "cohort_size", cohort_size, ">= 1 client")
    order, count = np.argsort(there, kind="stable"), np.arange(1, len(there) + 1)
    law = np.zeros(min(cohort_size, len(there)) + 1)  # of min(m, how many of the first s are there)
    law[0], places, served = 1.0, np.arange(len(law)), np.empty(len(there))
    for s, a in enumerate(there[order]):
        up = a * law[:-1]
        law[:-1] -= up
        law[1:] += up
        served[s] = law @ places
    largest = float(np.min(served / count))
    if guarantee <= largest * (1 + 1e-9):
        return Feasible(True, largest, float(served[-1]), np.zeros(len(there), dtype=np.bool_), "")
    worst = int(np.argmin(served - guarantee * count))
    reason = (
        f"the {worst + 1} least available need {guarantee * count[worst]:g} places a round, "
        f"but there are {served[worst]:g} for them; lower the guarantee to {largest:g}"
    )
    return Feasible(False, largest, float(served[-1]), np.isin(count - 1, order[: worst + 1]), reason)


# FedGS: graph-based sampling (papers/004) --------------------------------------------------------------------------


def fedgs_update_variance(updates_by_draw: ArrayLike) -> float:
    """Variance (4) = (5) of the model update, E||g - E g||^2, over equally likely draws of the cohort (axis 0).

    >>> fedgs_update_variance([[1.0, 0.0], [-1.0, 0.0]])
    1.0
    """
    updates = np.asarray(updates_by_draw, dtype=np.float64)
    updates = _array("updates_by_draw", updates.reshape(len(updates), -1), None, None)
    return float(np.var(updates, axis=0).sum())


def fedgs_bias(sizes: ArrayLike, m: int) -> Floats:
    """Bias factor gamma_k (22) of the weights n_k / sum_S n when m clients are drawn uniformly.

    (20) takes the expectation inside the fraction: by Jensen the true factor is at least this, and the paper's expected
    weights n_k gamma_k / n sum to less than 1, unless the sizes are equal or m = N.

    >>> fedgs_bias([1.0, 1.0, 4.0], m=2).round(3).tolist()
    [1.143, 1.143, 0.8]
    """
    n = _array("sizes", sizes, None)
    N = len(n)
    require(bool(n.min() > 0), "least of sizes", float(n.min()), "> 0", "leave clients without data out")
    require(1 <= m <= N, "m", m, f"from 1 to N = {N}")
    gamma: Floats = 1 / (1 + (N - m) / (m * max(N - 1, 1)) * (n / n.mean() - 1))
    return gamma
