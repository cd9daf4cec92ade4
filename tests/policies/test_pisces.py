"""Pisces: scores of a twin that keeps all answers, how many newcomers are asked, and faults of the authors' code."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import worlds
from fedpick.engine.stream import Stream
from zoo import view

DONE, LATE, FAILED, SURPLUS = fp.Status
COUNT = 9
ANSWER = st.tuples(
    st.sampled_from([DONE, DONE, DONE, LATE, FAILED, SURPLUS]),
    st.sampled_from([0.0, 0.5, 2.0, 7.0, math.nan, math.inf, -3.0, 1e13]),  # loss
    st.sampled_from([0.25, 4.0, math.nan, math.inf, -1.0]),  # mean squared loss
    st.integers(0, 6),  # staleness
)
COMMITS = st.lists(st.dictionaries(st.integers(0, COUNT - 1), ANSWER, min_size=1, max_size=4), max_size=14)


class Twin:
    """All answers in lists; scores from the sums as they are printed."""

    def __init__(self, sizes, beta):
        self.sizes, self.beta, self.utility, self.lags = sizes, beta, {}, defaultdict(list)

    def told(self, commit):
        heard = {}
        for client, (status, loss, squared, _) in commit.items():
            square = loss * loss if math.isnan(squared) else squared
            if status in (DONE, SURPLUS) and 0.0 <= square <= 1e12:  # a NaN is not
                heard[client] = self.sizes[client] * math.sqrt(square)
        lowest = min(heard.values() if heard else [self.utility[k] for k in commit if k in self.utility], default=0.0)
        for client, (status, loss, _, staleness) in commit.items():
            if status != FAILED:
                self.lags[client].append(staleness)
            if status == SURPLUS and math.isnan(loss):
                continue  # it was not waited for
            self.utility[client] = heard.get(client, min(self.utility.get(client, math.inf), lowest))

    def score(self, client):
        last = self.lags[client][-5:]
        return self.utility[client] / (1.0 + sum(last) / max(len(last), 1)) ** self.beta


def tell(policy, state, clients, version, commit):
    ids = np.array(list(commit), dtype=np.int64)
    status, loss, squared, staleness = (np.array(column) for column in zip(*commit.values(), strict=True))
    seconds = np.where((status == SURPLUS) & np.isnan(loss), np.nan, 1.0)
    reports = {"squared_loss": squared, "staleness": staleness.astype(float)}
    outcome = fp.Outcome(status, seconds, loss, reports)
    return policy.observe(state, view(clients, version), fp.Choice(ids), outcome)


@settings(max_examples=150, deadline=None)
@given(COMMITS, st.sampled_from([0.0, 0.5, 2.0]), st.integers(1, COUNT), st.integers(0, 2**20))
def test_scores_and_choices_are_those_of_the_twin(commits, beta, m, seed):
    sizes = np.array([1.0, 2.0, 3.0] * 3)
    clients, rng = fp.Clients(sizes), np.random.default_rng(seed)
    policy, twin = fp.Pisces(m, beta=beta, explore=0.4, explore_least=0.4), Twin(sizes.tolist(), beta)
    state = policy.init(clients)
    for version, commit in enumerate(commits, 1):
        state = tell(policy, state, clients, version, commit)
        twin.told(commit)
    known = np.array(sorted(twin.utility), dtype=np.int64)
    assert np.flatnonzero(state.tried).tolist() == known.tolist()
    scores = np.array([twin.score(k) for k in known.tolist()])
    np.testing.assert_allclose(policy.scores(state, known), scores, rtol=1e-9)
    there = rng.random(COUNT) < 0.8
    chosen = policy.select(state, view(clients, 3, there), rng).ids
    assert len(chosen) == min(m, there.sum())
    assert there[chosen].all()
    best = {int(k): score for k, score in zip(known, scores, strict=True) if there[k]}
    taken, left = ([best[k] for k in best if (k in chosen) is side] for side in (True, False))
    assert min(taken, default=math.inf) >= max(left, default=-1.0) - 1e-9


def test_each_place_is_for_a_newcomer_with_the_same_probability():
    """Of 4 places among 20 tried and 20 new clients: the number of newcomers is binomial, within 4 standard errors."""
    clients = fp.Clients(np.ones(40))
    policy = fp.Pisces(4, explore=0.9, decay=0.98, explore_least=0.3)
    state = policy.init(clients)
    state.tried[:20], state.utility[:20] = True, 1.0
    for version, chance in ((1, 0.9), (11, 0.9 * 0.98**10), (500, 0.3)):
        picks = [policy.select(state, view(clients, version), np.random.default_rng(s)).ids for s in range(1500)]
        counts = np.bincount([(ids >= 20).sum() for ids in picks], minlength=5) / 1500
        law = np.array([math.comb(4, n) * chance**n * (1 - chance) ** (4 - n) for n in range(5)])
        assert (np.abs(counts - law) <= 4 * np.sqrt(law * (1 - law) / 1500) + 1e-12).all()
        new = np.bincount(np.concatenate(picks), minlength=40)[20:]
        mean = new.sum() / 20
        assert (np.abs(new - mean) <= 4.5 * np.sqrt(mean)).all()  # all newcomers alike


def test_who_is_stale_is_asked_less_than_who_is_fresh_with_the_same_losses():
    clients, policy = fp.Clients(np.ones(3)), fp.Pisces(1, explore=0.0)
    state = policy.init(clients)
    fresh, stale = (DONE, 1.0, 1.0, 0), (DONE, 1.5, 1.5**2, 3)
    state = tell(policy, state, clients, 1, {0: fresh, 1: stale, 2: (DONE, 0.1, 0.01, 0)})
    assert policy.scores(state, np.arange(3)).tolist() == pytest.approx([1.0, 0.75, 0.1])  # 1.5 / sqrt(1 + 3)
    assert policy.select(state, view(clients, 2), np.random.default_rng(0)).ids.tolist() == [0]
    assert fp.Pisces(1, beta=0.0, explore=0.0).select(
        state, view(clients, 2), np.random.default_rng(0)
    ).ids.tolist() == [1]


def test_whose_first_answer_waits_is_no_newcomer():
    clients, policy = fp.Clients(np.ones(3)), fp.Pisces(1, explore=1.0, explore_least=1.0)
    state, held = policy.init(clients), np.array([True, False, True])
    seen = view(clients, 1, held=held, there=np.ones(3, dtype=bool))
    assert {policy.select(state, seen, np.random.default_rng(s)).ids[0] for s in range(50)} == {1}


# Faults of github.com/SamuelGong/Pisces, plato/client_managers/sirius.py; the rules are our own lines after it.


def theirs_told(client, loss, size, version, of_version, utility):
    """With robustness: the loop over the answers of earlier versions has the names of this answer."""
    of_version.setdefault(version, []).append((client, loss))
    for before in range(5):
        if version - before < 0:
            break
        for client, loss in of_version[version - before]:  # noqa: B007 - the fault
            pass
    utility[client] = loss * size


def test_a_utility_belongs_to_the_client_that_reported_it():
    utility = {}
    of_version = {0: [(7, 9.0)]}
    theirs_told(2, 1.0, 1.0, 1, of_version, utility)
    assert utility == {7: 9.0}  # of client 2, nothing
    clients, policy = fp.Clients(np.ones(COUNT)), fp.Pisces(1)
    state = tell(policy, policy.init(clients), clients, 1, {7: (DONE, 9.0, 81.0, 0)})
    state = tell(policy, state, clients, 2, {2: (DONE, 1.0, 1.0, 0)})
    assert (state.utility[7], state.utility[2]) == (9.0, 1.0)


def test_versions_at_which_nobody_began_do_no_harm():
    with pytest.raises(KeyError):
        theirs_told(2, 1.0, 1.0, 5, {3: [(7, 9.0)]}, {})  # nobody began at version 4
    clients, policy = fp.Clients(np.ones(COUNT)), fp.Pisces(1)
    state = tell(policy, policy.init(clients), clients, 3, {7: (DONE, 9.0, 81.0, 0)})
    state = tell(policy, state, clients, 5, {2: (DONE, 1.0, 1.0, 2)})
    assert state.utility[2] == 1.0


def theirs_interval(latency, bound):
    """A latency of up to one second counts as none, and none as 180 seconds."""
    return (180.0 if latency < 1.0 + 1e-8 else latency) / bound


def test_who_takes_less_than_a_second_is_not_taken_for_unseen():
    assert theirs_interval(0.5, 1) == 180.0
    stream = Stream(fp.Buffered(2, size=None, bound=1))
    moves = []
    sent = stream.send(fp.Choice([0, 1]), [0, 1], 0.0, np.ones(2))
    for now in (0.5, 1.0, 1.5):  # both take half a second
        for task in sent:
            stream.arrive(task.id, now)
        sent = stream.send(fp.Choice([0, 1]), [0, 1], now, np.ones(2))
        assert stream.due(now)  # they will take half a second again: it is time after a quarter
        assert stream.next(now) == now
        stream.commit(now)
        moves.append(stream.moved_at)
        assert not stream.due(now)
    assert moves == [0.5, 1.0, 1.5]


def test_the_model_moves_often_enough_for_the_slowest_at_work():
    """Client 0 takes 8 seconds, the others one: with a bound of 3 the model moves every 2 seconds."""
    for bound, least in ((3, 2.0), (15, 0.5)):
        world = fp.World(
            fp.Clients(np.ones(4)),
            availability=worlds.Always(),
            volatility=worlds.Reliable(),
            latency=worlds.PerClient((8.0, 1.0, 1.0, 1.0)),
            deadline=None,
        )
        run = fp.Run(fp.Uniform(4), world, 0, pace=fp.Buffered(4, size=None, bound=bound))
        records = list(run.rounds(until=60))[20:]
        assert all(record.seconds >= least for record in records)
        assert np.mean([record.seconds for record in records]) <= max(least, 1.0) + 1e-9
        stale = [each.staleness for record in records for each in record.tasks]
        assert max(stale) <= bound + 1


def test_it_keeps_the_rules_of_policies():
    fp.checks.check_policy(fp.Pisces(4))


@pytest.mark.parametrize("pace", [fp.Buffered(6, size=3), fp.Rounds()], ids=["buffered", "rounds"])
def test_it_plays_without_rounds_and_with_them(pace):
    data = fp.data.Synthetic(1.0, 1.0)(num_clients=12, rng=fp.rng.stream(0, 0, "data"))
    trainer = fp.learn.Trainer(
        data, fp.learn.logistic((60,), 10), lr=0.05, batch=20, steps=3, reports=("squared_loss",)
    )
    world = fp.World(
        data.clients, deadline=20.0, latency=worlds.LogNormalTime(), volatility=worlds.SuccessRates((0.9,))
    )
    run = fp.Run(fp.Pisces(6), world, 0, trainer, pace=pace)
    records = list(run.rounds(until=30))
    state = run.state.policy
    assert state.counts.sum() == sum(len(record.ids) for record in records)
    assert state.tried.all()
    assert (state.lags.max() > 0) == isinstance(pace, fp.Buffered)


@pytest.mark.parametrize("name", ["beta", "explore", "decay", "explore_least"])
def test_settings_out_of_bounds(name):
    with pytest.raises(fp.SettingError, match=rf"Pisces: {name} = -0\.5"):
        fp.Pisces(3, **{name: -0.5})
