"""Random numbers: one independent stream for each (seed, round, name), and numbers for single clients; no other source.

With the same seed, two policies get the same world, because the world's streams do not depend on what a policy drew.
And a run resumed after round 70 draws in round 71 the same numbers as an uninterrupted run.
"""

import functools
import hashlib

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import require
from fedpick.core.types import Floats, Ints

__all__ = ["stream", "uniforms"]

_Words = NDArray[np.uint64]
_GAMMA = 0x9E3779B97F4A7C15
_STEP = np.uint64(_GAMMA)
_MIX = [(np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))]
_LAST, _DROP = np.uint64(31), np.uint64(12)


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


def uniforms(seed: int, name: str, clients: Ints, counter: int | Ints, count: int | None = None) -> Floats:
    """Numbers in (0, 1) for these clients: each depends on seed, name, client, counter and column, and on nothing else.

    So a client's numbers are the same whoever else is asked and in whatever order, and asking 1,000 of a million
    clients takes the time of 1,000. A `stream` gives neither: its k-th number takes k draws, and a stream for each
    client would take 10 microseconds a client to make.

    The generator is SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195): the k-th number
    of the generator of (seed, name, column) is the seed of client k's generator, and the number `counter` of that is
    the result. Its state is a counter times a constant, so any number can be had without those before it. Philox takes
    three times as long in NumPy, and in Numba first half a second to load.

    Args:
        seed: of the run.
        name: what the numbers are for.
        clients: their numbers.
        counter: the round or the number of the client's task, >= 0; one for all, or one for each.
        count: columns of the result; None: an array with one number for each client.

    >>> few, all = uniforms(7, "time", np.array([2, 0]), counter=1), uniforms(7, "time", np.arange(3), counter=1)
    >>> few.tolist() == [all[2], all[0]]
    True
    >>> uniforms(7, "time", np.arange(3), counter=1, count=2).shape
    (3, 2)
    """
    require(seed >= 0, "seed", seed, "an integer >= 0")
    start: _Words = np.multiply(clients, _STEP, dtype=np.uint64, casting="unsafe")
    start = start[:, None] + _keys(int(seed), name, count) if count is not None else start + _keys(int(seed), name, 1)
    if isinstance(counter, int | np.integer):
        require(counter >= 0, "counter", counter, "an integer >= 0")
        ahead: np.uint64 | _Words = np.uint64((int(counter) + 1) * _GAMMA & 0xFFFFFFFFFFFFFFFF)
    else:
        require(not len(counter) or counter.min() >= 0, "counter", counter, "integers >= 0")
        ahead = (counter.astype(np.uint64) + np.uint64(1)) * _STEP
        ahead = ahead[:, None] if count is not None else ahead
    mixed = _mixed(_mixed(start) + ahead)
    mixed >>= _DROP
    found: Floats = mixed.astype(np.float64)  # of 52 bits, so that neither 0 nor 1 comes up
    found += 0.5
    found *= 2.0**-52
    return found


def _mixed(words: _Words) -> _Words:
    """SplitMix64's output for these states, which are overwritten."""
    for shift, factor in _MIX:
        words ^= words >> shift
        words *= factor
    words ^= words >> _LAST
    return words


@functools.lru_cache(maxsize=256)
def _keys(seed: int, name: str, count: int) -> _Words:
    """For each column the state of the generator that gives client 0 its seed."""
    texts = [f"{seed}\x1f{name}\x1f{column}".encode() for column in range(count)]
    keys = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") for text in texts]
    return np.array([(key + _GAMMA) & 0xFFFFFFFFFFFFFFFF for key in keys], dtype=np.uint64)
