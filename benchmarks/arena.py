"""Where lies are tried: 100 clients, 10 places a round, some of whom want more of them than is theirs.

A round costs nothing but the policy's own time: losses fall as the rounds go by, and faster for clients that take part;
durations are a client's own mean times noise. What a liar reports instead is in `LIES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import fedpick as fp
from fedpick.core.bounds import limited
from fedpick.engine.weights import bases, merged, weigh
from fedpick.policies import TABLE
from fedpick.policies.text import example
from fedpick.server.settings import Limits

CLIENTS, COHORT = 100, 10
AT = (30, 50, 100, 500)  # rounds after which it is looked what liars have
ROUNDS, SIZE = AT[-1], 600.0  # examples of an honest client
AWAY, FAILING = 0.1, 0.05  # of honest clients, each round


@dataclass(frozen=True)
class Lie:
    """What a liar says: each is a number or None for the truth."""

    what: str
    loss: float | None = None
    duration: float | None = None
    gain: float | None = None
    context: float | None = None
    odd: bool = False  # features and embeddings unlike anybody's
    size: float = SIZE  # that it declares
    every: int = 1  # it is there in every so many rounds
    dead: bool = False  # never answers, but is always there
    failed: bool = False  # what it says is unusable, as a server would judge


LIES = {
    "honest": Lie("the truth: as many places as anybody"),
    "loud": Lie("a loss of 1,000,000", loss=1e6),
    "nan": Lie("NaN for everything", loss=np.nan, duration=np.nan, gain=np.nan, context=np.nan),
    "1e300": Lie("1e300 for everything", loss=1e300, duration=1e300, gain=1e300, context=1e300),
    "fast": Lie("a millisecond instead of seconds", duration=1e-3, context=1e-3),
    "useful": Lie("the largest gain there is", gain=1.0),
    "odd": Lie("features and embeddings unlike anybody's", odd=True),
    "big": Lie("1,000,000,000,000,000 examples", size=1e15),
    "pulse": Lie("a loss of 1,000,000, and are there in every third round only", loss=1e6, every=3),
    "dead": Lie("never answers", dead=True),
}


class Captured(NamedTuple):
    """What liars have after some rounds, of 1."""

    places: float
    weight: float  # in the model's changes: the mean over the rounds in which somebody answered


def sizes(clients: fp.Clients) -> np.ndarray:
    """What the oracles and fixed probabilities are told: nothing that a liar said."""
    return np.full(len(clients), 0.5)


FORMS: dict[str, Callable[[int], Any]] = {  # settings other than the defaults
    "SizeWeighted": lambda m: fp.SizeWeighted(m),
    "SizeWeighted(replace=False)": lambda m: fp.SizeWeighted(m, replace=False),
    "pow-d(50)": lambda m: fp.PowerOfChoice(m, 50),
    "cpow-d(50)": lambda m: fp.PowerOfChoice(m, 50, variant="cpow-d"),
    "rpow-d(50)": lambda m: fp.PowerOfChoice(m, 50, variant="rpow-d"),
    "rpow-d(100)": lambda m: fp.PowerOfChoice(m, 100, variant="rpow-d"),
    "ActiveFL(clip=0.9)": lambda m: fp.ActiveFL(m, clip=0.9),
    "E3CS(quota=0.5)": lambda m: fp.E3CS(m, quota=0.5),
    "E3CS(quota=0.5, reward='gain')": lambda m: fp.E3CS(m, quota=0.5, reward="gain"),
    "CSUCB(variant='cs-ucb-q')": lambda m: fp.CSUCB(m, variant="cs-ucb-q"),
    "RBCSF(deadline=20)": lambda m: fp.RBCSF(m, deadline=20.0),
    "FedGS": lambda m: fp.FedGS(m, graph="features", restarts=4),
    "FedGS(graph='embedding')": lambda m: fp.FedGS(m, graph="embedding", rebuild_every=20, restarts=4),
    "FedGS(alpha=0)": lambda m: fp.FedGS(m, alpha=0.0),
    "Clustered(by='updates')": lambda m: fp.Clustered(m, by="updates"),
    "MinSeparation(Uniform, 5)": lambda m: fp.MinSeparation(fp.Uniform(m), 5),
}
POLICIES = {
    name: partial(example, listed, truth=sizes)
    for name, listed in TABLE.items()
    if listed.about.kind in ("baseline", "policy") and name not in ("SizeWeighted", "PowerOfChoice")  # in FORMS alone
} | FORMS


def capture(
    policy: Any, lie: Lie, liars: int, seed: int = 0, at: Sequence[int] = AT, limits: Limits | None = None
) -> dict[int, Captured]:
    """What the liars have after the rounds `at`; `limits` are those of a server, None: sizes are believed."""
    draw = fp.rng.stream(seed, 0, "arena")
    lying = np.zeros(CLIENTS, dtype=bool)
    lying[draw.permutation(CLIENTS)[:liars]] = True
    features = draw.dirichlet(np.full(10, 0.5), CLIENTS)
    if lie.odd:
        features[lying] = -1e3 * np.eye(10)[draw.integers(0, 10, liars)]
    declared = np.where(lying, lie.size, SIZE)
    if limits is not None and limits.size_factor is not None:
        declared = limited(declared, limits.size_factor, limits.size_quantile)
    clients = fp.Clients(declared, np.abs(SIZE * features), features)  # labels as the features say
    hard, slow = draw.lognormal(0.0, 0.3, CLIENTS), draw.lognormal(1.5, 0.5, CLIENTS)
    trained = np.zeros(CLIENTS)
    state, taken, places, weights, found = policy.init(clients), 0, 0, [0.0], {}
    about = fp.traits(policy)
    more = {name: width for name, width in about.collect(clients).items() if name not in ("gain", "embedding")}

    def truth(value: np.ndarray, said: float | None, mask: np.ndarray) -> np.ndarray:
        return value if said is None else np.where(mask, said, value)

    for round in range(1, max(at) + 1):
        rng = fp.rng.stream(seed, round, "arena")
        there = (rng.random(CLIENTS) > AWAY) | (lying & (lie.dead or lie.every > 1))
        there &= ~lying | (round % lie.every == 0)
        losses = hard * (0.2 + 2.0 * np.exp(-round / 100.0 - trained / 20.0)) * rng.lognormal(0.0, 0.1, CLIENTS)
        context = np.column_stack([slow, np.ones(CLIENTS), np.full(CLIENTS, 0.5)])
        told = truth(losses, lie.loss, lying)
        view = fp.View(
            round,
            there,
            clients,
            context=truth(context, lie.context, lying[:, None]),
            probe=lambda ids, batch=None, told=told: told[ids],
            norms=lambda ids, told=told: told[ids],  # who has much to learn moves far
        )
        choice = merged(policy.select(state, view, fp.rng.stream(seed, round, "policy")))
        ids, times = choice.ids, choice.times
        bad = lying[ids]
        places, taken = places + int(times.sum()), taken + int(times[bad].sum())
        fails = np.where(bad & (lie is not LIES["honest"]), lie.dead, rng.random(len(ids)) < FAILING)
        status = np.where(fails, fp.Status.FAILED, fp.Status.DONE)
        seconds = slow[ids] * rng.gamma(8.0, 1 / 8.0, len(ids)) + 1.0
        embedding = features[ids] + 0.05 * rng.normal(size=(len(ids), 10))
        reports = {"gain": truth(rng.random(len(ids)), lie.gain, bad), "embedding": embedding}
        for name, width in more.items():  # of policies that ask for others: as their losses, or vectors of their own
            said = truth(losses[ids], lie.loss, bad)
            if name in about.valued:  # by the server, of the update itself: what a client says is no matter
                reports[name] = 0.01 * losses[ids] + 0.01 * rng.normal(size=len(ids))
            elif name == "accuracy":
                reports[name] = truth(np.exp(-losses[ids]), 0.0 if lie.loss == 1e6 else lie.loss, bad)
            elif width == 0 or name == "squared_loss":
                reports[name] = said
            else:
                reports[name] = features[ids][:, np.arange(width or 10) % 10] * said[:, None]
        outcome = fp.Outcome(
            status,
            np.where(fails, np.nan, truth(seconds, lie.duration, bad)),
            np.where(fails, np.nan, truth(losses[ids], lie.loss, bad)),
            reports,
        )
        trained[ids[~fails]] += 1
        if not fails.all():
            each = weigh(bases(choice, clients.sizes)[~fails], np.full(int((~fails).sum()), choice.normalise))
            weights.append(float(each[bad[~fails]].sum()))
        state = policy.observe(state, view, choice, outcome)
        if round in at:
            found[round] = Captured(taken / max(places, 1), sum(weights) / max(len(weights) - 1, 1))
    return found
