"""Runs written by hand, in the form in which a simulator or a server writes them: fast, and with known numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import fedpick as fp
from fedpick.store import Tables

WORLD = {"name": "volatile", "num_clients": 12}


def record(round, rng, clients, cohort_size, accuracy=None, failed_seconds=np.nan):
    ids = rng.choice(clients, cohort_size, replace=False)
    status = rng.choice([0, 0, 0, 1, 2], cohort_size).astype(np.int8)
    metrics = {} if accuracy is None else {"accuracy": accuracy, "test_loss": 1.0 - accuracy}
    return fp.Record(
        round=round,
        clock=60.0 * round,
        seconds=60.0,
        available=clients,
        messages=2 * cohort_size,
        megabytes=100.0 * cohort_size,
        ids=ids,
        inclusion=np.full(cohort_size, cohort_size / clients),
        status=status,
        duration=np.where(status == fp.Status.FAILED, failed_seconds, rng.uniform(1, 60, cohort_size)),
        loss=np.ones(cohort_size),
        metrics=metrics,
    )


def make(
    folder: Path,
    policy: str = "uniform",
    seed: int = 0,
    rounds: int = 6,
    accuracy=None,
    about=None,
    finish: bool = True,
    failed_seconds: float = np.nan,
    planned: int | None = None,
    metrics=None,
    **config,
) -> Path:
    """Write a run; `accuracy` has one for each round (None: not evaluated), `about` goes to the manifest.

    `planned` rounds are more than the run has; `metrics` has a dict for each round.
    """
    clients = config.get("world", WORLD).get("num_clients", 12) if "engine" not in config else 12
    said = {"policy": policy, "cohort_size": 4, "rounds": planned or rounds, "seed": seed, "checkpoint_every": 100}
    said |= config if "engine" in config else {"world": WORLD, **config}
    rng = fp.rng.stream(seed, len(policy), "made")
    scored = accuracy if accuracy is not None else [None] * rounds
    records = [record(t + 1, rng, clients, said["cohort_size"], scored[t], failed_seconds) for t in range(rounds)]
    names = ["accuracy", "test_loss"] if accuracy is not None else []
    if metrics is not None:
        records = [replace(each, metrics=found) for each, found in zip(records, metrics, strict=True)]
        names = list(metrics[-1])
    with Tables(folder, said) as tables:
        tables.write(records, names)
        if finish:
            tables.join(rounds)
        if about is not None:
            tables.note(about)
    return folder


def study(root: Path, policies=("uniform", "e3cs(quota=0.5)", "fedcs"), seeds=5, curve=None, **config) -> Path:
    """A folder of an experiment: policies x seeds under runs/."""
    for policy in policies:
        for seed in range(seeds):
            name = f"{fp.errors.bare_name(policy)}-{seed}"
            make(root / "runs" / name, policy, seed, accuracy=curve(policy, seed) if curve else None, **config)
    return root
