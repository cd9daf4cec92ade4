"""Clients that count rounds; with faults=true, in round 2 each partition has a fault of its own."""

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


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with the model plus one."""
    partition, config = partition_of(context), context.run_config
    round = int(message.content["config"]["server-round"])
    out = Path(str(config["out"]))
    began = {"round": round, "partition": partition, "run": message.metadata.run_id}
    part = out / f"began-{'-'.join(map(str, began.values()))}.part"
    part.write_text(json.dumps(began))
    part.rename(part.with_suffix(".json"))
    while (out / f"hold-train-{round}").exists():
        time.sleep(0.1)
    w = message.content["arrays"]["w"].numpy() + 1.0
    if config["faults"] and round == 2:
        if partition == RAISES:
            raise RuntimeError("a fault on demand")
        if partition == POISONS:
            w = w * np.nan
        if partition == STRAGGLES:
            time.sleep(float(config["deadline"]) + 10.0)
        if partition in (KILLED, ENDED):
            time.sleep(600.0)
    metrics = MetricRecord({"num-examples": 1, "train_loss": float(partition)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)
