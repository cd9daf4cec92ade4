"""Vectors that clients reported (updates or sketches of them), kept for policies that compare clients by them."""

from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.protocol import ReportSpec
from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome

__all__ = ["VectorState", "fresh_vectors", "known_vectors", "learn_vectors", "vector_report"]

LARGEST_ENTRY = 1e12  # vectors with larger entries are ignored; their squares would overflow


@dataclass
class VectorState:
    """How often each client was chosen, and the last vector that it reported (NaN: none yet)."""

    counts: Ints
    vectors: Floats


def vector_report(width: int | None) -> ReportSpec:
    """The report to request: a sketch of this width, or for None the update itself."""
    return ReportSpec("update") if width is None else ReportSpec(f"sketch_{width}", width)


def fresh_vectors(clients: int, width: int | None) -> Floats:
    """No vector is known: NaN, and no columns if the width is not known yet."""
    return np.full((clients, width or 0), np.nan)


def known_vectors(vectors: Floats) -> Bools:
    """Mask of clients whose vector is known."""
    if vectors.shape[1] == 0:
        return np.zeros(len(vectors), dtype=np.bool_)
    found: Bools = np.isfinite(vectors.sum(axis=1))  # entries are bounded
    return found


def learn_vectors(vectors: Floats, choice: Choice, outcome: Outcome, name: str) -> Floats:
    """Store the usable vectors of this round; writes into the array."""
    if name not in outcome.reports or len(outcome) == 0:
        return vectors
    reported = np.asarray(outcome.reports[name], dtype=np.float64).reshape(len(outcome), -1)
    with np.errstate(invalid="ignore"):
        usable = outcome.succeeded & (np.abs(reported) <= LARGEST_ENTRY).all(axis=1)
    if not usable.any():
        return vectors
    if vectors.shape[1] == 0:
        vectors = np.full((len(vectors), reported.shape[1]), np.nan)
    if reported.shape[1] != vectors.shape[1]:
        raise ContractError(
            f"the report {name!r} has {reported.shape[1]} columns, but earlier ones had {vectors.shape[1]}"
        )
    vectors[choice.ids[usable]] = reported[usable]
    return vectors
