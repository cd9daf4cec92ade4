"""Speed of a complete run, and memory for a million clients; times of a session with many clients.

Rounds per second of `fp.Run` (world, policy, records) with 20 of 100 clients, compared with a bare NumPy loop that
draws such numbers and stores nothing; then 100 rounds of 1,000 of 1,000,000 clients in another process, with its peak
memory; then tasks a second under `fp.Buffered`, beside a bare loop with a heap, and with few clients; then 10,000
answers to a round of `fp.Session`, and opening a round with a list of 1,000,000 names. All times are processor times.
Writes benchmarks/results/world/.
"""

import argparse
import heapq
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedpick as fp
from _manifest import manifest

RESULTS = Path(__file__).parent / "results" / "world"
POLICIES: dict[str, Callable[[int], Any]] = {
    "Uniform": lambda m: fp.Uniform(m),
    "E3CS": lambda m: fp.E3CS(m),
    "E3CS, quota 0.5": lambda m: fp.E3CS(m, quota=0.5),
}


def bare(rounds: int) -> None:
    """The least that such an experiment needs: who succeeds, who is chosen, how many returned."""
    rng, rates = np.random.default_rng(0), np.repeat([0.1, 0.3, 0.6, 0.9], 25)
    returned = np.zeros(100)
    for _ in range(rounds):
        works = rng.random(100) < rates
        chosen = rng.choice(100, 20, replace=False)
        returned[chosen] += works[chosen]


def rate(work: Callable[[int], object], rounds: int) -> float:
    """Rounds a second of processor time."""
    started = time.process_time()
    work(rounds)
    return rounds / (time.process_time() - started)


def small(repeats: int, rounds: int) -> list[dict[str, Any]]:
    """Medians of runs measured in turn with the bare loop."""
    rows = []
    for world in ("e3cs", "volatile"):
        for name, make in POLICIES.items():
            list(fp.Run(make(20), fp.worlds.named(world), seed=0).rounds(50))  # compile
            ours, loop = [], []
            for seed in range(repeats):
                run = fp.Run(make(20), fp.worlds.named(world), seed=seed)
                ours.append(rate(lambda n, run=run: list(run.rounds(n)), rounds))
                loop.append(rate(bare, rounds))
            ratio = float(np.median(np.array(ours) / np.array(loop)))
            rows.append({"world": world, "policy": name, "rounds_per_s": float(np.median(ours)), "of_bare_loop": ratio})
    return rows


def large(name: str, clients: int, rounds: int) -> None:
    """In a process of its own: run, then print rounds a second and the peak memory."""
    run = fp.Run(POLICIES[name](1000), fp.worlds.named("volatile", clients), seed=0)
    started = time.process_time()
    for _ in run.rounds(rounds):
        pass
    took = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"policy": name, "clients": clients, "rounds_per_s": rounds / took, "peak_rss_mb": peak}))


@dataclass(frozen=True, eq=False)
class Listed:
    """A policy that takes the next clients of a list: what is left is the time of the run."""

    cohort_size: int
    order: np.ndarray
    at: list[int] = field(default_factory=lambda: [0])

    def init(self, clients: fp.Clients) -> None:
        """Nothing is learned."""

    def select(self, state: None, view: fp.View, rng: np.random.Generator) -> fp.Choice:
        """The next ones that are idle."""
        next_ones = self.order[np.arange(self.at[0], self.at[0] + 2 * (view.wanted or 0)) % len(self.order)]
        idle = np.flatnonzero(view.available[next_ones])[: view.wanted]
        self.at[0] += int(idle[-1]) + 1
        return fp.Choice(next_ones[idle])

    def observe(self, state: None, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> None:
        """Nothing is learned."""


FLYING = 1_000  # tasks at the same time
STREAMS = (("listed", 100), ("Uniform", 100), ("Uniform", 1))  # how clients are chosen, and how many at a time


def stream_of(name: str, refill: int, clients: int) -> fp.Run:
    """An asynchronous run without training: 1,000 clients work, the model moves after 100 answers."""
    world = fp.World(
        fp.Clients(np.ones(clients)),
        availability=fp.worlds.Always(),
        volatility=fp.worlds.Reliable(),
        latency=fp.worlds.LogNormalTime(),
        deadline=None,
    )
    order = np.random.default_rng(0).permutation(clients)
    policy = fp.Uniform(FLYING) if name == "Uniform" else Listed(FLYING, order)
    return fp.Run(policy, world, seed=0, pace=fp.Buffered(FLYING, size=100, refill=refill))


def bare_stream(clients: int, tasks: int) -> float:
    """Tasks a second of the least that such a run needs: who works until when, and somebody idle for each who ends."""
    luck, agenda, counts = random.Random(0), [(0.0, client) for client in range(FLYING)], [0] * clients
    idle = list(range(FLYING, clients))
    started = time.process_time()
    for _ in range(tasks):
        now, client = heapq.heappop(agenda)
        at = int(luck.random() * len(idle))
        idle[at], client = client, idle[at]
        counts[client] += 1
        heapq.heappush(agenda, (now + luck.lognormvariate(0.0, 0.4), client))
    return tasks / (time.process_time() - started)


def streams(repeats: int, clients: int, tasks: int) -> list[dict[str, Any]]:
    """Medians of tasks a second, of their share of the bare loop's, and of the time a task beside that of few clients.

    All three are measured in turn, so that other work on the machine slows them alike.
    """
    rows = []
    for name, refill in STREAMS:
        many, few = (stream_of(name, refill, count) for count in (clients, 10 * FLYING))
        for run in (many, few):
            list(run.rounds(until=20))  # until the first have ended
        commits, found = max(tasks // 100 // (1 if refill > 1 else 10), 1), []
        for _ in range(repeats):
            ours, small = (
                100 * rate(lambda n, run=run: list(run.rounds(until=run.state.round + n)), commits)
                for run in (many, few)
            )
            found.append((ours, ours / bare_stream(clients, 100 * commits), small / ours))
        per_s, bare_share, longer = np.median(found, axis=0).tolist()
        rows.append(
            {"choice": name, "at_a_time": refill, "tasks_per_s": per_s, "of_bare": bare_share, "longer": longer}
        )
    return rows


def sessions(repeats: int, answers: int, clients: int) -> dict[str, float]:
    """Medians of milliseconds that a session's answers and the opening of its rounds take."""

    def answered(**more: float) -> float:
        round = fp.Session(fp.Uniform(answers)).round([f"phone-{k}" for k in range(answers)])
        started = time.process_time()
        for name in round.chosen:
            round.done(name, loss=0.5, **more)
        return time.process_time() - started

    session, names, opened = fp.Session(fp.Uniform(100)), [f"phone-{k}" for k in range(clients)], []
    for _ in range(repeats + 1):
        started = time.process_time()
        with session.round(names):
            opened.append(time.process_time() - started)
    took = {
        "answers with a loss": [answered() for _ in range(repeats)],
        "answers with loss, seconds, size and update": [
            answered(seconds=0.01, size=7, update=1) for _ in range(repeats)
        ],
        "the first round, which enrols all": opened[:1],
        "a later round": opened[1:],
    }
    return {what: 1e3 * float(np.median(seconds)) for what, seconds in took.items()}


def main() -> None:
    """Measure, then write the table and the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, fewer clients: a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for table and manifest")
    parser.add_argument("--large", nargs=3, metavar=("POLICY", "CLIENTS", "ROUNDS"), help="used by itself")
    options = parser.parse_args()
    if options.large:
        large(options.large[0], int(options.large[1]), int(options.large[2]))
        return
    repeats, rounds, clients, long = (2, 300, 10_000, 5) if options.quick else (7, 2_000, 1_000_000, 100)
    rows = small(repeats, rounds)
    big = []
    for name in POLICIES:
        command = [sys.executable, __file__, "--large", name, str(clients), str(long)]
        big.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    flowing = streams(repeats, max(clients, 20_000), 200 * rounds // 10)
    served = sessions(repeats, clients // 100, clients)
    lines = [
        f"20 of 100 clients, runs of {rounds:,} rounds, medians of {repeats}; the bare loop draws who works and who is",
        "chosen in NumPy, and keeps nothing. All times are processor times.",
        "",
        "| world | policy | rounds a second | share of the bare loop's |",
        "| --- | --- | ---: | ---: |",
        *(f"| {r['world']} | {r['policy']} | {r['rounds_per_s']:,.0f} | {r['of_bare_loop']:.2f} |" for r in rows),
        "",
        f"1,000 of {clients:,} clients, {long} rounds in the volatile world:",
        "",
        "| policy | rounds a second | peak memory of the process, MB |",
        "| --- | ---: | ---: |",
        *(f"| {r['policy']} | {r['rounds_per_s']:.1f} | {r['peak_rss_mb']:,.0f} |" for r in big),
        "",
        f"Without rounds: {FLYING:,} of {max(clients, 20_000):,} clients work, the model moves after 100 answers, and",
        "clients are asked when so many have ended; without training. A listed choice takes clients from a list.",
        f"The bare loop keeps who works until when, and replaces each who ends. Few clients are {10 * FLYING:,}.",
        "",
        "| choice | at a time | tasks a second | share of the bare loop's | time of a task (few clients: 1) |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {r['choice']} | {r['at_a_time']} | {r['tasks_per_s']:,.0f} | {r['of_bare']:.3f} | {r['longer']:.2f} |"
            for r in flowing
        ),
        "",
        f"A session, {clients // 100:,} answers to a round, and opening rounds with a list of {clients:,} names:",
        "",
        "| what | ms |",
        "| --- | ---: |",
        *(f"| {what} | {took:,.0f} |" for what, took in served.items()),
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "world.md").write_text("\n".join(lines) + "\n")
    (options.out / "world.json").write_text(
        json.dumps({"small": rows, "large": big, "streams": flowing, "session_ms": served}, indent=1) + "\n"
    )
    settings = {"quick": options.quick, "repeats": repeats, "rounds": rounds}
    (options.out / "manifest.json").write_text(json.dumps(manifest(settings), indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
