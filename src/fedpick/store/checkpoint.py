"""Convert a run's state to named arrays for a checkpoint, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError, StateError
from fedpick.core.state import pack, unpack
from fedpick.engine.flight import Flight
from fedpick.worlds import WorldState

__all__ = ["RunState", "pack_run", "unpack_run"]


@dataclass
class RunState:
    """Everything that a run passes from one round to the next."""

    policy: Any
    world: WorldState
    model: Any = None
    round: int = 0
    late: dict[str, Any] = field(default_factory=dict)  # late updates, one per row (`fedpick.simulate.late`)
    flight: Flight = field(default_factory=Flight)  # the tasks that they belong to


def _flat(model: Any, name: str = "model") -> Iterator[tuple[str, Any]]:
    """Every array of a model, named by its position in the model, such as "model/dense/0"."""
    if isinstance(model, Mapping):
        for key, value in model.items():
            yield from _flat(value, f"{name}/{key}")
    elif isinstance(model, list | tuple):
        for i, value in enumerate(model):
            yield from _flat(value, f"{name}/{i}")
    elif model is not None:
        array = np.asarray(model)
        if array.dtype.kind not in "biufc":
            raise ContractError(
                f"{name} is {type(model).__name__} ({array.dtype}), which cannot be stored; a model must consist of "
                "arrays of numbers in dicts, lists or tuples"
            )
        yield name, array


def _fill(template: Any, arrays: dict[str, Any], owner: str, name: str = "model") -> Any:
    """A model with the template's structure and these arrays."""
    if isinstance(template, Mapping):
        return {key: _fill(value, arrays, owner, f"{name}/{key}") for key, value in template.items()}
    if isinstance(template, list | tuple):
        values = [_fill(value, arrays, owner, f"{name}/{i}") for i, value in enumerate(template)]
        return type(template)(*values) if hasattr(template, "_fields") else type(template)(values)
    if template is None:
        return None
    if name not in arrays or arrays[name].shape != np.shape(template):
        found = f"shape {arrays[name].shape}" if name in arrays else "nothing"
        raise StateError(f"{owner}: has {found} for {name}, but the trainer's model has shape {np.shape(template)}")
    array = arrays[name]
    return type(template)(array) if isinstance(template, int | float) else array


def pack_run(state: RunState) -> dict[str, Any]:
    """A run's state as named arrays."""
    arrays = {f"policy/{name}": value for name, value in pack(state.policy).items()}
    for part in ("availability", "volatility", "latency"):
        arrays |= {f"world/{part}/{name}": value for name, value in getattr(state.world, part).items()}
    arrays |= {"world/epochs": state.world.epochs, "world/idle": state.world.idle, "world/clock": state.world.clock}
    for name, value in _flat(state.model):
        if name in arrays:
            raise ContractError(f"two parts of the model are both called {name!r}; rename one")
        arrays[name] = value
    arrays |= {f"late/{name}": value for name, value in state.late.items()}
    if state.flight.busy:
        arrays |= {f"flight/{name}": value for name, value in state.flight.pack().items()}
    return arrays | {"round": state.round, "tasks": state.flight.issued}


def unpack_run(template: RunState, arrays: dict[str, Any], num_clients: int, owner: str) -> RunState:
    """A run's state with the template's structure and these arrays; error messages begin with `owner`."""

    def under(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

    world = template.world
    for part in ("availability", "volatility", "latency"):
        memory, kept = getattr(world, part), under(f"world/{part}/")
        if memory.keys() != kept.keys():
            raise StateError(f"{owner}: has {sorted(kept)} of the world's {part}, which needs {sorted(memory)}")
        memory.update(kept)
    try:
        world.epochs, world.idle = arrays["world/epochs"], arrays["world/idle"]
        world.clock = float(arrays["world/clock"])
        round = int(arrays["round"])
    except KeyError as error:
        raise StateError(f"{owner}: is not a run's checkpoint: it has no {error}") from None
    policy = unpack(template.policy, under("policy/"), num_clients, f"{owner}:")
    model = _fill(template.model, arrays, owner)
    late, flight = under("late/"), under("flight/")
    if late and "task" not in late:  # before 0.3, an update and its task were one row
        late["task"] = np.arange(len(late["client"]))
        flight = {"id": late["task"], **{name: late.pop(name) for name in ("client", "round", "due")}}
        late["relative"] = np.ones(len(late["task"]), dtype=np.bool_)
    issued = int(arrays.get("tasks", len(flight.get("id", ()))))
    return RunState(policy, world, model, round, late, Flight.unpack(flight, issued) if flight else Flight(issued))
