"""The connected nodes of Flower that may be asked, by the names of their clients."""

from functools import partial
from typing import Any

from flwr.serverapp import Grid

from fedpick.adapters.flower.grids import GatedGrid, WatchedGrid, connections, unwrapped
from fedpick.adapters.flower.messages import ask_descriptions
from fedpick.adapters.presence import Presence
from fedpick.adapters.quorum import Quorum
from fedpick.server.view import Eligible, permitted

__all__ = ["Nodes"]


class Nodes:
    """Finds the nodes that may be asked, and lets messages reach no others.

    Args:
        presence: recognises them.
        quorum: waits for enough of them.
        eligible: name -> whether this client may be asked at all; None: all may.
    """

    def __init__(self, presence: Presence[int], quorum: Quorum, eligible: Eligible | None) -> None:
        self.presence, self.quorum, self.eligible = presence, quorum, eligible
        self._allowed: set[int] | None = None  # nodes that may be asked, as found last

    def gated(self, grid: Grid) -> Grid:
        """The grid, through which only those that may be asked are sent messages."""
        if self.eligible is None or isinstance(grid, WatchedGrid):  # which has one inside
            return grid
        return GatedGrid(grid, lambda: self._allowed if self._allowed is not None else set(self.there(grid).values()))

    def there(self, grid: Grid, limit: float | None = None) -> dict[str, int]:
        """The connected nodes that may be asked, by name; one that must be asked for its name has `limit` seconds."""
        auto = "simulation" if type(unwrapped(grid)).__name__ == "InMemoryGrid" else "registered"
        ask = partial(ask_descriptions, unwrapped(grid), limit)
        found = self.presence.identified(connections(grid), ask, auto)
        if self.eligible is None:
            return found
        names = permitted(found, self.eligible, "Selected")
        self.quorum.barred = len(found) - len(names)
        self._allowed = {found[name] for name in names}
        return {name: found[name] for name in names}

    def enough(self, grid: Grid, wait: float, limit: float | None) -> dict[str, int]:
        """As `there`, once there are as many as the policy asks for, or `wait` seconds have passed."""
        return self.quorum.wait_for(wait, lambda: self.there(grid, limit))

    def described(self, grid: Grid, found: dict[str, int], limit: float | None) -> dict[str, Any]:
        """These nodes as the session's `available`: with the newcomers' descriptions of themselves."""
        return self.presence.described(found, partial(ask_descriptions, unwrapped(grid), limit))
