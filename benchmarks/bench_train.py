"""Training speed of a cohort on the CPU: ours against a PyTorch loop, Flower's simulation and fedjax.

Workloads: A, an MLP; B, a CNN; C, logistic regression; D, the demo's own round: the same model, clients with unequal
work, half of them not used; E, Fashion-MNIST, one pass over what each client holds, sizes 1:20. D stands beside a
bound, too: its useful steps in one compiled loop, and nothing else.
Every engine runs in an environment of its own, which this makes once in the user's cache ($FEDPICK_BENCH, else
~/.cache/fedpick/bench), and trains on the same data with the same batches from the same weights; their losses must
agree. Blocks of rounds take turns, ours and a peer's, one engine at a time, and the result is the median ratio of such
pairs; the large matrix product measured in between is the ceiling. Processor time is of an engine with all processes
that it started, in hundredths of a second. Writes table and bar chart to benchmarks/results/train/; of workloads that
were left out, what was measured before stays, each with its own manifest in train.json.

    python benchmarks/bench_train.py                              all, about thirteen minutes
    python benchmarks/bench_train.py --quick --workloads A,C      a smoke test
    python benchmarks/bench_train.py --engines ours,flower        only these
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from _manifest import manifest

HERE = Path(__file__).parent / "train"
sys.path.insert(0, str(HERE))
from workloads import WORKLOADS, Task, Workload, read, score, write  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "train"
CACHE = Path(os.environ.get("FEDPICK_BENCH") or Path.home() / ".cache" / "fedpick" / "bench").expanduser().absolute()
PATIENCE = 600  # seconds until an engine that says nothing is given up
NEEDS = {
    "pytorch": ["torch==2.13.0", "numpy"],
    "flower": ["flwr[simulation]==1.41.0", "torch==2.13.0", "numpy"],
    "fedjax": ["fedjax==0.0.17", "jax==0.10.2"],
}
HERE_TOO = ("ours", "one", "bound")  # run with this interpreter
GOALS = {
    "A": (3.0, 2.8),
    "B": (1.8, 1.3),
    "C": (40.0, 12.0),
    "D": (3.0, 3.0),
    "E": (1.0, 1.0),
}  # against Flower, against the best PyTorch loop
LEARN = {"A": 10, "B": 2, "C": 30, "D": 20, "E": 20}  # rounds after which the losses are compared
AGREE = 0.005  # how far apart losses may be: the order of sums differs, and training magnifies it
console = Console(stderr=True)


class EngineError(RuntimeError):
    """An engine could not be made, died, or learned something else."""


@dataclass(frozen=True)
class Engine:
    """A way to train."""

    label: str
    kind: str  # "ours" and "bound" run where this runs, others in the environment of that name
    script: str
    form: tuple[str, ...] = ()
    only: str = "ABCDE"


ENGINES = [
    Engine("fedpick", "ours", "ours.py"),
    Engine("fedpick, one core", "one", "ours.py", ("one",), only="AD"),
    Engine("the steps alone, one core", "bound", "bound.py", only="AD"),
    Engine("PyTorch loop, plain", "pytorch", "pytorch_loop.py", ("plain",), only="ABC"),
    # Threads inside products this small only wait for each other: minutes for a round on a busy machine.
    Engine("PyTorch loop, one thread", "pytorch", "pytorch_loop.py", ("one",), only="DE"),
    Engine("PyTorch loop, channels_last", "pytorch", "pytorch_loop.py", ("channels_last",), only="B"),
    Engine("PyTorch loop, a process a core", "pytorch", "pytorch_loop.py", ("processes",)),
    Engine("Flower simulation", "flower", "flower_sim.py"),
    Engine("fedjax", "fedjax", "fedjax_loop.py"),
]


def python_of(kind: str) -> str:
    """The interpreter of an engine's environment, which is made if it is not there."""
    if kind in HERE_TOO:
        return sys.executable
    folder, needs = CACHE / kind, " ".join(NEEDS[kind])
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists() or ready.read_text() != needs:
        console.print(f"making the environment {folder}: {needs} ...")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDS[kind]]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            raise EngineError(f"pip could not install {needs}:\n{done.stderr[-2000:]}\nleave it out with --engines")
        ready.write_text(needs)
    return str(python)


def surroundings(kind: str) -> dict[str, str]:
    """Environment variables of an engine: none that set threads or devices, and no accelerator."""
    unset = {"XLA_FLAGS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    unset |= set() if kind in HERE_TOO else {"PYTHONPATH"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def processor_time(pid: int) -> float:
    """Seconds that a process and all that come from it have computed; those that have ended count for their parent."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        own = int(stat.parent.name)
        parents[own], used[own] = int(fields[1]), sum(int(field) for field in fields[11:15])
    family, before = {pid}, 0
    while len(family) > before:
        before = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(used.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")


class Session:
    """An engine's process, loaded and waiting; see train/protocol.py."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.processor = engine, 0.0
        self.log = CACHE / "logs" / f"{engine.script.removesuffix('.py')}-{'-'.join((folder.name, *engine.form))}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [python_of(engine.kind), str(HERE / engine.script), str(folder), *engine.form]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.log.parent,
                env=surroundings(engine.kind),
                start_new_session=True,
            )
        try:
            self.versions = self._hear()["versions"]
        except BaseException:
            self.close()
            raise

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout
        watchdog = threading.Timer(PATIENCE, self._kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise EngineError(f"{self.engine.label} ended, or said nothing for {PATIENCE} s; its log ends with\n{tail}")
        return json.loads(line)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # told by what is heard
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self._hear()

    def run(self, rounds: int) -> float:
        """Seconds of one round, when it does so many; `processor` has its processor time."""
        before = processor_time(self.process.pid)
        answer = self._ask(do="run", rounds=rounds)
        self.processor = (processor_time(self.process.pid) - before) / rounds
        return answer["seconds"] / rounds

    def score(self, task: Task) -> tuple[float, float]:
        """Loss and accuracy after what was run last."""
        path = self.log.with_suffix(".npz")
        self._ask(do="save", to=str(path))
        with np.load(path) as saved:
            return score(task, [saved[f"p{i}"] for i in range(len(task.params))])

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # its own session: what it started goes, too
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end; make it."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)
        self._kill()
        self.process.wait()


def ceiling(*what: str, kind: str = "ours") -> float:
    """GFLOP/s of matrix products; see train/ceiling.py."""
    command = [python_of(kind), str(HERE / "ceiling.py"), *what]
    return json.loads(subprocess.run(command, env=surroundings(kind), capture_output=True, check=True).stdout)


def ceilings(kinds: set[str]) -> dict[str, float]:
    """By library."""
    found = {"numpy": ceiling("numpy")}
    if "ours" in kinds:
        found["jax"] = ceiling("jax")
    if "pytorch" in kinds:
        found["torch"] = ceiling("torch", kind="pytorch")
    return found


def measure(work: Workload, engines: list[Engine], repeats: int, block: float, learn: int) -> dict[str, Any]:
    """All engines on one workload: the first is what the others are compared with."""
    folder = write(work, CACHE / "data")
    task = read(folder)
    loss, accuracy = score(task, task.params)
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        sessions = []
        for engine in engines:
            console.print(f"{work.name}: {engine.label} starts ...")
            session = Session(engine, folder)
            stack.callback(session.close)
            first = session.run(learn)  # compiles, warms up, and shows that it learns
            end, right = session.score(task)
            one = first if first > block else min(first, session.run(int(block / first)))
            rounds = max(1, round(block / one))
            console.print(f"   loss {loss:.4f} -> {end:.4f} in {learn} rounds, then blocks of {rounds}")
            sessions.append((session, rounds))
            rows.append(
                {
                    "engine": engine.label,
                    "kind": engine.kind,
                    "versions": session.versions,
                    "loss": end,
                    "accuracy": right,
                    "block": rounds,
                    "seconds": [],
                    "processor": [],
                    "ratios": [],
                    "processor_ratios": [],
                }
            )
        (ours, count), *peers = sessions
        for repeat in range(repeats):
            console.print(f"{work.name}: pairs {repeat + 1} of {repeats} ...")
            for row, (peer, rounds) in zip(rows[1:], peers, strict=True):
                mine, theirs = ours.run(count), peer.run(rounds)
                rows[0]["seconds"].append(mine)
                rows[0]["processor"].append(ours.processor)
                row["processor_ratios"].append(peer.processor / ours.processor)
                row["seconds"].append(theirs)
                row["processor"].append(peer.processor)
                row["ratios"].append(theirs / mine)
            if not peers:
                rows[0]["seconds"].append(ours.run(count))
    for row in rows:
        row["rounds_per_s"] = 1 / float(np.median(row["seconds"]))
        row["gflops"] = work.gflop * row["rounds_per_s"]
        row["ratio"] = float(np.median(row["ratios"])) if row["ratios"] else 1.0
    ends = [row["loss"] for row in rows if row["kind"] != "bound"]
    if max(ends) - min(ends) > AGREE or max(ends) > 0.9 * loss:
        told = ", ".join(f"{row['engine']} {row['loss']:.5f}" for row in rows if row["kind"] != "bound")
        raise EngineError(f"{work.name}: losses from {loss:.5f} must fall and agree within {AGREE}, but are: {told}")
    return {
        "workload": work.name,
        "title": work.title,
        "gflop": work.gflop,
        "learn": learn,
        "loss": loss,
        "accuracy": accuracy,
        "products_gflops": ceiling("products", work.name),
        "rows": rows,
    }


def against(result: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The fastest row of this kind of peer."""
    found = [row for row in result["rows"][1:] if row["kind"] == kind]
    return min(found, key=lambda row: row["ratio"], default=None)


def shares(result: dict[str, Any]) -> dict[str, list[float]]:
    """How much of the bound was reached, in each repeat; on several cores, of the bound divided by their number."""
    bound, one = against(result, "bound"), against(result, "one")
    if bound is None or one is None:
        return {}
    cores = len(os.sched_getaffinity(0))
    return {
        "one core": [b / o for b, o in zip(bound["ratios"], one["ratios"], strict=True)],
        "one core, in processor time, which other work on the machine changes less": [
            b / o for b, o in zip(bound["processor"], one["processor"], strict=True)
        ],
        f"{cores} cores": [b / cores for b in bound["ratios"]],
    }


def ceiling_of(result: dict[str, Any]) -> float:
    """GFLOP/s: the most that float32 products reached in the run of this workload."""
    return max(*result["ceiling_gflops"].values(), result["products_gflops"])


def load_of(result: dict[str, Any]) -> str:
    """Other work on the machine, if it was noted."""
    load = result["manifest"].get("load")
    return f", load {load[0]:g} at the end" if load else ""


def quartiles(values: list[float]) -> str:
    """Median and quartiles of ratios, as text."""
    if not values:
        return "-"
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f}x ({low:.2f}-{high:.2f})"


def table(results: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    mine = results[0]["rows"][0]["engine"]
    lines = [
        f"How many times faster {mine} is, medians of pairs of blocks that took turns on this machine's CPU.",
        "",
        "| workload | Flower simulation (goal) | best PyTorch loop (goal) | fedjax | GFLOP/s | of the ceiling | "
        "of its own products |",
        "| --- |" + " ---: |" * 6,
    ]
    for result in results:
        cells = []
        for kind, goal in zip(("flower", "pytorch"), GOALS[result["workload"]], strict=True):
            row = against(result, kind)
            cells.append(f"{row['ratio']:.2f}x ({goal:g}x)" if row else "-")
        row = against(result, "fedjax")
        cells.append(f"{row['ratio']:.2f}x" if row else "-")
        speed = result["rows"][0]["gflops"]
        lines.append(
            f"| {result['workload']}: {result['title']} | {' | '.join(cells)} | {speed:.3g} | "
            f"{speed / ceiling_of(result):.0%} | "
            f"{speed / result['products_gflops']:.0%} |"
        )
    lines += [
        "",
        "The ceiling is the most that float32 products reached in the same run: one large product in NumPy, JAX or "
        "PyTorch, or the workload's own products alone in NumPy, a thread for each core. Processor time is of all "
        "processes of an engine: other work on the machine changes it less than the clock, but it does not show "
        "whether an engine uses all cores.",
    ]
    for result in results:
        work, learn = WORKLOADS[result["workload"]], result["learn"]
        lines += [
            "",
            f"**{work.name}: {work.title}**, {work.cohort} of 100 clients, {work.client_steps:.0f} steps together, "
            f"batch {work.batch}, {work.gflop:.3g} GFLOP a round; before: loss {result['loss']:.4f}, accuracy "
            f"{result['accuracy']:.1%}. Measured {result['manifest']['date'][:10]} (commit "
            f"{result['manifest']['commit']}{load_of(result)}); ceiling {ceiling_of(result):.0f} GFLOP/s, its own "
            f"products {result['products_gflops']:.3g}.",
            "",
            f"| engine | rounds a second | GFLOP/s | {mine} is faster by (quartiles) | in processor time | loss after "
            f"{learn} rounds | accuracy |",
            "| --- |" + " ---: |" * 6,
        ]
        for row in result["rows"]:
            lines.append(
                f"| {row['engine']} | {row['rounds_per_s']:.3g} | {row['gflops']:.3g} | {quartiles(row['ratios'])} | "
                f"{quartiles(row.get('processor_ratios', []))} | "
                f"{row['loss']:.4f} | {row['accuracy']:.1%} |"
            )
        for where, found in shares(result).items():
            low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
            lines += ["", f"Of the steps alone on {where}: {middle:.0%} (quartiles {low:.0%}-{high:.0%})."]
    versions = {name: v for result in results for row in result["rows"] for name, v in row["versions"].items()}
    lines += ["", "Versions: " + ", ".join(f"{name} {v}" for name, v in sorted(versions.items())) + "."]
    return "\n".join(lines) + "\n"


def plot(results: list[dict[str, Any]], folder: Path) -> None:
    """Rounds a second as bars, one panel for each workload."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "fedpick"
    colours = {
        "ours": "#0072B2",
        "one": "#56B4E9",
        "bound": "#999999",
        "pytorch": "#E69F00",
        "flower": "#009E73",
        "fedjax": "#CC79A7",
    }
    figure, panels = plt.subplots(
        len(results), 1, figsize=(8, 0.9 + 2.0 * len(results)), layout="constrained", squeeze=False
    )
    for axes, result in zip(panels[:, 0], results, strict=True):
        rows = result["rows"][::-1]
        speeds = [row["rounds_per_s"] for row in rows]
        bars = axes.barh([row["engine"] for row in rows], speeds, color=[colours[row["kind"]] for row in rows])
        axes.bar_label(
            bars,
            [
                f"{s:.3g}"
                + (f"   ({row['ratio']:.1f} times {result['rows'][0]['engine']}'s time)" if row["ratios"] else "")
                for s, row in zip(speeds, rows, strict=True)
            ],
            padding=4,
            fontsize=8,
        )
        axes.set_xlim(0, 1.35 * max(speeds))
        work = WORKLOADS[result["workload"]]
        axes.set_title(f"{work.name}: {work.title}, {work.client_steps:.0f} steps of {work.batch}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    panels[-1, 0].set_xlabel("rounds a second")
    figure.savefig(folder / "train.png", dpi=130)
    figure.savefig(folder / "train.svg", metadata={"Date": None})


def names(allowed: list[str]) -> Any:
    """A parser of comma-separated names."""

    def parse(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",")]
        if unknown := set(found) - set(allowed):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(allowed)}")
        return [name for name in allowed if name in found]

    return parse


def main() -> None:
    """Measure, then write table, chart and manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short blocks: a smoke test")
    parser.add_argument("--engines", type=names(["ours", *NEEDS]), default=["ours", *NEEDS], help="only these")
    parser.add_argument("--workloads", type=names(list(WORKLOADS)), default=list(WORKLOADS), help="only these")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for table, chart and manifest")
    options = parser.parse_args()
    settings = {"quick": options.quick, "engines": options.engines, "workloads": options.workloads}
    repeats = {"A": 2, "B": 1, "C": 2, "D": 5, "E": 5} if options.quick else {"A": 9, "B": 5, "C": 9, "D": 9, "E": 9}
    block = 0.3 if options.quick else 1.5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # engines are closed on the way out
    try:
        for kind in options.engines:
            python_of(kind)
        kept = options.out / "train.json"
        results = {r["workload"]: r for r in json.loads(kept.read_text())["workloads"]} if kept.exists() else {}
        settings |= {"repeats": repeats, "block_s": block, "environments": NEEDS}
        for name in options.workloads:
            kinds = {*options.engines, *(HERE_TOO if "ours" in options.engines else ())}
            engines = [e for e in ENGINES if e.kind in kinds and name in e.only]
            before = ceilings(set(options.engines))
            found = measure(WORKLOADS[name], engines, repeats[name], block, LEARN[name])
            after = ceilings(set(options.engines))
            found["ceiling_gflops"] = {library: max(value, after[library]) for library, value in before.items()}
            results[name] = found | {"manifest": manifest(settings)}
            keep([results[name] for name in WORKLOADS if name in results], options.out)
    except EngineError as error:
        console.print(str(error), markup=False, style="red")
        sys.exit(1)
    console.print(f"written to {options.out}")


def keep(results: list[dict[str, Any]], folder: Path) -> None:
    """Write results, table and chart."""
    folder.mkdir(parents=True, exist_ok=True)
    text = table(results)
    (folder / "train.md").write_text(text)
    (folder / "train.json").write_text(json.dumps({"workloads": results}, indent=1) + "\n")
    plot(results, folder)
    print(text)


if __name__ == "__main__":
    main()
