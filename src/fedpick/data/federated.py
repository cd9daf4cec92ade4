"""The one form that data has in memory: flat arrays, and for each client a range of indices into them.

A client's examples are never copied: two clients may share one (as in E3CS), and a hundred partitions of one data
set share its arrays. Pixels stay uint8 until they are on the device.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Clients, Floats, Ints

__all__ = ["Dataset", "Federated", "hold_out"]

_UNSET: Any = None  # default of arrays that are made from the others


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set before it is divided among clients.

    Args:
        name: "fashion-mnist".
        x: (N, ...) inputs; uint8 pixels (read as x/255, then centred and scaled), or float32 or int32 (tokens) used
            as they are.
        y: (N) int32 labels below `classes`, or float32 targets; or of each example an array of them.
        test_x: inputs of the common test set; may be empty.
        test_y: their labels or targets.
        classes: number of labels; 0 for a regression.
        mean: of the pixels divided by 255: one number, or one per channel (last axis).
        std: likewise.

    >>> data = Dataset("toy", np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), classes=2)
    >>> len(data), data.inputs
    (4, (2,))
    >>> data
    Dataset('toy', 4 + 0 held out, inputs (2,), 2 classes)
    """

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    test_x: NDArray[Any] = _UNSET
    test_y: NDArray[Any] = _UNSET
    classes: int = 0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for part in ("test_x", "test_y"):
            if getattr(self, part) is None:
                object.__setattr__(self, part, getattr(self, part.removeprefix("test_"))[:0])
        for x, y, what in ((self.x, self.y, "y"), (self.test_x, self.test_y, "test_y")):
            if len(x) != len(y):
                raise ContractError(f"{self.name}: {len(x)} inputs, but {what} has {len(y)}: they must be aligned")
            if x.dtype not in (np.uint8, np.float32, np.int32):
                raise ContractError(
                    f"{self.name}: inputs are {x.dtype}, but must be uint8 pixels, float32, or int32 (tokens)"
                )
            if len(y) and np.issubdtype(y.dtype, np.integer) != bool(self.classes):
                raise ContractError(
                    f"{self.name}: {what} is {y.dtype} with classes={self.classes}; give integer labels and the number "
                    "of classes, or float targets and classes=0"
                )
            if self.classes and len(y) and not (int(y.min()) >= 0 and int(y.max()) < self.classes):
                raise ContractError(
                    f"{self.name}: {what} goes from {y.min()} to {y.max()}, but must be in 0..{self.classes - 1}"
                )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:  # a glance, not the arrays
        kind = f"{self.classes} classes" if self.classes else "targets"
        return f"Dataset({self.name!r}, {len(self):,} + {len(self.test_x):,} held out, inputs {self.inputs}, {kind})"

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    @property
    def targets(self) -> tuple[int, ...]:
        """The shape of one label or target: () for a number."""
        return tuple(self.y.shape[1:])

    @property
    def says(self) -> str:
        """What is to be predicted of each example, in words."""
        labels = f"{self.classes} labels" if self.classes else ""
        if self.targets:
            return f"targets of shape {self.targets}" + (f" with {labels}" if labels else "")
        return labels or "one target"

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of what a model gives for one input: a number for each class of each label, or for each target."""
        return (*self.targets, self.classes) if self.classes else self.targets or (1,)


@dataclass(frozen=True, eq=False)
class Federated:
    """A data set divided among K clients.

    Args:
        dataset: the flat arrays.
        examples: indices into dataset.x, client by client.
        starts: (K+1): client k trains on examples[starts[k]:starts[k+1]].
        held: indices of the examples that clients hold out for testing, client by client; may be empty.
        held_starts: (K+1), as `starts`.

    >>> data = Dataset("toy", np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), classes=2)
    >>> split = Federated(data, examples=np.array([2, 0, 1]), starts=np.array([0, 2, 3]))
    >>> len(split), split.sizes, split.labels
    (2, array([2, 1]), array([[2, 0], [0, 1]]))
    >>> split
    Federated('toy', 2 clients, 1 to 2 examples each)
    """

    dataset: Dataset
    examples: Ints
    starts: Ints
    held: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    held_starts: Ints = _UNSET

    def __post_init__(self) -> None:
        if self.held_starts is None:
            object.__setattr__(self, "held_starts", np.zeros(len(self.starts), np.int64))
        for index, starts, what in ((self.examples, self.starts, ""), (self.held, self.held_starts, "held_")):
            if len(starts) != len(self.starts) or len(starts) < 2:
                raise ContractError(
                    f"{what}starts has length {len(starts)}, but must have one entry per client and one more"
                )
            if starts[0] != 0 or starts[-1] != len(index) or (np.diff(starts) < 0).any():
                raise ContractError(
                    f"{what}starts must rise from 0 to {len(index)}, the number of {what or ''}examples"
                )
            if len(index) and not (index.min() >= 0 and index.max() < len(self.dataset)):
                raise ContractError(
                    f"indices go from {index.min()} to {index.max()}, but must be in 0..{len(self.dataset) - 1}"
                )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        sizes = f"{self.sizes.min():,} to {self.sizes.max():,} examples each"
        return f"Federated({self.dataset.name!r}, {len(self):,} clients, {sizes})"

    @cached_property
    def sizes(self) -> Ints:
        """Training examples of each client."""
        return np.diff(self.starts).astype(np.int64)

    @cached_property
    def labels(self) -> Ints | None:
        """(K, L) training examples of each label; None for a regression, or if an example has several labels."""
        classes = self.dataset.classes
        if not classes or self.dataset.targets:
            return None
        owner = np.repeat(np.arange(len(self)), self.sizes)
        flat = owner * classes + self.dataset.y[self.examples]
        return np.bincount(flat, minlength=len(self) * classes).reshape(len(self), classes)

    @cached_property
    def clients(self) -> Clients:
        """The clients as policies and worlds see them: sizes, label counts, label shares as features."""
        features: Floats | None = None if self.labels is None else self.labels / self.sizes[:, None]
        return Clients(self.sizes, labels=self.labels, features=features)

    def examples_of(self, client: int) -> Ints:
        """Indices of what this client trains on."""
        return self.examples[self.starts[client] : self.starts[client + 1]]

    def held_of(self, client: int) -> Ints:
        """Indices of what this client holds out."""
        return self.held[self.held_starts[client] : self.held_starts[client + 1]]


def hold_out(federated: Federated, share: float, rng: np.random.Generator) -> Federated:
    """Each client holds out this share of its examples for testing, drawn at random; at least one stays for training.

    If clients share examples, an example that one of them holds out is removed from the training sets of all.

    Args:
        federated: a split that holds nothing out yet.
        share: of each client's examples, rounded.
        rng: draws the examples.

    >>> from fedpick.data import IID
    >>> data = Dataset("toy", np.zeros((60, 2), np.float32), np.arange(60, dtype=np.int32) % 3, classes=3)
    >>> split = hold_out(IID()(data, 3, np.random.default_rng(0)), 0.1, np.random.default_rng(1))
    >>> split.sizes, np.diff(split.held_starts)
    (array([18, 18, 18]), array([2, 2, 2]))
    """
    require(0.0 <= share < 1.0, "hold_out: share", share, "in [0, 1)", "something must stay for training")
    if len(federated.held):
        raise ContractError(f"hold_out: {len(federated.held)} examples are held out already; hold out only once")
    sizes, num_clients = federated.sizes, len(federated)
    count = np.minimum(np.rint(share * sizes).astype(np.int64), np.maximum(sizes - 1, 0))
    owner = np.repeat(np.arange(num_clients), sizes)
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]  # within each client, at random
    first = order[np.arange(len(owner)) - federated.starts[owner] < count[owner]]
    held = federated.examples[np.sort(first)]
    tested = np.zeros(len(federated.dataset), bool)
    tested[held] = True
    stays = ~tested[federated.examples]
    left = np.bincount(owner[stays], minlength=num_clients)
    poorest = int(np.argmin(left))
    require(
        bool(left[poorest] >= 1),
        f"hold_out: examples left for training of client {poorest}",
        0,
        ">= 1",
        "other clients hold its examples out; take a smaller share, larger clients or a split without overlap",
    )
    return replace(
        federated,
        examples=federated.examples[stays],
        starts=np.concatenate([[0], np.cumsum(left)]),
        held=held,
        held_starts=np.concatenate([[0], np.cumsum(count)]),
    )
