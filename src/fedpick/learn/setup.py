"""From what a user gives as a model to the backend that trains it: JAX or PyTorch, of which only one is imported."""

import copy
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fedpick._support import user_code
from fedpick._support.text import make
from fedpick.core.errors import FedpickError, SettingError
from fedpick.data.federated import Dataset
from fedpick.learn.backend import Backend, LocalSGD

__all__ = ["FORMS", "Factory", "Setup", "is_module", "model_from", "set_up"]

FORMS = ("scan", "vmap", "loop")  # of JAX, see `fedpick.learn.jax.forms`
_EXAMPLE = "mlp(hidden=(64, 30))"


class Factory(NamedTuple):
    """What makes a PyTorch module: called once for each seed, and its name for errors."""

    make: Callable[[], Any]
    name: str


class Setup(NamedTuple):
    """A model with what trains it.

    Args:
        model: as the backend takes it.
        backend: that trains it.
        server: the server's optimiser.
        form: the backend's name.
        shapes: of the arrays that are trained.
        size: numbers that a message with the model has.
    """

    model: Any
    backend: Backend
    server: Any
    form: str
    shapes: list[tuple[int, ...]]
    size: int


def is_module(thing: Any) -> bool:
    """Whether it is a `torch.nn.Module`; PyTorch is not imported for the question."""
    nn = getattr(sys.modules.get("torch"), "nn", None)
    return nn is not None and isinstance(thing, nn.Module)


def is_model(thing: Any) -> bool:
    """Whether it is a `fedpick.learn.Model`; JAX is not imported for the question."""
    models = sys.modules.get("fedpick.learn.jax.models")
    return models is not None and isinstance(thing, models.Model)


def model_from(given: Any, dataset: Dataset) -> Any:
    """A `fedpick.learn.Model`, or a `Factory` of PyTorch modules, from a text or from what a user gives in Python.

    Args:
        given: "mlp(hidden=(64,))", "net.py:Net(hidden=30)", a model, a module, or a class or function that makes one;
            it gets `inputs` (the shape of one) and `outputs` (how many) if it has such arguments.
        dataset: that it is for.
    """
    if is_model(given) or isinstance(given, Factory):
        return given
    given_names: dict[str, Any] = {"inputs": dataset.inputs, "outputs": dataset.outputs[-1]}
    if isinstance(given, str):
        if not user_code.references(given):
            from fedpick.learn.jax.models import model  # JAX is an extra

            return model(given, *given_names.values())
        name = user_code.shown(given)
        thing = user_code.load(given) if user_code.is_reference(given) and "(" not in given else None
        if is_module(thing):
            return Factory(partial(copy.deepcopy, thing), name)
        if is_model(thing):
            return _named(thing, name)
        call = partial(make, given, "model", {}, values={}, example=_EXAMPLE, **given_names)
    elif is_module(given):
        return Factory(partial(copy.deepcopy, given), type(given).__name__)
    elif callable(given):
        name = str(getattr(getattr(given, "func", given), "__name__", type(given).__name__))
        call = partial(given, **_wanted(given, name, given_names))
    else:
        raise _neither(repr(given)[:60], given)
    made = _call(call, name)
    if is_module(made):
        return Factory(call, name)
    if is_model(made):
        return _named(made, name)
    raise _neither(repr(name), made)


def _neither(name: str, thing: Any) -> SettingError:
    return SettingError(
        f"the model {name} is {type(thing).__name__}, but must be a fedpick.learn.Model (for JAX: return Model(init, "
        "apply)) or a torch.nn.Module (for PyTorch: its class, or a function that makes one)"
    )


def _named(model: Any, name: str) -> Any:
    return replace(model, name=name) if model.name == type(model).name else model


def _wanted(maker: Callable[..., Any], name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Of these arguments those that the maker has; raises if it needs others."""
    try:
        known = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # its signature cannot be read
        return {}
    lacking = [
        each.name
        for each in known.values()
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and each.name not in given
    ]
    if lacking:
        raise SettingError(
            f"the model {name!r} needs {', '.join(lacking)}: give a function that makes it, such as "
            f"functools.partial({name}, {lacking[0]}=...)"
        )
    return {key: value for key, value in given.items() if key in known}


def _call(call: Callable[[], Any], name: str) -> Any:
    torch = sys.modules.get("torch")
    state = None if torch is None else torch.get_rng_state()
    try:
        return call()
    except FedpickError:
        raise
    except Exception as error:  # it is the user's code
        raise SettingError(
            f"the model {name!r} cannot be made: {type(error).__name__}: {str(error)[:200]}{user_code.place(error)}"
        ) from None
    finally:
        if torch is not None:
            torch.set_rng_state(state)  # the user's own random numbers are as they were


def set_up(given: Any, dataset: Dataset, local: LocalSGD, server: Any, form: str, loss: Any, place: str) -> Setup:
    """The backend for a model, with the settings that it has; raises for those that it has not.

    Args:
        given: as for `model_from`.
        dataset: to train on.
        local: how clients train.
        server: the server's optimiser, or a text that names it.
        form: of JAX's backends.
        loss: of PyTorch: the user's function, or None.
        place: of PyTorch: "cpu" or "cuda".
    """
    model = model_from(given, dataset)
    if isinstance(model, Factory):
        from fedpick.learn.torch.setup import set_up_torch

        if form != "auto":
            raise SettingError(f"Trainer: form = {form!r}, but a PyTorch model has only the form 'auto'")
        return set_up_torch(model, dataset, local, server, loss, place)
    from fedpick.learn.jax.setup import set_up_jax

    others = {"loss": loss, "clip": local.clip, "optimizer": local.optimizer, "place": place}
    usual = {"loss": None, "clip": None, "optimizer": "sgd", "place": "cpu"}
    for name, value in others.items():
        if value != usual[name]:
            raise SettingError(
                f"Trainer: {name} = {value!r:.60}, which only PyTorch models have, but {model.name!r} is trained with "
                f"JAX; leave {name} out, or give a torch.nn.Module"
            )
    return set_up_jax(model, dataset, local, server, form)
