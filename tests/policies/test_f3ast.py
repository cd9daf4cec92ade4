"""F3AST against its rule written out, and what its weights come to in the long run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import outcome, view


def play(policy, clients, rounds, there, seed=0):
    """Yields each round's choice; the state is handed along."""
    rng, state = np.random.default_rng(seed), policy.init(clients)
    for t in range(1, rounds + 1):
        seen = view(clients, t, there(rng))
        choice = policy.select(state, seen, rng)
        yield t, seen, state, choice
        state = policy.observe(state, seen, choice, outcome(choice, rng))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), m=st.integers(1, 5), beta=st.sampled_from([0.01, 0.2, 0.5]))
def test_it_is_the_rule_of_the_paper(seed, m, beta):
    """r as a plain list, p^2 / r^2 by loops; a great many rounds would overflow the scale, so it is set to do so."""
    clients = fp.Clients(np.random.default_rng(seed).integers(1, 40, 7) + np.random.default_rng(seed).random(7))
    p, policy = clients.sizes / clients.sizes.sum(), fp.F3AST(m, beta=beta)
    r = [min(m / 7, 1.0)] * 7
    for _, seen, state, choice in play(policy, clients, 30, lambda rng: rng.random(7) < 0.6, seed):
        np.testing.assert_allclose(policy.rates(state), r, rtol=1e-9)
        there = [k for k in range(7) if seen.available[k]]
        best = sorted((p[k] / r[k]) ** 2 for k in there)[::-1][:m]
        np.testing.assert_allclose(sorted((p[k] / r[k]) ** 2 for k in choice.ids)[::-1], best, rtol=1e-9)
        r = [(1 - beta) * r[k] + beta * (k in choice.ids) for k in range(7)]
        if len(choice):  # the rates are updated first: no weight can be above p / beta
            assert not choice.normalise
            np.testing.assert_allclose(choice.weights, [p[k] / r[k] for k in choice.ids], rtol=1e-9)
            assert (choice.weights <= p[choice.ids] / beta).all()


@pytest.mark.slow
def test_in_the_long_run_every_client_counts_with_its_share_although_some_are_rarely_there():
    """The mean weight over many rounds, against p; with equal weights of the chosen it is far off."""
    sizes, chance, rounds = np.array([4.0, 1.0, 3.0, 2.0, 6.0, 4.0]), np.array([0.9, 0.9, 0.5, 0.3, 0.2, 0.7]), 4000
    clients, held, plain = fp.Clients(sizes), np.zeros(6), np.zeros(6)
    for t, _, _, choice in play(fp.F3AST(2, beta=0.01), clients, rounds, lambda rng: rng.random(6) < chance):
        if t > rounds // 2 and len(choice):
            held[choice.ids] += choice.weights / (rounds // 2)
            plain[choice.ids] += 1 / len(choice) / (rounds // 2)
    p = sizes / sizes.sum()
    # The rate of a client available 20% of the time is an average over 1 / beta = 100 rounds: 20 visits, a standard
    # error of 22%, which averages out over 20 such spans.
    np.testing.assert_allclose(held, p, rtol=4 * 0.22 / np.sqrt(20))
    assert np.abs(plain / p - 1).max() > 0.3


def test_the_scale_is_renewed_and_nothing_changes():
    clients = fp.Clients([1.0, 2.0, 3.0])
    plain = [c.ids.tolist() for *_, c in play(fp.F3AST(1, beta=0.5), clients, 400, lambda rng: rng.random(3) < 0.8)]
    assert len(plain) == 400  # 2^400 is beyond 1e100
    last = list(play(fp.F3AST(1, beta=0.5), clients, 400, lambda rng: rng.random(3) < 0.8))[-1]
    assert last[2].scale < 1e100
    assert (last[2].rate >= 0).all()


def test_a_newcomer_begins_at_the_even_rate_and_leavers_take_theirs_along():
    policy, clients = fp.F3AST(2, beta=0.1), fp.Clients(np.ones(4))
    *_, (_, _, state, _) = play(policy, clients, 20, lambda rng: np.array([True, True, True, False]))
    rates = policy.rates(state)
    state = fp.admit(policy, fp.retire(policy, state, [3, 0]), fp.Clients([1.0, 1.0]))
    np.testing.assert_allclose(policy.rates(state), [rates[3], rates[0], 0.5, 0.5])
    assert rates[3] == pytest.approx(0.5 * 0.9**19)
    seen = view(fp.Clients(np.ones(4)), 21)
    choice = policy.select(state, seen, np.random.default_rng(0))
    assert 0 in choice.ids  # it was away all the time
    state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
    assert (policy.rates(state) > 0).all()


def test_most_bounds_the_weight_of_who_was_away():
    policy, clients = fp.F3AST(1, beta=0.05, most=2.0), fp.Clients(np.ones(3))
    *_, (_, _, state, _) = play(policy, clients, 60, lambda rng: np.array([True, True, False]))
    choice = policy.select(state, view(clients, 61), np.random.default_rng(0))
    assert choice.ids.tolist() == [2]
    assert choice.weights[0] == pytest.approx(2.0)  # most p K / m
    free = fp.F3AST(1, beta=0.05).select(state, view(clients, 61), np.random.default_rng(0))
    assert free.weights[0] == pytest.approx(1 / 3 / 0.05, rel=0.3)


def test_in_a_large_fleet_no_weight_is_above_p_over_beta():
    """A rate that is used before it is updated falls below 1e-10 where few of many can be chosen: weights of 1e4."""
    clients, policy = fp.Clients(np.ones(2000)), fp.F3AST(2)
    *_, (_, _, state, _) = play(policy, clients, 2000, lambda rng: np.arange(2000) < 1900)
    choice = policy.select(state, view(clients, 2001), np.random.default_rng(0))
    assert (choice.ids >= 1900).all()
    assert (1 / 2000 / policy.rates(state)[choice.ids] > 1e4).all()  # what it was
    np.testing.assert_allclose(choice.weights, 1 / 2000 / policy.beta, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cohort_size": 0}, "F3AST: cohort_size = 0"),
        ({"beta": 0.0}, r"F3AST: beta = 0\.0, but must be a number > 0 and <= 0\.5"),
        ({"most": 0.5}, r"F3AST: most = 0\.5, but must be a number >= 1"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(options, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.F3AST(**{"cohort_size": 2, **options})


@pytest.mark.parametrize(("concurrency", "size"), [(4, 4), (6, 2), (2, 5)])
def test_without_rounds_an_answer_counts_one_on_average(concurrency, size):
    """Rates are per move of the model and an ask is of one client: p / r as it is would be 1 / size of that."""
    sizes = np.array([1.0, 2.0, 3.0, 4.0] * 3)
    world = fp.World(fp.Clients(sizes), latency=fp.worlds.LogNormalTime())
    run = fp.Run(fp.F3AST(concurrency), world, pace=fp.Buffered(concurrency, size=size), seed=3)
    late = [record for record in run.rounds(until=400) if record.round > 200]
    bases = [(each.task.client, each.task.base) for record in late for each in record.tasks]
    held = np.zeros(12)
    for client, base in bases:
        held[client] += base / len(bases)
    assert abs(held.sum() - 1.0) < 0.1  # 1 / size without the sum of the rates: 0.2 to 0.5
    # A client ends about 4 tasks in 10 moves at most, rates remember 100: 30 tasks and more, a standard error of 1 in 5
    # for the one of least data, and 200 moves hold two such spans.
    np.testing.assert_allclose(held, sizes / sizes.sum(), rtol=4 * 0.2 / np.sqrt(2))
