"""TiFL against Algorithm 2 of Chai et al. (2020), written out; and FLGo's draws with replacement."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import view

DONE, FAILED = fp.Status.DONE, fp.Status.FAILED


def told(choice, seconds, accuracy=None, status=None):
    count = len(choice)
    reports = {} if accuracy is None else {"accuracy": accuracy[choice.ids]}
    return fp.Outcome(np.zeros(count, int) if status is None else status, seconds[choice.ids], np.ones(count), reports)


def test_tiers_are_of_equal_size_and_ordered_by_time():
    policy = fp.TiFL(2, tiers=3)
    state = policy.init(fp.Clients(np.ones(7)))
    state.duration[:] = [5.0, 1.0, np.nan, 3.0, np.inf, 2.0, 4.0]
    assert policy.tier_of(state).tolist() == [2, 0, -1, 1, 2, 0, 1]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), tiers=st.integers(1, 4), m=st.integers(1, 4))
def test_odds_credits_and_accuracies_are_those_of_algorithm_2(seed, tiers, m):
    rng = np.random.default_rng(seed)
    seconds, K, interval = rng.permutation(np.arange(1.0, 13.0)), 12, 3
    credits = tuple(int(n) for n in rng.integers(1, 9, tiers))
    policy, clients = fp.TiFL(m, tiers=tiers, interval=interval, credits=credits, times=seconds), fp.Clients(np.ones(K))
    state = policy.init(clients)
    tier = [sorted(seconds).index(s) * tiers // K for s in seconds]
    odds, left, before, value = [1 / tiers] * tiers, list(credits), [-np.inf] * tiers, {}
    for t in range(1, 25):
        accuracy = rng.random(K)
        choice = policy.select(state, view(clients, t), rng)
        found = {tier[k] for k in choice.ids.tolist()}
        if K // tiers >= m:
            assert len(found) == 1  # one tier, whole
            if any(n > 0 and p > 0 for n, p in zip(left, odds, strict=True)):
                assert left[min(found)] > 0
        (current,) = {int(g) for g in choice.kept["tier"]}
        members = {k for k in range(K) if tier[k] == current}  # of the tier drawn, all are there
        assert len(members & set(choice.ids.tolist())) == min(m, len(members))
        state = policy.observe(state, view(clients, t), choice, told(choice, seconds, accuracy))
        left[current] = max(left[current] - 1, 0)
        value.update({k: accuracy[k] for k in choice.ids.tolist()})
        if t % interval == 0:
            mean = lambda g: [value[k] for k in value if tier[k] == g]  # noqa: E731
            now = [float(np.mean(mean(g))) if mean(g) else -np.inf for g in range(tiers)]
            if before[current] >= now[current]:
                able = sorted((g for g in range(tiers) if left[g]), key=lambda g: (now[g], g))
                n = len(able)
                odds = [0.0] * tiers
                for i, g in enumerate(able):
                    odds[g] = (n - i) / (n * (n + 1) / 2)
            before = now
        np.testing.assert_allclose(state.odds, odds)
        assert state.credits.tolist() == left
        np.testing.assert_allclose(state.before, before)


def test_a_tier_is_chosen_by_its_odds_and_its_clients_are_alike():
    policy, clients = fp.TiFL(2, tiers=2, times=np.arange(6.0) + 1), fp.Clients(np.ones(6))
    state, rng, counts, draws = policy.init(clients), np.random.default_rng(0), np.zeros(6), 1000
    state.odds[:] = [0.8, 0.2]
    for _ in range(draws):
        ids = policy.select(state, view(clients), rng).ids
        assert len({k // 3 for k in ids.tolist()}) == 1
        counts[ids] += 1
    wanted = np.repeat([0.8, 0.2], 3) * 2 / 3
    assert (np.abs(counts / draws - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / draws)).all()


def test_a_tier_of_which_nobody_is_there_is_not_chosen_when_all_credits_of_the_others_are_spent():
    policy, clients = fp.TiFL(1, tiers=3, credits=(0, 9, 0), times=np.arange(6.0) + 1), fp.Clients(np.ones(6))
    state, away = policy.init(clients), view(clients, available=[1, 1, 0, 0, 1, 1])
    tiers = [int(policy.select(state, away, np.random.default_rng(seed)).kept["tier"][0]) for seed in range(30)]
    assert set(tiers) == {0, 2}
    state.odds[:] = [0.0, 1.0, 0.0]  # nor where those that are there have no odds
    tiers = [int(policy.select(state, away, np.random.default_rng(seed)).kept["tier"][0]) for seed in range(30)]
    assert set(tiers) == {0, 2}


@pytest.mark.parametrize(
    ("odds", "wanted"),
    [
        ("slow", [0, 0, 0, 0, 1]),
        ("random", [0.7, 0.1, 0.1, 0.05, 0.05]),
        ("fast1", [0.225, 0.225, 0.225, 0.225, 0.1]),
        ("fast3", [0.25, 0.25, 0.25, 0.25, 0]),
        ((1, 1, 2, 0, 0), [0.25, 0.25, 0.5, 0, 0]),
    ],
)
def test_static_odds_never_change(odds, wanted):
    """Although the accuracy of every tier falls, for which the adaptive rule would change them."""
    seconds = np.arange(10.0) + 1
    policy, clients = fp.TiFL(1, interval=1, times=seconds, odds=odds), fp.Clients(np.ones(10))
    state, counts, rng, draws = policy.init(clients), np.zeros(5), np.random.default_rng(0), 600
    for t in range(1, draws + 1):
        choice = policy.select(state, view(clients, t), rng)
        counts[choice.ids // 2] += 1
        state = policy.observe(state, view(clients, t), choice, told(choice, seconds, np.full(10, 1.0 / t)))
    np.testing.assert_allclose(state.odds, wanted)
    wanted = np.array(wanted)
    assert (np.abs(counts / draws - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / draws)).all()
    assert fp.policy("tifl(odds='fast1')", cohort_size=3).odds == "fast1"
    assert fp.policy("tifl(tiers=2, odds=(1, 3))", cohort_size=3).init(clients).odds.tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("odds", "text"),
    [
        ("quick", "unknown odds of TiFL 'quick'"),
        ((1, 2), "TiFL: odds has 2 numbers, but there are 5 tiers: give one each"),
        ((1, 2, -1, 0, 0), "must be numbers >= 0, of which one is > 0"),
        ((0, 0, 0, 0, 0), "must be numbers >= 0, of which one is > 0"),
    ],
)
def test_odds_that_are_none_are_refused(odds, text):
    with pytest.raises((fp.SettingError, fp.UnknownNameError), match=text):
        fp.TiFL(3, odds=odds)


def test_clients_never_tried_are_profiled_first_and_whoever_never_answers_is_slowest():
    policy, clients, rng = fp.TiFL(3, tiers=2), fp.Clients(np.ones(9)), np.random.default_rng(0)
    state, seen = policy.init(clients), set()
    for t in range(1, 4):
        choice = policy.select(state, view(clients, t), rng)
        assert not seen & set(choice.ids.tolist())
        seen |= set(choice.ids.tolist())
        status = np.where(choice.ids == 4, FAILED, DONE)
        seconds = np.where(np.arange(9) == 4, np.nan, np.arange(9.0) + 1)
        state = policy.observe(state, view(clients, t), choice, told(choice, seconds, status=status))
    assert state.duration[4] == np.inf
    assert policy.tier_of(state)[4] == 1
    state = policy.observe(state, view(clients, 4), fp.Choice([4]), told(fp.Choice([4]), np.full(9, 0.5)))
    state = policy.observe(state, view(clients, 5), fp.Choice([4]), told(fp.Choice([4]), np.full(9, 1.5)))
    assert state.duration[4] == pytest.approx(1.0)  # the mean of what was heard
    assert policy.tier_of(state)[4] == 0


def test_a_tier_with_too_few_is_filled_up_from_the_nearest():
    policy, clients = fp.TiFL(4, tiers=3, times=np.arange(9.0) + 1), fp.Clients(np.ones(9))
    state = policy.init(clients)
    state.odds[:] = [1.0, 0.0, 0.0]
    available = np.array([True, False, False, True, True, True, True, True, True])
    ids = policy.select(state, view(clients, 1, available), np.random.default_rng(0)).ids
    assert 0 in ids
    assert len(ids) == 4
    assert set(ids.tolist()) <= {0, 3, 4, 5}


def test_the_tier_that_was_drawn_pays_and_is_compared_although_most_of_the_cohort_are_of_another():
    """Tier 0 is drawn and has one client there; a majority would take tier 1 for the one that was drawn."""
    seconds = np.arange(9.0) + 1
    policy, clients = fp.TiFL(4, tiers=3, interval=1, credits=(5, 5, 5), times=seconds), fp.Clients(np.ones(9))
    state, seen = policy.init(clients), view(clients, 1, np.array([True, False, False] + [True] * 3 + [False] * 3))
    state.odds[:], state.before[:] = [1.0, 0.0, 0.0], [0.5, 0.9, 0.1]
    choice = policy.select(state, seen, np.random.default_rng(0))
    assert choice.ids.tolist() == [0, 3, 4, 5]
    accuracy = np.where(np.arange(9) == 0, 0.8, 0.7)  # tier 0 has risen, tier 1 has fallen
    state = policy.observe(state, seen, choice, told(choice, seconds, accuracy))
    assert state.credits.tolist() == [4, 5, 5]
    assert state.odds.tolist() == [1.0, 0.0, 0.0]


def test_the_tier_that_was_drawn_survives_in_the_journal(tmp_path):
    """A server that was killed knows again which tier pays."""
    pytest.importorskip("filelock")  # the core alone has no session
    names, seconds = [f"c{i}" for i in range(9)], np.arange(9.0) + 1
    policy, states = fp.TiFL(4, tiers=3, interval=2, credits=(9, 9, 9)), []
    for rounds in ([1] * 8, [8]):
        for count in rounds:
            limits = fp.server.Limits(checkpoint_every=100)
            with fp.Session(policy, state=tmp_path / str(len(rounds)), limits=limits) as session:
                for _ in range(count):
                    there = [name for k, name in enumerate(names) if (k + session.round_number) % 4]
                    with session.round(names if session.round_number < 3 else there) as round:
                        for name in round.chosen:
                            round.done(name, loss=1.0, seconds=seconds[int(name[1:])])
        states.append(session.roster.state)
    np.testing.assert_array_equal(states[0].credits, states[1].credits)
    np.testing.assert_array_equal(states[0].odds, states[1].odds)
    assert states[0].credits.sum() < 27


def test_where_no_credits_are_left_they_do_not_count():
    policy, clients = fp.TiFL(1, tiers=2, credits=(0, 0), times=[1.0, 2.0]), fp.Clients(np.ones(2))
    assert len(policy.select(policy.init(clients), view(clients), np.random.default_rng(0))) == 1


def test_without_accuracies_the_loss_decides_and_nonsense_is_ignored():
    policy, clients = fp.TiFL(3, tiers=1), fp.Clients(np.ones(3))
    outcome = fp.Outcome([0, 0, 0], [1.0, 1.0, 1.0], [0.5, np.inf, 2.0])
    state = policy.observe(policy.init(clients), view(clients), fp.Choice([0, 1, 2]), outcome)
    np.testing.assert_array_equal(state.value, [-0.5, np.nan, -2.0])
    outcome = fp.Outcome([0, 0, 2], [1.0, np.nan, -1.0], [0.5, 0.5, 0.5], {"accuracy": [0.9, 1.7, 0.3]})
    state = policy.observe(policy.init(clients), view(clients), fp.Choice([0, 1, 2]), outcome)
    np.testing.assert_array_equal(state.value, [0.9, np.nan, np.nan])
    np.testing.assert_array_equal(state.duration, [1.0, np.inf, np.inf])


def test_newcomers_are_profiled_and_leavers_take_their_times_along():
    policy, clients = fp.TiFL(2, tiers=2), fp.Clients(np.ones(4))
    state = policy.init(clients)
    state.duration[:], state.timed[:], state.counts[:] = [4.0, 3.0, 2.0, 1.0], 1, 1
    state = fp.admit(policy, fp.retire(policy, state, [0, 3]), fp.Clients([1.0]))
    assert policy.tier_of(state).tolist() == [1, 0, -1]
    assert 2 in policy.select(state, view(fp.Clients(np.ones(3)), 9), np.random.default_rng(0)).ids


def test_flgos_fault_draws_with_replacement_hold_somebody_twice():
    """Cohorts of ten out of a tier of twenty."""
    policy, clients = fp.TiFL(10, tiers=1, times=np.ones(20)), fp.Clients(np.ones(20))
    state, ours, theirs = policy.init(clients), 0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        ours += len(np.unique(policy.select(state, view(clients), rng).ids)) < 10
        theirs += len(np.unique(rng.choice(20, 10))) < 10
    assert ours == 0
    assert theirs / 300 > 0.85


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tiers": 0}, "TiFL: tiers = 0, but must be a whole number >= 1"),
        ({"interval": 0}, "TiFL: interval = 0, but must be a whole number >= 1"),
        ({"credits": (1, 2)}, "TiFL: credits has 2 numbers, but there are 5 tiers: give one each"),
        ({"tiers": 1, "credits": (-1,)}, "TiFL: credits = -1, but must be a whole number >= 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(options, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.TiFL(**{"cohort_size": 2, **options})
