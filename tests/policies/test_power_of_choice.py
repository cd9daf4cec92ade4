"""Power-of-Choice against its pseudo-code, and what a liar can win."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from zoo import outcome, view

SIZES = np.array([5.0, 1.0, 2.0, 4.0, 3.0, 1.0])
CLIENTS = fp.Clients(SIZES)
LOSSES = np.array([0.3, 2.0, 1.0, 1.0, 0.1, 3.0])


def cohort_probabilities(losses, sizes, m, d):
    """Algorithm 1 by enumeration: P(cohort) over candidate draws by size and ties at random."""
    found = {}
    for order in itertools.permutations(range(len(sizes)), d):
        p, left = 1.0, sizes.sum()
        for client in order:
            p *= sizes[client] / left
            left -= sizes[client]
        tops = list(itertools.combinations(sorted(order), m))
        best = max(sorted(losses[list(s)].tolist(), reverse=True) for s in tops)
        ties = [s for s in tops if sorted(losses[list(s)].tolist(), reverse=True) == best]
        for s in ties:
            found[s] = found.get(s, 0.0) + p / len(ties)
    return found


def empirical(policy, state, seen, draws):
    counts, rng = {}, np.random.default_rng(3)
    for _ in range(draws):
        cohort = tuple(policy.select(state, seen, rng).ids.tolist())
        counts[cohort] = counts.get(cohort, 0) + 1
    return counts


@pytest.mark.parametrize(
    ("m", "d"), [(2, 4), *(pytest.param(*md, marks=pytest.mark.slow) for md in ((2, 2), (1, 3), (2, 6)))]
)
@pytest.mark.parametrize("variant", ["pow-d", "cpow-d", "rpow-d"])
def test_cohorts_come_as_often_as_the_pseudo_code_says(m, d, variant):
    policy = fp.PowerOfChoice(m, d, variant=variant)
    state = policy.init(CLIENTS)
    state.loss[:] = LOSSES  # what rpow-d has heard
    seen = view(CLIENTS, probe=lambda ids, batch=None: LOSSES[ids])
    draws = 4_000
    counts = empirical(policy, state, seen, draws)
    twin = cohort_probabilities(LOSSES, SIZES, m, d)
    assert set(counts) <= set(twin)
    for cohort, p in twin.items():
        assert abs(counts.get(cohort, 0) / draws - p) <= 4.5 * np.sqrt(max(p * (1 - p), 0.0) / draws) + 1e-12, cohort


def test_candidates_come_from_those_available_only():
    asked = []

    def probe(ids, batch=None):
        asked.append((ids.tolist(), batch))
        return LOSSES[ids]

    policy = fp.PowerOfChoice(2, 5, variant="cpow-d", batch=16)
    seen = view(CLIENTS, available=[1, 0, 1, 1, 0, 0], probe=probe)
    choice = policy.select(policy.init(CLIENTS), seen, np.random.default_rng(0))
    assert asked == [([0, 2, 3], 16)]  # d is cut to the three that are there
    assert choice.ids.tolist() == [2, 3]
    assert choice.inclusion is None


def test_pow_d_probes_the_full_loss():
    batches = []
    seen = view(CLIENTS, probe=lambda ids, batch=None: (batches.append(batch), LOSSES[ids])[1])
    policy = fp.PowerOfChoice(2, 4)
    policy.select(policy.init(CLIENTS), seen, np.random.default_rng(0))
    assert batches == [None]


def test_rpow_d_prefers_clients_not_yet_heard_then_their_last_loss():
    policy = fp.PowerOfChoice(2, 6, variant="rpow-d")
    state = policy.init(CLIENTS)
    seen, heard = view(CLIENTS, probe=None), []
    losses = iter([[0.5, 0.4], [0.3, 0.2], [0.9, 0.1]])
    for _ in range(3):
        choice = policy.select(state, seen, np.random.default_rng(1))
        heard += choice.ids.tolist()
        report = fp.Outcome([0, 0], [1.0, 1.0], next(losses))
        state = policy.observe(state, seen, choice, report)
    assert sorted(heard) == list(range(6))  # everybody once before anyone twice
    highest = np.argsort(state.loss)[-2:]
    assert set(policy.select(state, seen, np.random.default_rng(2)).ids) == set(highest)


@pytest.mark.parametrize(
    ("schedule", "points"),
    [
        (fp.schedules.Halving(30, every=10), {1: 30, 11: 15, 21: 7, 31: 4, 99: 4}),
        (fp.schedules.Step(30, 4, at=50), {50: 30, 51: 4, 999: 4}),
    ],
)
def test_adapow_d_falls_to_m_and_no_lower(schedule, points):
    policy = fp.PowerOfChoice(4, schedule=schedule)
    assert {round: policy.d(round) for round in points} == points


def test_the_default_is_two_candidates_a_place():
    assert fp.PowerOfChoice(7).d(1) == 14


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -np.inf, 1e300])
def test_a_client_that_reports_nonsense_ranks_last(nonsense):
    losses = LOSSES.copy()
    losses[5] = nonsense
    policy = fp.PowerOfChoice(5, 6)
    seen = view(CLIENTS, probe=lambda ids, batch=None: losses[ids])
    assert policy.select(policy.init(CLIENTS), seen, np.random.default_rng(0)).ids.tolist() == [0, 1, 2, 3, 4]


def test_clip_makes_a_liar_tie_with_the_top_instead_of_winning():
    clients = fp.Clients(np.ones(20))
    losses = np.linspace(1.0, 2.0, 20)
    losses[0] = 1e9  # possible, but a lie
    seen = view(clients, probe=lambda ids, batch=None: losses[ids])

    def share(policy):
        rng, state = np.random.default_rng(5), policy.init(clients)
        return np.mean([0 in policy.select(state, seen, rng).ids for _ in range(2_000)])

    assert share(fp.PowerOfChoice(1, 20)) == 1.0
    # Above the 0.8 quantile lie 4 of 20: they tie with the liar, which wins its quarter of one place.
    expected = 1 / 4
    assert abs(share(fp.PowerOfChoice(1, 20, clip=0.8)) - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / 2_000)


def test_a_client_that_always_fails_does_not_keep_its_place_as_unheard():
    policy = fp.PowerOfChoice(2, 6, variant="rpow-d")
    state, chosen = policy.init(CLIENTS), np.zeros(6, dtype=int)
    for round in range(1, 61):
        seen = view(CLIENTS, round, probe=None)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        failed = choice.ids == 0
        status = np.where(failed, fp.Status.FAILED, fp.Status.DONE)
        loss = np.where(failed, np.nan, 1.0 + 0.01 * round)
        state = policy.observe(state, seen, choice, fp.Outcome(status, np.ones(2), loss))
        chosen[choice.ids] += 1
    assert chosen[0] <= 2
    assert np.isfinite(state.loss).all()


@given(reports=st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, 2.5]), min_size=3, max_size=3))
def test_rpow_d_keeps_only_losses_that_can_be_one(reports):
    policy = fp.PowerOfChoice(3, variant="rpow-d")
    state = policy.init(CLIENTS)
    seen = view(CLIENTS)
    choice = policy.select(state, seen, np.random.default_rng(0))
    state = policy.observe(state, seen, choice, fp.Outcome([0, 0, 0], np.ones(3), reports))
    known = state.loss[choice.ids]
    assert np.isfinite(known).all()
    assert np.abs(known).max() <= 1e12


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: fp.PowerOfChoice(0), fp.SettingError, "PowerOfChoice: cohort_size = 0"),
        (
            lambda: fp.PowerOfChoice(5, 3),
            fp.SettingError,
            r"candidates = 3, but must be >= cohort_size = 5; .*\(d >= m\)",
        ),
        (lambda: fp.PowerOfChoice(5, variant="powd"), fp.UnknownNameError, "did you mean 'pow-d'\\?"),
        (lambda: fp.PowerOfChoice(5, clip=0.0), fp.SettingError, "clip = 0.0, but must be a number > 0 and <= 1"),
        (lambda: fp.PowerOfChoice(5, batch=0), fp.SettingError, "batch = 0, but must be a number >= 1"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_missing_or_misshapen_probe_is_named():
    policy = fp.PowerOfChoice(2)
    with pytest.raises(fp.MissingError, match=r"view\.probe is None; give the View a probe, or use variant='rpow-d'"):
        policy.select(policy.init(CLIENTS), view(CLIENTS, probe=None), np.random.default_rng(0))
    with pytest.raises(fp.ContractError, match=r"returned shape \(1,\) for 4 ids; return one loss per id"):
        policy.select(
            policy.init(CLIENTS), view(CLIENTS, probe=lambda ids, batch=None: [1.0]), np.random.default_rng(0)
        )


# ---- Active FL


def afl_inclusion(value, m, alpha1, alpha2, alpha3):
    """Algorithm 1 of Goetz et al. by enumeration: P(client in cohort), values distinct."""
    n = len(value)
    by_value = max(math.floor((1 - alpha3) * m + 1e-9), 1)  # as in the authors' code
    kept = np.argsort(value)[int(alpha1 * n) :]
    weights = np.exp(alpha2 * (value - value.max()))
    inclusion = np.zeros(n)
    for order in itertools.permutations(kept, by_value):
        p, left = 1.0, weights[kept].sum()
        for client in order:
            p *= weights[client] / left
            left -= weights[client]
        inclusion[list(order)] += p
        rest = [i for i in range(n) if i not in order]
        inclusion[rest] += p * (m - by_value) / len(rest)
    return inclusion


@pytest.mark.parametrize(
    ("m", "alpha3"),
    [
        (2, 0.5),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((3, 0.1), (3, 0.34), (2, 0.0), (2, 1.0), (1, 0.1))),
    ],
)
def test_active_fl_draws_as_its_algorithm_says(m, alpha3):
    value = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.5])
    policy = fp.ActiveFL(m, alpha1=0.5, alpha2=0.8, alpha3=alpha3)
    state, rng, draws = policy.init(CLIENTS), np.random.default_rng(2), 6_000
    state.value[:] = value
    counts = np.zeros(6)
    for _ in range(draws):
        counts[policy.select(state, view(CLIENTS), rng).ids] += 1
    p = afl_inclusion(value, m, 0.5, 0.8, alpha3)
    assert np.all(np.abs(counts / draws - p) <= 4.5 * np.sqrt(p * (1 - p) / draws) + 1e-12)


def test_active_fl_values_a_client_by_root_size_times_loss():
    policy = fp.ActiveFL(2)
    choice = fp.Choice([0, 3])
    state = policy.observe(policy.init(CLIENTS), view(CLIENTS), choice, fp.Outcome([0, 0], [1, 1], [0.5, 2.0]))
    np.testing.assert_allclose(state.value[[0, 3]], [0.5 * np.sqrt(5), 2 * np.sqrt(4)])
    assert np.isnan(state.value[[1, 2, 4, 5]]).all()


def test_active_fl_does_not_leave_out_the_unheard():
    policy = fp.ActiveFL(2, alpha1=0.5, alpha3=0.0)
    state = policy.init(CLIENTS)
    state.value[:3] = [1.0, 2.0, 3.0]  # the others are unheard and worth the most heard of
    rng = np.random.default_rng(0)
    chosen = {int(c) for _ in range(300) for c in policy.select(state, view(CLIENTS), rng).ids}
    assert chosen == {2, 3, 4, 5}


@pytest.mark.parametrize("lie", [np.nan, np.inf, -np.inf, 1e300, -1e300])
@pytest.mark.parametrize("policy", [fp.PowerOfChoice(3, 6, variant="rpow-d"), fp.ActiveFL(3)], ids=["rpow-d", "AFL"])
def test_a_loss_that_cannot_be_one_is_a_failure_and_raises_nobody(policy, lie):
    """Who reports it has the lowest standing of its cohort, as one that fails, and never more than it had."""
    clients = fp.Clients(np.full(6, 4.0))

    def standing(state):
        return state.loss if isinstance(policy, fp.PowerOfChoice) else state.value / 2.0  # the root of the size

    for status in (fp.Status.DONE, fp.Status.FAILED):
        state = policy.init(clients)
        report = fp.Outcome([0, 0, status], [1, 1, 1], [0.5, 2.0, lie])
        state = policy.observe(state, view(clients), fp.Choice([0, 1, 2]), report)
        assert standing(state)[:3].tolist() == [0.5, 2.0, 0.5]
        state = policy.observe(
            state, view(clients), fp.Choice([1, 2, 3]), fp.Outcome([0] * 3, [1] * 3, [3.0, lie, lie])
        )
        assert standing(state)[:4].tolist() == [0.5, 3.0, 0.5, 3.0]
        state = policy.observe(state, view(clients), fp.Choice([4, 5]), fp.Outcome([0, 0], [1, 1], [lie, lie]))
        assert standing(state).tolist() == [0.5, 3.0, 0.5, 3.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"alpha1": 1.5}, "alpha1 = 1.5, but must be a number >= 0 and <= 1"),
        ({"alpha2": -1}, "alpha2 = -1, but must be a number >= 0"),
        ({"alpha3": -0.1}, "alpha3 = -0.1, but must be a number >= 0 and <= 1"),
        ({"clip": 2}, "clip = 2, but must be a number > 0 and <= 1"),
    ],
)
def test_active_fl_errors(settings, says):
    with pytest.raises(fp.SettingError, match=says):
        fp.ActiveFL(5, **settings)


def test_outcomes_of_both_are_checked():
    for policy in (fp.PowerOfChoice(2), fp.ActiveFL(2)):
        choice = fp.Choice([0, 1])
        with pytest.raises(fp.ContractError, match="reports twice"):
            policy.observe(
                policy.init(CLIENTS), view(CLIENTS), fp.Choice([1, 1]), outcome(choice, np.random.default_rng(0))
            )
