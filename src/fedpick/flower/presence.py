"""Who is connected, under which names, and what newcomers say of themselves."""

from collections import Counter
from typing import Any

from flwr.serverapp import Grid

from fedpick.flower.asking import Said, ask_descriptions
from fedpick.flower.grids import own
from fedpick.flower.identity import Identity, identities
from fedpick.server.roster import Roster

__all__ = ["Presence"]

PATIENCE = 60.0  # seconds for answers of those that are asked who they are
MOST_TIMES = 3  # that a silent one is asked


class Presence:
    """Knows connected nodes as clients.

    Args:
        roster: in which they are enrolled.
        identity: by what a client is known when it comes back.
        asks: whether newcomers are asked to describe themselves.
    """

    def __init__(self, roster: Roster, identity: str | Identity, asks: bool) -> None:
        self.roster, self.identity, self.asks = roster, identity, asks
        self._said: dict[int, Said] = {}  # by node id
        self._asked: Counter[int] = Counter()

    def connected(self, grid: Grid, limit: float) -> dict[str, int]:
        """identity -> node id; `limit` is in seconds, for answers of those who are asked who they are."""
        return identities(grid, self.identity, lambda nodes: self._names(grid, nodes, limit))

    def _ask(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, Said]:
        """What nodes say of themselves; each is asked until it answers, but not often."""
        new = [node for node in nodes if node not in self._said and self._asked[node] < MOST_TIMES]
        if new:
            first = not self.roster.names and not self._said
            self._said |= ask_descriptions(own(grid), new, min(limit, PATIENCE), first)
            self._asked.update(new)
        return {node: self._said[node] for node in nodes if node in self._said}

    def _names(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, str]:
        """What nodes call themselves; one that is silent is asked again in the next round, and then has no name."""
        said = self._ask(grid, nodes, limit)
        return {n: said[n].name if n in said else "" for n in nodes if n in said or self._asked[n] >= MOST_TIMES}

    def described(self, grid: Grid, found: dict[str, int], limit: float) -> dict[str, Any]:
        """What the session is told of those who are there: of newcomers, what they say of themselves."""
        available: dict[str, Any] = dict.fromkeys(found)
        new = {name: node for name, node in found.items() if name not in self.roster.index}
        if self.asks and new:
            said = self._ask(grid, list(new.values()), limit)
            available |= {name: said[node].about for name, node in new.items() if node in said}
            # Once enrolled, the name is all that is needed.
            self._said |= {node: Said(each.name) for node, each in said.items()}
        return available
