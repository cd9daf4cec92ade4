"""UCB-CS against the paper's sums over the whole history; the faults of two public copies."""

import math

import numpy as np
import pytest

import fedpick as fp
from zoo import outcome, view

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


def twin_index(history, spread, sigma, sizes, gamma, round):
    """p (L/N + sqrt(2 sigma^2 ln T / N)) for all who took part, from every value ever told."""
    found = {}
    T = sum(gamma ** (round - 1 - t) for t in range(1, round))
    widest = max(spread.values()) if spread else sigma
    for k in {k for values in history.values() for k in values}:
        L = sum(gamma ** (round - 1 - t) * values[k] for t, values in history.items() if k in values)
        N = sum(gamma ** (round - 1 - t) for t, values in history.items() if k in values)
        found[k] = sizes[k] / max(sizes) * (L / N + math.sqrt(2 * widest**2 * math.log(T) / N))
    return found


def test_no_deviation_is_known_before_two_clients_of_a_round_told_their_loss():
    policy, clients = fp.UCBCS(2), fp.Clients(np.ones(3))
    state = policy.init(clients)
    for t, (status, sigma) in enumerate([([DONE, FAILED], 0.0), ([DONE, DONE], 0.5), ([FAILED, DONE], 0.5)], 1):
        told = fp.Outcome(status, np.ones(2), np.array([1.0, 2.0]))
        state = policy.observe(state, view(clients, t), fp.Choice(np.array([0, 1])), told)
        assert state.sigma == sigma


@pytest.mark.parametrize(("seed", "gamma", "told"), [(0, 0.7, True), (1, 0.95, False), (2, 1.0, True)])
def test_cohorts_are_the_highest_of_the_papers_sums(seed, gamma, told):
    rng = np.random.default_rng(seed)
    clients = fp.Clients(rng.integers(5, 100, 12))
    sizes = clients.sizes.tolist()
    policy = fp.UCBCS(3, gamma=gamma)
    state, history, spread, sigma = policy.init(clients), {}, {}, 0.0
    for t in range(1, 60):
        seen = view(clients, t, rng.random(12) < 0.8)
        there = np.flatnonzero(seen.available).tolist()
        found = twin_index(history, spread, sigma, sizes, gamma, t) if t > 1 else {}
        tried = [k for k in there if k in found]
        if tried:
            mine = policy.index(state, np.array(tried), clients.sizes[tried] / max(sizes), t)
            np.testing.assert_allclose(mine, [found[k] for k in tried], rtol=1e-9)
        choice = policy.select(state, seen, rng)
        new = [k for k in there if k not in found]
        m = min(3, len(there))
        assert len(set(choice.ids.tolist()) & set(new)) == min(m, len(new))
        best = sorted(tried, key=lambda k: -found[k])[: m - min(m, len(new))]
        assert set(best) <= set(choice.ids.tolist())
        reports = {"loss_std": rng.gamma(1.0, size=len(choice))} if told else {}
        result = outcome(choice, rng, status=rng.choice([DONE, LATE, FAILED, SURPLUS], len(choice)), reports=reports)
        heard = {k: x for k, x, s in zip(choice.ids.tolist(), result.loss, result.status, strict=True) if s in (0, 3)}
        own = {k: x for k, x in zip(choice.ids.tolist(), state.value[choice.ids], strict=True) if not np.isnan(x)}
        lowest = min(heard.values()) if heard else min(own.values(), default=0.0)
        history[t] = {k: heard.get(k, min(own.get(k, lowest), lowest)) for k in choice.ids.tolist()}
        if told:
            said = zip(choice.ids.tolist(), reports["loss_std"], strict=True)
            spread |= {k: x for k, x in said if k in heard}
        if len(heard) > 1:
            sigma = float(np.std(list(heard.values())))
        state = policy.observe(state, seen, choice, result)


def test_after_thousands_of_rounds_numbers_are_still_finite_and_in_order():
    """N itself is 0 in floating point after 2,100 rounds with gamma 0.7, and 1/N infinite."""
    policy, clients = fp.UCBCS(2), fp.Clients(np.ones(4))
    state = policy.init(clients)
    for t, ids in ((1, [0, 1]), (2, [2, 3])):
        told = fp.Outcome([DONE, DONE], [1.0, 1.0], [1.0, 3.0])
        state = policy.observe(state, view(clients, t), fp.Choice(ids), told)
    assert 0.7**5000 == 0.0
    index = policy.index(state, np.arange(4), np.ones(4), 5000)
    assert np.isfinite(index).all()
    assert index[0] == index[1] > index[2] == index[3] > 0.0  # the bonus of those not heard for longest
    assert policy.select(state, view(clients, 5000), np.random.default_rng(0)).ids.tolist() == [0, 1]


def losses_over(policy, of, rounds, count):
    clients = fp.Clients(np.ones(count))
    state = policy.init(clients)
    for t in range(1, rounds + 1):
        choice = fp.Choice(np.arange(count))
        state = policy.observe(state, view(clients, t), choice, fp.Outcome([DONE] * count, [1.0] * count, of(t)))
    return state


def test_the_fault_of_a_copy_that_never_discounts_prefers_a_client_whose_loss_has_fallen():
    """Its L and N are plain sums; ours follows what a client says now."""
    of = lambda t: [9.0 if t <= 6 else 1.0, 4.0]  # noqa: E731
    state = losses_over(fp.UCBCS(1), of, 12, 2)
    plain = [np.mean([of(t)[k] for t in range(1, 13)]) for k in range(2)]
    assert plain[0] > plain[1]  # theirs
    assert state.value[0] < 2.0 < state.value[1]
    state.sigma = 0.0
    seen = view(fp.Clients(np.ones(2)), 13)
    assert fp.UCBCS(1).select(state, seen, np.random.default_rng(0)).ids.tolist() == [1]


def test_the_fault_of_a_copy_that_counts_rounds_to_come():
    """Its T in round 5 grows with the rounds that are planned; T is below 1 / (1 - gamma), and so is the bonus."""
    theirs = [sum(0.7 ** (5 - t) for t in range(1, planned + 1)) for planned in (20, 60)]
    assert theirs[0] > 100 / 0.3
    assert theirs[1] > 1e8
    state = losses_over(fp.UCBCS(1), lambda t: [1.0, 1.0], 4, 2)
    state.sigma = 1.0
    T, N = (1 - 0.7**4) / 0.3, (1 - 0.7**4) / 0.3
    wanted = 1.0 + math.sqrt(2.0 * math.log(T) / N)
    np.testing.assert_allclose(fp.UCBCS(1).index(state, np.arange(2), np.ones(2), 5), wanted)


def test_the_fault_of_a_copy_whose_three_histories_are_one_list():
    """Losses and the mask of the chosen are then the same numbers, so that L / N is 1 for everybody."""
    one = []
    losses, chosen = one, one
    losses.append([3.0, 0.5])
    assert np.divide(np.sum(losses, axis=0), np.sum(chosen, axis=0)).tolist() == [1.0, 1.0]
    assert losses_over(fp.UCBCS(1), lambda t: [3.0, 0.5], 1, 2).value.tolist() == [3.0, 0.5]


def test_only_those_who_are_there_are_chosen_and_hostile_numbers_are_failures():
    """The first copy chooses clients that are away."""
    policy, clients = fp.UCBCS(2), fp.Clients(np.ones(5))
    told = fp.Outcome([DONE] * 5, [1.0] * 5, [2.0, np.nan, np.inf, 1e300, 5.0], {"loss_std": [1.0, -1.0, np.inf, 9, 2]})
    state = policy.observe(policy.init(clients), view(clients), fp.Choice(np.arange(5)), told)
    assert state.value.tolist() == [2.0, 2.0, 2.0, 2.0, 5.0]
    assert state.spread.tolist() == [1.0, 0.0, 0.0, 9.0, 2.0]
    there = np.array([True, True, False, True, False])
    assert set(policy.select(state, view(clients, 2, there), np.random.default_rng(0)).ids.tolist()) <= {0, 1, 3}


def test_a_client_that_is_never_waited_for_comes_first_three_times():
    policy, clients = fp.UCBCS(1), fp.Clients(np.ones(3))
    state = losses_over(policy, lambda t: [1.0, 1.0], 1, 2)
    state = fp.admit(policy, state, fp.Clients([1.0]))
    for t in range(2, 5):
        choice = policy.select(state, view(clients, t), np.random.default_rng(t))
        assert choice.ids.tolist() == [2]
        state = policy.observe(state, view(clients, t), choice, fp.Outcome([SURPLUS], [np.nan], [np.nan]))
    assert np.isnan(state.value[2])
    drawn = [policy.select(state, view(clients, 5), np.random.default_rng(s)).ids[0] for s in range(60)]
    assert set(drawn) == {0, 1, 2}


def test_gamma_must_be_a_share():
    with pytest.raises(fp.SettingError, match=r"UCBCS: gamma = 0\.0, but must be a number > 0 and <= 1"):
        fp.UCBCS(2, gamma=0.0)
