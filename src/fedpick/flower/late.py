"""Replies that come after their round was closed: they are awaited, and used in a later round with REFL's weight."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import Grid

from fedpick.flower.exchange import Exchange, Heard, read
from fedpick.server.late import Came, LateUpdates, factors
from fedpick.server.reading import number, printable
from fedpick.types import Floats, Status

__all__ = ["Latecomers"]

log = logging.getLogger("flwr.fedpick")


@dataclass(frozen=True, eq=False)
class _Late:
    """A reply and the model that its client was sent."""

    heard: Heard
    sent: ArrayRecord


def _moves(record: ArrayRecord, sent: ArrayRecord) -> dict[str, Any]:
    """What training added to each array of the model; a KeyError or ValueError if they do not fit."""
    return {name: record[name].numpy() - array.numpy() for name, array in sent.items()}


def _flat(moves: dict[str, Any]) -> Floats:
    return np.concatenate([np.asarray(each, dtype=np.float64).ravel() for each in moves.values()])


def _record(heard: Heard) -> ArrayRecord:
    return next(iter(heard.reply.content.array_records.values()))


@dataclass(eq=False)
class Latecomers:
    """The messages of closed rounds that may still be answered.

    Args:
        updates: late updates of the session.
    """

    updates: LateUpdates
    _owed: dict[str, tuple[Exchange, int]] = field(default_factory=dict)  # message id -> its round, and the node

    def busy(self) -> set[int]:
        """Nodes that still work on an earlier round."""
        return {node for _, node in self._owed.values()}

    def owe(self, exchange: Exchange) -> None:
        """Await the replies that a round that is closed did not get; forget those that would come too late."""
        if not self.updates.rounds:
            return
        now = exchange.round.number
        self._owed = {key: each for key, each in self._owed.items() if now - each[0].round.number < self.updates.rounds}
        self._owed |= {
            message.metadata.message_id: (exchange, node)
            for node, message in exchange.messages.items()
            if node not in exchange.heard and not exchange.refused(message)
        }

    def pull(self, grid: Grid, weight: str | None) -> None:
        """Look for late replies, and keep those that can be used."""
        for reply in grid.pull_messages(set(self._owed)) if self._owed else ():
            exchange, node = self._owed.pop(reply.metadata.reply_to_message_id, (None, 0))
            if exchange is None:
                continue
            heard = read(reply, sent=exchange.arrays, weight=weight)
            if heard.why:
                log.info("late reply of node %d for round %d dropped: %s", node, exchange.round.number, heard.why)
            else:
                self.updates.keep(exchange.names[node], _Late(heard, exchange.arrays), exchange.round.number)

    def join(self, exchange: Exchange, taken: Sequence[Came], weight: str) -> list[tuple[Heard, float]]:
        """The late replies as if their clients had trained the model of this round, with what each counts for.

        Args:
            exchange: of this round, whose clients are judged.
            taken: late updates that have come.
            weight: the metric by which the base averages.

        Returns replies and numbers beside the base's metric of the others, or beside the policy's weights.
        """
        nodes = [node for node in exchange.heard if exchange.status.get(node) == Status.DONE]
        names, shares = [exchange.names[node] for node in nodes], exchange.round.weights
        own = exchange.sizes(weight)
        sizes = [own[name] if shares is None else shares[name] for name in names]
        kept: list[tuple[Came, dict[str, Any], Floats]] = []
        try:
            fresh = [_flat(_moves(_record(exchange.heard[node]), exchange.arrays)) for node in nodes]
            length = sum(array.numpy().size for array in exchange.arrays.values())
        except Exception as error:  # arrays in a format of the base's own
            log.warning("late replies dropped: the model cannot be read: %s: %s", type(error).__name__, error)
            return []
        for each in taken:
            try:
                moves = _moves(_record(each.update.heard), each.update.sent)
                numbers = _flat(moves)
                fits = moves.keys() == exchange.arrays.keys() and len(numbers) == length
            except Exception:
                fits = False
            if fits:
                kept.append((each, moves, numbers))
            else:
                log.info("late reply of %s dropped: it is not like the model", printable(each.name))
        tau = np.array([exchange.round.number - each.round for each, _, _ in kept])
        factor = factors(fresh, sizes, [numbers for _, _, numbers in kept], tau, self.updates.beta)
        # The policy's weights of this round were divided by their sum, if it lets us: so are those of late updates.
        choice, scale = exchange.round.choice, 1.0
        if shares is not None and choice.normalise and choice.weights is not None:
            mine = [exchange.round.index[name] for name in names]
            scale = max(float(choice.weights[np.isin(choice.ids, mine)].sum()), np.finfo(np.float64).tiny)
        found = []
        for (each, moves, _), times in zip(kept, factor.tolist(), strict=True):
            heard = each.update.heard
            said = number(next(iter(heard.reply.content.metric_records.values()), MetricRecord()).get(weight, 1.0))
            record = _record(heard)
            for name, move in moves.items():
                now = exchange.arrays[name].numpy()
                record[name] = Array(np.asarray(now + move).astype(now.dtype))
            found.append((heard, times * (said if shares is None else each.base / scale)))
        return found
