"""REFL: device hours until an accuracy, and work that is wasted, with late updates kept."""

from pathlib import Path

import numpy as np

from fedpick import Status, store
from fedpick_papers.studies._runs import Played, play_training
from fedpick_papers.studies._study import Finding, Item, Measurement, Result
from fedpick_papers.studies._trained import reached
from fedpick_papers.studies._verdicts import Limit, above, judge, within
from fedpick_papers.studies.baselines._levels import study, texts

__all__ = ["STUDY"]

# No fluctuation: what a late client worked is known from its mean time.
MIXED = "device(examples_per_second=100, spread=0.7, waver=0, cold_start=0, model_megabytes=1)"
SAME = "points of accuracy that count as no loss of accuracy"
LIMITS = {SAME: Limit(1.0, "our choice, before the run")}


def _read(item: Item, folder: Path) -> Measurement:
    """Adds the device hours spent by each evaluation, and the share of them whose update was never used."""
    found = play_training.read(item, folder)
    table = store.read_rounds(folder, ["clock", "seconds"])
    clock, seconds = (np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("clock", "seconds"))
    picked = store.read_selections(folder, ["round", "client", "status"])
    round, client, status = (np.asarray(picked[name].to_numpy()) for name in ("round", "client", "status"))
    world = play_training.config(item).build().world
    fresh = world.init(item["seed"])  # times are the same in all rounds
    times = world.seconds(fresh, world.draw(fresh, item["seed"], 1), np.arange(item["clients"]))[client]
    arrives = (clock - seconds)[round - 1] + times
    delay = np.searchsorted(clock, arrives) + 1 - round  # the round in which it arrives, less that of the start
    in_time = (delay <= item["world_settings"]["late"]) & (arrives <= clock[-1])
    used = (status == Status.DONE.name) | ((status == Status.LATE.name) & in_time)
    spent = np.bincount(round - 1, weights=times, minlength=len(clock)).cumsum() / 3600
    return {**found, "spent": spent[found["at"] - 1], "wasted": float(times[~used].sum() / times.sum())}


def _spent(run: Measurement, level: float) -> float:
    """Device hours until the level; of the whole run if it is not reached."""
    hit = reached(run["spent"], run["accuracy"], level)
    return hit if np.isfinite(hit) else float(run["spent"][-1])


def _score(result: Result) -> list[Finding]:
    spent, wasted, final = result["spent_to"], result["wasted"], result["final"]

    def cheaper(rival: str) -> Finding:
        return Finding(
            f"REFL needs fewer device hours to the level than {rival}",
            "curves only: 'resource efficiency while also improving trained model quality'",
            f"device hours: {texts({name: spent[name] for name in ('refl', rival)}, 2)}",
            judge([above(np.log(spent[rival]) - np.log(spent["refl"]), f"{rival} > REFL", ratio=True)]),
            f"reached by {result['reached']['refl']} and {result['reached'][rival]} of {result['seeds']} seeds",
            extension=True,
        )

    less = Finding(
        "with REFL less of the devices' work is wasted than with uniform choice that drops late updates",
        "curves only",
        f"% of the device hours: {texts({name: 100 * np.asarray(wasted[name]) for name in ('refl', 'uniform')}, 1)}",
        judge([above(100 * (np.asarray(wasted["uniform"]) - wasted["refl"]), "uniform > REFL (points)", digits=1)]),
        extension=True,
    )
    gap = 100 * (np.asarray(final["refl"]) - final["uniform"])
    same = Finding(
        "REFL's final accuracy is no lower than that of uniform choice",
        "'also improving trained model quality'",
        texts({name: 100 * np.asarray(final[name]) for name in ("refl", "uniform")}, 1, "%"),
        judge([within(gap, "REFL - uniform (points)", low=-LIMITS[SAME].value, digits=1)]),
        "after as many rounds",
        extension=True,
    )
    names = ("refl", "refl, late dropped", "uniform, late kept", "uniform")
    part = Finding(
        "keeping late updates saves device hours with REFL's choice",
        "curves only",
        f"device hours: {texts({name: spent[name] for name in names}, 2)}",
        judge([above(np.log(spent["refl, late dropped"]) - np.log(spent["refl"]), "dropped > kept", ratio=True)]),
        extension=True,
    )
    return [cheaper("uniform"), cheaper("oort"), less, same, part]


KEPT = {"world_settings": {"late": 5}}
STUDY = study(
    "refl/device-hours",
    "Device hours to an accuracy, with late updates kept",
    "Abdelmoniem, Sahu, Canini & Fahmy (2023), REFL, section 5",
    {
        "refl": {"policy": "refl", **KEPT},
        "refl, late dropped": "refl",
        "uniform": "uniform",
        "uniform, late kept": {"policy": "uniform", **KEPT},
        "oort": "oort",
    },
    _score,
    about="Clients are available with log-normal probabilities (FedGS's LN, 0.5). Devices differ in speed and links "
    "(log-normal, sigma 0.7), and the deadline is 2.5 s; REFL keeps updates that come up to five rounds late. A device "
    "hour is an hour of one chosen client, whether or not its update is used",
    time=True,
    job=Played(play_training.config, _read),
    more={"spent_to": _spent, "wasted": lambda run, level: float(run["wasted"])},
    limits=LIMITS,
    seeds=8,
    world_settings={"availability": "log-normal(0.5)", "latency": MIXED, "deadline": 2.5, "late": 0},
)
