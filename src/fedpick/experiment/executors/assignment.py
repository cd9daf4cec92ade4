"""Where each run is executed: by executor, by device, and by the device that it was begun on."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedpick._support import devices
from fedpick.core.errors import MissingError, SettingError, StoreError, require, unknown_name
from fedpick.experiment.config import Config
from fedpick.experiment.executors.batch import Batch
from fedpick.experiment.executors.job import Job
from fedpick.store.manifest import MANIFEST, last_entry, read_manifest
from fedpick.store.parquet import covers

__all__ = [
    *("EXECUTORS", "Assignment", "assign", "begun_on", "check_names", "device_of", "kind_of_device", "processes_for"),
    "take_device",
]

EXECUTORS = ("auto", "serial", "processes", "stacked", "ray")
SMALL = 50_000  # rounds times clients, without training: done before another process has started


@dataclass(frozen=True)
class Assignment:
    """Batches, and whether this process executes them or `workers` others."""

    batches: tuple[Batch, ...]
    here: bool
    workers: int = 1


def check_names(executor: str, device: str = "auto", workers: int | None = None) -> str:
    """The executor's name; raises for unknown names and invalid numbers."""
    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, list(EXECUTORS))
    if device not in devices.DEVICES:
        raise unknown_name("device", device, list(devices.DEVICES))
    whole = isinstance(workers, int) and workers >= 1
    require(workers is None or whole, "workers", workers, "a number of processes >= 1", "None is one per core")
    if executor == "processes" and device == "gpu":
        raise SettingError(
            "executor = 'processes' with device = 'gpu': processes cannot share a GPU; use 'stacked', which executes "
            "many runs in one process, or 'serial'"
        )
    return executor


def kind_of_device(device: str, executor: str = "auto") -> str:
    """The kind of device, "cpu" or "gpu", that models are trained on; found out without JAX.

    Args:
        device: "cpu", "gpu", or "auto" for a GPU if there is one.
        executor: several processes cannot share a GPU.
    """
    gpu = device == "gpu" or (device == "auto" and executor != "processes" and devices.gpu_there())
    return "gpu" if gpu else "cpu"


def take_device(kind: str) -> None:
    """Train on this kind of device ("cpu" or "gpu") in this process, or raise."""
    if kind == "cpu":
        devices.stay_on_cpu()
    found = devices.describe().partition(":")[0]
    if found in ("cpu", "gpu") and found != kind:
        raise MissingError(
            f"models should be trained on the {kind}, but JAX uses the {found} here; "
            + ("use --device cpu, or install jax[cuda12]" if found == "cpu" else "start a new process for --device cpu")
        )


def begun_on(job: Job) -> str | None:
    """The kind of device on which an unfinished run was last executed; None if it has not begun or it is unknown."""
    if job.config.data is None or not (job.folder / MANIFEST).is_file():
        return None
    whole = job.folder / "rounds.parquet"
    finished = whole.is_file() and covers(whole) >= job.config.rounds
    if finished or not (job.folder / "checkpoint.npz").is_file():
        return None
    about = read_manifest(job.folder).get("about")
    device = about.get("device") if isinstance(about, dict) else None
    return last_entry(device).partition(":")[0] if isinstance(device, str) else None


def device_of(job: Job, device: str, usual: str, gpu: bool) -> str:
    """The device for a run: "cpu" or "gpu".

    Args:
        job: the run.
        device: the user's setting.
        usual: what "auto" means for a new run.
        gpu: whether there is a GPU.
    """
    if job.config.data is None:
        return "cpu"
    if device != "auto":
        return device
    begun = begun_on(job)
    if begun == "gpu" and not gpu:
        raise StoreError(
            f"{job.folder}: was begun on a GPU, and there is none here; on a CPU, later rounds would be rounded "
            "differently. Continue on a machine with a GPU, or accept the difference with --device cpu"
        )
    return begun if begun in ("cpu", "gpu") else usual


def assign(jobs: Sequence[Job], executor: str, device: str, workers: int | None) -> list[Assignment]:
    """Distribute jobs over the devices and processes of this machine."""
    gpu = devices.gpu_there()
    if device == "gpu" and not gpu:
        raise MissingError(
            "--device gpu, but JAX finds no GPU: on a machine with one, pip install 'jax[cuda12]' and do not set "
            "JAX_PLATFORMS or CUDA_VISIBLE_DEVICES; or use --device cpu"
        )
    if executor == "auto" and (workers == 1 or (workers is None and _is_small(jobs))):
        executor = "serial"
    usual = "gpu" if gpu and executor != "processes" else "cpu"
    places = [device_of(job, device, usual, gpu) for job in jobs]
    on_gpu = tuple((i, job) for i, job in enumerate(jobs) if places[i] == "gpu")
    train = tuple((i, job) for i, job in enumerate(jobs) if places[i] == "cpu" and job.config.data is not None)
    others = tuple((i, job) for i, job in enumerate(jobs) if job.config.data is None)
    found = []
    if train and executor == "stacked":
        found.append(_on_cpu([Batch(train, stacked=True)], 1, apart=gpu))
        train = ()
    rest = [Batch((pair,)) for pair in (*train, *others)]
    if rest:
        count = 1 if executor == "serial" else min(workers or devices.cores(), len(rest))
        found.append(_on_cpu(rest, count, apart=gpu and bool(train)))
    if on_gpu:
        found.append(Assignment((Batch(on_gpu, stacked=executor != "serial"),), here=True))
    return found


def processes_for(configs: Sequence[Config], executor: str, device: str, workers: int | None) -> int:
    """How many processes `assign` will use for runs that train; 0 if that depends on each run."""
    gpu = device != "cpu" and executor != "processes" and devices.gpu_there()
    if gpu or executor not in ("auto", "processes") or not any(config.data is not None for config in configs):
        return 0
    count = min(workers or devices.cores(), len(configs))
    return count if count > 1 else 0


def _is_small(jobs: Sequence[Job]) -> bool:
    """Whether nothing is trained, and all runs together take less time than the start of a process."""
    sizes = (job.config.rounds * int(job.config.world.get("num_clients", 100)) for job in jobs)
    return all(job.config.data is None for job in jobs) and sum(sizes) <= SMALL


def _on_cpu(batches: Sequence[Batch], count: int, apart: bool) -> Assignment:
    """Batches on CPU cores; `apart`: not in this process, because JAX would use a GPU in it."""
    return Assignment(tuple(batches), here=count <= 1 and not apart, workers=max(count, 1))
