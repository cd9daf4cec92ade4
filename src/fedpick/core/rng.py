"""Random numbers: one independent stream for each (seed, round, name), and no other source.

With the same seed, two policies get the same world, because the world's streams do not depend on what a policy drew.
And a run resumed after round 70 draws in round 71 the same numbers as an uninterrupted run.
"""

import hashlib

import numpy as np

from fedpick.core.errors import require

__all__ = ["stream"]


def stream(seed: int, round: int, name: str) -> np.random.Generator:
    """Return the generator that belongs to this seed, round and name.

    >>> float(stream(7, 1, "policy").random()) == float(stream(7, 1, "policy").random())
    True
    >>> float(stream(7, 1, "policy").random()) == float(stream(7, 2, "policy").random())
    False
    """
    require(seed >= 0, "seed", seed, "an integer >= 0")
    require(round >= 0, "round", round, "an integer >= 0", "rounds start at 1; 0 is for draws before the first round")
    key = hashlib.blake2b(f"{int(seed)}\x1f{int(round)}\x1f{name}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(int.from_bytes(key, "little"))))
