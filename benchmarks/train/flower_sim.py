"""FedAvg in Flower's simulation: its own strategy and Ray backend, 2 workers of 1 CPU, PyTorch in the clients.

    python flower_sim.py DATA

Every block of rounds is one `strategy.start`, so that nothing runs between blocks.
"""

import logging
import os
import sys
import time
from collections.abc import Iterable

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["FEDPICK_BENCH_DATA"] = os.path.abspath(sys.argv[1])

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import private_stdout, serve
from torch_model import build, from_torch, to_torch
from workloads import CLIENTS, Params, Task, read


class Planned(FedAvg):
    """Flower's FedAvg, but the cohort is the plan's."""

    def __init__(self, task: Task, nodes: dict[int, int]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.task, self.nodes = task, nodes

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each of this round's clients; Flower's rounds begin at 1, the plan's at 0."""
        config["round"] = server_round - 1
        ids, _ = self.task.plan(server_round - 1)
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, self.nodes[int(i)], MessageType.TRAIN) for i in ids]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Flower's own, which would go on without those that failed."""
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) < len(self.task.plan(server_round - 1)[0]):
            raise RuntimeError(f"round {server_round}: {len(replies)} replies, errors: {failed}")
        return super().aggregate_train(server_round, replies)


class Simulation:
    """What the driver talks to, inside the ServerApp."""

    def __init__(self, task: Task, grid: Grid) -> None:
        self.task, self.grid = task, grid
        while len(ids := list(grid.get_node_ids())) < CLIENTS:  # they are registered while this begins
            time.sleep(0.1)
        asked = [Message(RecordDict(), node, MessageType.QUERY) for node in ids]
        nodes = {
            int(reply.content["metrics"]["partition"]): reply.metadata.src_node_id
            for reply in grid.send_and_receive(asked)
        }
        self.strategy = Planned(task, nodes)
        self.names = list(build(task.work).state_dict())
        self.arrays = self.first = ArrayRecord(dict(zip(self.names, to_torch(task.work, task.params), strict=True)))

    def reset(self) -> None:
        """Every start begins with the first weights."""

    def run(self, rounds: int) -> None:
        """One start of Flower's own loop."""
        self.arrays = self.strategy.start(self.grid, self.first, num_rounds=rounds).arrays

    def params(self) -> Params:
        """In the common layout."""
        state = self.arrays.to_torch_state_dict()
        return from_torch(self.task.work, [state[name] for name in self.names])


def main() -> None:
    """Start the simulation; the ServerApp answers the driver."""
    out = private_stdout()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    server = ServerApp()

    @server.main()
    def answer(grid: Grid, context: Context) -> None:
        serve(out, Simulation(read(sys.argv[1]), grid), ["flwr", "ray", "torch"])

    workers = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": os.cpu_count()}}
    run_simulation(server, client_app, num_supernodes=CLIENTS, backend_config=workers)


if __name__ == "__main__":
    main()
