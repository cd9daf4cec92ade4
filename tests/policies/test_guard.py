"""Guard: its rule against a twin in plain Python, what it promises whatever is reported, and that it composes."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.engine.weights import bases
from zoo import outcome, some_slow, view, zoo

DONE, LATE, FAILED, SURPLUS = fp.Status
LEVEL = 0.005  # of the docstring


class Twin:
    """The rule as the docstring says it, one client at a time; keeps who may be chosen."""

    def __init__(self, count, asks, cap, window, probation):
        self.asks, self.cap, self.window, self.probation = asks, cap, window, probation
        self.used, self.failures, self.until = [0.0] * count, [-1] * count, [0] * count

    def allowed(self, there, round):
        good = [k for k in there if self.used[k] <= 1e-9 and self.until[k] < round]
        capped = [k for k in there if self.used[k] > 1e-9 and self.until[k] < round]
        waiting = [k for k in there if self.until[k] >= round]
        for others, rank in ((capped, self.used), (waiting, self.until)):
            short = self.asks - len(good)
            if short > 0 and others:
                last = sorted(rank[k] for k in others)[min(short, len(others)) - 1]
                good += [k for k in others if rank[k] <= last]
        return sorted(good)

    def learn(self, there, round, chosen, failed):
        share = self.cap * self.asks / max(len(there), 1)
        self.used = [max(value - share, -share * self.window) for value in self.used]
        for k, bad in zip(chosen, failed, strict=True):
            self.used[k] += 1.0
            self.failures[k] = max(self.failures[k], 0) + 1 if bad else 0
        asked = [count for count in self.failures if count >= 0]
        usual = (sum(count > 0 for count in asked) + 1) / (len(asked) + 2)
        for k, bad in zip(chosen, failed, strict=True):
            self.until[k] = 0
            if bad and usual ** self.failures[k] <= LEVEL:
                least = next(f for f in range(1, 10**6) if usual**f <= LEVEL)
                turns = min(2 ** (self.failures[k] - least + 1), self.probation)
                self.until[k] = round + math.floor(len(there) / self.asks * turns)


def clipped_twin(losses):
    """Losses of a cohort, clipped as the docstring says."""
    real = sorted(x for x in losses if abs(x) <= 1e12)
    if len(real) < 4:
        return losses

    def quantile(q):
        at = q * (len(real) - 1)
        below = math.floor(at)
        return real[below] + (at - below) * (real[min(below + 1, len(real) - 1)] - real[below])

    bound = quantile(0.5) + 4.0 * (quantile(0.5) - quantile(0.25))
    return [min(x, bound) if abs(x) <= 1e12 else x for x in losses]


class Spy(fp.Uniform):
    """Uniform, and what it was shown."""

    seen: list = []  # noqa: RUF012

    def select(self, state, view, rng):
        self.seen.append(np.flatnonzero(view.available).tolist())
        return super().select(state, view, rng)

    def observe(self, state, view, choice, outcome):
        self.seen.append((np.flatnonzero(view.available).tolist(), outcome.loss.tolist()))
        return super().observe(state, view, choice, outcome)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 6),
    cap=st.sampled_from([1.0, 1.3, 2.0, 5.0]),
    window=st.integers(0, 6),
    probation=st.sampled_from([0, 0.5, 2.0, 7.0]),
    fails=st.sampled_from([0.1, 0.4, 0.9]),
)
def test_it_shows_the_policy_whom_the_twin_would_and_clips_as_the_twin_does(seed, m, cap, window, probation, fails):
    count, rng = 12, np.random.default_rng(seed)
    policy, twin = fp.Guard(Spy(m), cap, window, probation), Twin(count, m, cap, window, probation)
    people = fp.Clients(np.ones(count))
    state = policy.init(people)
    for round in range(1, 40):
        there = np.flatnonzero(rng.random(count) < rng.choice([0.2, 0.7, 1.0]))
        seen = fp.View(round, np.isin(np.arange(count), there), people)
        Spy.seen.clear()
        choice = policy.select(state, seen, fp.rng.stream(seed, round, "policy"))
        allowed = twin.allowed(there.tolist(), round)
        assert Spy.seen == [allowed]
        losses = rng.choice([0.1, 0.5, 0.9, 1.0, 3.0, 1e9, np.inf, np.nan], len(choice))
        status = rng.choice([DONE, LATE, SURPLUS], len(choice), p=[(1 - fails) / 2, fails, (1 - fails) / 2])
        status = np.where(choice.ids < 2, FAILED, status)  # two that never answer
        state = policy.observe(state, seen, choice, fp.Outcome(status, np.ones(len(choice)), losses))
        good = [s in (DONE, SURPLUS) for s in status]
        told = iter(clipped_twin([x for x, ok in zip(losses, good, strict=True) if ok]))
        due = [next(told) if ok else x for x, ok in zip(losses, good, strict=True)]
        assert Spy.seen[1][0] == allowed
        np.testing.assert_allclose(Spy.seen[1][1], due, rtol=1e-12)
        failed = [not ok or x == np.inf for ok, x in zip(good, losses, strict=True)]
        twin.learn(there.tolist(), round, choice.ids.tolist(), failed)
        np.testing.assert_allclose(state.used, twin.used, atol=1e-9)
        assert state.until.tolist() == twin.until


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cap=st.sampled_from([1.5, 2.0, 3.0]), window=st.integers(0, 20))
def test_nobody_takes_more_than_the_cap_allows_over_any_stretch_of_rounds(seed, cap, window):
    """A policy that always wants the same three: at most cap t m/n places and one at first, later of t + window."""
    policy = fp.Guard(fp.FedCS(3, success=np.linspace(0.1, 0.9, 20)), cap=cap, window=window)
    people, rounds = fp.Clients(np.ones(20)), 80
    state, taken = policy.init(people), np.zeros((rounds + 1, 20))
    for round in range(1, rounds + 1):
        seen = fp.View(round, np.ones(20, dtype=bool), people)
        choice = policy.select(state, seen, fp.rng.stream(seed, round, "policy"))
        taken[round] = taken[round - 1]
        taken[round, choice.ids] += 1
        state = policy.observe(state, seen, choice, fp.Outcome([0] * 3, np.ones(3), np.ones(3)))
    since = np.arange(1, rounds + 1)[:, None]  # the first round, without anything in advance
    assert (taken[1:] <= cap * since * 3 / 20 + 1 + 1e-9).all()
    for begin in range(rounds):
        stretch = np.arange(1, rounds + 1 - begin)[:, None]
        places = taken[begin + 1 :] - taken[begin]
        assert (places <= cap * (stretch + window) * 3 / 20 + 1 + 1e-9).all()


def test_a_policy_without_a_cohort_size_has_no_cap():
    class Everyone(fp.Uniform):
        """Whoever is available."""

        cohort_size = None

        def __init__(self):
            pass

        def select(self, state, view, rng):
            return fp.Choice(np.flatnonzero(view.available))

    for window in (0, 50):
        policy, people = fp.Guard(Everyone(), window=window), fp.Clients(np.ones(6))
        state = policy.init(people)
        for round in range(1, 6):
            seen = fp.View(round, np.ones(6, dtype=bool), people)
            choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
            assert len(choice) == 6
            state = policy.observe(state, seen, choice, fp.Outcome([0] * 6, np.ones(6), np.ones(6)))


def test_a_client_drawn_three_times_has_taken_three_places():
    policy, people = fp.Guard(fp.SizeWeighted(3), window=0), fp.Clients(np.ones(10))
    seen, once = fp.View(1, np.ones(10, dtype=bool), people), np.zeros(1)
    choice = fp.Choice([4], weights=[3.0], copies=np.array([3]))
    assert policy.observe(policy.init(people), seen, choice, fp.Outcome([0], once + 1, once)).used[4] == 3.0


SIZES = st.lists(st.floats(0.1, 1e3), min_size=2, max_size=30)


def usual(values):
    """The lower median of the positive ones."""
    real = sorted(x for x in values if x > 0)
    return real[(len(real) - 1) // 2]


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, liars=st.lists(st.floats(1e3, 1e15), max_size=20), weight=st.sampled_from([1.0, 1.5, 4.0]))
def test_no_declared_size_is_seen_or_weighed_as_more_than_the_limit(sizes, liars, weight):
    """What the policy inside sees, what it weighs, and what is left to the aggregator; liars are at most half."""
    sizes, liars = np.array([*sizes, *liars[: len(sizes)]]), len(liars[: len(sizes)])
    people, count, shown = fp.Clients(sizes), len(sizes), []

    class Sees(fp.Uniform):
        """Uniform with the sizes as weights."""

        def select(self, state, view, rng):
            shown.append(view.clients.sizes)
            ids = super().select(state, view, rng).ids
            return fp.Choice(ids, weights=view.clients.sizes[ids] ** 2)

    seen, rng = fp.View(1, np.ones(count, dtype=bool), people), fp.rng.stream(0, 1, "policy")
    policy = fp.Guard(Sees(count), weight=weight)
    choice = policy.select(policy.init(people), seen, rng)
    np.testing.assert_array_equal(shown[0], np.minimum(sizes, weight * usual(sizes)))
    assert shown[0].max() <= weight * sizes[: count - liars].max()  # whatever liars say
    squares = (shown[0] ** 2)[choice.ids]
    np.testing.assert_array_equal(choice.weights, np.minimum(squares, weight * usual(squares)))
    left = fp.Guard(fp.Uniform(count), weight=weight)
    choice = left.select(left.init(people), seen, rng)
    assert choice.weights is None
    np.testing.assert_array_equal(bases(choice, sizes), np.minimum(sizes, weight * usual(sizes))[choice.ids])
    free = fp.Guard(fp.Uniform(count), weight=None)
    assert free.select(free.init(people), seen, rng).most is None


def test_sizes_of_an_honest_fleet_within_the_limit_are_the_very_same():
    people = fp.Clients(np.linspace(80.0, 120.0, 9))
    policy = fp.Guard(fp.Uniform(4))
    assert policy._sized(people) is people


def played(policy, rounds, fails, count=32, seed=0):
    """Rounds in which everyone is there and client k fails in round r if fails(r, k): who was asked, and the state."""
    people, asked = fp.Clients(np.ones(count)), np.zeros((rounds + 1, count), dtype=bool)
    state = policy.init(people)
    for round in range(1, rounds + 1):
        seen = fp.View(round, np.ones(count, dtype=bool), people)
        choice = policy.select(state, seen, fp.rng.stream(seed, round, "policy"))
        asked[round, choice.ids] = True
        status = [FAILED if fails(round, k) else DONE for k in choice.ids]
        state = policy.observe(state, seen, choice, fp.Outcome(status, np.ones(len(choice)), np.ones(len(choice))))
    return asked, state


def test_who_keeps_failing_is_asked_less_and_less_but_never_never():
    """Client 0, always wanted, fails from round 101 to 450: of 32 that answered, q = 2/34: two in a row are rare."""

    class Wants(fp.Uniform):
        """Uniform, and client 0 if it is there."""

        def select(self, state, view, rng):
            ids = super().select(state, view, rng).ids
            return fp.Choice(np.unique(np.append(ids[1:], 0)) if view.available[0] else ids)

    policy = fp.Guard(Wants(4), cap=16.0, probation=6)  # n/m is 8
    asked, state = played(policy, 500, lambda round, k: k == 0 and 100 < round <= 450)
    assert (state.failures >= 0).all()
    rounds = np.flatnonzero(asked[:, 0])
    since = rounds[rounds > 100]
    assert since[:2].tolist() == [101, 102]
    assert np.diff(since[since < 451])[1:6].tolist() == [17, 33, 49, 49, 49]  # 2, 4, then 6 times n/m; never more
    back = rounds[rounds > 450]
    assert back.tolist() == list(range(back[0], 501))  # one success, and it is as good as anybody


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fails=st.sampled_from([0.5, 0.8, 1.0]))
def test_nobody_waits_for_failures_that_everybody_has(seed, fails):
    """A fraction `fails` of all answers is lost, whoever it is: among 25 turns each, few have so many in a row."""
    lost = np.random.default_rng(seed).random((201, 32)) < fails
    _, state = played(fp.Guard(fp.Uniform(4)), 200, lambda round, k: lost[round, k], seed=seed)
    assert (state.until > 0).sum() <= (0 if fails == 1.0 else 3)  # of 32, each with a probability of about 0.005


def test_whoever_is_within_its_share_and_reliable_is_chosen_as_without_a_guard():
    """With a cap of all places, so that nobody's share is used up."""
    people = fp.Clients(np.ones(30))
    for bare in (fp.Uniform(5), fp.E3CS(5, quota=0.5)):
        guarded = fp.Guard(bare, cap=6.0)
        state, inside = guarded.init(people), bare.init(people)
        for round in range(1, 20):
            seen = fp.View(round, np.ones(30, dtype=bool), people)
            a = guarded.select(state, seen, fp.rng.stream(0, round, "policy"))
            b = bare.select(inside, seen, fp.rng.stream(0, round, "policy"))
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.inclusion, b.inclusion)
            told = fp.Outcome(np.zeros(5, dtype=int), np.ones(5), np.ones(5))
            state, inside = guarded.observe(state, seen, a, told), bare.observe(inside, seen, b, told)


def test_inclusion_is_the_chance_of_being_chosen():
    """Drawn 1,000 times from one state in which some are capped and some on probation."""
    people, policy = fp.Clients(np.ones(15)), fp.Guard(fp.E3CS(4, quota=0.3), cap=1.2, window=2)
    state, rng = policy.init(people), np.random.default_rng(3)
    for round in range(1, 30):
        seen = fp.View(round, rng.random(15) < 0.9, people)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        state = policy.observe(state, seen, choice, outcome(choice, rng))
    seen, counts, draws = fp.View(30, np.ones(15, dtype=bool), people), np.zeros(15), 1000
    told = np.zeros(15)
    for i in range(draws):
        choice = policy.select(state, seen, fp.rng.stream(i, 30, "policy"))
        counts[choice.ids] += 1
        told[choice.ids] = choice.inclusion
    assert (counts == 0).any()  # some are left out, and nothing is said of them
    assert np.abs(counts / draws - told).max() <= 4.5 * np.sqrt(0.25 / draws)


def test_a_probed_lie_is_worth_no_more_than_the_bound():
    people = fp.Clients(np.ones(8))
    losses = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e9, np.nan, 1e300])
    asked = {}

    class Probes(fp.Uniform):
        def select(self, state, view, rng):
            asked["losses"] = view.probe(np.arange(8))
            return super().select(state, view, rng)

    policy = fp.Guard(Probes(2))
    seen = view(people, probe=lambda ids, batch=None: losses[ids])
    policy.select(policy.init(people), seen, fp.rng.stream(0, 1, "policy"))
    bound = 3.5 + 4 * (3.5 - 2.25)
    np.testing.assert_allclose(asked["losses"], [1, 2, 3, 4, 5, bound, np.nan, 1e300])


def test_the_policy_inside_says_on_how_many_examples_it_probes():
    people, asked = fp.Clients(np.ones(9)), []

    def probe(ids, batch=None):
        asked.append(batch)
        return np.ones(len(ids))

    for variant in ("pow-d", "cpow-d"):
        policy = fp.Guard(fp.PowerOfChoice(2, 5, variant=variant, batch=7))
        policy.select(policy.init(people), view(people, probe=probe), np.random.default_rng(0))
    assert asked == [None, 7]


@pytest.mark.parametrize("name", some_slow((n for n, p in zoo(4).items() if not isinstance(p, fp.Guard)), quick=4))
def test_any_policy_can_be_guarded_and_its_traits_stay(name):
    bare = zoo(4)[name]
    guarded = fp.Guard(bare, cap=1.2, window=1)
    assert fp.traits(guarded) == fp.traits(bare)
    assert len(fp.checks.check_policy(guarded, rounds=6)) == 13


def test_over_selection_widens_the_policy_inside_a_guard():
    policy = fp.OverSelect(fp.Guard(fp.Uniform(10)), 1.3)
    state = policy.init(fp.Clients(np.ones(50)))
    seen = fp.View(1, np.ones(50, dtype=bool), fp.Clients(np.ones(50)))
    assert len(policy.select(state, seen, fp.rng.stream(0, 1, "policy"))) == 13
    text = "over-select(guard(e3cs(quota=0.5), cap=2, probation=3), 1.3)"
    made = fp.policy(text, cohort_size=10)
    assert made == fp.OverSelect(fp.Guard(fp.E3CS(10, quota=0.5), cap=2, probation=3), 1.3)
    assert fp.policy("guard(fedcs(success=[1, 0]))", cohort_size=1).policy.cohort_size == 1


def test_state_is_saved_and_two_guards_are_two_kinds(tmp_path):
    people, policy = fp.Clients(np.ones(9)), fp.Guard(fp.BSFL(2))
    state, rng = policy.init(people), np.random.default_rng(0)
    for round in range(1, 9):
        seen = fp.View(round, np.ones(9, dtype=bool), people)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        state = policy.observe(state, seen, choice, outcome(choice, rng))
    fp.save_state(policy, state, tmp_path / "state.npz")
    loaded, _ = fp.load_state(policy, tmp_path / "state.npz", people)
    np.testing.assert_array_equal(loaded.used, state.used)
    np.testing.assert_array_equal(loaded.inner.speed.counts, copy.deepcopy(state.inner.speed.counts))
    with pytest.raises(fp.StateError, match=r"holds the state of Guard\(BSFL\), but the policy is Guard\(CSUCB\)"):
        fp.load_state(fp.Guard(fp.CSUCB(2)), tmp_path / "state.npz", people)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fp.Guard(fp.Uniform(2), cap=0.5), "Guard: cap = 0.5, but must be a number >= 1"),
        (lambda: fp.Guard(fp.Uniform(2), window=-1), "Guard: window = -1, but must be a whole number >= 0"),
        (lambda: fp.Guard(fp.Uniform(2), probation=-1), "Guard: probation = -1, but must be a number >= 0"),
        (lambda: fp.Guard(fp.Uniform(2), weight=0.5), "Guard: weight = 0.5, but must be a number >= 1"),
        (lambda: fp.Guard(object()), r"which has no init\(\), but must be a policy"),
    ],
)
def test_errors(make, says):
    with pytest.raises(fp.SettingError, match=says):
        make()
