"""The correction of the bias towards fast clients: by a plain twin, by the exact law, and in a bigger world."""

import heapq
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick import worlds
from fedpick.engine.rates import MOST, Rates
from fedpick.engine.stream import Stream

ANSWERS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1.0, 2.0, 7.0]), st.floats(0.05, 1.0)), max_size=60)


def by_definition(answers):
    """b of each answer: p/S of its client times the number of answers over the sum of counts p/S, at most 10."""
    found = []
    for at in range(1, len(answers) + 1):
        so_far = answers[:at]
        client, share, _ = so_far[-1]
        summed = {k: sum(s for other, _, s in so_far if other == k) for k, _, _ in so_far}
        last = {k: p for k, p, _ in so_far}
        total = sum(last[k] / summed[k] for k, _, _ in so_far)
        found.append(min(share / summed[client] * at / total, MOST))
    return found


@given(ANSWERS)
def test_weights_are_those_of_the_definition(answers):
    rates = Rates()
    found = [rates.weigh(*each) for each in answers]
    assert found == pytest.approx(by_definition(answers), rel=1e-9)
    assert max(found, default=0.0) <= MOST


@given(ANSWERS, st.integers(0, 60))
def test_weights_after_a_checkpoint_are_the_same_to_the_last_bit(answers, cut):
    whole, rates = Rates(), Rates()
    found = []
    for at, each in enumerate(answers):
        rates = Rates.unpack(rates.pack()) if at == cut else rates
        found.append(rates.weigh(*each) == whole.weigh(*each))
    assert all(found)


def test_a_client_that_hardly_ever_answers_counts_no_more_than_ten():
    rates = Rates()
    for _ in range(100):
        rates.weigh("fast", 1.0, 1.0)
    assert rates.weigh("slow", 1.0, 1.0) == 10.0


def totals(seconds, concurrency, answers, seed, **settings):
    """What each client's answers count for in all, over the mean, if clients are chosen by chance among the idle."""
    luck, now, weights = random.Random(seed), 0.0, np.zeros(len(seconds))
    stream = Stream(fp.Buffered(concurrency, size=10, timeout=1e9, **settings))
    idle, agenda, ended = list(range(len(seconds))), [], 0
    while ended < answers:
        while stream.free:
            at = luck.randrange(len(idle))
            idle[at], idle[-1] = idle[-1], idle[at]
            client = idle.pop()
            (task,) = stream.send(fp.Choice([client]), [client], now, np.ones(1))
            heapq.heappush(agenda, (now + seconds[client] * luck.uniform(0.5, 1.5), task.id, client))
        now, id, client = heapq.heappop(agenda)
        stream.arrive(id, now)
        idle.append(client)
        if stream.full:
            found = stream.commit(now)
            ended += len(found)
            for each in found:
                weights[each.task.client] += each.weight
    return weights / weights.mean()


def test_with_the_correction_each_client_counts_the_same():
    """Times (1, 1, 4), two at work: shares of answers are 5/12, 5/12, 1/6, so weights are .8, .8 and 2."""
    found = np.array([totals((1.0, 1.0, 4.0), 2, 5000, seed, correct=True) for seed in range(8)])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (error < 0.01).all()
    assert (np.abs(found.mean(axis=0) - 1.0) < 0.05).all()
    plain = totals((1.0, 1.0, 4.0), 2, 5000, 0)
    assert plain[2] < 0.6  # without it, the slow one counts half of that


def test_with_the_correction_each_of_many_clients_counts_the_same():
    """40 clients, 20 at work, times from .5 to 8: the fastest answers over five times as often as the slowest."""
    seconds = np.geomspace(0.5, 8.0, 40)
    found = np.array([totals(seconds, 20, 10_000, seed, correct=True) for seed in range(5)])
    error = found.std(axis=0, ddof=1).mean() / np.sqrt(len(found))
    assert error < 0.02
    assert (np.abs(found.mean(axis=0) - 1.0) < 0.05 + 3 * error).all()
    plain = totals(seconds, 20, 10_000, 0)
    assert plain.max() > 5 * plain.min()


def test_a_simulated_run_is_corrected_too():
    """Three clients of 1, 1 and 4 seconds; the shares that answers count for are 1/3 each."""
    world = fp.World(
        fp.Clients([1.0, 1.0, 1.0]),
        availability=worlds.Always(),
        volatility=worlds.Reliable(),
        latency=worlds.PerClient((1.0, 1.0, 4.0)),
        deadline=None,
    )
    weights = np.zeros(3)
    run = fp.Run(fp.Uniform(2), world, 0, pace=fp.Buffered(2, size=1, correct=True))
    for record in run.rounds(until=1500):
        weights[record.ids] += [each.weight for each in record.tasks]
    # The slow one answers about 250 times, with times between that vary by less than their mean.
    np.testing.assert_allclose(weights / weights.sum(), [1 / 3] * 3, rtol=4 / np.sqrt(250))


@pytest.mark.parametrize("mixing", ["constant", "polynomial", "hinge"])
def test_fedasync_has_no_weights_to_correct(mixing):
    with pytest.raises(fp.SettingError, match=f"correct = True has no place beside mixing = '{mixing}': FedAsync"):
        fp.Buffered(2, size=1, mixing=mixing, correct=True)
