"""The time of a choice: every policy, select + observe, from a thousand to a million clients.

Absolute times mean little on a shared machine, so each is measured alternating with one `numpy.argsort` of K random
floats and given as a ratio to it. All are processor times of one thread, in one run, so that what else runs there
counts little. Writes table, plot and manifest to benchmarks/results/select/.

    python benchmarks/bench_select.py            all sizes, about ten minutes
    python benchmarks/bench_select.py --quick    up to 10,000 clients, a smoke test
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import fedpick as fp
from _manifest import manifest
from fedpick.policies import TABLE
from fedpick.policies.f3ast import F3ASTState
from fedpick.policies.guard import GuardState
from fedpick.policies.text import example
from fedpick.policies.ucbcs import UCBCSState

RESULTS = Path(__file__).parent / "results" / "select"
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
console = Console()


def features(count: int) -> np.ndarray:
    """Label mixes of 10 labels, a few labels each."""
    return fp.rng.stream(0, 0, "features").dirichlet(np.full(10, 0.3), count)


def fixed(width: int | None = None) -> Callable[[fp.Clients], np.ndarray]:
    """What an oracle is told: numbers in (0.1, 1)."""
    return lambda clients: fp.rng.stream(0, 0, "truth").uniform(
        0.1, 1.0, (len(clients), width) if width else len(clients)
    )


@dataclass
class Entry:
    """A policy to measure, up to how many clients."""

    name: str
    make: Callable[[int], Any]  # cohort size -> policy
    most: int = 1_000_000


def default(name: str) -> Entry:
    """The entry of a policy of the table, with its default settings; a wrapper is around uniform."""
    listed = TABLE[name]
    label = f"{name}(Uniform)" if listed.about.kind == "wrapper" else name
    return Entry(label, lambda m: example(listed, m, fixed()), listed.about.measured_up_to or 1_000_000)


ENTRIES = [
    *(default(name) for name in TABLE),
    # Other settings, which take another way through the code.
    Entry("SizeWeighted, once each", lambda m: fp.SizeWeighted(m, replace=False)),
    Entry("FedCS, deadline", lambda m: fp.FedCS(m, deadline=1.0, theta=fixed(3))),
    Entry("pow-d", lambda m: fp.PowerOfChoice(m, 10 * m)),
    Entry("cpow-d", lambda m: fp.PowerOfChoice(m, 10 * m, variant="cpow-d")),
    Entry("rpow-d", lambda m: fp.PowerOfChoice(m, 10 * m, variant="rpow-d")),
    Entry("E3CS, quota 0.5", lambda m: fp.E3CS(m, quota=0.5)),
    Entry("E3CS, systematic", lambda m: fp.E3CS(m, quota=0.5, sampler="systematic")),
    Entry("E3CS, multinomial", lambda m: fp.E3CS(m, quota=0.5, sampler="multinomial")),
    Entry("CSUCB, queues", lambda m: fp.CSUCB(m, variant="cs-ucb-q")),
    Entry("BSFL, imbalanced", lambda m: fp.BSFL(m, quality=0.9, beta=2)),
    Entry("RBCSF, V=1", lambda m: fp.RBCSF(m, penalty=1.0)),
    Entry("FedGS, alpha=0", lambda m: fp.FedGS(m, alpha=0.0)),
    Entry("Guard(E3CS, quota 0.5)", lambda m: fp.Guard(fp.E3CS(m, quota=0.5))),
    Entry("MinSeparation(Oort)", lambda m: fp.MinSeparation(fp.Oort(m), 10)),
    Entry("Clustered by updates, 1,000 at most", lambda m: fp.Clustered(m, by="updates"), most=1_000),
]


def season(state: Any, count: int) -> None:
    """Bring a fresh state to where it is after many rounds: everyone chosen and heard, all different."""
    draw = fp.rng.stream(0, 0, "season")
    if isinstance(state, GuardState):
        state.used[:] = draw.exponential(0.2, count)
        state.until[:] = np.where(draw.random(count) < 0.05, 200, 0)
    if hasattr(state, "inner"):
        season(state.inner, count)
    for name in ("utility", "duration"):  # Oort, TiFL
        if hasattr(state, name):
            getattr(state, name)[:] = draw.gamma(2.0, 5.0, size=count)
    if hasattr(state, "last"):
        state.last[:] = draw.integers(1, 100, count)
    if hasattr(state, "vectors"):
        state.vectors = draw.normal(size=(count, state.vectors.shape[1] or 10))  # HiCS: of 10 outputs
    if hasattr(state, "changes"):  # FedCor
        state.changes[:] = state.vectors @ draw.normal(size=(state.vectors.shape[1], state.changes.shape[1]))
        state.when[:] = np.arange(1, len(state.when) + 1)
    for name in ("worth", "relevance"):  # GreedyFed, S-FedAvg
        if hasattr(state, name):
            getattr(state, name)[:] = draw.normal(size=count)
    if hasattr(state, "stays"):  # REFL
        for name in ("stays", "leaves", "comes", "waits"):
            getattr(state, name)[:] = draw.poisson(10, count)
    if hasattr(state, "cluster"):  # FLIPS, FedLECC
        state.cluster[:] = draw.integers(0, len(state.centres), count)
    if isinstance(state, UCBCSState):
        state.log_heard[:], state.spread[:] = draw.gamma(2.0, size=(2, count))
    if hasattr(state, "odds") and len(state.odds) == count:  # DELTA
        state.odds[:] = draw.gamma(2.0, size=count)
    if isinstance(state, F3ASTState):
        state.rate[:] = draw.uniform(0.0005, 0.002, count)
    if hasattr(state, "speed") and hasattr(state.speed, "counts"):
        state.speed.counts[:] = draw.poisson(20, count) + 1
        state.speed.rate[:] = draw.uniform(0.05, 1.0, count)
        state.speed.fastest, state.speed.slowest = 1.0, 20.0
    elif hasattr(state, "counts"):
        state.counts[:] = draw.poisson(20, count) + 1
    if hasattr(state, "loss"):
        state.loss[:] = draw.gamma(2.0, size=count)
    if hasattr(state, "value"):
        state.value[:] = draw.gamma(2.0, 10.0, size=count)
    if hasattr(state, "log_weights"):
        state.log_weights[:] = draw.normal(0.0, 3.0, count)
    if hasattr(state, "queue"):
        state.queue[:] = draw.exponential(2.0, count)
    if hasattr(state, "b"):
        state.b[:] = draw.uniform(0.5, 2.0, state.b.shape)


def _described(policy: Any) -> bool:
    """Whether the policy reads features."""
    return policy.alpha > 0 if isinstance(policy, fp.FedGS) else "features" in fp.traits(policy).needs


def scene(count: int, policy: Any) -> tuple[fp.Clients, np.ndarray, np.ndarray, np.ndarray]:
    """Clients, who is there (nine in ten), contexts, and the losses a probe would give."""
    draw = fp.rng.stream(0, 0, "scene")
    mix = features(count) if _described(policy) else None
    labels = draw.integers(0, 100, (count, 10)) if "labels" in fp.traits(policy).needs else None
    clients = fp.Clients(draw.lognormal(5.0, 1.0, count), labels, mix)
    return clients, draw.random(count) < 0.9, draw.uniform(0.5, 2.0, (count, 3)), draw.gamma(2.0, size=count)


def play(
    policy: Any, state: Any, round: int, parts: tuple[fp.Clients, np.ndarray, np.ndarray, np.ndarray]
) -> tuple[Any, float]:
    """One round; returns the next state and the processor seconds of select + observe."""
    clients, available, context, losses = parts
    view = fp.View(round, available, clients, context=context, probe=lambda ids, batch=None: losses[ids])
    view = replace(view, norms=lambda ids: losses[ids])
    rng = fp.rng.stream(0, round, "policy")
    started = time.process_time()
    choice = policy.select(state, view, rng)
    took = time.process_time() - started
    draw = fp.rng.stream(0, round, "outcome")
    status = np.where(draw.random(len(choice)) < 0.9, fp.Status.DONE, fp.Status.FAILED)
    outcome = fp.Outcome(status, draw.uniform(1.0, 20.0, len(choice)), draw.gamma(2.0, size=len(choice)))
    started = time.process_time()
    state = policy.observe(state, view, choice, outcome)
    return state, took + time.process_time() - started


def measure(entry: Entry, count: int, repeats: int) -> dict[str, Any]:
    """Median time of a round and of an argsort, measured in turn, and the memory a round takes beside the state."""
    policy = entry.make(max(10, count // 1000) if count < 10_000 else max(100, count // 1000))
    parts = scene(count, policy)
    started = time.process_time()
    state = policy.init(parts[0])
    init = time.process_time() - started
    season(state, count)
    floats = fp.rng.stream(0, 0, "argsort").random(count)
    rounds, sorts = [], []
    for round in range(101, 101 + repeats + 1):
        started = time.process_time()
        np.argsort(floats)
        sorts.append(time.process_time() - started)
        state, took = play(policy, state, round, parts)
        rounds.append(took)
    tracemalloc.start()
    play(policy, state, 500, parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ratio = float(np.median(np.array(rounds[1:]) / np.array(sorts[1:])))  # the first round warms up
    return {
        "policy": entry.name,
        "clients": count,
        "cohort": policy.cohort_size,
        "init_ms": 1e3 * init,
        "round_ms": 1e3 * float(np.median(rounds[1:])),
        "argsort_ms": 1e3 * float(np.median(sorts[1:])),
        "ratio": ratio,
        "peak_mb": peak / 2**20,
    }


def first_rounds() -> dict[str, float]:
    """Processor seconds of each policy's first round in this process."""
    seconds = {}
    for entry in ENTRIES:
        policy = entry.make(5)
        parts = scene(50, policy)
        started = time.process_time()
        state = policy.init(parts[0])
        season(state, 50)
        play(policy, state, 101, parts)
        seconds[entry.name] = time.process_time() - started
    return seconds


def first_calls() -> dict[str, dict[str, float]]:
    """Seconds of each policy's first round in a new process: once compiling, once from the cache."""
    code = "import json, bench_select; print(json.dumps(bench_select.first_rounds()))"
    with tempfile.TemporaryDirectory() as cache:
        runs = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=Path(__file__).parent,
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            runs.append(json.loads(done.stdout))
    return {"compiling": runs[0], "cached": runs[1]}


def table(rows: list[dict[str, Any]], compile_times: dict[str, dict[str, float]]) -> str:
    """The results as Markdown."""
    counts = sorted({row["clients"] for row in rows})
    by = {(row["policy"], row["clients"]): row for row in rows}
    largest = counts[-1]
    lines = [
        "Time of one round (select + observe) as a multiple of one `numpy.argsort` of K floats: medians of pairs. All",
        "times are processor times of one thread, measured in one run.",
        "",
        "| policy | "
        + " | ".join(f"K={c:,}" for c in counts)
        + f" | ms at K={largest:,} | peak MB there | first call, s (cached) |",
        "| --- |" + " ---: |" * (len(counts) + 3),
    ]
    for entry in ENTRIES:
        cells = [f"{by[entry.name, c]['ratio']:.2f}" if (entry.name, c) in by else "-" for c in counts]
        last = by[entry.name, max(c for c in counts if (entry.name, c) in by)]
        note = "" if last["clients"] == largest else f" (K={last['clients']:,})"
        first, cached = compile_times["compiling"][entry.name], compile_times["cached"][entry.name]
        lines.append(
            f"| {entry.name} | {' | '.join(cells)} | {last['round_ms']:.1f}{note} | {last['peak_mb']:.0f} | "
            f"{first:.2f} ({cached:.2f}) |"
        )
    sorts = ", ".join(
        f"{np.median([r['argsort_ms'] for r in rows if r['clients'] == c]):.3g} ms at K={c:,}" for c in counts
    )
    lines += [
        "",
        f"One argsort: {sorts}. Cohorts: " + ", ".join(f"{by['Uniform', c]['cohort']} of {c:,}" for c in counts) + ".",
    ]
    fedgs = [row for row in rows if row["policy"] == "FedGS"][-1]
    lines += [
        "",
        f"FedGS with its graph of {fedgs['clients']:,} clients: {fedgs['round_ms']:.0f} ms a choice; building it, "
        f"once: {fedgs['init_ms'] / 1e3:.1f} s.",
        "",
        "First call: a round of 50 clients in a new process, which compiles functions, or finds them in the cache.",
    ]
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], folder: Path) -> None:
    """Time over number of clients, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "fedpick"
    figure, axes = plt.subplots(figsize=(9, 6.5), layout="constrained")
    counts = sorted({row["clients"] for row in rows})
    sorts = [np.median([r["argsort_ms"] for r in rows if r["clients"] == c]) for c in counts]
    axes.plot(counts, sorts, color="black", linewidth=3, label="one numpy.argsort")
    axes.plot(counts, [3 * s for s in sorts], color="black", linewidth=1, linestyle="--", label="three of them")
    colours = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]  # told apart by the colour-blind, too
    for i, entry in enumerate(ENTRIES):
        own = [row for row in rows if row["policy"] == entry.name]
        axes.plot(
            [r["clients"] for r in own],
            [r["round_ms"] for r in own],
            color=colours[i % 6],
            marker="os^DvP*X"[i // 6 % 8],
            markersize=5,
            linewidth=1,
            label=entry.name,
        )
    axes.set(xscale="log", yscale="log", xlabel="clients K", ylabel="ms a round (select + observe)")
    axes.set_title("Time to choose a cohort")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(folder / "select.png", dpi=130)
    figure.savefig(folder / "select.svg", metadata={"Date": None})


def write_readme(rows: list[dict[str, Any]]) -> None:
    """Put the figures for a million clients into the README, between its markers."""
    readme = Path(__file__).parent.parent / "README.md"
    before, rest = readme.read_text().split("<!-- speed:begin", 1)
    head, rest = rest.split("-->", 1)
    after = rest.split("<!-- speed:end -->", 1)[1]
    most = max(row["clients"] for row in rows)
    by = {row["policy"]: row for row in rows if row["clients"] == most}
    fedgs, divfl = ([row for row in rows if row["policy"] == name][-1] for name in ("FedGS", "DivFL"))
    names = ["Uniform", "SizeWeighted", "rpow-d", "E3CS", "ActiveFL", "CSUCB", "BSFL", "RBCSF"]
    names += ["Oort", "TiFL", "F3AST", "MinSeparation(Oort)"]
    lines = [
        f"One round (select + observe), {by['Uniform']['cohort']:,} of {most:,} clients, beside one `numpy.argsort` of",
        "as many floats, in processor time of one thread:",
        "",
        "| " + " | ".join(names) + " |",
        "|" + " ---: |" * len(names),
        "| " + " | ".join(f"{by[name]['ratio']:.2f}x" for name in names) + " |",
        "| " + " | ".join(f"{by[name]['round_ms']:.1f} ms" for name in names) + " |",
        "",
        f"FedGS chooses {fedgs['cohort']} of {fedgs['clients']:,} clients on its graph in {fedgs['round_ms']:.0f} ms, "
        f"DivFL {divfl['cohort']} of {divfl['clients']:,} by sketches of 32 numbers in {divfl['round_ms']:.0f} ms.",
        "[All policies and sizes](benchmarks/results/select/select.md), with memory and compile times.",
    ]
    readme.write_text(f"{before}<!-- speed:begin{head}-->\n\n" + "\n".join(lines) + f"\n\n<!-- speed:end -->{after}")


def main() -> None:
    """Measure, then write table, plot and manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 clients and few repeats: a smoke test")
    parser.add_argument("--repeats", type=int, default=15, help="rounds that are measured")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for table, plot and manifest")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE.items()):  # read when NumPy is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE})
    counts = [1_000, 10_000] if options.quick else [1_000, 10_000, 100_000, 1_000_000]
    repeats = 3 if options.quick else options.repeats
    about = manifest({"quick": options.quick, "repeats": repeats, "threads": 1})  # of the code before results change
    jobs = [(entry, count) for count in counts for entry in ENTRIES if count <= entry.most]
    rows = [measure(e, c, repeats) for e, c in track(jobs, "measuring", console=console)]
    console.print("first calls, in new processes ...")
    compile_times = first_calls()
    options.out.mkdir(parents=True, exist_ok=True)
    text = table(rows, compile_times)
    (options.out / "select.md").write_text(text)
    (options.out / "select.json").write_text(json.dumps({"rows": rows, "first_call_s": compile_times}, indent=1) + "\n")
    (options.out / "manifest.json").write_text(json.dumps(about, indent=1) + "\n")
    plot(rows, options.out)
    if not options.quick:
        write_readme(rows)
    print(text)
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
