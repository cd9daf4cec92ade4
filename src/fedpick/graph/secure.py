"""The dot product of two clients' vectors, computed so that neither the other client nor the server sees a vector.

Du and Zhan, A practical approach to solve secure multi-party computation problems, NSPW 2002
(https://doi.org/10.1145/844102.844125). A *commodity server* distributes correlated random numbers and receives
nothing; A is Alice's vector and B Bob's:

    commodity -> Alice   mask Ra, share ra                  ra + rb = Ra.Rb
    commodity -> Bob     mask Rb, share rb
    Alice     -> Bob     A + Ra
    Bob       -> Alice   B + Rb   and   t = (A + Ra).B + rb - v2,   v2 random, Bob's own
    Alice     -> server  v1 = t - Ra.(B + Rb) + ra
    Bob       -> server  v2
    server               v1 + v2 = A.B

Real numbers are encoded in fixed point as integers modulo 2^64, where a uniform mask hides a vector perfectly: what
Alice and Bob see has the same distribution for every vector of the other, and neither learns the product.

What this does **not** protect:

- It assumes parties that follow the protocol and only try to learn from what they see (honest but curious). A party
  that sends false numbers causes a wrong product.
- The commodity server must not collude with anyone: with Ra it computes A from A + Ra. For the same reason the
  messages between Alice and Bob need encryption if a server that knows the masks relays them.
- The server learns every dot product. The full matrix of them determines the vectors up to a rotation
  (`fedpick.graph.vectors_from_similarity`), and a few clients whose vectors the server knows determine the rotation.
- Here one NumPy generator draws the random numbers of all parties, which is sufficient for a study. In a deployment,
  each party must draw its own from the operating system's cryptographic source.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats
from fedpick.graph._arrays import unit_rows

__all__ = [
    *("AliceView", "BobView", "Deal", "ServerView", "Transcript"),
    *("deal", "decode", "dot", "draw", "encode", "exchange", "open_result", "secure_dot", "secure_similarity"),
]

Ring = NDArray[np.uint64]  # integers modulo 2^64: NumPy's arrays of uint64 wrap around by themselves

# With 28 binary places and |A|, |B| <= 8, |A.B| 2^56 is at most 2^62, inside the ring's signed half. Each party can
# check its own length; by Cauchy-Schwarz that bounds the product, and reveals nothing to the other.
FRACTION_BITS = 28
LARGEST_NORM = 8.0


@dataclass(frozen=True, eq=False)
class Deal:
    """What the commodity server distributes, which is all that it knows: it receives no message."""

    mask_a: Ring
    share_a: Ring
    mask_b: Ring
    share_b: Ring


@dataclass(frozen=True, eq=False)
class AliceView:
    """All that Alice sees besides her own vector."""

    mask: Ring  # Ra
    share: Ring  # ra
    masked_bob: Ring  # B + Rb
    reply: Ring  # t


@dataclass(frozen=True, eq=False)
class BobView:
    """All that Bob sees besides his own vector."""

    mask: Ring  # Rb
    share: Ring  # rb
    masked_alice: Ring  # A + Ra
    pad: Ring  # v2, drawn by himself


@dataclass(frozen=True, eq=False)
class ServerView:
    """All that the server sees."""

    from_alice: Ring  # v1
    from_bob: Ring  # v2


@dataclass(frozen=True, eq=False)
class Transcript:
    """One run of the protocol: what each party saw."""

    commodity: Deal
    alice: AliceView
    bob: BobView
    server: ServerView


def encode(vector: Floats) -> Ring:
    """Write real numbers as integers modulo 2^64, in fixed point."""
    return np.round(vector * 2.0**FRACTION_BITS).astype(np.int64).view(np.uint64)


def decode(product: Ring) -> Floats:
    """Decode the product of two encoded numbers, which has twice the binary places."""
    value: Floats = product.view(np.int64) / 2.0 ** (2 * FRACTION_BITS)
    return value


def draw(shape: tuple[int, ...], rng: np.random.Generator) -> Ring:
    """Uniform numbers of the ring."""
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def dot(a: Ring, b: Ring) -> Ring:
    """Dot product over the last axis, which is kept because NumPy's scalars, unlike arrays, warn of overflow."""
    product: Ring = (a * b).sum(axis=-1, keepdims=True, dtype=np.uint64)
    return product


def deal(shape: tuple[int, ...], rng: np.random.Generator) -> Deal:
    """The commodity server's part, for vectors along the last axis of this shape; other axes are separate runs."""
    mask_a, mask_b, share_a = draw(shape, rng), draw(shape, rng), draw((*shape[:-1], 1), rng)
    return Deal(mask_a, share_a, mask_b, share_b=dot(mask_a, mask_b) - share_a)


def exchange(a: Ring, b: Ring, dealt: Deal, pad: Ring) -> Transcript:
    """Run the protocol on encoded vectors, with the commodity's and Bob's random numbers given."""
    masked_alice = a + dealt.mask_a  # Alice -> Bob
    masked_bob = b + dealt.mask_b  # Bob -> Alice
    reply = dot(masked_alice, b) + dealt.share_b - pad  # Bob -> Alice
    from_alice = reply - dot(dealt.mask_a, masked_bob) + dealt.share_a  # Alice -> server
    return Transcript(
        dealt,
        AliceView(dealt.mask_a, dealt.share_a, masked_bob, reply),
        BobView(dealt.mask_b, dealt.share_b, masked_alice, pad),
        ServerView(from_alice, from_bob=pad),
    )


def open_result(server: ServerView) -> Floats:
    """The server's last step: add the two shares."""
    return decode(server.from_alice + server.from_bob)


def secure_dot(alice: ArrayLike, bob: ArrayLike, rng: np.random.Generator) -> tuple[float, Transcript]:
    """Dot product of two private vectors, and what each party saw.

    It is exact up to fixed-point rounding, 2^-29 in each number.

    Args:
        alice: her vector (d,), of length (Euclidean norm) at most 8.
        bob: his vector (d,), of length at most 8.
        rng: draws the random numbers of the commodity server and of Bob.

    >>> value, transcript = secure_dot([0.5, 1.0], [2.0, -1.0], np.random.default_rng(0))
    >>> value
    0.0
    >>> transcript.server.from_bob.shape  # the server gets one number each from Alice and from Bob
    (1,)
    """
    a, b = _checked("alice", alice), _checked("bob", bob)
    if a.shape != b.shape:
        raise ContractError(f"alice has {len(a)} numbers and bob {len(b)}, but they must have the same number")
    transcript = exchange(encode(a), encode(b), deal(a.shape, rng), pad=draw((1,), rng))
    return float(open_result(transcript.server)[0]), transcript


def secure_similarity(vectors: ArrayLike, rng: np.random.Generator) -> Floats:
    """Dot products (K, K) of the clients' unit vectors, with a separate run of the protocol for each pair.

    Each client first divides its vector by its length, so that the products are cosines, in [-1, 1]; the diagonal is 1
    and needs no protocol. The result can be given to `three_dg`. A vector of zeros, or with NaN or infinity in it, has
    product 0 with all others.

    Args:
        vectors: (K, d); row k is known only to client k.
        rng: draws the random numbers of all parties.

    >>> secure_similarity([[10, 0], [3, 3], [0, 7]], np.random.default_rng(0)).round(6)
    array([[1.      , 0.707107, 0.      ],
           [0.707107, 1.      , 0.707107],
           [0.      , 0.707107, 1.      ]])
    """
    codes = encode(unit_rows("vectors", vectors))
    dots = np.eye(len(codes))
    for i in range(len(codes) - 1):
        others = codes[i + 1 :]  # client i is Alice with each later client, with new masks for each
        transcript = exchange(codes[i], others, deal(others.shape, rng), pad=draw((len(others), 1), rng))
        dots[i, i + 1 :] = dots[i + 1 :, i] = open_result(transcript.server)[:, 0]
    return dots


def _checked(who: str, vector: ArrayLike) -> Floats:
    array = np.asarray(vector, dtype=np.float64)
    if array.ndim != 1:
        raise ContractError(f"{who} has shape {array.shape}, but must be one vector, of shape (d,)")
    norm = math.hypot(*array.tolist())  # unlike NumPy's norm, it does not overflow
    # A NaN is not <= either.
    require(
        norm <= LARGEST_NORM,
        f"the length of {who}'s vector",
        norm,
        f"at most {LARGEST_NORM:g}",
        "beyond it the fixed-point product could overflow: divide the vector by its length",
    )
    return array
