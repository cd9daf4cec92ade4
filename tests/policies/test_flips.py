"""FLIPS against a loop over clusters; the fault of a public copy; and k-means with the index of Davies and Bouldin."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies import _labels as labels
from fedpick.policies.flips import deal
from zoo import outcome, view

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


def people(kinds, per_kind=6, seed=0, examples=200):
    """Clients of so many kinds, most of whose data have one label each."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(kinds), per_kind)
    share = np.full((kinds, kinds), 0.1 / kinds) + 0.9 * np.eye(kinds)
    counts = np.array([rng.multinomial(examples, share[k]) for k in kind])
    return fp.Clients(counts.sum(axis=1), labels=counts), kind


@settings(max_examples=80, deadline=None)
@given(data=st.data(), m=st.integers(0, 25), k=st.integers(1, 6))
def test_places_are_dealt_one_after_the_other(data, m, k):
    able = np.array(data.draw(st.lists(st.integers(0, 6), min_size=k, max_size=k)))
    order = np.array(data.draw(st.permutations(range(k))))
    wanted, left = [0] * k, m
    for c in itertools.cycle(order.tolist()):
        if left == 0 or wanted == able.tolist():
            break
        if wanted[c] < able[c]:
            wanted[c], left = wanted[c] + 1, left - 1
    assert deal(m, able, order).tolist() == wanted


def twin_clusters(points, centres):
    return [min(range(len(centres)), key=lambda c: (sum((x - centres[c]) ** 2), c)) for x in points]


def twin_davies_bouldin(points, centres, label):
    held = sorted(set(label))
    spread = {
        c: np.mean([np.linalg.norm(points[i] - centres[c]) for i in range(len(points)) if label[i] == c]) for c in held
    }
    worst = [
        max((spread[a] + spread[b]) / np.linalg.norm(centres[a] - centres[b]) for b in held if b != a) for a in held
    ]
    return float(np.mean(worst))


def test_k_means_ends_where_no_point_and_no_centre_moves_and_the_best_number_is_found():
    clients, kind = people(4)
    points = labels.shares_of(labels.counts_of(None, clients))
    centres = labels.centres_of(points, None)
    label = labels.nearest(points, centres)
    assert label.tolist() == twin_clusters(points, centres)
    for c in range(len(centres)):
        np.testing.assert_allclose(centres[c], points[label == c].mean(axis=0))
    assert len(centres) == 4  # as many as there are kinds
    assert len({(a, b) for a, b in zip(kind.tolist(), label.tolist(), strict=True)}) == 4
    found = {}
    for k in range(2, 9):
        tried = labels._lloyd(points, k)
        found[k] = twin_davies_bouldin(points, *tried)
        assert labels._davies_bouldin(points, *tried) == pytest.approx(found[k], rel=1e-9)
    assert min(found, key=found.get) == 4


def test_of_many_clients_some_are_learned_from_and_all_are_assigned(monkeypatch):
    monkeypatch.setattr(labels, "LEARNED_FROM", 40)
    monkeypatch.setattr(labels, "BLOCK", 7)
    clients, kind = people(3, per_kind=100)
    points = labels.shares_of(labels.counts_of(None, clients))
    label = labels.nearest(points, labels.centres_of(points, None))
    assert len({(a, b) for a, b in zip(kind.tolist(), label.tolist(), strict=True)}) == 3


@pytest.mark.parametrize("stragglers", [False, True])
def test_each_round_is_that_of_the_loop(stragglers):
    """Places by cluster, fewest picks first, and as many more as were late, from their clusters."""
    rng = np.random.default_rng(3)
    clients, _ = people(3, per_kind=5)
    policy = fp.FLIPS(7, stragglers=stragglers)
    state = policy.init(clients)
    cluster = labels.nearest(labels.shares_of(labels.counts_of(None, clients)), state.centres).tolist()
    picks, of_cluster, late, before = [0] * 15, [0, 0, 0], [0, 0, 0], 0.0
    for t in range(1, 50):
        seen = view(clients, t, rng.random(15) < 0.8)
        there = np.flatnonzero(seen.available).tolist()
        choice = policy.select(state, seen, rng)
        able = [sum(cluster[k] == c for k in there) for c in range(3)]
        number = [sum(cluster[k] == c for k in choice.ids.tolist()) for c in range(3)]
        m = min(7, len(there))
        more = int(np.ceil(7 * before - 1e-9)) if stragglers else 0
        possible = []
        for lot in itertools.permutations(range(3)):  # whichever of several equal clusters is first
            order = sorted(range(3), key=lambda c: (of_cluster[c], lot[c]))
            given = deal(m, np.array(able), np.array(order))
            theirs = [able[c] - given[c] if late[c] else 0 for c in range(3)]
            order = sorted(range(3), key=lambda c: (-late[c], lot[c]))
            possible.append((given + deal(more, np.array(theirs), np.array(order))).tolist())
        assert number in possible
        for c in range(3):
            mine = [k for k in there if cluster[k] == c]
            chosen = [k for k in mine if k in choice.ids]
            if chosen and len(chosen) < len(mine):
                assert max(picks[k] for k in chosen) <= min(picks[k] for k in mine if k not in chosen)
        status = rng.choice([DONE, LATE, FAILED, SURPLUS], len(choice), p=[0.6, 0.2, 0.1, 0.1])
        state = policy.observe(state, seen, choice, outcome(choice, rng, status=status))
        failed = [k for k, s in zip(choice.ids.tolist(), status, strict=True) if s in (LATE, FAILED)]
        late = [sum(cluster[k] == c for k in failed) for c in range(3)]
        before = len(failed) / len(choice) if len(choice) else 0.0
        for k in choice.ids.tolist():
            picks[k] += 1
            of_cluster[cluster[k]] += 1
        assert state.picks.tolist() == picks
        assert state.taken.tolist() == of_cluster


def test_with_everyone_there_all_clusters_and_all_clients_of_one_are_picked_equally_often():
    clients, _ = people(5, per_kind=4)
    policy, rng = fp.FLIPS(3), np.random.default_rng(0)
    state = policy.init(clients)
    for t in range(1, 101):
        choice = policy.select(state, view(clients, t), rng)
        state = policy.observe(state, view(clients, t), choice, outcome(choice, rng, status=[DONE] * 3))
        assert np.ptp(state.taken) <= 1
        assert all(np.ptp(state.picks[state.cluster == c]) <= 1 for c in range(5))


def test_inclusion_is_how_often_clients_come_and_none_where_a_lot_decides_between_clusters():
    clients, _ = people(3, per_kind=4)
    policy, draws = fp.FLIPS(6, clusters=3), 1200
    state = policy.init(clients)
    first = policy.select(state, view(clients), np.random.default_rng(0))
    state = policy.observe(state, view(clients), first, outcome(first, np.random.default_rng(0), status=[DONE] * 6))
    state.picks[:] = [0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 5, 6]
    counts, told = np.zeros(12), np.zeros(12)
    for seed in range(draws):
        choice = policy.select(state, view(clients, 2), np.random.default_rng(seed))
        counts[choice.ids] += 1
        told[choice.ids] = choice.inclusion
    wanted = np.array([2 / 3] * 3 + [0.0] + [1.0] + [1 / 3] * 3 + [1.0] * 2 + [0.0] * 2)
    np.testing.assert_allclose(told, wanted)
    assert (np.abs(counts / draws - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / draws)).all()
    assert fp.FLIPS(7, clusters=3).select(state, view(clients, 2), np.random.default_rng(0)).inclusion is None


def test_the_fault_of_a_copy_that_gives_what_is_left_to_the_largest_clusters():
    """With fewer places than clusters its small ones never train."""
    sizes, m, picked = np.array([9, 7, 5, 3, 2]), 2, np.zeros(5, dtype=int)
    for _ in range(50):
        each, left = divmod(m, 5)
        picked += each + (np.arange(5) < left)  # sizes fall
    assert (picked[2:] == 0).all()
    ours = np.zeros(5, dtype=int)
    for _ in range(50):
        ours += deal(m, sizes, np.argsort(ours, kind="stable"))
    assert np.ptp(ours) == 0


def test_a_newcomer_belongs_to_the_nearest_centre_and_is_not_picked_until_it_has_caught_up():
    clients, kind = people(2, per_kind=4)
    policy, rng = fp.FLIPS(4), np.random.default_rng(0)
    state = policy.init(clients)
    for t in range(1, 21):
        choice = policy.select(state, view(clients, t), rng)
        state = policy.observe(state, view(clients, t), choice, outcome(choice, rng, status=[DONE] * 4))
    new = clients.take([0, 7])
    state, grown = fp.admit(policy, state, new), clients.join(new)
    chosen = [policy.select(state, view(grown, 21), np.random.default_rng(s)).ids for s in range(40)]
    assert 0.0 < np.mean([8 in ids for ids in chosen]) < 1.0  # as one of five that were picked equally often
    choice = fp.Choice([1])
    state = policy.observe(state, view(grown, 21), choice, outcome(choice, rng, status=[DONE]))
    assert state.cluster[8] == state.cluster[0] != state.cluster[9] == state.cluster[7]
    assert state.picks[8:].tolist() == [10, 10]
    assert kind[0] != kind[7]


def test_when_there_are_twice_as_many_clients_they_are_clustered_again():
    both, _ = people(4, per_kind=4)
    few = both.take(np.arange(8))  # two kinds
    policy, rng = fp.FLIPS(2), np.random.default_rng(0)
    state = policy.init(few)
    assert len(state.centres) == 2
    more, _ = people(4, per_kind=6, seed=1)
    state, grown = fp.admit(policy, state, more), few.join(more)
    choice = policy.select(state, view(grown), rng)
    state = policy.observe(state, view(grown), choice, outcome(choice, rng, status=[DONE] * len(choice)))
    assert len(state.centres) == 4
    assert state.clustered == 32
    assert state.taken.sum() == state.picks.sum() == 2


def test_a_client_that_told_nothing_is_like_the_mean_and_without_labels_it_says_so():
    clients = fp.Clients(np.ones(3), labels=[[3, 1], [1, 3], [0, 0]])
    assert labels.counts_of(None, clients).tolist() == [[3, 1], [1, 3], [2, 2]]
    assert labels.counts_of(None, fp.Clients(np.ones(2), labels=[[0, 0], [-1, 0]])).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(fp.MissingError, match=r"FLIPS needs Clients\.labels, the label counts of each client"):
        fp.FLIPS(2).init(fp.Clients(np.ones(3)))
    with pytest.raises(fp.SettingError, match="FLIPS: clusters = 0"):
        fp.FLIPS(2, clusters=0)
    assert not fp.FLIPS(2).fixed_size
    assert fp.FLIPS(2, stragglers=False).fixed_size
