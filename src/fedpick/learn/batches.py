"""Which examples each client sees, in which order: drawn on the host, from the run's random stream."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support.native import Native
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Federated

__all__ = ["Batches", "draw", "seen", "steps_of"]

Int32s = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Batches:
    """What C clients train on: at most S steps each, at most B examples a step.

    Args:
        index: (C, S, B) into the flat arrays; padding is one of the client's examples.
        count: (C, S) examples in each batch; 0 where the step is padding.
        steps: (C) local steps of each client.
        keys: (C, 2) for dropout.
        lr: (C) learning rates.
    """

    index: Int32s
    count: Int32s
    steps: Int32s
    keys: NDArray[np.uint32]
    lr: NDArray[np.float32]

    @classmethod
    def empty(cls, clients: int, steps: int, batch: int) -> "Batches":
        """For so many clients, none of whom has a step."""
        return cls(
            index=np.zeros((clients, steps, batch), np.int32),
            count=np.zeros((clients, steps), np.int32),
            steps=np.zeros(clients, np.int32),
            keys=np.zeros((clients, 2), np.uint32),
            lr=np.zeros(clients, np.float32),
        )

    def part(self, place: slice) -> "Batches":
        """Those of some clients, without copying."""
        return Batches(*(array[place] for array in self.parts()))

    def parts(self) -> tuple[Any, ...]:
        """All arrays."""
        return self.index, self.count, self.steps, self.keys, self.lr


def steps_of(sizes: Ints, epochs: Ints, batch: int, steps: int | None) -> Ints:
    """Local steps of clients: `steps` for each epoch, or as many batches as an epoch takes.

    >>> steps_of(np.array([100, 7]), np.array([1, 2]), batch=10, steps=None)
    array([10,  2])
    >>> steps_of(np.array([100, 7]), np.array([1, 2]), batch=10, steps=30)
    array([30, 60])
    """
    return epochs * (-(-sizes // batch) if steps is None else steps)


@partial(Native, nogil=True)  # several runs may draw in threads
def _fill(
    examples: Ints,
    starts: Ints,
    sizes: Ints,
    steps: Ints,
    batch: int,
    passes: bool,
    uniforms: Floats,
    index: Any,
    count: Any,
) -> None:
    """Shuffle each client's examples (Fisher-Yates) and cut the order into batches; shuffle again when it runs out."""
    drawn = 0
    for c in range(len(sizes)):
        size = sizes[c]
        # Padding is one of the client's examples: masked out, but a NaN from another client's would still spread.
        index[c] = examples[starts[c]]
        order = np.arange(size)
        at = 0
        for s in range(steps[c]):
            take = min(batch, size)
            if passes:  # an epoch ends with a smaller batch
                take = min(batch, size - at)
            count[c, s] = take
            for b in range(take):
                other = at + int(uniforms[drawn] * (size - at))
                drawn += 1
                order[at], order[other] = order[other], order[at]
                index[c, s, b] = examples[starts[c] + order[at]]
                at += 1
                if at == size:
                    at = 0


def draw(
    data: Federated, ids: Ints, epochs: Ints, batch: int, steps: int | None, rng: np.random.Generator, into: Batches
) -> Batches:
    """Draw the batches of these clients.

    Args:
        data: whose examples.
        ids: the clients, in order.
        epochs: of each.
        batch: examples per step; a client with fewer takes all it has.
        steps: steps per epoch, in full batches; None: an epoch is one pass, and its last batch is what is left.
        rng: one number is drawn for each example seen, regardless of padding.
        into: empty arrays, at least as large as needed; a shape seen before is not compiled again.
    """
    sizes, starts = data.sizes[ids], data.starts[ids]
    each = steps_of(sizes, epochs, batch, steps)
    seen = int((epochs * sizes).sum() if steps is None else (each * np.minimum(batch, sizes)).sum())
    _fill(data.examples, starts, sizes, each, batch, steps is None, rng.random(seen), into.index, into.count)
    into.steps[: len(ids)] = each
    return into


def seen(data: Federated, ids: Ints, batch: int | None, rng: np.random.Generator) -> list[Ints]:
    """All examples of each of these clients, or a mini-batch of them."""
    if batch is None:
        return [data.examples_of(int(client)) for client in ids]
    drawn = draw(data, ids, np.ones(len(ids), np.int64), batch, 1, rng, Batches.empty(len(ids), 1, batch))
    return [row[0, : count[0]] for row, count in zip(drawn.index, drawn.count, strict=True)]
