"""In round 2 each partition has a fault of its own."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
RAISES, POISONS, STRAGGLES, KILLED, ENDED = range(1, 6)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with ones, and with the partition as loss, by which the test knows who is who."""
    partition = int(context.node_config["partition-id"])
    value = 1.0
    if message.content["config"]["server-round"] == 2:
        if partition == RAISES:
            raise RuntimeError("a fault on demand")
        if partition == POISONS:
            value = np.nan
        if partition == STRAGGLES:
            time.sleep(float(context.run_config["deadline"]) + 10.0)
        if partition in (KILLED, ENDED):
            time.sleep(600.0)
    metrics = MetricRecord({"num-examples": 1, "train_loss": float(partition)})
    arrays = ArrayRecord({"w": Array(np.full(3, value))})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
