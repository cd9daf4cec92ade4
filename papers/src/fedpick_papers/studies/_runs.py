"""Jobs that are runs of a policy in a world: executed in a run's folder, and read from its tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick import store
from fedpick.core.types import Floats, Ints
from fedpick.experiment import Config, executors
from fedpick_papers.studies._study import Found, Item, Measurement, Settings, seeds_of

__all__ = [
    "Played",
    "chosen_in",
    "column",
    "play_scheme",
    "play_training",
    "scheme_item",
    "scheme_items",
    "scheme_runs",
]


@dataclass(frozen=True)
class Played:
    """A job that executes a run, from its last checkpoint if there is one, and reads its tables.

    Args:
        config: item -> configuration of the run.
        read: (item, folder of the run) -> measurement.
    """

    config: Callable[[Item], Config]
    read: Callable[[Item, Path], Measurement]

    def __call__(self, item: Item, folder: Path) -> Measurement:
        executors.execute(self.config(item), folder)
        return self.read(item, folder)


def column(folder: Path, name: str) -> Floats:
    """A column of a run's rounds; NaN if a round has no value."""
    values: Floats = np.asarray(store.read_rounds(folder, [name])[name].to_numpy(), dtype=np.float64)
    return values


def chosen_in(folder: Path, rounds: int) -> list[Ints]:
    """The clients chosen in each of a run's rounds."""
    table = store.read_selections(folder, ["round", "client"])
    ends = np.searchsorted(table["round"].to_numpy(), np.arange(1, rounds), side="right")
    return [np.asarray(part, dtype=np.int64) for part in np.split(table["client"].to_numpy(), ends)]


# ---- schemes of a paper in its world, without training


def scheme_item(settings: Settings, world: str, policy: str, seed: int) -> dict[str, Any]:
    """The item of one scheme in one world with one seed; "{rounds}" in its text becomes the number of rounds."""
    return {
        "world": world,
        "clients": settings["clients"],
        "policy": policy.replace("{rounds}", str(settings["rounds"])),
        "cohort_size": settings["cohort_size"],
        "rounds": settings["rounds"],
        "seed": seed,
    }


def scheme_items(settings: Settings, worlds: Sequence[str]) -> list[dict[str, Any]]:
    """An item for each world, scheme and seed."""
    schemes: Mapping[str, str] = settings["schemes"]
    return [
        scheme_item(settings, world, policy, seed)
        for world in worlds
        for policy in schemes.values()
        for seed in seeds_of(settings)
    ]


def scheme_runs(settings: Settings, found: Found, world: str, policy: str) -> list[Measurement]:
    """The measurements of a scheme in a world, for each seed."""
    return [found[scheme_item(settings, world, policy, seed)] for seed in seeds_of(settings)]


def _config(item: Item) -> Config:
    return Config(
        policy=item["policy"],
        cohort_size=item["cohort_size"],
        rounds=item["rounds"],
        seed=item["seed"],
        world={"name": item["world"], "num_clients": item["clients"]},
        checkpoint_every=1000,  # rounds of well under a millisecond
    )


def _read(item: Item, folder: Path) -> Measurement:
    table = store.read_rounds(folder, ["seconds", "chosen", "done", "surplus"])
    clients = store.read_selections(folder, ["client"])["client"].to_numpy()
    return {
        "successes": table["done"].to_numpy() + table["surplus"].to_numpy(),  # (T) answers in time
        "chosen": table["chosen"].to_numpy(),  # (T) clients asked
        "seconds": table["seconds"].to_numpy(),  # (T)
        "counts": np.bincount(clients, minlength=item["clients"]),  # (K) how often each was chosen
    }


play_scheme = Played(_config, _read)


# ---- schemes that train a model


def _training(item: Item) -> Config:
    """A run that trains; with each seed the clients' data is drawn anew."""
    world = {"name": item["world"], "num_clients": item["clients"], **item.get("world_settings", {})}
    parted = {"partition": item["partition"]} if item["partition"] else {}  # generated data has none
    data = {"name": item["data"], **parted, **item.get("data_settings", {})}
    return Config(
        policy=item["policy"],
        cohort_size=item["cohort_size"],
        rounds=item["rounds"],
        seed=item["seed"],
        world=world,
        checkpoint_every=100,
        data={**data, "seed": item["seed"]},
        train={"spread_every": 0, **item["train"]},
    )


def _read_training(item: Item, folder: Path) -> Measurement:
    table = store.read_rounds(folder, ["round", "clock", "done", "accuracy", "test_loss"])
    there = np.isfinite(np.asarray(table["test_loss"].to_numpy(), dtype=np.float64))
    clients = store.read_selections(folder, ["client"])["client"].to_numpy()
    return {
        "returned": table["done"].to_numpy(),  # (T) answers in time
        "at": table["round"].to_numpy()[there],  # (E) rounds that were evaluated
        "clock": np.asarray(table["clock"].to_numpy()[there], dtype=np.float64),
        "accuracy": np.asarray(table["accuracy"].to_numpy()[there], dtype=np.float64),
        "loss": np.asarray(table["test_loss"].to_numpy()[there], dtype=np.float64),
        "counts": np.bincount(clients, minlength=item["clients"]),  # (K) how often each was chosen
    }


play_training = Played(_training, _read_training)
