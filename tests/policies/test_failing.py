"""A client that always fails: no policy asks it more often than uniform choice does, except where that is its rule."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedpick as fp
from zoo import zoo

CLIENTS, M, ROUNDS, SEEDS = 25, 10, 100, 4
UNIFORM = M / CLIENTS
NOISE = 4 * math.sqrt(UNIFORM * (1 - UNIFORM) / (SEEDS * ROUNDS))  # four standard errors of uniform's share
EXCUSED = {  # why others ask more often, by the policy's class
    "FedCS": "it is told which clients succeed",
    "HiCS": "a client's share depends on the size of its cluster, and small ones have more",
    "FLIPS": "the same, and more are asked of the clusters of those who failed",
    "OverSelect": "it chooses more than M clients",
}


def share_asked(policy, seed, losses, seconds=np.nan, ends=fp.Status.FAILED):
    """In how many of the rounds client 0 is asked, which fails in all; the others differ in speed, hardly in loss."""
    rng = np.random.default_rng(seed)
    mix = rng.dirichlet(np.ones(4), CLIENTS)
    clients = fp.Clients(np.full(CLIENTS, 100.0), 100.0 * mix, mix)
    pace, vectors = rng.uniform(1.0, 5.0, CLIENTS), rng.normal(size=(CLIENTS, 64))
    collect, width = fp.traits(policy).collect(clients), fp.traits(policy).context or 3
    state, asked = policy.init(clients), 0
    for t in range(1, ROUNDS + 1):
        view = fp.View(
            t,
            np.ones(CLIENTS, dtype=bool),
            clients,
            context=np.tile(pace[:, None], width),
            probe=lambda ids, batch=None: 1.0 + losses * rng.random(len(ids)),
            norms=lambda ids: 1.0 + losses * rng.random(len(ids)),
        )
        choice = policy.select(state, view, fp.rng.stream(seed, t, "policy"))
        ids = choice.ids
        fails = ids == 0
        told = {
            name: 1.0 + losses * rng.random(len(ids)) if length == 0 else vectors[ids][:, : length or 6]
            for name, length in collect.items()
        }
        reports = {name: np.where(fails if x.ndim == 1 else fails[:, None], np.nan, x) for name, x in told.items()}
        outcome = fp.Outcome(
            np.where(fails, ends, fp.Status.DONE),
            np.where(fails, seconds, pace[ids] * rng.uniform(0.9, 1.1, len(ids))),
            np.where(fails, np.nan, 1.0 + losses * rng.random(len(ids))),
            reports,
        )
        state = policy.observe(state, view, choice, outcome)
        asked += bool(fails.any())
    return asked / ROUNDS


@pytest.mark.parametrize(
    ("losses", "seconds", "ends"),
    [(0.0, np.nan, fp.Status.FAILED), (0.01, 0.5, fp.Status.FAILED), (0.01, 9.0, fp.Status.LATE)],
    ids=["equal-silent", "like-at-once", "crashed-silently"],  # of one that crashed, the server knows the deadline
)
@pytest.mark.parametrize("name", [name for name, policy in zoo(M).items() if type(policy).__name__ not in EXCUSED])
def test_no_policy_asks_it_more_often_than_uniform(name, losses, seconds, ends):
    policy = zoo(M)[name]
    if getattr(policy, "deadline", None) is not None:
        policy = replace(policy, deadline=9.0)  # later than the slowest
    asked = np.mean([share_asked(policy, seed, losses, seconds, ends) for seed in range(SEEDS)])
    assert asked <= UNIFORM + NOISE
