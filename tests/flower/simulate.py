"""One Flower simulation in which many strategies run one after the other; writes what happened as JSON.

A process of its own, started by test_simulation.py: python simulate.py OUT NODES ROUNDS
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
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedProx,
    FedTrimmedAvg,
)
from flwr.simulation import run_simulation

import fedpick as fp
from fedpick.flower import Selected, probe, reports

COHORT = 10
CRASHES, POISONS = 3, 4  # partitions
ONCE = ("everyone", "f3ast")  # one round is enough


def data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Each partition's own straight line, near a common one."""
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    x = rng.normal(size=(20, 2))
    return x, x @ np.array([1.0, -2.0]) + 0.01 * rng.normal(size=20)


def loss_of(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((x @ w - y) ** 2))


def descend(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    for _ in range(5):
        w = w - 0.1 * 2 * x.T @ (x @ w - y) / len(y)
    return w


client = ClientApp()
probe(client, lambda arrays, batch, context: loss_of(arrays["w"].numpy(), *data(context)))


@client.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    if partition == CRASHES:
        raise RuntimeError("this client always fails")
    w_sent, (x, y) = message.content["arrays"]["w"].numpy(), data(context)
    before, w = loss_of(w_sent, x, y), descend(w_sent, x, y)
    if partition == POISONS:
        w = w * np.nan
    metrics = {
        "num-examples": len(y),
        "train_loss": before,
        "seconds": 1.0 + partition % 7,
        "partition": partition,
        "embedding": [float(np.cos(partition)), float(np.sin(partition))],
    }
    metrics |= reports(losses=(x @ w_sent - y) ** 2, before=[w_sent], after=[w], sketch=32)
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "m": MetricRecord(metrics)}), reply_to=message)


server = ServerApp()


def line_up(rounds: int, nodes: int) -> dict[str, Selected]:
    def plain(make=FedAvg, **options):
        return make(fraction_evaluate=0.0, **options)

    def context(round, names, idle):
        return np.column_stack([np.ones(len(names)), idle, np.full(len(names), 0.1)])

    def per_client(clients):
        return np.linspace(0.1, 1.0, len(clients))

    policies = {
        "uniform": fp.Uniform(COHORT),
        "size-weighted": fp.SizeWeighted(COHORT),
        "fixed": fp.FixedProbabilities(COHORT, per_client),
        "fedcs": fp.FedCS(COHORT, success=per_client),
        "pow-d": fp.PowerOfChoice(COHORT, 20),
        "cpow-d": fp.PowerOfChoice(COHORT, 20, variant="cpow-d"),
        "rpow-d": fp.PowerOfChoice(COHORT, 20, variant="rpow-d"),
        "afl": fp.ActiveFL(COHORT),
        "e3cs": fp.E3CS(COHORT, quota=0.5),
        "cs-ucb": fp.CSUCB(COHORT),
        "bsfl": fp.BSFL(COHORT),
        "genie": fp.Genie(COHORT, speed=per_client),
        "rbcsf": fp.RBCSF(COHORT),
        "fedgs": fp.FedGS(COHORT, graph="embedding"),
        "oort": fp.Oort(COHORT),
        "tifl": fp.TiFL(COHORT),
        "divfl": fp.DivFL(COHORT),
        "f3ast": fp.F3AST(COHORT),
        "greedyfed": fp.GreedyFed(COHORT),
        "over": fp.OverSelect(fp.Uniform(COHORT), 1.3),
    }
    bases = {
        "fedprox": plain(FedProx, proximal_mu=0.1),
        "fedadam": plain(FedAdam),
        "fedtrimmedavg": plain(FedTrimmedAvg),
        "dp": DifferentialPrivacyServerSideFixedClipping(plain(), 0.01, 10.0, COHORT),
    }

    def value(arrays):
        return -float(np.sum((arrays["w"].numpy() - [1.0, -2.0]) ** 2))

    more = {"rbcsf": {"context": context}, "greedyfed": {"value": value}}
    made = {n: Selected(plain(), p, **more.get(n, {})) for n, p in policies.items()}
    made |= {n: Selected(b, fp.E3CS(COHORT, quota=0.5)) for n, b in bases.items()}
    made["everyone"] = Selected(plain(), fp.Uniform(nodes), durations="reported")  # made up in a simulation
    return made


@server.main()
def main(grid: Grid, context: Context) -> None:
    out, nodes, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    told: dict[str, object] = {}
    while len(list(grid.get_node_ids())) < nodes:  # they are registered while this begins; all runs start alike
        time.sleep(0.1)
    start = ArrayRecord({"w": Array(np.zeros(2))})
    for name, strategy in line_up(rounds, nodes).items():
        begun = time.perf_counter()
        result = strategy.start(grid, start, num_rounds=1 if name in ONCE else rounds, timeout=120)
        record = strategy.last
        told[name] = {
            "seconds": time.perf_counter() - begun,
            "rounds": strategy.round,
            "enrolled": len(strategy.roster.names),
            "names": [strategy.roster.names[k] for k in record.ids],
            "clients": record.ids.tolist(),
            "status": record.status.tolist(),
            "duration": record.duration.tolist(),
            "loss": record.loss.tolist(),
            "messages": record.messages,
            "w": result.arrays["w"].numpy().tolist() if result.arrays else None,
        }
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=int(sys.argv[2]))
