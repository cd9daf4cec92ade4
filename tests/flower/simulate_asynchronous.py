"""Asynchronous training in Flower's own simulation; writes what was asked, what it counted as, and each version.

A process of its own, started by test_asynchronous_simulation.py: python simulate_asynchronous.py OUT
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedYogi
from flwr.simulation import run_simulation

import fedpick as fp
from fedpick.flower import Selected

NODES, CRASHES, SLOW = 8, 3, 5  # the last two are partitions
PACE = fp.Buffered(concurrency=4, size=2, timeout=60)
BASES, VERSIONS = (FedAvg, FedAdam, FedYogi), 12


def data(partition: int) -> tuple[np.ndarray, np.ndarray]:
    """Each partition's own straight line, near a common one."""
    rng = np.random.default_rng(partition)
    x = rng.normal(size=(10 + 5 * partition, 2))
    return x, x @ np.array([1.0, -2.0]) + 0.01 * rng.normal(size=len(x))


def descend(w: np.ndarray, partition: int) -> np.ndarray:
    """The model after training."""
    x, y = data(partition)
    for _ in range(5):
        w = w - 0.1 * 2 * x.T @ (x @ w - y) / len(y)
    return w


client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One of them always fails, another is slow."""
    partition = int(context.node_config["partition-id"])
    if partition == CRASHES:
        raise RuntimeError("this client always fails")
    if partition == SLOW:
        time.sleep(0.6)
    w, examples = message.content["arrays"]["w"].numpy(), len(data(partition)[1])
    metrics = MetricRecord({"num-examples": examples, "train_loss": float(partition)})
    record = ArrayRecord({"w": Array(descend(w, partition))})
    return Message(RecordDict({"arrays": record, "m": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Each base in turn."""
    told = {}
    while len(list(grid.get_node_ids())) < NODES:
        time.sleep(0.1)
    for base in BASES:
        strategy = Selected(base(fraction_evaluate=0.0), fp.Uniform(4), pace=PACE, seed=1)
        versions: list[dict] = []

        def note(number: int, arrays: ArrayRecord, versions=versions, strategy=strategy) -> None:
            tasks = () if number == 0 else strategy.last.tasks
            names, rows = strategy.roster.names, []
            for each in tasks:
                asked = [each.task.id, names[each.task.client], each.task.version]
                rows.append([*asked, int(each.status), each.staleness, each.weight])
            versions.append({"w": arrays["w"].numpy().tolist(), "tasks": rows})

        start = ArrayRecord({"w": Array(np.zeros(2))})
        strategy.start(grid, start, num_rounds=VERSIONS, evaluate_fn=note)
        told[base.__name__] = {"versions": versions, "counts": strategy.roster.state.counts.tolist()}
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 0.5, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, num_supernodes=NODES, backend_config=resources)
