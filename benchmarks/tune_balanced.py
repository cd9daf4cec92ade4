"""The settings of `Balanced` against uniform, in the worlds in which they were tuned: none of those that judge it.

`balanced/worlds` of fedpick-papers judges, on digits and Synthetic(1, 1). Here: Fashion-MNIST and Synthetic(0.5, 0.5),
other worlds, seeds from 50 on. Prints, for each world and form, how many times as fast the level is reached (95% of
what uniform ends with), and differences of accuracy, of the worst tenth of the clients and of Jain's index.

    python benchmarks/tune_balanced.py "balanced" "balanced(speed=1.0)" --seeds 3 --worlds sorted device
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedpick import store
from fedpick.experiment import Config, executors
from fedpick.report import scores

EVERY = {"evaluate_every": 1, "spread_every": 5}
LINEAR = {"model": "logistic", "lr": 0.02, "steps": 5, **EVERY}
FASHION = {"name": "fashion-mnist", "partition": "dirichlet-labels(alpha=0.15, size=60)"}
SORTED = {"name": "fashion-mnist", "partition": "fedpick_papers.studies.balanced._sorted:Sorted(alpha=0.15, size=60)"}
# world, data, training, cohort size
WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]] = {
    "gamma": ({"name": "bsfl", "num_clients": 40}, FASHION, LINEAR, 6),
    "sorted": (
        {"name": "ideal", "num_clients": 40, "latency": "log-normal(medians=(1.0, 2.0, 4.0, 8.0), sigma=0.3)"},
        SORTED,
        LINEAR,
        6,
    ),
    "device": (
        {
            "name": "ideal",
            "num_clients": 60,
            "latency": "device(spread=1.0, waver=0.4, model_megabytes=1)",
            "availability": "bernoulli(0.5)",
        },
        {"name": "synthetic(0.5, 0.5)"},
        EVERY,
        6,
    ),
    "crashes": (
        {
            "name": "bursts",
            "num_clients": 50,
            "latency": "log-normal(medians=(1.0, 2.0, 4.0), sigma=0.4)",
            "deadline": 10.0,
        },
        {"name": "fashion-mnist", "partition": "dirichlet-labels(alpha=0.2, size=60)"},
        LINEAR,
        8,
    ),
}
ROUNDS, SEED0 = 80, 50
LAST, LAST_WORST = 8, 3


def played(policy: str, world: str, seed: int) -> dict[str, Any]:
    """One run: its clock and accuracies by rounds, and how often clients were chosen."""
    place, data, train, m = WORLDS[world]
    config = Config(
        policy=policy,
        cohort_size=m,
        rounds=ROUNDS,
        seed=seed,
        world=place,
        data={**data, "seed": seed},
        train=dict(train),
        checkpoint_every=1000,
    )
    with tempfile.TemporaryDirectory() as folder:
        executors.execute(config, Path(folder))
        table = store.read_rounds(Path(folder), ["clock", "accuracy", "worst_decile"])
        counts = scores.counts(store.read_selections(Path(folder), ["client"]), place["num_clients"])
    column = {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in table.column_names}
    worst = column["worst_decile"]
    return {**column, "worst": worst[~np.isnan(worst)][-LAST_WORST:].mean(), "jain": scores.jain(counts)}


def reached(run: dict[str, Any], level: float) -> float:
    """Seconds until the level; those of the whole run, if it was missed."""
    hit = np.flatnonzero(run["accuracy"] >= level)
    return float(run["clock"][hit[0] if len(hit) else -1])


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="+", help="forms to compare with uniform")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for world in options.worlds:
        seeds = range(SEED0, SEED0 + options.seeds)
        base = [played("uniform", world, seed) for seed in seeds]
        for policy in options.policies:
            rows = []
            for seed, first in zip(seeds, base, strict=True):
                run, end = played(policy, world, seed), first["accuracy"][-LAST:].mean()
                fast = np.log(reached(first, 0.95 * end) / reached(run, 0.95 * end))
                gaps = (run["accuracy"][-LAST:].mean() - end, run["worst"] - first["worst"])
                rows.append((fast, *(100 * each for each in gaps), run["jain"] - first["jain"]))
            fast, final, worst, jain = np.mean(rows, axis=0)
            print(
                f"{world:8} {policy:40} {np.exp(fast):.2f} times as fast, accuracy {final:+.1f}, "
                f"worst tenth {worst:+.1f}, Jain {jain:+.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
