"""weighted, multinomial_nr and with_replacement against the probabilities of successive draws, enumerated."""

import re
from collections import Counter
from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many import counted, exact_draws, sequential_draws

from fedpick import sampling
from fedpick.core.errors import ContractError

quick = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
DRAWS = 30_000


def assert_frequencies(counts, probabilities, draws):
    """Each count is binomial: within 4.5 of its standard errors (which is 0 where the probability is 0 or 1)."""
    for what, p in probabilities.items():
        error = (draws * p * (1 - p)) ** 0.5
        assert abs(counts.get(what, 0) - draws * p) <= 4.5 * error + 1e-9 * draws * p, (what, counts.get(what, 0), p)


def successive(weights, k):
    """P(S): one client after the other, each with its share of the weight of those that are left; all orders of S."""
    design = Counter()
    for order in permutations(range(len(weights)), k):
        probability, left = 1.0, sum(weights)
        for i in order:
            probability *= weights[i] / left
            left -= weights[i]
            if probability == 0.0:
                break
        design[tuple(sorted(order))] += probability
    return design


@pytest.mark.parametrize("draw", [sampling.weighted, sampling.multinomial_nr])
@pytest.mark.parametrize(
    ("weights", "k"),
    [
        ([1.0, 2.0, 3.0, 4.0, 10.0], 2),
        ([10.0, 4.0, 3.0, 2.0, 1.0], 2),  # the same the other way round: the reservoir starts with the heaviest
        ([1.0, 2.0, 3.0, 4.0, 10.0], 3),
        ([5.0, 0.0, 1.0, 0.0, 3.0], 2),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 2),
        ([0.5, 1e3, 1.0, 0.25, 0.125], 1),
        ([0.02, 50.0, 60.0, 0.01, 0.03], 4),
    ],
)
def test_every_subset_comes_as_often_as_in_successive_draws(draw, weights, k):
    counts = counted(sequential_draws(draw, weights, k, 2, DRAWS))
    twin = successive(weights, k)
    assert sum(twin.values()) == pytest.approx(1.0)
    assert_frequencies(counts, {s: min(twin[s], 1.0) for s in combinations(range(5), k)}, DRAWS)
    assert set(counts) <= {s for s in twin if twin[s] > 0.0}


wide = st.one_of(st.just(0.0), st.floats(-150.0, 150.0).map(lambda e: 10.0**e))


@quick
@given(st.lists(wide, max_size=30), st.data(), seeds)
def test_weighted_gives_k_distinct_sorted_clients_of_positive_weight(weights, data, seed):
    k = data.draw(st.integers(0, sum(w > 0.0 for w in weights)))
    cohort = sampling.weighted(weights, k, np.random.default_rng(seed))
    assert len(cohort) == k
    assert (np.diff(cohort) > 0).all()
    assert all(weights[i] > 0.0 for i in cohort)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e300])
def test_weighted_depends_on_the_ratios_of_the_weights_alone(scale):
    weights = np.array([1.0, 2.0, 4.0, 8.0, 0.5])
    draws = [
        [sampling.weighted(weights * s, 2, rng).tolist() for _ in range(200)]
        for s, rng in ((1.0, np.random.default_rng(3)), (2.0 ** round(np.log2(scale)), np.random.default_rng(3)))
    ]
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    "weights",
    [
        [1e300, 1.0, 1.0, 1.0],
        [1.0, 1.0, 1e300, 1.0],
        [1.0, 1e-300, 1e-300, 1e-300],
        [1.0, 1e-310, 1e-310, 1e-310],
        [1e300, 1e-300, 1e-300, 1e-300],
        [1e-300, 1e-300, 1e300, 1e-300],
    ],
    ids=str,
)
def test_beside_a_huge_weight_the_tiny_ones_share_the_second_place_evenly(weights):
    rng = np.random.default_rng(4)
    counts = Counter(tuple(sampling.weighted(weights, 2, rng).tolist()) for _ in range(6_000))
    huge = int(np.argmax(weights))
    assert_frequencies(counts, {tuple(sorted((huge, i))): 1 / 3 for i in range(4) if i != huge}, 6_000)
    assert sum(counts[tuple(sorted((huge, i)))] for i in range(4) if i != huge) == 6_000


@pytest.mark.parametrize("k", [1, 2, 3])
def test_weights_over_600_powers_of_ten_are_drawn_from_the_top(k):
    rng = np.random.default_rng(5)
    for _ in range(100):
        assert sampling.weighted([1e-300, 1e300, 0.0, 1.0, 1e-150], k, rng).tolist() == sorted([1, 3, 4][:k])


# The papers' draw is not what they say -----------------------------------------------------------------------------

SURE, OTHERS, K_DRAWN = 4, 36, 6
E3CS_P = np.array([1.0] * SURE + [(K_DRAWN - SURE) / OTHERS] * OTHERS)  # sums to 6


@cache
def expected_others(sure, others, draws):
    """Expected number of clients with small p among `draws` successive draws."""
    if draws == 0:
        return 0.0
    small = others * E3CS_P[-1]
    hit = small / (small + sure)
    small_next = hit * (1.0 + expected_others(sure, others - 1, draws - 1))
    return small_next + ((1.0 - hit) * expected_others(sure - 1, others, draws - 1) if sure else 0.0)


@pytest.fixture(scope="module")
def e3cs_counts():
    cohorts = {
        "multinomial": sequential_draws(sampling.multinomial_nr, E3CS_P, K_DRAWN, 6, DRAWS),
        "pivotal": exact_draws(sampling.pivotal, E3CS_P, 6, DRAWS),
    }
    return {name: np.bincount(drawn.ravel(), minlength=len(E3CS_P)) for name, drawn in cohorts.items()}


def test_multinomial_nr_leaves_out_sure_clients_and_takes_improbable_ones_too_often(e3cs_counts):
    frequency = e3cs_counts["multinomial"] / DRAWS
    error = np.sqrt(frequency * (1.0 - frequency) / DRAWS)
    assert (frequency[:SURE] < 1.0 - 4.5 * error[:SURE]).all()
    assert (frequency[SURE:] > E3CS_P[SURE:] + 4.5 * error[SURE:]).all()


def test_multinomial_nr_is_off_by_what_the_recursion_over_successive_draws_says(e3cs_counts):
    small = expected_others(SURE, OTHERS, K_DRAWN)
    twin = [(K_DRAWN - small) / SURE] * SURE + [small / OTHERS] * OTHERS
    assert_frequencies(dict(enumerate(e3cs_counts["multinomial"])), dict(enumerate(twin)), DRAWS)


def test_pivotal_keeps_the_promise_on_the_same_probabilities(e3cs_counts):
    assert_frequencies(dict(enumerate(e3cs_counts["pivotal"])), dict(enumerate(E3CS_P)), DRAWS)


# With replacement --------------------------------------------------------------------------------------------------


def test_with_replacement_every_count_is_the_multinomial_one():
    weights = np.array([3.0, 0.0, 1.0, 0.5, 5.5])
    rng = np.random.default_rng(7)
    counts = np.bincount(sampling.with_replacement(weights, 100_000, rng), minlength=5)
    assert counts.sum() == 100_000
    assert_frequencies(dict(enumerate(counts)), dict(enumerate(weights / weights.sum())), 100_000)


def test_with_replacement_the_draws_of_one_cohort_are_independent():
    q = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(8)
    counts = Counter(tuple(sorted(sampling.with_replacement(q * 7.0, 2, rng).tolist())) for _ in range(DRAWS))
    twin = {(i, j): q[i] * q[j] * (1 if i == j else 2) for i in range(3) for j in range(i, 3)}
    assert_frequencies(counts, twin, DRAWS)


@quick
@given(st.lists(wide, min_size=1, max_size=30).filter(any), st.integers(0, 50), seeds)
def test_with_replacement_gives_k_clients_of_positive_weight(weights, k, seed):
    cohort = sampling.with_replacement(weights, k, np.random.default_rng(seed))
    assert len(cohort) == k
    assert all(weights[i] > 0.0 for i in cohort)


def test_with_replacement_works_where_the_weights_sum_beyond_the_largest_float():
    rng = np.random.default_rng(9)
    counts = np.bincount(sampling.with_replacement([1e308, 0.0, 1e308, 1e308, 5e-324], 30_000, rng), minlength=5)
    assert_frequencies(dict(enumerate(counts)), {0: 1 / 3, 1: 0.0, 2: 1 / 3, 3: 1 / 3, 4: 0.0}, 30_000)


# Edges and errors --------------------------------------------------------------------------------------------------

every = pytest.mark.parametrize("draw", [sampling.weighted, sampling.multinomial_nr, sampling.with_replacement])


@every
@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, 2.0]])
def test_k_0_draws_nobody(draw, weights):
    cohort = draw(weights, 0, np.random.default_rng(0))
    assert cohort.tolist() == []
    assert np.issubdtype(cohort.dtype, np.integer)


@every
@pytest.mark.parametrize(
    ("weights", "k", "message"),
    [
        ([1.0, -1.0], 1, "weights hold a negative number, NaN or infinity, but must be finite and >= 0"),
        ([1.0, np.nan], 1, "weights hold a negative number, NaN or infinity, but must be finite and >= 0"),
        ([1.0, np.inf], 1, "weights hold a negative number, NaN or infinity, but must be finite and >= 0"),
        ([0.0, 0.0], 1, "k = 1, but only 0 weights are > 0: lower k or give more clients a weight"),
        ([], 2, "k = 2, but only 0 weights are > 0: lower k or give more clients a weight"),
        ([1.0], -1, "k = -1, but must be >= 0"),
        ([[1.0, 2.0]], 1, "weights has shape (1, 2), but must be one weight per client"),
    ],
)
def test_wrong_weights_are_refused_with_the_value_the_bound_and_the_fix(draw, weights, k, message):
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        draw(weights, k, np.random.default_rng(0))


@pytest.mark.parametrize("draw", [sampling.weighted, sampling.multinomial_nr])
def test_k_distinct_clients_need_k_positive_weights(draw):
    message = "k = 3, but only 2 weights are > 0: lower k or give more clients a weight"
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        draw([1.0, 0.0, 2.0, 0.0], 3, np.random.default_rng(0))
