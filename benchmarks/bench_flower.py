"""The overhead of a policy in Flower.

Seconds per round of Flower's simulation with 100 clients that do nothing, 10 per round: plain FedAvg, FedAvg that waits
for replies as our wrapper does, and the wrapper, alternating in one simulation. Then the time of one choice among 1,000
connected of 100,000 enrolled clients. Writes benchmarks/results/flower/.
"""

import argparse
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from flwr.supercore.task_identity import TaskIdentity

import fedpick as fp
from _manifest import manifest
from fedpick.adapters.flower.grids import Watched
from fedpick.flower import Selected

RESULTS = Path(__file__).parent / "results" / "flower"
NODES, COHORT = 100, 10
PLAIN, POLLED = "FedAvg", "FedAvg, replies looked for as often as by fedpick"
MODEL = ArrayRecord({"w": Array(np.zeros(1000, dtype=np.float32))})

client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Send the model back as it came."""
    content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


class Stopwatch:
    """Seconds that a strategy spends between rounds' messages: choosing, configuring, aggregating, keeping."""

    def __init__(self, strategy: Any) -> None:
        self.spent = 0.0
        for hook in ("configure_train", "aggregate_train"):
            setattr(strategy, hook, self._timed(getattr(strategy, hook)))

    def _timed(self, function: Any) -> Any:
        def timed(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            result = function(*args, **options)
            self.spent += time.perf_counter() - begun
            return result

        return timed


def plain() -> FedAvg:
    """The strategy that everything is measured against."""
    return FedAvg(fraction_train=COHORT / NODES, min_train_nodes=COHORT, fraction_evaluate=0.0)


def rounds_in_turn(grid: Grid, repeats: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Seconds a round of each variant, measured in turn; ratios are to plain FedAvg in the same turn."""
    e3cs = fp.E3CS(COHORT, quota=0.5)
    wrapped = {
        "fedpick, Uniform": Selected(plain(), fp.Uniform(COHORT)),
        "fedpick, E3CS": Selected(plain(), e3cs),
        "fedpick, E3CS, state and records kept": Selected(
            plain(), e3cs, state=folder / "state", records=folder / "records"
        ),
    }
    took: dict[str, list[float]] = {name: [] for name in (PLAIN, POLLED, *wrapped)}
    policy: dict[str, list[float]] = {name: [] for name in wrapped}
    own: dict[str, list[float]] = {name: [] for name in took}
    watches = {name: Stopwatch(strategy) for name, strategy in wrapped.items()}
    for turn in range(repeats + 1):
        for name in took:
            strategy: Any = wrapped.get(name) or plain()
            watch = watches.get(name) or Stopwatch(strategy)
            before = watch.spent
            through = Watched(grid, None) if name == POLLED else grid
            begun = time.perf_counter()
            strategy.start(through, MODEL, num_rounds=rounds, timeout=60.0)
            if turn:  # the first warms up
                took[name].append((time.perf_counter() - begun) / rounds)
                own[name].append((watch.spent - before) / rounds)
                if name in wrapped:
                    policy[name].append(strategy.last.wall["selection"])
    first = np.array(took[PLAIN])
    return [
        {
            "variant": name,
            "seconds": float(np.median(times)),
            "of_plain": float(np.median(np.array(times) / first)),
            "of_polled": float(np.median(np.array(times) / np.array(took[POLLED]))),
            "own_ms": 1e3 * float(np.median(own[name])),
            "policy_ms": 1e3 * float(np.median(policy[name])) if name in policy else None,
        }
        for name, times in took.items()
    ]


class Nodes(Grid):
    """Connected nodes and nothing else: choosing sends no message."""

    def __init__(self, count: int) -> None:
        self.nodes = [NodeInfo(node_id=k + 1, public_key=b"key %d" % k) for k in range(count)]

    def get_nodes(self) -> list[Any]:
        """All of them."""
        return self.nodes

    def get_node_ids(self) -> list[int]:
        """All of them."""
        return [node.node_id for node in self.nodes]

    def _not_used(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = send_and_receive = _not_used
    run = property(_not_used)


def choosing(repeats: int, enrolled: int, connected: int) -> list[dict[str, Any]]:
    """Milliseconds until the messages of a round are there: who is connected, the choice, FedAvg's configuration."""
    for name in ("run_id", "task_id", "node_id"):
        setattr(TaskIdentity, f"_{name}", 1)  # what a ServerApp's process knows and a benchmark does not
    rows = []
    for name, make in (("Uniform", fp.Uniform), ("E3CS", fp.E3CS), ("BSFL", fp.BSFL)):
        policy: Any = make(20)
        strategy, grid = Selected(plain(), policy), Nodes(connected)
        strategy.configure_train(1, MODEL, ConfigRecord(), grid)  # enrols the connected
        others = [f"key:{k:032x}" for k in range(enrolled - connected)]
        strategy.roster.enrol(others, fp.Clients(np.ones(len(others))))
        times, choices = [], []
        for _ in range(repeats):
            begun = time.perf_counter()
            messages = list(strategy.configure_train(1, MODEL, ConfigRecord(), grid))
            times.append(1e3 * (time.perf_counter() - begun))
            assert strategy.session.current is not None
            choices.append(1e3 * strategy.session.current.wall)
        assert len(messages) == 20
        rows.append({"policy": name, "ms": float(np.median(times)), "policy_ms": float(np.median(choices))})
    return rows


def main() -> None:
    """Measure, then write the table and the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, fewer clients: a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for table and manifest")
    options = parser.parse_args()
    repeats, rounds = (2, 2) if options.quick else (20, 10)
    nodes, enrolled, connected = (20, 1_000, 100) if options.quick else (NODES, 100_000, 1_000)
    found: list[dict[str, Any]] = []
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < nodes:
            time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            found.extend(rounds_in_turn(grid, repeats, rounds, Path(folder)))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{5 * (repeats + 1) * rounds} rounds in Flower's simulation, about {(repeats + 1) * rounds // 2} s ...")
    run_simulation(server, client, num_supernodes=nodes)
    choices = choosing(3 if options.quick else 30, enrolled, connected)
    lines = [
        f"Flower's simulation, {nodes} clients that do nothing, {COHORT} a round; medians of {repeats} blocks of",
        f"{rounds} rounds, measured in turn. Flower looks for replies every tenth of a second, fedpick sooner at",
        "first; the second row has fedpick's way of waiting and nothing else of it. Work at the server is the time in",
        "configure_train and aggregate_train; the rest is Flower's engine.",
        "",
        "| strategy | seconds a round | of FedAvg | of FedAvg with the same waiting | work at the server, ms | "
        "of which the policy, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {r['variant']} | {r['seconds']:.3f} | {r['of_plain']:.2f}x | {r['of_polled']:.2f}x | "
            f"{r['own_ms']:.1f} | " + (f"{r['policy_ms']:.2f} |" if r["policy_ms"] is not None else "|")
            for r in found
        ),
        "",
        f"From the start of a round to its messages, 20 chosen of {connected:,} connected of {enrolled:,} enrolled",
        "clients:",
        "",
        "| policy | ms | of which the policy, ms |",
        "| --- | ---: | ---: |",
        *(f"| {r['policy']} | {r['ms']:.1f} | {r['policy_ms']:.2f} |" for r in choices),
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "flower.md").write_text("\n".join(lines) + "\n")
    (options.out / "flower.json").write_text(json.dumps({"rounds": found, "choosing": choices}, indent=1) + "\n")
    settings = {"quick": options.quick, "repeats": repeats, "rounds": rounds}
    (options.out / "manifest.json").write_text(json.dumps(manifest(settings), indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
