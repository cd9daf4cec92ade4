"""Declared sizes: what one counts for, whoever joins or answers first, and that honest fleets keep theirs."""

import logging
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.core.bounds import largest, limited
from fedpick.server import Limits
from fedpick.server.sizes import MOST, Sizes

HUGE = 1e15
POSITIVE = st.floats(1e-3, 1e15)


def twin(values, factor, quantile):
    """`factor` times the smallest value that at least a fraction `quantile` of all do not exceed."""
    ranked = sorted(values)
    return next(factor * x for i, x in enumerate(ranked, 1) if i >= quantile * len(ranked))


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(POSITIVE, min_size=1, max_size=40),
    factor=st.sampled_from([1.0, 1.5, 30.0]),
    quantile=st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]),
)
def test_the_rule_is_that_of_its_twin(values, factor, quantile):
    most = twin(values, factor, quantile)
    assert largest(values, factor, quantile) == most
    assert largest([*values, 0.0], factor, quantile) == most  # a weight of 0 is none
    assert limited(np.array(values), factor, quantile).tolist() == [min(x, most) for x in values]


@settings(max_examples=100, deadline=None)
@given(honest=st.lists(POSITIVE, min_size=1, max_size=40), lies=st.lists(POSITIVE, max_size=40))
def test_half_of_the_clients_cannot_move_the_limit_beyond_what_the_others_have(honest, lies):
    lies = lies[: len(honest)]
    assert largest([*honest, *lies], 30.0) <= 30.0 * max(honest)


def test_the_limit_of_nobody_is_infinite_and_an_array_within_it_is_the_very_same():
    values = np.array([1.0, 2.0, 30.0])
    assert math.isinf(largest([], 30.0))
    assert limited(values, 30.0) is values


def test_nothing_changes_for_clients_within_the_limit():
    people = fp.Clients(np.geomspace(20.0, 4_000.0, 50), features=np.ones((50, 2)))  # 283 is the median
    assert Sizes(Limits()).of_clients(people) is people
    cut = Sizes(Limits(size_factor=2.0)).of_clients(people)
    assert cut.features is not None
    np.testing.assert_array_equal(cut.sizes, np.minimum(people.sizes, 2.0 * np.sort(people.sizes)[24]))
    assert Sizes(Limits(size_factor=None)).of_clients(fp.Clients([1, HUGE])).sizes.tolist() == [1.0, HUGE]


def fleet(kind, rng, count=100):
    """Sizes of honest clients, at least one example each."""
    if kind == "equal":
        return np.full(count, 600.0)
    if kind == "power law":
        return np.floor(20.0 * (rng.pareto(1.5, count) + 1.0))
    if kind.startswith("dirichlet"):
        return np.maximum(np.floor(60_000 * rng.dirichlet(np.full(count, float(kind.split()[1])))), 1.0)
    return np.maximum(np.floor(200.0 * rng.lognormal(0.0, float(kind.split()[1]), count)), 1.0)


# Percent of honest clients whose size is cut, and of the examples that no longer count, in fleets of 100: means over
# 20,000 fleets, which stand on the page docs/trust.md.
CUT = {
    "equal": (0.0, 0.0),
    "log-normal 1": (0.04, 0.17),
    "log-normal 1.5": (1.21, 8.48),
    "power law": (0.31, 4.23),
    "dirichlet 1": (0.0, 0.0),
    "dirichlet 0.5": (0.06, 0.12),
    "dirichlet 0.3": (2.34, 6.27),
    "dirichlet 0.1": (30.45, 92.23),
}


@pytest.mark.parametrize("kind", CUT)
def test_how_many_honest_clients_are_cut(kind):
    rng, rule, fleets = np.random.default_rng(1), Sizes(Limits()), 400
    found = np.zeros((fleets, 2))
    for at in range(fleets):
        people = fp.Clients(fleet(kind, rng))
        counted = rule.of_clients(people)
        over = people.sizes > largest(people.sizes, 30.0)
        np.testing.assert_array_equal(counted.sizes[~over], people.sizes[~over])  # to the bit
        found[at] = 100 * over.mean(), 100 * (1.0 - counted.sizes.sum() / people.sizes.sum())
    error = 4.0 * found.std(axis=0) / np.sqrt(fleets) + 0.05  # rounding
    assert (np.abs(found.mean(axis=0) - CUT[kind]) <= error).all()


class Shown(fp.Uniform):
    """Uniform, and the sizes that it was shown."""

    seen: list = []  # noqa: RUF012

    def init(self, clients):
        self.seen.append(clients.sizes.tolist())
        return super().init(clients)

    def select(self, state, view, rng):
        self.seen.append(view.clients.sizes.tolist())
        return super().select(state, view, rng)

    def observe(self, state, view, choice, outcome):
        self.seen.append(view.clients.sizes.tolist())
        return super().observe(state, view, choice, outcome)


def played(session, available, sizes=None):
    """A round in which everybody chosen answers; its parts by name."""
    with session.round(available) as round:
        for name in round.chosen:
            round.done(name, loss=1.0, update=np.zeros(1), size=(sizes or {}).get(name))
        return {part.name: part.weight for part in round.parts()}


OTHERS = {f"c{i}": 600 for i in range(4)}


@pytest.mark.parametrize("first", ["liar", "others", "together"])
def test_it_does_not_matter_who_joins_first(first):
    session = fp.Session(fp.Uniform(5))
    liar = {"liar": HUGE}
    if first == "liar":
        assert played(session, liar) == {"liar": 1.0}
    elif first == "others":
        played(session, OTHERS)
    weights = played(session, liar | OTHERS)
    assert weights["liar"] == pytest.approx(30 / 34)
    assert weights["c0"] == pytest.approx(1 / 34)


def test_the_policy_never_sees_what_the_limit_forbids_now():
    """Also where it was shown more before, when the liar was alone; a later newcomer lowers the limit again."""
    Shown.seen.clear()
    session = fp.Session(Shown(5))
    played(session, {"liar": HUGE})
    assert Shown.seen == [[HUGE]] * 3
    played(session, {"liar": HUGE, "a": 1000, "b": 1000})
    assert Shown.seen[-2:] == [[30_000.0, 1000.0, 1000.0]] * 2
    played(session, {"liar": HUGE, "a": 1000, "b": 1000, "c": 10, "d": 10, "e": 10})
    assert Shown.seen[-2:] == [[300.0, 300.0, 300.0, 10.0, 10.0, 10.0]] * 2
    session.retire(["c", "d", "e"])
    played(session, ["liar", "a", "b"])
    assert Shown.seen[-1] == [30_000.0, 1000.0, 1000.0]


@pytest.mark.parametrize("declared", [HUGE, {"size": HUGE}, (HUGE, None)])
def test_one_client_does_not_capture_a_session(declared):
    """Without the limit it has all places and all weight."""
    session, taken, weight = fp.Session(fp.SizeWeighted(5)), 0, 0.0
    available = {f"c{i}": 600 for i in range(99)} | {"liar": declared}
    for _ in range(40):
        parts = played(session, available)
        choice = session.storage.last
        taken += sum(1 for name in parts if name == "liar")
        weight += parts.get("liar", 0.0)
        assert choice is not None
    assert weight / 40 <= 30 / 129 + 4 * math.sqrt(0.23 * 0.77 / 200)
    assert taken < 40


def test_a_description_of_clients_by_the_server_is_limited_too_and_the_limit_can_be_off(caplog):
    for limits, first in ((None, 18_000.0), (Limits(size_factor=None), HUGE), (Limits(size_factor=2.0), 1200.0)):
        Shown.seen.clear()
        described = [HUGE, 600, 600]
        session = fp.Session(Shown(3), describe=lambda names: fp.Clients(described), limits=limits)  # noqa: B023
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            played(session, ["a", "b", "c"])
        assert Shown.seen[-1] == [first, 600.0, 600.0]
        assert [("declared sizes of 1 of 3 clients count as" in line) for line in caplog.messages] == [True] * (
            first < HUGE
        )


ASKED = [f"c{i}" for i in range(4)] + ["liar"]


@pytest.mark.parametrize("first", [True, False])
def test_a_size_with_an_answer_is_limited_whoever_answers_first(first, caplog):
    """In the very first round, in which nobody has a size yet."""
    session = fp.Session(fp.Uniform(5))
    sizes = dict.fromkeys(ASKED, 600.0) | {"liar": HUGE}
    with session.round(ASKED) as round:
        for name in sorted(round.chosen, key=lambda name: (name == "liar") != first):
            round.done(name, update=np.zeros(1), size=sizes[name])
        weights = {part.name: part.weight for part in round.parts()}
        assert round.base("liar") == round.size("liar") == 18_000.0
        assert round.base("c0") == 600.0
    assert weights["liar"] == pytest.approx(30 / 34)
    assert "1 sizes are too large to be true: that of liar, 1e+15, counts as 18000" in caplog.text


def test_a_size_with_an_answer_within_the_size_that_the_client_joined_with_is_not_limited():
    session = fp.Session(fp.Uniform(5))
    joined = dict.fromkeys(ASKED, 100.0) | {"liar": 3000.0}
    parts = played(session, joined, dict.fromkeys(ASKED, 10.0) | {"liar": 3000.0})
    assert parts["liar"] == 3000 / 3040


def test_a_guard_bounds_the_weight_of_an_answer():
    session = fp.Session(fp.Guard(fp.Uniform(5)))
    weights = played(session, ASKED, dict.fromkeys(ASKED, 600.0) | {"liar": HUGE})
    assert weights["liar"] == pytest.approx(1.5 / 5.5)
    free = fp.Session(fp.Guard(fp.Uniform(5), weight=None), limits=Limits(size_factor=None))
    assert played(free, ASKED, dict.fromkeys(ASKED, 600.0) | {"liar": HUGE})["liar"] == pytest.approx(1.0)


@pytest.mark.parametrize(("policy", "most"), [(fp.Uniform(5), 30.0), (fp.Guard(fp.Uniform(5), cap=9.0), 1.5)])
def test_a_late_update_is_limited(policy, most):
    """Which had a weight of 1."""
    session = fp.Session(policy, late=fp.server.Lateness(2, beta=0.0), deadline=1.0)
    with session.round(ASKED) as round:
        for name in ASKED[:4]:
            round.done(name, update=np.zeros(1), size=600.0)
    assert session.keep("liar", np.ones(1), round=1, size=HUGE) == fp.Status.LATE
    with session.round(ASKED[:4]) as round:
        for name in round.chosen:
            round.done(name, update=np.zeros(1), size=600.0)
        parts = {part.name: part.weight for part in round.parts()}
    late = most / 2  # REFL's factor for one round: 1/(tau + 1)
    assert parts["liar"] == pytest.approx(late / (4 + late))


def test_a_late_update_without_a_size_counts_as_its_client_does():
    session = fp.Session(fp.Uniform(5), late=fp.server.Lateness(2, beta=0.0))
    joined = dict.fromkeys(ASKED, 600.0) | {"liar": HUGE}
    with session.round(joined) as round:
        for name in ASKED[:4]:
            round.done(name, update=np.zeros(1))
    session.keep("liar", np.ones(1), round=1)
    with session.round({name: joined[name] for name in ASKED[:4]}) as round:
        for name in round.chosen:
            round.done(name, update=np.zeros(1))
        assert {part.name: part.weight for part in round.parts()}["liar"] == pytest.approx(15 / 19)


def test_only_the_last_answers_are_remembered_and_each_client_once():
    sizes = Sizes(Limits())
    for i in range(MOST + 500):
        sizes.hear(f"c{i}", 600.0)
    assert len(sizes._heard) == MOST
    for _ in range(5 * MOST):  # one client cannot fill the memory
        sizes.hear("liar", HUGE)
    assert len(sizes._heard) == MOST
    assert sizes.of_answer(HUGE, 1.0) == 18_000.0


@pytest.mark.parametrize("checkpoint_every", [1, 3, 100])
def test_a_restart_goes_on_with_the_same_limit_and_the_declared_sizes_are_kept(tmp_path, checkpoint_every):
    """From a checkpoint or the journal: the state is that of a server that never stopped."""
    limits = Limits(checkpoint_every=checkpoint_every)
    joins = [{"liar": HUGE}, {"liar": HUGE, "a": 500, "b": 600}, {"liar": HUGE, "a": 500, "b": 600, "c": 2}]
    states = []
    for restarts in (True, False):
        folder = tmp_path / str(restarts)
        session = fp.Session(fp.ActiveFL(2), state=folder, limits=limits)
        for round in range(5):
            with session.round(joins[min(round, 2)]) as now:
                for name in now.chosen:
                    now.done(name, loss=0.5 + len(name))
            if restarts:
                session.close()
                session = fp.Session(fp.ActiveFL(2), state=folder, limits=limits)
        assert session.roster.clients.sizes.tolist() == [HUGE, 500.0, 600.0, 2.0]
        assert session.roster.counted.sizes.tolist() == [15_000.0, 500.0, 600.0, 2.0]
        states.append(session.roster.state.value.tolist())
        session.close()
    assert states[0] == states[1]


def test_records_show_the_sizes_that_count(tmp_path):
    with fp.Session(fp.Uniform(3), records=tmp_path / "run") as session:
        played(session, {"liar": HUGE, "a": 500, "b": 600})
    from fedpick.store import read_census

    assert read_census(tmp_path / "run")["size"].tolist() == [18_000.0, 500.0, 600.0]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(size_factor=0.5), r"limits.size_factor = 0.5, but must be a number >= 1, or None"),
        (Limits(size_factor=math.inf), r"limits.size_factor = inf, but must be a number >= 1, or None"),
        (Limits(size_factor=math.nan), r"limits.size_factor = nan, but must be"),
        (Limits(size_quantile=0.0), r"limits.size_quantile = 0.0, but must be in \(0, 1\]"),
        (Limits(size_quantile=1.5), r"limits.size_quantile = 1.5, but must be in \(0, 1\]"),
    ],
)
def test_errors(limits, says):
    with pytest.raises(fp.SettingError, match=says):
        fp.Session(fp.Uniform(2), limits=limits)
