"""`check_policy` checks whether a policy, built-in or written by you, follows the rules in `fedpick.core.protocol`."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support import user_code
from fedpick.core import rng as rngs
from fedpick.core.errors import CheckError, ContractError
from fedpick.core.protocol import Policy, check_asked, check_methods, fault, traits
from fedpick.core.state import admit, load_state, observe, retire, save_state, state_fields
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Status, View

__all__ = ["check_policy"]

_USED_UP = (
    "a state must not be used after it was given to observe, but choices changed when that state was overwritten; keep "
    "no reference to it"
)
_DEADLINE = 1.0  # no answer takes longer
_HOSTILE = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 0.0])


@dataclass(frozen=True)
class _Scene:
    """A small simulated federation: availability and answers of its clients."""

    clients: Clients
    seed: int
    reports: dict[str, int | None]  # widths by name, besides the usual ones
    context: int
    _drawn: dict[tuple[int, str], NDArray[Any]] = field(default_factory=dict, init=False, compare=False)

    def draw(self, round: int, name: str) -> np.random.Generator:
        return rngs.stream(self.seed, round, name)

    def _once(self, round: int, name: str, make: Callable[[np.random.Generator], NDArray[Any]]) -> NDArray[Any]:
        """Draw once, because every rule plays the same rounds; returns a copy, which a policy may write into."""
        if (round, name) not in self._drawn:
            self._drawn[round, name] = make(self.draw(round, name))
        return self._drawn[round, name].copy()

    def view(
        self,
        round: int,
        available: Bools | None = None,
        context: Floats | None = None,
        there: Bools | None = None,
        busy: Bools | None = None,
    ) -> View:
        count = len(self.clients)
        mask = self._once(round, "away", lambda rng: rng.random(count) < 0.8) if available is None else available
        losses = self._once(round, "losses", lambda rng: rng.gamma(2.0, size=count))
        idle = mask if there is None else there if busy is None else there & ~busy

        def probe(ids: Ints, /, *, batch: int | None = None) -> Floats:
            check_asked(idle, ids, "view.probe")
            return losses[ids]

        def norms(ids: Ints, /) -> Floats:
            check_asked(idle, ids, "view.norms")
            return losses[ids]

        if context is None:
            context = self._once(round, "context", lambda rng: rng.uniform(0.5, 2.0, (count, self.context)))
        masks: dict[str, Any] = {"there": there, "busy": busy}
        return View(round, mask, self.clients, context=context, probe=probe, norms=norms, **masks)

    def outcome(self, round: int, choice: Choice, hostile: bool = False) -> Outcome:
        draw, count = self.draw(round, "outcome"), len(choice)
        if hostile:
            number: Callable[..., NDArray[Any]] = lambda *shape: draw.choice(_HOSTILE, shape)  # noqa: E731
        else:
            number = lambda *shape: draw.uniform(0.1, 1.0, shape)  # noqa: E731
        usual: dict[str, int | None] = {"embedding": 4, "update": 6, "update_norm": 0}
        asked = {name: width for name, width in self.reports.items() if width is not None or name not in usual}
        reports = {name: number(count, width) if width else number(count) for name, width in (usual | asked).items()}
        status = draw.choice([s.value for s in Status], count, p=[0.7, 0.1, 0.1, 0.1])
        return Outcome(status, number(count), number(count), reports)

    def ended(self, round: int, choice: Choice, status: NDArray[Any], waited: Bools) -> Outcome:
        """An outcome with these statuses; SURPLUS clients that were not waited for have no duration and no loss."""
        told = self.outcome(round, choice)
        silent = (status == Status.LATE) | (status == Status.FAILED) | ((status == Status.SURPLUS) & ~waited)
        duration = np.where(silent, np.where(status == Status.LATE, _DEADLINE, np.nan), told.duration)
        reports = {name: values.copy() for name, values in told.reports.items()}
        for values in reports.values():
            values[silent] = np.nan
        return Outcome(status, duration, np.where(silent, np.nan, told.loss), reports)


def _play(
    policy: Policy[Any], scene: _Scene, rounds: range, state: Any, hostile: bool = False, spoil: bool = False
) -> tuple[Any, list[Choice]]:
    choices = []
    for round in rounds:
        view = scene.view(round)
        choice = policy.select(state, view, scene.draw(round, "policy"))
        _check_choice(policy, view, choice)
        told = _merged(choice)
        state = observe(policy, state, view, told, scene.outcome(round, told, hostile), spoil=spoil)
        choices.append(choice)
    return state, choices


def _merged(choice: Choice) -> Choice:
    """As observe gets it: one entry for a client drawn more than once, with the sum of its weights."""
    ids, first = np.unique(choice.ids, return_index=True)
    if len(ids) == len(choice):
        return choice
    weights = None if choice.weights is None else np.bincount(choice.ids, choice.weights)[ids]
    inclusion = None if choice.inclusion is None else choice.inclusion[first]
    return choice.take(first).with_(inclusion=inclusion, weights=weights)


def _check_choice(policy: Policy[Any], view: View, choice: Choice) -> None:
    """Raise unless a choice follows the rules."""
    about, there = traits(policy), int(np.count_nonzero(view.available))
    where = f"in round {view.round}, with {there} of {len(view.clients)} clients available,"
    wrong = fault(view, choice, replace=about.replace)
    if wrong is not None:
        raise CheckError(f"{where} {wrong}")
    if about.fixed_size and about.asks is not None:
        due = (about.asks if there else 0) if about.replace else min(about.asks, there)
        if len(choice) != due:
            raise CheckError(
                f"{where} it chose {len(choice)} clients instead of {due}; if this is intended, declare fixed_size = "
                "False"
            )
    if choice.inclusion is not None and not about.replace and (choice.inclusion > 1.0 + 1e-9).any():
        raise CheckError(f"{where} it gave an inclusion probability of {choice.inclusion.max()}, above 1")


def _same_choices(a: list[Choice], b: list[Choice], why: str) -> None:
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        if not np.array_equal(one.ids, other.ids):
            raise CheckError(f"{why}: choice {i + 1} was {other.ids[:8].tolist()}, not {one.ids[:8].tolist()}")


def _same_state(a: Any, b: Any) -> bool:
    def equal(x: Any, y: Any) -> bool:
        one, other = np.asarray(x), np.asarray(y)
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" and other.dtype.kind == "f")

    pairs = list(zip(state_fields(a), state_fields(b), strict=True))
    return all(x[0] == y[0] and equal(x[2], y[2]) for x, y in pairs)


# Each rule raises a CheckError if the policy breaks it. The start, rounds 1 to `rounds` of a plain run, is played once
# for all rules; a rule that continues it uses a copy of the state.


@dataclass(frozen=True)
class _Start:
    """The plain run that rules compare with or continue."""

    scene: _Scene
    rounds: int
    state: Any
    choices: list[Choice]

    @property
    def first(self) -> range:
        return range(1, self.rounds + 1)

    def later(self, count: int) -> range:
        return range(self.rounds + 1, self.rounds + 1 + count)

    def copied(self) -> Any:
        return copy.deepcopy(self.state)


def _any_availability(policy: Policy[Any], start: _Start) -> None:
    scene = start.scene
    state, count = policy.init(scene.clients), len(scene.clients)
    for round, there in enumerate([count, 0, 1, 2, count // 2, count - 1, 0, count], start=1):
        mask = np.zeros(count, dtype=bool)
        mask[scene.draw(round, "mask").permutation(count)[:there]] = True
        view = scene.view(round, available=mask)
        choice = policy.select(state, view, scene.draw(round, "policy"))
        if there == 0 and len(choice):
            raise CheckError(f"no client was available, but it chose {len(choice)} clients; return fp.Choice([])")
        _check_choice(policy, view, choice)
        choice = _merged(choice)
        state = policy.observe(state, view, choice, scene.outcome(round, choice))


def _repeatable(policy: Policy[Any], start: _Start) -> None:
    again = _play(policy, start.scene, start.first, policy.init(start.scene.clients))[1]
    _same_choices(start.choices, again, "the same seed gave another choice; use only the rng that select gets")


def _select_only_reads(policy: Policy[Any], start: _Start) -> None:
    state, (round,) = start.copied(), start.later(1)
    policy.select(state, start.scene.view(round), start.scene.draw(round, "policy"))
    if not _same_state(start.state, state):
        raise CheckError("select changed the state; only observe may do so")


def _keeps_no_state(policy: Policy[Any], start: _Start) -> None:
    try:
        spoiled = _play(policy, start.scene, start.first, policy.init(start.scene.clients), spoil=True)[1]
    except Exception as error:  # because of the NaN and extreme integers in the old states
        why = str(error) if isinstance(error, CheckError) else f"{type(error).__name__}: {error}"
        raise CheckError(f"{_USED_UP}; the result was: {why}") from None
    _same_choices(start.choices, spoiled, _USED_UP)


def _survives_saving(policy: Policy[Any], start: _Start) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        save_state(policy, start.state, path)
        loaded, _ = load_state(policy, path, start.scene.clients)
    if not _same_state(start.state, loaded):
        raise CheckError("the loaded state differs from the saved one; a state may contain only arrays and numbers")
    on = _play(policy, start.scene, start.later(5), start.copied())[1]
    _same_choices(
        on, _play(policy, start.scene, start.later(5), loaded)[1], "after loading its state it chose other clients"
    )


def _absorbs_nonsense(policy: Policy[Any], start: _Start) -> None:
    scene, rounds = start.scene, start.rounds
    state, _ = _play(policy, scene, start.first, policy.init(scene.clients), hostile=True)
    for round in start.later(3):  # contexts come from clients, too
        shape = (len(scene.clients), scene.context)
        view = scene.view(round, context=scene.draw(round, "hostile").choice(_HOSTILE, shape))
        choice = policy.select(state, view, scene.draw(round, "policy"))
        _check_choice(policy, view, choice)
        choice = _merged(choice)
        state = policy.observe(state, view, choice, scene.outcome(round, choice, hostile=True))
    _play(policy, scene, range(rounds + 4, 2 * rounds + 4), state)


def _admits(policy: Policy[Any], start: _Start) -> None:
    clients = start.scene.clients
    newcomers = clients.take(np.arange(min(7, len(clients))))
    grown = replace(start.scene, clients=clients.join(newcomers))
    _play(policy, grown, start.later(start.rounds), admit(policy, start.copied(), newcomers))


def _retires(policy: Policy[Any], start: _Start) -> None:
    keep = np.arange(0, len(start.scene.clients), 2)
    left = replace(start.scene, clients=start.scene.clients.take(keep))
    _play(policy, left, start.later(start.rounds), retire(policy, start.copied(), keep))


def _work_in_flight(policy: Policy[Any], start: _Start) -> None:
    """Rounds in which clients pause after each choice, work on after the deadline, or are not waited for."""
    scene, count = start.scene, len(start.scene.clients)
    state, busy, pauses = policy.init(scene.clients), np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for round in start.first:
        there = scene.view(round).available
        view = scene.view(round, available=there & ~busy & ~pauses, there=there, busy=busy)
        choice = policy.select(state, view, scene.draw(round, "policy"))
        _check_choice(policy, view, choice)
        told, draw = _merged(choice), scene.draw(round, "in flight")
        status = draw.choice([s.value for s in Status], len(told), p=[0.5, 0.15, 0.1, 0.25])
        outcome = scene.ended(round, told, status, draw.random(len(told)) < 0.4)
        used, spare = (int(np.count_nonzero(status == each)) for each in (Status.DONE, Status.SURPLUS))
        if told.inclusion is not None and spare:
            told = told.with_(inclusion=told.inclusion * (used / (used + spare)))
        state = policy.observe(state, view, told, outcome)
        pauses, busy = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        pauses[told.ids], busy[told.ids[status == Status.LATE]] = True, True


def _rows(state: Any, client: int) -> dict[str, NDArray[Any]]:
    """What a state says of a client, by the fields' names."""
    return {name: np.asarray(value)[client] for name, kind, value in state_fields(state) if kind == "client"}


def _same_row(a: NDArray[Any], b: NDArray[Any]) -> bool:
    both = a.dtype.kind == "f" and b.dtype.kind == "f"
    return bool(np.array_equal(a, b, equal_nan=both))


def _no_news(policy: Policy[Any], start: _Start) -> None:
    """In what depends on how a client's round ended, one that was not waited for is as if it had not been chosen."""
    scene = start.scene
    for first, round in ((policy.init(scene.clients), 1), (start.state, start.rounds + 1)):
        view = scene.view(round)
        choice = _merged(policy.select(copy.deepcopy(first), view, scene.draw(round, "policy")))
        for at, client in enumerate(choice.ids[:4].tolist()):
            ends = {status: _after(policy, scene, first, view, choice, at, status) for status in (*_ENDS, None)}
            done, failed, now, apart = (_rows(state, client) for state in ends.values())
            before = _rows(first, client)
            for name, row in now.items():
                if _same_row(done[name], failed[name]) or any(_same_row(row, kept[name]) for kept in (apart, before)):
                    continue
                how = "failed" if _same_row(row, failed[name]) else "changed"
                how = "succeeded" if _same_row(row, done[name]) else how
                raise CheckError(
                    f"client {client} was still working when the round was full (SURPLUS, without duration and loss), "
                    f"but the state's field {name!r} says that it {how}; change it only where outcome.known is True"
                )


_ENDS = (Status.DONE, Status.FAILED, Status.SURPLUS)


def _after(
    policy: Policy[Any], scene: _Scene, state: Any, view: View, choice: Choice, at: int, status: Status | None
) -> Any:
    """The state after a round in which the client at this place ended so (None: it was not chosen), the others DONE."""
    ends = np.zeros(len(choice), dtype=np.int64)
    ends[at] = Status.DONE if status is None else status
    outcome = scene.ended(view.round, choice, ends, np.zeros(len(choice), dtype=np.bool_))
    if status is None:
        others = np.arange(len(choice)) != at
        reports = {name: values[others] for name, values in outcome.reports.items()}
        outcome = Outcome(ends[others], outcome.duration[others], outcome.loss[others], reports)
        choice = choice.take(others)
    return policy.observe(copy.deepcopy(state), view, choice, outcome)


def _presence(policy: Policy[Any], start: _Start) -> None:
    """A client that may not be chosen now, but is there, must not look as if it were away."""
    scene, (round,) = start.scene, start.later(1)
    view = scene.view(round)
    choice = _merged(policy.select(start.copied(), view, scene.draw(round, "policy")))
    idle = np.flatnonzero(view.available & ~np.isin(np.arange(len(scene.clients)), choice.ids))[:3]
    left = view.available.copy()
    left[idle] = False
    ends = np.zeros(len(choice), dtype=np.int64)
    outcome = scene.ended(round, choice, ends, ends == 1)

    def after(available: Bools, there: Bools) -> Any:
        seen = scene.view(round, available=available, there=there)
        return policy.observe(start.copied(), seen, choice, outcome)

    free, paused, away = after(view.available, view.available), after(left, view.available), after(left, left)
    for client in idle.tolist():
        one, other, gone = (_rows(state, client) for state in (free, paused, away))
        for name, now in other.items():
            if _same_row(now, gone[name]) and not _same_row(now, one[name]):
                raise CheckError(
                    f"client {client} was there, but could not be chosen (it paused, or was busy), and the state's "
                    f"field {name!r} says that it was away; learn who is there from view.there, not from view.available"
                )


_METHODS = "has init, select and observe"
_COHORT = "chooses min(cohort_size, available) clients, only available ones, none twice"
_RULES: dict[str, Callable[[Policy[Any], _Start], None]] = {  # besides the two above
    "copes with any availability, and with nobody there": _any_availability,
    "makes the same choice for the same seed": _repeatable,
    "does not write the state in select": _select_only_reads,
    "keeps no reference to a state that observe was given": _keeps_no_state,
    "has a state that survives saving and loading": _survives_saving,
    "absorbs NaN, infinite and absurd reports": _absorbs_nonsense,
    "copes with clients that pause, are busy or late, or are not waited for": _work_in_flight,
    "takes a client that was not waited for as no news": _no_news,
    "learns who is there from view.there": _presence,
    "clients can be enrolled while it runs": _admits,
    "clients can be retired while it runs": _retires,
}


def check_policy(
    policy: Policy[Any], *, clients: Clients | None = None, rounds: int = 12, seed: int = 0
) -> tuple[str, ...]:
    """Play short runs with a policy; returns the rules that it follows, or raises a CheckError with those it breaks.

    Args:
        policy: any object with `init`, `select` and `observe`.
        clients: to choose from; an oracle that knows K clients needs those K. None: 40 clients.
        rounds: number of rounds of each run.
        seed: of all random numbers.

    >>> import fedpick as fp
    >>> len(check_policy(fp.Uniform(cohort_size=5)))
    13
    """
    if clients is None:
        draw = rngs.stream(seed, 0, "clients")
        clients = Clients(draw.integers(10, 200, 40), draw.integers(0, 30, (40, 5)), draw.dirichlet(np.ones(5), 40))
    about = traits(policy)
    scene = _Scene(clients, seed, about.collect(), 3 if about.context is None else about.context)
    rules = (_METHODS, _COHORT, *_RULES)
    broken: list[str] = []
    try:
        check_methods(policy)
    except ContractError as error:
        broken.append(f"- {_METHODS}: {error}")
    else:
        broken += _broken(policy, scene, rounds)
    if broken:
        raise CheckError(f"{type(policy).__name__} breaks {len(broken)} of {len(rules)} rules:\n" + "\n".join(broken))
    return rules


def _broken(policy: Policy[Any], scene: _Scene, rounds: int) -> list[str]:
    """A line for each broken rule; if a plain run fails, the other rules are not tried."""

    def line(rule: str, error: Exception) -> str:  # a policy may fail in any way
        if isinstance(error, CheckError):
            return f"- {rule}: {error}"
        return f"- {rule}: {type(error).__name__}: {error}{user_code.place(error)}"

    try:
        played = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))
    except Exception as error:
        return [f"{line(_COHORT, error)} (the other rules were not tried)"]
    start, broken = _Start(scene, rounds, *played), []
    for rule, check in _RULES.items():
        try:
            check(policy, start)
        except Exception as error:
            broken.append(line(rule, error))
    return broken
