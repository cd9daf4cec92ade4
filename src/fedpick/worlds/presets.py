"""Worlds by name: those of the papers' experiments, and a few that resemble real fleets.

A named world's clients (data sizes and labels) are the same for every seed, like a data set; everything else (speeds,
links, time zones, epochs, availability and failures) depends on the seed.

The papers: E3CS (https://arxiv.org/abs/2011.08756), RBCS-F (https://doi.org/10.1109/TPDS.2020.3040887), BSFL
(https://arxiv.org/abs/2303.10373), FedGS (https://arxiv.org/abs/2211.13975).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import find_name, require
from fedpick.core.types import Clients
from fedpick.worlds import availability, latency, volatility
from fedpick.worlds.world import World, phone_clients

__all__ = ["WORLDS", "named"]


def _even(count: int) -> Clients:
    return Clients(np.full(count, 500.0))


def _calm(clients: Clients, **parts: Any) -> World:
    """All clients are available and succeed in a second, one epoch, no deadline; `parts` replace these."""
    calm = World(
        clients,
        availability=availability.Always(),
        volatility=volatility.Reliable(),
        latency=latency.PerClient(1.0),
        deadline=None,
        epochs=(1,),
    )
    return replace(calm, **parts)


def ideal(num_clients: int = 100) -> World:
    """All clients are available, succeed, and take no time."""
    return _calm(_even(num_clients), latency=latency.PerClient())


def e3cs(num_clients: int = 100) -> World:
    """E3CS, section VI: four classes that return their model with probability 0.1, 0.3, 0.6, 0.9."""
    return _calm(_even(num_clients), volatility=volatility.SuccessRates(), epochs=(1, 2, 3, 4))


def bursts(num_clients: int = 100) -> World:
    """E3CS's classes, but crashes last 10 rounds on average."""
    return _calm(_even(num_clients), volatility=volatility.Bursts(), epochs=(1, 2, 3, 4))


def rbcsf(num_clients: int = 40) -> World:
    """RBCS-F, section 6.1: linear times with contexts in four classes; availability with probability 0.8."""
    law, mode = latency.Linear(), availability.Bernoulli(0.8)
    return _calm(_even(num_clients), availability=mode, latency=law, model_megabytes=law.megabits / 8.0)


def bsfl(num_clients: int = 20) -> World:
    """BSFL: shifted-gamma times with unknown means, a deadline of 20 s (our choice; the paper gives none)."""
    return _calm(_even(num_clients), latency=latency.Gamma(), deadline=20.0)


def volatile(num_clients: int = 100) -> World:
    """E3CS's unreliable classes with stragglers, a deadline, and one client in ten away."""
    return World(
        phone_clients(num_clients),
        availability=availability.Bernoulli(0.9),
        volatility=volatility.SuccessRates(),
        latency=latency.Gamma(1.0, 4.0, 1.0, 8.0),
        deadline=12.0,
    )


def phone_fleet(num_clients: int = 100) -> World:
    """Phones that charge at night in eight time zones, log-normal speeds and links."""
    return World(phone_clients(num_clients))


def _fedgs(mode: Callable[[], Any]) -> Callable[..., World]:
    def make(num_clients: int = 100) -> World:
        rng = rngs.stream(0, 0, "clients")
        sizes = np.round(rng.lognormal(5.0, 0.8, num_clients)) + 10.0
        labels = np.zeros((num_clients, 10))
        first = rng.integers(0, 10, num_clients)
        second = (first + rng.integers(1, 10, num_clients)) % 10  # two labels each, as FedGS splits Fashion-MNIST
        labels[np.arange(num_clients), first] = labels[np.arange(num_clients), second] = sizes / 2
        clients = Clients(sizes, labels=labels, features=labels / labels.sum(axis=1, keepdims=True))
        return _calm(clients, availability=mode())

    make.__doc__ = f"FedGS's availability {mode.__name__}: {(mode.__doc__ or '').splitlines()[0]}"
    return make


WORLDS: dict[str, Callable[..., World]] = {
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


def named(name: str, num_clients: int | None = None) -> World:
    """Make a world by its name, with this many clients if given.

    >>> named("rbcs-f").deadline is None
    True
    """
    make = find_name(name, WORLDS, "world")
    require(num_clients is None or num_clients >= 1, f"world {name!r}: num_clients", num_clients, ">= 1")
    return make() if num_clients is None else make(num_clients)
