"""What reports show of each client: its size and most frequent label, its success rate and typical seconds."""

import numpy as np
from numpy.typing import NDArray

from fedpick.worlds import World

__all__ = ["census"]

MOST = 10_000  # clients: of more, success rate and typical seconds are left out
DRAWS = 8  # rounds from which typical seconds are taken


def census(world: World, seed: int) -> dict[str, NDArray[np.generic]]:
    """Arrays with a value per client: "size", "label" (the most frequent), "success" (rate), "seconds" (typical).

    What cannot be known is left out, and of more than 10,000 clients the last two.

    >>> from fedpick import worlds
    >>> census(worlds.named("e3cs", 4), seed=0)["success"]
    array([0.1, 0.3, 0.6, 0.9], dtype=float32)
    """
    clients = world.clients
    found: dict[str, NDArray[np.generic]] = {"size": clients.sizes.astype(np.float32)}
    if clients.labels is not None and clients.labels.shape[1] > 1:
        found["label"] = clients.labels.argmax(axis=1).astype(np.int32)
    if len(clients) > MOST:
        return found
    state, everyone = world.init(seed), np.arange(len(clients))
    tell = getattr(world.volatility, "truth", None)
    success = None if tell is None else tell(state.volatility, clients).get("success")
    if success is not None and np.shape(success) == (len(clients),):
        found["success"] = np.asarray(success, dtype=np.float32)
    draws = [world.draw(state, seed, round) for round in range(1, DRAWS + 1)]
    took = np.mean([world.seconds(state, draw, everyone) for draw in draws], axis=0)
    return found | {"seconds": took.astype(np.float32)}
