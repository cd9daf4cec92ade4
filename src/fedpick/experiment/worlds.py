"""Worlds from plain settings, as they stand in [world] of a configuration file."""

import ast
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedpick import worlds
from fedpick._support import user_code
from fedpick._support.devices import memory
from fedpick._support.text import Makers, make
from fedpick.core import rng as rngs
from fedpick.core.errors import ConfigError, FedpickError, unknown_name
from fedpick.core.types import Clients
from fedpick.worlds import World

__all__ = [
    *("DEFAULT_WORLD", "PARTS", "Unnamed", "base_world", "build_world", "named_world", "stored_world", "trace_beside"),
    *("whole_world", "world_label", "world_settings"),
]

DEFAULT_WORLD = "volatile"  # of every run whose settings name none
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
MISTAKES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
MOST_CLIENTS = 10**8  # what a large machine's memory holds
BYTES = 250  # of memory for each client of a simulated run, measured with `volatile` and `uniform`
_NUMBERS = ("deadline", "epochs", "probe_share", "model_megabytes", "wait", "late")
_PART_NAMES: Makers = {name: maker for makers in PARTS.values() for name, maker in makers.items()}


class Unnamed(str):
    """The name that a stored world lacks: "phones", the default before 0.2. It is not written, to keep a run's hash."""


def named_world(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of [world] with a name: the given one, or the default."""
    return {"name": DEFAULT_WORLD, **settings}


def stored_world(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of [world] from a manifest or a plan's file under today's names: `num_clients` was once `clients`."""
    named = {("num_clients" if key == "clients" else key): value for key, value in settings.items()}
    return {"name": Unnamed("phones"), **named}


def build_world(settings: Mapping[str, Any]) -> World:
    """Build a world from settings of [world]: a name, a number of clients, and parts that replace the named world's.

    >>> build_world({"name": "volatile", "num_clients": 50, "deadline": 9.0}).deadline
    9.0
    """
    return whole_world(base_world(settings), settings)


def base_world(settings: Mapping[str, Any]) -> World:
    """The world of this name with this number of clients, before its parts are replaced; unknown settings raise."""
    known = ["name", "num_clients", *PARTS, *_NUMBERS]
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [world]", key, known)
    count = settings.get("num_clients")
    if count is not None and not _whole(count):
        raise ConfigError(f"[world] num_clients = {count!r}, but must be a whole number >= 1")
    if count is not None and count > MOST_CLIENTS:
        raise ConfigError(f"[world] num_clients = {str(count)[:80]}, but must be at most {MOST_CLIENTS:,}")
    if count is not None and count * BYTES > (has := memory()):
        raise ConfigError(
            f"[world] num_clients = {count:,} needs about {count * BYTES / 1e9:.2g} GB of memory, but there are "
            f"{has / 1e9:.2g} GB; write at most {has // BYTES:,}"
        )
    name = named_world(settings)["name"]
    if not isinstance(name, str):
        raise ConfigError(f"[world] name = {name!r}, but must be a text such as 'volatile'")
    return _user_world(name, count) if user_code.is_reference(name) else worlds.named(name, count)


def whole_world(world: World, settings: Mapping[str, Any], clients: Clients | None = None) -> World:
    """A world of `base_world` with the parts that its settings name, and the data's clients."""
    present = world.clients if clients is None else clients
    changes: dict[str, Any] = {} if clients is None else {"clients": clients}
    changes |= {key: _number(key, settings[key]) for key in _NUMBERS if key in settings}
    for part, makers in PARTS.items():
        if part in settings:
            changes[part] = _part(part, settings[part], makers, present)
    return replace(world, **changes) if changes else world


def _user_world(text: str, count: int | None) -> World:
    given: dict[str, Any] = {} if count is None else {"num_clients": count}
    example = "my_world.py:hospital(num_clients=30)"
    made = user_code.call(text, lambda: make(text, "world", {}, values=_PART_NAMES, example=example, **given))
    if not isinstance(made, World):
        raise ConfigError(f"{text}: returns {type(made).__name__}, but must return an fp.World")
    if count is not None and len(made.clients) != count:
        raise ConfigError(f"{text}: has {len(made.clients)} clients, but num_clients = {count}; leave one of them out")
    return made


def world_settings(text: str) -> dict[str, Any]:
    """The settings of [world] that a text such as "volatile(num_clients=50, deadline=9)" stands for.

    >>> world_settings("Volatile(num_clients=50)")
    {'name': 'volatile', 'num_clients': 50}
    """
    if user_code.is_reference(text):
        return {"name": text}
    known = {name: partial(_named_settings, name) for name in worlds.WORLDS}
    example = "volatile, or volatile(num_clients=50, deadline=9)"
    settings: dict[str, Any] = make(text, "world", known, values={}, example=example)
    return settings


def _named_settings(
    name: str,
    num_clients: int | None = None,
    availability: str | None = None,
    volatility: str | None = None,
    latency: str | None = None,
    deadline: float | str | None = None,
    epochs: Any = None,
    probe_share: float | None = None,
    model_megabytes: float | None = None,
    wait: float | None = None,
    late: int | None = None,
) -> dict[str, Any]:
    return {key: value for key, value in locals().items() if value is not None}


def world_label(settings: Mapping[str, Any]) -> str:
    """A world's label in tables: its name, and the settings that were changed."""
    rest = [f"{key}={value!r}" for key, value in sorted(settings.items()) if key != "name"]
    return user_code.shown(str(settings["name"])) + (f"({', '.join(rest)})" if rest else "")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(key: str, value: Any) -> Any:
    """A numerical setting; the world itself checks further bounds."""
    if key == "epochs":
        epochs = value if isinstance(value, list | tuple) else [value]
        if not epochs or not all(map(_whole, epochs)):
            raise ConfigError(f"[world] epochs = {value!r}, but must be a whole number >= 1, or several: [1, 2, 3, 4]")
        return tuple(epochs)
    if key == "deadline" and value in (None, "none", "slowest"):
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not number or (key == "deadline" and value <= 0):
        wanted = "a number of seconds > 0, or 'slowest' to wait for all" if key == "deadline" else "a number >= 0"
        raise ConfigError(f"[world] {key} = {value!r:.80}, but must be {wanted}")
    return value


def _part(part: str, text: Any, makers: Makers, clients: Clients) -> Any:
    """Build a part of a world from its text; raises if it does not fit the clients."""
    example = f'{part} = "{next(iter(makers))}"'
    if not isinstance(text, str):
        raise ConfigError(f"[world] {part} = {text!r}, but must be a text such as {example}")
    try:
        made = make(text, part, makers, values={}, example=example)
        made.init(clients, rngs.stream(0, 0, "check"))  # reads a trace, checks shapes
    except FedpickError:
        raise
    except MISTAKES as error:
        raise ConfigError(f"[world] {part} = {text!r}: {error}; write it like {example}") from None
    return made


def trace_beside(text: Any, folder: Path) -> Any:
    """A trace's text with its path, which is relative to the configuration file's folder, made absolute."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):
        return text  # build_world reports the error
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.lower() == "trace":
        paths = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "path")]
        for node in paths:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = str((folder / node.value).resolve())
        return ast.unparse(call)
    return text
