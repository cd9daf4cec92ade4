"""A run as a configuration: plain data that a file, a manifest or another process can hold.

policy = "e3cs(quota=0.5)"
cohort_size = 20
rounds = 500
seed = 0
checkpoint_every = 100

[world]
name = "volatile"
num_clients = 100
deadline = 12.0
availability = "bernoulli(p=0.8)"
latency = "gamma(low=1, high=8)"
volatility = "bursts(spell=5)"

[data]                                  # leave out for a numerical experiment: nothing is trained then
name = "digits"
partition = "dirichlet(alpha=0.3, at_least=2)"

[train]
model = "mlp(hidden=(64, 30))"
lr = 0.05
"""

import ast
import math
import tomllib
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from fedpick import rng as rngs
from fedpick import worlds
from fedpick.errors import ConfigError, FedpickError, unknown_name
from fedpick.protocol import traits
from fedpick.simulate.run import Run, policy_for
from fedpick.text import Makers, make
from fedpick.worlds import World

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
_MISTAKES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
_NUMBERS = ("deadline", "epochs", "probe_share", "model_megabytes", "wait")


@dataclass(frozen=True)
class Config:
    """What a run is, in plain data."""

    policy: str
    cohort_size: int = 20
    rounds: int = 500
    seed: int = 0
    world: dict[str, Any] = field(default_factory=lambda: {"name": "phones"})
    checkpoint_every: int = 100
    data: dict[str, Any] | None = None
    train: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("cohort_size", "rounds", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} = {value!r}, but must be a whole number >= 1")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise ConfigError(f"seed = {self.seed!r}, but must be a whole number >= 0")
        if not isinstance(self.policy, str):
            raise ConfigError(f"policy = {self.policy!r}, but must be a text such as 'e3cs(quota=0.5)'")
        if not isinstance(self.world, dict):
            raise ConfigError(f"world = {self.world!r}, but must be a section: [world], then name = 'volatile'")
        if self.data is not None and not isinstance(self.data, dict):
            raise ConfigError(f"data = {self.data!r}, but must be a section: [data], then name = 'fashion-mnist'")
        if not isinstance(self.train, dict):
            raise ConfigError(f"train = {self.train!r}, but must be a section: [train], then lr = 0.05")
        if self.train and self.data is None:
            raise ConfigError("[train] is there, but no [data] to train on; write [data], then name = 'fashion-mnist'")

    @property
    def label(self) -> str:
        """A name for tables and folders."""
        return self.policy

    def as_dict(self) -> dict[str, Any]:
        """As data for a manifest."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)} | {
            "world": dict(_current(self.world))
        }
        if self.data is None:
            del found["data"], found["train"]
        return found

    def build(self) -> Run:
        """The run itself."""
        world, people = build_world(self.world), None
        if self.data is not None:
            from fedpick.learn import settings  # training is an extra

            people = settings.build_data(self.data, len(world.clients))
            world = replace(world, clients=people.clients)
        try:
            policy, trainer = policy_for(self.policy, world, self.cohort_size, self.seed), None
            if people is not None and self.data is not None:
                reports = tuple(traits(policy).collect(world.clients))
                trainer = settings.build_trainer(people, self.data, self.train, reports)
                if "model_megabytes" not in self.world:
                    world = replace(world, model_megabytes=trainer.megabytes)
            return Run(policy, world, self.seed, trainer)
        except FedpickError:
            raise
        except _MISTAKES as error:  # a setting of a kind that the policy did not expect
            raise ConfigError(f"policy = {self.policy!r}: {error}; see fedpick policies for its settings") from None


def build_world(settings: dict[str, Any]) -> World:
    """A world from its settings: a name, a number of clients, and parts in place of the named world's.

    >>> build_world({"name": "volatile", "num_clients": 50, "deadline": 9.0}).deadline
    9.0
    """
    known = ["name", "num_clients", *PARTS, *_NUMBERS]
    settings = _current(settings)
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [world]", key, known)
    count = settings.get("num_clients")
    if count is not None and not _whole(count):
        raise ConfigError(f"[world] num_clients = {count!r}, but must be a whole number >= 1")
    name = settings.get("name", "phones")
    if not isinstance(name, str):
        raise ConfigError(f"[world] name = {name!r}, but must be a text such as 'volatile'")
    world = worlds.named(name, count)
    changes = {key: _number(key, settings[key]) for key in _NUMBERS if key in settings}
    for part, makers in PARTS.items():
        if part in settings:
            changes[part] = _part(part, settings[part], makers, world)
    return replace(world, **changes)


def _current(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of [world] under the names of today: files and manifests from before 0.2 say clients for num_clients."""
    if "clients" not in settings or "num_clients" in settings:
        return settings
    return {("num_clients" if key == "clients" else key): value for key, value in settings.items()}


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(key: str, value: Any) -> Any:
    """A setting that is a number; the other bounds are the world's to check."""
    if key == "epochs":
        epochs = value if isinstance(value, list | tuple) else [value]
        if not epochs or not all(map(_whole, epochs)):
            raise ConfigError(f"[world] epochs = {value!r}, but must be a whole number >= 1, or several: [1, 2, 3, 4]")
        return tuple(epochs)
    if key == "deadline" and value in (None, "none", "slowest"):
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (key == "deadline" and value <= 0):
        wanted = "a number of seconds > 0, or 'slowest' to wait for all" if key == "deadline" else "a number >= 0"
        raise ConfigError(f"[world] {key} = {value!r}, but must be {wanted}")
    return value


def _part(part: str, text: Any, makers: Makers, world: World) -> Any:
    """A part of a world from its text; what does not fit the world's clients is said now."""
    example = f'{part} = "{next(iter(makers))}"'
    if not isinstance(text, str):
        raise ConfigError(f"[world] {part} = {text!r}, but must be a text such as {example}")
    try:
        made = make(text, part, makers, values={}, example=example)
        made.init(world.clients, rngs.stream(0, 0, "check"))  # reads a trace, checks shapes
    except FedpickError:
        raise
    except _MISTAKES as error:
        raise ConfigError(f"[world] {part} = {text!r}: {error}; write it like {example}") from None
    return made


def _beside(text: Any, folder: Path) -> Any:
    """A trace's text with the path as seen from the configuration file's folder, whoever reads it later."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):
        return text  # build_world says what is wrong with it
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.lower() == "trace":
        paths = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "path")]
        for node in paths:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = str((folder / node.value).resolve())
        return ast.unparse(call)
    return text


def load(path: str | PathLike[str]) -> Config:
    """Read a configuration file; a ConfigError says where the mistake is and what to write instead.

    The path of a trace is as seen from the file's folder.
    """
    source = Path(path)
    if not source.is_file():
        raise ConfigError(f'{source}: there is no such file; write one that says at least policy = "e3cs(quota=0.5)"')
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f'{source}: is not TOML: {error}; texts stand in quotes: policy = "uniform"') from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror}); make it readable, or give another") from None
    known = [entry.name for entry in fields(Config)]
    try:
        for key in data:
            if key not in known:
                raise unknown_name("setting", key, known)
        if "policy" not in data:
            raise ConfigError("policy is missing; write policy = 'e3cs(quota=0.5)', or another of fedpick policies")
        config = Config(**data)
        if "availability" in config.world:
            config.world["availability"] = _beside(config.world["availability"], source.parent)
        config.build()  # every mistake shows here, before anything runs
    except FedpickError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config
