"""GreedyFed: Algorithm 1 as a loop; every client once, then the most valuable, with any availability."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import view


def told(choice, values, status=None):
    status = np.zeros(len(choice), dtype=int) if status is None else status
    return fp.Outcome(status, np.ones(len(choice)), np.ones(len(choice)), {"shapley": values})


class Twin:
    """The paper's loop with plain dictionaries; returns who may be chosen where values tie."""

    def __init__(self, count, memory):
        self.memory, self.worth, self.seen, self.tried = memory, dict.fromkeys(range(count), 0.0), {}, set()
        self.excused = dict.fromkeys(range(count), 0)

    def agrees(self, chosen, there, m):
        fresh = [k for k in there if k not in self.tried]
        new = [k for k in chosen if k not in self.tried]
        if len(new) != min(m, len(fresh)) or len(chosen) != min(m, len(there)):
            return False
        rest = sorted((self.worth[k] for k in there if k in self.tried), reverse=True)
        old = sorted((self.worth[k] for k in chosen if k in self.tried), reverse=True)
        return old == pytest.approx(rest[: len(chosen) - len(new)])

    def learn(self, chosen, values, status):
        heard = [k for k, value, code in zip(chosen, values, status, strict=True) if code == 0 and np.isfinite(value)]
        excused = {k for k, code in zip(chosen, status, strict=True) if code == 3 or (code == 0 and not heard)}
        failed = [k for k in chosen if k not in {*heard, *excused}]
        for k in excused:
            self.excused[k] += 1
        self.tried |= set(chosen) - excused | {k for k in excused if self.excused[k] == 3}
        for k, value in zip(chosen, values, strict=True):
            if k not in heard:
                continue
            n = self.seen[k] = self.seen.get(k, 0) + 1
            if self.memory is None:
                self.worth[k] = ((n - 1) * self.worth[k] + value) / n
            else:
                self.worth[k] = self.memory * self.worth[k] + (1 - self.memory) * value
        lowest = [self.worth[k] for k in heard or failed]
        for k in failed:
            self.worth[k] = min([self.worth[k], *lowest])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), m=st.integers(1, 6), memory=st.sampled_from([None, 0.0, 0.5, 0.9]))
def test_choices_are_the_papers(seed, m, memory):
    rng = np.random.default_rng(seed)
    policy, clients = fp.GreedyFed(m, memory=memory), fp.Clients(np.ones(9))
    state, twin = policy.init(clients), Twin(9, memory)
    for t in range(1, 15):
        seen = view(clients, t, rng.random(9) < 0.7)
        choice = policy.select(state, seen, rng)
        assert twin.agrees(choice.ids.tolist(), np.flatnonzero(seen.available).tolist(), m)
        values, status = rng.normal(size=len(choice)), rng.choice(4, len(choice), p=[0.7, 0.1, 0.1, 0.1])
        values[(rng.random(len(choice)) < 0.2) | (status > 0)] = np.nan  # who is not DONE is not valued
        state = policy.observe(state, seen, choice, told(choice, values, status))
        twin.learn(choice.ids.tolist(), values, status.tolist())
        np.testing.assert_allclose(state.worth, [twin.worth[k] for k in range(9)], atol=1e-12)


def test_a_round_robin_then_the_best():
    policy, clients = fp.GreedyFed(3), fp.Clients(np.ones(9))
    state, seen_ids = policy.init(clients), []
    for t in range(1, 4):
        choice = policy.select(state, view(clients, t), fp.rng.stream(0, t, "policy"))
        seen_ids += choice.ids.tolist()
        state = policy.observe(state, view(clients, t), choice, told(choice, choice.ids / 10.0))
    assert sorted(seen_ids) == list(range(9))
    assert policy.select(state, view(clients, 4), np.random.default_rng(0)).ids.tolist() == [6, 7, 8]
    choice = policy.select(state, view(clients, 4, np.arange(9) != 8), np.random.default_rng(0))
    assert choice.ids.tolist() == [5, 6, 7]


def test_values_of_clients_that_failed_are_not_learned_and_newcomers_come_first():
    policy, clients = fp.GreedyFed(2), fp.Clients(np.ones(3))
    state = policy.init(clients)
    choice = fp.Choice([0, 1])
    state = policy.observe(state, view(clients), choice, told(choice, [9.0, 1e300], np.array([2, 0])))
    assert state.worth.tolist() == [0.0, 0.0, 0.0]
    assert state.counts.tolist() == [1, 0, 0]  # the server could value nobody
    state = policy.observe(state, view(clients), choice, told(choice, [9.0, -0.5], np.array([2, 0])))
    assert state.worth.tolist() == [-0.5, -0.5, 0.0]  # who failed ranks no higher than who was valued
    state = fp.admit(policy, fp.retire(policy, state, [1, 2]), fp.Clients([1.0]))
    for seed in range(10):
        assert policy.select(state, view(clients), np.random.default_rng(seed)).ids.tolist() == [1, 2]


@pytest.mark.parametrize("reports", [{}, {"shapley": [np.nan] * 3}, {"shapley": [1e300, np.inf, np.nan]}])
def test_a_server_that_cannot_value_moves_nobody(reports):
    """Clients that answered, before and after a round whose values are missing: the same ranks, tried or not."""
    policy, clients = fp.GreedyFed(3), fp.Clients(np.ones(5))
    state = policy.init(clients)
    first = fp.Choice([0, 1])
    state = policy.observe(state, view(clients), first, told(first, [0.5, -0.5]))
    choice = fp.Choice([0, 1, 2])
    state = policy.observe(state, view(clients), choice, fp.Outcome([0, 0, 0], np.ones(3), np.ones(3), reports))
    assert state.worth.tolist() == [0.5, -0.5, 0.0, 0.0, 0.0]
    assert state.counts.tolist() == [1, 1, 0, 0, 0]
    assert policy.select(state, view(clients, 3), np.random.default_rng(0)).ids.tolist() == [2, 3, 4]
    # An update may be made to break the server's function: not for ever before the others.
    for _ in range(2):
        state = policy.observe(state, view(clients), choice, fp.Outcome([0, 0, 0], np.ones(3), np.ones(3), reports))
    assert policy.select(state, view(clients, 3), np.random.default_rng(0)).ids.tolist() == [0, 3, 4]


def test_who_answers_when_enough_others_had_is_not_valued_and_not_lowered_but_who_alone_has_no_value_is():
    policy, clients = fp.GreedyFed(3), fp.Clients(np.ones(3))
    state, choice = policy.init(clients), fp.Choice([0, 1, 2])
    state = policy.observe(state, view(clients), choice, told(choice, [-0.5, np.nan, np.nan], np.array([0, 3, 0])))
    assert state.worth.tolist() == [-0.5, 0.0, -0.5]
    assert state.counts.tolist() == [1, 0, 1]
    assert state.excused.tolist() == [0, 1, 0]  # so that it comes first, but three times at most


@pytest.mark.parametrize("memory", [1.0, -0.1])
def test_a_memory_out_of_bounds_is_refused(memory):
    with pytest.raises(fp.SettingError, match="GreedyFed: memory"):
        fp.GreedyFed(2, memory=memory)
