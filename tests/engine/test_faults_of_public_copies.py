"""Faults found in public copies of FedBuff and FedAsync: the faulty rule gives a wrong number, and we the right one.

The faulty rules are our own few lines, after descriptions of the copies; no copy is run here.
"""

import math

import numpy as np
import pytest
from simulated import simulated
from streamed import streamed

from asynchronous import FedAsync, Script, play
from asynchronous_scripts import listed, steps
from fedpick import Status

# All that play a Script by the rules. In the simulator nobody answers twice; to the engine alone they do.
PLAYERS = {"reference": play, "simulator": simulated, "engine": streamed}


@pytest.fixture(params=PLAYERS.values(), ids=PLAYERS)
def player(request):
    return request.param


def constant(staleness):
    return 1.0


def moved_to(player, script, commits):
    """The model and the staleness of the answers in the last commit."""
    last = player(script, commits).commits[-1]
    assert last.version == commits
    return last.model[0], [task.staleness for task in last.tasks]


def stale_by(staleness, update, before=0.0, **how):
    """With one answer a commit: client 0 was sent 0 and answers after `staleness` commits, which moved the model."""
    others = [before] + [0.0] * 9
    return Script(2, 2, duration=listed([staleness + 0.5], [1.0]), update=steps([update], others), **how)


# 1. NVFlare, BuffModelManager: a fresh answer counts half.


def nvflare(updates, staleness):
    return np.mean([update / (1 + math.sqrt(tau + 1)) for update, tau in zip(updates, staleness, strict=True)])


def test_two_fresh_updates_of_one_move_the_model_by_one(player):
    assert nvflare([1.0, 1.0], [0, 0]) == pytest.approx(0.5)
    assert moved_to(player, Script(2, 2, size=2, update=steps([1.0], [1.0])), 1) == (pytest.approx(1.0), [0, 0])


def test_an_update_stale_by_three_counts_half(player):
    assert nvflare([1.0], [3]) == pytest.approx(1 / 3)
    assert moved_to(player, stale_by(3, 1.0), 4) == (pytest.approx(0.5), [3])


# 2. NVFlare, prune_model_versions: updates are kept by the version they were sent, and go when nobody works on it.


def pruned(answers, current, working):
    """The mean of what is left; answers are (version, update), then nobody works on a version not in `working`."""
    kept = {}
    for version, update in answers:
        kept.setdefault(version, []).append(update)
        kept = {v: updates for v, updates in kept.items() if v == current or v in working}
    return np.mean([update for updates in kept.values() for update in updates])


def test_a_stale_update_in_the_buffer_stays_in_it(player):
    assert pruned([(0, 10.0), (1, 2.0)], current=1, working={1}) == 2.0
    # Client 0 was sent version 0 and answers at 2.5; client 1 fills the first buffer alone, and answers again at 3.
    script = Script(2, 2, size=2, duration=listed([2.5], [1.0]), update=steps([10.0], [0.0, 0.0, 2.0]), decay=constant)
    assert moved_to(player, script, 2) == (6.0, [1, 0])
    script = Script(2, 2, size=2, duration=listed([2.5], [1.0]), update=steps([10.0], [0.0, 0.0, 2.0]))
    assert moved_to(player, script, 2) == (pytest.approx((10 / math.sqrt(2) + 2) / 2), [1, 0])


# 3. NVFlare: every message counts, and a device that never answers keeps its slot.


def filled_by_messages(messages, size):
    """Whose answers are in the first buffer; messages are (task, client)."""
    return [client for _, client in messages][:size]


def test_one_device_that_answers_twice_does_not_fill_a_buffer_of_two(player):
    assert filled_by_messages([(0, 0), (0, 0), (1, 1)], 2) == [0, 0]
    script = Script(
        2,
        2,
        size=2,
        duration=listed([1.0, 9.0], [3.0]),
        update=steps([4.0], [2.0]),
        repeat=lambda client, nth: 0.5 if client == 0 else None,
    )
    log = player(script, 1)
    assert [(task.id, task.client) for task in log.commits[0].tasks] == [(0, 0), (1, 1)]
    assert log.commits[0].time == 3.0
    assert log.commits[0].model == pytest.approx([3.0])


def free_without_timeouts(concurrency, asked, answered):
    return concurrency - len(set(asked) - set(answered))


def test_vanished_devices_give_their_slots_back(player):
    assert free_without_timeouts(2, asked=[0, 1], answered=[]) == 0  # now and for ever
    log = player(Script(2, 2, timeout=5.0, duration=listed([math.inf, 1.0], [math.inf, 1.0])), 2)
    assert [(task.client, task.status, task.time) for task in log.ended] == [
        (0, Status.LATE, 5.0),
        (1, Status.LATE, 5.0),
        (0, Status.DONE, 6.0),
        (1, Status.DONE, 6.0),
    ]


# 4. FedScale: models are averaged, not updates, and weights are divided by their sum.


def fedscale(trained, weights):
    return np.dot(weights, trained) / np.sum(weights)


def test_a_stale_update_moves_the_model_and_does_not_replace_it(player):
    assert fedscale([0.0 + 1.0], [1 / math.sqrt(2)]) == pytest.approx(1.0)
    # At 1 the model moves to 10; the answer at 1.5 was sent 0.
    assert moved_to(player, stale_by(1, 1.0, before=10.0), 2) == (pytest.approx(10 + 1 / math.sqrt(2)), [1])


# 5. FedScale, FLSim: busy clients are asked again; FedScale keeps one version for each client, the last one sent.


def staleness_by_client(sent, client, now):
    """Answers are matched by client; sent are (client, version), in order."""
    return now - dict(sent)[client]


def test_an_answer_is_as_stale_as_its_own_task(player):
    assert staleness_by_client([(0, 0), (0, 3)], 0, now=3) == 0
    script = stale_by(3, 1.0)
    log = player(script, 4)
    assert [(task.client, task.version, task.staleness) for task in log.commits[3].tasks] == [(0, 0, 3)]
    assert not any(0 in ask.chosen for ask in log.asks if 0 < ask.time < 3.5)  # busy


def test_an_answer_after_the_timeout_is_not_taken_for_that_to_the_next_task(player):
    # Client 0 is given up at 3 and asked again with version 3; its first answer, of version 0, comes at 3.5.
    script = Script(2, 2, timeout=3.0, duration=listed([3.5, 2.0], [1.0]), update=steps([100.0, 1.0], [0.0]))
    log = player(script, 5)
    found = [(task.status, task.version, task.time, task.staleness) for task in log.ended if task.client == 0]
    assert found == [(Status.LATE, 0, 3.0, 3), (Status.DONE, 3, 5.0, 1)]
    assert log.commits[-1].model == pytest.approx([1 / math.sqrt(2)])


def of_all(version, wanted, idle):
    """A draw that does not look at who is at work."""
    return [0, 1][:wanted]


def test_a_busy_client_cannot_be_asked(player):
    script = Script(2, 2, duration=listed([3.0], [1.0]), choose=of_all)
    with pytest.raises(ValueError, match=r"idle|not available"):
        player(script, 2)  # at 1, client 0 is at work and would be asked


# 6. APPFL, FedBuff: the update is the difference to the model of now, and the sum is not divided by K.


def appfl(model, trained, weights):
    return model + sum(weight * (new - model) for weight, new in zip(weights, trained, strict=True))


def test_an_update_is_the_difference_to_the_model_that_was_sent(player):
    assert appfl(10.0, [0.0 + 1.0], [1.0]) == 1.0
    assert moved_to(player, stale_by(1, 1.0, before=10.0, decay=constant), 2) == (pytest.approx(11.0), [1])


def test_a_buffer_is_divided_by_its_size(player):
    assert appfl(0.0, [1.0, 1.0], [1.0, 1.0]) == 2.0
    assert moved_to(player, Script(2, 2, size=2, update=steps([1.0], [1.0])), 1) == (pytest.approx(1.0), [0, 0])


# 7. FLSim: a weighted sum, and weights divided by that of an average staleness of 1.


def flsim_sum(updates):
    return sum(updates)


def flsim_weight(staleness, average):
    return (1 + staleness) ** -0.5 / (1 + average) ** -0.5


def test_ten_updates_of_one_move_the_model_by_one(player):
    assert flsim_sum([1.0] * 10) == 10.0
    script = Script(10, 10, size=10, update=lambda client, nth, model: np.ones(1))
    assert moved_to(player, script, 1) == (pytest.approx(1.0), [0] * 10)


def test_a_fresh_update_counts_one(player):
    assert flsim_weight(0, 1) == pytest.approx(1.414, abs=1e-3)
    log = player(Script(1, 1, update=steps([1.0])), 1)
    assert [task.weight for task in log.commits[0].tasks] == [1.0]
    assert log.commits[0].model == pytest.approx([1.0])


# 8. Plato: FedAsync multiplies its setting by s at each answer; its FedBuff does not look at the staleness.


def plato_fedasync(mixing, p, staleness):
    used = []
    for tau in staleness:
        mixing *= (1 + tau) ** -p
        used.append(mixing)
    return used


def plato_fedbuff(updates, staleness):
    return np.mean(updates)


def test_a_stale_answer_does_not_change_what_later_ones_count(player):
    assert plato_fedasync(0.9, 0.5, [3, 3, 3]) == pytest.approx([0.45, 0.225, 0.1125])
    # Four clients in turn, an answer a second: from the fourth on each is stale by 3.
    script = Script(
        4, 4, mixing=FedAsync(0.9, "polynomial", p=0.5), duration=listed(*([n, 4.0] for n in (1.0, 2.0, 3.0, 4.0)))
    )
    tasks = [task for commit in player(script, 6).commits for task in commit.tasks][3:]
    assert [task.staleness for task in tasks] == [3, 3, 3]
    assert [task.weight for task in tasks] == pytest.approx([0.45, 0.45, 0.45])


def test_fedbuff_looks_at_the_staleness(player):
    assert plato_fedbuff([1.0], [3]) == 1.0
    assert moved_to(player, stale_by(3, 1.0), 4) == (pytest.approx(0.5), [3])


# 9. flame: updates of integers are scaled as integers, and then added to floats in place.


def flame_scaled(update, staleness):
    return (update * (1 + staleness) ** -0.5).astype(update.dtype)


def test_integer_updates_are_scaled_as_numbers(player):
    update = np.array([3])
    assert flame_scaled(update, 1) == [2]
    total = np.zeros_like(update)
    with pytest.raises(TypeError):
        total += update * (1 + 1) ** -0.5
    script = stale_by(1, 0.0)
    script.update = lambda client, nth, model: np.array([3 if client == 0 else 0])
    assert script.update(0, 0, np.zeros(1)).dtype.kind == "i"
    assert moved_to(player, script, 2) == (pytest.approx(3 / math.sqrt(2)), [1])
