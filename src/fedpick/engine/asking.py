"""Asking and telling without rounds: what a policy sees and chooses under `Buffered`, and what it learns, and when.

A driver says who is there and which clients are meant (`Find`); a client that has left is told of no more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fedpick.core.errors import ContractError, SettingError
from fedpick.core.protocol import Policy, Traits, check_choice, check_reports, traits
from fedpick.core.state import observe
from fedpick.core.types import Bools, Choice, Ints, Outcome, View
from fedpick.engine.flight import Client
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Ended
from fedpick.policies.sizes import with_cohort_size

__all__ = ["Asker", "Find", "Lesson", "Marks", "Moment", "check_stream", "lessons", "outcome_of", "tell", "view_now"]

Find = Callable[[Sequence[Client]], Ints]  # the indices of clients among the enrolled; -1: has left
Lesson = tuple[View, Choice, Outcome]  # what one `observe` is told


class Moment(Protocol):
    """Who works at some time, and whose answer waits: a `Stream`, or what was noted of one."""

    @property
    def busy(self) -> Sequence[Client]:
        """The clients that work."""
        ...

    @property
    def untold(self) -> Sequence[Client]:
        """The clients of the tasks that have ended, of which the policy has not learned yet."""
        ...

    @property
    def version(self) -> int:
        """Of the model."""
        ...


def check_stream(policy: Policy[Any], pace: Buffered) -> None:
    """Raise a SettingError unless this policy can do without rounds."""
    about, name = traits(policy), type(policy).__name__
    if reason := _rounds_only(about):
        raise SettingError(f"{name} needs rounds: {reason}. Use fp.Rounds, or another policy under fp.Buffered")
    if about.cohort_size is not None and about.cohort_size != pace.concurrency:
        with_cohort_size(policy, pace.concurrency)  # raises if it cannot


def _rounds_only(about: Traits) -> str:
    """Why a policy with these traits cannot do without rounds; "": it can."""
    if about.rounds_only:
        return about.rounds_only
    if about.replace:
        return "it draws with replacement, but a client cannot work on two tasks at once; use replace=False"
    if needed := sorted(about.needs & {"probe", "norms"}):
        what = "asks clients for their loss" if needed == ["probe"] else "lets clients train"
        return f"it {what} before it chooses, while places are free"
    if about.valued:
        return f"the server computes {min(about.valued)!r} of the updates of one version, and here versions are mixed"
    return ""


def _mask(ids: Ints, count: int) -> Bools:
    found = np.zeros(count + 1, dtype=np.bool_)  # the last one stands for those that have left
    found[ids] = True
    return found[:-1]


def _view(seen: View, busy: Bools, held: Bools, version: int, ended: Ints) -> View:
    there = seen.there.view()
    there.flags.writeable = False  # it may be the world's own, and shown again
    available = np.greater(there, busy)  # there and not busy, in one pass
    return replace(
        seen,
        round=version + 1,
        available=available,
        there=there,
        busy=busy,
        held=held,
        version=version,
        ended=ended,
    )


def view_now(seen: View, stream: Moment, find: Find) -> View:
    """What the policy sees: the driver's view, in which `there` is right, with who works and whose answer waits."""
    count, untold = len(seen.clients), find(stream.untold)
    return _view(seen, _mask(find(stream.busy), count), _mask(untold, count), stream.version, untold[untold >= 0])


class Marks:
    """Who works and whose answer waits, for a driver whose clients are numbers and stay, and which tells what happens.

    `view` gives what `view_now` gives, without a look at each task.

    >>> import fedpick as fp
    >>> from fedpick.engine.stream import Stream
    >>> stream, seen = Stream(fp.Buffered(2, size=2)), View(1, np.ones(3, dtype=bool), fp.Clients([1, 1, 1]))
    >>> marks = Marks(stream, 3)
    >>> marks.asked(np.array([0, 2]))
    >>> marks.ended(2)
    >>> view = marks.view(seen, version=0)
    >>> view.available.tolist(), view.held.tolist()
    ([False, True, True], [False, False, True])
    """

    def __init__(self, stream: Moment, count: int) -> None:
        self._busy, self._held = (_mask(np.array(ids, dtype=np.int64), count) for ids in (stream.busy, stream.untold))
        self._ended = [int(client) for client in stream.untold]  # of the tasks whose end waits to be told

    def asked(self, ids: Ints) -> None:
        """These clients were given tasks."""
        self._busy[ids] = True

    def ended(self, client: Client) -> None:
        """This client's task has ended."""
        at = int(client)
        self._busy[at], self._held[at] = False, True
        self._ended.append(at)

    def told(self) -> None:
        """The model has moved: the policy is told of all that ended."""
        self._held[:], self._ended = False, []

    def view(self, seen: View, version: int) -> View:
        """What the policy sees; it gets copies, which stay as they are (`held` is the driver's if nobody waits)."""
        held = self._held.copy() if self._ended else seen.held
        return _view(seen, self._busy.copy(), held, version, np.array(self._ended, dtype=np.int64))


class Asker:
    """Lets a policy choose as many clients as there are free places.

    >>> import fedpick as fp
    >>> view = View(1, np.ones(4, dtype=bool), fp.Clients([1, 1, 1, 1]))
    >>> policy = fp.Uniform(cohort_size=4)
    >>> len(Asker(policy).ask(policy.init(view.clients), view, 3, np.random.default_rng(0)))
    3
    """

    def __init__(self, policy: Policy[Any]) -> None:
        self.policy, self._size = policy, traits(policy).cohort_size
        self._sized: dict[int, Policy[Any]] = {}  # with other cohort sizes, as they were made

    def ask(self, state: Any, view: View, wanted: int, rng: np.random.Generator) -> Choice:
        """The policy's choice of at most `wanted` clients; any other raises."""
        view = replace(view, wanted=wanted)
        choice = self._asked(wanted).select(state, view, rng)
        check_choice(self.policy, view, choice, replace=False)
        if len(choice) > wanted:
            raise ContractError(
                f"{type(self.policy).__name__}, version {view.version}: chose {len(choice)} clients, but only {wanted} "
                "are wanted (view.wanted); choose at most so many"
            )
        return choice

    def _asked(self, wanted: int) -> Policy[Any]:
        """The policy, choosing so many clients."""
        if self._size in (None, wanted):
            return self.policy
        found = self._sized.get(wanted)
        if found is None:
            found = self._sized[wanted] = with_cohort_size(self.policy, wanted)
        return found


def apart(ended: Iterable[Ended]) -> list[list[Ended]]:
    """In parts, in their order, in which no client is twice: a policy adds up per client (`counts[ids] += 1`)."""
    found: list[list[Ended]] = []
    seen: set[Client] = set()
    for each in ended:
        if not found or each.task.client in seen:
            found.append([])
            seen = set()
        found[-1].append(each)
        seen.add(each.task.client)
    return found


def outcome_of(ended: Sequence[Ended], reports: Mapping[str, Any] | None = None) -> Outcome:
    """How these tasks ended."""
    return Outcome(
        np.array([each.status for each in ended], dtype=np.int8),
        [each.duration for each in ended],
        [each.loss for each in ended],
        {**(reports or {}), "staleness": np.array([float(each.staleness) for each in ended])},
    )


def lessons(
    view: View, ended: Sequence[Ended], find: Find, reports: Callable[[list[Ended]], Mapping[str, Any]]
) -> list[Lesson]:
    """What the policy is told when the model has moved: one call of `observe` each, in the order of the answers.

    Args:
        view: now, after the move (`view_now`).
        ended: the tasks that ended since the model moved before.
        find: indices of clients; those that have left are left out.
        reports: what the clients of some of these tasks report, by name; NaN for those whose update is not used.
    """
    view = replace(view, round=view.version, version=view.version - 1)
    indices = find([each.task.client for each in ended])
    told, found = [each for each, at in zip(ended, indices.tolist(), strict=True) if at >= 0], []
    view = replace(view, ended=indices[indices >= 0])
    for part in apart(told):
        ids = find([each.task.client for each in part])
        inclusion = np.array([each.task.inclusion for each in part])
        kept: dict[str, list[float]] = {name: [] for name, _ in part[0].task.kept}
        for each in part:
            for name, value in each.task.kept:
                kept[name].append(value)
        choice = Choice(ids, None if np.isnan(inclusion).any() else inclusion, kept=kept)
        may = view.available.copy()
        may[ids] = True  # they could be chosen when they were asked
        found.append((replace(view, available=may), choice, outcome_of(part, reports(part))))
    return found


def tell(policy: Policy[Any], state: Any, told: Iterable[Lesson]) -> Any:
    """The policy's state after it has learned."""
    for view, choice, outcome in told:
        check_reports(policy, outcome)
        state = observe(policy, state, view, choice, outcome)
    return state
