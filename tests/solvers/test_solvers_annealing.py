"""anneal against the exact Markov chain of BSFL (16)-(19): every state, every neighbour, every step."""

import math
import re
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from fedpick import solvers
from fedpick.core.errors import ContractError, SettingError, UnknownNameError
from fedpick.solvers import annealing

each_kind = pytest.mark.parametrize("kind", solvers.NEIGHBOURS)
RUNS = 20_000

# Distinct values and bonuses, so that every argmin is one client; sometimes the same client for both, mostly not.
# No two cohorts have the same energy.
PROBLEMS = {
    "2 of 5": ([0.9, 0.3, 0.55, 0.1, 0.7], [-0.2, 0.47, 0.05, -0.35, 0.3], 2),
    "3 of 6": ([0.9, 0.3, 0.55, 0.1, 0.7, 0.62], [-0.2, 0.45, 0.05, -0.35, 0.3, 0.6], 3),
}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def states(problem):
    value, _, m = problem
    return list(combinations(range(len(value)), m))


def energy(problem, cohort):
    """(17), with the brace closed after ucb."""
    value, bonus, _ = problem
    return min(value[i] for i in cohort) + sum(bonus[i] for i in cohort)


def lowest(problem, cohort):
    """The set of (19): the client with the lowest value and the client with the lowest bonus."""
    value, bonus, _ = problem
    return {min(cohort, key=lambda i: value[i]), min(cohort, key=lambda i: bonus[i])}


def neighbours(problem, kind, cohort):
    """N_S by definition: every other state, if one client differs and the kind's rule holds."""
    found = []
    for other in states(problem):
        gone, come = set(cohort) - set(other), set(other) - set(cohort)
        rule = {
            "sa": True,
            "alsa": gone <= lowest(problem, cohort) or come <= lowest(problem, other),
            "alsa-drop": gone <= lowest(problem, cohort),
        }
        if len(gone) == 1 and rule[kind]:
            found.append(other)
    return found


def delta_max(problem):
    """What no two cohorts differ by more than: range of the values, m largest less m smallest bonuses."""
    value, bonus, m = problem
    return max(value) - min(value) + sum(sorted(bonus)[-m:]) - sum(sorted(bonus)[:m])


def transition(problem, kind, i):
    """The matrix of step i of (16): a uniform neighbour, taken if no worse, else with exp(change / T_i)."""
    temperature = delta_max(problem) / math.log(i + 1)
    every = states(problem)
    matrix = np.zeros((len(every), len(every)))
    for a, here in enumerate(every):
        near = neighbours(problem, kind, here)
        for there in near:
            change = energy(problem, there) - energy(problem, here)
            matrix[a, every.index(there)] = min(1.0, math.exp(change / temperature)) / len(near)
        matrix[a, a] = 1.0 - matrix[a].sum()
    return matrix


@njit(cache=True)
def _walks(value, bonus, starts, steps, spread, kind, rng, energies):
    """Run after run in one compiled loop; `starts` becomes the last cohorts."""
    nothing = np.empty(0)
    for run in range(len(starts)):
        inside = np.zeros(len(value), np.bool_)
        for client in starts[run]:
            inside[client] = True
        trace = energies[run] if len(energies) else nothing
        last, _ = annealing._walk(value, bonus, starts[run], inside, steps, spread, kind, rng, trace)
        for place in range(len(last)):
            starts[run, place] = last[place]


def starting(problem, rng, runs):
    """Uniform starts of many runs; of one as anneal draws it."""
    value, _, m = problem
    if runs == 1:
        return rng.choice(len(value), m, replace=False)[None]
    return np.argsort(rng.random((runs, len(value))), axis=1)[:, :m]


def anneals(problem, kind, steps, rng, runs, energies=None, cohorts=None):
    """The last cohorts of many runs: uniform starts, then the solver's own kernel (a call from Python costs more)."""
    value, bonus = np.array(problem[0]), np.array(problem[1])
    cohorts = starting(problem, rng, runs) if cohorts is None else cohorts.copy()
    traces = np.empty((0, 0)) if energies is None else energies
    _walks(value, bonus, cohorts, steps, delta_max(problem), solvers.NEIGHBOURS.index(kind), rng, traces)
    return [tuple(cohort) for cohort in np.sort(cohorts, axis=1).tolist()]


@each_kind
@each_problem
def test_one_of_many_runs_is_what_anneal_gives(kind, problem):
    for seed in range(100):
        for steps in (0, 3, 8):
            (cohort,) = anneals(problem, kind, steps, np.random.default_rng(seed), 1)
            assert cohort == tuple(solvers.anneal(*problem, steps, np.random.default_rng(seed), kind).tolist())


@each_kind
@each_problem
@pytest.mark.parametrize("steps", [8, pytest.param(3, marks=pytest.mark.slow)])
def test_the_last_cohort_is_distributed_as_the_markov_chain_says(kind, problem, steps):
    every = states(problem)
    chain = np.full(len(every), 1 / len(every))
    for i in range(1, steps + 1):
        chain = chain @ transition(problem, kind, i)
    rng = np.random.default_rng(steps)
    counts = Counter(anneals(problem, kind, steps, rng, RUNS))
    assert set(counts) <= set(every)
    for state, p in zip(every, chain, strict=True):
        assert abs(counts[state] - RUNS * p) <= 4.5 * math.sqrt(RUNS * p * (1.0 - p)), (state, counts[state], p)


@each_kind
@pytest.mark.parametrize(("value", "bonus"), [([1.0, 0.0], [0.0, 0.0]), ([0.0, 3.0], [2.0, 0.0])])
def test_step_i_takes_a_loss_of_d_with_probability_i_plus_1_to_the_minus_d_over_delta_max(kind, value, bonus):
    """Two clients, one place: from the worse always to the better, back with exp(-d log(i + 1) / delta_max)."""
    high, low = sorted((v + b for v, b in zip(value, bonus, strict=True)), reverse=True)
    rng = np.random.default_rng(10)
    traces = np.empty((10_000, 5))
    anneals((value, bonus, 1), kind, 5, rng, len(traces), traces)
    better = 0.5
    for i in range(1, 6):
        back = (i + 1) ** (-(high - low) / delta_max((value, bonus, 1)))
        better = (1.0 - better) + better * (1.0 - back)
        error = math.sqrt(better * (1.0 - better) / len(traces))
        assert abs(np.mean(traces[:, i - 1] == high) - better) <= 4.5 * error


@each_kind
def test_without_a_step_every_cohort_is_equally_likely(kind):
    counts = Counter(anneals(PROBLEMS["2 of 5"], kind, 0, np.random.default_rng(0), RUNS))
    assert sum(counts.values()) == RUNS
    for state in states(PROBLEMS["2 of 5"]):
        assert abs(counts[state] - RUNS / 10) <= 4.5 * math.sqrt(RUNS * 0.1 * 0.9)


def test_the_drop_rule_chooses_between_the_two_lowest_and_then_any_newcomer():
    """Uniform over N_S is the same as a fair choice of who leaves (if two are lowest), then a uniform newcomer."""
    for problem in PROBLEMS.values():
        outside = len(problem[0]) - problem[2]
        for cohort in states(problem):
            leavers = Counter(
                next(iter(set(cohort) - set(other))) for other in neighbours(problem, "alsa-drop", cohort)
            )
            assert leavers == dict.fromkeys(lowest(problem, cohort), outside)


def walk(problem, kind, steps, seed):
    """The states of one run, one after the other: a shorter run with the same seed is a prefix of it."""
    value, bonus, m = problem
    return [
        tuple(solvers.anneal(value, bonus, m, n, np.random.default_rng(seed), kind).tolist()) for n in range(steps + 1)
    ]


def walks(problem, kind, steps, rng, runs):
    """The same for many runs at once: the energies tell the states, since no two have the same."""
    known = sorted((energy(problem, state), state) for state in states(problem))
    levels = np.array([level for level, _ in known])
    assert np.diff(levels).min() > 1e-9
    starts, traces = starting(problem, rng, runs), np.empty((runs, steps))
    anneals(problem, kind, steps, rng, runs, traces, starts)
    at = np.abs(levels - traces[:, :, None]).argmin(axis=2)
    np.testing.assert_allclose(levels[at], traces, atol=1e-12)
    for start, path in zip(np.sort(starts, axis=1).tolist(), at, strict=True):
        yield [tuple(start), *(known[i][1] for i in path)]


@pytest.fixture(scope="module")
def moves():
    """Every move seen in 1,500 runs of 6 steps, by problem and kind: the chain expects the rarest move 20 times."""
    seen = {}
    for name, problem in PROBLEMS.items():
        for kind in solvers.NEIGHBOURS:
            paths = walks(problem, kind, 6, np.random.default_rng(0), 1_500)
            pairs = {pair for path in paths for pair in pairwise(path) if pair[0] != pair[1]}
            seen[name, kind] = pairs
    return seen


@each_kind
@each_problem
def test_energies_tell_the_walk(kind, problem):
    for seed in range(30):
        assert list(walks(problem, kind, 6, np.random.default_rng(seed), 1)) == [walk(problem, kind, 6, seed)]


@each_kind
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_moves_are_the_neighbourhood_all_of_it_and_nothing_else(kind, name, moves):
    problem = PROBLEMS[name]
    twin = {(here, there) for here in states(problem) for there in neighbours(problem, kind, here)}
    assert moves[name, kind] == twin


@pytest.mark.parametrize("name", PROBLEMS)
def test_sa_and_alsa_can_go_back_every_way_they_came_and_alsa_drop_cannot(name, moves):
    def back(kind):
        return {(there, here) for here, there in moves[name, kind]}

    assert back("sa") == moves[name, "sa"]
    assert back("alsa") == moves[name, "alsa"]
    assert back("alsa-drop") != moves[name, "alsa-drop"]
    assert moves[name, "alsa"] == moves[name, "alsa-drop"] | back("alsa-drop")  # (19) is the rule made symmetric


@pytest.mark.parametrize("name", PROBLEMS)
def test_neighbourhoods_have_the_sizes_that_the_paper_gives(name, moves):
    value, _, m = PROBLEMS[name]
    outside = len(value) - m
    sizes = {kind: Counter(here for here, _ in moves[name, kind]) for kind in solvers.NEIGHBOURS}
    count = len(states(PROBLEMS[name]))
    assert dict(sizes["sa"]) == dict.fromkeys(states(PROBLEMS[name]), m * outside)
    assert max(sizes["alsa-drop"].values()) <= 2 * outside
    assert sum(sizes["alsa"].values()) / count <= 4 * outside


# What comes back ---------------------------------------------------------------------------------------------------


@each_kind
@each_problem
@pytest.mark.parametrize("seed", range(5))
def test_energies_are_those_of_the_cohorts_on_the_way_and_best_is_the_highest_of_them(kind, problem, seed):
    value, bonus, m = problem
    path = walk(problem, kind, 30, seed)
    trace = np.full(30, np.nan)
    last = solvers.anneal(value, bonus, m, 30, np.random.default_rng(seed), kind, energies=trace)
    best = solvers.anneal(value, bonus, m, 30, np.random.default_rng(seed), kind, best=True)
    assert trace == pytest.approx([energy(problem, cohort) for cohort in path[1:]])
    assert tuple(last.tolist()) == path[-1]
    assert tuple(best.tolist()) == max(path, key=lambda cohort: energy(problem, cohort))
    assert energy(problem, best) == pytest.approx(max(trace.max(), energy(problem, path[0])))


@each_kind
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_long_run_on_a_small_problem_passes_the_optimum(kind, seed):
    rng = np.random.default_rng(seed)
    problem = (rng.normal(size=8).tolist(), (0.5 * rng.normal(size=8)).tolist(), 3)
    found = solvers.anneal(*problem, 20_000, rng, kind, best=True)
    assert energy(problem, found) == pytest.approx(max(energy(problem, cohort) for cohort in states(problem)))


@each_kind
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=9),
    st.integers(-1, 11),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
def test_any_problem_ties_included_gives_m_distinct_sorted_clients_and_a_true_trace(kind, clients, m, steps, seed):
    value, bonus = (list(column) for column in zip(*clients, strict=True))
    size = max(min(m, len(value)), 0)
    trace = np.full(steps, np.nan)
    last = solvers.anneal(value, bonus, m, steps, np.random.default_rng(seed), kind, energies=trace).tolist()
    best = solvers.anneal(value, bonus, m, steps, np.random.default_rng(seed), kind, best=True).tolist()
    for cohort in (last, best):
        assert cohort == sorted(set(cohort))
        assert len(cohort) == size
        assert set(cohort) <= set(range(len(value)))
    if steps and 0 < size < len(value):
        assert trace[-1] == energy((value, bonus, m), last)
        assert energy((value, bonus, m), best) >= trace.max()


@each_kind
def test_energies_are_filled_where_everyone_is_chosen(kind):
    trace = np.full(3, np.nan)
    solvers.anneal([1.0, 2.0], [0.5, 0.25], 2, 3, np.random.default_rng(0), kind, energies=trace)
    assert trace.tolist() == [1.75] * 3


@each_kind
def test_where_all_cohorts_are_alike_the_walk_still_ends(kind):
    cohort = solvers.anneal([1.0] * 4, [2.0] * 4, 2, 50, np.random.default_rng(0), kind)
    assert len(set(cohort.tolist())) == 2


def test_alsa_is_the_default_neighbourhood():
    value, bonus, m = PROBLEMS["3 of 6"]
    for seed in range(20):
        runs = [solvers.anneal(value, bonus, m, 50, np.random.default_rng(seed), *kind) for kind in ((), ("alsa",))]
        assert runs[0].tolist() == runs[1].tolist()


# Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"neighbours": "alsa-dorp"},
            UnknownNameError,
            "unknown neighbourhood 'alsa-dorp'; did you mean 'alsa-drop'? There are: alsa, alsa-drop, sa",
        ),
        ({"steps": -1}, SettingError, "anneal: steps = -1, but must be >= 0"),
        ({"bonus": [0.0]}, ContractError, "value has shape (3,) and bonus (1,), but both must be (K,)"),
        (
            {"value": [[0.0]], "bonus": [[0.0]]},
            ContractError,
            "value has shape (1, 1) and bonus (1, 1), but both must be (K,)",
        ),
        (
            {"value": [0.0, np.inf, 1.0]},
            ContractError,
            "annealing needs finite values and bonuses; bottleneck takes infinite values",
        ),
        (
            {"bonus": [0.0, np.nan, 1.0]},
            ContractError,
            "annealing needs finite values and bonuses; bottleneck takes infinite values",
        ),
        (
            {"energies": np.empty(4)},
            ContractError,
            "energies has shape (4,), but must be (5,), one per step",
        ),
    ],
)
def test_a_wrong_argument_is_refused_with_its_value_the_bound_and_the_fix(changed, error, message):
    right = {"value": [0.0, 1.0, 2.0], "bonus": [0.0, 1.0, 2.0], "m": 2, "steps": 5, "rng": np.random.default_rng(0)}
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        solvers.anneal(**(right | changed))
