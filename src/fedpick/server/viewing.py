"""What a session's policy sees before it chooses: who is there, their context, and probes of their loss."""

import logging
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.protocol import check_asked
from fedpick.core.types import Floats, Ints, View
from fedpick.server import reading
from fedpick.server.gathering import NotEnoughClientsError
from fedpick.server.permission import Eligible, permitted
from fedpick.server.roster import Roster
from fedpick.server.settings import ContextFn, ProbeFn

__all__ = ["listed", "view_of"]

LONGEST_NAME = 500  # characters


def listed(
    available: Iterable[str] | Mapping[str, Any], owner: str, log: logging.Logger, eligible: Eligible | None = None
) -> dict[str, Any]:
    """The available clients' descriptions by name, checked; only of those that may be asked."""
    if isinstance(available, str):
        raise ContractError(f"{owner}: available is the text {available!r:.80}, but must be a list of names")
    said = dict(available) if isinstance(available, Mapping) else dict.fromkeys(available)
    for name in [name for name in said if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME]:
        if not isinstance(name, str):
            raise ContractError(f"{owner}: available holds {name!r:.80}, but clients are known by strings")
        log.warning(
            "ignored a client whose name has %d characters, not 1 to %d: %s ...",
            len(name),
            LONGEST_NAME,
            reading.printable(name)[:40],
        )
        del said[name]  # no error: a client may have made it up
    if not said:
        raise NotEnoughClientsError("no client is available, so nobody can train; wait until one is connected")
    may = said if eligible is None else {name: said[name] for name in permitted(said, eligible, owner)}
    if not may:
        raise NotEnoughClientsError(
            f"none of the {len(said)} available clients is eligible, so that nobody is asked; approve some, or see "
            f"that eligible() knows clients by these names: {reading.printable(next(iter(said)))[:60]!r}, ..."
        )
    return may


def view_of(
    roster: Roster,
    there: Iterable[str],
    context: ContextFn | None,
    width: int | None,
    probe: ProbeFn | None,
    owner: str,
) -> tuple[View, list[float]]:
    """The policy's view of the next round, and a count of its probes: clients asked, seconds.

    Args:
        roster: the enrolled clients.
        there: names of those that are available.
        context: of the clients, if the policy needs one.
        width: columns that the policy reads of it; None: any number.
        probe: losses of the current model; None: the policy cannot ask for them.
        owner: the name that error messages begin with.
    """
    number, meter = roster.round + 1, [0.0, 0.0]
    assert roster.clients is not None
    available = np.zeros(len(roster.names), dtype=np.bool_)
    available[[roster.index[name] for name in there]] = True

    def metered(ids: Ints, /, *, batch: int | None = None) -> Floats:
        assert probe is not None
        check_asked(available, ids, "view.probe")
        before, ids = perf_counter(), np.asarray(ids)
        losses = np.asarray(probe([roster.names[k] for k in ids], batch), dtype=np.float64)
        if losses.shape != ids.shape:
            raise ContractError(
                f"{owner}: probe returned losses of shape {losses.shape}, but {len(ids)} clients were asked"
            )
        meter[0] += len(ids)
        meter[1] += perf_counter() - before
        return losses

    values = None
    if context is not None:
        idle = np.ones(len(roster.names), dtype=np.bool_)
        idle[roster.last] = False
        values = np.asarray(context(number, list(roster.names), idle), dtype=np.float64)
        if width is not None and values.shape != (len(idle), width):
            raise ContractError(
                f"{owner}: context returned shape {values.shape}, but must return {(len(idle), width)}: "
                f"for each client the {width} columns that the policy reads"
            )
    return View(number, available, roster.clients, values, None if probe is None else metered), meter
