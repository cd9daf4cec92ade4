"""A study's jobs: each is kept as soon as it is done, and found again by what it is.

    OUT/.jobs/STUDY/NAME-KEY/measured.npz      what the job measured
    OUT/.jobs/STUDY/NAME-KEY/...               where the job is a run: its manifest, tables and checkpoint

The key is made of the study's id, the item, the version of the job's code and fedpick's minor version; for jobs that
train, of the kind of device, too. The name is for readers.
"""

import hashlib
import importlib.util
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from fedpick import atomic
from fedpick._version import __version__
from fedpick.errors import MissingError, StateError, StoreError, unknown_name
from fedpick.experiment import executors
from fedpick.studies import _kept
from fedpick.studies._progress import Estimate, Progress
from fedpick.studies._study import Found, Item, Job, Measurement, Reproduction, Settings, Study, canonical

__all__ = ["DEVICES", "JOBS", "conduct", "folder_of", "key"]

log = logging.getLogger(__name__)

JOBS = ".jobs"
FILE = "measured.npz"
DEVICES = ("auto", "cpu", "gpu")
_NAMED = ("problem", "data", "partition", "world", "mode", "policy", "K", "m", "seed")  # fields that readers look for


def _about(study: Study, item: Item, kind: str) -> dict[str, Any]:
    """All that a measurement goes by."""
    minor = ".".join(__version__.split(".")[:2])
    about: dict[str, Any] = {"study": study.id, "version": study.version, "fedpick": minor, "item": canonical(item)}
    return about | ({"device": kind} if study.trains else {})


def key(study: Study, item: Item, kind: str = "cpu") -> str:
    """A job's key: the same for the same work, another for any other.

    Args:
        study: whose job it is.
        item: which.
        kind: of device.
    """
    return hashlib.sha256(json.dumps(_about(study, item, kind), sort_keys=True).encode()).hexdigest()[:16]


def folder_of(study: Study, item: Item, jobs: Path, kind: str = "cpu") -> Path:
    """Where a job is kept."""
    words = [f"{name}-{item[name]}" if name in ("K", "m", "seed") else item[name] for name in _NAMED if name in item]
    name = re.sub(r"[^A-Za-z0-9.=_]+", "-", " ".join(map(str, words))).strip("-")[:80]
    return jobs / study.id / f"{name or 'job'}-{key(study, item, kind)}"


def conduct(
    study: Study,
    settings: dict[str, Any],
    *,
    workers: int | None = None,
    executor: str = "local",
    device: str = "auto",
    out: Path | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Run a study at these settings and score it; arguments as in `fedpick.studies.reproduce`."""
    if device not in DEVICES:
        raise unknown_name("device", device, list(DEVICES))
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place, _terminable():
        found = _measure(study, settings, _made(Path(place) / JOBS), workers, executor, device, tell)
    # Through JSON, so that a result scores and plots the same when it is read back from its file.
    result = json.loads(json.dumps(study.gather(settings, found)))
    return Reproduction(study, settings, result, study.score(result))


def _made(jobs: Path) -> Path:
    """The folder of all jobs, which no repository should take in."""
    try:
        jobs.mkdir(parents=True, exist_ok=True)
        if not (jobs / ".gitignore").exists():
            atomic.write_text(jobs / ".gitignore", "*\n")
    except OSError as error:
        raise StoreError(f"{jobs}: cannot make the folder ({error.strerror or error}); choose another") from None
    return jobs.absolute()


def _measure(
    study: Study,
    settings: Settings,
    jobs: Path,
    workers: int | None,
    executor: str,
    device: str,
    tell: Callable[[Progress], None] | None,
) -> Found:
    """Do the jobs that are not done yet."""
    kind = _kind(device)
    items = list({canonical(item): item for item in study.items(settings)}.values())
    folders = [folder_of(study, item, jobs, kind) for item in items]
    abouts = [_about(study, item, kind) for item in items]
    done: dict[int, Measurement] = {}
    for i, folder in enumerate(folders):
        kept = _recall(folder / FILE, abouts[i])
        if kept is not None:
            done[i] = kept
    todo = [i for i in range(len(items)) if i not in done]
    before, costs = len(done), {i: study.cost(items[i]) for i in todo}
    if study.trains and kind == "gpu" and executor == "local":
        workers = workers or 1  # each process would claim the GPU
    estimate = Estimate(list(costs.values()), min(workers or os.cpu_count() or 1, max(len(todo), 1)))

    def told() -> None:
        if tell:
            tell(Progress(study.id, len(done), len(items), before, estimate.left()))

    def keep(position: int, result: tuple[float, Measurement]) -> None:
        i, (seconds, measurement) = todo[position], result
        _kept.write(folders[i] / FILE, measurement, abouts[i])
        done[i] = measurement
        estimate.done(costs[i], seconds)
        told()

    told()
    if todo:
        work = [(study.job, items[i], str(folders[i]), device if study.trains else None) for i in todo]
        executors.each(_do, work, workers=workers, executor=executor, on_result=keep)
    return Found((items[i], done[i]) for i in range(len(items)))


def _recall(path: Path, about: dict[str, Any]) -> Measurement | None:
    """What was measured before, if that is whole."""
    if not path.is_file():
        return None
    try:
        return _kept.read(path, about)
    except StateError as error:
        log.warning("%s; it is measured anew", error)
        return None


def _do(work: tuple[Job, Item, str, str | None]) -> tuple[float, Measurement]:
    """One job, perhaps in a process of its own: how long it took, and what it measured."""
    job, item, folder, device = work
    if device is not None:
        _take(device)
    since = time.perf_counter()
    Path(folder).mkdir(parents=True, exist_ok=True)
    measurement = job(item, Path(folder))
    return time.perf_counter() - since, measurement


def _kind(device: str) -> str:
    """The kind of device that is meant; JAX is not asked, since it would claim the GPU."""
    if device != "auto":
        return device
    there = Path("/dev/nvidia0").exists() and "cpu" not in os.environ.get("JAX_PLATFORMS", "")
    plugins = any(importlib.util.find_spec(f"jax_cuda{number}_plugin") for number in (12, 13))
    return "gpu" if there and plugins else "cpu"


def _take(device: str) -> None:
    """Train on this kind of device, or say that it is not there."""
    if "jax" not in sys.modules and device != "auto":
        os.environ["JAX_PLATFORMS"] = "cpu" if device == "cpu" else "cuda"
    import jax

    wanted = _kind(device)
    try:
        backend = jax.default_backend()
    except RuntimeError as error:
        raise MissingError(f"device = {device!r}: JAX cannot use it ({error}); use --device cpu") from None
    if backend in ("cpu", "gpu") and backend != wanted:
        raise MissingError(
            f"device = {device!r}: JAX uses {backend} here, not {wanted}; install jax[cuda12], or use --device "
            f"{backend}"
        )


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, so that processes save what they have."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
