"""One experiment twice: in our simulator, and as a Flower app whose clients are written in NumPy alone.

As a process of its own (started by test_parity.py) it runs the Flower side: python parity.py OUT
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
from fedpick import data
from fedpick.flower import Selected, describe, probe
from fedpick.worlds import Always, Gamma, SuccessRates, World

CLIENTS, COHORT, ROUNDS, SEED, LR = 20, 5, 8, 3, 0.05
HELD = data.Synthetic(1.0, 1.0)(num_clients=CLIENTS, rng=fp.rng.stream(SEED, 0, "data"))
PEOPLE = fp.Clients(HELD.sizes, features=HELD.labels)
WORLD = World(
    PEOPLE,
    availability=Always(),
    volatility=SuccessRates((0.5, 0.8, 1.0)),
    latency=Gamma(),
    deadline=None,
    epochs=(1, 2, 3),
)
# Not zeros, with which everyone's loss is log 10 but for rounding, and rounding would decide whom pow-d takes.
START = fp.rng.stream(SEED, 0, "start").normal(scale=0.1, size=(61, 10)).astype(np.float32)
POLICIES = {
    "uniform": fp.Uniform(COHORT),
    "e3cs": fp.E3CS(COHORT, quota=0.5),
    "pow-d": fp.PowerOfChoice(COHORT, 10),
    "rpow-d": fp.PowerOfChoice(COHORT, 10, variant="rpow-d"),
    "afl": fp.ActiveFL(COHORT),
    "bsfl": fp.BSFL(COHORT),
    "cs-ucb": fp.CSUCB(COHORT),
    "fedgs": fp.FedGS(COHORT, graph="features"),
    "oort": fp.Oort(COHORT, step=1.0),
    "size-weighted": fp.SizeWeighted(COHORT, replace=False),
    "f3ast": fp.F3AST(COHORT),  # weights that are used as they are
}


def examples(k: int) -> tuple[np.ndarray, np.ndarray]:
    at = HELD.examples_of(k)
    return HELD.dataset.x[at].astype(np.float64), HELD.dataset.y[at]


def loss_and_gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Softmax regression; the last row of w are the biases."""
    padded = np.column_stack([x, np.ones(len(x))])
    scores = padded @ w
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    p = np.exp(logs)
    p[np.arange(len(y)), y] -= 1.0
    return float(-logs[np.arange(len(y)), y].mean()), padded.T @ p / len(y)


def matrix(arrays: ArrayRecord) -> np.ndarray:
    return arrays["w"].numpy()


client = ClientApp()
probe(client, lambda arrays, batch, context: loss_and_gradient(matrix(arrays), *examples(partition(context)))[0])
describe(client, lambda context: (PEOPLE.sizes[partition(context)], PEOPLE.features[partition(context)]))


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


@client.train()
def train(message: Message, context: Context) -> Message:
    """Whether it fails, how long it takes and how many epochs it trains is what the world says."""
    k, round = partition(context), int(message.content["config"]["server-round"])
    state = WORLD.init(SEED)
    draw = WORLD.draw(state, SEED, round)
    if not WORLD.works(state, draw, np.array([k]))[0]:
        raise RuntimeError("the world says so")
    w, (x, y), losses = matrix(message.content["arrays"]), examples(k), []
    for _ in range(int(state.epochs[k])):  # a batch holds everything, so that an epoch is a step
        loss, gradient = loss_and_gradient(w, x, y)
        losses.append(loss)
        w = w - LR * gradient
    seconds = float(WORLD.seconds(state, draw, np.array([k]))[0])
    metrics = MetricRecord({"num-examples": len(y), "train_loss": float(np.mean(losses)), "seconds": seconds})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)


def row(record: fp.Record) -> dict[str, object]:
    order = np.argsort(record.ids)
    names = ("ids", "status", "duration", "loss")
    return {name: np.asarray(getattr(record, name))[order].tolist() for name in names}


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    told: dict[str, object] = {}
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.1)
    for name, policy in POLICIES.items():
        base = FedAvg(fraction_evaluate=0.0)
        strategy = Selected(base, policy, describe="ask", seed=SEED, durations="reported")
        rows: list[object] = []

        def note(round, arrays, strategy=strategy, rows=rows) -> None:
            if round:
                rows.append(row(strategy.last))

        start = ArrayRecord({"w": Array(START.astype(np.float64))})
        result = strategy.start(grid, start, num_rounds=ROUNDS, timeout=120, evaluate_fn=note)
        told[name] = {"rounds": rows, "names": strategy.roster.names, "w": matrix(result.arrays).tolist()}
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=CLIENTS)
