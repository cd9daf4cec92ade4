"""CriticalFL against a list of all lengths and the two windows; the fault of the authors' code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies.critical import _critical
from zoo import view

DONE, FAILED = fp.Status.DONE, fp.Status.FAILED


def twin(means, K, m):
    """The cohort's size before each round and after the last, from every mean; None: no length was usable."""
    sizes, noted, size, reached, most = [m], [], m, False, max(int(0.75 * K), m)
    for t, mean in enumerate(means, 1):
        if t % 2 == 1 and mean is not None:
            noted.append(mean)
            reached = reached or size >= most
            new, old = noted[-10:], noted[:-1][-10:]
            critical = len(noted) <= 5 or np.mean(new) > 1.01 * np.mean(old)
            if not critical:
                size = max(m, size - max(size // 2, 1))
            elif not reached:
                size = min(most, size * 2)
        sizes.append(size)
    return sizes


def play(means, K, m, policy=None):
    clients = fp.Clients(np.ones(K))
    policy = fp.CriticalFL(fp.Uniform(m)) if policy is None else policy
    state, sizes, rng = policy.init(clients), [], np.random.default_rng(0)
    for t, mean in enumerate(means, 1):
        choice = policy.select(state, view(clients, t), rng)
        sizes.append(len(choice))
        spread = rng.random(len(choice))
        said = np.full(len(choice), np.nan) if mean is None else mean * spread / spread.mean()
        told = fp.Outcome([DONE] * len(choice), np.ones(len(choice)), np.ones(len(choice)), {"update_norm": said})
        state = policy.observe(state, view(clients, t), choice, told)
    return [*sizes, int(state.size)], state


@settings(max_examples=60, deadline=None)
@given(data=st.data(), K=st.integers(3, 60), m=st.integers(1, 8))
def test_sizes_are_those_of_the_whole_list(data, K, m):
    means = data.draw(
        st.lists(st.one_of(st.none(), st.sampled_from([0.5, 1.0, 2.0, 9.0, 0.0])), min_size=1, max_size=60)
    )
    m = min(m, K)
    assert play(means, K, m)[0] == twin(means, K, m)


def test_it_grows_to_three_quarters_falls_back_and_never_grows_again_after_that():
    rising = [1.05**t for t in range(40)]
    sizes, state = play([*rising, *([1.0] * 20), *rising], 40, 4)
    assert sizes[:8] == [4, 8, 8, 16, 16, 30, 30, 30]
    assert max(sizes) == 30
    assert sizes[60:] == [4] * len(sizes[60:])
    assert state.reached == 1


def test_the_fault_of_the_authors_code_constant_lengths_are_critical_for_twenty_rounds():
    """Its list begins with twelve zeros, which the windows hold until ten checks have passed."""
    noted, theirs = [0.0] * 12, []
    for number in range(1, 15):
        noted.append(1.0)
        old, new = max(np.mean(noted[-11:-1]), 1e-7), np.mean(noted[-10:])
        theirs.append((new - old) / old > 0.01 or number <= 5)
    assert theirs == [True] * 10 + [False] * 4
    lengths, ours = np.zeros(11), []
    for number in range(1, 15):
        lengths = np.append(lengths[1:], 1.0)
        ours.append(_critical(lengths, number))
    assert ours == [True] * 5 + [False] * 9


def test_who_failed_or_says_nonsense_is_not_in_the_mean():
    clients, policy = fp.Clients(np.ones(9)), fp.CriticalFL(fp.Uniform(5))
    said = [1.0, 3.0, np.nan, -4.0, 1e300]
    told = fp.Outcome([DONE] * 5, np.ones(5), np.ones(5), {"update_norm": said})
    state = policy.observe(policy.init(clients), view(clients), fp.Choice(np.arange(5)), told)
    assert state.lengths[-1] == 2.0
    told = fp.Outcome([FAILED] * 5, np.ones(5), np.ones(5), {"update_norm": said})
    later = policy.observe(state, view(clients, 3), fp.Choice(np.arange(5)), told)
    assert (later.checks, later.lengths[-1]) == (1, 2.0)


def test_what_it_needs_is_what_the_policy_inside_needs_and_the_lengths():
    about = fp.traits(fp.CriticalFL(fp.PowerOfChoice(3)))
    assert about.needs == {"probe", "update_norm"}
    assert fp.traits(fp.CriticalFL(fp.DivFL(3))).needs == {"sketch_32", "update_norm"}
    assert about.rounds_only
    assert not about.fixed_size


def test_a_policy_that_cannot_grow_is_refused():
    with pytest.raises(fp.SettingError, match="CriticalFL: OverSelect has no cohort size that can be doubled"):
        fp.CriticalFL(fp.OverSelect(fp.Uniform(3), 1.5))
    with pytest.raises(fp.SettingError, match="OverSelect: the wrapped policy changes the size of cohorts"):
        fp.OverSelect(fp.MinSeparation(fp.CriticalFL(fp.Uniform(3)), 2), 1.5)
    with pytest.raises(fp.SettingError, match="PowerOfChoice: candidates = 5"):
        fp.CriticalFL(fp.PowerOfChoice(3, candidates=5))
    with pytest.raises(fp.SettingError, match="PowerOfChoice: candidates = 7"):
        fp.CriticalFL(fp.PowerOfChoice(3, candidates=7)).init(fp.Clients(np.ones(30)))


def test_a_run_with_a_trainer_plays_it():
    pytest.importorskip("jax")
    from fedpick import learn

    people = fp.data.Synthetic(1.0, 1.0)(num_clients=20, rng=fp.rng.stream(0, 0, "data"))
    trainer = learn.Trainer(people, learn.logistic((60,), 10), lr=0.05, batch=20, steps=3, reports=("update_norm",))
    parts = {"availability": fp.worlds.Always(), "volatility": fp.worlds.Reliable()}
    world = fp.World(people.clients, deadline=None, **parts)
    run = fp.Run(fp.CriticalFL(fp.Uniform(2)), world, 0, trainer)
    assert [len(record.ids) for record in run.rounds(6)] == [2, 4, 4, 8, 8, 15]
