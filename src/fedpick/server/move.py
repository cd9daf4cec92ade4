"""A move of the model without rounds (`fp.Buffered`): what it is made of, and what the policy learns from it.

Clients are numbers here (`Roster.numbers`), which stay the same when others leave.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.core.types import Bools, Floats, Ints, Status, View
from fedpick.engine.asking import Lesson, lessons, outcome_of, tell, view_now
from fedpick.engine.stream import Ended, Stream
from fedpick.server.roster import Roster
from fedpick.store.records import Record, packed

__all__ = ["Move", "find", "forget_times"]


def find(roster: Roster, numbers: Sequence[Any]) -> Ints:
    """The indices of the clients with these numbers; -1: has left."""
    known = roster.numbers  # they ascend; there may be a million
    at = [bisect_left(known, number) for number in numbers]
    found = [k if k < len(known) and known[k] == number else -1 for k, number in zip(at, numbers, strict=True)]
    return np.array(found, dtype=np.int64)


def forget_times(stream: Stream, roster: Roster) -> None:
    """Forget how long clients took that are not enrolled any more."""
    known = list(stream.seconds)
    stays = find(roster, known) >= 0
    stream.seconds = {
        client: stream.seconds[client] for client, kept in zip(known, stays.tolist(), strict=True) if kept
    }


@dataclass(frozen=True, eq=False)
class Move:
    """What is known when the model has just moved.

    Args:
        version: of the model, after it.
        at: the clock.
        seconds: since the model moved before.
        asked: tasks since then.
        back: messages that came back since then.
        ended: the tasks that ended since then; those that are DONE are used.
        busy: clients at work.
        there: mask of the enrolled clients that were there when clients were last asked.
        reports: what the clients of `ended` report, by name and aligned with it; NaN where the update is not used.
        lost: ids of tasks in `ended` whose answers a restart has lost: the policy is not told of them.
    """

    version: int
    at: float
    seconds: float
    asked: int
    back: int
    ended: tuple[Ended, ...]
    busy: tuple[int, ...]
    there: Bools
    reports: Mapping[str, Floats] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()

    untold = ()  # nothing waits any more

    @property
    def done(self) -> list[Ended]:
        """The tasks whose answers are used, in the order in which they came."""
        return [each for each in self.ended if each.status == Status.DONE]

    def lessons(self, roster: Roster) -> list[Lesson]:
        """What the policy is told."""
        row = {each.task.id: at for at, each in enumerate(self.ended)}

        def reports(part: list[Ended]) -> dict[str, Floats]:
            return {name: values[[row[each.task.id] for each in part]] for name, values in self.reports.items()}

        told = [each for each in self.ended if each.task.id not in self.lost]
        return lessons(self.view(roster), told, lambda clients: find(roster, clients), reports)

    def view(self, roster: Roster) -> View:
        """What the policy sees."""
        assert roster.counted is not None
        seen = View(self.version + 1, self.there, roster.counted)
        return view_now(seen, self, lambda clients: find(roster, clients))

    def learn(self, roster: Roster) -> list[Lesson]:
        """Let the policy learn; returns what it was told."""
        told = self.lessons(roster)
        roster.state = tell(roster.policy, roster.state, told)
        roster.round, roster.clock = self.version, max(roster.clock, self.at)
        view, ids = self.view(roster), find(roster, [each.task.client for each in self.ended])
        roster.seen[view.there | view.busy] = self.version
        roster.last = sorted(set(ids[ids >= 0].tolist()))
        return told

    def seen(self, roster: Roster) -> dict[str, Any]:
        """Who could be chosen and who was there, for `record`, once the policy has learned."""
        view = self.view(roster)
        return {
            "available": int(np.count_nonzero(view.available)),
            "present": int(np.count_nonzero(view.there)),
            "joined": roster.issued,
            "there": roster.there(self.there),
            "mask": packed(roster.by_number(self.there)),
        }

    def record(self, megabytes: float, **seen: Any) -> Record:
        """A row for the table of rounds; `megabytes` is the size of the model."""
        ended, outcome, models = self.ended, outcome_of(self.ended), self.asked + self.back
        return Record(
            round=self.version,
            clock=self.at,
            seconds=self.seconds,
            messages=models,
            megabytes=megabytes * models,
            ids=np.array([each.task.client for each in ended], dtype=np.int64),
            inclusion=np.array([each.task.inclusion for each in ended], dtype=np.float64),
            status=outcome.status,
            duration=outcome.duration,
            loss=outcome.loss,
            version=self.version - 1,
            unusable=sum(each.status == Status.FAILED for each in ended),
            asked=self.asked,
            flying=len(self.busy),
            tasks=ended,
            **seen,
        )
