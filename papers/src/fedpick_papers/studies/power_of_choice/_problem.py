"""The quadratic problem of Power-of-Choice, appendix F: F_k(w) = h_k/2 |w - c_k|^2 with c_k = e_k/h_k."""

from dataclasses import dataclass

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.types import Floats, Ints

__all__ = ["Quadratic", "shares"]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The problem (86) of one seed."""

    h: Floats  # (K) curvatures
    centres: Floats  # (K, v) each client's own optimum e_k / h_k
    p: Floats  # (K) data fractions
    start: Floats  # (v) w_0

    @classmethod
    def draw(cls, K: int, v: int, seed: int, kind: str = "authors") -> "Quadratic":
        """h ~ U(1, 20), sizes by the power law P(x) = 3 x^2; e_k is "arbitrary" in the paper.

        Args:
            K: number of clients.
            v: dimension.
            seed: of the problem.
            kind: "authors": e_k ~ U(0, 100), w_0 = 100 N(0, I), as in their supplement; "centred": e_k = h_k N(1, I),
                w_0 = 0 (a zero-mean e_k would put the optimum where the training starts).
        """
        rng = rngs.stream(seed, 0, f"quadratic {K}")
        h, size = rng.uniform(1.0, 20.0, K), rng.random(K) ** (1 / 3)
        if kind == "centred":
            return cls(h, 1.0 + rng.standard_normal((K, v)), size / size.sum(), np.zeros(v))
        e, start = rng.uniform(0.0, 100.0, (K, v)), 100.0 * rng.standard_normal(v)
        return cls(h, e / h[:, None], size / size.sum(), start)

    @property
    def optimum(self) -> Floats:
        """w* of the global objective."""
        weight = self.p * self.h
        best: Floats = weight @ self.centres / weight.sum()
        return best

    def losses(self, w: Floats, ids: Ints | slice = slice(None)) -> Floats:
        """F_k(w); every client's own minimum is 0."""
        apart = self.centres[ids] - w
        loss: Floats = 0.5 * self.h[ids] * np.einsum("kv,kv->k", apart, apart)
        return loss

    def gap(self, w: Floats) -> float:
        """F(w) - F*."""
        apart = w - self.optimum
        return float(0.5 * (self.p @ self.h) * (apart @ apart))


def shares(problem: Quadratic, points: Floats, d: int, m: int, draws: int, rng: np.random.Generator) -> Floats:
    """E[(1/m) 1{k in S}] of pow-d at each of these models, over simulated draws of the candidates."""
    K = len(problem.p)
    # Candidates without replacement by size are the d first of an exponential race.
    race = rng.standard_exponential((draws, K)) / problem.p
    candidate = race <= np.partition(race, d - 1, axis=1)[:, d - 1 : d]
    out = np.empty((len(points), K))
    for i, w in enumerate(points):
        by_loss = np.argsort(-problem.losses(w))
        ranked = candidate[:, by_loss]
        out[i, by_loss] = (ranked & (ranked.cumsum(axis=1) <= m)).mean(axis=0) / m
    return out
