"""disperse against brute force over all cohorts, and against every single swap."""

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick import solvers
from fedpick.core.errors import ContractError, SettingError

quick = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
N, M = 12, 4
ALPHAS = (0.5, 1.0, 2.0, 5.0, 20.0)
CASES = 200


def objective(distance, penalty, alpha, cohort):
    """FedGS (16): alpha/N s'Hs - z's with s the indicator of the cohort."""
    s = np.zeros(len(penalty))
    s[list(cohort)] = 1.0
    return alpha / len(penalty) * (s @ distance @ s) - penalty @ s


def best_of_all(distance, penalty, m, alpha, allowed=None):
    """The objective of the best of all cohorts, all at once."""
    cohorts = np.array(list(combinations(range(len(penalty)) if allowed is None else allowed, m)))
    pairs = distance[cohorts[:, :, None], cohorts[:, None, :]].sum(axis=(1, 2))
    return (alpha / len(penalty) * pairs - penalty[cohorts].sum(axis=1)).max()


def arbitrary(rng):
    """Any symmetric matrix with a zero diagonal."""
    upper = np.triu(rng.random((N, N)), 1)
    return upper + upper.T


def shortest_paths(rng):
    """What FedGS gives the solver: shortest paths of a graph, the unreachable twice as far, the farthest at 1."""
    edges = np.where(rng.random((N, N)) < 0.4, rng.random((N, N)), np.inf)
    h = np.minimum(edges, edges.T)
    np.fill_diagonal(h, 0.0)
    for via in range(N):
        h = np.minimum(h, h[:, [via]] + h[[via], :])
    h = np.where(np.isfinite(h), h, 2.0 * h[np.isfinite(h)].max())
    return h / h.max()


@pytest.mark.parametrize("kind", [shortest_paths, arbitrary])
@pytest.mark.parametrize("random", [True, False])
def test_the_default_search_finds_the_optimum_in_200_of_200_cases(kind, random):
    optimal = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        distance, penalty, alpha = kind(rng), rng.integers(-3, 4, N).astype(float), ALPHAS[seed % len(ALPHAS)]
        cohort = solvers.disperse(distance, penalty, M, alpha, rng=rng if random else None)
        assert len(set(cohort.tolist())) == M
        best = best_of_all(distance, penalty, M, alpha)
        optimal += objective(distance, penalty, alpha, cohort) >= best - 1e-9
    assert optimal == CASES


@pytest.mark.parametrize("seed", range(20))
def test_more_starts_are_never_worse_than_the_first_alone(seed):
    rng = np.random.default_rng(seed)
    distance, penalty = arbitrary(rng), rng.integers(-3, 4, N).astype(float)
    first, *more = (
        objective(
            distance,
            penalty,
            50.0,
            solvers.disperse(distance, penalty, M, 50.0, rng=np.random.default_rng(seed), restarts=restarts),
        )
        for restarts in (1, 2, 3, 16, 100)
    )
    assert min(more) >= first - 1e-9
    assert more[-1] == pytest.approx(best_of_all(distance, penalty, M, 50.0))


# Properties --------------------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    """Distances are real, or small whole numbers so that ties are frequent."""
    count = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(seeds))
    rows = rng.random((count, count)) if draw(st.booleans()) else rng.integers(0, 4, (count, count))
    upper = np.triu(rows, 1)
    penalty = rng.integers(-3, 4, count).astype(float)
    mask = draw(st.sampled_from([None, (rng.random(count) < 0.5).tolist()]))
    return (
        (upper + upper.T).astype(float),
        penalty,
        draw(st.integers(0, count + 1)),
        draw(st.sampled_from(ALPHAS)),
        mask,
    )


rngs = st.one_of(st.none(), seeds.map(np.random.default_rng))


@settings(max_examples=300, deadline=None)
@given(problems(), rngs, st.sampled_from([1, 1, 1, 2, 5]))
def test_no_swap_of_one_client_helps(problem, rng, restarts):
    distance, penalty, m, alpha, mask = problem
    allowed = [i for i in range(len(penalty)) if mask is None or mask[i]]
    cohort = solvers.disperse(distance, penalty, m, alpha, mask=mask, rng=rng, restarts=restarts).tolist()
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(allowed)
    assert len(cohort) == min(m, len(allowed))
    here = objective(distance, penalty, alpha, cohort)
    for gone in cohort:
        for come in set(allowed) - set(cohort):
            swapped = [come, *(i for i in cohort if i != gone)]
            assert objective(distance, penalty, alpha, swapped) <= here + 1e-9 * (1.0 + abs(here))


@quick
@given(problems(), seeds, st.booleans())
def test_the_same_seed_gives_the_same_cohort(problem, seed, random):
    distance, penalty, m, alpha, mask = problem
    first, second = (
        solvers.disperse(distance, penalty, m, alpha, mask=mask, rng=np.random.default_rng(seed) if random else None)
        for _ in range(2)
    )
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("seed", range(30))
def test_the_mask_bounds_the_choice_and_n_stays_the_number_of_all(seed):
    rng = np.random.default_rng(seed)
    distance, penalty = shortest_paths(rng), rng.normal(size=N)
    mask = rng.permutation(N) < 8
    cohort = solvers.disperse(distance, penalty, 3, 8.0, mask=mask, rng=rng, restarts=N)
    assert mask[cohort].all()
    found = objective(distance, penalty, 8.0, cohort)
    assert found == pytest.approx(best_of_all(distance, penalty, 3, 8.0, np.flatnonzero(mask)))


def test_n_is_the_number_of_all_even_where_most_may_not_be_chosen():
    """One pair at distance 1 with penalty 1 each more than the rest: worth it from 2 alpha / N > 2 on."""
    distance = np.zeros((10, 10))
    distance[0, 1] = distance[1, 0] = 1.0
    penalty = np.array([1.0, 1.0] + [0.0] * 8)
    mask = np.arange(10) < 4
    assert solvers.disperse(distance, penalty, 2, 9.0, mask=mask, restarts=4).tolist() == [2, 3]
    assert solvers.disperse(distance, penalty, 2, 11.0, mask=mask, restarts=4).tolist() == [0, 1]


@pytest.mark.parametrize("convert", [np.float32, np.float64, int, lambda a: a.tolist(), np.asfortranarray])
def test_distances_of_any_number_type_and_layout_give_the_same_cohort(convert):
    rng = np.random.default_rng(0)
    upper = np.triu(rng.integers(0, 9, (N, N)).astype(float), 1)
    distance, penalty = upper + upper.T, rng.integers(-3, 4, N)
    right = solvers.disperse(distance, penalty, M, 3.0, rng=np.random.default_rng(1))
    kind = distance.astype(convert) if isinstance(convert, type) else convert(distance)
    assert solvers.disperse(kind, penalty, M, 3.0, rng=np.random.default_rng(1)).tolist() == right.tolist()


def test_neither_distances_nor_penalties_are_written():
    rng = np.random.default_rng(0)
    distance, penalty = arbitrary(rng), rng.normal(size=N)
    for array in (distance, penalty):
        array.setflags(write=False)
    assert len(solvers.disperse(distance, penalty, M, 1.0, rng=rng)) == M


# alpha = 0 and ties --------------------------------------------------------------------------------------------------


@quick
@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 11), rngs)
def test_alpha_0_takes_the_smallest_penalties(penalty, m, rng):
    rows = np.ones((len(penalty), len(penalty))) - np.eye(len(penalty))
    cohort = solvers.disperse(rows, penalty, m, 0.0, rng=rng)
    assert sorted(penalty[i] for i in cohort) == sorted(penalty)[:m]


DRAWS = 5_000


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_where_all_are_alike_every_cohort_is_equally_likely(alpha):
    distance = np.ones((5, 5)) - np.eye(5)
    rng = np.random.default_rng(5)
    counts = Counter(tuple(solvers.disperse(distance, np.zeros(5), 2, alpha, rng=rng).tolist()) for _ in range(DRAWS))
    error = (DRAWS * 0.1 * 0.9) ** 0.5
    assert sum(counts.values()) == DRAWS
    for cohort in combinations(range(5), 2):
        assert abs(counts[cohort] - DRAWS / 10) <= 4.5 * error


def test_alpha_0_gives_the_tied_at_the_edge_equal_chances():
    penalty = [1.0, 0.0, 1.0, 3.0, 1.0]
    rng = np.random.default_rng(6)
    counts = Counter(tuple(solvers.disperse(np.zeros((5, 5)), penalty, 2, 0.0, rng=rng).tolist()) for _ in range(DRAWS))
    assert sum(counts.values()) == DRAWS
    for cohort in ((0, 1), (1, 2), (1, 4)):
        assert abs(counts[cohort] - DRAWS / 3) <= 4.5 * (DRAWS * 2 / 9) ** 0.5


def test_without_an_rng_ties_go_to_the_lowest_index():
    distance = np.ones((6, 6)) - np.eye(6)
    assert solvers.disperse(distance, np.zeros(6), 3, 1.0).tolist() == [0, 1, 2]
    assert solvers.disperse(distance, np.zeros(6), 3, 0.0).tolist() == [0, 1, 2]
    mask = [False, True, False, True, True, True]
    assert solvers.disperse(distance, np.zeros(6), 2, 1.0, mask=mask).tolist() == [1, 3]


# Limits and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_limit", [0.0, 1e-9, 60.0])
def test_a_time_limit_gives_a_valid_cohort_however_short(time_limit):
    rng = np.random.default_rng(7)
    distance, penalty = arbitrary(rng), rng.normal(size=N)
    cohort = solvers.disperse(distance, penalty, M, 5.0, rng=rng, restarts=50, time_limit=time_limit).tolist()
    assert len(set(cohort)) == M
    here = objective(distance, penalty, 5.0, cohort)
    for gone in cohort:  # the first start is always finished
        for come in set(range(N)) - set(cohort):
            assert objective(distance, penalty, 5.0, [come, *(i for i in cohort if i != gone)]) <= here + 1e-9


def test_a_time_limit_that_is_not_reached_changes_nothing():
    distance, penalty = arbitrary(np.random.default_rng(8)), np.zeros(N)
    limited, free = (
        solvers.disperse(distance, penalty, M, 5.0, rng=np.random.default_rng(8), time_limit=limit)
        for limit in (3600.0, None)
    )
    assert limited.tolist() == free.tolist()


RIGHT = {"distance": np.ones((3, 3)) - np.eye(3), "penalty": [0.0, 1.0, 2.0], "m": 2, "alpha": 1.0}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"distance": np.zeros((2, 3))},
            ContractError,
            "distance has shape (2, 3), but 3 penalties need (3, 3)",
        ),
        (
            {"penalty": [[0.0, 1.0, 2.0]]},
            ContractError,
            "distance has shape (3, 3), but 1 penalties need (1, 1)",
        ),
        ({"restarts": 0}, SettingError, "disperse: restarts = 0, but must be >= 1"),
        (
            {"alpha": -0.5},
            SettingError,
            "disperse: alpha = -0.5, but must be >= 0 and finite; distances are rewarded, never punished",
        ),
        (
            {"alpha": float("nan")},
            SettingError,
            "disperse: alpha = nan, but must be >= 0 and finite; distances are rewarded, never punished",
        ),
        ({"penalty": [0.0, np.nan, 2.0]}, ContractError, "penalty holds NaN or infinity, but must be finite"),
        ({"penalty": [0.0, np.inf, 2.0]}, ContractError, "penalty holds NaN or infinity, but must be finite"),
        (
            {"distance": np.full((3, 3), np.nan)},
            ContractError,
            "distance holds NaN or infinity; graph.shortest_paths gives unreachable pairs a number",
        ),
        (
            {"distance": np.full((3, 3), np.inf)},
            ContractError,
            "distance holds NaN or infinity; graph.shortest_paths gives unreachable pairs a number",
        ),
    ],
)
def test_a_wrong_argument_is_refused_with_its_value_the_bound_and_the_fix(changed, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        solvers.disperse(**(RIGHT | changed))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_single_distance_that_is_not_finite_is_refused_whatever_the_starts(number):
    for seed in range(20):
        distance = arbitrary(np.random.default_rng(seed))
        distance[2, 7] = distance[7, 2] = number
        with pytest.raises(ContractError, match=r"^distance holds NaN or infinity; graph.shortest_paths gives"):
            solvers.disperse(distance, np.zeros(N), M, 1.0, rng=np.random.default_rng(seed))


def test_what_is_not_known_of_those_that_may_not_be_chosen_does_not_matter():
    rng = np.random.default_rng(9)
    distance, mask = arbitrary(rng), np.arange(N) != 5
    right = solvers.disperse(distance, np.zeros(N), M, 1.0, mask=mask, rng=np.random.default_rng(0))
    distance[5], distance[:, 5] = np.nan, np.nan
    found = solvers.disperse(distance, np.zeros(N), M, 1.0, mask=mask, rng=np.random.default_rng(0))
    assert found.tolist() == right.tolist()


def test_an_infinite_alpha_is_refused_by_its_own_name():
    with pytest.raises(SettingError, match="alpha = inf"):
        solvers.disperse(**(RIGHT | {"alpha": float("inf")}))


@pytest.mark.parametrize("mask", [[True, True], [True, False, True, True]])
def test_a_mask_of_another_length_is_refused(mask):
    with pytest.raises(ContractError, match="mask"):
        solvers.disperse(**(RIGHT | {"m": 1, "mask": mask}))
