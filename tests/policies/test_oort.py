"""Oort against Algorithm 1 of Lai et al. (2021), written out; and the faults of two public copies."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp

DONE, LATE, FAILED = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED


def view_of(round, clients, available=None):
    return fp.View(round, np.ones(len(clients), dtype=bool) if available is None else available, clients)


def outcome_of(count, rng, status=None):
    status = rng.choice([DONE, LATE, FAILED], count, p=[0.8, 0.1, 0.1]) if status is None else status
    return fp.Outcome(
        status, rng.uniform(1, 20, count), rng.gamma(2.0, size=count), {"squared_loss": rng.gamma(2.0, size=count)}
    )


class Twin:
    """Algorithm 1 with dictionaries; T in seconds, as printed. Who failed last has no utility and no duration."""

    def __init__(self, step, alpha, window, clip):
        self.U, self.D, self.L, self.count = {}, {}, {}, {}
        self.T, self.step, self.alpha, self.window, self.clip = step, step, alpha, window, clip
        self.history = []

    def feedback(self, round, sizes, ids, outcome):
        gained = 0.0
        for at, i in enumerate(ids.tolist()):
            self.L[i], self.count[i] = round, self.count.get(i, 0) + 1
            self.D[i] = outcome.duration[at]
            if outcome.status[at] == FAILED:
                self.D[i] = None
                self.U.pop(i, None)
            elif outcome.status[at] == DONE:
                self.U[i] = sizes[i] * math.sqrt(outcome.reports["squared_loss"][at])
        if any(outcome.status == DONE):
            limit = float(np.quantile(list(self.U.values()), self.clip))
            gained = sum(min(self.U[i], limit) for at, i in enumerate(ids.tolist()) if outcome.status[at] == DONE)
        self.history.append(gained)
        w = self.window
        if len(self.history) % w == 0 and len(self.history) >= w:
            before = self.history[-2 * w : -w] if len(self.history) >= 2 * w else []
            if sum(before) > sum(self.history[-w:]):
                self.T += self.step

    def util(self, ids, round):
        known = [self.U[i] for i in ids if i in self.U]
        low, limit = (min(known), float(np.quantile(known, self.clip))) if known else (0.0, 1.0)
        found = {}
        for i in ids:
            value = (min(self.U.get(i, low), limit) - low) / max(limit - low, 1e-300) if known else 0.0
            value += math.sqrt(0.1 * math.log(round) / self.L[i])
            took = max((d for d in self.D.values() if d is not None), default=0.0) if self.D[i] is None else self.D[i]
            if took > self.T:
                value *= (self.T / took) ** self.alpha
            found[i] = value
        return found


@pytest.mark.parametrize("seed", range(4))
def test_utilities_and_the_pacer_are_those_of_algorithm_1(seed):
    rng = np.random.default_rng(seed)
    clients = fp.Clients(rng.integers(5, 100, 25))
    policy = fp.Oort(6, step=4.0, window=3, clip=0.9)
    state, twin = policy.init(clients), Twin(4.0, 2.0, 3, 0.9)
    for t in range(1, 40):
        view = view_of(t, clients, rng.random(25) < 0.8)
        tried = [i for i in range(25) if view.available[i] and i in twin.L]
        if tried:
            wanted = twin.util(tried, t)
            found = policy.scores(state, np.array(tried), t)
            np.testing.assert_allclose(found, [wanted[i] for i in tried], rtol=1e-9, atol=1e-12)
        choice = policy.select(state, view, rng)
        outcome = outcome_of(len(choice), rng)
        state = policy.observe(state, view, choice, outcome)
        twin.feedback(t, clients.sizes, choice.ids, outcome)
        assert policy.preferred(state) == pytest.approx(twin.T)
    assert twin.T > 4.0  # the pacer has moved


def sequential(odds, places):
    """P(in the cohort) when `places` are drawn one after the other in proportion to odds."""
    inside = np.zeros(len(odds))
    for order in itertools.permutations(range(len(odds)), places):
        chance, left = 1.0, float(sum(odds))
        for i in order:
            chance, left = chance * odds[i] / left, left - odds[i]
        inside[list(order)] += chance
    return inside


def test_the_exploited_are_drawn_by_utility_from_those_near_the_top():
    """First-order inclusion by enumeration, within four standard errors."""
    clients, draws = fp.Clients(np.ones(8)), 1500
    policy = fp.Oort(3, explore=0.0, explore_least=0.0, step=1e9, clip=1.0)
    state = policy.init(clients)
    state.counts[:], state.last[:], state.duration[:] = 1, 1, 1.0
    state.utility[:] = [0.0, 0.1, 0.5, 0.8, 0.9, 0.92, 0.97, 1.0]
    score = policy.scores(state, np.arange(8), 5)
    pool = np.flatnonzero(score >= 0.95 * np.sort(score)[-3])
    assert pool.tolist() == [4, 5, 6, 7]  # the third highest is at 0.92
    counts = np.zeros(8)
    rng = np.random.default_rng(0)
    for _ in range(draws):
        counts[policy.select(state, view_of(5, clients), rng).ids] += 1
    wanted = np.zeros(8)
    wanted[pool] = sequential(score[pool], 3)
    error = np.sqrt(wanted * (1 - wanted) / draws)
    assert (np.abs(counts / draws - wanted) <= 4 * error + 1e-12).all()


def test_the_explored_share_decays_to_its_floor_and_small_cohorts_explore_too():
    clients = fp.Clients(np.ones(4000))
    policy = fp.Oort(10)
    for t, share in ((1, 0.9), (20, 0.9 * 0.98**19), (500, 0.2)):
        state = policy.init(clients)
        state.counts[:2000], state.last[:2000], state.utility[:2000], state.duration[:2000] = 1, 1, 1.0, 1.0
        draws = [policy.select(state, view_of(t, clients), np.random.default_rng(s)).ids for s in range(100)]
        fresh = np.mean([(ids >= 2000).sum() for ids in draws])
        assert abs(fresh - 10 * share) <= 4 * 0.5 / math.sqrt(100)  # rounding at random: below 0.5 a draw
    alone, state.counts[:] = fp.Oort(1), np.arange(4000) < 2000
    draws = [alone.select(state, view_of(500, clients), np.random.default_rng(s)).ids[0] >= 2000 for s in range(200)]
    assert abs(np.mean(draws) - 0.2) <= 4 * math.sqrt(0.16 / 200)


def test_known_speeds_decide_who_is_explored():
    clients = fp.Clients(np.ones(3))
    policy, counts = fp.Oort(1, speed=[1.0, 2.0, 7.0]), np.zeros(3)
    for s in range(2000):
        counts[policy.select(policy.init(clients), view_of(1, clients), np.random.default_rng(s)).ids] += 1
    wanted = np.array([0.1, 0.2, 0.7])
    assert (np.abs(counts / 2000 - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / 2000)).all()


def test_slow_clients_are_punished_by_the_square_and_fairness_lifts_the_unused():
    clients = fp.Clients(np.ones(3))
    state = fp.Oort(1).init(clients)
    state.counts[:], state.last[:], state.utility[:], state.duration[:] = [4, 2, 1], 3, [1.0, 1.0, 0.0], [1.0, 8.0, 1.0]
    bonus = math.sqrt(0.1 * math.log(9) / 3)
    plain = fp.Oort(1, step=2.0).scores(state, np.arange(3), 9)
    np.testing.assert_allclose(plain, [1 + bonus, (1 + bonus) / 16, bonus])
    fair = fp.Oort(1, step=2.0, fairness=1.0).scores(state, np.arange(3), 9)
    np.testing.assert_allclose(fair, [0.0, 0.5, 0.75])
    half = fp.Oort(1, step=2.0, fairness=0.5).scores(state, np.arange(3), 9)
    np.testing.assert_allclose(half, (plain + fair) / 2)


def test_whoever_was_chosen_too_often_is_left_out_while_there_are_others():
    clients = fp.Clients(np.ones(6))
    policy = fp.Oort(2, at_most=4, excluded=1.0)
    state, rng = policy.init(clients), np.random.default_rng(0)
    for t in range(1, 9):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of(2, rng, [DONE, DONE]))
    assert state.counts.max() <= 4
    state.counts[:] = 9
    assert len(policy.select(state, view_of(13, clients), rng)) == 2  # nobody else is there


def test_at_most_three_in_ten_are_left_out_those_chosen_most_often():
    """As the authors' blacklist: with half of the clients at the limit, all but the most used can be chosen again."""
    clients, policy = fp.Clients(np.ones(20)), fp.Oort(14, at_most=5)
    state = policy.init(clients)
    state.last[:], state.utility[:], state.duration[:] = 1, 1.0, 1.0
    state.counts[:] = [9] * 3 + [6] * 7 + [1] * 10
    left_out = np.zeros(20)
    for seed in range(100):
        ids = policy.select(state, view_of(7, clients), np.random.default_rng(seed)).ids
        left_out[np.setdiff1d(np.arange(20), ids)] += 1
    assert left_out[:3].tolist() == [100] * 3  # the other three of six by lot
    assert left_out.sum() == 600
    assert left_out[10:].sum() == 0
    assert (np.abs(left_out[3:10] / 100 - 3 / 7) <= 4 * math.sqrt(12 / 49 / 100)).all()
    everyone = fp.Oort(14, at_most=5, excluded=0.0)
    assert len(everyone.select(state, view_of(7, clients), np.random.default_rng(0))) == 14


def test_who_answered_and_was_not_used_gets_the_mean_utility_by_size():
    """Its duration and the choice count, too; a client that was not waited for is no news."""
    clients, policy = fp.Clients([10, 30, 20, 20]), fp.Oort(2)
    spare = fp.Status.SURPLUS
    outcome = fp.Outcome([DONE, DONE, spare, spare], [1.0, 2.0, 3.0, np.nan], [2.0, 1.0, np.nan, np.nan])
    state = policy.observe(policy.init(clients), view_of(1, clients), fp.Choice([0, 1, 2, 3]), outcome)
    np.testing.assert_array_equal(state.utility, [20.0, 30.0, (10 * 20.0 + 30 * 30.0) / 40, np.nan])
    np.testing.assert_array_equal(state.duration, [1.0, 2.0, 3.0, np.nan])
    assert state.counts.tolist() == [1, 1, 1, 1]
    assert state.last.tolist() == [1, 1, 1, 0]


def test_without_the_report_the_mean_loss_stands_in_for_it():
    clients, policy = fp.Clients([10, 20]), fp.Oort(2)
    outcome = fp.Outcome([DONE, DONE], [1.0, 1.0], [3.0, 0.5])
    view = view_of(1, clients)
    state = policy.observe(policy.init(clients), view, fp.Choice([0, 1]), outcome)
    assert state.utility.tolist() == [30.0, 10.0]
    outcome = fp.Outcome([DONE, DONE], [1.0, 1.0], [3.0, 0.5], {"squared_loss": [16.0, np.nan]})
    state = policy.observe(policy.init(clients), view, fp.Choice([0, 1]), outcome)
    assert state.utility.tolist() == [40.0, 10.0]


def test_a_liar_counts_as_the_95th_percentile_and_no_more():
    clients = fp.Clients(np.ones(100))
    policy = fp.Oort(10, explore=0.0, explore_least=0.0)
    state = policy.init(clients)
    state.counts[:], state.last[:], state.duration[:] = 1, 1, 1.0
    state.utility[:] = np.linspace(1, 2, 100)
    state.utility[7] = 1e6
    score = policy.scores(state, np.arange(100), 2)
    assert score[7] == score.max() == pytest.approx(score[97])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    m=st.integers(1, 9),
    explore=st.sampled_from([0.0, 0.5, 1.0]),
    at_most=st.sampled_from([None, 1, 3]),
)
def test_cohorts_are_whole_distinct_and_there(seed, m, explore, at_most):
    rng = np.random.default_rng(seed)
    clients = fp.Clients(rng.integers(1, 50, 7))
    policy = fp.Oort(m, explore=explore, explore_least=0.0, window=2, at_most=at_most)
    state = policy.init(clients)
    for t in range(1, 12):
        view = view_of(t, clients, rng.random(7) < rng.random())
        choice = policy.select(state, view, rng)
        assert len(np.unique(choice.ids)) == len(choice) == min(m, int(view.available.sum()))
        assert view.available[choice.ids].all()
        state = policy.observe(state, view, choice, outcome_of(len(choice), rng))
    assert (state.counts.sum() > 0) == (state.last.max() > 0)


def test_newcomers_are_explored_and_leavers_take_their_history_along():
    rng, policy = np.random.default_rng(0), fp.Oort(3)
    clients = fp.Clients(np.arange(1.0, 7.0))
    state = policy.init(clients)
    for t in range(1, 9):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of(3, rng))
    kept = [state.utility[[1, 4]].copy(), state.last[[1, 4]].copy()]
    state = fp.retire(policy, state, [1, 4])
    np.testing.assert_array_equal(state.utility, kept[0])
    state = fp.admit(policy, state, fp.Clients([9.0, 9.0]))
    assert state.last.tolist() == [*kept[1].tolist(), 0, 0]
    explorer = fp.Oort(2, explore=1.0, explore_least=1.0)
    assert explorer.select(state, view_of(9, fp.Clients(np.ones(4))), rng).ids.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cohort_size": 0}, "Oort: cohort_size = 0, but must be a whole number >= 1"),
        ({"alpha": -1.0}, r"Oort: alpha = -1\.0, but must be a number >= 0"),
        ({"explore": 1.5}, r"Oort: explore = 1\.5, but must be a number >= 0 and <= 1"),
        ({"clip": 0.0}, r"Oort: clip = 0\.0, but must be a number > 0 and <= 1"),
        ({"window": 0}, "Oort: window = 0, but must be a whole number >= 1"),
        ({"step": 0.0}, r"Oort: step = 0\.0, but must be a number > 0"),
        ({"at_most": 0}, "Oort: at_most = 0, but must be a whole number >= 1"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(options, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.Oort(**{"cohort_size": 2, **options})


# ---- faults of public copies: each test runs the faulty rule too, and shows that it fails


class NeverExplored:
    """The rule of FedScale's copy: the unexplored are all registered clients, whether they are there or not."""

    def __init__(self, count, m):
        self.unexplored, self.m = list(range(count)), m

    def select(self, available, rng):
        explore = [int(i) for i in rng.choice(self.unexplored, self.m // 2, replace=False)]
        exploit = [int(i) for i in rng.choice(np.flatnonzero(available), self.m // 2, replace=False)]
        return explore + exploit


def test_fedscales_fault_the_explored_and_the_absent_are_chosen_again():
    rng, clients = np.random.default_rng(0), fp.Clients(np.ones(40))
    policy, faulty = fp.Oort(10, explore=0.5, explore_least=0.5, decay=1.0), NeverExplored(40, 10)
    state, wrong, tried_again, explored = policy.init(clients), 0, 0, set()
    for t in range(1, 60):
        view = view_of(t, clients, rng.random(40) < 0.5)
        choice = policy.select(state, view, rng)
        fresh = choice.ids[state.counts[choice.ids] == 0]
        tried_again += len(explored & set(fresh.tolist()))
        explored |= set(fresh.tolist())
        assert view.available[choice.ids].all()
        assert len(np.unique(choice.ids)) == len(choice) == min(10, view.available.sum())
        state = policy.observe(state, view, choice, outcome_of(len(choice), rng, [FAILED] * len(choice)))
        theirs = faulty.select(view.available, rng)
        wrong += (~view.available[theirs]).sum() + len(theirs) - len(set(theirs))
    assert tried_again == 0  # explored once, also those who failed
    assert explored == set(range(40))
    assert wrong > 59  # the faulty rule: somebody away or twice in a cohort, every round and more


def test_platos_fault_a_bonus_frozen_at_the_last_participation_never_brings_anybody_back():
    """Client 0, worth more, takes part in every round; client 1 took part in the first."""
    policy = fp.Oort(1, step=1e9, clip=1.0)
    state = policy.init(fp.Clients(np.ones(2)))
    state.counts[:], state.duration[:], state.utility[:] = 1, 1.0, [1.0, 0.9]
    ours, theirs = [], []
    for t in np.unique(np.geomspace(2, 1e6, 60).astype(int)):
        state.last[:] = [t - 1, 1]
        ours.append(int(policy.scores(state, np.arange(2), int(t)).argmax()))
        frozen = np.array([1.0, 0.0]) + np.sqrt(0.1 * np.log(state.last) / state.last)
        theirs.append(int(frozen.argmax()))
    assert set(theirs) == {0}
    assert (ours[0], ours[-1]) == (0, 1)
    assert ours == sorted(ours)
