"""Build worlds and trainers from plain settings, as they stand in a configuration file."""

import ast
import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedpick import worlds
from fedpick._support import user_code
from fedpick._support.text import Makers, make
from fedpick.core import rng as rngs
from fedpick.core.errors import ConfigError, FedpickError, unknown_name
from fedpick.core.metrics import check_directions
from fedpick.core.protocol import Trainer
from fedpick.core.types import Clients
from fedpick.simulate.abilities import DirectedTrainer
from fedpick.worlds import World

__all__ = [
    *("PARTS", "build_trainer", "build_world", "current_names", "is_trainer", "made_trainer", "trace_beside"),
    *("world_label", "world_settings"),
]

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
_NUMBERS = ("deadline", "epochs", "probe_share", "model_megabytes", "wait", "late")


PART_NAMES: Makers = {name: maker for makers in PARTS.values() for name, maker in makers.items()}


def build_world(settings: dict[str, Any], clients: Clients | None = None) -> World:
    """Build a world from its settings: a name, a number of clients, and parts that replace the named world's.

    Args:
        settings: of [world].
        clients: those of the data, which replace the named world's if there are as many.

    >>> build_world({"name": "volatile", "num_clients": 50, "deadline": 9.0}).deadline
    9.0
    """
    known = ["name", "num_clients", *PARTS, *_NUMBERS]
    settings = current_names(settings)
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [world]", key, known)
    count = settings.get("num_clients")
    if count is not None and not _whole(count):
        raise ConfigError(f"[world] num_clients = {count!r}, but must be a whole number >= 1")
    if count is not None and count > MOST_CLIENTS:
        raise ConfigError(f"[world] num_clients = {count}, but must be at most {MOST_CLIENTS:,}")
    name = settings.get("name", "phones")
    if not isinstance(name, str):
        raise ConfigError(f"[world] name = {name!r}, but must be a text such as 'volatile'")
    world = _own_world(name, count) if user_code.is_reference(name) else worlds.named(name, count)
    if clients is not None and len(clients) == len(world.clients):
        world = replace(world, clients=clients)
    changes = {key: _number(key, settings[key]) for key in _NUMBERS if key in settings}
    for part, makers in PARTS.items():
        if part in settings:
            changes[part] = _part(part, settings[part], makers, world)
    return replace(world, **changes)


def _own_world(text: str, count: int | None) -> World:
    extra: dict[str, Any] = {} if count is None else {"num_clients": count}
    try:
        made = make(text, "world", {}, values=PART_NAMES, example="my_world.py:hospital(num_clients=30)", **extra)
    except FedpickError:
        raise
    except Exception as error:  # the user's code can raise anything
        raise ConfigError(f"{text}: {type(error).__name__}: {error}") from None
    if not isinstance(made, World):
        raise ConfigError(f"{text}: returns {type(made).__name__}, but must return an fp.World")
    if count is not None and len(made.clients) != count:
        raise ConfigError(f"{text}: has {len(made.clients)} clients, but num_clients = {count}; leave one of them out")
    return made


def build_trainer(
    people: Any, data: dict[str, Any] | None, settings: dict[str, Any], reports: tuple[str, ...]
) -> Trainer:
    """fedpick's trainer, or one of the user's own: train = {"trainer": "loop.py:Trainer(lr=0.1)"}.

    Args:
        people: the clients' data; a trainer of the user's own gets it as `data`.
        data: settings of [data], which decide the defaults; None: the data is an object of the user's.
        settings: of [train].
        reports: names of the reports that the policy wants from clients; a trainer of the user's own gets them if it
            has such an argument.
    """
    text = settings.get("trainer")
    if text is None:
        from fedpick.learn.settings import build_trainer as make_trainer  # JAX is an extra

        return make_trainer(people, data, settings, reports)
    if not user_code.is_reference(text) or len(settings) > 1:
        raise ConfigError(
            f"[train] trainer = {text!r} with {len(settings) - 1} other settings, but must name a trainer in a file of "
            "yours, with all its settings in brackets: trainer = 'loop.py:Trainer(lr=0.1)'"
        )
    try:
        made = make(text, "trainer", {}, values={}, example="loop.py:Trainer(lr=0.1)", data=people, reports=reports)
    except FedpickError:
        raise
    except Exception as error:  # the user's code can raise anything
        raise ConfigError(f"{text}: {type(error).__name__}: {error}") from None
    return _checked(made, text)


def made_trainer(trainer: Any, people: Any, reports: tuple[str, ...]) -> Trainer:
    """A trainer of the user's own: an object as it is, or what a class or a function makes for this data.

    Args:
        trainer: the object, the class or the function.
        people: the clients' data, given as `data` if there is such an argument.
        reports: names of the reports that the policy wants, given as `reports` if there is such an argument.
    """
    name = getattr(trainer, "__name__", type(trainer).__name__)
    if is_trainer(trainer):
        return _checked(trainer, name)
    try:
        known: Mapping[str, inspect.Parameter] = inspect.signature(trainer).parameters
    except (TypeError, ValueError):  # it cannot be looked into
        known = {}
    anything = any(each.kind is each.VAR_KEYWORD for each in known.values())
    given = {"data": people, "reports": reports}
    try:
        made = trainer(**{key: value for key, value in given.items() if key in known or anything})
    except FedpickError:
        raise
    except Exception as error:  # the user's code can raise anything
        raise ConfigError(f"{name}: {type(error).__name__}: {error}{user_code.place(error)}") from None
    return _checked(made, name)


def is_trainer(thing: Any) -> bool:
    """Whether it is a trainer, not a class or a function that makes one."""
    return hasattr(thing, "train") and not isinstance(thing, type)


def _checked(made: Any, name: str) -> Trainer:
    lacking = [method for method in ("init", "probe", "train", "aggregate", "evaluate") if not hasattr(made, method)]
    if lacking:
        raise ConfigError(
            f"{name}: has no method {lacking[0]}; see fedpick.core.protocol.Trainer for a trainer's methods"
        )
    check_directions(made.directions if isinstance(made, DirectedTrainer) else None, name)
    trainer: Trainer = made
    return trainer


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
    said = {key: value for key, value in locals().items() if value is not None}
    return said


def world_label(settings: dict[str, Any]) -> str:
    """A world's label in tables: its name, and the settings that were changed."""
    rest = [f"{key}={value!r}" for key, value in sorted(settings.items()) if key != "name"]
    return user_code.shown(str(settings.get("name", "phones"))) + (f"({', '.join(rest)})" if rest else "")


def current_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of [world] under today's names: before 0.2, num_clients was called clients."""
    if "clients" not in settings or "num_clients" in settings:
        return settings
    return {("num_clients" if key == "clients" else key): value for key, value in settings.items()}


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
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (key == "deadline" and value <= 0):
        wanted = "a number of seconds > 0, or 'slowest' to wait for all" if key == "deadline" else "a number >= 0"
        raise ConfigError(f"[world] {key} = {value!r}, but must be {wanted}")
    return value


def _part(part: str, text: Any, makers: Makers, world: World) -> Any:
    """Build a part of a world from its text; raises if it does not fit the world's clients."""
    example = f'{part} = "{next(iter(makers))}"'
    if not isinstance(text, str):
        raise ConfigError(f"[world] {part} = {text!r}, but must be a text such as {example}")
    try:
        made = make(text, part, makers, values={}, example=example)
        made.init(world.clients, rngs.stream(0, 0, "check"))  # reads a trace, checks shapes
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
