"""Examples that each client keeps for testing."""

from dataclasses import replace

import numpy as np

from fedpick.core.errors import ContractError, require
from fedpick.data.federated import Federated

__all__ = ["hold_out"]


def hold_out(federated: Federated, share: float, rng: np.random.Generator) -> Federated:
    """Each client keeps this share of its examples for testing, drawn at random; at least one stays for training.

    Where clients share examples, what one of them holds out leaves every training set: nobody trains on test examples.

    Args:
        federated: a split that holds nothing out yet.
        share: of each client's examples, rounded.
        rng: draws the examples.

    >>> from fedpick.data import IID, Dataset
    >>> data = Dataset("toy", np.zeros((60, 2), np.float32), np.arange(60, dtype=np.int32) % 3, classes=3)
    >>> split = hold_out(IID()(data, 3, np.random.default_rng(0)), 0.1, np.random.default_rng(1))
    >>> split.sizes, np.diff(split.held_starts)
    (array([18, 18, 18]), array([2, 2, 2]))
    """
    require(0.0 <= share < 1.0, "hold_out: share", share, "in [0, 1)", "something must stay for training")
    if len(federated.held):
        raise ContractError(
            f"hold_out: {len(federated.held)} examples are held out already; give the split before that"
        )
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
