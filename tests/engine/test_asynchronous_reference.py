"""The reference of asynchronous training, on cases computed by hand, by exact laws and by its own definitions."""

import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from asynchronous import FedAsync, Script, play, root, usable
from asynchronous_scripts import listed, scripts, steps
from fedpick import Status

DONE, LATE, FAILED = Status.DONE, Status.LATE, Status.FAILED


def ends(log):
    """How tasks ended: (id, client, time, status, staleness)."""
    return [(task.id, task.client, task.time, task.status, task.staleness) for task in log.ended]


def test_of_three_answers_at_once_two_fill_the_buffer_and_the_third_is_stale():
    script = Script(3, 3, size=2, update=steps([1.0], [3.0], [8.0]))
    first, second = play(script, 2).commits
    assert [task.id for task in first.tasks] == [0, 1]
    assert (first.version, first.time, first.asked, first.flying, first.model) == (1, 1.0, 3, 1, [2.0])
    # The third counts s(1) = 0.7071 with the first fresh one of the next instant, both divided by 2.
    assert [(task.id, task.staleness, task.weight) for task in second.tasks] == [(2, 1, root(1)), (3, 0, 1.0)]
    assert (second.version, second.time, second.asked, second.flying) == (2, 2.0, 3, 2)
    assert second.model == pytest.approx([2.0 + (8.0 / math.sqrt(2) + 1.0) / 2])


def test_an_answer_at_the_timeout_is_in_time_and_a_later_one_counts_for_nothing():
    # Client 1 takes 2.25 seconds: it is LATE at 2 and asked again; its old answer comes while it works on the new task.
    script = Script(2, 2, timeout=2.0, duration=listed([2.0], [2.25, 1.0]), update=steps([1.0], [100.0, 7.0]))
    log = play(script, 2)
    assert ends(log) == [(0, 0, 2.0, DONE, 0), (1, 1, 2.0, LATE, 1), (3, 1, 3.0, DONE, 0)]
    assert log.ignored == [(2.25, 1)]
    assert log.model == [8.0]
    assert [task.id for task in log.commits[0].ended] == [0]  # the timeout comes after the commit of the same instant
    assert [task.id for task in log.commits[1].ended] == [1, 3]


def test_a_vanished_client_holds_its_slot_until_the_timeout():
    script = Script(2, 1, timeout=5.0, duration=listed([math.inf, 1.0], [1.0]))
    log = play(script, 1)
    assert ends(log) == [(0, 0, 5.0, LATE, 0), (1, 0, 6.0, DONE, 0)]
    assert [ask.time for ask in log.asks] == [0.0, 5.0]


@pytest.mark.parametrize("again", [0.0, 0.5, 1.0, 1.5])
def test_a_second_answer_to_a_task_counts_for_nothing_whenever_it_comes(again):
    script = Script(1, 1, size=2, update=steps([1.0]))
    plain = play(script, 2)
    script.repeat = lambda client, nth: again
    log = play(script, 2)
    assert ends(log) == ends(plain)
    assert log.model == plain.model == [2.0]
    assert log.ignored == [(n + again, n - 1) for n in range(1, 5) if n + again < 4 or (n, again) == (3, 1.0)]


def test_answers_to_tasks_never_sent_count_for_nothing():
    script = Script(1, 1, unknown=[(0.0, 0), (0.5, -1), (1.0, 7)])  # at 0, task 0 is sent after its answer came
    log = play(script, 2)
    assert ends(log) == ends(play(Script(1, 1), 2))
    assert log.ignored == [(0.0, 0), (0.5, -1), (1.0, 7)]
    assert [ask.time for ask in log.asks] == [0.0, 1.0]


@pytest.mark.parametrize("loss", [None, 0.0, -3.0, 1e12, -1e12])
def test_possible_losses_are_done(loss):
    assert ends(play(Script(1, 1, until=9.0, loss=lambda client, nth: loss), 1)) == [(0, 0, 1.0, DONE, 0)]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1.1e12, -1.1e12])
def test_impossible_losses_fail_and_free_the_slot(loss):
    log = play(Script(1, 1, loss=listed([loss, 1.0]), update=steps([100.0, 1.0])), 1)
    assert ends(log) == [(0, 0, 1.0, FAILED, 0), (1, 0, 2.0, DONE, 0)]
    assert log.model == [1.0]
    assert [(task.id, task.weight) for task in log.commits[0].ended] == [(0, 0.0), (1, 1.0)]
    assert [task.id for task in log.commits[0].tasks] == [1]


@pytest.mark.parametrize(
    ("update", "fine"),
    [
        ([1.0, 2.0], True),
        ([1, 2], True),
        ([1.0, math.nan], False),
        ([math.inf, 0.0], False),
        ([1.0], False),
        ([[1.0, 2.0]], False),
        (None, False),
    ],
)
def test_updates_must_be_finite_and_of_the_models_shape(update, fine):
    assert usable(None, None if update is None else np.array(update), np.zeros(2)) is fine


def test_what_is_older_than_the_oldest_is_late_and_a_broken_answer_fails_however_old():
    # Client 0 works for 4 seconds, the others make a commit each second; at 4 it comes before the fourth commit.
    script = Script(3, 2, oldest=2, duration=listed([4.0], [1.0], [1.0]), update=steps([50.0], [1.0], [1.0]))
    log = play(script, 4)
    assert (0, 0, 4.0, LATE, 3) in ends(log)
    assert log.model == [4.0]
    script.oldest = 3
    assert (0, 0, 4.0, DONE, 3) in ends(play(script, 4))
    script.oldest, script.loss = 2, listed([math.nan], [1.0], [1.0])
    assert (0, 0, 4.0, FAILED, 3) in ends(play(script, 4))


def test_equal_durations_with_a_buffer_of_all_are_synchronous_federated_averaging():
    rng = np.random.default_rng(5)
    targets, sizes = rng.normal(size=(7, 3)), rng.integers(1, 50, 7).astype(float).tolist()
    chosen = [rng.permutation(7)[:4].tolist() for _ in range(12)]
    script = Script(
        7,
        4,
        size=4,
        sizes=sizes,
        sized=True,
        start=[1.0, 2.0, 3.0],
        duration=lambda client, nth: 1.5,
        update=lambda client, nth, model: 0.3 * (targets[client] - model),
        choose=lambda version, wanted, idle: chosen[version],
    )
    log = play(script, 12)
    model = np.array([1.0, 2.0, 3.0])
    for commit, ids in zip(log.commits, chosen, strict=True):
        change = sum(sizes[i] / np.mean(sizes) * 0.3 * (targets[i] - model) for i in ids)
        model = model + change / 4
        np.testing.assert_allclose(commit.model, model, rtol=1e-12)
        assert [(task.client, task.staleness) for task in commit.tasks] == [(i, 0) for i in ids]
        assert (commit.time, commit.asked, commit.flying) == (1.5 * commit.version, 4, 0)


def by_luck(means, concurrency, lengths, commits, seed):
    """A play with uniform choice among the idle, durations of the given means, and one answer a commit."""
    luck = random.Random(seed)
    script = Script(
        len(means),
        concurrency,
        timeout=1e6,
        duration=lambda client, nth: means[client] * lengths(luck),
        choose=lambda version, wanted, idle: luck.sample(idle, min(wanted, len(idle))),
    )
    return play(script, commits)


@pytest.mark.parametrize(
    "lengths",
    [lambda luck: luck.expovariate(1.0), lambda luck: luck.uniform(0.5, 1.5), lambda luck: luck.choice([0.1, 1.9])],
    ids=["exponential", "uniform", "two values"],
)
def test_shares_of_answers_follow_the_law_of_uniform_choice_among_the_idle(lengths):
    # P(busy set S) is proportional to the product of its mean durations: {0,1}: 1, {0,2}: 4, {1,2}: 4. So a client is
    # busy with probability 5/9, 5/9, 8/9, and answers 5/9, 5/9, 2/9 times a second: shares 5/12, 5/12, 1/6.
    parts = []
    for seed in range(30):
        counts = Counter(task.client for task in by_luck([1.0, 1.0, 4.0], 2, lengths, 500, seed).ended)
        parts.append([counts[client] / 500 for client in range(3)])
    error = np.std(parts, axis=0, ddof=1) / np.sqrt(30)
    assert (error < 0.01).all()
    assert (np.abs(np.mean(parts, axis=0) - [5 / 12, 5 / 12, 1 / 6]) < 4 * error).all()


def test_with_all_at_work_shares_are_inverse_durations():
    counts = Counter(task.client for task in by_luck([1.0, 2.0, 4.0], 3, lambda luck: 1.0, 700, 0).ended)
    assert [counts[client] for client in range(3)] == pytest.approx([400, 200, 100], abs=2)


def test_fresh_answers_move_fedasync_as_they_move_fedbuff():
    pull = {"start": [2.0, -1.0], "update": lambda client, nth, model: (client + 1) * 0.2 - 0.5 * model}
    buffered = play(Script(4, 1, size=1, eta=0.6, **pull), 20)
    mixed = play(Script(4, 1, size=1, mixing=FedAsync(0.6), **pull), 20)
    assert {task.staleness for task in mixed.ended} == {0}
    for one, other in zip(buffered.commits, mixed.commits, strict=True):
        np.testing.assert_allclose(one.model, other.model, rtol=1e-12)


def test_a_stale_answer_draws_fedasync_back_to_the_model_it_was_sent():
    # Both are sent 0; the first answer moves the model to a, the second is stale by 1 and trained 0 to 3.
    pace = {"duration": listed([1.0], [2.0]), "update": steps([1.0], [3.0])}
    buffered = play(Script(2, 2, eta=0.6, decay=lambda staleness: 1.0, **pace), 2)
    # At 2, client 1's answer comes before that of client 0's second task, which has a later id.
    mixed = play(Script(2, 2, mixing=FedAsync(0.6), **pace), 2)
    assert buffered.commits[1].tasks[0].staleness == mixed.commits[1].tasks[0].staleness == 1
    assert buffered.model == pytest.approx([0.6 + 0.6 * 3.0])
    assert mixed.model == pytest.approx([0.4 * 0.6 + 0.6 * 3.0])
    assert mixed.model - buffered.model == pytest.approx([0.6 * (0.0 - 0.6)])  # a (sent - x)


@pytest.mark.parametrize(
    ("mixing", "weights"),
    [
        (FedAsync(0.8), [0.8, 0.8, 0.8, 0.8]),
        (FedAsync(0.8, "polynomial", p=1.0), [0.8, 0.4, 0.8 / 3, 0.2]),
        (FedAsync(0.8, "hinge", g=2.0, h=1.0), [0.8, 0.8, 0.8 / 3, 0.8 / 5]),
    ],
)
def test_weights_of_fedasync(mixing, weights):
    log = play(Script(4, 4, mixing=mixing, update=steps([1.0], [1.0], [1.0], [1.0])), 4)
    assert [task.staleness for task in log.ended] == [0, 1, 2, 3]
    assert [task.weight for task in log.ended] == pytest.approx(weights)
    left = 1.0  # all trained to 1 from 0
    for commit, weight in zip(log.commits, weights, strict=True):
        left *= 1 - weight
        assert commit.model == pytest.approx([1 - left])


def test_sizes_do_not_change_fedasync():
    some = {"mixing": FedAsync(0.5), "update": steps([1.0], [2.0])}
    assert play(Script(2, 2, sizes=[1.0, 9.0], sized=True, **some), 4).model == play(Script(2, 2, **some), 4).model


def test_updates_count_by_size_or_by_the_policys_weights():
    pace = {"size": 2, "update": steps([1.0], [1.0], [1.0]), "sizes": [1.0, 3.0, 8.0], "sized": True}
    assert [task.weight for task in play(Script(3, 2, **pace), 1).ended] == [0.25, 0.75]
    policy = {"weigh": lambda version, chosen: [3.0, 1.0]}
    log = play(Script(3, 2, **pace, **policy), 1)
    assert [task.weight for task in log.ended] == [1.5, 0.5]  # 2 w / (sum of w)
    log = play(Script(3, 2, **pace, **policy, normalise=False), 1)
    assert [task.weight for task in log.ended] == [6.0, 2.0]
    assert log.model == [4.0]  # divided by the number of answers, not by the sum of weights


def test_momentum_and_server_rate():
    log = play(Script(1, 1, size=2, eta=0.5, momentum=0.9, update=steps([1.0])), 3)
    np.testing.assert_allclose([commit.model[0] for commit in log.commits], [0.5, 0.5 + 0.95, 1.45 + 1.355], rtol=1e-12)


def test_the_clock_commits_all_that_came_and_nothing_if_none_did():
    # Answers of client 0 at 1, 2, ...; of client 1 at 2.5 and 5; a tick comes after the answers of its instant.
    pace = {"duration": listed([1.0], [2.5]), "update": steps([1.0], [4.0])}
    first, second = play(Script(2, 2, every=2.5, **pace), 2).commits
    assert [(task.client, task.staleness) for task in first.tasks] == [(0, 0), (0, 0), (1, 0)]
    assert (first.time, first.asked, first.flying, first.model) == (2.5, 4, 1, [2.0])
    assert [(task.client, task.staleness) for task in second.tasks] == [(0, 1), (0, 0), (1, 0), (0, 0)]
    assert (second.time, second.version) == (5.0, 2)
    slow = play(Script(1, 1, every=0.75, duration=lambda client, nth: 2.0), 2)
    assert [(commit.time, commit.version, len(commit.tasks)) for commit in slow.commits] == [(2.25, 1, 1), (4.5, 2, 1)]
    assert [ask.time for ask in slow.asks] == [0.0, 2.0, 4.0]


def test_what_times_out_at_a_tick_is_told_with_its_commit():
    script = Script(2, 2, every=2.0, timeout=2.0, duration=listed([1.0, 9.0], [9.0]))
    log = play(script, 1)
    assert ends(log) == [(0, 0, 1.0, DONE, 0), (1, 1, 2.0, LATE, 0)]
    assert log.commits[0].ended == tuple(log.ended)
    assert log.commits[0].flying == 1


def test_a_tick_without_a_commit_makes_nobody_ask():
    pace = {"every": 0.75, "duration": lambda client, nth: 2.0, "choose": lambda version, wanted, idle: idle[:1]}
    log = play(Script(3, 2, **pace), 1)
    assert [(ask.time, ask.chosen) for ask in log.asks] == [(0.0, (0,)), (2.0, (0,))]


def test_the_play_ends_when_nothing_more_can_happen():
    leave = {"there": lambda client, time: time < 1.0, "changes": [1.0], "timeout": 1.5, "every": 4.0}
    log = play(Script(2, 2, **leave), 2)  # both answer at 1 and are away for ever; the tick at 4 still commits
    assert [(commit.time, len(commit.tasks)) for commit in log.commits] == [(4.0, 2)]
    assert play(Script(1, 1, choose=lambda version, wanted, idle: [], every=1.0), 1).commits == []


@pytest.mark.parametrize(("until", "commits"), [(1.75, 1), (2.0, 2), (2.5, 2)])
def test_the_last_time_is_played(until, commits):
    assert len(play(Script(1, 1, until=until), 9).commits) == commits


def test_updates_of_few_digits_are_summed_in_many():
    script = Script(2, 2, duration=listed([1.5], [1.0]), update=lambda client, nth, model: np.full(1, 0.1, np.float32))
    models = [commit.model for commit in play(script, 2).commits]
    assert {model.dtype for model in models} == {np.dtype(np.float64)}
    tenth = float(np.float32(0.1))
    np.testing.assert_allclose(np.concatenate(models), [tenth, tenth + tenth / math.sqrt(2)], rtol=1e-15)


def test_clients_are_asked_when_enough_slots_are_free():
    script = Script(6, 3, refill=2, duration=listed([1.0], [2.0], [5.0], [3.0], [3.0], [3.0]))
    found = [(ask.time, ask.wanted, ask.chosen) for ask in play(script, 5).asks]
    assert found == [(0.0, 3, (0, 1, 2)), (2.0, 2, (0, 1)), (4.0, 2, (0, 1))]


def test_availability_follows_the_clock_and_leaving_ends_no_task():
    # Client 0 leaves at 0.5 while it works and is back at 4; client 1 comes at 2.25, when nothing else happens.
    script = Script(
        2,
        1,
        there=lambda client, time: not 0.5 <= time < 4.0 if client == 0 else 2.25 <= time < 3.0,
        changes=[0.5, 2.25, 3.0, 4.0],
    )
    log = play(script, 3)
    assert ends(log) == [(0, 0, 1.0, DONE, 0), (1, 1, 3.25, DONE, 0), (2, 0, 5.0, DONE, 0)]
    assert [(ask.time, ask.idle) for ask in log.asks] == [(0.0, (0,)), (2.25, (1,)), (4.0, (0,))]


def test_whoever_chooses_fewer_is_asked_once_in_an_instant():
    script = Script(4, 2, duration=lambda client, nth: 2.0, choose=lambda version, wanted, idle: idle[:1])
    script.unknown, script.changes = [(0.5, 9)], [1.0]  # the first does not make anybody ask, the second does
    log = play(script, 1)
    assert [(ask.time, ask.wanted, ask.chosen) for ask in log.asks] == [(0.0, 2, (0,)), (1.0, 1, (1,))]
    script.choose = lambda version, wanted, idle: []
    log = play(script, 1)
    assert [(ask.time, ask.ids) for ask in log.asks] == [(0.0, ()), (1.0, ())]
    assert log.commits == []


@pytest.mark.parametrize("chosen", [[0, 0], [0, 1, 2], [3], [-1]])
def test_choices_against_the_rules_raise(chosen):
    # Client 3 is away, and only two are wanted.
    script = Script(4, 2, there=lambda client, time: client < 3, choose=lambda version, wanted, idle: chosen)
    with pytest.raises(ValueError, match=r"but 2 are wanted, each once, of those idle and there: \[0, 1, 2\]"):
        play(script, 1)


def check(script, log):
    """All that holds by definition, from the log and the script."""
    tasks = {task.id: task for task in log.ended}
    sent = {number: (ask, client) for ask in log.asks for number, client in zip(ask.ids, ask.chosen, strict=True)}
    assert list(sent) == list(range(len(sent)))
    assert len(tasks) == len(log.ended)
    assert set(tasks) <= set(sent)
    given = Counter()
    for number, (ask, client) in sent.items():
        if number in tasks:
            task = tasks[number]
            assert (task.client, task.nth, task.version, task.sent_at) == (client, given[client], ask.version, ask.time)
        given[client] += 1

    busy, left = {}, list(reversed(log.ended))
    for ask in log.asks:
        while left and left[-1].time <= ask.time:
            del busy[left.pop().id]
        assert ask.wanted == script.concurrency - len(busy) >= script.refill
        idle = [c for c in range(script.clients) if c not in busy.values() and script.there(c, ask.time)]
        assert list(ask.idle) == idle != []
        busy.update(zip(ask.ids, ask.chosen, strict=True))
    assert all(one.time < other.time for one, other in pairwise(log.asks))

    for task in log.ended:
        came = task.sent_at + script.duration(task.client, task.nth)
        assert task.time == min(came, task.sent_at + script.timeout)
        assert task.staleness == task.interval - task.version
        old = script.oldest is not None and task.staleness > script.oldest
        bad = not usable(
            script.loss(task.client, task.nth),
            script.update(task.client, task.nth, np.zeros(len(script.start))),
            np.zeros(len(script.start)),
        )
        late = came > task.time
        assert task.status == (LATE if late else FAILED if bad else LATE if old else DONE)
        assert (task.weight > 0) == (task.status == DONE)

    models = [np.array(script.start), *(commit.model for commit in log.commits)]
    changes = []
    for at, commit in enumerate(log.commits):
        assert commit.version == at + 1
        assert list(commit.ended) == [task for task in log.ended if task.interval == at]
        used = commit.tasks
        if script.bound is not None:
            assert len(used) >= 1
            took = [task for task in log.ended if task.time <= commit.time and task.status != FAILED]
            last = {task.client: task.time - task.sent_at for task in took}
            ended = {task.id for task in log.ended if task.time <= commit.time}
            working = [client for n, (ask, client) in sent.items() if ask.time < commit.time and n not in ended]
            longest = max((last.get(client, max(t.time - t.sent_at for t in took)) for client in working), default=0.0)
            before = log.commits[at - 1].time if at else 0.0
            assert commit.time >= before + longest / (script.bound + 1)
            assert commit.time in (before + longest / (script.bound + 1), *(t.time for t in log.ended))
        elif script.every is None:
            assert len(used) == script.size
            assert commit.time == used[-1].time
        else:
            assert (commit.time / script.every).is_integer()
            assert len(used) >= 1
        assert sum(c.asked for c in log.commits[: at + 1]) == sum(
            # In the instant of a commit, clients are asked after it.
            ask.time < commit.time
            for ask, _ in sent.values()
        )
        updates = [script.update(task.client, task.nth, models[task.version]) for task in used]
        if script.mixing is None:
            changes.append(sum(t.weight * u for t, u in zip(used, updates, strict=True)) * script.eta / len(used))
            lasting = [sum(script.momentum**n for n in range(at + 1 - j)) for j in range(at + 1)]
            model = models[0] + sum(much * change for much, change in zip(lasting, changes, strict=True))
        else:
            a = used[0].weight
            model = models[at] + a * (updates[0] + models[used[0].version] - models[at])
        np.testing.assert_allclose(commit.model, model, rtol=1e-9, atol=1e-12)


def test_random_scripts():
    """Definitions hold for 450 scripts, in which everything that can happen does."""
    seen = Counter()

    @settings(max_examples=450)
    @given(scripts())
    def examples(script):
        log = play(script, 20)
        check(script, log)
        seen["plays"] += 1
        seen["full"] += len(log.commits) == 20
        seen.update({task.status.name for task in log.ended})
        seen.update(
            name
            for name, there in {
                "timed out": any(t.status == LATE and t.time == t.sent_at + script.timeout for t in log.ended),
                "too old": any(t.status == LATE and t.time < t.sent_at + script.timeout for t in log.ended),
                "stale": any(t.status == DONE and t.staleness > 1 for t in log.ended),
                "at the timeout": any(t.status == DONE and t.time == t.sent_at + script.timeout for t in log.ended),
                "repeated or unknown": any(log.ignored),
                "two commits at once": any(a.time == b.time for a, b in pairwise(log.commits)),
                "fewer than wanted": any(len(ask.chosen) < min(ask.wanted, len(ask.idle)) for ask in log.asks),
                "away": any(not script.there(c, ask.time) for ask in log.asks for c in range(script.clients)),
                "bound": script.bound is not None and bool(log.commits),
                "clock": script.every is not None and bool(log.commits),
                "mixing": script.mixing is not None and bool(log.commits),
            }.items()
            if there
        )

    examples()
    assert seen["plays"] == 450
    assert len(seen) == 16, seen
    assert min(seen.values()) >= 30, seen
    assert seen["full"] >= 300, seen
