"""pivotal and systematic: whole designs against an enumeration of every order, every duel and every start."""

import re
from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many import counted, exact_draws

from fedpick import sampling
from fedpick.core.errors import ContractError

quick = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
designs = pytest.mark.parametrize("design", [sampling.pivotal, sampling.systematic])


def assert_frequencies(counts, probabilities, draws):
    """Each count is binomial: within 4.5 of its standard errors (which is 0 where the probability is 0 or 1)."""
    for what, p in probabilities.items():
        error = (draws * p * (1 - p)) ** 0.5
        assert abs(counts.get(what, 0) - draws * p) <= 4.5 * error + 1e-9 * draws * p, (what, counts.get(what, 0), p)


# Slow twins: P(S) of every subset S, in exact arithmetic ------------------------------------------------------------


def duel(a, b):
    """Deville & Tillé: what two clients with probabilities a and b hold afterwards, and how probable that is."""
    if a + b < 1:
        return [(a / (a + b), a + b, Fraction(0)), (b / (a + b), Fraction(0), a + b)]
    return [((1 - b) / (2 - a - b), Fraction(1), a + b - 1), ((1 - a) / (2 - a - b), a + b - 1, Fraction(1))]


def pivotal_in_order(p, order):
    """The first two in the order that are neither in nor out fight, until everyone is in or out."""
    undecided = [i for i in order if 0 < p[i] < 1]
    if len(undecided) < 2:
        assert not undecided, "p sums to a whole number, so the last one is decided with the others"
        return Counter({tuple(i for i in range(len(p)) if p[i] == 1): Fraction(1)})
    first, second = undecided[:2]
    design = Counter()
    for probability, a, b in duel(p[first], p[second]):
        after = list(p)
        after[first], after[second] = a, b
        for cohort, conditional in pivotal_in_order(after, order).items():
            design[cohort] += probability * conditional
    return design


def systematic_in_order(p, order):
    """Clients lie end to end on [0, k), client i over a length p[i]; those under u, u+1, u+2, ... are in."""
    ends = [sum((p[i] for i in order[: n + 1]), Fraction(0)) for n in range(len(order))]
    k = int(ends[-1])
    cuts = sorted({end - int(end) for end in ends} | {Fraction(0), Fraction(1)})
    design = Counter()
    for low, high in pairwise(cuts):  # between two cuts, u hits the same clients
        u = (low + high) / 2
        cohort = [next(i for i, end in zip(order, ends, strict=True) if end > u + step) for step in range(k)]
        design[tuple(sorted(cohort))] += high - low
    return design


TWINS = {sampling.pivotal: pivotal_in_order, sampling.systematic: systematic_in_order}
SMALL = {
    "all undecided": [Fraction(n, 20) for n in (4, 7, 6, 16, 7)],  # 4 + 16: two that make exactly 1
    "one sure, one never": [Fraction(n, 20) for n in (20, 9, 0, 8, 3)],
    "all alike": [Fraction(2, 5)] * 5,
}
small = pytest.mark.parametrize("p", SMALL.values(), ids=SMALL)


def in_random_order(in_order, p):
    orders = list(permutations(range(len(p))))
    design = Counter()
    for order in orders:
        for cohort, probability in in_order(p, order).items():
            design[cohort] += probability / len(orders)
    return design


def joint(design, i, j):
    return sum(probability for cohort, probability in design.items() if i in cohort and j in cohort)


@pytest.fixture(scope="module")
def drawn():
    """How often each subset came in 30,000 draws, by design and vector."""
    counts = {}
    for design in TWINS:
        for name, p in SMALL.items():
            vector = np.array([float(x) for x in p])
            counts[design, name] = counted(exact_draws(design, vector, 20, 30_000))
    return counts


@designs
@small
def test_the_twin_includes_each_client_with_exactly_its_probability(design, p):
    twin = in_random_order(TWINS[design], p)
    assert sum(twin.values()) == 1
    assert [joint(twin, i, i) for i in range(len(p))] == p


@designs
@pytest.mark.parametrize("name", SMALL)
def test_every_subset_comes_as_often_as_in_the_enumeration_of_the_design(design, name, drawn):
    twin = in_random_order(TWINS[design], SMALL[name])
    assert_frequencies(drawn[design, name], {s: twin[s] for s in combinations(range(5), 2)}, 30_000)
    assert set(drawn[design, name]) <= {cohort for cohort, probability in twin.items() if probability > 0}


@designs
@pytest.mark.parametrize("name", ["all undecided", "all alike"])
def test_any_two_clients_can_be_chosen_together(design, name, drawn):
    twin = in_random_order(TWINS[design], SMALL[name])
    for i, j in combinations(range(5), 2):
        assert joint(twin, i, j) > 0
        assert joint(drawn[design, name], i, j) > 0


@designs
@pytest.mark.parametrize("name", ["all undecided", "all alike"])
def test_a_fixed_order_would_keep_some_pairs_apart_for_ever(design, name):
    fixed = TWINS[design](SMALL[name], range(5))
    assert any(joint(fixed, i, j) == 0 for i, j in combinations(range(5), 2))


@pytest.mark.parametrize("name", SMALL)
def test_pivotal_never_makes_two_clients_attract_each_other(name, drawn):
    p = SMALL[name]
    twin = in_random_order(pivotal_in_order, p)
    for i, j in combinations(range(5), 2):
        assert joint(twin, i, j) <= p[i] * p[j]
        together = joint(drawn[sampling.pivotal, name], i, j)
        error = float(30_000 * p[i] * p[j] * (1 - p[i] * p[j])) ** 0.5
        assert together <= 30_000 * p[i] * p[j] + 4.5 * error


# Many draws --------------------------------------------------------------------------------------------------------

DRAWS = 200_000
P = np.array([0.5, 1.0, 1e-3, 0.02, 0.97, 0.0, 0.5, 0.25, 0.33, 0.1, 0.23, 0.099])
P[8] += 4.0 - P.sum()


@pytest.fixture(scope="module", params=[sampling.pivotal, sampling.systematic], ids=["pivotal", "systematic"])
def many(request):
    return exact_draws(request.param, P, 1, DRAWS)


def test_each_client_is_drawn_with_its_own_probability(many):
    counts = np.bincount(many.ravel(), minlength=len(P))
    assert_frequencies(dict(enumerate(counts)), dict(enumerate(P)), DRAWS)


def test_every_draw_holds_k_distinct_sorted_ids_with_the_sure_client_and_without_the_impossible_one(many):
    cohorts = many
    assert cohorts.shape == (DRAWS, 4)
    assert np.issubdtype(cohorts.dtype, np.integer)
    assert (np.diff(cohorts, axis=1) > 0).all()
    assert (cohorts == 1).any(axis=1).all()
    assert not (cohorts == 5).any()


# Any p -------------------------------------------------------------------------------------------------------------


@st.composite
def probabilities(draw):
    """p that sums to k: equal shares of what is left after some sure and some impossible clients, then shaken."""
    rng = np.random.default_rng(draw(seeds))
    sure, never, others = (draw(st.integers(0, n)) for n in (3, 3, 30))
    k = draw(st.integers(0, others))
    p = np.full(others, k / others if others else 0.0)
    for _ in range(3 * others):  # move probability from one client to another, within [0, 1]
        i, j = rng.integers(0, others, 2)
        move = min(p[i], 1.0 - p[j]) * rng.random()
        p[i] -= move
        p[j] += move
    p = np.concatenate([np.ones(sure), np.zeros(never), np.clip(p, 0.0, 1.0)])
    return rng.permutation(p), sure + k


@designs
@quick
@given(probabilities(), seeds)
def test_any_p_gives_k_distinct_sorted_clients_that_can_be_chosen(design, case, seed):
    p, k = case
    before = p.copy()
    cohort = design(p, np.random.default_rng(seed))
    assert len(cohort) == k
    assert (np.diff(cohort) > 0).all()
    assert set(np.flatnonzero(p == 1.0)) <= set(cohort.tolist()) <= set(np.flatnonzero(p > 0.0))
    assert (p == before).all()


@designs
@quick
@given(probabilities(), seeds)
def test_p_rounded_to_single_precision_still_gives_k_distinct_clients(design, case, seed):
    p, k = case
    cohort = design(p.astype(np.float32), np.random.default_rng(seed))
    assert len(set(cohort.tolist())) == len(cohort) == k


@designs
@quick
@given(probabilities(), seeds)
def test_the_same_seed_gives_the_same_cohort(design, case, seed):
    first, second = (design(case[0], np.random.default_rng(seed)).tolist() for _ in range(2))
    assert first == second


@designs
@pytest.mark.parametrize(("p", "cohort"), [([], []), ([0.0, 0.0], []), ([1.0, 0.0, 1.0], [0, 2]), ([1.0 + 1e-10], [0])])
def test_nothing_is_left_to_chance_where_all_p_are_0_or_1(design, p, cohort):
    drawn = design(p, np.random.default_rng(0))
    assert drawn.tolist() == cohort
    assert np.issubdtype(drawn.dtype, np.integer)


class Extreme(np.random.Generator):
    """Leaves the order as it is and draws the same number for ever."""

    def __init__(self, number):
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, size=None):
        return self.number if size is None else np.full(size, self.number)

    def shuffle(self, x, axis=0):
        pass


@pytest.mark.parametrize("u", [0.0, 0.5, 1.0 - 2.0**-53])  # the smallest and the largest that a generator can give
@pytest.mark.parametrize("p", [[0.25] * 8, [1 / 49] * 98, [0.3, 0.3, 0.4, 0.5, 0.5]], ids=["8", "98", "5"])
def test_systematic_draws_k_distinct_clients_for_the_smallest_and_the_largest_start(p, u):
    cohort = sampling.systematic(p, Extreme(u))
    assert len(set(cohort.tolist())) == len(cohort) == round(sum(p))


def test_systematic_draws_nobody_twice_where_p_misses_its_sum_within_the_tolerance():
    p = [0.99999999, 0.9999, 9.82e-5]  # sums to 2 - 1.8e-6, which is accepted as 2
    cohort = sampling.systematic(p, Extreme(5e-7))
    assert len(set(cohort.tolist())) == len(cohort) == 2


@designs
def test_a_probability_that_rounding_brings_above_1_counts_as_1(design):
    assert design([0.5, 1.0 + 1e-9, 0.5, 0.0], np.random.default_rng(0)).tolist() in ([0, 1], [1, 2])
    with pytest.raises(ContractError):
        design([0.5, np.nextafter(1.0 + 1e-9, 2.0), 0.5], np.random.default_rng(0))


# Errors ------------------------------------------------------------------------------------------------------------


@designs
@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, -0.25, 0.75], "p holds -0.25, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([0.0, 1.0, -0.25, 1.25], "p holds -0.25, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([0.0, 1.0, 1.25], "p holds 1.25, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([1.0 + 1e-9, 1.25], "p holds 1.25, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([1.0 + 1.5e-9], "p holds 1.0000000015, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([0.5, 1.5], "p holds 1.5, but probabilities are in [0, 1]; sampling.proportional caps them"),
        ([0.5, np.nan], "p holds nan, but probabilities are in [0, 1]; sampling.proportional caps them"),
        (
            [0.5, 0.75],
            "p sums to 1.25, but a fixed-size design needs a whole number; sampling.proportional(sizes, k) gives "
            "probabilities that sum to k",
        ),
        ([[0.5, 0.5]], "p has shape (1, 2), but must be one probability per client"),
        (1.0, "p has shape (), but must be one probability per client"),
    ],
)
def test_a_wrong_p_is_refused_with_its_value_the_bound_and_the_fix(design, p, message):
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        design(p, np.random.default_rng(0))
