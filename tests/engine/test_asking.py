"""What a policy sees without rounds: masks that follow the tasks, and that it can neither change nor see change."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.engine.asking import Marks, view_now
from fedpick.engine.stream import Stream

COUNT = 6
EVENTS = st.lists(st.tuples(st.sampled_from(["ask", "answer", "expire"]), st.integers(0, 99)), max_size=60)


def numbers(clients):
    return np.array(clients, dtype=np.int64)


def masks(view):
    return {name: getattr(view, name).tolist() for name in ("available", "there", "busy", "held")}


@given(EVENTS, st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
def test_masks_that_follow_the_tasks_are_those_made_from_all_tasks(events, there):
    stream = Stream(fp.Buffered(4, size=3, timeout=20.0))
    seen = fp.View(1, np.array(there), fp.Clients(np.ones(COUNT)))
    marks, shown = Marks(stream, COUNT), []
    for now, (what, which) in enumerate(events):
        if what == "ask" and stream.free:
            idle = [client for client in range(COUNT) if client not in stream.busy]
            ids = [idle[which % len(idle)]]
            stream.send(fp.Choice(ids), ids, now, np.ones(1))
            marks.asked(np.array(ids))
        elif what == "answer" and stream.flying:
            task = list(stream.flying.values())[which % len(stream.flying)]
            stream.arrive(task.id, now, usable=which % 3 > 0)
            marks.ended(task.client)
        elif what == "expire":
            for each in stream.expire(now):
                marks.ended(each.task.client)
        if stream.full:
            stream.commit(now)
            marks.told()
        view = marks.view(seen, stream.version)
        expected = masks(view_now(seen, stream, numbers))
        assert masks(view) == expected
        assert (view.round, view.version) == (stream.version + 1, stream.version)
        shown.append((view, expected))
        assert masks(Marks(stream, COUNT).view(seen, stream.version)) == expected  # as after a checkpoint
    assert all(masks(view) == expected for view, expected in shown)  # also those of before


def test_what_a_policy_writes_into_its_view_reaches_nobody():
    stream, seen = Stream(fp.Buffered(2, size=2)), fp.View(1, np.ones(3, dtype=bool), fp.Clients(np.ones(3)))
    marks = Marks(stream, 3)
    marks.asked(np.array([1, 2]))
    marks.ended(2)
    view = marks.view(seen, 0)
    view.available[:], view.busy[:], view.held[:] = False, True, True
    assert masks(marks.view(seen, 0)) == {
        "available": [True, False, True],
        "there": [True, True, True],
        "busy": [False, True, False],
        "held": [False, False, True],
    }
    assert not view.there.flags.writeable  # it is the world's, for all asks of a step
