"""Simulated worlds to test policies in: clients that are away, slow or fail.

A world consists of parts: which clients are available (`availability`), which would return a model (`volatility`), how
long they take (`latency`), and how much local work a client does. Random numbers depend on the seed, the round and the
client, so with the same seed all policies get the same world; durations and failures are drawn for the clients that
were chosen. `World()` resembles a fleet of phones; `named` makes the worlds of the papers.
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
from fedpick.worlds.world import Draw, World, WorldState, phone_clients

__all__ = ["WORLDS", "Draw", "World", "WorldState", "by_class", "named", "phone_clients"]
__all__ += ["Always", "Bernoulli", "Diurnal", "Halves", "LessDataFirst", "LogNormal", "MarkovOnOff", "MoreDataFirst"]
__all__ += ["SinLogNormal", "Trace", "YCycle", "YMaxFirst"]
__all__ += ["Bursts", "Reliable", "ReplayedFlags", "Shift", "SuccessRates"]
__all__ += ["Device", "Gamma", "Linear", "LogNormalTime", "PerClient", "Replayed"]
