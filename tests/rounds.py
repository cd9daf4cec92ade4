"""The rules of rounds in plain Python, event by event: the slow twin of `fedpick.engine` and of all that drive it.

A client is asked once, however often it was drawn, and each draw counts. The first answer counts. It is DONE; SURPLUS
if as many draws as are kept were answered before; FAILED if it is an error, or its loss is NaN or beyond 1e12. A round
is closed when as many have answered as are kept, when all have answered or failed, or at the deadline. Who still works
then is SURPLUS without a duration if the round was full, else LATE with the deadline as its duration. With `late`, who
is LATE works on: it is busy until its answer comes, or until the answer would be more than so many rounds late. An
answer counts in the round in which it comes.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

DONE, LATE, FAILED, SURPLUS = range(4)
LIMIT = 1e12


@dataclass
class Answer:
    """What a client does when it is asked."""

    seconds: float  # after which it answers
    loss: float | None = None
    broken: bool = False  # its update cannot be used
    silent: bool = False  # it is never heard of; without a deadline this is noticed when it should have answered
    update: Any = ()  # numbers

    @property
    def good(self) -> bool:
        """Whether it is an update that can be used."""
        return not self.silent and not self.broken and possible(self.loss)


def possible(loss: float | None) -> bool:
    """Whether a client can have this loss; None is none."""
    return loss is None or (not math.isnan(loss) and -LIMIT <= loss <= LIMIT)


@dataclass
class Played:
    """What happened in a round; lists have an entry for each client that was asked."""

    ids: list[int]
    times: list[int]  # how often each was drawn
    status: list[int]
    duration: list[float]
    loss: list[float]
    inclusion: list[float] | None
    weights: dict[tuple[int, int], float]  # of the updates that are used, by client and by how many rounds it is late
    messages: int
    seconds: float
    late: list[tuple[int, int]]  # clients of earlier rounds whose update is used, and their rounds


@dataclass
class Owed:
    """A client that was late, and works on."""

    due: float
    client: int
    round: int
    base: float
    relative: bool
    answer: Answer


@dataclass
class Rounds:
    """Rounds of clients that are numbers; `busy`, then `play`, for each round."""

    deadline: float | None = None
    late: int = 0
    beta: float = 0.35
    wait: float = 60.0
    clock: float = 0.0
    owed: list[Owed] = field(default_factory=list)

    def busy(self, round: int) -> list[int]:
        """Who still works when this round begins; of who is too late, nothing is awaited any more."""
        self.owed = [each for each in self.owed if round - each.round <= self.late]
        return [each.client for each in self.owed]

    def play(
        self,
        round: int,
        ids: list[int],
        *,
        answers: Mapping[int, Answer],
        sizes: Mapping[int, float],
        free: bool,
        keep: int | None = None,
        inclusion: list[float] | None = None,
        weights: list[float] | None = None,
        normalise: bool = True,
        most: float | None = None,
        lot: Callable[[int], float] = lambda client: 0.0,
        probed: int = 0,
        spent: float = 0.0,
    ) -> Played:
        """A round in which these clients are asked, with repetitions.

        Args:
            round: its number.
            ids: drawn by the policy, with `inclusion`, `weights`, `normalise` and `most` as in `fp.Choice`.
            answers: of the clients.
            sizes: of the clients.
            free: whether some clients could have been asked.
            keep: how many answers are needed; None: all.
            lot: decides between answers of the same time.
            probed: clients that were probed before.
            spent: seconds that this took.
        """
        clients = list(dict.fromkeys(ids))
        times = [ids.count(k) for k in clients]
        first = [ids.index(k) for k in clients]
        chance = None if inclusion is None else [inclusion[at] for at in first]
        if weights is None:
            usual = sorted(sizes[k] for k in clients)[(len(clients) - 1) // 2] if clients else 0.0  # the lower median
            limit = math.inf if most is None else most * usual
            base = [min(sizes[k], limit) * n for k, n in zip(clients, times, strict=True)]
        else:
            base = [sum(w for w, j in zip(weights, ids, strict=True) if j == k) for k in clients]

        # Answers come until the round can be closed.
        asked = self.clock + spent
        events = []
        for at, k in enumerate(clients):
            said = answers[k]
            if self.deadline is None or (not said.silent and said.seconds <= self.deadline):
                heapq.heappush(events, (said.seconds, lot(k), at))
        status: list[int | None] = [None] * len(clients)
        duration, loss = [math.nan] * len(clients), [math.nan] * len(clients)
        used = failed = back = 0
        now = 0.0
        while events and not (keep is not None and used >= keep):
            now, _, at = heapq.heappop(events)
            said = answers[clients[at]]
            back += not said.silent
            if said.good:
                status[at], duration[at] = DONE, said.seconds
                loss[at] = math.nan if said.loss is None else said.loss
                used += times[at]
            else:
                status[at] = FAILED
                failed += times[at]
        full = keep is not None and used >= keep
        if not full and None in status:
            assert self.deadline is not None
            now = self.deadline
        if not clients:
            coming = [each.due - asked for each in self.owed]
            now = 0.0 if free else min([self.wait, *coming])
        for at, how in enumerate(status):
            if how is None:
                status[at] = SURPLUS if full else LATE
                duration[at] = math.nan if full else float(self.deadline)  # type: ignore[arg-type]
        self.clock = asked + now

        # Of those who answered or could have, some are used: each with the same chance.
        surplus = sum(n for n, how in zip(times, status, strict=True) if how == SURPLUS)
        if full and surplus:
            share = used / (used + surplus)
            chance = None if chance is None else [p * share for p in chance]
            if weights is not None and not normalise:
                base = [b / share for b in base]

        # What came of earlier rounds, and what all count for.
        came = [each for each in self.owed if each.due <= self.clock]
        self.owed = [each for each in self.owed if each.due > self.clock]
        taken = [each for each in came if each.answer.good]
        parts = [(k, 0, b, normalise) for k, b, how in zip(clients, base, status, strict=True) if how == DONE]
        mean = average([(b, answers[k].update) for k, _, b, _ in parts])
        apart = [0.0 if mean is None else distance(each.answer.update, mean) for each in taken]
        for each, far in zip(taken, apart, strict=True):
            tau = round - each.round
            factor = (1 - self.beta) / (tau + 1)
            if max(apart) > 0.0:
                factor += self.beta * (1 - math.exp(-far / max(apart)))
            parts.append((each.client, tau, factor * each.base, each.relative))
        total = sum(b for _, _, b, relative in parts if relative)
        final = {(k, tau): (b / total if total else 0.0) if relative else b for k, tau, b, relative in parts}

        if self.late:
            for at, how in enumerate(status):
                if how == LATE:
                    said = answers[clients[at]]
                    due = math.inf if said.silent else asked + said.seconds
                    self.owed.append(Owed(due, clients[at], round, base[at], normalise, said))
        return Played(
            clients,
            times,
            [int(how) for how in status if how is not None],
            duration,
            loss,
            chance,
            final,
            len(clients) + back + len(came) + 2 * probed,
            spent + now,
            [(each.client, each.round) for each in taken],
        )


def average(parts: list[tuple[float, Any]]) -> list[float] | None:
    """The weighted mean of updates; None if there is none."""
    total = sum(weight for weight, _ in parts)
    if not total:
        return None
    return [sum(w * update[i] for w, update in parts) / total for i in range(len(parts[0][1]))]


def distance(one: Any, other: Any) -> float:
    """The squared distance of two vectors."""
    return float(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
