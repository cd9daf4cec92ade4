"""`make mutants`: would the tests notice? Changes one place of the library at a time, plays what reaches it.

python tests/mutants/mutants.py --seed 7                   # 300 mutants of all rooms, drawn by this number
python tests/mutants/mutants.py --seed 7 --rooms policies sampling --count 100
python tests/mutants/mutants.py --seed 7 --out mutants.jsonl --seconds 500   # is continued by the same command
python tests/mutants/mutants.py --report mutants.jsonl     # only the rates, from what was written before

First (once for each state of the sources) the quick tests are played unchanged, to learn which of them reach which
function. A mutant gets the tests that reach its function: those of its own room first, then, if all of these pass, the
others. It is killed if a test fails or if they take much too long. Who survives is listed; a survivor that changes
nothing that could be noticed is written into judged.toml with the reason, and counts no longer.
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
from changes import Mutant, everything, functions_of  # noqa: E402

KEPT = ROOT / ".cache" / "mutants"
COPIED = ("src", "tests", "papers", "examples", "conftest.py", "pyproject.toml")
HOMES = {"adapters": ("adapters", "flower"), "flower": ("flower", "adapters"), "nvflare": ("adapters",)}
PATIENCE = 5.0  # times the usual seconds of the tests, after which a mutant counts as killed


def make_tree(place: Path) -> None:
    """The repository as links, but for what tests write beside and what is changed."""
    place.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name in COPIED:
            how = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(path, place / path.name, ignore=how) if path.is_dir() else shutil.copy2(path, place)
        elif path.name not in (".git", ".cache") and not path.name.startswith(".venv"):
            (place / path.name).symlink_to(path)


def environment(tree: Path, **more: str) -> dict[str, str]:
    """What pytest finds: the tree's sources first, no GPU, one thread where that can be said."""
    before = [str(tree / "src"), str(tree / "papers/src"), str(HERE)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FEDPICK_MUTANTS")}
    kept["PYTHONPATH"] = os.pathsep.join([*before, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return {**kept, **threads, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", **more}


PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "mutants_plugin", "-p", "no:cacheprovider"]


@dataclass
class Suite:
    """What is known about the quick tests: which of them pass, how long each takes, and what they reach."""

    seconds: dict[str, float]
    known: list[str]
    reach: dict[str, dict[str, list[str]]]  # tests by file and function; "" is what a module does when it is imported

    @classmethod
    def learn(cls, workers: int) -> "Suite":
        """Play all quick tests of an unchanged copy, whose compiled code is kept for the mutants."""
        template, ended, reach = KEPT / "template", KEPT / "ended.json", KEPT / "reach.json.gz"
        shutil.rmtree(template, ignore_errors=True)
        make_tree(template)
        cover = [] if reach.exists() else ["--cov", "--cov-context=test", "--cov-report="]
        data = KEPT / "coverage"
        spread = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
        env = environment(template, FEDPICK_MUTANTS_ENDED=str(ended), COVERAGE_FILE=str(data))
        subprocess.run(
            [*PYTEST, *spread, *cover, "--continue-on-collection-errors"], cwd=template, env=env, check=False
        )
        if cover:
            reach.write_bytes(gzip.compress(json.dumps(_reach(data, template)).encode()))
        return cls.load()

    @classmethod
    def load(cls) -> "Suite":
        """As learnt before."""
        ended = json.loads((KEPT / "ended.json").read_text())
        seconds = {test: value for test, value in ended.items() if value is not None}
        return cls(seconds, list(ended), json.loads(gzip.decompress((KEPT / "reach.json.gz").read_bytes())))

    @cached_property
    def compiled(self) -> set[str]:
        """Files whose functions Numba compiles, where coverage sees nothing."""
        texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in self.reach if (ROOT / path).exists()}
        return {path for path, text in texts.items() if "@native" in text or "Native" in text}

    def tests(self, mutant: Mutant) -> list[list[str]]:
        """The tests that may notice, those of its own room, then the others."""
        by_function = self.reach.get(mutant.path, {})
        found = set(by_function.get(mutant.function, []))
        if not found or mutant.path in self.compiled:  # a class, a default, a constant, or compiled: whoever is here
            found = {test for tests in by_function.values() for test in tests}
        if mutant.path in self.compiled:
            module = ".".join(Path(mutant.path).with_suffix("").parts[1:])
            for path in self.reach:
                if (ROOT / path).exists() and f"from {module} import" in (ROOT / path).read_text(encoding="utf-8"):
                    found.update(test for tests in self.reach[path].values() for test in tests)
        folders = HOMES.get(mutant.room, (mutant.room,))
        home = tuple(f"tests/{folder}/" for folder in folders) if mutant.room != "fedpick" else ("tests/test_",)
        named = f"test_{Path(mutant.path).stem.lstrip('_')}.py"
        alone = {test for test in self.seconds if test.startswith(home) and test.split("::")[0].endswith(named)}
        usable = (found | alone) & self.seconds.keys()
        near = {test for test in usable if test.startswith((*home, mutant.path))}
        return [self._ordered(near, named, home), self._ordered(usable - near, named)]

    def _ordered(self, tests: set[str], named: str, home: tuple[str, ...] = ()) -> list[str]:
        """File by file: those named after the module, then the quick ones."""
        files = defaultdict[str, float](float)
        for test in tests:
            files[test.split("::")[0]] += self.seconds[test]
        order = {file: (not file.endswith(named), cost) for file, cost in files.items()}
        return sorted(tests, key=lambda test: (order[test.split("::")[0]], test.split("::")[0]))


def _reach(data: Path, tree: Path) -> dict[str, dict[str, list[str]]]:
    """The tests that reach each function, from what coverage wrote; not what ran while modules were imported."""
    from coverage import CoverageData

    read, found = CoverageData(str(data)), dict[str, dict[str, list[str]]]()
    read.read()
    for file in read.measured_files():
        if not file.startswith(str(tree / "src")):
            continue
        path = str(Path(file).relative_to(tree))
        owner, tests = functions_of(Path(file).read_bytes()), defaultdict[str, set[str]](set)
        for line, contexts in read.contexts_by_lineno(file).items():
            tests[owner.get(line, "")].update(context.rpartition("|")[0] for context in contexts if "|" in context)
        found[path] = {function: sorted(each) for function, each in tests.items()}
    return found


class Tree:
    """A copy of the sources in which one mutant after the other is put."""

    def __init__(self, place: Path, suite: Suite) -> None:
        self.place, self.suite, self.count = place, suite, 0
        shutil.copytree(KEPT / "template", place, symlinks=True, ignore=shutil.ignore_patterns(".hypothesis"))
        for folder in ("src", "tests", "papers", "examples"):  # the sources of today
            shutil.copytree(
                ROOT / folder, place / folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )

    def play(self, mutant: Mutant, stage: int, limit: float) -> dict[str, Any]:
        """Change the file, play the tests of this stage, change it back."""
        file, tests = self.place / mutant.path, self.suite.tests(mutant)[stage]
        files = list(
            dict.fromkeys(test.split("::")[0] for test in tests if (self.place / test.split("::")[0]).exists())
        )
        line = {**mutant.as_dict(), "stage": stage, "tests": len(tests)}
        if not files:
            return {**line, "result": "survived", "seconds": 0.0}
        source, stamp = (ROOT / mutant.path).read_bytes(), (ROOT / mutant.path).stat().st_mtime
        self.count += 1
        file.write_bytes(mutant.applied(source))
        os.utime(file, (stamp + self.count,) * 2)  # so that no code kept for another content counts as this one's
        compiled = mutant.path in self.suite.compiled
        if compiled:
            self.forget()
        usual, start = sum(self.suite.seconds[test] for test in tests), time.monotonic()
        try:
            result, by = self.pytest(files, tests, min(limit, 90.0 + PATIENCE * usual))
        finally:
            file.write_bytes(source)
            os.utime(file, (stamp, stamp))
            if compiled:
                self.forget()
        seconds = round(time.monotonic() - start, 1)
        if result == "late" and seconds >= limit:
            raise TimeoutError
        return {**line, "result": "survived" if result == "passed" else "killed", "by": by, "seconds": seconds}

    def forget(self) -> None:
        """Delete what Numba keeps: a function's code contains those that it calls, also from other files."""
        for kept in (self.place / "src").rglob("*.nb[ic]"):
            kept.unlink()

    def pytest(self, files: list[str], tests: list[str], limit: float) -> tuple[str, str]:
        only, ended = self.place / ".only.json", self.place / ".ended.json"
        only.write_text(json.dumps({"wanted": tests, "known": self.suite.known}))
        ended.unlink(missing_ok=True)
        env = environment(self.place, FEDPICK_MUTANTS_ONLY=str(only), FEDPICK_MUTANTS_ENDED=str(ended))
        with tempfile.TemporaryDirectory(prefix="fp-m-") as place:
            env["TMPDIR"] = place
            with (self.place / ".output").open("wb") as output:
                job = subprocess.Popen(
                    [*PYTEST, "-x", *files],
                    cwd=self.place,
                    env=env,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                try:
                    code = job.wait(limit)
                except subprocess.TimeoutExpired:
                    return "late", "time"
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(job.pid, signal.SIGKILL)
                    job.wait()
        if code in (0, 5):
            return "passed", ""
        failed = (
            [test for test, seconds in json.loads(ended.read_text()).items() if seconds is None]
            if ended.exists()
            else []
        )
        return "failed", failed[0] if failed else f"pytest ended with {code}"


def run(mutants: list[Mutant], suite: Suite, out: Path, workers: int, seconds: float, again: bool) -> None:
    """Play the mutants that have no result yet, and add a line for each stage of each to the file."""
    before, until = read([out]), time.monotonic() + seconds
    if again:
        before = {name: line for name, line in before.items() if line["result"] == "killed"}
    with tempfile.TemporaryDirectory(prefix="fedpick-mutants-") as place, ThreadPoolExecutor(workers) as pool:
        trees = SimpleQueue[Tree]()
        for at in range(workers):
            trees.put(Tree(Path(place) / str(at), suite))

        def play(stage: int, mutant: Mutant) -> dict[str, Any] | None:
            tree = trees.get()
            try:
                return tree.play(mutant, stage, until - time.monotonic()) if time.monotonic() < until else None
            except TimeoutError:
                return None
            finally:
                trees.put(tree)

        for stage in (0, 1):
            todo = [mutant for mutant in mutants if wants(before.get(mutant.name), stage)]
            todo.sort(key=lambda mutant: -sum(suite.seconds[test] for test in suite.tests(mutant)[stage]))
            for done in as_completed([pool.submit(play, stage, mutant) for mutant in todo]):
                if (line := done.result()) is not None:
                    before[line["name"]] = line
                    with out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(f"{line['result']} in {line['seconds']} s: {shown(line)}", flush=True)


def wants(line: dict[str, Any] | None, stage: int) -> bool:
    """Does a mutant with this last result need this stage?"""
    return stage == 0 if line is None else line["result"] == "survived" and line["stage"] < stage


def read(files: list[Path]) -> dict[str, dict[str, Any]]:
    """The last line of each mutant."""
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return {line["name"]: line for line in lines}


def shown(line: dict[str, Any]) -> str:
    before, after = (" ".join(line[key].split())[:90] for key in ("before", "after"))
    return f"{line['name']} {line['path']}:{line['line']} {line['function']}: {line['kind']}: {before} => {after}"


def report(lines: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The rates by room, then who survived."""
    judged = {each["name"]: each["why"] for each in tomllib.loads((HERE / "judged.toml").read_text()).get("same", [])}
    rooms = defaultdict[str, list[str]](list)
    for name, line in sorted(lines.items(), key=lambda item: (item[1]["path"], item[1]["line"])):
        open_yet = line["result"] == "survived" and line["stage"] == 0
        how = "same" if line["result"] == "survived" and name in judged else "open" if open_yet else line["result"]
        for room in (line["room"], "all"):
            rooms[room].append(how)
        if how in ("survived", "same", "open"):
            yield f"{how}: {shown(line)}" + (f"  # {judged[name]}" if name in judged else "")
    yield f"{'room':12} killed survived  rate   same   open"
    for room, hows in sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])):
        killed, survived = hows.count("killed"), hows.count("survived")
        rate = f"{killed / (killed + survived):6.1%}" if killed + survived else "      "
        yield f"{room:12} {killed:6} {survived:8} {rate} {hows.count('same'):6} {hows.count('open'):6}"


def main() -> int:
    """Draw, play, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="which mutants; by default others each day")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--rooms", nargs="*", help="folders of src/fedpick, or flower; all unless given")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="lines of JSON; mutants that have a result there are not played again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument(
        "--again", action="store_true", help="play those that have survived again, with the tests of today"
    )
    parser.add_argument("--learn", action="store_true", help="only play the tests unchanged")
    parser.add_argument("--report", type=Path, nargs="+", metavar="OUT", help="only report what these files hold")
    given = parser.parse_args()
    if given.report is None:
        start = time.monotonic()
        KEPT.mkdir(parents=True, exist_ok=True)
        stamp = hashlib.sha256(b"".join(sorted(p.read_bytes() for p in (ROOT / "src").rglob("*.py")))).hexdigest()
        said = KEPT / "stamp"
        if not said.exists() or given.learn:
            Suite.learn(given.workers)
            said.write_text(stamp)
        if given.learn:
            return 0
        seed = time.strftime("%Y%m%d") if given.seed is None else given.seed
        found = list(everything(ROOT, given.rooms))
        mutants = random.Random(f"mutants {seed}").sample(found, min(given.count, len(found)))
        out = given.out or KEPT / f"{seed}.jsonl"
        print(f"{len(mutants)} of {len(found)} mutants by seed {seed}, into {out}", flush=True)
        run(mutants, Suite.load(), out, given.workers, given.seconds - (time.monotonic() - start), given.again)
    lines = read(given.report or [out])
    if given.report is None:
        lines = {mutant.name: lines[mutant.name] for mutant in mutants if mutant.name in lines}
    print("\n".join(report(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
