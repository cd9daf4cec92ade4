"""Clients that count rounds; with faults=true, in round 2 each partition has a fault of its own.

With own=true, partition k adds 1 + k instead of one, and has 10 (k + 1) examples.
"""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedpick.flower

app = ClientApp()
RAISES, POISONS, STRAGGLES, KILLED, ENDED = range(1, 6)


def partition_of(context: Context) -> int:
    """By which the test knows who is who: it is the loss of each client."""
    return int(context.node_config["partition-id"])


fedpick.flower.probe(app, lambda arrays, batch, context: float(partition_of(context)))


def note(message: Message, context: Context, kind: str) -> tuple[int, int, Path]:
    """Write down that a message came; returns the partition, the round and the folder."""
    partition, out = partition_of(context), Path(str(context.run_config["out"]))
    round = int(message.content["config"]["server-round"])
    began = {"round": round, "partition": partition, "run": message.metadata.run_id}
    part = out / f"{kind}-{'-'.join(map(str, began.values()))}.part"
    part.write_text(json.dumps(began))
    part.rename(part.with_suffix(".json"))
    return partition, round, out


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Answer with the model's first number as the accuracy."""
    note(message, context, "evaluated")
    metrics = MetricRecord({"num-examples": 1, "accuracy": float(message.content["arrays"]["w"].numpy()[0])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with the model plus one."""
    partition, round, out = note(message, context, "began")
    config = context.run_config
    while (out / f"hold-train-{round}").exists() or (out / f"hold-node-{partition}").exists():
        time.sleep(0.1)
    own = partition if config["own"] else 0
    w = message.content["arrays"]["w"].numpy() + 1.0 + own
    if config["faults"] and round == 2:
        if partition == RAISES:
            raise RuntimeError("a fault on demand")
        if partition == POISONS:
            w = w * np.nan
        if partition == STRAGGLES:
            time.sleep(float(config["deadline"]) + 10.0)
        if partition in (KILLED, ENDED):
            time.sleep(600.0)
    told = fedpick.flower.reports(losses=[1.0 + partition, 1.0 + partition])
    metrics = MetricRecord({"num-examples": 10 * own + 10, "train_loss": float(partition), **told})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)
