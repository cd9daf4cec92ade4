"""The model of each of the last rounds, kept beside the state, so that model and policy belong to the same round.

    model-000012-1f3a9c02.npz    the arrays of the model after round 12; the letters are of the state that it belongs to

A round's model is on the disk before its state is, and the state names it: whenever a server is killed, the state on
the disk has its model. A model whose round was not saved any more is written again when that round is played again.
"""

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support import atomic
from fedpick._support.archive import FORMAT, read_archive, write_archive
from fedpick._version import __version__
from fedpick.core.errors import ContractError, StateError

__all__ = ["Arrays", "Mark", "Models", "checked", "checked_letters", "fingerprint"]

KEPT = 3  # models; one is needed, the others are for backups that are made while the server runs
Arrays = dict[str, NDArray[Any]]
Mark = tuple[int, int]  # the round that a model came from, and its fingerprint
_NAME = re.compile(r"model-(\d{6,})-([0-9a-f]{8})\.npz")


def fingerprint(model: Mapping[str, Any]) -> int:
    """A checksum of a model's names, types, shapes and numbers; it does not depend on the order of the names.

    >>> w, b = np.ones((2, 2)), np.zeros(2)
    >>> fingerprint({"w": w, "b": b}) == fingerprint({"b": b, "w": w.copy(order="F")})
    True
    >>> fingerprint({"w": w, "b": b}) == fingerprint({"w": w, "b": b + 1})
    False
    """
    found = 0
    for name in sorted(model):
        values = np.asarray(model[name])
        found = zlib.crc32(f"{name} {values.dtype.str} {values.shape}".encode("utf-8", "backslashreplace"), found)
        found = zlib.crc32(np.ascontiguousarray(values).data, found)
    return found


def checked_letters(stored: object) -> str:
    """The letters of a state, from its file; they become a part of names of files."""
    if not isinstance(stored, str) or not re.fullmatch("[0-9a-f]{8}", stored):
        raise ValueError(f"letters {stored!r:.80}, but must be 8 of 0-9 and a-f")
    return stored


def checked(model: Any, owner: str) -> Arrays:
    """The model's arrays; what cannot be kept raises."""
    if not isinstance(model, Mapping):
        raise ContractError(f"{owner}: the model is a {type(model).__name__}, but must be arrays by name, in a dict")
    found = {}
    for name, values in model.items():
        array = np.asarray(values)
        if not isinstance(name, str) or not name or "\0" in name or array.dtype.kind not in "biufc":
            raise ContractError(
                f"{owner}: the model's {name!r:.80} is {str(array.dtype)[:40]}, but only arrays of numbers under texts "
                "are kept; keep this model yourself, without model="
            )
        found[name] = array
    return found


class Models:
    """The folder of the kept models; files of other states in it are left alone.

    Methods take the letters of the state that the models belong to.
    """

    def __init__(self, folder: Path) -> None:
        try:
            atomic.make_folder(folder)
        except OSError as error:
            raise StateError(
                f"{folder}: cannot be used as the folder of the models ({error.strerror}); choose another path"
            ) from None
        self.folder = folder
        self.pending: tuple[int, Arrays] | None = None  # not on the disk yet

    def _path(self, state: str, round: int) -> Path:
        return self.folder / f"model-{round:06d}-{state}.npz"

    def _rounds(self, state: str) -> list[int]:
        """The rounds whose models are there, for the state with these letters."""
        names = [_NAME.fullmatch(path.name) for path in self.folder.glob("model-*.npz")]
        return sorted(int(match[1]) for match in names if match and match[2] == state)

    def mark(self, state: str, round: int) -> Mark | None:
        """The mark of the model of this round, if it is there."""
        path = self._path(state, round)
        return (round, fingerprint(read_archive(path)[0])) if path.exists() else None

    def tidy(self, state: str) -> None:
        """Remove what a server that was killed while it wrote a model of this state left behind."""
        for leftover in self.folder.glob(f"model-*-{state}.npz{atomic.LEFTOVERS[1:]}"):
            atomic.remove(leftover)

    def give(self, round: int, model: Arrays) -> None:
        """Take the model of a round, to be written by `flush`."""
        self.pending = round, model

    def flush(self, state: str) -> None:
        """Write the model that was given, if it is not on the disk yet."""
        if self.pending is not None:
            round, model = self.pending
            meta = {"format": FORMAT, "fedpick": __version__, "round": round, "state": state}
            write_archive(self._path(state, round), model, meta)
            self.pending = None

    def prune(self, state: str, present: int) -> None:
        """Remove old models, and those of rounds after `present`, which will be played again.

        Call it when the state of round `present` is on the disk.
        """
        rounds = self._rounds(state)
        kept = [round for round in rounds if round <= present][-KEPT:]
        for round in set(rounds) - set(kept):
            atomic.remove(self._path(state, round))

    def read(self, state: str, mark: Mark) -> Arrays | None:
        """The model with this mark, which the state has; None if there is no model of this state at all."""
        if self.pending is not None and self.pending[0] == mark[0]:
            return self.pending[1]
        rounds, (round, crc) = self._rounds(state), mark
        if not rounds:
            return None
        fix = "restore the models of the same backup, or give model= an empty folder to begin with another model"
        if round not in rounds:
            held = ", ".join(map(str, rounds))
            raise StateError(f"{self.folder}: has models of rounds {held}, but the state needs that of {round}; {fix}")
        path = self._path(state, round)
        arrays, _ = read_archive(path)
        if fingerprint(arrays) != crc:
            raise StateError(f"{path}: is not the model that the state's round {round} ended with; {fix}")
        return arrays
