"""Convert a run's state to named arrays for a checkpoint, and back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedpick.core.errors import ContractError, StateError
from fedpick.core.state import pack, unpack
from fedpick.core.types import Ints
from fedpick.engine.asking import Asker, Marks
from fedpick.engine.flight import Flight
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Stream
from fedpick.worlds import Draw, WorldState

__all__ = ["RunState", "StreamState", "Trained", "pack_run", "unpack_run"]


class Trained(NamedTuple):
    """What a task's client will answer."""

    loss: float
    usable: bool
    rows: dict[str, Any]  # of its update, by name, as the trainer keeps them
    reports: dict[str, Any]


@dataclass
class StreamState:
    """What a run under `fp.Buffered` keeps beside the model and the policy's state.

    Args:
        stream: tasks in flight, and those that have ended since the model last moved.
        nth: tasks of each client so far.
        asks: choices of the policy so far.
        agenda: a heap of (clock, task) of the answers that will come.
        draw: of the world's present step; None: nothing was drawn yet.
        models: by version, those that tasks in flight were sent; none if nothing is trained.
        trained: what tasks answer, if they are trained already.
        asker: of the policy; not stored.
        marks: who works and whose answer waits; not stored, because the stream tells.
    """

    stream: Stream
    nth: Ints
    asks: int = 0
    agenda: list[tuple[float, int]] = field(default_factory=list)
    draw: Draw | None = None
    models: dict[int, Any] = field(default_factory=dict)
    trained: dict[int, Trained] = field(default_factory=dict)
    asker: Asker | None = None
    marks: Marks | None = None

    def pack(self) -> dict[str, Any]:
        """As named arrays."""
        found = {f"tasks/{name}": value for name, value in self.stream.pack().items()}
        found |= {"nth": self.nth, "asks": self.asks}
        found |= {"due": np.array([due for due, _ in self.agenda]), "due_task": _whole(id for _, id in self.agenda)}
        if self.draw is not None:
            found |= {"draw/round": self.draw.round, "draw/seed": self.draw.seed, "draw/presence": self.draw.presence}
            found |= {} if self.draw.works is None else {"draw/works": self.draw.works}
            found |= {f"draw/latency/{name}": value for name, value in self.draw.latency.items()}
        for version, model in self.models.items():
            found |= dict(_flat(model, f"model/{version}"))
        if self.trained:
            ids, each = list(self.trained), list(self.trained.values())
            found |= {"trained/task": _whole(ids), "trained/loss": np.array([one.loss for one in each])}
            found["trained/usable"] = np.array([one.usable for one in each])
            for part in ("rows", "reports"):
                for name in getattr(each[0], part):
                    found[f"trained/{part}/{name}"] = np.stack([getattr(one, part)[name] for one in each])
        return found

    @classmethod
    def unpack(cls, pace: Buffered, arrays: dict[str, Any], model: Any, owner: str) -> "StreamState":
        """What `pack` gave, for a model of this structure."""
        found = cls(Stream.unpack(pace, _under("tasks/", arrays)), arrays["nth"], int(arrays["asks"]))
        found.agenda = list(zip(arrays["due"].tolist(), arrays["due_task"].tolist(), strict=True))  # still a heap
        if "draw/round" in arrays:
            latency = _under("draw/latency/", arrays)
            numbers = int(arrays["draw/round"]), arrays["draw/presence"], arrays.get("draw/works")
            found.draw = Draw(*numbers, latency, int(arrays["draw/seed"]))
        for version in {int(name.split("/")[1]) for name in arrays if name.startswith("model/")}:
            found.models[version] = _fill(model, arrays, owner, f"model/{version}")
        rows, reports = _under("trained/rows/", arrays), _under("trained/reports/", arrays)
        for at, id in enumerate(arrays.get("trained/task", np.empty(0)).tolist()):
            one = [{name: values[at] for name, values in part.items()} for part in (rows, reports)]
            found.trained[id] = Trained(float(arrays["trained/loss"][at]), bool(arrays["trained/usable"][at]), *one)
        return found


def _whole(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays whose names begin so, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


@dataclass
class RunState:
    """Everything that a run passes from one round to the next."""

    policy: Any
    world: WorldState
    model: Any = None
    round: int = 0
    late: dict[str, Any] = field(default_factory=dict)  # late updates, one per row (`fedpick.simulate.late`)
    flight: Flight = field(default_factory=Flight)  # the tasks that they belong to
    stream: StreamState | None = None  # under `fp.Buffered`


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
    if state.stream is not None:
        arrays |= {f"stream/{name}": value for name, value in state.stream.pack().items()}
    return arrays | {"round": state.round, "tasks": state.flight.issued}


def unpack_run(template: RunState, arrays: dict[str, Any], num_clients: int, owner: str) -> RunState:
    """A run's state with the template's structure and these arrays; error messages begin with `owner`."""

    world = template.world
    for part in ("availability", "volatility", "latency"):
        memory, kept = getattr(world, part), _under(f"world/{part}/", arrays)
        if memory.keys() != kept.keys():
            raise StateError(f"{owner}: has {sorted(kept)} of the world's {part}, which needs {sorted(memory)}")
        memory.update(kept)
    try:
        world.epochs, world.idle = arrays["world/epochs"], arrays["world/idle"]
        world.clock = float(arrays["world/clock"])
        round = int(arrays["round"])
    except KeyError as error:
        raise StateError(f"{owner}: is not a run's checkpoint: it has no {error}") from None
    policy = unpack(template.policy, _under("policy/", arrays), num_clients, f"{owner}:")
    model = _fill(template.model, arrays, owner)
    late, flight = _under("late/", arrays), _under("flight/", arrays)
    if late and "task" not in late:  # before 0.3, an update and its task were one row
        late["task"] = np.arange(len(late["client"]))
        flight = {"id": late["task"], **{name: late.pop(name) for name in ("client", "round", "due")}}
        late["relative"] = np.ones(len(late["task"]), dtype=np.bool_)
    issued = int(arrays.get("tasks", len(flight.get("id", ()))))
    stream, began = None, template.stream
    if began is not None and (packed := _under("stream/", arrays)):
        stream = StreamState.unpack(began.stream.pace, packed, template.model, owner)
    flying = Flight.unpack(flight, issued) if flight else Flight(issued)
    return RunState(policy, world, model, round, late, flying, stream or began)
