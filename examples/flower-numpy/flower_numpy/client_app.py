"""What runs on each client."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_numpy.task import accuracy, load, loss_and_gradient

app = ClientApp()


def data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """This client's examples; in deployment, `--node-config` gives the number of its partition."""
    return load(int(context.node_config["partition-id"]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """A few steps of gradient descent."""
    began = time.perf_counter()
    model = message.content["arrays"]["model"].numpy()
    x, labels = data(context)
    loss, _ = loss_and_gradient(model, x, labels)
    for _ in range(int(context.run_config["local-epochs"])):
        model = model - float(context.run_config["learning-rate"]) * loss_and_gradient(model, x, labels)[1]
    # fedpick reads train_loss and seconds, if they are reported.
    metrics = MetricRecord({"num-examples": len(x), "train_loss": loss, "seconds": time.perf_counter() - began})
    content = RecordDict({"arrays": ArrayRecord({"model": Array(model)}), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on this client's data."""
    model = message.content["arrays"]["model"].numpy()
    x, labels = data(context)
    metrics = {"num-examples": len(x), "accuracy": accuracy(model, x, labels)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
