"""Messages to ClientApps other than training, and the handlers that answer them.

`probe`: the loss of the current model on a client's data, before the choice (Power-of-Choice needs it). `describe`:
when a client is enrolled, its number of examples, a vector of features, and a name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedpick.adapters.arrivals import earliest
from fedpick.adapters.flower.grids import exchange
from fedpick.adapters.flower.logs import log
from fedpick.adapters.presence import SelfDescription
from fedpick.core.errors import MissingError
from fedpick.core.types import Floats
from fedpick.server.client import description
from fedpick.server.validation import number, printable

__all__ = ["DESCRIBE", "PROBE", "ask_descriptions", "ask_losses", "describe", "first", "probe"]

# Message types that no app uses, so that the app's evaluation and queries do not change.
PROBE, DESCRIBE = "evaluate.probe", "query.describe"
NO_HANDLER = "function registered with name"  # part of Flower's error message for a ClientApp without a handler
CLIENT_ID = "client-id"  # key in the SuperNode's --node-config
PATIENCE = 60.0  # seconds to wait for a node's description of itself
LossFn = Callable[[ArrayRecord, int | None, Context], float]
DescribeFn = Callable[[Context], float | tuple[float, Sequence[float]] | Mapping[str, Any]]


def first(records: Mapping[str, Any]) -> Any:
    """The first of a message's records of one kind; {} if there is none."""
    return next(iter(records.values()), {})


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
        batch = int(first(message.content.config_records)["batch"]) or None
        loss = float(loss_fn(first(message.content.array_records), batch, context))
        return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)

    return loss_fn


@overload
def describe(app: ClientApp) -> Callable[[DescribeFn], DescribeFn]: ...
@overload
def describe(app: ClientApp, fn: DescribeFn) -> DescribeFn: ...
def describe(app: ClientApp, fn: DescribeFn | None = None) -> DescribeFn | Callable[[DescribeFn], DescribeFn]:
    """Let a ClientApp describe itself when it is enrolled: `describe(app, fn)`, or `@describe(app)` above the function.

    Args:
        app: gets a handler for the message type `query.describe`.
        fn: context -> number of examples, or (number of examples, vector of features such as a label histogram), or
            a dict with "size", and "features", "labels" or both.
    """
    if fn is None:
        return lambda function: describe(app, function)

    @app.query(DESCRIBE.split(".")[1])
    def answer(message: Message, context: Context) -> Message:
        record = MetricRecord(description(fn(context)))
        name = ConfigRecord({CLIENT_ID: str(context.node_config.get(CLIENT_ID, ""))})
        return Message(RecordDict({"metrics": record, "config": name}), reply_to=message)

    return fn


def _replies(
    grid: Grid, nodes: list[int], kind: str, content: RecordDict, limit: float | None, fix: str
) -> dict[int, Message]:
    """The answers by node id; raises with `fix` as advice if no ClientApp has a handler, unless `fix` is empty."""
    messages = {node: Message(content, node, kind) for node in nodes}
    found = {r.metadata.reply_to_message_id: r for r in exchange(grid, list(messages.values()), limit)}
    replies = {node: found[m.metadata.message_id] for node, m in messages.items() if m.metadata.message_id in found}
    lacking = [r for r in replies.values() if r.has_error() and NO_HANDLER in (r.error.reason or "")]
    if fix and nodes and len(lacking) == len(nodes):
        raise MissingError(f"none of {len(nodes)} ClientApps has a handler for {kind!r}: {fix}")
    return {node: reply for node, reply in replies.items() if not reply.has_error()}


def ask_losses(grid: Grid, nodes: list[int], content: RecordDict, limit: float | None, begins: bool) -> Floats:
    """The loss that each node reports; NaN for nodes that do not answer in time, and for invalid answers."""
    fix = "add fedpick.flower.probe(app, loss_fn) to the ClientApp, or choose a policy without probes"
    replies = _replies(grid, nodes, PROBE, content, limit, fix if begins else "")
    losses = {node: first(reply.content.metric_records).get("loss") for node, reply in replies.items()}
    return np.array([number(losses.get(node)) for node in nodes], dtype=np.float64)


def ask_descriptions(grid: Grid, limit: float | None, nodes: list[int], begins: bool) -> dict[int, SelfDescription]:
    """The nodes' descriptions of themselves; nodes that do not answer in time are left out."""
    fix = "add fedpick.flower.describe(app, function) to the ClientApp" if begins else ""
    found: dict[int, SelfDescription] = {}
    for node, reply in _replies(grid, nodes, DESCRIBE, RecordDict(), earliest(limit, PATIENCE), fix).items():
        try:
            name = first(reply.content.config_records).get(CLIENT_ID)
            found[node] = SelfDescription.of(name, first(reply.content.metric_records))
        except Exception as error:  # the client sent records of another kind
            found[node] = SelfDescription()
            log.warning("node %d sent an invalid description of itself: %s", node, printable(error))
    return found
