"""Every policy in every form that matters, for the tests that hold for all of them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies import TABLE
from fedpick.policies.text import example


def sizes(clients: fp.Clients) -> np.ndarray:
    return clients.sizes / clients.sizes.max()


def ones(clients: fp.Clients) -> np.ndarray:
    return np.full((len(clients), 3), 0.5)


def spread(clients: fp.Clients) -> np.ndarray:
    x = np.arange(len(clients), dtype=float)
    return np.abs(x[:, None] - x[None, :])


def some_slow(cases: Iterable[Any], quick: int) -> list[Any]:
    """Cases of a test: every so manyth is quick, the others are slow."""
    return [
        case if i % quick == 0 else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
        for i, case in enumerate(cases)
    ]


@cache
def zoo(m: int) -> dict[str, Any]:
    """Policies by a readable name, with cohorts of m; made once, for they cannot be changed.

    Every policy of the library is in it with its defaults and the forms of its page; below are further settings.
    """
    policies = [example(listed, m, sizes, **form) for listed in TABLE.values() for form in ({}, *listed.about.forms)]
    policies += [
        fp.FixedProbabilities(m, p=sizes, sampler="pivotal"),
        fp.FixedProbabilities(m, p=sizes, sampler="systematic"),
        fp.FedCS(deadline=1.5, theta=ones),
        fp.FedCS(m, deadline=0.9, times=sizes),
        fp.PowerOfChoice(m, m + 7, variant="cpow-d", clip=0.9),
        fp.PowerOfChoice(m, m + 7, variant="rpow-d"),
        fp.PowerOfChoice(m, variant="rpow-d", schedule=fp.schedules.Halving(40, every=3), clip=0.9),
        fp.ActiveFL(m, clip=0.9),
        fp.E3CS(m, quota=0.5, sampler="systematic"),
        fp.E3CS(m, quota="inc", horizon=20, sampler="multinomial", max_step=1.0),
        fp.E3CS(m, quota="cosine", horizon=20, learning_rate="optimal"),
        fp.E3CS(m, quota=1.0),
        fp.CSUCB(m, variant="cs-ucb-q", tau_min=0.1, tau_max=2.0),
        fp.BSFL(m, quality=0.5, beta=2.0, tau_min=0.1, tau_max=2.0),
        fp.BSFL(m, solver="alsa", steps=40),
        fp.BSFL(m, solver="alsa-drop", steps=40),
        fp.BSFL(m, solver="sa", steps=40),
        fp.BSFL(m, g=lambda counts, round, clients: -counts / round),
        fp.RBCSF(m, absent="freeze", queue_cap=3.0, deadline=2.0, context=4),
        fp.RBCSF(m, theta=ones, penalty=0.0),
        fp.FedGS(m, graph="embedding", rebuild_every=2),
        fp.FedGS(m, graph="update", neighbours=3),
        fp.FedGS(m, graph=spread, scale="paper"),
        fp.FedGS(m, alpha=0.0),
        fp.Oort(m, explore=0.3, step=1.0, window=3, fairness=0.5, at_most=4, speed=sizes),
        fp.Clustered(m, by="updates", width=5),
        fp.Clustered(m, by="updates", width=None),
        fp.DivFL(m, width=5),
        fp.DivFL(m, width=None, candidates=4),
        fp.TiFL(m, tiers=3, interval=2, credits=(5, 2, 1), times=sizes),
        fp.F3AST(m, beta=0.3, most=None),
        fp.REFL(m, window=6),
        fp.OptimalSampling(m, steps=4),
        fp.OptimalSampling(m, pool=m + 5),
        fp.TiFL(m, odds="fast1"),
        fp.HiCS(m, clusters=m + 4, horizon=9, gamma=1.0, temperature=0.5),
        fp.FedCor(m, warmup=2, interval=2, samples=3, dimension=2),
        fp.GreedyFed(m, memory=0.5),
        fp.UCBCS(m, gamma=1.0),
        fp.DELTA(m, beta=1.0, width=5),
        fp.FLIPS(m, clusters=3, stragglers=False),
        fp.FedCBS(m, exploration=0.0, draws=4),
        fp.FedLECC(m, worst=1, clusters=2),
        fp.MinSeparation(fp.Uniform(m), 3),
        fp.MinSeparation(fp.OverSelect(fp.Oort(m), 1.3), 2, at_most=4),
        fp.CriticalFL(fp.E3CS(m)),
        fp.OverSelect(fp.MinSeparation(fp.E3CS(m), 2), 1.5),
        fp.OverSelect(fp.E3CS(m), 1.3),
        fp.OverSelect(fp.BSFL(m), 2.0),
        fp.OverSelect(fp.FedGS(m), 1.5),
        fp.Guard(fp.E3CS(m), window=3),
        fp.Guard(fp.PowerOfChoice(m, m + 7), cap=1.2, window=0, probation=5.0),
        fp.Guard(fp.OverSelect(fp.BSFL(m), 1.5), window=2),
        fp.OverSelect(fp.Guard(fp.ActiveFL(m), window=2), 1.5),
    ]
    return {f"{i:02d}-{type(policy).__name__}": policy for i, policy in enumerate(policies)}


def outcome(choice: fp.Choice, rng: np.random.Generator, **changes: Any) -> fp.Outcome:
    """A plausible end of a round."""
    count = len(choice)
    fields: dict[str, Any] = {
        "status": rng.choice([0, 1, 2, 3], count, p=[0.7, 0.1, 0.1, 0.1]),
        "duration": rng.uniform(0.5, 2.0, count),
        "loss": rng.gamma(2.0, size=count),
        "reports": {"embedding": rng.normal(size=(count, 4)), "update": rng.normal(size=(count, 6))},
    }
    return fp.Outcome(**{**fields, **changes})


def view(clients: fp.Clients, round: int = 1, available: np.ndarray | None = None, **changes: Any) -> fp.View:
    """A view with everyone there, losses that grow with the index, and a context of three columns."""
    count = len(clients)
    fields: dict[str, Any] = {
        "available": np.ones(count, dtype=bool) if available is None else np.asarray(available, dtype=bool),
        "context": np.full((count, 3), 1.0),
        "probe": lambda ids, batch=None: np.asarray(ids, dtype=float),
        "norms": lambda ids: np.asarray(ids, dtype=float),
    }
    return fp.View(round, clients=clients, **{**fields, **changes})
