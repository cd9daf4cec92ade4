"""Random numbers: one independent stream for each (seed, round, name), and numbers for single clients; no other source.

With the same seed, two policies get the same world, because the world's streams do not depend on what a policy drew.
And a run resumed after round 70 draws in round 71 the same numbers as an uninterrupted run.
"""

import functools
import hashlib

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import require

__all__ = ["stream", "uniforms"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Words = NDArray[np.uint64]
_ALL = 0xFFFFFFFFFFFFFFFF
_GAMMA = 0x9E3779B97F4A7C15


def _word(value: int) -> _Words:
    """As an array without axes: NumPy takes longer with a number."""
    return np.array(value, dtype=np.uint64)


_STEP = _word(_GAMMA)
_SCALE = np.array((1.0 - 2.0**-52) * 2.0**-64)  # takes 64 bits, with sign, to numbers from 2^-53 - 1/2 to 1/2 - 2^-53
_FIRST, _SECOND, _THIRD = _word(30), _word(27), _word(31)
_TIMES, _THEN = _word(0xBF58476D1CE4E5B9), _word(0x94D049BB133111EB)


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
    words = np.frombuffer(key, dtype="<u4")  # the same as the number that these bytes are, in less time
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(words)))


def uniforms(
    seed: int, name: str, clients: _Ints, counter: int | _Ints, count: int | None = None, also: str | None = None
) -> _Floats:
    """Numbers in (0, 1) for these clients: each depends on seed, name, client, counter and column, and on nothing else.

    So a client's numbers are the same whoever else is asked and in whatever order, and asking 1,000 of a million
    clients takes the time of 1,000. A `stream` gives neither: its k-th number takes k draws, and a stream for each
    client would take 10 microseconds a client to make.

    The generator is SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195). The number
    `counter` of the generator of the seed, plus a key of (seed, name, column), is the seed of another generator, whose
    number k is client k's. Its state is a counter times a constant, so any number can be had without those before it.
    Philox takes four times as long in NumPy, and Numba takes half a second to load.

    Args:
        seed: of the run.
        name: what the numbers are for.
        clients: their numbers.
        counter: the round or the number of the client's task, >= 0; one for all, or one for each.
        count: columns of the result; None: an array with one number for each client.
        also: another name; its first number becomes a further column, in less time than by a second call.

    >>> few, all = uniforms(7, "time", np.array([2, 0]), counter=1), uniforms(7, "time", np.arange(3), counter=1)
    >>> few.tolist() == [all[2], all[0]]
    True
    >>> uniforms(7, "time", np.arange(3), counter=1, count=2).shape
    (3, 2)
    """
    require(seed >= 0, "seed", seed, "an integer >= 0")
    seed = int(seed)
    keys = _keys(seed, name, 1 if count is None else count, also)
    if isinstance(counter, np.ndarray):
        require(bool((counter >= 0).all()), "counter", counter, "integers >= 0")
        starts = _mixed((counter.astype(np.uint64)[:, None] + _word(1)) * _STEP + _word(_key(f"{seed}"))) + keys
    else:
        require(counter >= 0, "counter", counter, "an integer >= 0")
        starts = _start(seed, int(counter)) + keys
    words = clients.astype(np.uint64)
    words *= _STEP
    if count is None and also is None:
        words += starts[..., 0]
    else:
        words = words[:, None] + starts
    found: _Floats = np.multiply(_mixed(words).view(np.int64), _SCALE)
    found += 0.5
    return found


def _mixed(words: _Words) -> _Words:
    """SplitMix64's numbers from these states, which are overwritten."""
    words ^= words >> _FIRST
    words *= _TIMES
    words ^= words >> _SECOND
    words *= _THEN
    words ^= words >> _THIRD
    return words


@functools.lru_cache(maxsize=256)
def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=256)
def _keys(seed: int, name: str, count: int, also: str | None) -> _Words:
    """What is added for this name and its columns, and for the first client."""
    columns = [(name, column) for column in range(count)] + ([] if also is None else [(also, 0)])
    keys = [_key(f"{seed}\x1f{what}\x1f{column}") + _GAMMA for what, column in columns]
    return np.array([key & _ALL for key in keys], dtype=np.uint64)


@functools.lru_cache(maxsize=256)
def _start(seed: int, counter: int) -> _Words:
    """The number `counter` of the seed's generator: as `_mixed`, but of one number, without NumPy."""
    state = (_key(f"{seed}") + (counter + 1) * _GAMMA) & _ALL
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _ALL
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _ALL
    return _word(state ^ state >> 31)
