"""Who is connected, and the enrolment of those that were never seen before."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic, sleep

import numpy as np
from flwr.serverapp import Grid

from fedpick.errors import ContractError, FedpickError
from fedpick.flower import describing
from fedpick.flower.grids import own
from fedpick.flower.roster import Identity, Roster, identities
from fedpick.types import Clients

__all__ = ["Describe", "NotEnoughClientsError", "Presence"]

log = logging.getLogger("flwr.fedpick")

PATIENCE = 60.0  # seconds for answers of those that are asked who they are
MOST_TIMES = 3  # that a silent one is asked
Describe = Callable[[Sequence[str]], Clients]  # identities of newcomers -> what is known of them


class NotEnoughClientsError(FedpickError, RuntimeError):
    """Too few clients were connected for too long."""


class Presence:
    """Knows connected nodes as clients of a roster.

    Args:
        roster: in which they are enrolled.
        identity: by what a client is known when it comes back.
        describe: says what newcomers hold: a function of their identities, "ask", or None.
        need_features: whether the policy cannot do without features.
    """

    def __init__(
        self, roster: Roster, identity: str | Identity, describe: Describe | str | None, need_features: bool
    ) -> None:
        self.roster, self.identity, self.describe, self.need_features = roster, identity, describe, need_features
        self._settled: int | None = None  # how many clients we stopped waiting for more at
        self._said: dict[int, describing.Said] = {}  # by node id
        self._asked: Counter[int] = Counter()

    def connected(self, grid: Grid, want: int, wait: float, too_few: str, limit: float) -> dict[str, int]:
        """identity -> node id, after waiting for enough of them, but not for ever.

        Args:
            grid: Flower's, or one around it.
            want: how many the policy asks for.
            wait: seconds.
            too_few: what to do with fewer: "smaller" or "error".
            limit: seconds for their answers, where they are asked who they are.
        """
        enough = want if self._settled is None else min(want, self._settled)
        begun = monotonic()
        while True:
            found = identities(grid, self.identity, lambda nodes: self._names(grid, nodes, limit))
            left = wait - (monotonic() - begun)
            if len(found) >= enough or left <= 0:
                break
            sleep(min(1.0, left))
        if not found:
            raise NotEnoughClientsError(
                f"no client was connected for {wait:g} s, so that nobody can train; start SuperNodes, or raise wait"
            )
        if len(found) < want and too_few == "error":
            raise NotEnoughClientsError(
                f"{len(found)} clients were connected after {wait:g} s, but the policy asks for {want}; start more "
                "SuperNodes, raise wait, or say too_few='smaller'"
            )
        if len(found) < enough:
            log.warning("%d clients connected after %g s, %d wanted: a smaller cohort", len(found), wait, want)
        self._settled = len(found)
        return found

    def _ask(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, describing.Said]:
        """What nodes say of themselves; each is asked until it answers, but not often."""
        new = [node for node in nodes if node not in self._said and self._asked[node] < MOST_TIMES]
        if new:
            first = self.roster.clients is None and not self._said
            self._said |= describing.ask(own(grid), new, min(limit, PATIENCE), first)
            self._asked.update(new)
        return {node: self._said[node] for node in nodes if node in self._said}

    def _names(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, str]:
        """What nodes call themselves; one that is silent is asked again in the next round, and then has no name."""
        said = self._ask(grid, nodes, limit)
        return {n: said[n].name if n in said else "" for n in nodes if n in said or self._asked[n] >= MOST_TIMES}

    def enrol(self, grid: Grid, found: dict[str, int], limit: float) -> None:
        """Enrol those that are not yet, with what is known of them."""
        roster = self.roster
        new = [name for name in found if name not in roster.index]
        if not new:
            return
        if self.describe == "ask":
            said = self._ask(grid, [found[name] for name in new], limit)
            before = None if roster.clients is None else roster.clients.features
            width = None if roster.clients is None else 0 if before is None else before.shape[1]
            answers = [said.get(found[name], describing.Said()) for name in new]
            newcomers = describing.together(answers, width, self.need_features)
            # Once enrolled, the name is all that is needed.
            self._said |= {node: describing.Said(each.name) for node, each in said.items()}
        elif callable(self.describe):
            newcomers = self.describe(list(new))
            if len(newcomers) != len(new):
                raise ContractError(
                    f"Selected: describe() described {len(newcomers)} clients, but was asked for {len(new)}: give one "
                    "each"
                )
        else:
            newcomers = Clients(np.ones(len(new)))
        roster.enrol(new, newcomers)
        log.info("enrolled %d clients, %d in all", len(new), len(roster.names))
