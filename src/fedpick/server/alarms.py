"""Warnings in a server's log, each with the remedy: rounds and restarts that go wrong without an error."""

import logging
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from fedpick.core.types import Choice, Outcome, Status
from fedpick.policies.guard import Guard
from fedpick.server.validation import printable

__all__ = ["Alarms"]

IN_A_ROW = 5  # failures of one client after which Guard is suggested


def _guarded(policy: Any) -> bool:
    """Whether the policy, or one inside it, is a Guard."""
    while policy is not None and not isinstance(policy, Guard):
        policy = getattr(policy, "policy", None)
    return policy is not None


def _written(policy: Any) -> str:
    """A policy as Python code, with the prefix fp. where the class is fedpick's."""
    prefix = type(policy).__module__.startswith("fedpick.")
    return re.sub(r"\b(?=[A-Z]\w*\()", "fp.", repr(policy)) if prefix else repr(policy)


class Alarms:
    """Watches the rounds of a session since the start of its process."""

    def __init__(self, policy: Any, log: logging.Logger, naming: str) -> None:
        self._policy, self._log, self._naming = policy, log, naming
        self._failures: Counter[str] | None = None if _guarded(policy) else Counter()  # in a row, by client

    def nobody_returned(self, known: Collection[str], there: Collection[str], round: int) -> None:
        """Warn that none of the clients that were known before a restart is there after it."""
        if not known:
            return
        text = (
            "round %d: none of the %d clients known before the restart has returned: then %r, now %r. All %d that are "
            "there are enrolled as new, and what was learned before is not used. If they are the same clients: %s"
        )
        before, now = (printable(next(iter(names)))[:60] for names in (known, there))
        self._log.warning(text, round, len(known), before, now, len(there), self._naming)

    def ended(self, round: int, names: list[str], choice: Choice, outcome: Outcome, late: int, limit: Any) -> None:
        """Check a round that has ended, which used `late` late updates and was allowed `limit` seconds.

        `names` are those of all clients, by index.
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
        text = "round %d: no update can be used, so that the model does not change; %s"
        self._log.warning(text, round, "; ".join(fixes))

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
            text = (
                "round %d: %s failed or was late in each of the last %d rounds in which it was asked, and will be "
                "asked again: fp.Guard asks such clients less often. Write fp.Guard(%s) in place of the policy, with a "
                "new folder for state=, because a state belongs to the policy that learned it"
            )
            self._log.warning(text, round, printable(worst), times, _written(self._policy))
            self._failures = None  # one warning is enough
