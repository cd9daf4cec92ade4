"""Fed-CBS: inclusion by enumeration, the example of the paper's Figure 3, and the faults of three public copies."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies import fedcbs
from zoo import outcome, view

FIGURE_3 = [[5, 5, 5, 5, 5, 5], [6, 6, 6, 6, 6, 0], [0, 0, 0, 10, 10, 10], [10, 10, 10, 0, 0, 0]]


def qcid(counts, cohort):
    total = [sum(counts[c][b] for c in cohort) for b in range(len(counts[0]))]
    return max(sum((x / sum(total) - 1 / len(total)) ** 2 for x in total), 1e-12)


def sequences(counts, m, bonus=None):
    """P of each order in which clients can be drawn, place by place."""
    found = {}
    for order in itertools.permutations(range(len(counts)), m):
        chance = 1.0
        for place, c in enumerate(order):
            before = order[:place]
            odds = {k: qcid(counts, (*before, k)) ** -(place + 1.0) for k in range(len(counts)) if k not in before}
            if place == 0 and bonus is not None:
                odds = {k: each + bonus[k] for k, each in odds.items()}
            chance *= odds[c] / sum(odds.values())
        found[order] = chance
    assert math.isclose(sum(found.values()), 1.0)
    return found


def chance_of(sets, cohort):
    return sum(chance for order, chance in sets.items() if set(order) == set(cohort))


def test_the_reading_on_the_example_of_figure_3():
    """Place by place, the best set comes in 7.4% and the greedy one in 82%; whole sets by QCID^-m: nearly always."""
    sets = sequences(FIGURE_3, 3)
    best, greedy = (0, 2, 3), (0, 1, 2)
    assert qcid(FIGURE_3, best) == 1e-12 < qcid(FIGURE_3, greedy)
    assert chance_of(sets, best) == pytest.approx(0.074, abs=0.001)
    assert chance_of(sets, greedy) == pytest.approx(0.823, abs=0.001)
    joint = {cohort: qcid(FIGURE_3, cohort) ** -3.0 for cohort in itertools.combinations(range(4), 3)}
    assert joint[best] / sum(joint.values()) > 1 - 1e-9
    clients, draws = fp.Clients([30.0] * 4, labels=FIGURE_3), 1500
    for policy, wanted in ((fp.FedCBS(3), 0.074), (fp.FedCBS(3, draws=6), 1 - (1 - chance_of(sets, best)) ** 6)):
        rng = np.random.default_rng(0)
        hits = [policy.select(policy.init(clients), view(clients), rng).ids.tolist() == [0, 2, 3] for _ in range(draws)]
        wanted = chance_of(sets, best) if policy.draws == 1 else wanted
        assert abs(np.mean(hits) - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / draws)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_inclusion_is_that_of_the_enumeration(m):
    rng = np.random.default_rng(m)
    counts, draws = rng.integers(0, 12, (6, 3)) + np.array([1, 0, 0]), 1500
    clients, policy = fp.Clients(counts.sum(axis=1), labels=counts), fp.FedCBS(m, exploration=3.0)
    state = policy.init(clients)
    state.counts[:] = [0, 1, 2, 5, 9, 30]
    bonus = [3.0 * math.sqrt(3 * math.log(20) / (2 * max(c, 1))) for c in state.counts]
    wanted, found = np.zeros(6), np.zeros(6)
    for order, chance in sequences(counts.tolist(), m, bonus).items():
        wanted[list(order)] += chance
    for _ in range(draws):
        found[policy.select(state, view(clients, 20), rng).ids] += 1
    assert (np.abs(found / draws - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / draws) + 1e-12).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), m=st.integers(1, 8))
def test_cohorts_are_whole_distinct_and_there_whatever_clients_tell(seed, m):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, (7, 3)) * rng.choice([0, 1, 1000], (7, 1))
    clients, policy = fp.Clients(np.ones(7), labels=counts), fp.FedCBS(m)
    seen = view(clients, int(rng.integers(1, 10**6)), rng.random(7) < rng.random())
    ids = policy.select(policy.init(clients), seen, rng).ids
    assert len(np.unique(ids)) == len(ids) == min(m, int(seen.available.sum()))
    assert seen.available[ids].all()


def test_cohorts_are_more_balanced_than_uniform_ones():
    rng = np.random.default_rng(0)
    counts = np.array([rng.multinomial(100, p) for p in rng.dirichlet(np.full(10, 0.1), 60)])
    clients = fp.Clients(counts.sum(axis=1), labels=counts)
    mean = {}
    for policy in (fp.FedCBS(10), fp.Uniform(10)):
        state, values = policy.init(clients), []
        for t in range(1, 101):
            choice = policy.select(state, view(clients, t), rng)
            values.append(qcid(counts, choice.ids.tolist()))
            state = policy.observe(state, view(clients, t), choice, outcome(choice, rng))
        mean[type(policy).__name__] = np.mean(values)
    assert mean["FedCBS"] < 0.3 * mean["Uniform"]


def test_the_faults_of_a_copy_one_place_and_the_first_by_maximum():
    """The step of its exponent is divided by m - 1, and its first client is always the same."""
    with pytest.raises(ZeroDivisionError):
        (10 - 1) / (1 - 1)
    counts = np.array([[8, 2], [7, 3], [3, 7], [2, 8]])
    clients, rng = fp.Clients(counts.sum(axis=1), labels=counts), np.random.default_rng(0)
    theirs = {max(range(4), key=lambda c: 1 / qcid(counts, [c])) for _ in range(50)}
    policy = fp.FedCBS(1)
    ours = {int(policy.select(policy.init(clients), view(clients), rng).ids[0]) for _ in range(200)}
    assert len(theirs) == 1 < len(ours) == 4


def test_the_fault_of_a_copy_that_inverts_exploration():
    """A candidate's own count divides the odds of its second place, so that those chosen often come again."""
    counts = [[5, 5], [8, 2], [8, 2]]
    chosen = [1, 1, 100]
    theirs = [qcid(counts, (0, c)) ** -2 / math.sqrt(3 * math.log(50) / (2 * chosen[c])) for c in (1, 2)]
    assert theirs[1] == pytest.approx(10 * theirs[0])
    clients, policy = fp.Clients([10.0] * 3, labels=counts), fp.FedCBS(2)
    state, rng, seconds = policy.init(clients), np.random.default_rng(0), np.zeros(3)
    state.counts[:] = chosen
    for _ in range(600):
        seconds[policy.select(state, view(clients, 50), rng).ids] += 1
    share = seconds[2] / seconds[1:].sum()
    assert abs(share - 0.5) <= 4 * math.sqrt(0.25 / 600)


def test_the_fault_of_a_copy_without_the_share_of_each_label():
    """Its sum of squared shares is never near 0, so that balanced cohorts are hardly preferred."""
    plain = lambda cohort: sum((sum(FIGURE_3[c][b] for c in cohort) / 90) ** 2 for b in range(6))  # noqa: E731
    best, worst = (0, 2, 3), (0, 1, 2)
    assert qcid(FIGURE_3, worst) / qcid(FIGURE_3, best) > 1e9
    assert plain(worst) / plain(best) < 1.2


def test_of_many_clients_some_are_candidates(monkeypatch):
    monkeypatch.setattr(fedcbs, "CANDIDATES", 5)
    monkeypatch.setattr(fedcbs, "ALL_UP_TO", 20)
    counts = np.random.default_rng(0).integers(1, 9, (30, 4))
    clients, seen_ = fp.Clients(counts.sum(axis=1), labels=counts), set()
    for m in (3, 8):
        policy = fp.FedCBS(m)
        for s in range(100):
            ids = policy.select(policy.init(clients), view(clients), np.random.default_rng(s)).ids
            assert len(np.unique(ids)) == m
            seen_ |= set(ids.tolist())
    assert seen_ == set(range(30))


def test_what_is_missing_or_out_of_bounds_is_said():
    policy, clients = fp.FedCBS(2), fp.Clients(np.ones(3))
    with pytest.raises(fp.MissingError, match=r"FedCBS needs Clients\.labels"):
        policy.select(policy.init(clients), view(clients), np.random.default_rng(0))
    with pytest.raises(fp.SettingError, match="FedCBS: draws = 0"):
        fp.FedCBS(2, draws=0)
    with pytest.raises(fp.SettingError, match=r"FedCBS: exploration = -1"):
        fp.FedCBS(2, exploration=-1)
