"""SCAFFOLD's experiment of the rounds to a level, on the digits: FedAvg, FedProx, SCAFFOLD and FedDyn.

Karimireddy et al. (2020), section 7: logistic regression, clients that each hold sorted labels (a similarity of 0% or
10%), a fifth of them in each round, 1, 5 or 10 epochs of 5 local steps on a fifth of a client's data, a global rate of
1, local rates tuned for each algorithm, mu = 1 of FedProx. Theirs is EMNIST to 50%; here it is the 8 x 8 digits to 90%,
among 50 clients. A second table has cohorts of 2 to 25 of them: how often a client is chosen. Writes table and manifest
to benchmarks/results/algorithms/.

    python benchmarks/bench_algorithms.py               five seeds: two minutes of a core
    python benchmarks/bench_algorithms.py --quick       one seed, few rounds: a smoke test
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedpick as fp
from _manifest import manifest
from fedpick import learn, worlds
from fedpick.data import Federated

RESULTS = Path(__file__).parent / "results" / "algorithms"
CLIENTS, LEVEL = 50, 0.9
RATES = (0.3, 0.1, 1.0, 3.0, 0.03)
ALGORITHMS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx (mu = 1)": {"prox": 1.0},
    "SCAFFOLD": {"algorithm": "scaffold"},
    "FedDyn (alpha = 0.1)": {"algorithm": "feddyn(alpha=0.1)"},
}


def split(similarity: float, seed: int) -> Federated:
    """Each client holds this share of its examples at random, and the rest in the order of their labels."""
    dataset = fp.data.load("digits")
    rng = fp.rng.stream(seed, 0, "partition")
    order = rng.permutation(len(dataset) // CLIENTS * CLIENTS)
    mixed = round(similarity * len(order) / CLIENTS) * CLIENTS
    ordered = order[mixed:][np.argsort(dataset.y[order[mixed:]], kind="stable")]
    parts = [
        np.concatenate(pair) for pair in zip(np.split(order[:mixed], CLIENTS), np.split(ordered, CLIENTS), strict=True)
    ]
    return Federated(dataset, np.concatenate(parts), len(parts[0]) * np.arange(CLIENTS + 1))


def rounds_to_level(federated: Federated, cohort: int, epochs: int, lr: float, most: int, seed: int, **how: Any) -> int:
    """Rounds until the test accuracy is first reached; `most` + 1 if it is not."""
    batch = -(-int(federated.sizes[0]) // 5)
    model = learn.logistic(federated.dataset.inputs, federated.dataset.classes)
    trainer = learn.Trainer(
        federated,
        model,
        lr=lr,
        batch=batch,
        steps=5 * epochs,
        aggregation="mean",
        evaluate_every=1,
        spread_every=0,
        **how,
    )
    world = replace(worlds.named("ideal", CLIENTS), clients=federated.clients, epochs=(1,))
    for record in fp.Run(fp.Uniform(cohort), world, seed, trainer).rounds(most):
        if record.metrics["accuracy"] >= LEVEL:
            return record.round
    return most + 1


def best(similarity: float, cohort: int, epochs: int, most: int, seeds: int, how: dict[str, Any]) -> dict[str, Any]:
    """Median rounds over the seeds with the best of the rates."""
    found = {"rounds": float(most + 1), "lr": RATES[0]}
    for lr in RATES:
        limit = min(most, int(found["rounds"]))  # whoever needs more is not the best
        each = [rounds_to_level(split(similarity, s), cohort, epochs, lr, limit, s, **how) for s in range(seeds)]
        if statistics.median(each) < found["rounds"]:
            found = {"rounds": statistics.median(each), "lr": lr}
    return found


def shown(found: dict[str, Any], most: int) -> str:
    """A cell of a table."""
    return f"> {most}" if found["rounds"] > most else f"{found['rounds']:g} ({found['lr']:g})"


def table(rows: list[dict[str, Any]], column: str, most: int) -> list[str]:
    """Rows of a Markdown table: algorithms down, values of `column` across."""
    values = list(dict.fromkeys(row[column] for row in rows))
    lines = ["| algorithm | " + " | ".join(f"{value}" for value in values) + " |", "| --- |" + " ---: |" * len(values)]
    for name in ALGORITHMS:
        cells = [shown(row, most) for row in rows if row["algorithm"] == name]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Play all, and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, few rounds: a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    seeds, most = (1, 5) if given.quick else (5, 500)
    epochs, cohorts = ((1,), (10,)) if given.quick else ((1, 5, 10), (2, 5, 10, 25))
    started, rows, lines = time.process_time(), [], []
    for similarity in (0.0, 0.1):
        part = []
        for many in epochs:
            for name, how in ALGORITHMS.items():
                found = best(similarity, CLIENTS // 5, many, most, seeds, how)
                part.append({"algorithm": name, "similarity": similarity, "cohort": 10, "epochs": many, **found})
                print(part[-1], flush=True)
        title = f"Rounds to {LEVEL:.0%} with a similarity of {similarity:.0%}, by epochs in a round:"
        lines += [title, "", *table(part, "epochs", most), ""]
        rows += part
    part = []
    for cohort in cohorts:
        for name, how in ALGORITHMS.items():
            found = best(0.0, cohort, 5, most, seeds, how)
            part.append({"algorithm": name, "similarity": 0.0, "cohort": cohort, "epochs": 5, **found})
            print(part[-1], flush=True)
    title = f"Rounds to {LEVEL:.0%} with a similarity of 0% and 5 epochs, by clients in a round, of {CLIENTS}:"
    lines += [title, "", *table(part, "cohort", most), ""]
    rows += part
    rates = ", ".join(f"{rate:g}" for rate in sorted(RATES))
    note = f"Medians of {seeds} seeds with the best of the rates {rates}, which is in brackets."
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "algorithms.md").write_text("\n".join([*lines, note, ""]))
    about = {**manifest(vars(given) | {"out": None}), "rows": rows, "seconds": time.process_time() - started}
    (given.out / "manifest.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
