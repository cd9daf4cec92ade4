"""A run as a configuration: plain data that a file, a manifest or another process can hold.

policy = "e3cs(quota=0.5)"
cohort_size = 20
rounds = 500
seed = 0
checkpoint_every = 100

[world]
name = "volatile"
clients = 100
deadline = 12.0
availability = "bernoulli(p=0.8)"
latency = "gamma(low=1, high=8)"
volatility = "bursts(spell=5)"
"""

import tomllib
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from fedpick import world as worlds
from fedpick.errors import ConfigError, FedpickError, unknown_name
from fedpick.run import Run, policy_for
from fedpick.text import Makers, make
from fedpick.world import World

__all__ = ["PARTS", "Config", "build_world", "load"]

PARTS: dict[str, Makers] = {
    "availability": {
        "always": worlds.Always,
        "bernoulli": worlds.Bernoulli,
        "more-data-first": worlds.MoreDataFirst,
        "less-data-first": worlds.LessDataFirst,
        "y-max-first": worlds.YMaxFirst,
        "y-cycle": worlds.YCycle,
        "log-normal": worlds.LogNormal,
        "sin-log-normal": worlds.SinLogNormal,
        "halves": worlds.Halves,
        "markov": worlds.MarkovOnOff,
        "diurnal": worlds.Diurnal,
        "trace": worlds.Trace,
    },
    "volatility": {
        "reliable": worlds.Reliable,
        "rates": worlds.SuccessRates,
        "bursts": worlds.Bursts,
        "shift": worlds.Shift,
        "replay": worlds.ReplayedFlags,
    },
    "latency": {
        "per-client": worlds.PerClient,
        "gamma": worlds.Gamma,
        "log-normal": worlds.LogNormalTime,
        "linear": worlds.Linear,
        "device": worlds.Device,
        "replay": worlds.Replayed,
    },
}
_PLAIN = ("deadline", "epochs", "probe_share", "model_megabytes")


@dataclass(frozen=True)
class Config:
    """What a run is, in plain data."""

    policy: str
    cohort_size: int = 20
    rounds: int = 500
    seed: int = 0
    world: dict[str, Any] = field(default_factory=lambda: {"name": "phones"})
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        for name in ("cohort_size", "rounds", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} = {value!r}, but must be a whole number >= 1")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigError(f"seed = {self.seed!r}, but must be a whole number >= 0")
        if not isinstance(self.policy, str):
            raise ConfigError(f"policy = {self.policy!r}, but must be a text such as 'e3cs(quota=0.5)'")

    @property
    def label(self) -> str:
        """A name for tables and folders."""
        return self.policy

    def plain(self) -> dict[str, Any]:
        """As data for a manifest."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def build(self) -> Run:
        """The run itself."""
        world = build_world(self.world)
        return Run(policy_for(self.policy, world, self.cohort_size), world, self.seed)


def build_world(settings: dict[str, Any]) -> World:
    """A world from its settings: a name, a number of clients, and parts in place of the named world's.

    >>> build_world({"name": "volatile", "clients": 50, "deadline": 9.0}).deadline
    9.0
    """
    known = ["name", "clients", *PARTS, *_PLAIN]
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [world]", key, known)
    clients = settings.get("clients")
    if clients is not None and (not isinstance(clients, int) or isinstance(clients, bool) or clients < 1):
        raise ConfigError(f"[world] clients = {clients!r}, but must be a whole number >= 1")
    world = worlds.named(settings.get("name", "phones"), clients)
    changes: dict[str, Any] = {key: settings[key] for key in _PLAIN if key in settings}
    if "epochs" in changes:
        epochs = changes["epochs"]
        changes["epochs"] = tuple(epochs) if isinstance(epochs, list) else (epochs,)
    if changes.get("deadline") in ("none", "slowest"):
        changes["deadline"] = None
    for part, makers in PARTS.items():
        if part in settings:
            example = next(iter(makers))
            made = make(str(settings[part]), part, makers, values={}, example=example)
            made.init(world.clients, _probe_rng())  # reads a trace, checks shapes: say now what does not fit
            changes[part] = made
    try:
        return replace(world, **changes)
    except TypeError as error:
        raise ConfigError(f"[world]: {error}; deadline is a number of seconds, or 'slowest'") from None


def _probe_rng() -> Any:
    from fedpick import rng

    return rng.stream(0, 0, "check")


def load(path: str | PathLike[str]) -> Config:
    """Read a configuration file; a ConfigError says where the mistake is and what to write instead."""
    source = Path(path)
    if not source.is_file():
        raise ConfigError(f"{source}: there is no such file; write one like this:\n{__doc__.split(chr(10), 2)[2]}")
    try:
        data = tomllib.loads(source.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: is not TOML: {error}") from None
    known = [entry.name for entry in fields(Config)]
    try:
        for key in data:
            if key not in known:
                raise unknown_name("setting", key, known)
        if "policy" not in data:
            raise ConfigError("policy is missing; write policy = 'e3cs(quota=0.5)', or another of fedpick policies")
        if not isinstance(data.get("world", {}), dict):
            raise ConfigError(f"world = {data['world']!r}, but must be a section: [world], then name = 'volatile'")
        config = Config(**data)
        config.build()  # every mistake shows here, before anything runs
    except FedpickError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config
