"""Plays tests in forks of a process that has loaded what they need: a mutant costs a fork and its tests.

`serve.py collected` has imported all quick tests and the library: a mutant inside functions is patched into the fork.
`serve.py bare` has imported only the packages of others: the fork imports the changed module and some files of tests,
as is needed for what a module does while it is imported (constants, defaults, classes).

Each line of the standard input is a request, each line of the standard output the answer, in JSON.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from swapped import swap  # noqa: E402

ROOT = HERE.parent.parent
KEPT = ROOT / ".cache" / "mutants"
QUICK = ["-q", "-m", "not slow", "-p", "mutants_plugin", "-p", "no:cacheprovider"]
QUICK += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are imported before
LONG = 30  # seconds of processor time after which a single quick test counts as endless
COMPILING = 120  # seconds more where Numba compiles what was changed
STILL = 60  # seconds without any processor time, after which a process that does not want any counts as stuck
Request = dict[str, Any]
answer_to = -1  # in a fork: where its answer is written


def functions(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """All code inside, by its name and how many of that name came before."""
    counts: dict[str, int] = {}

    def walk(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                counts[inner.co_qualname] = counts.get(inner.co_qualname, -1) + 1
                yield (inner.co_qualname, counts[inner.co_qualname]), inner
                yield from walk(inner)

    yield from walk(code)


def alike(one: CodeType, other: CodeType, deep: bool = True) -> bool:
    """Do both the same, wherever they are in the file? Not `deep`: but for what is in functions and classes inside."""
    fields = "co_code co_names co_varnames co_freevars co_cellvars co_flags co_argcount co_exceptiontable"
    if any(getattr(one, name) != getattr(other, name) for name in fields.split()):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for left, right in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(left, CodeType) and isinstance(right, CodeType):
            if left.co_qualname != right.co_qualname or (deep and not alike(left, right)):
                return False
        elif type(left) is not type(right) or (repr(left) != repr(right) and left != right):
            return False
    return True


def replaced(before: CodeType, after: CodeType) -> dict[CodeType, CodeType] | None:
    """Code of functions to be put in place of another; None if what runs at import differs."""
    if not alike(before, after, deep=False):
        return None
    old, new = dict(functions(before)), dict(functions(after))
    found = {}
    for name, code in old.items():
        at_import = not code.co_flags & 1  # CO_OPTIMIZED: a function
        if name not in new or (at_import and not alike(code, new[name], deep=False)):
            if not at_import:
                continue  # inside a function that has lost it
            return None
        if not at_import and not alike(code, new[name]):
            if code.co_freevars != new[name].co_freevars:
                return None
            found[code] = new[name]
    return found


def compiled(source: str, path: str) -> CodeType:
    return compile(source, str(ROOT / path), "exec", dont_inherit=True)


def patch(request: Request) -> None:
    """Give all functions of a changed module their new code."""
    found = replaced(compiled(request["before"], request["path"]), compiled(request["after"], request["path"]))
    assert found is not None
    gc.unfreeze()
    for each in gc.get_objects():
        # isinstance() would look through weak references, whose object may be gone
        if issubclass(type(each), FunctionType) and (code := found.get(each.__code__)) is not None:
            each.__code__ = code
    gc.freeze()


class Play:
    """Plays the requested ones of the collected tests until one fails."""

    def __init__(self, request: Request | None = None) -> None:
        self.request, self.failed, self.answer = request, "", {"result": "failed", "by": "collection"}
        self.more = 0  # seconds, to compile

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.request is None:
            serve(lambda request: self.learn(session, request) if "learn" in request else self.play(session, request))
        elif not session.testsfailed:
            self.answer = self.play(session, self.request)
        return True

    def play(self, session: pytest.Session, request: Request) -> dict[str, Any]:
        """Stop at the first failure, or when the time is over."""
        files, chosen = defaultdict[str, list[pytest.Item]](list), list[pytest.Item]()
        for item in session.items:
            files[item.nodeid.split("::")[0]].append(item)
        for file, tests in request["tests"].items():
            chosen += [item for item in files[file] if tests is None or item.nodeid in tests]
        started, self.more = time.process_time(), COMPILING * request["native"]
        for at, item in enumerate(chosen):
            if time.process_time() - started > request["most"] + self.more:
                return {"result": "passed", "cut": len(chosen) - at}
            if item.nodeid in request["skip"]:
                continue
            self.one(item, chosen[at + 1] if at + 1 < len(chosen) else None)
            if self.failed:
                return {"result": "failed", "by": self.failed}
        return {"result": "passed", "cut": 0}

    def one(self, item: pytest.Item, following: pytest.Item | None) -> float:
        """Play a test; the process ends if that takes too long."""
        signal.setitimer(signal.ITIMER_PROF, LONG + self.more)
        started = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return time.process_time() - started

    def learn(self, session: pytest.Session, request: Request) -> dict[str, Any]:
        """Write how long each test of a file takes, and which lines it reaches."""
        from coverage import Coverage

        cover = Coverage(data_file=request["data"], include=[f"{ROOT}/src/*"], config_file=False)
        items = [item for item in session.items if item.nodeid.split("::")[0] == request["learn"]]
        seconds: dict[str, float | None] = {}
        cover.start()
        for item, following in zip(items, [*items[1:], None], strict=False):
            cover.switch_context(item.nodeid)
            took, self.failed = self.one(item, following), ""
            seconds[item.nodeid] = took
        cover.stop()
        cover.save()
        Path(request["data"]).with_suffix(".json").write_text(json.dumps(seconds))
        return {"result": "passed", "cut": 0}


def prepare(request: Request) -> None:
    """In the fork: the mutant, also for processes that tests start, and a place of its own for what is compiled."""
    signal.signal(signal.SIGPROF, too_long)
    if "learn" in request:
        return
    if request["native"]:
        import numba

        numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()
    if request["after"] is not None:
        file, source = str(ROOT / request["path"]), request["after"]
        change = Path(tempfile.mkdtemp()) / "change.json"
        change.write_text(json.dumps({"file": file, "source": source}))
        os.environ["FEDPICK_MUTANTS_CHANGE"] = str(change)  # sitecustomize.py reads it
        if request["way"] == "patch":
            patch(request)
        else:
            swap(file, source)


def too_long(*_: object) -> None:
    os.write(answer_to, json.dumps({"result": "failed", "by": "time"}).encode())
    os._exit(0)


def alone(request: Request) -> dict[str, Any]:
    """Collect the files that are asked for, and play them."""
    play = Play(request)
    # pytest would itself load a module whose examples are asked for, to rewrite its asserts, and see no mutant
    pytest.main([*QUICK, "--assert=plain", *request["tests"]], plugins=[play])
    return play.answer


def ticks(group: int) -> tuple[int, bool]:
    """Processor time of a group of processes in hundredths of a second, and whether one of them could run."""
    total, runs = 0, False
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            if place.name.isdigit():
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    total, runs = total + sum(map(int, fields[11:15])), runs or fields[0] in "RD"
    return total, runs


def supervised(work: Callable[[], dict[str, Any]], limit: float) -> dict[str, Any]:
    """Do this in a fork, for at most so many seconds of processor time."""
    read, write = os.pipe()
    place = tempfile.mkdtemp(prefix="fp-m-")
    child = os.fork()
    if not child:
        global answer_to
        answer_to = write
        os.setsid()
        os.environ["TMPDIR"], tempfile.tempdir = place, place
        answer: dict[str, Any] = {"result": "failed", "by": "the process"}
        try:
            answer = work()
        except BaseException as error:
            answer = {"result": "failed", "by": f"the process: {error!r}"[:200]}
        finally:
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
    os.close(write)
    used, since, late = 0, time.monotonic(), False
    while not (ready := select.select([read], [], [], 0.5)[0]):
        now, runs = ticks(child)
        if now > used or runs:
            used, since = now, time.monotonic()
        if late := now > 100 * limit or time.monotonic() - since > STILL:
            break
    said = b"" if late or not ready else os.read(read, 65536)
    used = max(used, ticks(child)[0])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    os.close(read)
    shutil.rmtree(place, ignore_errors=True)
    if late:
        return {"result": "failed", "by": "time", "seconds": used / 100}
    return {**(json.loads(said) if said else {"result": "failed", "by": "the process ended"}), "seconds": used / 100}


def forkable() -> None:
    """Fail where JAX has made its threads, which a fork lacks: its tests would then wait for ever."""
    jax = sys.modules.get("jax._src.xla_bridge")
    assert jax is None or not jax.backends_are_initialized(), "a file of tests uses JAX while it is imported"


def serve(play: Callable[[Request], dict[str, Any]]) -> None:
    """Answer requests until there are no more."""
    forkable()
    answers = os.fdopen(int(os.environ["FEDPICK_MUTANTS_ANSWERS"]), "w")
    requests = os.fdopen(int(os.environ["FEDPICK_MUTANTS_REQUESTS"]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in iter(requests.readline, ""):
        request = json.loads(line)

        def work(request: Request = request) -> dict[str, Any]:
            prepare(request)
            return play(request)

        print(json.dumps(supervised(work, request["limit"])), file=answers, flush=True)


def loaded() -> list[str]:
    """Which modules of others are there."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    return [name for name, file in files.items() if "site-packages" in file and not file.startswith(str(ROOT / "src"))]


def main() -> None:
    """Load, then serve."""
    kept = KEPT / "loaded.json"
    if sys.argv[1] == "collected":
        from coverage import Coverage

        cover = Coverage(data_file=None, include=[f"{ROOT}/src/*"], config_file=False)

        class Collected(Play):
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtestloop(self, session: pytest.Session) -> bool:
                cover.stop()
                data = cover.get_data()
                lines = {str(Path(file).relative_to(ROOT)): data.lines(file) for file in data.measured_files()}
                tests = [item.nodeid for item in session.items]
                flags = os.environ.get("XLA_FLAGS", "")
                kept.write_text(json.dumps({"modules": loaded(), "flags": flags, "at_import": lines, "tests": tests}))
                return super().pytest_runtestloop(session)

        cover.start()
        pytest.main([*QUICK, "--continue-on-collection-errors"], plugins=[Collected()])
        return
    there = json.loads(kept.read_text())
    os.environ["XLA_FLAGS"] = there["flags"]
    for name in there["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(alone)


if __name__ == "__main__":
    main()
