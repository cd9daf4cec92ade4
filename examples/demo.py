"""`make demo`: six policies choose among unreliable clients; who returns most, and how evenly do they choose?

100 clients in four classes that return their model with probability 0.1, 0.3, 0.6 or 0.9 (the setting of E3CS, Fig. 3)
and take 1 to 8 seconds; one in ten is away in any round. Every policy meets the same world.
"""

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fedpick as fp

CLIENTS, COHORT, ROUNDS, SEED = 100, 20, 1000, 0
SUCCESS = np.repeat([0.1, 0.3, 0.6, 0.9], CLIENTS // 4)
SECONDS = fp.rng.stream(SEED, 0, "seconds").permutation(np.linspace(1.0, 8.0, CLIENTS))
POLICIES = ["uniform", "e3cs(quota=0)", "e3cs(quota=0.5)", "bsfl(tau_min=1, tau_max=10)", "fedgs(alpha=0)", "rpow-d"]


def play(text: str) -> list[str]:
    """Run one policy for all rounds; return a row of the table."""
    clients = fp.Clients(sizes=np.full(CLIENTS, 500))
    policy = fp.policy(text, cohort_size=COHORT)
    state, chosen, returned, clock, spent = policy.init(clients), np.zeros(CLIENTS), 0, 0.0, 0.0
    for round in range(1, ROUNDS + 1):
        world = fp.rng.stream(SEED, round, "world")  # drawn for all clients, so that every policy meets the same
        here, works, noise = world.random(CLIENTS) < 0.9, world.random(CLIENTS) < SUCCESS, world.gamma(4, 0.25, CLIENTS)
        view = fp.View(round, here, clients)
        started = time.perf_counter()
        choice = policy.select(state, view, fp.rng.stream(SEED, round, "policy"))
        ids = choice.clients
        seconds = SECONDS[ids] * noise[ids]
        status = np.where(works[ids] & (seconds <= 10), fp.Status.DONE, fp.Status.FAILED)
        state = policy.observe(state, view, choice, fp.Outcome(status, seconds, 1.0 / round + 0.1 * noise[ids]))
        spent += time.perf_counter() - started
        chosen[ids] += 1
        done = status == fp.Status.DONE
        returned += int(done.sum())
        clock += float(seconds[done].max(initial=0.0)) if done.all() else 10.0  # a missing answer costs the deadline
    jain = chosen.sum() ** 2 / (CLIENTS * (chosen**2).sum())
    spread = f"{chosen[:25].mean():.0f} / {chosen[-25:].mean():.0f}"
    return [
        text,
        f"{returned:,}",
        f"{100 * returned / (ROUNDS * COHORT):.0f}%",
        f"{jain:.2f}",
        spread,
        f"{1e3 * spent / ROUNDS:.2f}",
    ]


if __name__ == "__main__":
    console = Console()
    table = Table(title=f"{ROUNDS:,} rounds, {COHORT} of {CLIENTS} clients a round, seed {SEED}")
    for column in (
        "policy",
        "models returned",
        "of those asked",
        "fairness (Jain)",
        "times chosen, worst / best class",
        "ms a round",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for text in track(POLICIES, "choosing", console=console, transient=True):
        table.add_row(*play(text))
    console.print(table)
    console.print("More returned models and a fairness near 1 pull against each other: E3CS's quota sets the balance.")
