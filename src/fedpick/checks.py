"""`check_policy` checks whether a policy, built-in or your own, follows the rules in `fedpick.protocol`."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick import rng as rngs
from fedpick.errors import CheckError
from fedpick.protocol import Policy, traits
from fedpick.state import _walk, admit, load_state, observe, retire, save_state
from fedpick.types import Bools, Choice, Clients, Floats, Ints, Outcome, Status, View

__all__ = ["check_policy"]

_USED_UP = (
    "a state must not be used after it was given to observe, but choices changed when that state was overwritten; keep "
    "no reference to it"
)
_HOSTILE = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 0.0])


@dataclass(frozen=True)
class _Scene:
    """A small simulated federation: availability and answers of its clients."""

    clients: Clients
    seed: int
    reports: dict[str, int | None]  # widths by name, besides the usual ones
    context: int

    def draw(self, round: int, name: str) -> np.random.Generator:
        return rngs.stream(self.seed, round, name)

    def view(self, round: int, available: Bools | None = None, context: Floats | None = None) -> View:
        count = len(self.clients)
        mask = self.draw(round, "away").random(count) < 0.8 if available is None else available
        losses = self.draw(round, "losses").gamma(2.0, size=count)

        def probe(ids: Ints, /, *, batch: int | None = None) -> Floats:
            return losses[ids]

        where = self.draw(round, "context").uniform(0.5, 2.0, (count, self.context)) if context is None else context
        return View(round, mask, self.clients, context=where, probe=probe)

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


def _play(
    policy: Policy[Any], scene: _Scene, rounds: range, state: Any, hostile: bool = False, spoil: bool = False
) -> tuple[Any, list[Choice]]:
    choices = []
    for round in rounds:
        view = scene.view(round)
        choice = policy.select(state, view, scene.draw(round, "policy"))
        _check_choice(policy, view, choice)
        state = observe(policy, state, view, choice, scene.outcome(round, choice, hostile), spoil=spoil)
        choices.append(choice)
    return state, choices


def _check_choice(policy: Policy[Any], view: View, choice: Choice) -> None:
    """Raise unless a choice follows the rules."""
    about, there = traits(policy), int(np.count_nonzero(view.available))
    where = f"in round {view.round}, with {there} of {len(view.clients)} clients there,"
    if not isinstance(choice, Choice):
        raise CheckError(f"{where} select returned {type(choice).__name__}, but must return fp.Choice")
    ids = choice.ids
    if len(ids) and (ids.min() < 0 or ids.max() >= len(view.clients)):
        raise CheckError(f"{where} it chose client {ids.max()}, but there are only {len(view.clients)}")
    away = ids[~view.available[ids]]
    if len(away):
        raise CheckError(f"{where} it chose client {away[0]}, which was not available")
    if not about.replace and len(np.unique(ids)) < len(ids):
        raise CheckError(f"{where} it chose a client twice; if this is intended, declare replace = True")
    if about.fixed_size and about.asks is not None:
        due = (about.asks if there else 0) if about.replace else min(about.asks, there)
        if len(ids) != due:
            raise CheckError(
                f"{where} it chose {len(ids)} clients instead of {due}; if this is intended, declare fixed_size = False"
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

    pairs = list(zip(_walk(a), _walk(b), strict=True))
    return all(x[0] == y[0] and equal(x[2], y[2]) for x, y in pairs)


# Each rule plays a short run and raises a CheckError if the policy breaks it.


def _has_methods(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    for name in ("init", "select", "observe"):
        if not callable(getattr(policy, name, None)):
            raise CheckError(f"it has no method {name}; see fedpick.protocol for a complete example")


def _keeps_to_cohort(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))


def _any_availability(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, count = policy.init(scene.clients), len(scene.clients)
    for round, there in enumerate([count, 0, 1, 2, count // 2, count - 1, 0, count], start=1):
        mask = np.zeros(count, dtype=bool)
        mask[scene.draw(round, "mask").permutation(count)[:there]] = True
        view = scene.view(round, available=mask)
        choice = policy.select(state, view, scene.draw(round, "policy"))
        if there == 0 and len(choice):
            raise CheckError(f"no client was available, but it chose {len(choice)} clients; return fp.Choice([])")
        _check_choice(policy, view, choice)
        state = policy.observe(state, view, choice, scene.outcome(round, choice))


def _repeatable(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    first = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))[1]
    again = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))[1]
    _same_choices(first, again, "the same seed gave another choice; use only the rng that select gets")


def _select_only_reads(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, _ = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))
    before = copy.deepcopy(state)
    policy.select(state, scene.view(rounds + 1), scene.draw(rounds + 1, "policy"))
    if not _same_state(before, state):
        raise CheckError("select changed the state; only observe may do so")


def _keeps_no_state(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    due = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))[1]
    try:
        spoiled = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients), spoil=True)[1]
    except Exception as error:  # because of the NaN and extreme integers in the old states
        why = str(error) if isinstance(error, CheckError) else f"{type(error).__name__}: {error}"
        raise CheckError(f"{_USED_UP}; the result was: {why}") from None
    _same_choices(due, spoiled, _USED_UP)


def _survives_saving(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, _ = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        save_state(policy, state, path)
        loaded, _ = load_state(policy, path, scene.clients)
    if not _same_state(state, loaded):
        raise CheckError("the loaded state differs from the saved one; a state may contain only arrays and numbers")
    after = range(rounds + 1, rounds + 6)
    on = _play(policy, scene, after, state)[1]
    _same_choices(on, _play(policy, scene, after, loaded)[1], "after loading its state it chose other clients")


def _absorbs_nonsense(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, _ = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients), hostile=True)
    for round in range(rounds + 1, rounds + 4):  # contexts come from clients, too
        shape = (len(scene.clients), scene.context)
        view = scene.view(round, context=scene.draw(round, "hostile").choice(_HOSTILE, shape))
        choice = policy.select(state, view, scene.draw(round, "policy"))
        _check_choice(policy, view, choice)
        state = policy.observe(state, view, choice, scene.outcome(round, choice, hostile=True))
    _play(policy, scene, range(rounds + 4, 2 * rounds + 4), state)


def _admits(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, _ = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))
    newcomers = scene.clients.take(np.arange(min(7, len(scene.clients))))
    grown = replace(scene, clients=scene.clients.join(newcomers))
    state = admit(policy, state, newcomers)
    _play(policy, grown, range(rounds + 1, 2 * rounds + 1), state)


def _retires(policy: Policy[Any], scene: _Scene, rounds: int) -> None:
    state, _ = _play(policy, scene, range(1, rounds + 1), policy.init(scene.clients))
    keep = np.arange(0, len(scene.clients), 2)
    left = replace(scene, clients=scene.clients.take(keep))
    _play(policy, left, range(rounds + 1, 2 * rounds + 1), retire(policy, state, keep))


_RULES: dict[str, Callable[[Policy[Any], _Scene, int], None]] = {
    "has init, select and observe": _has_methods,
    "chooses min(cohort_size, available) clients, only available ones, none twice": _keeps_to_cohort,
    "copes with any availability, and with nobody there": _any_availability,
    "makes the same choice for the same seed": _repeatable,
    "does not write the state in select": _select_only_reads,
    "keeps no reference to a state that observe was given": _keeps_no_state,
    "has a state that survives saving and loading": _survives_saving,
    "absorbs NaN, infinite and absurd reports": _absorbs_nonsense,
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
    10
    """
    if clients is None:
        draw = rngs.stream(seed, 0, "clients")
        clients = Clients(draw.integers(10, 200, 40), draw.integers(0, 30, (40, 5)), draw.dirichlet(np.ones(5), 40))
    about = traits(policy)
    scene = _Scene(clients, seed, about.collect(), 3 if about.context is None else about.context)
    broken = []
    for rule, check in _RULES.items():
        try:
            check(policy, scene, rounds)
        except Exception as error:  # a policy may fail in any way
            broken.append(f"- {rule}: {error if isinstance(error, CheckError) else f'{type(error).__name__}: {error}'}")
            if check is _has_methods:
                break
    if broken:
        raise CheckError(f"{type(policy).__name__} breaks {len(broken)} of {len(_RULES)} rules:\n" + "\n".join(broken))
    return tuple(_RULES)
