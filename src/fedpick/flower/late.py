"""Replies to training that come after their round was closed: they are awaited, and kept for a later round."""

from dataclasses import dataclass, field

from flwr.serverapp import Grid

from fedpick.flower.exchange import Exchange
from fedpick.server.late import LateUpdates

__all__ = ["Latecomers"]


@dataclass(eq=False)
class Latecomers:
    """The messages of closed rounds that may still be answered.

    Args:
        updates: late updates of the session, which knows who owes one.
    """

    updates: LateUpdates
    _awaited: dict[str, tuple[Exchange, int]] = field(default_factory=dict)  # message id -> its round, and the node

    def expect(self, exchange: Exchange) -> None:
        """Await what is owed for a round that is closed; forget what would come too late."""
        self._awaited |= {m.metadata.message_id: (exchange, node) for node, m in exchange.messages.items()}
        self._awaited = {
            key: (asked, node)
            for key, (asked, node) in self._awaited.items()
            if self.updates.owes(asked.names[node], asked.round.number)
        }

    def pull(self, grid: Grid) -> None:
        """Look for late replies, and keep those that can be used."""
        for reply in grid.pull_messages(set(self._awaited)) if self._awaited else ():
            exchange, node = self._awaited.pop(reply.metadata.reply_to_message_id, (None, 0))
            if exchange is None:
                continue
            heard = exchange.read(reply)
            if not heard.why and heard.moves.keys() != exchange.arrays.keys():
                heard.why = "its arrays cannot be compared with the model's"
            self.updates.take(exchange.names[node], heard, exchange.round.number)
