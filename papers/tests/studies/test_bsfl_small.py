"""BSFL without training: the exact law of annealing, the two weights, and qualities of data."""

import copy
from itertools import combinations

import numpy as np
import pytest

from fedpick import solvers
from fedpick_papers.studies.bsfl import _walk, quality, theorem2, weights

SEEDS = np.tile([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0], 2)


def problem(seed=0, K=6, m=3):
    rng = np.random.default_rng(seed)
    value, bonus = rng.random(K), rng.uniform(-1, 1, K) / m
    states = _walk.selections(K, m)
    ordered = np.sort(bonus)
    spread = np.ptp(value) + ordered[-m:].sum() - ordered[:m].sum()
    return value, bonus, states, _walk.energies(value, bonus, states), spread


def neighbours_of(members, value, bonus, K):
    """(19) word by word: pairs that differ by one, of which one has the lowest value or bonus in its own cohort."""
    found = set()
    for other in combinations(range(K), len(members)):
        left, came = set(members) - set(other), set(other) - set(members)
        if len(left) != 1:
            continue

        def low(cohort):
            return {min(cohort, key=lambda k: value[k]), min(cohort, key=lambda k: bonus[k])}

        if left <= low(members) or came <= low(other):
            found.add(other)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_those_of_the_paper(seed):
    value, bonus, states, _, _ = problem(seed)
    cohorts = [tuple(np.flatnonzero(row)) for row in states]
    proposed = _walk.proposals(value, bonus, states, "alsa")
    for row, members in zip(proposed, cohorts, strict=True):
        assert {cohorts[j] for j in np.flatnonzero(row)} == neighbours_of(members, value, bonus, 6)
    assert ((proposed > 0) == (proposed > 0).T).all()
    assert ((_walk.proposals(value, bonus, states, "sa") > 0).sum(axis=1) == 3 * 3).all()
    one_sided = _walk.proposals(value, bonus, states, "alsa-drop")
    assert ((one_sided > 0) <= (proposed > 0)).all()
    assert one_sided.sum(axis=1) == pytest.approx(np.ones(20))


@pytest.mark.parametrize("neighbours", solvers.NEIGHBOURS)
def test_the_law_is_that_of_the_solver_s_walk(neighbours):
    value, bonus, states, energy, spread = problem()
    proposed, steps, walks = _walk.proposals(value, bonus, states, neighbours), 12, 4000
    expected = _walk.law(proposed, energy, spread, [steps])[0]
    index = {tuple(np.flatnonzero(row)): i for i, row in enumerate(states)}
    rng = np.random.default_rng(1)
    ends = [index[tuple(solvers.anneal(value, bonus, 3, steps, rng, neighbours))] for _ in range(walks)]
    seen = np.bincount(ends, minlength=len(states)) / walks
    assert np.abs(seen - expected).max() < 5 * np.sqrt(0.25 / walks)
    assert np.abs(seen - 1 / len(states)).max() > np.abs(seen - expected).max()  # it is not the start


def test_blocks_of_steps_are_as_good_as_single_ones(monkeypatch):
    value, bonus, states, energy, spread = problem()
    proposed = _walk.proposals(value, bonus, states, "alsa")
    blocks = _walk.law(proposed, energy, spread, [2000])[0]
    monkeypatch.setattr(_walk, "ONE_BY_ONE", 2000)
    assert blocks == pytest.approx(_walk.law(proposed, energy, spread, [2000])[0], abs=1e-3)


def test_a_long_walk_is_at_rest_and_rest_is_at_the_optimum():
    value, bonus, states, energy, spread = problem()
    proposed = _walk.proposals(value, bonus, states, "alsa")
    degree = (proposed > 0).sum(axis=1).astype(float)
    last = _walk.law(proposed, energy, spread, [10**6])[0]
    assert last == pytest.approx(_walk.at_rest(degree, energy, spread, np.log(1e6)), abs=1e-3)
    decades = _walk.decades(degree, energy, spread, 0.9)
    there = _walk.at_rest(degree, energy, spread, decades * np.log(10))
    assert there[energy.argmax()] == pytest.approx(0.9)


def test_steps_are_two_a_decade_and_the_last():
    assert theorem2._steps(1000) == [1, 3, 10, 32, 100, 316, 1000]
    assert theorem2._steps(50) == [1, 3, 10, 32, 50]


def spread_out(value, scale=0.001):
    return (value + scale * SEEDS).tolist()


def theorem_result(good):
    def walk(end, below, degree):
        return {
            "end": spread_out(end),
            "enumerated": spread_out(0.6 if good else 0.3),
            "below": spread_out(below),
            "below_end": spread_out(below / 2),
            "degree": spread_out(degree),
            "one": [1.0 if good else 0.5] * 12,
            "off": spread_out(0.01 if good else 0.2),
            "decades": spread_out(20),
        }

    walks = {"ALSA": (0.9, 0.1, 10), "ALSA, one-sided": (0.95, 0.1, 8), "SA": (0.8, 0.2, 16)}
    if not good:
        walks = {"ALSA": (0.2, 0.2, 17), "ALSA, one-sided": (0.1, 0.2, 8), "SA": (0.8, 0.1, 16)}
    one = {"selections": 70, "bound": 16} | {name: walk(*of) for name, of in walks.items()}
    one["SA"]["degree"] = [16.0] * 12  # m(K - m) in every problem
    return {"steps": 1000, "problems": 60, "sizes": {"4 of 8": one}}


def test_theorem2_claims():
    score = theorem2.STUDY.score
    # Where SA is within the bound, too, that ALSA is says nothing.
    assert [one.verdict for one in score(theorem_result(True))] == ["reproduced"] * 2 + ["vacuous"] + ["reproduced"] * 2
    tight = theorem_result(True)
    tight["sizes"]["4 of 8"]["bound"] = 12
    assert score(tight)[2].verdict == "reproduced"
    assert "from the law at rest: 4 of 8: 0.01000" in score(tight)[0].ours
    assert [one.verdict for one in score(theorem_result(False))] == ["contradicted"] * 5
    assert [one.extension for one in score(theorem_result(True))] == [False, True, False, True, True]
    few = copy.deepcopy(theorem_result(True))
    few["sizes"]["4 of 8"]["ALSA"]["enumerated"] = [0.6]
    assert score(few)[1].verdict == "too few seeds"


def weights_result(good):
    alphas = [0.01, 1.0]
    names = [weights._name(alpha, 1.0) for alpha in alphas]
    regret = {"BSFL": 10.0, "Random": 30.0, "CS-UCB": 50.0} if good else {"BSFL": 40.0, "Random": 30.0, "CS-UCB": 50.0}
    slope = {"BSFL": 0.1, "Random": 1.0, "CS-UCB": 1.0} if good else {"BSFL": 1.1, "Random": 0.5, "CS-UCB": 1.0}
    seconds, spread = ((5.0, 7.0), (0.9, 0.1)) if good else ((7.0, 5.0), (0.1, 0.9))
    return {
        "rounds": 5000,
        "alphas": alphas,
        "betas": [1.0],
        "final": {name: {who: spread_out(value, 0.1) for who, value in regret.items()} for name in names},
        "exponent": {name: {who: spread_out(value, 0.01) for who, value in slope.items()} for name in names},
        "seconds": dict(zip(names, map(spread_out, seconds), strict=True)),
        "spread": dict(zip(names, map(spread_out, spread), strict=True)),
        "others": {who: {"seconds": spread_out(6), "spread": spread_out(0.1)} for who in weights.OTHERS},
    }


def test_claims_about_the_weights():
    score = weights.STUDY.score
    assert [one.verdict for one in score(weights_result(True))] == ["reproduced"] * 5
    assert [one.verdict for one in score(weights_result(False))] == ["contradicted"] * 5
    assert [one.extension for one in score(weights_result(True))] == [False, False, True, True, True]
    assert weights.STUDY.body(weights_result(True)).count("\n| ") == 4  # head, rule, two pairs


def quality_result(good):
    def of(ours, blind, others, scale=0.001):
        values = {"BSFL": ours, quality.BLIND: blind, "CS-UCB-Q": others, "Random": others}
        return {"halves": {name: spread_out(value, scale) for name, value in values.items()}}

    return {
        "rounds": 5000,
        "qualities": {"halves": [0.5, 1.0]},
        "target": {"halves": [0.5, 1.0]},
        "better": of(1.9, 1.0, 1.0) if good else of(0.9, 1.0, 1.0),
        "off": of(0.1, 0.4, 0.4) if good else of(0.4, 0.1, 0.4),
        "final": of(10.0, 20.0, 30.0) if good else of(50.0, 20.0, 30.0),
        "exponent": of(0.1, 1.0, 1.0) if good else of(1.1, 1.0, 0.5),
        "seconds": of(6.0, 6.0, 6.0),
    }


def test_claims_about_quality():
    score = quality.STUDY.score
    assert [one.verdict for one in score(quality_result(True))] == ["reproduced"] * 4
    assert [one.verdict for one in score(quality_result(False))] == ["contradicted"] * 4
    twice = quality_result(True)
    twice = {key: of | {"again": of["halves"]} if isinstance(of, dict) else of for key, of in twice.items()}
    assert [one.extension for one in score(twice)] == [False] + [True] * 7  # other qualities: the same claim


def test_qualities_reach_the_policy_and_the_target():
    study = quality.STUDY
    item = quality._item(study.choose(), "half of the clients at 0.5", "BSFL", 0)
    policy = study.job.config(item).build().policy
    assert policy.quality == [0.5] * 10 + [1.0] * 10
    assert quality._target(item) == pytest.approx([1 / 6] * 10 + [1 / 3] * 10)
