"""A study's jobs: each is stored as soon as it is done, and found again by its key.

    OUT/.jobs/STUDY/NAME-KEY/measured.npz      what the job measured
    OUT/.jobs/STUDY/NAME-KEY/...               if the job is a run: its manifest, tables and checkpoint

What a GPU measured is also looked for in OUT/PAPER/measured.tar.xz (see `_storage`). The key is a hash of the study's
id, the item, the version of the job's code and `Study.numbers`; for jobs that train, also of the kind of device. The
name is for human readers. A study may keep its jobs with another's (`Study.kept_with`).
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

from fedpick import store
from fedpick.core.errors import StateError, StoreError
from fedpick.experiment import executors
from fedpick_papers.studies import _storage
from fedpick_papers.studies._each import call_each
from fedpick_papers.studies._progress import Estimate, Progress
from fedpick_papers.studies._runs import Played
from fedpick_papers.studies._storage import ARCHIVE, FILE, JOBS
from fedpick_papers.studies._study import Found, Item, Job, Measurement, Reproduction, Study, canonical

__all__ = ["conduct", "folder_of", "key", "runs_of"]

log = logging.getLogger(__name__)

_NAMED = ("data", "partition", "world", "mode", "policy", "K", "m")  # fields of an item that its folder's name shows


def _about(study: Study, item: Item, kind: str) -> dict[str, Any]:
    """Everything that a measurement depends on."""
    kept = study.kept_with or study.id
    about: dict[str, Any] = {"study": kept, "version": study.version, "fedpick": study.numbers, "item": canonical(item)}
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
    """Run a study at these settings and score it; arguments as in `fedpick_papers.studies.reproduce`."""
    executor = executors.check_names(executor, device, workers)
    kind = _kind(study, executor, device)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place, _terminable():
        ledger = _Ledger(study, study.items(settings), _made(Path(place)), kind, workers, tell)
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
    return [folder for folder in dict.fromkeys(made) if (folder / store.MANIFEST).is_file()]


def _kind(study: Study, executor: str, device: str) -> str:
    """What training depends on: the kind of device, and whether runs are stacked, which changes the order of sums."""
    if not study.trains:
        return ""
    kind = executors.kind_of_device(device, executor)
    return f"{kind}, stacked" if kind == "cpu" and executor == "stacked" and isinstance(study.job, Played) else kind


def _made(out: Path) -> Path:
    """Make the folder of results, with a folder of jobs that git ignores."""
    jobs = out / JOBS
    try:
        jobs.mkdir(parents=True, exist_ok=True)
        if not (jobs / ".gitignore").exists():
            (jobs / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreError(f"{jobs}: cannot make the folder ({error.strerror or error}); choose another") from None
    return out.absolute()


class _Ledger:
    """The finished jobs and their measurements."""

    def __init__(
        self,
        study: Study,
        items: Sequence[Item],
        out: Path,
        kind: str,
        workers: int | None,
        tell: Callable[[Progress], None] | None,
    ) -> None:
        self.study, self.kind, self.workers, self._tell = study, kind, workers, tell
        self.items = list({canonical(item): item for item in items}.values())
        self.folders = [folder_of(study, item, out / JOBS, kind) for item in self.items]
        paper = (study.kept_with or study.id).partition("/")[0]
        self._packed = _storage.read_packed(out / paper / ARCHIVE) if kind == "gpu" else {}
        self.done: dict[int, Measurement] = {}
        for i in range(len(self.items)):
            kept = self._recall(i)
            if kept is not None:
                self.done[i] = kept

    def begin(self, shares: dict[int, float]) -> None:
        """Report the start; `shares` is the share of each unfinished job that is left to do."""
        self.before = len(self.done)
        costs = {i: share * self.study.cost(self.items[i]) for i, share in shares.items()}
        self.estimate = Estimate(costs, min(self.workers or executors.cores(), max(len(costs), 1)))
        self.tell()

    def keep(self, i: int, measurement: Measurement, seconds: float = 0.0) -> None:
        """Store a job's measurement, then report progress."""
        self.note(i, measurement)
        self.estimate.done(i, seconds)
        self.tell()

    def note(self, i: int, measurement: Measurement) -> None:
        """Store a job's measurement."""
        _storage.write(self.folders[i] / FILE, measurement, _about(self.study, self.items[i], self.kind))
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
        """The stored measurement of a job, if it is intact: from its own file, or from the paper's archive."""
        folder, about = self.folders[i], _about(self.study, self.items[i], self.kind)
        packed = self._packed.get(f"{folder.parent.name}/{folder.name}")
        if packed is None and not (folder / FILE).is_file():
            return None
        try:
            return _storage.read(folder / FILE, about, packed)
        except StateError as error:
            log.warning("%s; it is measured again", error)
            return None


def _play(ledger: _Ledger, job: Played, executor: str) -> None:
    """Execute the runs that are missing or incomplete, and read each as soon as it is complete."""
    runs = {i: executors.Job(job.config(ledger.items[i]), ledger.folders[i]) for i in ledger.missing()}

    def is_over(i: int) -> bool:
        return store.is_over(ledger.folders[i], runs[i].config.rounds)

    if ledger.study.trains and runs:  # what is stored needs no device
        executors.take_device(ledger.kind.partition(",")[0])
    for i in runs:
        if is_over(i):  # an earlier call was stopped between the run and its reading
            ledger.note(i, job.read(ledger.items[i], ledger.folders[i]))
    todo = ledger.missing()
    behind = {i: store.reached(ledger.folders[i]) for i in todo}
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
        call_each(_timed, work, workers=ledger.workers, executor=how, on_result=keep)


def _timed(work: tuple[Job, Item, str, str]) -> tuple[float, Measurement]:
    """One job, perhaps in another process: its duration and its measurement."""
    job, item, folder, kind = work
    if kind:
        executors.take_device(kind.partition(",")[0])
    since = time.perf_counter()
    measurement = job(item, Path(folder))
    return time.perf_counter() - since, measurement


@contextmanager
def _terminable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a job that is a function at once; runs finish their round first."""
    with executors.patient() as stop, stop.at_once():
        yield
