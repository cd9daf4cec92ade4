"""The loss of the current model on a client's data, asked for before the choice (Power-of-Choice needs it)."""

from collections.abc import Callable
from typing import overload

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedpick.errors import MissingError
from fedpick.flower.grids import exchange
from fedpick.flower.replies import number, without_handler
from fedpick.types import Floats

__all__ = ["PROBE", "LossFn", "ask", "probe"]

PROBE = "evaluate.probe"  # the message type: an action of its own, so that the app's evaluation stays as it is
LossFn = Callable[[ArrayRecord, int | None, Context], float]


@overload
def probe(app: ClientApp) -> Callable[[LossFn], LossFn]: ...
@overload
def probe(app: ClientApp, loss_fn: LossFn) -> LossFn: ...
def probe(app: ClientApp, loss_fn: LossFn | None = None) -> LossFn | Callable[[LossFn], LossFn]:
    """Let a ClientApp answer probes: `probe(app, loss_fn)`, or `@probe(app)` above the function.

    Args:
        app: gets a handler for the message type `evaluate.probe`.
        loss_fn: (arrays, batch, context) -> mean loss of the model with these arrays on the client's data; `batch` is
            the number of examples to use, None for all.
    """
    if loss_fn is None:
        return lambda fn: probe(app, fn)

    @app.evaluate(PROBE.split(".")[1])
    def answer(message: Message, context: Context) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        config = next(iter(message.content.config_records.values()))
        batch = int(config["batch"])  # type: ignore[arg-type]
        loss = float(loss_fn(arrays, batch or None, context))
        return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)

    return loss_fn


def ask(
    grid: Grid,
    node_ids: list[int],
    arrays: ArrayRecord,
    round: int,
    batch: int | None,
    limit: float | None,
    first: bool = True,
) -> Floats:
    """The loss that each node reports, NaN for those that do not answer in time or answer nonsense.

    If no node has a handler, and it is the `first` time that some are asked, an error says what to do.
    """
    config = ConfigRecord({"server-round": round, "batch": batch or 0})
    record = RecordDict({"arrays": arrays, "config": config})
    messages = [Message(record, node_id, PROBE) for node_id in node_ids]
    replies = exchange(grid, messages, limit).replies
    by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
    losses = np.full(len(node_ids), np.nan)
    unknown = 0
    for at, message in enumerate(messages):
        reply = by_message.get(message.metadata.message_id)
        if reply is None:
            continue
        if reply.has_error():
            unknown += without_handler(reply)
            continue
        for record_ in list(reply.content.metric_records.values())[:1]:
            losses[at] = number(record_.get("loss"))
    if first and messages and unknown == len(messages):
        raise MissingError(
            f"the policy asks clients for their loss, but none of {len(messages)} ClientApps has a handler for "
            f"{PROBE!r}: add fedpick.flower.probe(app, loss_fn) to the client, or choose a policy without probes"
        )
    return losses
