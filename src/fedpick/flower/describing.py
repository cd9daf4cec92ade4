"""What a client says of itself, asked for once: how many examples, a vector that describes them, a name."""

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fedpick.errors import ContractError, MissingError, require
from fedpick.flower.grids import exchange
from fedpick.flower.replies import number, plain, without_handler
from fedpick.types import Clients, Floats

__all__ = ["DESCRIBE", "Said", "ask", "describe", "masked", "together"]

log = logging.getLogger("flwr.fedpick")

DESCRIBE = "query.describe"  # the message type
CLIENT_ID = "client-id"  # in the SuperNode's --node-config
MOST_FEATURES, LONGEST_NAME, LARGEST_SIZE = 10_000, 200, 1e12
DescribeFn = Callable[[Context], float | tuple[float, Sequence[float]]]


@dataclass(frozen=True, eq=False)
class Said:
    """A client's answer; what it did not say, or said wrongly, is "", 1 and None."""

    name: str = ""
    size: float = 1.0
    features: list[float] | None = None


@overload
def describe(app: ClientApp) -> Callable[[DescribeFn], DescribeFn]: ...
@overload
def describe(app: ClientApp, fn: DescribeFn) -> DescribeFn: ...
def describe(app: ClientApp, fn: DescribeFn | None = None) -> DescribeFn | Callable[[DescribeFn], DescribeFn]:
    """Let a ClientApp describe itself when it is enrolled: `describe(app, fn)`, or `@describe(app)` above the function.

    Args:
        app: gets a handler for the message type `query.describe`.
        fn: context -> number of examples, or (number of examples, vector of features such as a label histogram).
    """
    if fn is None:
        return lambda function: describe(app, function)

    @app.query(DESCRIBE.split(".")[1])
    def answer(message: Message, context: Context) -> Message:
        said = fn(context)
        size, features = said if isinstance(said, tuple) else (said, None)
        record = MetricRecord({"size": float(size)})
        if features is not None:
            record["features"] = [float(value) for value in features]
        name = ConfigRecord({CLIENT_ID: str(context.node_config.get(CLIENT_ID, ""))})
        return Message(RecordDict({"metrics": record, "config": name}), reply_to=message)

    return fn


def masked(features: ArrayLike, secret: str | bytes) -> Floats:
    """Features at length 1, turned by a rotation that only holders of the secret know.

    All clients turn theirs alike, so the server can compare any two of them, and learns no more than their dot
    products: a vector turned at random says nothing else. One client that tells the server the secret gives all away.

    Args:
        features: a vector, such as the label histogram.
        secret: at least 16 characters that the clients share and the server does not know.

    >>> a, b = masked([3, 4, 0], "a secret of the clients"), masked([0, 1, 0], "a secret of the clients")
    >>> round(float(a @ b), 6)
    0.8
    """
    vector = np.asarray(features, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ContractError(f"features has shape {vector.shape}, but must be one vector of finite numbers")
    key = secret.encode() if isinstance(secret, str) else secret
    require(len(key) >= 16, "masked: secret, in bytes", len(key), "at least 16", "a short one can be guessed")
    length = float(np.linalg.norm(vector))
    return _rotation(key, len(vector)) @ (vector / length if length > 0 else vector)


def _rotation(key: bytes, size: int) -> Floats:
    """A random orthogonal matrix (Haar), from a stream that cannot be told from chance without the key."""
    stream = hashlib.shake_256(b"fedpick rotation %d " % size + key).digest(8 * size * size)
    uniform = (np.frombuffer(stream, dtype="<u8").astype(np.float64) + 0.5) / 2.0**64
    normal = ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16)).reshape(size, size)
    q, r = np.linalg.qr(normal)
    rotation: Floats = q * np.where(np.diagonal(r) < 0.0, -1.0, 1.0)  # without the signs it is not uniform
    return rotation


def _heard(reply: Message) -> Said:
    metrics = next(iter(reply.content.metric_records.values()), MetricRecord())
    config = next(iter(reply.content.config_records.values()), ConfigRecord())
    size, features, name = number(metrics.get("size")), metrics.get("features"), config.get(CLIENT_ID)
    vector = features if isinstance(features, list) and 0 < len(features) <= MOST_FEATURES else [math.nan]
    return Said(
        name if isinstance(name, str) and len(name) <= LONGEST_NAME else "",
        size if 0.0 < size <= LARGEST_SIZE else 1.0,
        [float(value) for value in vector] if all(math.isfinite(number(value)) for value in vector) else None,
    )


def ask(grid: Grid, node_ids: list[int], limit: float, first: bool) -> dict[int, Said]:
    """What nodes say of themselves; those that say nothing in time are not in it.

    If no node has a handler, and it is the `first` time that some are asked, an error says what to do.
    """
    messages = [Message(RecordDict(), node_id, DESCRIBE) for node_id in node_ids]
    replies = exchange(grid, messages, limit).replies
    by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
    said: dict[int, Said] = {}
    unknown = 0
    for node, message in zip(node_ids, messages, strict=True):
        reply = by_message.get(message.metadata.message_id)
        if reply is None or reply.has_error():
            unknown += reply is not None and without_handler(reply)
            continue
        try:
            said[node] = _heard(reply)
        except Exception as error:  # records of another kind: the client's doing
            said[node] = Said()
            log.warning("node %d describes itself with nonsense: %s", node, plain(str(error)))
    if first and node_ids and unknown == len(node_ids):
        raise MissingError(
            f"clients are asked to describe themselves, but none of {len(node_ids)} ClientApps has a handler for "
            f"{DESCRIBE!r}: add fedpick.flower.describe(app, function) to the client"
        )
    if len(said) < len(node_ids):
        log.warning("%d of %d newcomers did not describe themselves", len(node_ids) - len(said), len(node_ids))
    return said


def together(said: Sequence[Said], width: int | None, need: bool) -> Clients:
    """Answers as fp.Clients; a row of zeros stands for features that are not known.

    Args:
        said: one answer for each client.
        width: of the features of those enrolled before; None lets most of these decide.
        need: whether the policy cannot do without.
    """
    if width is None:
        widths = Counter(len(each.features) for each in said if each.features is not None)
        width = widths.most_common(1)[0][0] if widths else 0
    if need and width == 0:
        raise MissingError(
            f"the policy needs features, but none of {len(said)} clients told any: return (size, features) from the "
            "function given to fedpick.flower.describe(app, function)"
        )
    features = np.zeros((len(said), width))
    for at, each in enumerate(said):
        if each.features is not None and len(each.features) == width:
            features[at] = each.features
        elif each.features is not None:
            log.warning("a newcomer told %d features, but others have %d: ignored", len(each.features), width)
    return Clients([each.size for each in said], features=features if width else None)
