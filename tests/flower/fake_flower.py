"""A Flower grid in memory, with a clock of its own: every fault on demand, nothing random, no waiting."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

Behaviour = Callable[[Message], tuple[float, RecordDict | Error | None]]  # -> (seconds, what comes back)
SUPERLINK = 1


def model(*values: float) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.array(values or (0.0, 0.0)))})


def content(arrays: ArrayRecord | None = None, **metrics: Any) -> RecordDict:
    metrics.setdefault("num_examples", 10)
    named = {name.replace("num_examples", "num-examples"): value for name, value in metrics.items()}
    record = RecordDict({"metrics": MetricRecord(named)})
    if arrays is not None:
        record["arrays"] = arrays
    return record


def trains(seconds: float = 1.0, value: float = 1.0, probe: float | None = None, **metrics: Any) -> Behaviour:
    """Answers training with arrays full of `value`, probes with the loss `probe`."""
    metrics.setdefault("train_loss", 0.5)

    def behave(message: Message) -> tuple[float, RecordDict | Error | None]:
        if message.metadata.message_type == "evaluate.probe":
            if probe is None:
                return 0.1, Error(2, "ValueError: No evaluate function registered with name 'probe'")
            return 0.1, content(loss=probe)
        if message.metadata.message_type.startswith("evaluate"):
            return 0.1, content(accuracy=0.9)
        return seconds, content(model(value, value), **metrics)

    return behave


def replies(record: RecordDict | Error | None, seconds: float = 1.0) -> Behaviour:
    """Answers everything with this; None is silence."""
    return lambda message: (seconds, record)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.events: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += max(seconds, 1e-6)
        for due in [event for event in self.events if event[0] <= self.now]:
            self.events.remove(due)
            due[1]()


class FakeGrid(Grid):
    """Nodes by id, each with a behaviour; errors come from the SuperLink, as in Flower."""

    def __init__(self, clock: Clock, nodes: dict[int, Behaviour], keys: dict[int, bytes] | None = None) -> None:
        self.clock, self.nodes, self.keys = clock, dict(nodes), keys or {}
        self.refuses: set[int] = set()
        self.sent: list[Message] = []
        self.waiting: dict[str, tuple[float, float, Message, RecordDict | Error | None]] = {}

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = f"m{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node in self.refuses:
                continue  # as the in-memory grid: a shorter list
            seconds, back = self.nodes[node](message)
            self.waiting[name] = (self.clock.now + seconds, self.clock.now + message.metadata.ttl, message, back)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = []
        for name in sorted(message_ids, key=lambda each: int(each[1:])):
            due, expires, message, back = self.waiting.get(name, (np.inf, np.inf, None, None))
            if message is None:
                continue
            if back is not None and due <= self.clock.now:
                reply = Message(back, reply_to=message)
            elif expires <= self.clock.now:
                reply = Message(Error(3, "message expired"), reply_to=message)
            else:
                continue
            if reply.has_error():
                reply.metadata.__dict__["_src_node_id"] = SUPERLINK
            found.append(reply)
            del self.waiting[name]
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise AssertionError("the wrapper has a loop of its own")

    def asked(self, kind: str = "train") -> list[int]:
        return [m.metadata.dst_node_id for m in self.sent if m.metadata.message_type == kind]
