"""What runs on each client. The line with `probe` is all that fedpick adds."""

import time

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedpick.flower
from flower_pytorch.task import Examples, Net, load, test, train

app = ClientApp()
torch.set_num_threads(1)  # clients share this machine; remove the line if each has its own


def model(arrays: ArrayRecord) -> Net:
    """The server's model."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return net


def data(context: Context) -> Examples:
    """This client's examples: Flower gives the numbers in simulation, `--node-config` in deployment."""
    return load(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train on this client's data."""
    began, config = time.perf_counter(), context.run_config
    net, examples = model(message.content["arrays"]), data(context)
    epochs, batch, rate = int(config["local-epochs"]), int(config["batch-size"]), float(config["learning-rate"])
    loss = train(net, examples, epochs, batch, rate)
    # fedpick reads train_loss and seconds, if they are reported.
    metrics = {"num-examples": len(examples[1]), "train_loss": loss, "seconds": time.perf_counter() - began}
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)


def loss_of(arrays: ArrayRecord, batch: int | None, context: Context) -> float:
    """The loss of the server's model on this client's data, or on `batch` examples of it."""
    x, y = data(context)
    chosen = torch.randperm(len(x))[:batch]
    return test(model(arrays), (x[chosen], y[chosen]))[0]


fedpick.flower.probe(app, loss_of)
