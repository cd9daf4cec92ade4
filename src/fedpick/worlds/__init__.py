"""A world to try policies in: clients that are away, slow or fail.

A world is composed of parts, each drawn for all clients from `rng.stream`, so that every policy meets the same world at
one seed: who is there (`availability`), who would return a model (`volatility`), how long it takes (`latency`), and how
much local work a client does. `World()` alone resembles a fleet of phones; `named` makes the worlds of the papers.
"""

from fedpick.worlds.availability import (
    Always,
    Bernoulli,
    Diurnal,
    Halves,
    LessDataFirst,
    LogNormal,
    MarkovOnOff,
    MoreDataFirst,
    SinLogNormal,
    Trace,
    YCycle,
    YMaxFirst,
)
from fedpick.worlds.latency import Device, Gamma, Linear, LogNormalTime, PerClient, Replayed
from fedpick.worlds.presets import WORLDS, named
from fedpick.worlds.volatility import Bursts, Reliable, ReplayedFlags, Shift, SuccessRates, by_class
from fedpick.worlds.world import Draw, Timing, World, WorldState, phone_clients

__all__ = [
    "WORLDS",
    "Always",
    "Bernoulli",
    "Bursts",
    "Device",
    "Diurnal",
    "Draw",
    "Gamma",
    "Halves",
    "LessDataFirst",
    "Linear",
    "LogNormal",
    "LogNormalTime",
    "MarkovOnOff",
    "MoreDataFirst",
    "PerClient",
    "Reliable",
    "Replayed",
    "ReplayedFlags",
    "Shift",
    "SinLogNormal",
    "SuccessRates",
    "Timing",
    "Trace",
    "World",
    "WorldState",
    "YCycle",
    "YMaxFirst",
    "by_class",
    "named",
    "phone_clients",
]
