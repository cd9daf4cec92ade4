"""Trainers: fedpick's from plain settings, as they stand in a configuration file, or one of the user's own."""

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedpick._support import user_code
from fedpick._support.text import make
from fedpick.core.errors import ConfigError
from fedpick.core.metrics import check_directions
from fedpick.core.protocol import Trainer
from fedpick.experiment.identity import fingerprint, policy_text
from fedpick.simulate.abilities import DirectedTrainer

__all__ = ["OBJECTS", "build_trainer", "is_trainer", "made_trainer", "with_names"]

OBJECTS = {"made", "objects"}  # in settings: what their names stand for


def build_trainer(
    federated: Any, data: dict[str, Any] | None, settings: dict[str, Any], reports: tuple[str, ...]
) -> Trainer:
    """fedpick's trainer, or one of the user's own: train = {"trainer": "loop.py:Trainer(lr=0.1)"}.

    Args:
        federated: the clients' data; a trainer of the user's own gets it as `data`.
        data: settings of [data], which decide the defaults; None: the data is an object of the user's.
        settings: of [train].
        reports: names of the reports that the policy wants from clients; a trainer of the user's own gets them if it
            has such an argument.
    """
    text = settings.get("trainer")
    if text is None:
        from fedpick.learn.settings import build_trainer as make_trainer  # JAX is an extra

        return make_trainer(federated, data, settings, reports)
    if not user_code.is_reference(text) or len(settings) > 1:
        raise ConfigError(
            f"[train] trainer = {text!r} with {len(settings) - 1} other settings, but must name a trainer in a file of "
            "yours, with all its settings in brackets: trainer = 'loop.py:Trainer(lr=0.1)'"
        )
    given: dict[str, Any] = {"data": federated, "reports": reports}
    example = "loop.py:Trainer(lr=0.1)"
    return _checked(user_code.call(text, lambda: make(text, "trainer", {}, values={}, example=example, **given)), text)


def made_trainer(trainer: Any, federated: Any, reports: tuple[str, ...]) -> Trainer:
    """A trainer of the user's own: an object as it is, or what a class or a function makes for this data.

    Args:
        trainer: the object, the class or the function.
        federated: the clients' data, given as `data` if there is such an argument.
        reports: names of the reports that the policy wants, given as `reports` if there is such an argument.
    """
    name = getattr(trainer, "__name__", type(trainer).__name__)
    if is_trainer(trainer):
        return _checked(trainer, name)
    try:
        known: Mapping[str, inspect.Parameter] = inspect.signature(trainer).parameters
    except (TypeError, ValueError):  # its signature cannot be read
        known = {}
    takes_all = any(each.kind is each.VAR_KEYWORD for each in known.values())
    given = {"data": federated, "reports": reports}
    given = {key: value for key, value in given.items() if key in known or takes_all}
    return _checked(user_code.call(name, lambda: trainer(**given)), name)


def is_trainer(thing: Any) -> bool:
    """Whether it is a trainer, not a class or a function that makes one."""
    return hasattr(thing, "train") and not isinstance(thing, type)


def with_names(train: dict[str, Any]) -> dict[str, Any]:
    """Settings of [train] in which names stand for a model and a loss that are objects, which are in "objects"."""
    given = {key: train.get(key) for key in ("model", "loss")}
    objects = {key: each for key, each in given.items() if callable(each) or hasattr(each, "apply")}
    names = {key: _name(each) for key, each in objects.items()}
    return {**train, **names, "objects": objects} if objects else train


def _name(thing: Any) -> str:
    """The name of a class or a function that makes a model, or of a model by what it holds."""
    makes = isinstance(thing, type | partial) or inspect.isroutine(thing)
    return policy_text(thing) if makes else f"{type(thing).__name__}-{fingerprint(thing)}"


def _checked(made: Any, name: str) -> Trainer:
    lacking = [method for method in ("init", "probe", "train", "aggregate", "evaluate") if not hasattr(made, method)]
    if lacking:
        raise ConfigError(f"{name}: has no method {lacking[0]}; see fp.Trainer for a trainer's methods")
    check_directions(made.directions if isinstance(made, DirectedTrainer) else None, name)
    trainer: Trainer = made
    return trainer
