"""A move of the model, for the user: the answers that it is made of, and what becomes of the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import ContractError, SettingError
from fedpick.server.move import Move
from fedpick.store.records import Record

__all__ = ["Commit", "Used", "Work", "finite", "leaves", "shapes"]


@dataclass(frozen=True, slots=True)
class Work:
    """A task, as `Session.ask` gives it.

    Args:
        id: never used again, also after a restart; `Session.done` takes it.
        name: of the client.
        version: of the model that it is to be sent, `Session.version` when it was asked.
    """

    id: int
    name: str
    version: int


class Used(NamedTuple):
    """An answer that is used: its task, its update, and the weight of the update in the model's change."""

    task: Work
    update: Any
    weight: float


def leaves(tree: Any) -> dict[Any, NDArray[Any]]:
    """The arrays of an array, or of arrays in a list or a mapping, by name or position."""
    if isinstance(tree, Mapping):
        return {name: np.asarray(values) for name, values in tree.items()}
    if isinstance(tree, list | tuple):
        return {at: np.asarray(values) for at, values in enumerate(tree)}
    return {None: np.asarray(tree)}


def shapes(tree: Any) -> dict[Any, tuple[int, ...]] | None:
    """The shapes of the arrays by name or position; None if these are no arrays of numbers."""
    try:
        found = leaves(tree)
    except Exception:  # whatever the client sent
        return None
    numbers = all(array.dtype.kind in "biufc" for array in found.values())
    return {name: array.shape for name, array in found.items()} if numbers else None


def finite(update: Any) -> bool:
    """Whether an update has only finite numbers; of one that is not made of arrays of numbers, nothing is known."""
    try:
        arrays = leaves(update).values()
        return all(bool(np.isfinite(array).all()) for array in arrays if array.dtype.kind in "fc")
    except Exception:  # an object of the user's own, which NumPy cannot read
        return True


class Commit:
    """A move of the model from `version` - 1 to `version`; made by `Session.commit`, and ended with `close`.

    Args:
        move: what happened.
        used: the answers in it.
        mixing: whether updates are models that the model is mixed with (FedAsync), and not changes of it.
        session: to which it belongs.
    """

    def __init__(self, move: Move, used: Sequence[Used], mixing: bool, session: Any) -> None:
        self.version = move.version
        self.megabytes = 0.0  # of the model, for the records; in units of 1e6 bytes
        self.model: Mapping[str, Any] | None = None  # the new one, kept with `Session(model=...)`; None: no change
        self.record: Record | None = None  # set by `close`
        self.move, self.mixing = move, mixing
        self._used, self._session = list(used), session

    def parts(self) -> list[Used]:
        """(task, update, weight) of the answers, in the order in which they came.

        The model is to move by the sum of weight times update. With a `mixing` (FedAsync) there is one answer, whose
        update is a model: the new one is to be (1 - weight) model + weight update.
        """
        return list(self._used)

    def change(self, model: Any = None) -> Any:
        """By how much the model is to move: the sum of weight times update, arrays of float64 as in an update.

        Updates that are no arrays, or have other shapes than the others (than `model`, if it is given), change nothing,
        with a line in the log. With a `mixing` the model must be given: it moves by weight times (update - model).

        Args:
            model: the present one: an array, or arrays in a list or a mapping.
        """
        if model is None and self.mixing:
            raise ContractError("commit.change(): with a mixing (FedAsync) it depends on the model; give it")
        like = model if model is not None else self._used[0].update
        known, base = shapes(like), leaves(like)
        if known is None:
            what = "the model" if model is not None else "an update"
            raise ContractError(
                f"commit: {what} is a {type(like).__name__}, but must be an array of numbers, or such arrays in a list "
                "or a mapping; use commit.parts() and your own aggregation"
            )
        total = {name: np.zeros(array.shape, np.promote_types(array.dtype, np.float64)) for name, array in base.items()}
        for task, update, weight in self._used:
            if shapes(update) != known:
                self._session.misfit(self.version, task)
                continue
            for name, array in leaves(update).items():
                total[name] += weight * (array - base[name] if self.mixing else array)
        return _like(like, total.__getitem__)

    def apply(self, model: Any, learning_rate: float = 1.0) -> Any:
        """The new model, as arrays like those given; numbers are added in float64, whole numbers become float64.

        Args:
            model: the present one: an array, or arrays in a list or a mapping.
            learning_rate: of the server, by which the change is multiplied. For momentum: u = beta * u + rate *
                commit.change(model), then model + u.
        """
        if self.mixing and learning_rate != 1.0:
            raise SettingError(
                f"commit.apply: learning_rate = {learning_rate}, but with a mixing (FedAsync) alpha of fp.Buffered "
                "says how far the model moves"
            )
        change, base = leaves(self.change(model)), leaves(model)
        self._session.like = shapes(model)

        def moved(name: Any) -> Any:
            old = base[name]
            found = old + learning_rate * change[name]
            return found.astype(old.dtype) if old.dtype.kind in "fc" else found

        return _like(model, moved)

    def close(self) -> Record:
        """End the commit: the policy learns, and all is on disk then; clients can be asked again."""
        if self.record is None:
            self.record = self._session.close_commit(self)
            self._used = []
        return self.record


def _like(tree: Any, value: Callable[[Any], Any]) -> Any:
    """Arrays by name or position in a container like this one."""
    if isinstance(tree, Mapping):
        return {name: value(name) for name in tree}
    if isinstance(tree, list | tuple):
        return [value(at) for at in range(len(tree))]
    return value(None)
