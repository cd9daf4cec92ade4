"""Ray: execute runs on the nodes of a cluster.

A running cluster is used (RAY_ADDRESS, or one on this machine), else a local one with this machine's cores is started.
Nodes need fedpick installed, but no shared file system. `node` is the code that runs on the nodes.
"""

import json
import os
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedpick._support import devices, user_code
from fedpick._support.archive import read_archive
from fedpick.core.errors import FedpickError, MissingError
from fedpick.experiment.executors import node
from fedpick.experiment.executors.assignment import device_of
from fedpick.experiment.executors.batch import Batch
from fedpick.experiment.executors.job import Job, Listener
from fedpick.experiment.executors.processes import PATIENCE
from fedpick.experiment.executors.signals import Stop
from fedpick.store import Folder

__all__ = ["TRIES", "connected_ray", "play_on_ray"]

TRIES = 4  # attempts for work whose process or node died


@contextmanager
def connected_ray() -> Iterator[Any]:
    """Ray, connected to the running cluster (RAY_ADDRESS, or one on this machine), else to a new local one."""
    try:
        import ray
    except ImportError:
        raise MissingError("--executor ray needs Ray: pip install ray (it comes with flwr[simulation])") from None
    ours = not ray.is_initialized()
    if ours:
        # Otherwise Ray hides accelerators from tasks that request none, and warns that it will stop doing so.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics from a cluster that we start
        before = signal.getsignal(signal.SIGTERM)
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray replaced the handler
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def play_on_ray(
    jobs: Sequence[Job], device: str, workers: int | None, stop: Stop, listen: Listener
) -> dict[int, Exception]:
    """Execute jobs on the nodes and write their folders on this machine; returns the errors by number.

    After a signal to stop, it returns when the checkpoints of the current runs have arrived.
    """
    with connected_ray() as ray:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        if device == "gpu" and not gpus:
            raise MissingError("--device gpu, but no node of the Ray cluster has a GPU; use --device cpu")
        batches = _batches(jobs, device, gpus)
        driver = _Driver(ray, batches, workers or max(8, 2 * int(resources.get("CPU", 1))), stop, listen)
        driver.play()
        return driver.errors


def _batches(jobs: Sequence[Job], device: str, gpus: int) -> list[Batch]:
    """One run per core; one stack of runs per GPU, similar runs in the same stack."""
    usual = "gpu" if gpus else "cpu"
    places = [device_of(job, device, usual, gpus > 0) for job in jobs]
    on_gpu = [(i, job) for i, job in enumerate(jobs) if places[i] == "gpu"]
    on_gpu.sort(key=lambda pair: json.dumps([pair[1].config.data, pair[1].config.train], sort_keys=True, default=repr))
    share = -(-len(on_gpu) // max(gpus, 1))
    stacks = [Batch(tuple(on_gpu[at : at + share]), stacked=True) for at in range(0, len(on_gpu), share or 1)]
    return [*stacks, *(Batch(((i, job),)) for i, job in enumerate(jobs) if places[i] == "cpu")]


class _Driver:
    """Submits batches to Ray, and writes the files that arrive into the runs' folders."""

    def __init__(self, ray: Any, batches: Sequence[Batch], room: int, stop: Stop, listen: Listener) -> None:
        self.ray, self.room, self.stop, self.listen = ray, room, stop, listen
        self.errors: dict[int, Exception] = {}
        self.waiting = deque(batches)
        self.running: dict[Any, Batch] = {}
        self.stores: dict[int, Folder] = {}  # open and locked
        self.at: dict[int, int] = {}  # the round of each run's checkpoint on this machine
        self.tries: dict[int, int] = defaultdict(int)
        self.parcels: dict[int, deque[Any]] = defaultdict(deque)  # references to those not fetched yet
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.mailbox = ray.remote(num_cpus=0, scheduling_strategy=where)(node.Mailbox).remote()

    def play(self) -> None:
        """Work until all runs are complete, or have stopped after a signal."""
        stopped = 0.0  # when the tasks were told to stop
        try:
            while self.waiting or self.running:
                if self.stop.signal is not None and not stopped:
                    stopped = time.monotonic()
                    self.waiting.clear()
                    self._stop_all()
                if stopped and time.monotonic() - stopped > PATIENCE:
                    break
                while self.waiting and len(self.running) < self.room:
                    self._submit(self.waiting.popleft())
                ready = self._ready(list(self.running), 0.1)
                self._hear()
                for reference in ready:
                    self._finish(reference)
        finally:
            for reference in self.running:
                self.ray.cancel(reference, force=True)
            for store in self.stores.values():
                store.close()
            self.ray.kill(self.mailbox)

    def _stop_all(self) -> None:
        begun = self.ray.get(self.mailbox.stop.remote())
        for reference, batch in self.running.items():
            if not any(number in begun for number, _ in batch.jobs):
                self.ray.cancel(reference, force=True)  # it has not begun

    def _submit(self, batch: Batch) -> None:
        jobs, sent = [], {}
        for number, job in batch.jobs:
            try:
                if number not in self.stores:
                    self.stores[number] = Folder(job.folder, job.config.as_dict(), job.config.checkpoint_every)
                self.at[number] = _reached(self.stores[number])
            except Exception as error:
                self._close(number, error)
                continue
            self.tries[number] += 1
            jobs.append((number, job))
            code = user_code.sources(job.config.references())
            sent[number] = node.Parcel(self.tries[number], 0, self.at[number], node.pack(job.folder), code)
        if jobs:
            batch = Batch(tuple(jobs), batch.stacked)
            variables = {"XLA_FLAGS": devices.flags(1)} if batch.stacked else devices.environment()
            options = {"num_cpus": 1, "max_retries": 0, "runtime_env": {"env_vars": variables}}
            remote = self.ray.remote(**options, num_gpus=int(batch.stacked))(node.play_on_node)
            self.running[remote.remote(batch, sent, self.mailbox)] = batch

    def _ready(self, references: list[Any], seconds: float) -> list[Any]:
        if not references:
            return []
        ready: list[Any] = self.ray.wait(references, num_returns=len(references), timeout=seconds)[0]
        return ready

    def _hear(self) -> None:
        """Report progress, and write the parcels that have arrived."""
        rounds, parcels = self.ray.get(self.mailbox.take.remote())
        for number, round in rounds.items():
            self.listen.tick(number, round)
        for number, reference in parcels:
            self.parcels[number].append(reference)
        while True:
            first = {waiting[0]: number for number, waiting in self.parcels.items() if waiting}
            ready = self._ready(list(first), 0.02)
            if not ready:
                break
            for reference in ready:
                number = first[reference]
                self.parcels[number].popleft()
                try:
                    self._take(number, self.ray.get(reference))
                except self.ray.exceptions.RayError:  # its node died; later parcels are lost, too
                    self.parcels[number].clear()

    def _take(self, number: int, parcel: node.Parcel) -> None:
        """Write new files, if they follow the checkpoint on this machine."""
        if number in self.stores and (parcel.attempt, parcel.after) == (self.tries[number], self.at[number]):
            node.unpack(self.stores[number].path, parcel.files)
            self.at[number] = parcel.round

    def _finish(self, reference: Any) -> None:
        """Handle the end of a task; its runs that are not complete continue in another task."""
        batch, errors = self.running[reference], {}
        try:
            errors = self.ray.get(reference)
            if any(self.parcels[number] for number, _ in batch.jobs):
                return  # wait for their parcels
        except self.ray.exceptions.RayTaskError as error:
            errors = dict.fromkeys(dict(batch.jobs), error.cause if isinstance(error.cause, Exception) else error)
        except self.ray.exceptions.RayError:  # its process or node died, or it was cancelled
            for number, _ in batch.jobs:
                self.parcels[number].clear()
        del self.running[reference]
        lost = []
        for number, job in batch.jobs:
            if number in errors:
                self._close(number, errors[number])
            elif self.at[number] >= job.config.rounds:
                self.stores[number].join(self.at[number])
                self._close(number)
                self.listen.tick(number, self.at[number])
            elif self.stop.signal is not None:
                self._close(number)
            elif self.tries[number] < TRIES:
                lost.append((number, job))
            else:
                self._close(number, FedpickError(_LOST))
        if lost:
            self.waiting.append(Batch(tuple(lost), batch.stacked))

    def _close(self, number: int, error: Exception | None = None) -> None:
        if number in self.stores:
            self.stores.pop(number).close()
        if error is not None:
            self.errors[number] = error


_LOST = (
    f"its process or node on the Ray cluster died {TRIES} times, perhaps because memory ran out; files that arrived "
    "before are intact. Continue with fewer workers, or on larger nodes"
)


def _reached(store: Folder) -> int:
    """The round of the checkpoint in a folder; deletes parts with later rounds, left by a killed process."""
    checkpoint = store.path / node.CHECKPOINT
    round = int(read_archive(checkpoint)[1]["round"]) if checkpoint.is_file() else 0
    store.drop_after(round)
    return round
