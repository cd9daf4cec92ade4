"""Tasks in flight against a list of promises in plain Python: who is busy, who is held, what is used, once each."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick.engine.flight import Flight, Task, rows_of

CLIENTS = 5


@given(st.integers(0, 3), st.data())
@settings(max_examples=100)
def test_a_flight_is_what_the_list_says(late, data):
    flight, clock, landed, given_ids = Flight(), 0.0, 0, set()
    owed, held = [], []  # (id, client, round, due)
    for t in range(1, 8):
        flight.give_up(t, late)
        owed = [each for each in owed if t - each[2] <= late]
        held = [each for each in held if t - each[2] <= late]
        assert sorted(flight.busy) == sorted(each[1] for each in owed)
        assert flight.mask(CLIENTS).nonzero()[0].tolist() == sorted(each[1] for each in owed)
        free = [k for k in range(CLIENTS) if k not in flight.busy]
        asked = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
        first = flight.issue(len(asked))
        new = [
            (first + at, k, t, clock + data.draw(st.sampled_from([1.0, 2.0, 5.0, np.inf])))
            for at, k in enumerate(asked)
        ]
        assert not given_ids & {each[0] for each in new}  # never used again
        given_ids |= {each[0] for each in new}
        flight.add(Task(id, k, t, due=due) for id, k, t, due in new)
        owed += new
        assert flight.first == min((each[3] for each in owed), default=np.inf)
        assert sorted(flight.ids) == sorted(each[0] for each in owed)
        for k in data.draw(st.lists(st.integers(0, CLIENTS - 1), max_size=3)):  # answers at any time, from anyone
            sent, keep = data.draw(st.integers(0, t)), data.draw(st.booleans())
            match = [each for each in owed if each[1:3] == (k, sent)]
            assert flight.owes(k, sent) == bool(match)
            task = flight.arrive(k, sent, keep)
            assert (task is None) == (not match)
            owed = [each for each in owed if each not in match]
            held += match if keep else []
            landed += len(match)
        clock += data.draw(st.sampled_from([0.0, 1.0, 4.0]))
        flight.land(clock)
        came = [each for each in owed if each[3] <= clock]
        owed, held, landed = [each for each in owed if each[3] > clock], held + came, landed + len(came)
        assert flight.landed == landed
        assert sorted(flight.held_ids) == sorted(each[0] for each in held)
        assert sorted(flight.held) == sorted(each[1] for each in held)
        again = Flight.unpack(flight.pack(), flight.issued)
        assert (again.ids, again.busy, again.first, again.issued) == (
            flight.ids,
            flight.busy,
            flight.first,
            flight.issued,
        )
        if data.draw(st.booleans()):
            tasks = flight.come(t, late)
            assert {task.id for task in tasks} == {each[0] for each in held}
            flight.use(tasks)
            held = []
            assert flight.come(t, late) == []  # each is used once


def test_what_has_come_can_be_too_old_for_a_later_round():
    flight = Flight()
    flight.add([Task(0, "ada", 1), Task(1, "bob", 2)])
    flight.arrive("ada", 1)
    flight.arrive("bob", 2)
    assert [task.client for task in flight.come(3, 1)] == ["bob"]
    flight.give_up(3, 1)
    assert flight.held == ["bob"]


def test_rows_are_found_by_task():
    tasks = [Task(9, 0, 1), Task(4, 1, 1), Task(5, 2, 1)]
    assert rows_of(np.array([4, 7, 9]), tasks).tolist() == [2, 0]
    assert rows_of(np.array([], dtype=np.int64), tasks).tolist() == []
