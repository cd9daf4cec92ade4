"""`make mutants`: would the tests notice? Changes one place of the library at a time, plays what reaches it.

python tests/mutants/mutants.py --seed 7                   # 300 mutants of all rooms, drawn by this number
python tests/mutants/mutants.py --seed 7 --rooms policies sampling --count 100
python tests/mutants/mutants.py --seed 7 --out mutants.jsonl --seconds 500   # is continued by the same command
python tests/mutants/mutants.py --report mutants.jsonl     # only the rates, from what was written before

A mutant is patched into a fork of a process that has loaded library and tests (serve.py). It gets the quick tests of
the files named after its module (outside functions, first that of constants and defaults), then those of other files
that reach its statement, then those that reach its module, for at most --most seconds of processor time. What the tests
of a file reach is learnt when it is first needed, and kept in .cache/mutants; --learn learns all. A mutant is killed if
a test fails that passes without it and also fails alone with it, or if a test does not end. Who survives is listed; a
survivor that changes nothing that could be noticed is written into judged.toml with the reason, and counts no longer.
"""

import argparse
import ast
import hashlib
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
from changes import Mutant, everything, functions_of  # noqa: E402
from serve import COMPILING, LONG, compiled, replaced  # noqa: E402

KEPT = ROOT / ".cache" / "mutants"
HOMES = {"adapters": ("adapters", "flower"), "flower": ("flower", "adapters"), "nvflare": ("adapters",)}
CONSTANTS = "tests/test_constants.py"  # which holds those of all modules
DOUBTS = 5  # tests that failed, but not again alone, after which a mutant counts as survived


def environment(**more: str) -> dict[str, str]:
    """What pytest finds: these sources first, no GPU, one thread where that can be said."""
    before = [str(ROOT / "src"), str(ROOT / "papers/src"), str(HERE)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FEDPICK_MUTANTS")}
    kept["PYTHONPATH"] = os.pathsep.join([*before, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    (KEPT / "numba").mkdir(parents=True, exist_ok=True)
    kept["NUMBA_CACHE_DIR"] = str(KEPT / "numba")
    return {**kept, **threads, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", **more}


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def owners(path: str) -> dict[int, str]:
    return functions_of(text(path).encode())


@cache
def native_functions(source: str) -> set[str]:
    """The functions of a module that Numba compiles: decorated with `native` or a form of it, or given to it."""
    body = ast.parse(source).body
    makers = {"native", "Native"}
    for node in body:
        if isinstance(node, ast.Assign) and "Native" in ast.unparse(node.value):
            makers |= {ast.unparse(target) for target in node.targets}
    found = set()
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.FunctionDef):
            found |= {node.name for each in node.decorator_list if ast.unparse(each).split("(")[0] in makers}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in makers and node.args:
            found.add(ast.unparse(node.args[0]))
    return found


def statement(path: str, line: int) -> set[int]:
    """The lines of the innermost statement here, without those of the statements inside it."""
    found: set[int] = {line}
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            inside = [each.lineno for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]
            end = min(inside) - 1 if inside else node.end_lineno or 0
            if line <= max(end, node.lineno):
                found = set(range(node.lineno, max(end, node.lineno) + 1))
    return found


class Suite:
    """The quick tests: what is there, and what those that have been learnt reach."""

    def __init__(self, server: "Server") -> None:
        self.server, self.known = server, dict[str, dict[str, set[int]]]()
        loaded = json.loads((KEPT / "loaded.json").read_text())
        self.at_import = {path: set(lines) for path, lines in loaded["at_import"].items()}
        self.files = defaultdict[str, list[str]](list)
        for test in loaded["tests"]:
            self.files[test.split("::")[0]].append(test)

    def data(self, file: str) -> Path:
        """Where what the tests of a file reach is kept, for this content of the file."""
        content = hashlib.blake2b((ROOT / file).read_bytes(), digest_size=6).hexdigest()
        return KEPT / "reach" / f"{Path(file).stem}-{content}"

    def learn(self, file: str) -> None:
        """Play the tests of a file unchanged, if that has not been done before."""
        data = self.data(file)
        if not data.with_suffix(".json").exists():
            data.parent.mkdir(parents=True, exist_ok=True)
            data.unlink(missing_ok=True)
            answer = self.server.ask(learn=file, data=str(data), limit=1000.0)
            if not data.with_suffix(".json").exists():  # it would not end another time either
                data.with_suffix(".json").write_text("{}")
                print(f"{file}: what its tests reach is not known: {answer['by']}", flush=True)

    def reach(self, file: str, path: str, lines: set[int]) -> list[str]:
        """The tests of a file that reach one of these lines of a module."""
        from coverage.numbits import numbits_to_nums

        query = "select context, numbits from line_bits join context on context_id = context.id "
        query += "join file on file_id = file.id where path = ?"
        data = self.data(file)
        if not data.exists():
            return []
        rows = sqlite3.connect(data).execute(query, (str(ROOT / path),))
        return [context for context, bits in rows if not lines.isdisjoint(numbits_to_nums(bits))]

    def native(self, mutant: Mutant) -> bool:
        """Does Numba compile it? It then keeps the code, and coverage sees nothing."""
        name = mutant.function.split(".")[0]
        compiled = native_functions(text(mutant.path))
        return name in compiled or (not name and bool(compiled))

    def way(self, mutant: Mutant) -> str:
        """Whether functions can be patched, or the module must be imported changed."""
        before, after = sources(mutant)
        early = statement(mutant.path, mutant.line) & self.at_import.get(mutant.path, set())
        plain = replaced(compiled(before, mutant.path), compiled(after, mutant.path))
        return "import" if plain is None or early else "patch"

    def near(self, mutant: Mutant) -> list[str]:
        """The files of tests that are named after the module, and its examples."""
        folders = {f"tests/{each}" for each in HOMES.get(mutant.room, (mutant.room, "."))}
        stem = Path(mutant.path).stem.lstrip("_")
        stem = Path(mutant.path).parent.name if stem == "init__" else stem
        named = [
            file
            for file in self.files
            if Path(file).name in (f"test_{stem}.py", f"test_{mutant.room}_{stem}.py")
            and (str(Path(file).parent) in folders or stem not in Path(file).parts)
        ]
        home = [file for file in named if str(Path(file).parent) in folders]
        return [*(home or named), *([mutant.path] if mutant.path in self.files else [])]

    def far(self, mutant: Mutant) -> list[str]:
        """Other files of tests that say the function's or the module's names, those of its room first."""
        own = {part for part in mutant.function.split(".") if not part.startswith("_")}
        tree = ast.parse(text(mutant.path))
        public = {each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)} | own
        folders = tuple(f"tests/{each}/" for each in HOMES.get(mutant.room, (mutant.room,)))
        module = ".".join(Path(mutant.path).with_suffix("").parts[1:])
        scores = {}
        for file in self.files:
            if file.startswith("tests/") and file.endswith(".py"):
                said = set(re.findall(r"[A-Za-z_]\w*", text(file)))
                score = 4 * (module in text(file)) + 2 * bool(own & said) + len(public & said) / (1 + len(public))
                if score or file.startswith(folders):
                    scores[file] = score + 2 * file.startswith(folders)
        near = self.near(mutant)
        return sorted((file for file in scores if file not in near), key=lambda file: -scores[file])


def sources(mutant: Mutant) -> tuple[str, str]:
    before = text(mutant.path)
    return before, mutant.applied(before.encode()).decode()


class Server:
    """A process that plays tests in forks (serve.py)."""

    def __init__(self, kind: str) -> None:
        (ours, requests), (answers, theirs) = os.pipe()[::-1], os.pipe()
        env = environment(FEDPICK_MUTANTS_REQUESTS=str(requests), FEDPICK_MUTANTS_ANSWERS=str(theirs))
        with (KEPT / f"{kind}.log").open("wb") as log:
            command = [sys.executable, str(HERE / "serve.py"), kind]
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                pass_fds=(requests, theirs),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(requests)
        os.close(theirs)
        self.seconds = 0.0
        self.requests, self.answers = os.fdopen(ours, "w"), os.fdopen(answers)
        assert self.answers.readline(), f"{KEPT / kind}.log says why the server did not start"

    def ask(self, **request: Any) -> dict[str, Any]:
        print(json.dumps(request), file=self.requests, flush=True)
        answer: dict[str, Any] = json.loads(self.answers.readline())
        self.seconds += answer["seconds"]
        return answer


class Player:
    """Plays mutants, one after the other."""

    def __init__(self, most: float) -> None:
        self.most, self.sound = most, dict[str, bool]()
        self.servers = {"patch": Server("collected")}
        self.servers["import"] = Server("bare")
        self.suite = Suite(self.servers["patch"])

    def ask(self, mutant: Mutant, way: str, tests: dict[str, list[str] | None], **more: Any) -> dict[str, Any]:
        before, after = sources(mutant)
        request = {"path": mutant.path, "before": before, "after": after, "way": way, "tests": tests, "skip": []}
        native = self.suite.native(mutant) and more.get("after", after) is not None
        limit = self.most + LONG + 10 + COMPILING * native
        return self.servers[way].ask(**{**request, "native": native, "most": self.most, "limit": limit, **more})

    def play(self, mutant: Mutant) -> dict[str, Any]:
        """Files of tests that may notice, until a test fails that passes without the mutant."""
        way, left, cut, skip = self.suite.way(mutant), self.most, 0, list[str]()
        started = self.spent
        line = {**mutant.as_dict(), "way": way}
        for stage, tests in self.stages(mutant):
            if left <= 0:
                cut += 1
                break
            while len(skip) < DOUBTS:
                answer = self.ask(mutant, way, tests, most=left, skip=skip)
                if answer["result"] == "passed":
                    left, cut = left - answer["seconds"], cut + bool(answer["cut"])
                    break
                if self.confirmed(mutant, way, tests, answer["by"]):
                    seconds = round(self.spent - started, 1)
                    return {**line, "result": "killed", "stage": stage, "by": answer["by"], "seconds": seconds}
                skip.append(answer["by"])
                if "::" not in answer["by"]:
                    break
        return {**line, "result": "survived", "cut": cut, "doubts": skip, "seconds": round(self.spent - started, 1)}

    @property
    def spent(self) -> float:
        return sum(server.seconds for server in self.servers.values())

    def stages(self, mutant: Mutant) -> Iterator[tuple[int, dict[str, list[str] | None]]]:
        """Tests by file: those named after the module, then those that reach its statement, then its module."""
        if self.suite.way(mutant) == "import":
            module = ".".join(Path(mutant.path).with_suffix("").parts[1:]).removesuffix(".__init__")
            yield 0, {CONSTANTS: [f"{CONSTANTS}::test_constants_and_defaults_stay[{module}]"]}
        if near := self.suite.near(mutant):
            yield 0, dict.fromkeys(near)
        far = self.suite.far(mutant)
        statements = statement(mutant.path, mutant.line)
        inside = {line for line, owner in owners(mutant.path).items() if owner == mutant.function}
        if not statements & inside or self.suite.native(
            mutant
        ):  # a default, an attribute, a constant: all of the module
            statements = inside or set(owners(mutant.path)) if not self.suite.native(mutant) else set()
        for lines, stage in ((statements, 1), (set(owners(mutant.path)), 2)):
            for file in far:
                if not lines:
                    yield stage, {file: None}
                    continue
                self.suite.learn(file)
                if tests := self.suite.reach(file, mutant.path, lines):
                    yield stage, {file: tests}

    def confirmed(self, mutant: Mutant, way: str, tests: dict[str, list[str] | None], test: str) -> bool:
        """Does this test pass without the mutant, and fail alone with it? Where none ended: do they end without it?"""
        if "::" not in test:
            unchanged = self.ask(mutant, "patch", tests, after=None)
            return unchanged["result"] == "passed" or "::" in unchanged["by"]
        only = {test.split("::")[0]: [test]}
        if test not in self.sound:
            self.sound[test] = self.ask(mutant, "patch", only, after=None)["result"] == "passed"
        return self.sound[test] and self.ask(mutant, way, only)["result"] == "failed"


def learn() -> int:
    """Play all tests unchanged, whatever is known."""
    shutil.rmtree(KEPT / "reach", ignore_errors=True)
    suite = Suite(Server("collected"))
    for file in suite.files:
        suite.learn(file)
    return 0


def run(mutants: list[Mutant], out: Path, seconds: float, again: bool, most: float) -> None:
    """Play the mutants that have no result yet, and add a line for each to the file."""
    before, until = read([out]), time.monotonic() + seconds
    done = {name for name, line in before.items() if not again or line["result"] == "killed"}
    todo = [mutant for mutant in mutants if mutant.name not in done]
    player = Player(most) if todo else None
    for mutant in todo:
        if player is None or time.monotonic() > until:
            break
        line = player.play(mutant)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{line['result']} in {line['seconds']:.1f} s: {shown(line)}", flush=True)


def read(files: list[Path]) -> dict[str, dict[str, Any]]:
    """The last line of each mutant."""
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return {line["name"]: line for line in lines}


def shown(line: dict[str, Any]) -> str:
    before, after = (" ".join(line[key].split())[:90] for key in ("before", "after"))
    return f"{line['name']} {line['path']}:{line['line']} {line['function']}: {line['kind']}: {before} => {after}"


def interval(killed: int, all_: int) -> tuple[float, float]:
    """Wilson's 95% interval of a rate."""
    z, p = 1.96, killed / all_
    middle, half = p + z * z / (2 * all_), z * math.sqrt(p * (1 - p) / all_ + z * z / (4 * all_ * all_))
    return (middle - half) / (1 + z * z / all_), (middle + half) / (1 + z * z / all_)


def report(lines: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The rates by room, then who survived."""
    judged = {each["name"]: each["why"] for each in tomllib.loads((HERE / "judged.toml").read_text()).get("same", [])}
    rooms = defaultdict[str, list[str]](list)
    for name, line in sorted(lines.items(), key=lambda item: (item[1]["path"], item[1]["line"])):
        how = "same" if line["result"] == "survived" and name in judged else line["result"]
        for room in (line["room"], "all"):
            rooms[room].append(how)
        if how != "killed":
            cut = f"  ({line['cut']} tests not played)" if line.get("cut") else ""
            yield f"{how}: {shown(line)}{cut}" + (f"  # {judged[name]}" if name in judged else "")
    yield f"{'room':12} killed survived   same   rate  95% interval"
    for room, hows in sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])):
        killed, survived = hows.count("killed"), hows.count("survived")
        if total := killed + survived:
            low, high = interval(killed, total)
            rate = f"{killed / total:6.1%}  {low:.1%} to {high:.1%}"
        else:
            rate = ""
        yield f"{room:12} {killed:6} {survived:8} {hows.count('same'):6} {rate}"


def main() -> int:
    """Draw, play, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="which mutants; by default others each day")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--rooms", nargs="*", help="folders of src/fedpick, or flower; all unless given")
    parser.add_argument("--out", type=Path, help="lines of JSON; mutants that have a result there are not played again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--most", type=float, default=300.0, help="usual seconds of the tests that a survivor gets")
    parser.add_argument("--again", action="store_true", help="play survivors again, with the tests of today")
    parser.add_argument("--learn", action="store_true", help="only play the tests unchanged")
    parser.add_argument("--report", type=Path, nargs="+", metavar="OUT", help="only report what these files hold")
    given = parser.parse_args()
    if given.report is None:
        start = time.monotonic()
        KEPT.mkdir(parents=True, exist_ok=True)
        if given.learn:
            return learn()
        seed = time.strftime("%Y%m%d") if given.seed is None else given.seed
        found = list(everything(ROOT, given.rooms))
        mutants = random.Random(f"mutants {seed}").sample(found, min(given.count, len(found)))
        out = given.out or KEPT / f"{seed}.jsonl"
        print(f"{len(mutants)} of {len(found)} mutants by seed {seed}, into {out}", flush=True)
        run(mutants, out, given.seconds - (time.monotonic() - start), given.again, given.most)
    lines = read(given.report or [out])
    if given.report is None:
        lines = {mutant.name: lines[mutant.name] for mutant in mutants if mutant.name in lines}
    print("\n".join(report(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
