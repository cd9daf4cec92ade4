"""check_policy: every built-in keeps the rules, and every rule catches a policy that breaks it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedpick as fp
from zoo import some_slow, zoo


@pytest.mark.parametrize(
    ("name", "m"),
    [
        *((name, 5) for name in zoo(5)),
        *(pytest.param(name, m, marks=pytest.mark.slow) for name in zoo(5) for m in (1, 40)),
        *some_slow(((name, 60) for name in zoo(5)), quick=3),
    ],
)
def test_every_policy_keeps_the_rules(name, m):
    rounds = 12 if m < 40 else 6  # where all that are there are chosen, rounds are alike
    rules = fp.checks.check_policy(zoo(m)[name], rounds=rounds, seed=m)
    assert len(rules) == 13


@pytest.mark.parametrize("name", some_slow(zoo(5), quick=3))
def test_every_policy_copes_with_a_federation_of_one(name):
    fp.checks.check_policy(zoo(1)[name], clients=fp.Clients([3.0], [[1.0, 2.0]], [[1.0, 2.0]]))


@pytest.mark.parametrize("name", some_slow(zoo(5), quick=4))
def test_clients_enrolled_in_round_50_are_chosen_in_time(name):
    """Newcomers enter every policy that does not know better (a prophet, or losses that never change)."""
    policy = zoo(5)[name]
    draw = np.random.default_rng(0)
    clients = fp.Clients(draw.uniform(1, 2, 30), draw.integers(0, 9, (30, 4)), draw.dirichlet(np.ones(4), 30))
    newcomers = fp.Clients(draw.uniform(1, 2, 10), draw.integers(0, 9, (10, 4)), draw.dirichlet(np.ones(4), 10))
    state, seen = policy.init(clients), np.zeros(40, dtype=int)
    for round in range(1, 151):
        if round == 50:
            state, clients = fp.admit(policy, state, newcomers), clients.join(newcomers)
        count = len(clients)
        width = fp.traits(policy).context or 3
        losses = draw.gamma(2.0, size=count)
        view = fp.View(
            round,
            draw.random(count) < 0.9,
            clients,
            context=draw.uniform(0.5, 2, (count, width)),
            probe=lambda ids, batch=None, losses=losses: losses[ids],
            norms=lambda ids, losses=losses: losses[ids],
        )
        choice = policy.select(state, view, fp.rng.stream(1, round, "policy"))
        reports = {"embedding": draw.normal(size=(len(choice), 3)), "update": draw.normal(size=(len(choice), 3))}
        outcome = fp.Outcome(
            np.zeros(len(choice), int), draw.uniform(1, 2, len(choice)), draw.gamma(2.0, size=len(choice)), reports
        )
        state = policy.observe(state, view, choice, outcome)
        np.add.at(seen, choice.ids, 1)
    assert seen[:30].sum() > 0
    if not (isinstance(policy, fp.FedCS) or getattr(policy, "solver", "exact") == "alsa"):
        assert np.count_nonzero(seen[30:]) >= 5, f"only {np.count_nonzero(seen[30:])} of 10 newcomers ever chosen"


@dataclass
class State:
    counts: np.ndarray


@dataclass(frozen=True)
class Good:
    """Uniform, written out: the base that the broken ones below spoil in one way each."""

    cohort_size: int = 5

    def init(self, clients):
        return State(np.zeros(len(clients)))

    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(rng.permutation(ids)[: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        state.counts[choice.ids] += 1
        return State(state.counts)


class Stateless(Good):
    def init(self, clients):
        return None

    def observe(self, state, view, choice, outcome):
        return None


def test_a_policy_that_keeps_nothing_has_the_state_none():
    assert len(fp.checks.check_policy(Stateless())) == 13
    assert len(fp.checks.check_policy(fp.OverSelect(Stateless(), 1.5))) == 13


class PicksAbsent(Good):
    def select(self, state, view, rng):
        return fp.Choice(rng.permutation(len(view.clients))[: min(5, view.available.sum())])


class PicksTwice(Good):
    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(np.repeat(ids[:1], min(5, len(ids))))


class PicksTooFew(Good):
    def select(self, state, view, rng):
        return fp.Choice(super().select(state, view, rng).ids[:-1])


class PicksWhenNobodyIsThere(Good):
    fixed_size = False

    def select(self, state, view, rng):
        return super().select(state, view, rng) if view.available.any() else fp.Choice(np.array([0]))


class OwnRandomness(Good):
    def select(self, state, view, rng):
        return super().select(state, view, np.random.default_rng())


class WritesInSelect(Good):
    def select(self, state, view, rng):
        state.counts[0] += 1
        return super().select(state, view, rng)


class Unsaveable(Good):
    def init(self, clients):
        return {"counts": np.zeros(len(clients))}

    def observe(self, state, view, choice, outcome):
        return state


class ChokesOnNaN(Good):
    def observe(self, state, view, choice, outcome):
        state.counts[choice.ids] += np.array([int(x) for x in outcome.loss])
        return State(state.counts)


class FixedNumber(Good):
    def observe(self, state, view, choice, outcome):
        return State(state.counts + np.zeros(40))


class ReturnsAList(Good):
    def select(self, state, view, rng):
        return super().select(state, view, rng).ids.tolist()


class KeepsTheFirstState(Good):
    """Works by luck: the arrays of the first state are written on, until someone copies them."""

    kept: list = []  # noqa: RUF012

    def init(self, clients):
        self.kept.clear()
        return super().init(clients)

    def select(self, state, view, rng):
        if not self.kept:
            self.kept.append(state)
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids[np.argsort(self.kept[0].counts[ids], kind="stable")][: self.cohort_size])


class TripsOverAKeptState(KeepsTheFirstState):
    def select(self, state, view, rng):
        choice = super().select(state, view, rng)
        [int(count) for count in self.kept[0].counts]
        return choice


class TooSure(Good):
    def select(self, state, view, rng):
        choice = super().select(state, view, rng)
        return replace(choice, inclusion=np.full(len(choice), 1.5))


class AsksTheAbsent(Good):
    def select(self, state, view, rng):
        view.probe(np.arange(len(view.clients)))
        return super().select(state, view, rng)


class TakesNoNewsAsAFailure(Good):
    """As ActiveFL did: who reported no loss gets the lowest value."""

    def observe(self, state, view, choice, outcome):
        state.counts[choice.ids] = np.where(outcome.loss < 9.0, np.abs(outcome.loss), -1.0)
        return State(state.counts)


class TakesNoNewsAsASuccess(Good):
    """As Guard did: whoever did not fail has no failures in a row any more."""

    def observe(self, state, view, choice, outcome):
        state.counts[choice.ids] = np.where(outcome.succeeded, 0.0, state.counts[choice.ids] + 1.0)
        return State(state.counts + np.isin(np.arange(len(state.counts)), choice.ids) * 0.0)

    def init(self, clients):
        return State(np.full(len(clients), 2.0))


@dataclass
class MeanState:
    counts: np.ndarray
    mean: np.ndarray


class TakesNoNewsAsTheSlowest(Good):
    """As BSFL did: a duration that is missing is the longest there is, in a running mean."""

    def init(self, clients):
        return MeanState(np.zeros(len(clients)), np.zeros(len(clients)))

    def observe(self, state, view, choice, outcome):
        ids, took = choice.ids, np.where(outcome.duration < 60.0, np.abs(outcome.duration), 60.0)
        state.counts[ids] += 1
        state.mean[ids] += (took - state.mean[ids]) / state.counts[ids]
        return MeanState(state.counts, state.mean)


@dataclass
class PresenceState:
    was: np.ndarray
    left: np.ndarray


class TakesAPauseAsAnAbsence(Good):
    """As REFL did: counts how often each client left."""

    def init(self, clients):
        return PresenceState(np.zeros(len(clients), dtype=bool), np.zeros(len(clients), dtype=int))

    def observe(self, state, view, choice, outcome):
        return PresenceState(view.available.copy(), state.left + (state.was & ~view.available))


class WantsEverybodyIdle(Good):
    def select(self, state, view, rng):
        if view.busy.any():
            raise RuntimeError("somebody is busy")
        return super().select(state, view, rng)


class ProbesTheBusy(Good):
    def select(self, state, view, rng):
        view.probe(np.flatnonzero(view.there))
        return super().select(state, view, rng)


class Stumbles(Good):
    def select(self, state, view, rng):
        return np.take_along_axis(view.available, np.zeros(3), axis=0)


def test_an_error_in_ones_own_code_comes_with_its_file_and_line():
    """Not with the line of NumPy in which it was noticed."""
    line = Stumbles.select.__code__.co_firstlineno + 1
    for policy in (Stumbles(), fp.OverSelect(Stumbles(), 1.5)):
        with pytest.raises(fp.CheckError) as caught:
            fp.checks.check_policy(policy)
        assert f"IndexError: `indices` must be an integer array (in select, {__file__}, line {line})" in str(
            caught.value
        )


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (AsksTheAbsent(), "view.probe was given client"),
        (PicksAbsent(), "was not available"),
        (PicksTwice(), "chose a client twice"),
        (PicksTooFew(), "chose 4 clients instead of 5"),
        (PicksWhenNobodyIsThere(), "no client was available, but it chose 1 clients"),
        (OwnRandomness(), "the same seed gave another choice"),
        (WritesInSelect(), "select changed the state"),
        (Unsaveable(), "must be a dataclass of arrays"),
        (ChokesOnNaN(), "absorbs NaN, infinite and absurd reports: OverflowError"),
        (FixedNumber(), "clients can be enrolled while it runs"),
        (ReturnsAList(), "must return fp.Choice"),
        (
            KeepsTheFirstState(),
            "keeps no reference to a state that observe was given: a state must not be used after",
        ),
        (
            TripsOverAKeptState(),
            "keep no reference to it; the result was: ValueError: cannot convert float NaN to integer",
        ),
        (
            TakesNoNewsAsAFailure(),
            "no news: client 33 was still working when the round was full (SURPLUS, without duration and loss), but "
            "the state's field 'counts' says that it failed; change it only where outcome.known is True",
        ),
        (TakesNoNewsAsASuccess(), "the state's field 'counts' says that it succeeded"),
        (TakesNoNewsAsTheSlowest(), "the state's field 'mean' says that it failed"),
        (
            TakesAPauseAsAnAbsence(),
            "could not be chosen (it paused, or was busy), and the state's field 'was' says that it was away; learn "
            "who is there from view.there, not from view.available",
        ),
        (WantsEverybodyIdle(), "copes with clients that pause, are busy or late, or are not waited for: RuntimeError"),
        (ProbesTheBusy(), "view.probe was given client"),
        (TooSure(), "inclusion probability of 1.5, above 1"),
        (object(), "has no method init"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_broken_policy_is_told_what_it_breaks(policy, says):
    with pytest.raises(fp.CheckError) as caught:
        fp.checks.check_policy(policy)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{type(policy).__name__} breaks ")


@dataclass(frozen=True)
class Hears:
    """Chooses those whose reported vectors are longest; a policy of a user's own with all that traits can say."""

    cohort_size: int = 5
    width: int = 7

    context = 2

    @property
    def needs(self):
        return ("context", fp.ReportSpec("gradient", self.width), fp.ReportSpec("score", 0), "anything")

    def init(self, clients):
        return State(np.zeros(len(clients)))

    def select(self, state, view, rng):
        assert view.context.shape == (len(view.clients), 2)
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids[np.argsort(-state.counts[ids], kind="stable")][: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        gradient, score = outcome.reports["gradient"], outcome.reports["score"]
        assert gradient.shape == (len(choice), self.width)
        assert score.shape == (len(choice),)
        assert len(outcome.reports["anything"]) == len(choice)
        with np.errstate(all="ignore"):
            length = np.nan_to_num(np.clip(gradient, -1, 1).sum(axis=1))
        state.counts[choice.ids[outcome.known]] = length[outcome.known]
        return State(state.counts)


@pytest.mark.parametrize("policy", [Hears(), fp.OverSelect(Hears(), 1.5)])
def test_a_policy_is_given_the_reports_and_the_context_that_it_declares(policy):
    assert len(fp.checks.check_policy(policy)) == 13


class CountsSuccesses(Good):
    """Right: what is not known stays as it was, also beside a value that fades for all."""

    def observe(self, state, view, choice, outcome):
        counts = 0.9 * state.counts
        counts[choice.ids] += outcome.succeeded & outcome.known
        return State(counts)


class LearnsWhoIsThere(TakesAPauseAsAnAbsence):
    def observe(self, state, view, choice, outcome):
        return PresenceState(view.there.copy(), state.left + (state.was & ~view.there))


@pytest.mark.parametrize("policy", [CountsSuccesses(), LearnsWhoIsThere()])
def test_a_policy_that_reads_what_is_known_and_who_is_there_passes(policy):
    assert len(fp.checks.check_policy(policy)) == 13


def test_a_good_policy_passes():
    assert "makes the same choice for the same seed" in fp.checks.check_policy(Good())
