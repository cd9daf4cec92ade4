"""FedAvg as one writes it in PyTorch: a loop over clients, a loop over batches.

    python pytorch_loop.py DATA plain|one|channels_last|processes

plain: a thread for each core; one: a single thread; channels_last: as plain, with that memory format; processes: the
cohort split over a process of one thread for each core, parameters in shared memory.
"""

import contextlib
import os
import sys
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing as mp
from protocol import private_stdout, serve
from torch_model import Local, from_torch, indices, to_torch
from workloads import Params, Task, read


class Loop:
    """Server and clients in one process."""

    def __init__(self, task: Task, channels_last: bool) -> None:
        self.task, self.round = task, 0
        self.local = Local(task, channels_last)
        self.first = to_torch(task.work, task.params)
        self.server = [p.clone() for p in self.first]
        self.sum = [torch.zeros_like(p) for p in self.first]

    def reset(self) -> None:
        """Back to the first weights and round 0."""
        self.round = 0
        for server, first in zip(self.server, self.first, strict=True):
            server.copy_(first)

    def train(self, share: slice) -> None:
        """Add up what this share of the cohort ends with."""
        ids, batches = self.task.plan(self.round)
        torch._foreach_zero_(self.sum)
        weights = self.task.shares(self.round)[share].tolist()
        for client, own, weight in zip(ids[share].tolist(), map(indices, batches[share]), weights, strict=True):
            self.local.load(self.server)
            self.local.train(client, own)
            with torch.no_grad():
                torch._foreach_add_(self.sum, self.local.params, alpha=weight)

    def run(self, rounds: int) -> None:
        """FedAvg."""
        for _ in range(rounds):
            self.train(slice(None))
            for server, sum in zip(self.server, self.sum, strict=True):
                server.copy_(sum)
            self.round += 1

    def params(self) -> Params:
        """In the common layout."""
        return from_torch(self.task.work, self.server)


class Shares(Loop):
    """The cohort is split over processes: this one and children, one for each core."""

    def __init__(self, task: Task, folder: str, processes: int) -> None:
        super().__init__(task, channels_last=False)
        self.own, *others = [slice(i, None, processes) for i in range(processes)]
        for p in self.server:
            p.share_memory_()
        self.others = []
        for share in others:
            sum = [torch.zeros_like(p).share_memory_() for p in self.server]
            here, there = mp.Pipe()
            mp.Process(target=child, args=(folder, share, self.server, sum, there), daemon=True).start()
            there.close()
            here.recv()
            self.others.append((here, sum))

    def run(self, rounds: int) -> None:
        """As the plain loop, but all shares at once."""
        for _ in range(rounds):
            for pipe, _ in self.others:
                pipe.send(self.round)
            self.train(self.own)
            for pipe, sum in self.others:
                pipe.recv()
                torch._foreach_add_(self.sum, sum)
            for server, sum in zip(self.server, self.sum, strict=True):
                server.copy_(sum)
            self.round += 1


def child(folder: str, share: slice, server: list[torch.Tensor], sum: list[torch.Tensor], pipe: Connection) -> None:
    """Train this share of round r whenever told r."""
    torch.set_num_threads(1)
    loop = Loop(read(folder), channels_last=False)
    loop.server, loop.sum = server, sum
    pipe.send("ready")
    with contextlib.suppress(EOFError):  # the first process has ended
        while True:
            loop.round = pipe.recv()
            loop.train(share)
            pipe.send("done")


def main() -> None:
    """Answer the driver."""
    out = private_stdout()
    folder, form = sys.argv[1:]
    cores = os.cpu_count() or 1
    if form == "processes":
        mp.set_start_method("spawn")
        torch.set_num_threads(1)
        loop: Loop = Shares(read(folder), folder, cores)
    else:
        torch.set_num_threads(1 if form == "one" else cores)
        loop = Loop(read(folder), form == "channels_last")
    serve(out, loop, ["torch", "numpy"])


if __name__ == "__main__":
    main()
