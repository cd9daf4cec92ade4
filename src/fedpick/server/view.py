"""What a session's policy sees before it chooses: the available and eligible clients, their context and losses."""

import logging
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.errors import ContractError, FedpickError
from fedpick.core.protocol import check_asked
from fedpick.core.types import Bools, Floats, Ints, View
from fedpick.server.roster import Present, Roster
from fedpick.server.settings import ProbeFn
from fedpick.server.validation import printable

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Eligible", "NotEnoughClientsError", "listed", "permitted", "view_of"]

LONGEST_NAME = 500  # characters
Eligible = Callable[[str], bool]  # a client's name, as it is enrolled -> whether it may be sent messages


class NotEnoughClientsError(FedpickError, RuntimeError):
    """Too few clients are connected for a round."""


def permitted(names: Iterable[str], eligible: Eligible, owner: str) -> list[str]:
    """The clients for which the user's function returns True; an answer that is no truth value raises."""
    found = []
    for name in names:
        call = f"{owner}: eligible({printable(name)!r:.80})"
        try:
            answer = eligible(name)
        except Exception as error:
            raise ContractError(
                f"{call} raised {type(error).__name__}: {printable(error)[:200]}; it must return True or False for "
                "every name, and nobody is asked until it does"
            ) from error
        if not isinstance(answer, bool | np.bool_):
            raise ContractError(
                f"{call} returned {printable(repr(answer))[:80]}, but must return True or False; nobody is asked until "
                "it does"
            )
        if answer:
            found.append(name)
    return found


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def listed(
    available: Iterable[str] | Mapping[str, Any],
    roster: Roster,
    owner: str,
    log: logging.Logger,
    eligible: Eligible | None = None,
) -> Present:
    """The clients that are available and eligible; names are checked when they are new.

    What cannot be a name is ignored with a warning, not an error: a client may have made it up. A million names are
    looked up once: that takes longer than all else in a round.
    """
    if isinstance(available, str | bytes):
        raise ContractError(f"{owner}: available is the text {available!r:.80}, but must be a list of names")
    names = list(available)
    try:
        at = roster.find(names)
    except TypeError:  # some cannot even be looked up
        at = roster.find([name if isinstance(name, str) else None for name in names])
    unknown = [names[k] for k in np.flatnonzero(at < 0).tolist()]
    if wrong := [name for name in unknown if not _is_name(name)]:
        kind = f"of {len(wrong[0])} characters" if isinstance(wrong[0], str) else f"of type {type(wrong[0]).__name__}"
        text = "ignored %d clients: a name must be a string of 1 to %d characters, but one is %s: %s"
        log.warning(text, len(wrong), LONGEST_NAME, printable(kind), printable(wrong[0])[:40])
    new: dict[str, Any] = dict.fromkeys(filter(_is_name, unknown))
    known = roster.mask(at)
    if not new and not known.any():
        raise NotEnoughClientsError("no client is available, so nobody can train; wait until one is connected")
    if eligible is not None:
        asked = list(
            dict.fromkeys(name for name, k in zip(names, at.tolist(), strict=True) if k >= 0 or _is_name(name))
        )
        may = permitted(asked, eligible, owner)
        if not may:
            raise NotEnoughClientsError(
                f"none of the {len(asked)} available clients is eligible, so that nobody is asked; approve some, or "
                f"see that eligible() knows clients by these names: {printable(asked[0])[:60]!r}, ..."
            )
        known, new = roster.mask(roster.find(may)), dict.fromkeys(name for name in may if name in new)
    if isinstance(available, Mapping):
        new = {name: available[name] for name in new}
    return Present(known, new)


def view_of(session: "Session", present: Bools, probe: ProbeFn | None) -> tuple[View, list[float]]:
    """The policy's view of the next round, and a count of its probes: clients asked, seconds.

    Of the clients that are present, those that still work on an earlier round are not available.
    """
    roster, owner, meter = session.roster, session.owner, [0.0, 0.0]
    assert roster.counted is not None
    busy, held = (roster.mask(roster.find(each)) for each in (session.flight.busy, session.flight.held))
    available = present & ~busy

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

    number = roster.round + 1
    return View(
        number,
        available,
        roster.counted,
        _context(session, number),
        None if probe is None else metered,
        there=present,
        busy=busy,
        held=held,
        wanted=session.traits.asks,
    ), meter


def _context(session: "Session", round: int) -> Floats | None:
    """What the session's function `context` returns for this round; None without one."""
    if session.context is None:
        return None
    roster, width = session.roster, session.traits.context
    idle = np.ones(len(roster.names), dtype=np.bool_)
    idle[roster.last] = False
    values = np.asarray(session.context(round, list(roster.names), idle), dtype=np.float64)
    if width is not None and values.shape != (len(idle), width):
        raise ContractError(
            f"{session.owner}: context returned shape {values.shape}, but must return {(len(idle), width)}: "
            f"for each client the {width} columns that the policy reads"
        )
    return values
