"""A study's jobs: each is stored as soon as it is done, and found again by its key.

    OUT/.jobs/STUDY/NAME-KEY/measured.npz      what the job measured
    OUT/.jobs/STUDY/NAME-KEY/...               if the job is a run: its manifest, tables and checkpoint

The key is a hash of the study's id, the item, the version of the job's code and fedpick's minor version; for jobs that
train, also of the kind of device. The name is for human readers. A study may keep its jobs with another's
(`Study.kept_with`).
"""

import hashlib
import json
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fedpick._support import atomic, devices
from fedpick._version import __version__
from fedpick.core.errors import MissingError, StateError, StoreError
from fedpick.experiment import executors
from fedpick.experiment.executors import patient
from fedpick.store.manifest import MANIFEST
from fedpick.store.tables import covers, reached
from fedpick.studies import _kept
from fedpick.studies._progress import Estimate, Progress
from fedpick.studies._runs import Played
from fedpick.studies._study import Found, Item, Job, Measurement, Reproduction, Study, canonical

__all__ = ["JOBS", "conduct", "folder_of", "key", "runs_of"]

log = logging.getLogger(__name__)

JOBS = ".jobs"
FILE = "measured.npz"
_NAMED = ("data", "partition", "world", "mode", "policy", "K", "m")  # fields that readers look for


def _about(study: Study, item: Item, kind: str) -> dict[str, Any]:
    """Everything that a measurement depends on."""
    minor = ".".join(__version__.split(".")[:2])
    kept = study.kept_with or study.id
    about: dict[str, Any] = {"study": kept, "version": study.version, "fedpick": minor, "item": canonical(item)}
    return about | ({"device": kind} if study.trains else {})


def key(study: Study, item: Item, kind: str = "cpu") -> str:
    """A job's key, equal only for equal work.

    Args:
        study: of the job.
        item: of the job.
        kind: of device.
    """
    return hashlib.sha256(json.dumps(_about(study, item, kind), sort_keys=True).encode()).hexdigest()[:16]


def folder_of(study: Study, item: Item, jobs: Path, kind: str = "cpu") -> Path:
    """The folder of a job."""
    words = [f"{name}={item[name]}" if name in ("K", "m") else str(item[name]) for name in _NAMED if name in item]
    name = re.sub(r"[^A-Za-z0-9.=_]+", "-", " ".join(words))[:80].strip("-") or "job"
    seed = f"-seed-{item['seed']}" if "seed" in item else ""
    return jobs / (study.kept_with or study.id) / f"{name}{seed}-{key(study, item, kind)}"


def conduct(
    study: Study,
    settings: dict[str, Any],
    *,
    workers: int | None = None,
    executor: str = "auto",
    device: str = "auto",
    out: Path | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Run a study at these settings and score it; arguments as in `fedpick.studies.reproduce`."""
    executor = executors.check_names(executor, device, workers)
    kind = _kind(study, executor, device)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place, _terminable():
        ledger = _Ledger(study, study.items(settings), _made(Path(place) / JOBS), kind, workers, tell)
        if isinstance(study.job, Played):
            _play(ledger, study.job, executor)
        else:
            _call(ledger, study.job, executor)
        found = Found((item, ledger.done[i]) for i, item in enumerate(ledger.items))
    # Through JSON, so that a result scores and plots the same when it is read back from its file.
    result = json.loads(json.dumps(study.gather(settings, found)))
    return Reproduction(study, settings, result, study.score(result))


def runs_of(
    study: Study, settings: dict[str, Any], out: Path, executor: str = "auto", device: str = "auto"
) -> list[Path]:
    """The folders of the runs that a study has made, in the order of its items; none if its jobs are no runs."""
    if not isinstance(study.job, Played):
        return []
    kind = _kind(study, executors.check_names(executor, device), device)
    made = [folder_of(study, item, out / JOBS, kind) for item in study.items(settings)]
    return [folder for folder in dict.fromkeys(made) if (folder / MANIFEST).is_file()]


def _kind(study: Study, executor: str, device: str) -> str:
    """What training depends on: the kind of device, and whether runs are stacked, which changes the order of sums."""
    if not study.trains:
        return ""
    gpu = device == "gpu" or (device == "auto" and executor != "processes" and devices.gpu_there())
    return "gpu" if gpu else "cpu, stacked" if executor == "stacked" and isinstance(study.job, Played) else "cpu"


def _made(jobs: Path) -> Path:
    """The folder of all jobs, with a .gitignore that keeps it out of repositories."""
    try:
        jobs.mkdir(parents=True, exist_ok=True)
        if not (jobs / ".gitignore").exists():
            atomic.write_text(jobs / ".gitignore", "*\n")
    except OSError as error:
        raise StoreError(f"{jobs}: cannot make the folder ({error.strerror or error}); choose another") from None
    return jobs.absolute()


class _Ledger:
    """The finished jobs and their measurements."""

    def __init__(
        self,
        study: Study,
        items: Sequence[Item],
        jobs: Path,
        kind: str,
        workers: int | None,
        tell: Callable[[Progress], None] | None,
    ) -> None:
        self.study, self.kind, self.workers, self._tell = study, kind, workers, tell
        self.items = list({canonical(item): item for item in items}.values())
        self.folders = [folder_of(study, item, jobs, kind) for item in self.items]
        self.done: dict[int, Measurement] = {}
        for i in range(len(self.items)):
            kept = self._recall(i)
            if kept is not None:
                self.done[i] = kept

    def begin(self, shares: dict[int, float]) -> None:
        """Report the start; `shares` is the share of each unfinished job that is left to do."""
        self.before = len(self.done)
        costs = {i: share * self.study.cost(self.items[i]) for i, share in shares.items()}
        self.estimate = Estimate(costs, min(self.workers or devices.cores(), max(len(costs), 1)))
        self.tell()

    def keep(self, i: int, measurement: Measurement, seconds: float = 0.0) -> None:
        """Store a job's measurement, then report progress."""
        self.note(i, measurement)
        self.estimate.done(i, seconds)
        self.tell()

    def note(self, i: int, measurement: Measurement) -> None:
        """Store a job's measurement."""
        _kept.write(self.folders[i] / FILE, measurement, _about(self.study, self.items[i], self.kind))
        self.done[i] = measurement

    def tell(self) -> None:
        """Report progress."""
        if self._tell:
            now = Progress(self.study.id, len(self.done), len(self.items), self.before, self.estimate.left())
            self._tell(now)

    def missing(self) -> list[int]:
        """The jobs that are not done."""
        return [i for i in range(len(self.items)) if i not in self.done]

    def _recall(self, i: int) -> Measurement | None:
        """The stored measurement of a job, if it is intact."""
        path = self.folders[i] / FILE
        if not path.is_file():
            return None
        try:
            return _kept.read(path, _about(self.study, self.items[i], self.kind))
        except StateError as error:
            log.warning("%s; it is measured again", error)
            return None


def _play(ledger: _Ledger, job: Played, executor: str) -> None:
    """Execute the runs that are missing or incomplete, and read each as soon as it is complete."""
    runs = {i: executors.Job(job.config(ledger.items[i]), ledger.folders[i]) for i in ledger.missing()}

    def is_over(i: int) -> bool:
        whole = ledger.folders[i] / "rounds.parquet"
        return whole.is_file() and covers(whole) >= runs[i].config.rounds

    if ledger.study.trains and runs:  # what is stored needs no device
        _take(ledger.kind)
    for i in runs:
        if is_over(i):  # the study was stopped before it was read
            ledger.note(i, job.read(ledger.items[i], ledger.folders[i]))
    todo = ledger.missing()
    behind = {i: reached(ledger.folders[i]) if ledger.folders[i].is_dir() else 0 for i in todo}
    ledger.begin({i: 1.0 - behind[i] / runs[i].config.rounds for i in todo})

    def read(i: int) -> None:
        ledger.keep(i, job.read(ledger.items[i], ledger.folders[i]))

    def hear(number: int, rounds: int) -> None:
        i = todo[number]
        if i in ledger.done:
            return
        whole = runs[i].config.rounds
        if rounds >= whole and is_over(i):
            read(i)
        elif whole > behind[i]:
            ledger.estimate.reach(i, min((rounds - behind[i]) / (whole - behind[i]), 0.999))
            ledger.tell()

    if todo:
        device = {"": "auto", "gpu": "gpu"}.get(ledger.kind, "cpu")
        jobs = [runs[i] for i in todo]
        executors.play(jobs, executor=executor, workers=ledger.workers, device=device, tell=hear)
    for i in ledger.missing():
        read(i)


def _call(ledger: _Ledger, job: Job, executor: str) -> None:
    """Call the job's function for the missing jobs."""
    todo = ledger.missing()
    gpu = ledger.kind == "gpu" and executor != "ray"
    if gpu:
        ledger.workers = 1  # each process would reserve the GPU's memory
    ledger.begin(dict.fromkeys(todo, 1.0))

    def keep(number: int, result: tuple[float, Measurement]) -> None:
        ledger.keep(todo[number], result[1], result[0])

    if todo:
        work = [(job, ledger.items[i], str(ledger.folders[i]), ledger.kind) for i in todo]
        how = "serial" if gpu else executor
        executors.each(_timed, work, workers=ledger.workers, executor=how, on_result=keep)


def _timed(work: tuple[Job, Item, str, str]) -> tuple[float, Measurement]:
    """One job, perhaps in another process: its duration and its measurement."""
    job, item, folder, kind = work
    if kind:
        _take(kind)
    since = time.perf_counter()
    measurement = job(item, Path(folder))
    return time.perf_counter() - since, measurement


def _take(kind: str) -> None:
    """Use this kind of device for training in this process, or raise."""
    wanted = kind.partition(",")[0]
    if wanted == "cpu":
        devices.stay_on_cpu()
    found = devices.describe().partition(":")[0]
    if found in ("cpu", "gpu") and found != wanted:
        raise MissingError(
            f"this study should train on the {wanted}, but JAX uses the {found} here; "
            + ("use --device cpu, or install jax[cuda12]" if found == "cpu" else "start a new process for --device cpu")
        )


@contextmanager
def _terminable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a job that is a function at once; runs finish their round first."""
    with patient() as stop, stop.at_once():
        yield
