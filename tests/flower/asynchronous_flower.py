"""A script of asynchronous training as Flower plays it: on a grid and a clock that do what the script says."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from fake_flower import FakeGrid, content
from flwr.app import Array, ArrayRecord, Error, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity

import fedpick as fp
from asynchronous import Script
from fedpick.adapters import arrivals, quorum
from fedpick.adapters.flower import asynchronous
from fedpick.flower import Selected
from fedpick.server import stream
from scripts import server_clock

QUARTER = 0.25  # all times of a script are multiples of it


class Scripted(FakeGrid):
    """Nodes 1, 2, ... are the script's clients 0, 1, ...; some answer twice, and some answers are to no message."""

    def __init__(self, clock: Any, script: Script) -> None:
        super().__init__(clock, {})
        self.script, self.nth = script, [0] * script.clients
        self.again: list[tuple[float, Message]] = []
        self.tasks: list[tuple[int, int]] = []  # client and nth, by message
        self.pulled: set[str] = set()

    def get_node_ids(self) -> list[int]:
        return [k + 1 for k in range(self.script.clients) if self.script.there(k, self.clock.now)]

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=node) for node in self.get_node_ids()]

    def push_messages(self, messages: Any) -> Any:
        sent = list(messages)
        self.nodes = {message.metadata.dst_node_id: self.behave for message in sent}
        return super().push_messages(sent)

    def behave(self, message: Message) -> tuple[float, Any]:
        script, k = self.script, message.metadata.dst_node_id - 1
        nth = self.nth[k]
        self.nth[k] += 1
        self.tasks.append((k, nth))
        seconds = script.duration(k, nth)
        sent = message.content.array_records["arrays"]["w"].numpy()
        update, loss = script.update(k, nth, sent), script.loss(k, nth)
        if update is None:
            back: Any = Error(2, "raised")
        else:
            trained = sent + update if np.shape(update) == sent.shape else np.asarray(update)
            size = 1.0 if script.sizes is None else script.sizes[k]
            told = {} if loss is None else {"train_loss": loss}
            back = content(ArrayRecord({"w": Array(trained)}), num_examples=size, **told)
        again = script.repeat(k, nth)
        if again is not None and seconds <= script.timeout:
            self.again.append((self.clock.now + seconds + again, Message(back, reply_to=message)))
        return seconds, back

    def pull_messages(self, message_ids: Any) -> Any:
        """The replies that are there, and others that were not asked for, in no order."""
        found = list(super().pull_messages(message_ids))
        now = self.clock.now
        ready = [reply for due, reply in self.again if due <= now]
        self.again = [(due, reply) for due, reply in self.again if due > now]
        self.pulled |= {reply.metadata.reply_to_message_id for reply in found}
        found += [reply for reply in ready if reply.metadata.reply_to_message_id in self.pulled]
        return found[::-1]

    def sleep(self, seconds: float) -> None:
        """Until the next quarter."""
        self.clock.now = (math.floor(self.clock.now / QUARTER) + 1) * QUARTER


@dataclass
class Chooses:
    """The script's choices, with its weights; clients are numbered as the script does."""

    script: Script
    cohort_size: int
    strategy: Any = None
    told: list[int] = field(default_factory=list)

    def init(self, clients: fp.Clients) -> Any:
        return fp.Uniform(1).init(clients)

    def select(self, state: Any, view: fp.View, rng: Any) -> fp.Choice:
        numbers = [int(name.removeprefix("node:")) - 1 for name in self.strategy.roster.names]
        index = {k: at for at, k in enumerate(numbers)}
        idle = sorted(numbers[at] for at in np.flatnonzero(view.available))
        chosen = self.script.choose(view.version, view.wanted, idle)
        weights = None if self.script.weigh is None else self.script.weigh(view.version, chosen)
        ids = np.array([index[k] for k in chosen], dtype=np.int64)
        return fp.Choice(ids, weights=weights, normalise=self.script.normalise or weights is None)

    def observe(self, state: Any, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Any:
        assert len(set(choice.ids.tolist())) == len(choice)
        np.add.at(state.counts, choice.ids, 1)
        return state


@contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    """The grid of this script, and the server's clock."""
    with server_clock(quorum, asynchronous, stream) as clock, pytest.MonkeyPatch.context() as patch:
        grid = Scripted(clock, script)
        patch.setattr(arrivals, "monotonic", clock.monotonic)
        for module in (arrivals, quorum, asynchronous):
            patch.setattr(module, "sleep", grid.sleep)
        for name in ("run_id", "task_id", "node_id"):
            patch.setattr(TaskIdentity, f"_{name}", 1)
        yield grid


def pace_of(script: Script) -> fp.Buffered:
    """The script's settings of the server."""
    how: dict[str, Any] = {"size": None if script.every is not None else script.size, "every": script.every}
    if (mixing := script.mixing) is not None:
        how |= {"mixing": mixing.kind, "alpha": mixing.alpha, "power": mixing.p, "slope": mixing.g, "hinge": mixing.h}
    return fp.Buffered(
        script.concurrency,
        timeout=script.timeout,
        oldest=script.oldest,
        refill=script.refill,
        correct=script.correct,
        wait=QUARTER,
        **how,
    )


@dataclass
class Version:
    """A version of the model, and the record of the move that made it."""

    record: fp.Record
    model: np.ndarray


def play_flower(script: Script, commits: int) -> tuple[list[Version], Scripted, Chooses]:
    """The script as Flower plays it, with FedAvg inside, or FedAvgM where the server has a rate or momentum."""
    found: list[Version] = []
    plain = (script.eta, script.momentum) == (1.0, 0.0)
    rates = {} if plain else {"server_learning_rate": script.eta, "server_momentum": script.momentum}
    base = (FedAvg if plain else FedAvgM)(fraction_evaluate=0.0, **rates)
    sizes = script.sizes or [1.0] * script.clients

    def described(names: list[str]) -> fp.Clients:
        return fp.Clients([sizes[int(name.removeprefix("node:")) - 1] for name in names])

    policy = Chooses(script, script.concurrency)
    with scripted(script) as grid:
        strategy = Selected(base, policy, pace=pace_of(script), wait=1000.0, describe=described, durations="arrival")
        policy.strategy = strategy

        def note(number: int, arrays: ArrayRecord) -> None:
            if number:
                found.append(Version(strategy.last, arrays["w"].numpy()))

        start = ArrayRecord({"w": Array(np.array(script.start, dtype=np.float64))})
        strategy.start(grid, start, num_rounds=commits, evaluate_fn=note)
    return found, grid, policy
