"""What a reply says, read with distrust: whatever a client sends, the round goes on.

A reply that Flower's strategies could not aggregate (other keys or shapes than the rest, NaN, no weight) would end the
ServerApp with an exception, so it counts as that client's failure here and never reaches them.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from fedpick.server.reading import printable
from fedpick.server.updates import Update, arrays_fault, metrics_fault

__all__ = ["Heard", "read"]


@dataclass(kw_only=True)
class Heard(Update):
    """A reply and what was read from it."""

    reply: Message


def _look(reply: Message, sent: ArrayRecord | None, weight: str | None, train: bool) -> tuple[Hashable, bool, str]:
    """(what must be common to all, whether it is as the model that was sent, what is wrong)."""
    records = (*reply.content.array_records.items(),) if train else ()
    if train and weight is not None and len(records) != 1:
        return None, False, f"{len(records)} ArrayRecords instead of one"
    if weight is not None and len(reply.content.metric_records) != 1:
        return None, False, f"{len(reply.content.metric_records)} MetricRecords instead of one"
    shapes: list[Hashable] = []
    like = True
    for key, record in records:
        arrays = {name: _values(array, None if sent is None else sent.get(name)) for name, array in record.items()}
        shape, wrong = arrays_fault(arrays, None if weight is None else sent)
        if wrong:
            return None, False, wrong
        like = like and sent is not None and set(record) == set(sent)
        shapes.append((key, shape))
    for key, metrics in reply.content.metric_records.items():
        shape, wrong = metrics_fault(metrics, weight)
        if wrong:
            return None, False, wrong
        shapes.append((key, shape))
    return tuple(shapes), like, ""


def _values(array: Array, model: Array | None) -> Any:
    """The array's numbers; itself where model and array are in a form that only the base strategy can read."""
    own = model is not None and array.stype == model.stype != "numpy.ndarray"
    return array if own else array.numpy()


def read(
    reply: Message, *, sent: ArrayRecord | None, weight: str | None, names: Iterable[str] = (), train: bool = True
) -> Heard:
    """Read one reply.

    Args:
        reply: from a client.
        sent: the model that the client was sent.
        weight: name of the metric that the base strategy averages by; None if it does not say.
        names: metrics to keep as reports.
        train: whether an ArrayRecord is due.
    """
    heard = Heard(reply=reply)
    if reply.has_error():
        heard.why = printable(f"error {reply.error.code}: {(reply.error.reason or '')[-200:]}")
        return heard
    try:
        heard.shape, heard.like_sent, heard.why = _look(reply, sent, weight, train)
        record = next(iter(reply.content.metric_records.values()), MetricRecord())
        if not heard.why and not train:
            bad = next((name for name, value in record.items() if not np.isfinite(value).all()), None)
            heard.why = "" if bad is None else f"metric {bad!r} is NaN or infinite"  # the mean would be, too
        if not heard.why:
            heard.say(record, names)
    except Exception as error:  # bytes that are no array, records of another kind: all of it the client's doing
        heard.why = f"unreadable: {type(error).__name__}: {error}"
    heard.why = printable(heard.why)
    return heard
