"""Runs written by hand, in the form in which a simulator or a server writes them: fast, and with known numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import fedpick as fp
from fedpick.engine.stream import Ended, Job
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


PACE = "buffered(concurrency=6, size=3)"


def move(version, rng, clients, accuracy=None, seconds=10.0, stale=2):
    """A record without rounds: a move of the model with 3 answers of staleness 0 to `stale`, and a task that failed."""
    ids = rng.choice(clients, 4, replace=False)
    old = np.minimum(rng.integers(0, stale + 1, 4), version - 1)
    done, failed = fp.Status.DONE, fp.Status.FAILED
    tasks = tuple(
        Ended(
            Job(4 * version + i, int(client), version - 1 - int(tau), max(0.0, seconds * (version - 2)), 0.5),
            failed if i == 3 else done,
            seconds * version,
            int(tau),
            0.0 if i == 3 else 1.0,
        )
        for i, (client, tau) in enumerate(zip(ids, old, strict=True))
    )
    made = record(version, rng, clients, 4, accuracy)
    return replace(
        made,
        clock=seconds * version,
        seconds=seconds,
        ids=ids,
        status=np.array([each.status for each in tasks], dtype=np.int8),
        duration=np.array([each.duration for each in tasks]),
        messages=7,
        megabytes=70.0,
        asked=6 if version == 1 else 4,
        flying=6,
        tasks=tasks,
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
    seconds: float = 10.0,
    **config,
) -> Path:
    """Write a run; `accuracy` has one for each round (None: not evaluated), `about` goes to the manifest.

    `planned` rounds are more than the run has; `metrics` has a dict for each round; `seconds` is the time between two
    moves of the model where the `pace` is one without rounds.
    """
    clients = config.get("world", WORLD).get("num_clients", 12) if "engine" not in config else 12
    said = {"policy": policy, "cohort_size": 4, "rounds": planned or rounds, "seed": seed, "checkpoint_every": 100}
    said |= config if "engine" in config else {"world": WORLD, **config}
    rng = fp.rng.stream(seed, len(policy), "made")
    scored = accuracy if accuracy is not None else [None] * rounds
    if str(config.get("pace", "")).startswith("buffered("):
        records = [move(t + 1, rng, clients, scored[t], seconds) for t in range(rounds)]
    else:
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
