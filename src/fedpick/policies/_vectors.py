"""Vectors that clients reported (updates or sketches of them), kept for policies that compare clients by them."""

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.protocol import ReportSpec
from fedpick.core.types import Bools, Choice, Floats, Outcome

__all__ = ["fresh_vectors", "known_vectors", "learn_vectors", "vector_report"]

LARGEST = 1e12  # entries beyond are no updates, and their squares would overflow


def vector_report(width: int | None) -> ReportSpec:
    """The report to ask for: a sketch of this width, or for None the update itself."""
    return ReportSpec("update") if width is None else ReportSpec(f"sketch_{width}", width)


def fresh_vectors(clients: int, width: int | None) -> Floats:
    """Nobody's vector is known: NaN; without columns where their number is not known either."""
    return np.full((clients, width or 0), np.nan)


def known_vectors(vectors: Floats) -> Bools:
    """Mask of clients whose vector is known."""
    if vectors.shape[1] == 0:
        return np.zeros(len(vectors), dtype=np.bool_)
    found: Bools = np.isfinite(vectors.sum(axis=1))  # entries are bounded
    return found


def learn_vectors(vectors: Floats, choice: Choice, outcome: Outcome, name: str) -> Floats:
    """The vectors with those in place that came; writes into the array."""
    if name not in outcome.reports or len(outcome) == 0:
        return vectors
    told = np.asarray(outcome.reports[name], dtype=np.float64).reshape(len(outcome), -1)
    with np.errstate(invalid="ignore"):
        usable = outcome.succeeded & (np.abs(told) <= LARGEST).all(axis=1)
    if not usable.any():
        return vectors
    if vectors.shape[1] == 0:
        vectors = np.full((len(vectors), told.shape[1]), np.nan)
    if told.shape[1] != vectors.shape[1]:
        raise ContractError(f"the report {name!r} has {told.shape[1]} columns, but earlier ones had {vectors.shape[1]}")
    vectors[choice.ids[usable]] = told[usable]
    return vectors
