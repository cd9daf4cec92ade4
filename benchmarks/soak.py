"""Does it grow? Many rounds of a Flower server and of a simulated run, all kept on the disk; memory and time a round.

And ten million tasks of an asynchronous run of a million clients, 100 a move of the model, of which nothing is kept.

Flower's own strategies, messages and records, with clients that answer at once: its engine (Ray, 0.1 s a round) is left
out. A client in a hundred is replaced by a new one each round, so that forgetting is part of it.

    python benchmarks/soak.py                 20,000, 200,000 and 100,000 rounds; exit code 1 if anything grows
    python benchmarks/soak.py 400 4000 2000   as many; 0 leaves one out
"""

import gc
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedpick as fp

PARTS = 10  # of a soak; the first two warm up
SLOWER, LARGER = 1.5, 48.0  # allowed: times the seconds a round, MB more


def resident() -> float:
    """Megabytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass
class Meter:
    """Seconds a round and memory, part by part."""

    rounds: int
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)  # of a server's records
    folder: Path | None = None
    last: tuple[int, float] = (0, 0.0)

    def tell(self, reached: int) -> None:
        """Take note, if another part is done."""
        before, then = self.last
        if not then:
            self.last = (reached, time.process_time())
        elif reached - before >= self.rounds // PARTS:
            gc.collect()
            now = time.process_time()  # of this process: others may be busy
            self.seconds.append((now - then) / (reached - before))
            self.memory.append(resident())
            if self.folder is not None:
                self.files.append(sum(1 for _ in self.folder.rglob("*")))
            self.last = (reached, time.process_time())

    def grown(self) -> tuple[float, float]:
        """(seconds a round of the second half as a multiple of the first's, MB more), the warm-up left out."""
        half = len(self.seconds) // 2
        slower = float(np.median(self.seconds[half:]) / np.median(self.seconds[1:half]))
        return slower, max(self.memory[half:]) - max(self.memory[1:half])


def flower(rounds: int, folder: Path, churn: int = 1) -> Meter:
    """Rounds of `Selected` around FedAvg, state and records kept; `churn` of 100 clients are new in each."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    from fedpick.flower import Selected
    from fedpick.server import Limits

    for name in ("run_id", "task_id", "node_id"):
        setattr(TaskIdentity, f"_{name}", 1)  # what a ServerApp's process knows and a benchmark does not
    logging.getLogger("flwr").setLevel(logging.CRITICAL)

    class Instant(Grid):
        """Nodes that answer at once; some fail."""

        def __init__(self) -> None:
            self.nodes, self.sent, self.replies = list(range(1, 101)), 0, dict[str, Message]()
            self.fresh = 101

        def get_nodes(self) -> Iterable[Any]:
            return [NodeInfo(node_id=node, public_key=b"key %d" % node) for node in self.nodes]

        def get_node_ids(self) -> Iterable[int]:
            return list(self.nodes)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            names = []
            for message in messages:
                self.sent += 1
                name = f"m{self.sent}"
                message.metadata.__dict__["_message_id"] = name
                loss = float("nan") if self.sent % 17 == 0 else 1.0 / (1 + self.sent % 7)
                metrics = MetricRecord({"num-examples": 10, "train_loss": loss, "seconds": 1.0 + self.sent % 5})
                content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
                self.replies[name] = Message(content, reply_to=message)
                names.append(name)
            return names

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

        def _not_used(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

        set_run = create_message = send_and_receive = _not_used
        run = property(_not_used)

    grid, meter = Instant(), Meter(rounds, folder=folder / "records")
    policy = fp.Guard(fp.OverSelect(fp.E3CS(8, quota=0.5), 1.25))
    base = FedAvg(fraction_evaluate=0.0)
    folders = {"state": folder / "state", "records": folder / "records"}
    strategy = Selected(base, policy, **folders, limits=Limits(forget_after=50), deadline=60)
    measured = strategy.aggregate_train

    def round_ends(server_round: int, replies: Iterable[Message]) -> Any:
        result = measured(server_round, replies)
        grid.nodes = [*grid.nodes[churn:], *range(grid.fresh, grid.fresh + churn)]
        grid.fresh += churn
        meter.tell(strategy.round)
        return result

    strategy.aggregate_train = round_ends  # type: ignore[method-assign]
    arrays = ArrayRecord({"w": Array(np.zeros(100, dtype=np.float32))})
    while strategy.round < rounds:  # Flower's own result keeps the metrics of every round: a thousand at a time
        many = min(1000, rounds - strategy.round)
        strategy.start(grid, arrays, num_rounds=many, train_config=ConfigRecord(), timeout=60.0)
    return meter


def simulated(rounds: int, folder: Path) -> Meter:
    """Rounds of a run without training, kept as any."""
    meter = Meter(rounds)

    def tell(index: int, reached: int) -> None:
        if reached < rounds:  # at the end the run's tables are joined, for which it takes more, once
            meter.tell(reached)

    fp.compare(
        ["guard(e3cs(quota=0.5))"],
        data=None,
        cohort_size=10,
        seeds=1,
        rounds=rounds,
        out=folder,
        executor="serial",
        tell=tell,
    )
    return meter


def asynchronous(rounds: int, folder: Path) -> Meter:
    """Moves of the model by 100 answers each; 1,000 of 1,000,000 clients work, a few vanish for an hour."""
    meter = Meter(rounds)
    world = fp.World(
        fp.Clients(np.ones(1_000_000)),
        availability=fp.worlds.Always(),
        volatility=fp.worlds.SuccessRates((0.999,)),
        latency=fp.worlds.LogNormalTime(),
        deadline=3_600.0,
    )
    run = fp.Run(fp.Uniform(1_000), world, pace=fp.Buffered(1_000, size=100, refill=100))
    for record in run.rounds(until=rounds):
        meter.tell(record.round)
    return meter


SOAKS = {"Flower server": flower, "simulated run": simulated, "asynchronous run": asynchronous}


def main() -> int:
    """Soak all; say how it went."""
    counts = [int(text) for text in sys.argv[1:]] or [20_000, 200_000, 100_000]
    grows = False
    for (name, soak), rounds in zip(SOAKS.items(), counts, strict=True):
        if not rounds:
            continue
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            meter = soak(rounds, Path(folder))
        slower, larger = meter.grown()
        bad = slower > SLOWER or larger > LARGER
        grows = grows or bad
        print(f"{name}: {rounds:,} rounds in {time.monotonic() - begun:.0f} s: {'GROWS' if bad else 'flat'}")
        print("  ms a round, tenth by tenth:", *(f"{1e3 * each:.2f}" for each in meter.seconds))
        print("  MB resident:               ", *(f"{each:.0f}" for each in meter.memory))
        if meter.files:
            print("  files of the records:      ", *meter.files)
        print(f"  second half of the first: {slower:.2f}x the time, {larger:+.1f} MB", flush=True)
    return int(grows)


if __name__ == "__main__":
    sys.exit(main())
