"""S-FedAvg: relevances as in Algorithm 1, draws in proportion to their exponentials, by enumeration."""

import itertools

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies.s_fedavg import SFedAvgState
from zoo import view


def test_relevance_is_an_exponential_average_of_the_values():
    policy, clients = fp.SFedAvg(2), fp.Clients(np.ones(4))
    state, wanted, rng = policy.init(clients), np.zeros(4), np.random.default_rng(0)
    for t in range(1, 30):
        choice, values = fp.Choice(np.sort(rng.permutation(4)[:2])), rng.normal(size=2)
        values[rng.random(2) < 0.2] = rng.choice([np.nan, np.inf, 1e300])
        status = rng.choice([0, 2], 2, p=[0.8, 0.2])
        told = fp.Outcome(status, np.ones(2), np.ones(2), {"shapley": values})
        state = policy.observe(state, view(clients, t), choice, told)
        for at, k in enumerate(choice.ids):
            if status[at] == 0 and abs(values[at]) <= 1e12:
                wanted[k] = 0.75 * wanted[k] + 0.25 * values[at]
        np.testing.assert_allclose(state.relevance, wanted)


def test_cohorts_are_drawn_by_the_softmax():
    """Of four clients two, one after another without replacement: against enumeration, within 4.5 standard errors."""
    phi, draws = np.array([0.0, 0.5, -1.0, 1.0]), 2000
    policy, clients = fp.SFedAvg(2), fp.Clients(np.ones(4))
    state, odds, inclusion = SFedAvgState(np.zeros(4, dtype=np.int64), phi), np.exp(phi), np.zeros(4)
    for a, b in itertools.permutations(range(4), 2):
        inclusion[[a, b]] += odds[a] / odds.sum() * odds[b] / (odds.sum() - odds[a])
    counts, rng = np.zeros(4), np.random.default_rng(0)
    for _ in range(draws):
        counts[policy.select(state, view(clients), rng).ids] += 1
    assert (np.abs(counts / draws - inclusion) <= 4.5 * np.sqrt(inclusion * (1 - inclusion) / draws)).all()


def test_a_relevance_however_low_leaves_cohorts_whole():
    policy, clients = fp.SFedAvg(3), fp.Clients(np.ones(3))
    state = SFedAvgState(np.zeros(3, dtype=np.int64), np.array([0.0, -1e12, 1e12]))
    assert policy.select(state, view(clients), np.random.default_rng(0)).ids.tolist() == [0, 1, 2]
    state = fp.admit(policy, state, fp.Clients([1.0]))
    assert state.relevance[3] == 0.0


def test_a_memory_out_of_bounds_is_refused():
    with pytest.raises(fp.SettingError, match="SFedAvg: memory"):
        fp.SFedAvg(2, memory=1.0)
