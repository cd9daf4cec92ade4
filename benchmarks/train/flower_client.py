"""The client side of flower_sim.py, a module of its own: each Ray worker imports it and keeps data and model."""

import functools
import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch_model import Local, indices
from workloads import Task, read

app = ClientApp()


@functools.cache
def kept() -> tuple[Task, Local]:
    """Loaded once in each worker process."""
    torch.set_num_threads(1)
    task = read(os.environ["FEDPICK_BENCH_DATA"])
    return task, Local(task)


@app.query()
def who(message: Message, context: Context) -> Message:
    """Which client a node is: node ids are random."""
    partition = int(context.node_config["partition-id"])
    return Message(RecordDict({"metrics": MetricRecord({"partition": partition})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """This client's part of the round."""
    task, local = kept()
    client = int(context.node_config["partition-id"])
    ids, batches = task.plan(int(message.content["config"]["round"]))
    local.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    local.train(client, indices(batches[ids.tolist().index(client)]))
    metrics = MetricRecord({"num-examples": int(task.work.sizes[client])})
    return Message(
        RecordDict({"arrays": ArrayRecord(local.model.state_dict()), "metrics": metrics}),
        reply_to=message,
    )
