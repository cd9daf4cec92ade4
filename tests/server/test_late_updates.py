"""Late updates of a session: who may still send one, their weights against the formula, what is dropped."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.engine.weights import late_weights
from fedpick.server import Lateness


def sizes(**held):
    return {name: float(size) for name, size in held.items()}


PEOPLE = sizes(ada=1, bob=2, cyd=3, dan=4)


class Own:
    """Chooses everybody, with these weights."""

    cohort_size = 4

    def __init__(self, weights, normalise=True):
        self.weights, self.normalise = weights, normalise

    def init(self, clients):
        return fp.Uniform(4).init(clients)

    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids, weights=np.asarray(self.weights)[ids], normalise=self.normalise)

    def observe(self, state, view, choice, outcome):
        return fp.Uniform(4).observe(state, view, choice, outcome)


def play(session, answers, people=PEOPLE):
    """A round in which these answer with these updates; returns the parts by name."""
    with session.round(people) as r:
        for name, update in answers.items():
            r.done(name, loss=1.0, update=update)
        found = r.parts()
    return {(part.name, part.rounds): (part.update, part.weight) for part in found}


def test_late_updates_count_with_the_weight_of_the_formula():
    session = fp.Session(fp.Uniform(4), late=3)
    first = play(session, {"ada": np.array([1.0, 0.0]), "bob": np.array([0.0, 1.0])})
    assert {key: weight for key, (_, weight) in first.items()} == pytest.approx({("ada", 0): 1 / 3, ("bob", 0): 2 / 3})
    assert session.keep("cyd", np.array([2.0, 2.0]), round=1) == fp.Status.LATE
    second = play(session, {"ada": np.array([1.0, 1.0]), "bob": np.array([3.0, 1.0])})
    mean = np.array([1.0, 1.0]) / 3 + np.array([3.0, 1.0]) * 2 / 3
    factor = late_weights(np.array([1]), np.array([np.sum((np.array([2.0, 2.0]) - mean) ** 2)]), 0.35)[0]
    total = 1 + 2 + 3 * factor
    wanted = {("ada", 0): 1 / total, ("bob", 0): 2 / total, ("cyd", 1): 3 * factor / total}
    assert {key: weight for key, (_, weight) in second.items()} == pytest.approx(wanted)
    assert session.keep("dan", np.array([0.0, 0.0]), round=1) == fp.Status.LATE  # two rounds late
    assert session.keep("dan", np.array([9.0, 0.0]), round=2) is None  # it was busy, and not asked in round 2
    assert session.keep("cyd", np.array([9.0, 0.0]), round=2) == fp.Status.LATE  # its update was there before round 2
    third = play(session, {"ada": np.array([1.0, 1.0])})
    fresh = np.array([1.0, 1.0])
    apart = np.array([np.sum((v - fresh) ** 2) for v in (np.zeros(2), np.array([9.0, 0.0]))])
    factors = late_weights(np.array([2, 1]), apart, 0.35)
    total = 1 + 4 * factors[0] + 3 * factors[1]
    assert third[("dan", 2)][1] == pytest.approx(4 * factors[0] / total)
    assert third[("cyd", 1)][1] == pytest.approx(3 * factors[1] / total)
    assert ("cyd", 2) not in third  # used in round 2


def test_a_policys_weights_are_the_base_and_stand_as_they_are_if_it_says_so():
    for normalise in (True, False):
        session = fp.Session(Own([0.1, 0.2, 0.3, 0.4], normalise), late=Lateness(1, beta=0.0))
        play(session, {"ada": 0})
        session.keep("dan", 0, round=1)
        found = play(session, {"ada": 0, "dan": 0})
        total = 0.1 + 0.4 + 0.4 / 2 if normalise else 1.0
        wanted = {("ada", 0): 0.1 / total, ("dan", 0): 0.4 / total, ("dan", 1): 0.2 / total}
        assert {key: weight for key, (_, weight) in found.items()} == pytest.approx(wanted)


def test_only_who_owes_an_update_may_send_one_late_and_only_so_many_rounds():
    session = fp.Session(fp.Uniform(4), late=2)
    with session.round(PEOPLE) as r:
        r.done("ada", loss=1.0, update=np.ones(2))
        r.failed("bob", "error")
        assert session.keep("dan", np.ones(2), round=1) is None  # the round is still open
    for name in ("ada", "bob", "eve", None):
        assert session.keep(name, np.ones(2), round=1) is None
    assert session.keep("cyd", np.ones(2), round=1) == fp.Status.LATE
    assert session.keep("cyd", np.ones(2), round=1) is None  # once
    assert session.keep("dan", np.ones(2), round=7) is None
    play(session, {}, sizes(ada=1))
    play(session, {}, sizes(ada=1))
    assert session.last.status.tolist() == []  # ada still worked on round 2: nobody was asked
    session.free([])
    assert session.keep("dan", np.ones(2), round=1) is None  # it would be three rounds late
    assert session.keep("ada", np.ones(2), round=2) == fp.Status.LATE


def test_an_abandoned_round_leaves_late_updates_for_its_repetition():
    session = fp.Session(fp.Uniform(4), late=2)
    play(session, {"ada": np.ones(2)})
    session.keep("cyd", np.ones(2), round=1)
    r = session.round(PEOPLE)
    assert [part.name for part in r.parts()] == ["cyd"]
    r.abandon()
    assert ("cyd", 1) in play(session, {"ada": np.ones(2)})
    assert ("cyd", 2) not in play(session, {"ada": np.ones(2)})


@pytest.mark.parametrize("wrong", [np.ones(3), np.array([np.nan, 1.0]), "text", None, {"w": "x"}])
def test_a_late_update_that_is_not_like_the_others_is_dropped_with_a_line_in_the_log(wrong, caplog):
    session = fp.Session(fp.Uniform(4), late=2)
    play(session, {"ada": np.ones(2)})
    session.keep("cyd", wrong, round=1)
    assert list(play(session, {"ada": np.ones(2)})) == [("ada", 0)]
    assert "late update of cyd dropped" in caplog.text


def test_updates_of_lists_and_mappings_and_a_function_for_others():
    for update in ([np.ones(2), np.ones((2, 2))], {"a": np.ones(2), "b": np.ones(1)}):
        session = fp.Session(fp.Uniform(4), late=2)
        play(session, {"ada": update})
        session.keep("cyd", update, round=1)
        assert len(play(session, {"ada": update})) == 2
    session = fp.Session(fp.Uniform(4), late=2)
    play(session, {"ada": "xx"})
    session.keep("cyd", "xxx", round=1)
    with session.round(PEOPLE) as r:
        r.done("ada", loss=1.0, update="xx")
        with pytest.raises(
            fp.ContractError, match="give vector=function from an update to its numbers, or late=Lateness"
        ):
            r.parts()
        assert len(r.parts(vector=lambda update: np.full(1, len(update)))) == 2


def test_settings_out_of_bounds_and_a_session_that_keeps_none():
    with pytest.raises(fp.SettingError, match="Session: late = -1, but must be a whole number of rounds >= 0"):
        fp.Session(fp.Uniform(2), late=-1)
    with pytest.raises(fp.SettingError, match=r"Session: late\.beta = 1\.5, but must be in \[0, 1\]"):
        fp.Session(fp.Uniform(2), late=Lateness(beta=1.5))
    with pytest.raises(fp.ContractError, match="Session: late = 0, so late updates are not kept"):
        fp.Session(fp.Uniform(2)).keep("ada", None, round=1)
    session = fp.Session(fp.Uniform(2))
    assert play(session, {"ada": 1}, {"ada": 5.0, "bob": 5.0}) == {("ada", 0): (1, 1.0)}


def test_examples_that_a_client_says_take_the_place_of_its_size_but_not_of_a_policys_weight():
    cases = (
        (fp.Uniform(4), {"ada": 30.0, "cyd": 50.0 / 2, "dan": 4.0 / 2}),
        (Own([0.1, 0.2, 0.3, 0.4]), {"ada": 0.1, "cyd": 0.3 / 2, "dan": 0.4 / 2}),
    )
    for policy, counts in cases:
        session = fp.Session(policy, late=Lateness(1, beta=0.0))
        with session.round(PEOPLE) as r:
            r.done("ada", loss=1.0, update=0, size=10)
        session.keep("dan", 0, round=1, size=float("nan"))  # no number of examples: its size counts
        session.keep("cyd", 0, round=1, size=50)
        with session.round(PEOPLE) as r:
            r.done("ada", loss=1.0, update=0, size=30)
            found = {part.name: part.weight for part in r.parts()}
        assert found == pytest.approx({name: count / sum(counts.values()) for name, count in counts.items()})


def test_who_still_owes_an_update_is_not_asked_even_if_nobody_else_is_there():
    session = fp.Session(fp.Uniform(4), late=2)
    assert session.free(PEOPLE) == list(PEOPLE)
    play(session, {"ada": np.ones(2)})
    assert session.free(PEOPLE) == ["ada"]
    assert session.free(["bob", "cyd"]) == []
    session.keep("bob", np.ones(2), round=1)
    assert session.free(PEOPLE) == ["ada", "bob"]
    with session.round(sizes(cyd=3, dan=4)) as r:
        assert r.chosen == ()
        assert (r.view.there.sum(), r.view.busy.sum(), r.view.available.sum()) == (2, 2, 0)
        assert [part.name for part in r.parts()] == ["bob"]  # what has come is used all the same
    play(session, {}, sizes(ada=1))
    assert session.free(PEOPLE) == ["bob", "cyd", "dan"]  # of round 1 nothing is awaited any more, of round 3 ada's


def test_with_nobody_chosen_a_late_weight_that_stands_as_it_is_does_so():
    """F3AST's late update of weight .0047 became the whole step."""
    session = fp.Session(Own([0.0047, 0.2, 0.3, 0.4], normalise=False), late=Lateness(2, beta=0.0))
    play(session, {}, sizes(ada=1))
    session.keep("ada", 0, round=1)
    session.policy.weights = np.zeros(0)
    session.policy.select = lambda state, view, rng: fp.Choice([])
    assert play(session, {}, sizes(ada=1)) == {("ada", 1): (0, pytest.approx(0.0047 / 2))}


def test_answers_are_of_use_for_as_many_deadlines_as_rounds():
    assert fp.Session(fp.Uniform(2), late=2).rounds.lifetime(40.0) == 200.0
    assert fp.Session(fp.Uniform(2), late=2).rounds.lifetime(10.0) == 130.0  # rounds in which nobody is free last 60 s
    assert fp.Session(fp.Uniform(2)).rounds.lifetime(30.0) == 30.0
    assert fp.Session(fp.Uniform(2), late=2).rounds.lifetime(None) is None


def test_late_answers_count_as_messages_in_the_round_in_which_they_come():
    """They counted in simulated runs only."""
    session = fp.Session(fp.Uniform(4), late=2)
    play(session, {"ada": np.ones(2)})
    assert session.last.messages == 4 + 1
    session.keep("bob", np.ones(2), round=1)
    session.late.drop("cyd", 1, "an error")
    session.keep("eve", np.ones(2), round=1)  # nothing is owed
    play(session, {"ada": np.ones(2)})
    assert session.last.messages == 3 + 1 + 2
    play(session, {})
    assert session.last.messages == 1  # ada; the others still work
