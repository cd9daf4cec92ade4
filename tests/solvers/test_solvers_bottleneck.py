"""bottleneck and top against brute force, RBCS-F's Algorithm 1, and the same solver without its shortcut."""

import importlib
import math
import re
from collections import Counter
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick import solvers
from fedpick.core.errors import ContractError

module = importlib.import_module("fedpick.solvers.bottleneck")  # the package's own attribute is the function
quick = settings(max_examples=200, deadline=None)
seeds = st.integers(0, 2**32 - 1)
rngs = st.one_of(st.none(), seeds.map(np.random.default_rng))
INF = math.inf


def assert_frequencies(counts, probabilities, draws):
    """Each count is binomial: within 4.5 of its standard errors."""
    for what, p in probabilities.items():
        error = (draws * p * (1 - p)) ** 0.5
        assert abs(counts.get(what, 0) - draws * p) <= 4.5 * error, (what, counts.get(what, 0), p)
    assert sum(counts.values()) == draws
    assert set(counts) <= set(probabilities)


def pruning_from(count):
    """From how many clients on the solver leaves out those that cannot be in an optimal cohort."""
    return mock.patch.object(module, "_PRUNE_FROM", count)


def objective(value, bonus, cohort):
    """min value + sum bonus of whole numbers, an infinite value as one that no sum of bonuses can outweigh."""
    whole = [int(value[i]) if math.isfinite(value[i]) else int(math.copysign(10**9, value[i])) for i in cohort]
    return min(whole) + sum(int(bonus[i]) for i in cohort)


# Brute force -------------------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    count, rng = draw(st.integers(1, 7)), np.random.default_rng(draw(seeds))
    value = np.where(rng.random(count) < 0.25, rng.choice([INF, -INF], count), rng.integers(-4, 5, count)).tolist()
    bonus, mask = rng.integers(-4, 5, count).astype(float).tolist(), (rng.random(count) < 0.5).tolist()
    return value, bonus, draw(st.integers(0, 9)), draw(st.sampled_from([None, mask]))


@pytest.mark.parametrize("prune_from", [0, 4096])
@quick
@given(problems(), rngs)
def test_no_cohort_is_better(prune_from, problem, rng):
    value, bonus, m, mask = problem
    allowed = [i for i in range(len(value)) if mask is None or mask[i]]
    with pruning_from(prune_from):
        cohort = solvers.bottleneck(value, bonus, m, mask, rng).tolist()
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(allowed)
    assert len(cohort) == min(m, len(allowed))
    if cohort:
        best = max(objective(value, bonus, other) for other in combinations(allowed, len(cohort)))
        assert objective(value, bonus, cohort) == best


@pytest.mark.parametrize("prune_from", [0, 4096])
@quick
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=8), st.data())
def test_no_cohort_of_real_numbers_is_better_by_more_than_rounding(prune_from, clients, data):
    value, bonus = zip(*clients, strict=True)
    m = data.draw(st.integers(1, len(value) - 1))
    with pruning_from(prune_from):
        cohort = solvers.bottleneck(value, bonus, m)

    def exactly(s):
        return math.fsum([min(value[i] for i in s), *(bonus[i] for i in s)])

    best = max(exactly(s) for s in combinations(range(len(value)), m))
    # A sum of m + 1 terms is off by less than (m + 1) eps times the sum of their sizes; a difference, by twice that.
    assert exactly(cohort) >= best - 2 * (m + 1) ** 2 * 2.0**-52 * 1e6


@pytest.mark.parametrize(
    ("value", "bonus", "cohort"),
    [
        ([INF, INF, 5.0, 5.0], [0.0, 0.0, 9.0, 9.0], [0, 1]),  # an infinite minimum beats any bonus
        ([INF, 1.0, 5.0, 5.0], [0.0, 0.0, 9.0, 9.0], [2, 3]),  # one infinite value alone does not
        ([-INF, 1.0, 5.0, -INF], [99.0, 0.0, 0.0, 99.0], [1, 2]),
        ([-INF, -INF, -INF, 1.0], [1.0, 2.0, 3.0, 0.0], [1, 2]),  # nobody can avoid -inf: the bonuses decide
        ([INF, INF, INF, INF], [1.0, 2.0, 3.0, 0.0], [1, 2]),
        ([1e17, 1e17, INF, INF], [0.0, 1.0, 0.0, 0.0], [2, 3]),  # beside a finite value that swallows small sums
        ([-1e17, -INF, -1e17, -INF], [0.0, 5.0, 0.0, 5.0], [0, 2]),
    ],
)
@pytest.mark.parametrize("prune_from", [0, 4096])
def test_an_infinite_value_outweighs_every_sum_of_bonuses(value, bonus, cohort, prune_from):
    with pruning_from(prune_from):
        assert solvers.bottleneck(value, bonus, 2).tolist() == cohort


# RBCS-F's Algorithm 1 ----------------------------------------------------------------------------------------------


def algorithm_1(tau, m, available, queue, penalty):
    """The paper's lines 1-18, where "break the first loop" means the inner one. Returns the cohort and F of P4."""
    active = [n for n in range(len(tau)) if available[n]]  # N_t^+
    by_queue = sorted(active, key=lambda n: -queue[n])  # A_t
    k = min(m, len(active))
    results = []
    for n_max in active:
        cohort = []
        for n in by_queue:
            if tau[n] <= tau[n_max]:
                cohort.append(n)
            if len(cohort) == k:
                results.append((penalty * max(tau[i] for i in cohort) - sum(queue[i] for i in cohort), cohort))
                break
    return min(results)


@quick
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6), st.booleans()), min_size=1, max_size=14),
    st.integers(1, 8),
    st.sampled_from([0.0, 1.0, 3.0, 50.0]),
    rngs,
)
def test_the_cohort_is_as_good_as_that_of_rbcsfs_algorithm_1(clients, m, penalty, rng):
    tau, queue, available = (np.array(column) for column in zip(*clients, strict=True))
    cohort = solvers.bottleneck(-penalty * tau, queue, m, available, rng)
    if not available.any():
        assert len(cohort) == 0
        return
    best, twin = algorithm_1(tau, m, available, queue, penalty)
    assert len(cohort) == len(twin)
    assert penalty * tau[cohort].max() - queue[cohort].sum() == best


# Pruning -----------------------------------------------------------------------------------------------------------


def tiny_bonus(rng, count):
    return rng.normal(size=count), 1e-6 * rng.normal(size=count)


def big_bonus(rng, count):
    return rng.normal(size=count), 1e3 * rng.normal(size=count)


def like_bsfl(rng, count):
    return rng.random(count) + np.sqrt(1.0 / rng.integers(1, 50, count)), 0.1 * (rng.random(count) - 0.5)


def heavy_ties(rng, count):
    return rng.integers(0, 4, count).astype(float), rng.integers(0, 3, count).astype(float)


def tied_at_the_top(rng, count):
    return np.full(count, 7.0), np.full(count, -2.0)


def infinities(rng, count):
    value = rng.integers(-50, 50, count).astype(float)
    value[rng.random(count) < rng.random()] = INF
    value[rng.random(count) < rng.random()] = -INF
    return value, rng.integers(-9, 9, count).astype(float)


@pytest.mark.parametrize("kind", [tiny_bonus, big_bonus, like_bsfl, heavy_ties, tied_at_the_top, infinities])
@pytest.mark.parametrize("seed", range(4))
def test_leaving_out_hopeless_clients_changes_nothing(kind, seed):
    rng = np.random.default_rng(seed)
    value, bonus = kind(rng, 6_000)
    for m in (1, 30, 700, 5_999):
        with pruning_from(0):
            pruned = solvers.bottleneck(value, bonus, m)
        with pruning_from(10**9):
            full = solvers.bottleneck(value, bonus, m)
        assert pruned.tolist() == full.tolist()
        assert len(np.unique(pruned)) == m


def test_leaving_out_hopeless_clients_is_the_rule_from_4096_on():
    value, bonus = tiny_bonus(np.random.default_rng(0), 4_096)
    with mock.patch.object(module, "_sweep", wraps=module._sweep) as sweep:
        for count in (4_095, 4_096):
            solvers.bottleneck(value[:count], bonus[:count], 10)
    all_of_them, left = (len(call.args[0]) for call in sweep.call_args_list)
    assert all_of_them == 4_095
    assert 10 <= left < 4_096


# Ties --------------------------------------------------------------------------------------------------------------

DRAWS = 5_000


def test_where_all_are_alike_every_cohort_is_equally_likely():
    rng = np.random.default_rng(1)
    counts = Counter(tuple(solvers.bottleneck([1.0] * 5, [2.0] * 5, 2, None, rng).tolist()) for _ in range(DRAWS))
    assert_frequencies(counts, dict.fromkeys(combinations(range(5), 2), 1 / 10), DRAWS)


def test_where_only_the_last_place_is_tied_the_tied_are_equally_likely():
    rng = np.random.default_rng(2)
    value, bonus = [3.0, 3.0, 3.0, 3.0, -9.0], [0.0, 5.0, 0.0, 0.0, 1.0]
    counts = Counter(tuple(solvers.bottleneck(value, bonus, 2, None, rng).tolist()) for _ in range(DRAWS))
    assert_frequencies(counts, {(0, 1): 1 / 3, (1, 2): 1 / 3, (1, 3): 1 / 3}, DRAWS)


@pytest.mark.parametrize("count", [2, 3, 10, 200])
def test_where_a_lower_value_is_made_up_for_by_its_bonus_each_trade_is_equally_likely(count):
    rng = np.random.default_rng(3)
    value = np.arange(count, dtype=float)
    counts = Counter(int(solvers.bottleneck(value, -value, 1, None, rng)[0]) for _ in range(DRAWS))
    assert_frequencies(counts, dict.fromkeys(range(count), 1 / count), DRAWS)


def test_without_an_rng_ties_go_to_the_lowest_index():
    assert solvers.bottleneck([1.0] * 5, [2.0] * 5, 2).tolist() == [0, 1]
    assert solvers.bottleneck([1.0] * 5, [0.0, 0.0, 2.0, 0.0, 0.0], 2).tolist() == [0, 2]
    assert solvers.bottleneck([1.0] * 5, [2.0] * 5, 2, [False, True, False, True, True]).tolist() == [1, 3]


@quick
@given(problems(), seeds)
def test_the_same_seed_gives_the_same_cohort(problem, seed):
    value, bonus, m, mask = problem
    first, second = (solvers.bottleneck(value, bonus, m, mask, np.random.default_rng(seed)) for _ in range(2))
    assert first.tolist() == second.tolist()


# Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "bonus", "message"),
    [
        ([1.0, 2.0], [1.0], "value has shape (2,) and bonus (1,), but both must be (K,)"),
        ([[1.0, 2.0]], [[1.0, 2.0]], "value has shape (1, 2) and bonus (1, 2), but both must be (K,)"),
        ([np.nan, 1.0], [0.0, 0.0], "value holds NaN, or bonus NaN or infinity: rank unknown clients explicitly"),
        ([0.0, 1.0], [0.0, np.nan], "value holds NaN, or bonus NaN or infinity: rank unknown clients explicitly"),
        ([0.0, 1.0], [0.0, INF], "value holds NaN, or bonus NaN or infinity: rank unknown clients explicitly"),
    ],
)
def test_values_that_cannot_be_ranked_are_refused(value, bonus, message):
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        solvers.bottleneck(value, bonus, 1)


def test_what_is_not_known_of_those_that_may_not_be_chosen_does_not_matter():
    assert solvers.bottleneck([np.nan, 1.0, 2.0], [np.inf, 0.0, 0.0], 1, [False, True, True]).tolist() == [2]


@pytest.mark.parametrize("mask", [[True, False], [True, False, True, True]])
def test_a_mask_of_another_length_is_refused(mask):
    with pytest.raises(ContractError, match="mask"):
        solvers.bottleneck([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], 1, mask)


# top ---------------------------------------------------------------------------------------------------------------

ranked = st.lists(st.one_of(st.integers(-3, 3).map(float), st.sampled_from([INF, -INF])), max_size=12)


@quick
@given(ranked, st.integers(-1, 14))
def test_top_without_an_rng_is_the_sorted_head_with_ties_by_index(array, m):
    twin = sorted(sorted(range(len(array)), key=lambda i: (-array[i], i))[: max(m, 0)])
    assert solvers.top(array, m).tolist() == twin


@quick
@given(ranked, st.integers(-1, 14), seeds)
def test_top_holds_the_m_largest_however_ties_are_broken(array, m, seed):
    chosen = solvers.top(array, m, np.random.default_rng(seed)).tolist()
    assert chosen == sorted(set(chosen))
    assert sorted((array[i] for i in chosen), reverse=True) == sorted(array, reverse=True)[: max(m, 0)]


def test_top_gives_the_tied_equal_chances():
    rng = np.random.default_rng(4)
    counts = Counter(tuple(solvers.top([1.0, 5.0, 1.0, 0.0, 1.0, 1.0], 3, rng).tolist()) for _ in range(DRAWS))
    pairs = {tuple(sorted((1, *pair))): 1 / 6 for pair in combinations((0, 2, 4, 5), 2)}
    assert_frequencies(counts, pairs, DRAWS)


@pytest.mark.parametrize("array", [[np.nan, 1.0, 2.0], [1.0, np.nan, 2.0, np.nan, 0.0]])
@pytest.mark.parametrize("m", [1, 2])
def test_top_never_answers_with_too_few_because_a_value_is_not_known(array, m):
    try:
        chosen = solvers.top(array, m)
    except ContractError:
        return
    assert len(chosen) == m
