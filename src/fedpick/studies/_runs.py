"""Runs without training, which most studies are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.simulate.run import Run, policy_for
from fedpick.types import Floats, Ints, Status
from fedpick.worlds import named

__all__ = ["Measured", "play_scheme", "scheme_items"]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a run gave, round by round, and how often each client was chosen."""

    successes: Ints  # (T) answers in time
    chosen: Ints  # (T) clients asked
    seconds: Floats  # (T)
    queue: Floats  # (T) mean of the policy's queues; 0 for policies without
    counts: Ints  # (K)


def scheme_items(settings: Mapping[str, Any], worlds: Mapping[str, str]) -> list[dict[str, Any]]:
    """An item for each world, scheme and seed; "{rounds}" in a scheme's text becomes the number of rounds."""
    return [
        {
            "world": worlds[where],
            "clients": settings["clients"],
            "policy": text.replace("{rounds}", str(settings["rounds"])),
            "cohort_size": settings["cohort_size"],
            "rounds": settings["rounds"],
            "seed": seed,
        }
        for where in worlds
        for text in settings["schemes"].values()
        for seed in range(settings["seeds"])
    ]


def play_scheme(item: Mapping[str, Any]) -> Measured:
    """One policy in one world at one seed."""
    world = named(item["world"], item["clients"])
    policy = policy_for(item["policy"], world, item["cohort_size"])
    run = Run(policy, world, seed=item["seed"])
    rounds = item["rounds"]
    successes, chosen = np.zeros(rounds, dtype=np.int64), np.zeros(rounds, dtype=np.int64)
    seconds, queue = np.zeros(rounds), np.zeros(rounds)
    counts = np.zeros(len(world.clients), dtype=np.int64)
    for t, record in enumerate(run.rounds(rounds)):
        successes[t] = np.count_nonzero((record.status == Status.DONE) | (record.status == Status.SURPLUS))
        chosen[t], seconds[t] = len(record.ids), record.seconds
        lengths = getattr(run.state.policy, "queue", None)
        if lengths is not None:
            queue[t] = lengths.mean()
        np.add.at(counts, record.ids, 1)  # drawn with replacement, a client counts each time
    return Measured(successes, chosen, seconds, queue, counts)
