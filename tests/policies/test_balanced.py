"""Balanced against brute force over all cohorts, its bound of participation, and what failures and lies can do."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies import balanced
from zoo import outcome, view

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


# The slow twin ------------------------------------------------------------------------------------------------------


class Twin:
    """The page's rule in plain Python: shares, durations, deviations of data, and the objective of a cohort."""

    def __init__(self, K, m, speed, mix, shares=None):
        self.K, self.m, self.speed, self.mix = K, m, speed, mix
        self.owed, self.seconds, self.heard = [0.0] * K, [None] * K, [0] * K
        self.shares = shares  # rows that describe each client's data

    def slowness(self, k):
        known = [s for s in self.seconds if s is not None]
        if self.seconds[k] is None:
            return 1.0
        return min(self.seconds[k] / float(np.median(known)), 5.0)

    def deviations(self, there):
        mean = [sum(column) / self.K for column in zip(*self.shares, strict=True)]
        apart = {k: [x - y for x, y in zip(self.shares[k], mean, strict=True)] for k in there}
        usual = float(np.median([math.hypot(*apart[k]) for k in there]))
        return {k: [x / max(usual, math.hypot(*row) / 3.0) for x in row] for k, row in apart.items()}

    def objective(self, cohort, apart=None):
        value = self.speed * self.m * max(map(self.slowness, cohort)) - sum(self.owed[k] for k in cohort)
        if apart is not None:
            total = [sum(column) for column in zip(*(apart[k] for k in cohort), strict=True)]
            value += self.mix * self.m * math.hypot(*total) / math.sqrt(self.m)
        return value

    def learn(self, there, cohort, status, duration):
        for k in there:
            self.owed[k] += len(cohort) / len(there)
        good = [d for s, d in zip(status, duration, strict=True) if s in (DONE, SURPLUS) and 0 < d <= 1e12]
        for k, s, d in zip(cohort, status, duration, strict=True):
            self.owed[k] -= 1.0
            possible = 0 < d <= 1e12
            if s == SURPLUS and math.isnan(d):
                continue
            if s in (DONE, SURPLUS) and possible:
                self.heard[k] += 1
                before = self.seconds[k] if self.heard[k] > 1 else d
                self.seconds[k] = before + (d - before) * max(1 / self.heard[k], 0.1)
            elif self.heard[k] == 0 and max([d] * possible + good, default=0.0) > 0.0:
                self.seconds[k] = max([d] * possible + good + [self.seconds[k] or 0.0])


def answers(rng, count):
    status = rng.choice([DONE, LATE, FAILED, SURPLUS], count, p=[0.7, 0.1, 0.1, 0.1])
    duration = rng.gamma(1.5, 4.0, count) * rng.choice([1.0, 30.0], count, p=[0.9, 0.1])
    duration[rng.random(count) < 0.15] = np.nan
    return status, duration


def play(policy, twin, clients, rounds, seed, check):
    """Both for some rounds with clients that come and go; `check` sees each choice before it is learned from."""
    rng, state = np.random.default_rng(seed), policy.init(clients)
    for t in range(1, rounds + 1):
        there = rng.random(len(clients)) < 0.75
        seen = fp.View(t, there, clients)
        choice = policy.select(state, seen, rng)
        ids = np.flatnonzero(there).tolist()
        assert len(choice) == len(set(choice.ids.tolist())) == min(policy.cohort_size, len(ids))
        assert there[choice.ids].all()
        if ids:
            check(ids, choice.ids.tolist())
        status, duration = answers(rng, len(choice))
        told = fp.Outcome(status, duration, np.ones(len(choice)))
        state = policy.observe(state, seen, choice, told)
        if ids:
            twin.learn(ids, choice.ids.tolist(), status.tolist(), duration.tolist())
        np.testing.assert_allclose(state.queue, twin.owed, atol=1e-9)
        known = [math.nan if s is None else s for s in twin.seconds]
        np.testing.assert_allclose(state.duration, known, rtol=1e-9)
    return state


@pytest.mark.parametrize("speed", [0.0, 0.2, 1.0])
def test_without_data_every_cohort_is_the_best_of_all(speed):
    K, m = 9, 3
    twin, trivial = Twin(K, m, speed, 0.0), [0, 0]

    def check(ids, chosen):
        size = min(m, len(ids))
        best = min(map(twin.objective, itertools.combinations(ids, size)))
        assert twin.objective(chosen) <= best + 1e-9
        fastest = sorted(ids, key=twin.slowness)[:size]
        longest = sorted(ids, key=lambda k: -twin.owed[k])[:size]
        trivial[0] += twin.objective(fastest) > best + 1e-9
        trivial[1] += twin.objective(longest) > best + 1e-9

    play(fp.Balanced(m, speed=speed, data="none"), twin, fp.Clients(np.ones(K)), 120, 0, check)
    assert trivial[0] > 40  # neither the fastest
    assert trivial[1] > 40 or speed == 0.0  # nor those owed most


def with_labels(K, seed, labels=4):
    counts = np.random.default_rng(seed).integers(0, 9, (K, labels)) ** 2
    counts[:, 0] += 1
    return fp.Clients(np.arange(1.0, K + 1.0), counts), counts / counts.sum(axis=1, keepdims=True)


def test_with_data_no_exchange_is_better_and_most_cohorts_are_the_best_of_all():
    K, m = 9, 3
    clients, shares = with_labels(K, 1)
    policy = fp.Balanced(m, speed=0.3, mix=1.0, data="labels")
    twin, best, rounds, loss = Twin(K, m, 0.3, 1.0, shares.tolist()), 0, 0, []

    def check(ids, chosen):
        nonlocal best, rounds
        if len(ids) <= m:
            return
        apart = twin.deviations(ids)
        value = twin.objective(chosen, apart)
        for out in chosen:
            for other in set(ids) - set(chosen):
                assert (
                    value <= twin.objective([other if k == out else k for k in chosen], apart) + balanced.LEAST + 1e-9
                )
        least = min(twin.objective(cohort, apart) for cohort in itertools.combinations(ids, m))
        rounds, best = rounds + 1, best + (value <= least + balanced.LEAST)
        loss.append(value - least)

    play(policy, twin, clients, 150, 2, check)
    assert best >= 0.8 * rounds  # of the rest, the mean loss is small
    assert np.mean(loss) <= 0.1


# Participation ------------------------------------------------------------------------------------------------------


def width(policy):
    """W of the page, with the tolerance of the search."""
    m = policy.cohort_size
    data = 2 * balanced.FARTHEST * policy.mix * math.sqrt(m) if policy.data != "none" else 0.0
    return policy.speed * m * balanced.SLOWEST + data + balanced.LEAST


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 4),
    speed=st.sampled_from([0.0, 0.1, 0.5]),
    data=st.sampled_from(["none", "labels"]),
)
def test_participation_stays_within_the_bound_whoever_is_there(seed, m, speed, data):
    """Also if those who are owed most are the ones that stay away, and the fast the ones that are there."""
    K, rng = 6, np.random.default_rng(seed)
    clients, _ = with_labels(K, seed)
    policy = fp.Balanced(m, speed=speed, mix=0.2, data=data)
    W, state, seconds = width(policy), policy.init(clients), rng.lognormal(0.0, 2.0, K)
    for t in range(1, 61):
        there = rng.random(K) < rng.random()
        if t % 3 == 0:
            there |= state.queue < np.median(state.queue)  # those ahead
        seen = fp.View(t, there, clients)
        choice = policy.select(state, seen, rng)
        out = np.setdiff1d(np.flatnonzero(there), choice.ids)
        if len(choice) and len(out):
            assert state.queue[out].max() - state.queue[choice.ids].min() <= W + 1e-9
        told = fp.Outcome(np.zeros(len(choice), int), seconds[choice.ids], np.ones(len(choice)))
        state = policy.observe(state, seen, choice, told)
        owed = np.sort(state.queue)[::-1].cumsum()[:-1]
        s = np.arange(1, K)
        assert (owed <= (W + 1) * s * (K - s) / 2 + 1e-9).all()  # the page's lemma
        assert np.abs(state.queue).max() <= (W + 1) * (K - 1) / 2 + 1e-9
        assert abs(state.queue.sum()) < 1e-9


def rounds_of(policy, seconds, rounds, seed=0, chance=1.0, noise=0.3, liar=None):
    """How often each was chosen, and the mean length of a round."""
    K = len(seconds)
    clients, rng = fp.Clients(np.ones(K)), np.random.default_rng(seed)
    state, counts, length = policy.init(clients), np.zeros(K), 0.0
    for t in range(1, rounds + 1):
        there = rng.random(K) < chance
        seen = fp.View(t, there, clients)
        choice = policy.select(state, seen, fp.rng.stream(seed, t, "policy"))
        counts[choice.ids] += 1
        took = seconds[choice.ids] * np.exp(noise * rng.normal(size=len(choice)))
        length += took.max(initial=0.0)
        if liar is not None:
            took = np.where(choice.ids == liar, 1e-6, took)
        state = policy.observe(state, seen, choice, fp.Outcome(np.zeros(len(choice), int), took, np.ones(len(choice))))
    return counts, length / rounds


@pytest.mark.parametrize("chance", [1.0, 0.5])
def test_rounds_are_shorter_and_everyone_takes_part(chance):
    seconds = np.random.default_rng(0).lognormal(0.0, 0.8, 40)
    usual = rounds_of(fp.Uniform(8), seconds, 200, chance=chance)
    ours = rounds_of(fp.Balanced(8, data="none"), seconds, 200, chance=chance)
    assert ours[1] < 0.85 * usual[1]
    jain = ours[0].sum() ** 2 / (40 * np.square(ours[0]).sum())
    assert jain > 0.99
    assert ours[0].min() > 0.8 * 40  # a fair share is 40


def test_clients_that_nothing_tells_apart_are_equally_likely():
    K, m, draws = 8, 2, 3000
    for policy in (fp.Balanced(m), fp.Balanced(m, data="labels", mix=1.0)):
        clients = fp.Clients(np.ones(K), np.tile([[5, 1], [1, 5]], (K // 2, 1)))
        state, rng, counts = policy.init(clients), np.random.default_rng(6), np.zeros(K)
        for _ in range(draws):
            ids = policy.select(state, view(clients), rng).ids
            counts[ids] += 1
            assert policy.data != "labels" or sum(ids % 2) == 1  # one of each kind
        assert np.abs(counts / draws - m / K).max() <= 4.5 * math.sqrt(m / K * (1 - m / K) / draws)


def test_the_number_of_a_client_does_not_matter():
    K, rng = 12, np.random.default_rng(4)
    clients, _ = with_labels(K, 3)
    order = rng.permutation(K)
    other = clients.take(order)
    for policy in (fp.Balanced(4, data="none"), fp.Balanced(4, data="labels")):
        states = [policy.init(clients), policy.init(other)]
        for state, place in zip(states, (np.arange(K), order), strict=True):
            draw = np.random.default_rng(9)
            state.queue[:] = draw.normal(size=K)[place]
            state.duration[:], state.timed[:] = draw.gamma(2.0, size=K)[place], 1
        first = policy.select(states[0], view(clients), np.random.default_rng(1)).ids
        second = policy.select(states[1], view(other), np.random.default_rng(1)).ids
        assert policy.data == "labels" or sorted(order[second]) == first.tolist()
        apart = [len(set(order[second]) ^ set(first))]
        assert max(apart) <= 2  # exchanges may end elsewhere, where their order differs


# Failures, newcomers, lies ------------------------------------------------------------------------------------------


def after(policy, clients, ids, status, duration, reports=None):
    state = policy.init(clients)
    told = fp.Outcome(np.array(status), np.array(duration), np.ones(len(ids)), reports or {})
    return policy.observe(state, view(clients), fp.Choice(ids), told)


def test_a_failure_never_looks_fast_and_is_no_duration_of_who_has_answered():
    clients, policy = fp.Clients(np.ones(8)), fp.Balanced(4, data="none")
    state = after(policy, clients, [0, 1, 2, 3, 4], [DONE, FAILED, LATE, DONE, FAILED], [3.0, 0.1, 9.0, np.nan, np.nan])
    np.testing.assert_array_equal(state.duration, [3.0, 3.0, 9.0, 3.0, 3.0, np.nan, np.nan, np.nan])
    again = fp.Outcome([FAILED, DONE, LATE], [50.0, 1.0, 20.0], [1.0] * 3)
    state = policy.observe(state, view(clients), fp.Choice([0, 1, 2]), again)
    assert state.duration[:4].tolist() == [3.0, 1.0, 20.0, 3.0]
    assert state.timed.tolist() == [1, 1] + [0] * 6
    none = after(policy, clients, [0, 1], [FAILED, FAILED], [np.nan, 0.0])
    assert np.isnan(none.duration).all()  # nobody answered: nothing is known


def test_who_was_not_waited_for_keeps_its_duration():
    clients, policy = fp.Clients(np.ones(4)), fp.Balanced(2, data="none")
    state = after(policy, clients, [0, 1], [DONE, SURPLUS], [3.0, np.nan])
    assert state.timed.tolist() == [1, 0, 0, 0]
    assert state.queue.tolist() == [-0.5, -0.5, 0.5, 0.5]


def test_a_client_whose_speed_changes_is_noticed():
    clients, policy = fp.Clients(np.ones(2)), fp.Balanced(2, data="none")
    state = policy.init(clients)
    for took in [1.0] * 50 + [5.0] * 30:
        state = policy.observe(state, view(clients), fp.Choice([0, 1]), fp.Outcome([0, 0], [took, 1.0], [1.0, 1.0]))
    assert state.duration[0] == pytest.approx(5.0, rel=0.05)
    assert state.duration[1] == 1.0


def test_newcomers_owe_nothing_and_are_owed_nothing():
    clients, policy = fp.Clients(np.ones(4)), fp.Balanced(2, data="none")
    state = fp.admit(policy, after(policy, clients, [0, 1], [DONE, DONE], [1.0, 2.0]), fp.Clients(np.ones(2)))
    assert state.queue.tolist() == [-0.5, -0.5, 0.5, 0.5, 0.0, 0.0]
    assert policy.select(state, view(fp.Clients(np.ones(6))), np.random.default_rng(0)).ids.tolist() == [2, 3]


@pytest.mark.parametrize("wrap", [lambda policy: policy, lambda policy: fp.Guard(policy)])
def test_a_client_that_seems_fast_gains_little(wrap):
    seconds = np.random.default_rng(1).lognormal(0.0, 0.8, 40)
    honest = rounds_of(wrap(fp.Balanced(8, data="none")), seconds, 150)
    lying = rounds_of(wrap(fp.Balanced(8, data="none")), seconds, 150, liar=int(np.argmax(seconds)))
    assert lying[0].max() <= 1.3 * 30  # its fair share is 30
    assert honest[0].max() <= 1.3 * 30


def test_one_endless_duration_does_not_hide_the_others():
    clients, policy = fp.Clients(np.ones(6)), fp.Balanced(2, data="none", speed=1.0)
    state = after(policy, clients, range(6), [DONE] * 6, [1.0, 1.0, 1.0, 3.0, 3.0, 1e11])
    assert policy._slowness(state, np.arange(6)).tolist() == [0.5, 0.5, 0.5, 1.5, 1.5, 5.0]
    assert set(policy.select(state, view(clients), np.random.default_rng(0)).ids) < {0, 1, 2}


# Data ---------------------------------------------------------------------------------------------------------------


def test_cohorts_are_more_like_everybody_than_uniform_ones():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(10, 0.2), 40)
    clients, mean = fp.Clients(np.ones(40), np.round(1000 * shares)), {}
    for policy in (fp.Balanced(8, data="labels"), fp.Uniform(8)):
        state, apart = policy.init(clients), []
        for t in range(1, 61):
            choice = policy.select(state, view(clients, t), rng)
            apart.append(np.linalg.norm(shares[choice.ids].mean(axis=0) - shares.mean(axis=0)))
            state = policy.observe(state, view(clients, t), choice, outcome(choice, rng))
        mean[type(policy).__name__] = np.mean(apart)
    assert mean["Balanced"] < 0.6 * mean["Uniform"]


def test_updates_tell_kinds_of_clients_apart():
    kinds, rng = np.repeat(np.arange(4), 5), np.random.default_rng(3)
    directions = rng.normal(size=(4, balanced.WIDTH))
    clients, policy = fp.Clients(np.ones(20)), fp.Balanced(4, mix=1.0)
    state, seen = policy.init(clients), []
    for t in range(1, 41):
        choice = policy.select(state, view(clients, t), rng)
        seen.append(len(set(kinds[choice.ids])))
        sketches = directions[kinds[choice.ids]] + 0.1 * rng.normal(size=(4, balanced.WIDTH))
        told = fp.Outcome(
            np.zeros(4, int), np.ones(4), np.ones(4), {balanced.REPORT: sketches * rng.gamma(2.0, size=(4, 1))}
        )
        state = policy.observe(state, view(clients, t), choice, told)
    assert np.mean(seen[10:]) > 3.7  # 2.9 of 4 kinds in a uniform cohort


def test_unusable_updates_are_ignored_and_others_wait_for_the_mean():
    clients, policy = fp.Clients(np.ones(5)), fp.Balanced(2)
    rows = np.ones((4, balanced.WIDTH))
    rows[1], rows[2, 0] = np.nan, 1e300
    state = after(policy, clients, [0, 1, 2, 3], [DONE, DONE, DONE, FAILED], [1.0] * 4, {balanced.REPORT: rows})
    assert np.isfinite(state.vectors).all(axis=1).tolist() == [True, False, False, False, False]


def test_among_many_those_owed_most_are_compared(monkeypatch):
    monkeypatch.setattr(balanced, "COMPARED", 10)
    clients, _ = with_labels(60, 5)
    policy = fp.Balanced(3, data="labels")
    state, rng = policy.init(clients), np.random.default_rng(0)
    state.queue[:] = rng.normal(size=60)
    state.duration[:], state.timed[:] = rng.gamma(2.0, size=60), 1
    chosen = policy.select(state, view(clients), rng).ids
    assert set(chosen) <= set(np.argsort(-state.queue)[:10])


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: fp.Balanced(0), "Balanced: cohort_size = 0, but must be a whole number >= 1"),
        (lambda: fp.Balanced(3, speed=-1.0), "Balanced: speed = -1.0, but must be a number >= 0"),
        (lambda: fp.Balanced(3, mix=np.nan), "Balanced: mix = nan, but must be a number >= 0"),
        (lambda: fp.Balanced(3, data="label"), "unknown source of data of Balanced 'label'; did you mean 'labels'"),
        (lambda: fp.Balanced(3, data="labels").init(fp.Clients(np.ones(4))), "Balanced needs Clients.labels"),
    ],
)
def test_mistakes_are_told(made, text):
    with pytest.raises(fp.FedpickError, match="^" + text.replace(".", r"\.")):
        made()
