"""Worlds by name: those of the papers' experiments, and a few that fleets resemble.

A named world's clients (their data sizes and labels) are the same at every seed, as a data set is; what is drawn of
them (speeds, links, time zones, epochs, who comes and who fails) goes by the seed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedpick import rng as rngs
from fedpick.errors import require, unknown_name
from fedpick.types import Clients
from fedpick.world import availability, latency, volatility
from fedpick.world.world import World, phones

__all__ = ["WORLDS", "named", "phones"]


def _even(count: int) -> Clients:
    return Clients(np.full(count, 500.0))


def ideal(clients: int = 100) -> World:
    """Everyone there, everyone succeeds, nobody takes time."""
    return World(_even(clients), availability.Always(), volatility.Reliable(), latency.PerClient(), None, (1,))


def e3cs(clients: int = 100) -> World:
    """E3CS, section VI: four classes that return their model with probability 0.1, 0.3, 0.6, 0.9."""
    return World(_even(clients), availability.Always(), volatility.SuccessRates(), latency.PerClient(1.0), None)


def bursts(clients: int = 100) -> World:
    """E3CS's classes, but crashes last: mean spells of 10 rounds."""
    return World(_even(clients), availability.Always(), volatility.Bursts(), latency.PerClient(1.0), None)


def rbcsf(clients: int = 40) -> World:
    """RBCS-F, section 6.1: linear times with contexts in four classes, each client there with probability 0.8."""
    law = latency.Linear()
    return World(
        _even(clients),
        availability.Bernoulli(0.8),
        volatility.Reliable(),
        law,
        None,
        (1,),
        model_megabytes=law.megabits / 8.0,
    )


def bsfl(clients: int = 20) -> World:
    """BSFL: shifted-gamma times with unknown means, a deadline of 20 s (our choice, the paper gives none)."""
    return World(_even(clients), availability.Always(), volatility.Reliable(), latency.Gamma(), 20.0, (1,))


def volatile(clients: int = 100) -> World:
    """E3CS's unreliable classes with stragglers, a deadline and one in ten away: hard on every policy."""
    return World(
        phones(clients), availability.Bernoulli(0.9), volatility.SuccessRates(), latency.Gamma(1.0, 4.0, 1.0, 8.0), 12.0
    )


def phone_fleet(clients: int = 100) -> World:
    """The default world: phones that charge at night in eight time zones, log-normal speeds and links."""
    return World(phones(clients))


def _fedgs(mode: Callable[[], Any]) -> Callable[[int], World]:
    def make(clients: int = 100) -> World:
        rng = rngs.stream(0, 0, "clients")
        sizes = np.round(rng.lognormal(5.0, 0.8, clients)) + 10.0
        labels = np.zeros((clients, 10))
        first = rng.integers(0, 10, clients)
        second = (first + rng.integers(1, 10, clients)) % 10  # two labels each, as FedGS splits Fashion-MNIST
        labels[np.arange(clients), first] = labels[np.arange(clients), second] = sizes / 2
        people = Clients(sizes, labels=labels, features=labels / labels.sum(axis=1, keepdims=True))
        return World(people, mode(), volatility.Reliable(), latency.PerClient(1.0), None, (1,))

    make.__doc__ = f"FedGS's availability {mode.__name__}: {(mode.__doc__ or '').splitlines()[0]}"
    return make


WORLDS: dict[str, Callable[[int], World]] = {
    "phones": phone_fleet,
    "volatile": volatile,
    "ideal": ideal,
    "e3cs": e3cs,
    "bursts": bursts,
    "rbcs-f": rbcsf,
    "bsfl": bsfl,
    "fedgs-idl": _fedgs(availability.Always),
    "fedgs-mdf": _fedgs(availability.MoreDataFirst),
    "fedgs-ldf": _fedgs(availability.LessDataFirst),
    "fedgs-ymf": _fedgs(availability.YMaxFirst),
    "fedgs-yc": _fedgs(availability.YCycle),
    "fedgs-ln": _fedgs(availability.LogNormal),
    "fedgs-sln": _fedgs(availability.SinLogNormal),
}


def named(name: str, clients: int | None = None) -> World:
    """Make a world by its name, with this many clients if given.

    >>> named("rbcs-f").deadline is None
    True
    """
    if name not in WORLDS:
        raise unknown_name("world", name, list(WORLDS))
    require(clients is None or clients >= 1, f"world {name!r}: clients", clients, ">= 1")
    return WORLDS[name]() if clients is None else WORLDS[name](clients)  # type: ignore[call-arg]
