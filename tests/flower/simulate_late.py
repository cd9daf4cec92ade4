"""A Flower simulation in which one client of three answers after the deadline; writes what was asked and learned.

A process of its own, started by test_simulation.py: python simulate_late.py OUT
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
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import fedpick as fp
from fedpick.flower import Selected
from fedpick.server import Lateness

DEADLINE, SLOW = 6.0, 8.0  # seconds
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """The slow one adds 1 to the model, the others nothing."""
    slow = int(context.node_config["partition-id"]) == 2
    if slow:
        time.sleep(SLOW)
    w = message.content["arrays"]["w"].numpy() + float(slow)
    metrics = MetricRecord({"num-examples": 10, "train_loss": 1.0})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "m": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Two rounds with late replies, and two without."""
    told = {}
    while len(list(grid.get_node_ids())) < 3:
        time.sleep(0.1)
    start = ArrayRecord({"w": Array(np.zeros(2))})
    Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3)).start(grid, start, num_rounds=1)  # Ray's actors start slowly
    for late in (2, 0):
        strategy = Selected(
            FedAvg(fraction_evaluate=0.0), fp.Uniform(3), deadline=DEADLINE, late=Lateness(late, beta=0.0)
        )
        seen = []

        def note(number, arrays, seen=seen, strategy=strategy):
            if strategy.last is not None:
                seen.append(sorted(strategy.last.status.tolist()))
            if len(seen) == 1:
                time.sleep(SLOW)  # the reply comes between the rounds

        result = strategy.start(grid, start, num_rounds=2, evaluate_fn=note)
        told[str(late)] = {"w": result.arrays["w"].numpy().tolist(), "status": seen}
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 0.5, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, num_supernodes=3, backend_config=resources)
