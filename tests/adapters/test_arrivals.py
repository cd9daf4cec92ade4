"""Polling for replies: when each came, the limit, and that the first reply counts."""

import itertools

import pytest

from fedpick.adapters import arrivals


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(arrivals, "monotonic", lambda: now[0])
    monkeypatch.setattr(arrivals, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def ask(clock, due, limit, looks=None):
    """Replies that are there after so many seconds; the first look of each gets it twice."""

    def pull(names):
        if looks is not None:
            looks.append(clock[0])
        return [(name, f"{name}{i}") for name in sorted(names) if clock[0] - 100.0 >= due[name] for i in (1, 2)]

    return arrivals.poll(lambda: due, pull, limit)


def test_replies_come_in_order_of_arrival_with_the_middle_between_two_looks(clock):
    found = ask(clock, {"slow": 7.0, "fast": 0.5, "now": 0.0}, None)
    assert [reply for reply, _ in found.values()] == ["now1", "fast1", "slow1"]
    assert found["now"][1] == 0.0
    assert found["fast"][1] == pytest.approx(0.5, abs=0.1)
    assert found["slow"][1] == pytest.approx(7.0, abs=0.5)  # pauses are a second at most


def test_nobody_is_waited_for_beyond_the_limit(clock):
    assert list(ask(clock, {"slow": 7.0, "fast": 0.5}, 3.0)) == ["fast"]
    assert clock[0] == pytest.approx(103.0)


def test_pauses_grow_from_a_hundredth_of_a_second_to_one(clock):
    looks = []
    ask(clock, {"slow": 30.0}, None, looks)
    pauses = [after - before for before, after in itertools.pairwise(looks)]
    assert pauses[0] == pytest.approx(0.01)
    assert all(after == pytest.approx(min(1.25 * before, 1.0)) for before, after in itertools.pairwise(pauses))


def test_arrivals_of_several_calls_are_noted_together(clock):
    noted = arrivals.Arrivals(limit=9.0)
    for due in ({"a": 0.0}, {"b": 0.0, "c": 50.0}):
        arrivals.poll(lambda due=due: due, lambda names: [(name, 1) for name in names - {"c"}], 3.0, noted=noted)
    assert (noted.took, noted.limit) == ({"a": 0.0, "b": 0.0}, 3.0)
