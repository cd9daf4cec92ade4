"""FedLECC against a loop over sorted clusters and losses."""

import math

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies import _labels as labels
from zoo import outcome, view

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


def people(kinds=4, per_kind=5, seed=0):
    rng = np.random.default_rng(seed)
    share = np.full((kinds, kinds), 0.1 / kinds) + 0.9 * np.eye(kinds)
    counts = np.array([rng.multinomial(200, share[k]) for k in np.repeat(np.arange(kinds), per_kind)])
    return fp.Clients(counts.sum(axis=1), labels=counts)


def twin(there, cluster, loss, m, J):
    """The worst J clusters, ceil(m/J) places each; what is left goes round all clusters in order."""
    held = sorted({cluster[k] for k in there})
    mean = {c: np.mean([loss[k] for k in there if cluster[k] == c]) for c in held}
    order, each, chosen = sorted(held, key=lambda c: -mean[c]), math.ceil(m / J), []
    queue = {c: sorted((k for k in there if cluster[k] == c), key=lambda k: -loss[k]) for c in held}
    while len(chosen) < min(m, len(there)):
        for c in order:
            for _ in range(min(each, len(queue[c]), m - len(chosen))):
                chosen.append(queue[c].pop(0))
    return sorted(chosen)


@pytest.mark.parametrize(
    ("seed", "J", "m", "probe"), [(0, 3, 7, False), (1, 2, 9, False), (2, 1, 8, True), (3, 4, 3, True)]
)
def test_cohorts_are_those_of_the_loop(seed, J, m, probe):
    rng, clients = np.random.default_rng(seed), people()
    policy = fp.FedLECC(m, worst=J, probe=probe)
    state = policy.init(clients)
    roots = np.sqrt(clients.labels / clients.labels.sum(axis=1, keepdims=True))
    cluster = labels.nearest(roots, state.centres).tolist()
    assert len(set(cluster)) == 4
    loss = {}
    for t in range(1, 30):
        now = rng.gamma(2.0, size=20)
        asked = (lambda ids, batch=None, now=now: now[ids]) if probe else None
        seen = view(clients, t, rng.random(20) < 0.7, probe=asked)
        there = np.flatnonzero(seen.available).tolist()
        choice = policy.select(state, seen, rng)
        if probe:
            assert choice.ids.tolist() == twin(there, cluster, now, m, J)
        else:
            fresh = [k for k in there if k not in loss]
            places = min(m, len(there)) - min(m, len(fresh))
            assert len(set(choice.ids.tolist()) & set(fresh)) == min(m, len(fresh))
            said = lambda ids, loss=dict(loss): sorted((cluster[k], loss[k]) for k in ids)  # noqa: E731  # equal losses are drawn by lot
            best = twin([k for k in there if k in loss], cluster, loss, places, J) if places else []
            assert said(set(choice.ids.tolist()) - set(fresh)) == said(best)
        result = outcome(choice, rng, status=rng.choice([DONE, LATE, FAILED, SURPLUS], len(choice)))
        heard = {k: x for k, x, s in zip(choice.ids.tolist(), result.loss, result.status, strict=True) if s in (0, 3)}
        lowest = min(heard.values()) if heard else min((loss[k] for k in choice.ids.tolist() if k in loss), default=0.0)
        loss |= {k: heard.get(k, min(loss.get(k, lowest), lowest)) for k in choice.ids.tolist()}
        state = policy.observe(state, seen, choice, result)


def test_the_distance_of_roots_is_hellingers():
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.4, 0.0])
    hellinger = math.sqrt(1 - sum(math.sqrt(a * b) for a, b in zip(p, q, strict=True)))
    assert np.linalg.norm(np.sqrt(p) - np.sqrt(q)) / math.sqrt(2) == pytest.approx(hellinger)


def test_newcomers_come_first_and_belong_to_the_nearest_centre():
    clients = people()
    policy, rng = fp.FedLECC(4), np.random.default_rng(0)
    state = policy.init(clients)
    everyone = fp.Choice(np.arange(20))
    state = policy.observe(state, view(clients), everyone, outcome(everyone, rng, status=[DONE] * 20))
    new = clients.take([0, 19])
    state, grown = fp.admit(policy, state, new), clients.join(new)
    choice = policy.select(state, view(grown, 2), rng)
    assert {20, 21} <= set(choice.ids.tolist())
    state = policy.observe(state, view(grown, 2), choice, outcome(choice, rng))
    assert state.cluster[20:].tolist() == state.cluster[[0, 19]].tolist()


def test_when_there_are_twice_as_many_clients_they_are_clustered_again():
    everyone, rng = people(), np.random.default_rng(0)
    few = everyone.take(np.arange(10))
    policy = fp.FedLECC(4)
    state = policy.init(few)
    assert len(state.centres) == 2
    more = everyone.take(np.arange(10, 20))
    state, grown = fp.admit(policy, state, more), few.join(more)
    choice = policy.select(state, view(grown), rng)
    state = policy.observe(state, view(grown), choice, outcome(choice, rng))
    assert (len(state.centres), state.clustered, len(np.unique(state.cluster))) == (4, 20, 4)


def test_a_liar_lifts_its_cluster_and_nothing_else_of_it():
    clients, policy = people(), fp.FedLECC(6, worst=2)
    state, everyone = policy.init(clients), fp.Choice(np.arange(20))
    told = np.linspace(1.0, 2.0, 20)
    told[0] = 1e11
    result = fp.Outcome([DONE] * 20, np.ones(20), told)
    state = policy.observe(state, view(clients), everyone, result)
    ids = policy.select(state, view(clients, 2), np.random.default_rng(0)).ids
    cluster = state.cluster
    assert 0 in ids
    assert np.count_nonzero(cluster[ids] == cluster[0]) == 3


def test_what_is_missing_or_out_of_bounds_is_said():
    clients = people()
    with pytest.raises(fp.MissingError, match=r"FedLECC needs Clients\.labels"):
        fp.FedLECC(2).init(fp.Clients(np.ones(3)))
    policy = fp.FedLECC(2, probe=True)
    with pytest.raises(fp.MissingError, match="FedLECC: with probe=True it asks"):
        policy.select(policy.init(clients), view(clients, probe=None), np.random.default_rng(0))
    with pytest.raises(fp.SettingError, match="FedLECC: worst = 0"):
        fp.FedLECC(2, worst=0)
    nan = view(clients, probe=lambda ids, batch=None: np.full(len(ids), np.nan))
    assert len(policy.select(policy.init(clients), nan, np.random.default_rng(0))) == 2
