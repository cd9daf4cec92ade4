"""What a server's log says as a WARNING, with the remedy: rounds and restarts that go wrong without an error."""

import logging
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from fedpick.core.types import Choice, Outcome, Status
from fedpick.policies.guard import Guard
from fedpick.server.reading import printable

__all__ = ["NAMING", "Alarms"]

IN_A_ROW = 5  # failures of one client after which Guard is suggested
NAMING = "give each client a name that stays the same when it, or the server, is restarted"


def _guarded(policy: Any) -> bool:
    """Whether the policy, or one inside it, is a Guard."""
    while policy is not None and not isinstance(policy, Guard):
        policy = getattr(policy, "policy", None)
    return policy is not None


def _written(policy: Any) -> str:
    """A policy as one writes it; those of the user's own without a prefix."""
    ours = type(policy).__module__.startswith("fedpick.")
    return re.sub(r"\b(?=[A-Z]\w*\()", "fp.", repr(policy)) if ours else repr(policy)


class Alarms:
    """Watches the rounds of a session since the start of its process.

    Args:
        policy: of the session.
        log: gets the warnings.
    """

    def __init__(self, policy: Any, log: logging.Logger) -> None:
        self.naming = NAMING  # how clients get names that stay; an adapter says how in its framework
        self._policy, self._log = policy, log
        self._failures: Counter[str] | None = None if _guarded(policy) else Counter()  # in a row, by client

    def returned(self, known: Collection[str], there: Collection[str], round: int) -> None:
        """Say so if none of the clients that were known before a restart is there after it."""
        if not known or any(name in known for name in there):
            return
        self._log.warning(
            "round %d: none of the %d clients known before the restart has returned: then %r, now %r. All %d that are "
            "there are enrolled as new, and what was learned before is not used. If they are the same clients: %s",
            round,
            len(known),
            printable(next(iter(known)))[:60],
            printable(next(iter(there)))[:60],
            len(there),
            self.naming,
        )

    def ended(self, round: int, names: list[str], choice: Choice, outcome: Outcome, late: int, limit: Any) -> None:
        """Look at a round that has ended.

        Args:
            round: its number.
            names: of all clients, by index.
            choice: of the policy.
            outcome: of the round.
            late: updates of earlier rounds that it used.
            limit: seconds that it was allowed; None: no limit.
        """
        status = np.asarray(outcome.status)
        if not late and not np.any(status == Status.DONE):
            self._empty(round, status, limit)
        if self._failures is not None:
            self._count(round, [names[k] for k in choice.ids], outcome.succeeded)

    def _empty(self, round: int, status: Any, limit: Any) -> None:
        failed, slow = (int(np.sum(status == each)) for each in (Status.FAILED, Status.LATE))
        fixes = []
        if failed:
            fixes.append(f"{failed} failed: the lines before this one say why, mend that first")
        if slow:
            allowed = "" if limit is None else f", which is {limit:g} s"
            fixes.append(f"{slow} did not answer in time: see that they run, or raise the deadline{allowed}")
        if not len(status):
            fixes.append("nobody was asked: see that the policy and your server ask someone")
        said = "round %d: no update can be used, so that the model does not change; %s"
        self._log.warning(said, round, "; ".join(fixes))

    def _count(self, round: int, names: list[str], succeeded: Any) -> None:
        """Suggest Guard, once, if a client keeps failing while another answers."""
        assert self._failures is not None
        for name, fine in dict(zip(names, succeeded, strict=True)).items():  # one that was drawn twice counts once
            if fine:
                self._failures.pop(name, None)  # only those that fail are remembered: there may be a million clients
            else:
                self._failures[name] += 1
        worst, times = max(((name, self._failures[name]) for name in names), key=lambda each: each[1], default=("", 0))
        if times >= IN_A_ROW and any(succeeded):
            self._log.warning(
                "round %d: %s failed or was late in each of the last %d rounds in which it was asked, and will be "
                "asked again: fp.Guard asks such clients less often. Write fp.Guard(%s) in place of the policy, with a "
                "new folder for state=, because a state belongs to the policy that learned it",
                round,
                printable(worst),
                times,
                _written(self._policy),
            )
            self._failures = None  # it is said once
