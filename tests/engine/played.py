"""A script in simulated and in stacked runs: fedpick's trainer and aggregation, whose clients do what it says."""

from functools import cache
from typing import Any

import jax
import numpy as np

import fedpick as fp
from fedpick import learn
from fedpick.data import Dataset, Federated
from fedpick.learn.backend import LocalResults
from fedpick.simulate.together import play_together
from fedpick.worlds import World
from scripts import CLIENTS, NUMBERS, ROUNDS, SHARE, WAIT, Heard, Listening, Script

INPUTS = NUMBERS // 2 - 1
MODEL = learn.logistic((INPUTS,), 2)  # of 16 numbers
X = np.zeros((1, INPUTS), np.float32)
DATA = Dataset("scripted", X, np.zeros(1, np.int32), X, np.zeros(1, np.int32), 2)
BY_NUMBER: dict[int, Script] = {}  # by number: stacked runs train with the trainer of the first


class There:
    """Availability, volatility and latency of a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def init(self, clients: Any, rng: Any) -> dict[str, Any]:
        return {}

    def draw(self, memory: Any, clients: Any, round: int, rng: Any) -> Any:
        self.script.now = round
        return self.script.there[round - 1]

    def mask(self, memory: Any, drawn: Any, clients: Any, round: int, clock: float) -> Any:
        return drawn


class Heard_of(There):
    def draw(self, memory: Any, clients: Any, round: int, rng: Any) -> Any:
        return ~self.script.silent[round - 1]


class Takes(There):
    def draw(self, memory: Any, clients: Any, round: int, rng: Any) -> Any:
        return {"seconds": self.script.seconds[round - 1], "round": np.array(round)}

    def context(self, memory: Any, drawn: Any, idle: Any) -> Any:
        return self.script.context(int(drawn["round"]), idle)

    def seconds(self, memory: Any, drawn: Any, idle: Any, ids: Any, epochs: Any) -> Any:
        return drawn["seconds"][ids]


class Told(learn.Trainer):
    """fedpick's trainer, whose clients return what the script says."""

    script: Script

    def probe(self, model: Any, ids: Any, batch: Any, rng: Any) -> Any:
        return self.script.probes(self.script.now)[ids]

    def draw_into(self, drawn: Any, ids: Any, at: Any, epochs: Any, round: int, rng: Any) -> None:
        drawn.keys[:, 0], drawn.keys[:, 1] = ids[at], 1 + self.script.seed * ROUNDS + round - 1

    def train_all(self, params: Any, drawn: Any, owner: Any = None) -> LocalResults:
        rows = np.zeros((len(drawn.keys), NUMBERS), np.float32)
        loss, norm = np.zeros(len(rows)), np.zeros(len(rows))
        for row, (k, key) in enumerate(drawn.keys.tolist()):
            if key:
                script, t = BY_NUMBER[(key - 1) // ROUNDS], (key - 1) % ROUNDS
                rows[row] = np.nan if script.broken[t, k] else script.updates[t, k]
                loss[row], norm[row] = script.loss[t, k], np.sqrt(np.square(rows[row]).sum())
        return LocalResults(tree(rows), loss, norm)

    def updates(self, sent: Any, trained: Any, at: Any, chosen: int, slots: Any) -> fp.Updates:
        loss, norm = np.full(chosen, np.nan), np.full(chosen, np.nan)
        loss[at], norm[at] = trained.loss[slots], trained.norm[slots]
        return fp.Updates(loss, {"update_norm": norm}, (trained.delta, at, slots), np.isfinite(norm))

    def with_reports(self, sent: Any, updates: Any, ids: Any, at: Any, round: int) -> fp.Updates:
        for name, values in self.script.reports.items():
            updates.reports[name] = np.full((len(ids), *values.shape[2:]), np.nan)
            updates.reports[name][at] = values[round - 1, ids[at]]
        return updates


def tree(rows: np.ndarray) -> Any:
    """Rows of numbers as parameters of the model."""
    leaves, at = [], 0
    for leaf in jax.tree.leaves(start()):
        leaves.append(rows[:, at : at + leaf.size].reshape(len(rows), *leaf.shape))
        at += leaf.size
    return jax.tree.unflatten(jax.tree.structure(start()), leaves)


def flat(params: Any) -> np.ndarray:
    """The model's numbers in one row."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(params)])


def federated(script: Script) -> Federated:
    """Clients of the script's sizes, all with the same example."""
    starts = np.concatenate([[0], np.cumsum(script.clients.sizes)]).astype(np.int64)
    return Federated(DATA, np.zeros(starts[-1], np.int64), starts)


@cache
def start() -> Any:
    """The first model; made when it is asked for, because a process in which JAX has begun cannot be forked."""
    clients = Federated(DATA, np.zeros(CLIENTS, np.int64), np.arange(CLIENTS + 1))
    return learn.Trainer(clients, MODEL, batch=1, steps=1, form="vmap").init(0)["params"]


def run_of(script: Script, **settings: Any) -> tuple[fp.Run, Listening]:
    """A simulated run of the script."""
    BY_NUMBER[script.seed] = script
    trainer = Told(
        federated(script), MODEL, batch=1, steps=1, form="vmap", evaluate_every=1000, spread_every=0, **settings
    )
    trainer.script, trainer.reports = script, ("update_norm", *script.reports)
    policy = Listening(script.policy, script.seed)
    world = World(
        script.clients,
        availability=There(script),
        volatility=Heard_of(script),
        latency=Takes(script),
        deadline=script.deadline,
        epochs=(1,),
        probe_share=SHARE,
        wait=WAIT,
    )
    return fp.Run(policy, world, script.seed, trainer, pace=script.pace), policy


def play_simulated(script: Script, **settings: Any) -> tuple[list[Heard], Listening]:
    """The script in a simulated run."""
    run, policy = run_of(script, **settings)
    heard, before = [], flat(run.state.model["params"])
    for record in run.rounds(ROUNDS):
        after = flat(run.state.model["params"])
        heard.append(Heard.of(record, after - before, run.state.policy))
        before = after
    return heard, policy


def play_stacked(scripts: list[Script]) -> list[list[Heard]]:
    """Scripts in runs that train in one call."""
    runs = [run_of(script)[0] for script in scripts]
    heard: list[list[Heard]] = [[] for _ in runs]
    before = [flat(run.state.model["params"]) for run in runs]
    for records in play_together(runs, ROUNDS):
        for r, (run, record) in enumerate(zip(runs, records, strict=True)):
            after = flat(run.state.model["params"])
            heard[r].append(Heard.of(record, after - before[r], run.state.policy))
            before[r] = after
    return heard
