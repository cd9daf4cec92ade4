"""What a session's policy sees before it chooses."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.server import Limits, NotEnoughClientsError

NAMES = [f"phone-{letter}" for letter in "abcdefgh"]


def test_a_probe_is_heard_and_counted() -> None:
    session = fp.Session(fp.PowerOfChoice(2, 8))
    losses = {name: float(at) for at, name in enumerate(NAMES)} | {"phone-h": math.nan}
    with session.round(NAMES, probe=lambda names, batch: [losses[name] for name in names]) as r:
        pass
    assert sorted(r.chosen) == ["phone-f", "phone-g"]
    assert r.record.messages == 2 * 8 + 2


def test_context() -> None:
    seen = []

    def context(round, names, idle):
        seen.append((round, len(names), int(idle.sum())))
        return np.column_stack([np.ones(len(names)), idle, np.zeros(len(names))])

    session = fp.Session(fp.RBCSF(2), context=context)
    for there in (NAMES, [*NAMES, "late"]):
        with session.round(there) as r:
            for name in r.chosen:
                r.done(name, loss=1.0, seconds=1.0)
    assert seen == [(1, 8, 8), (2, 9, 7)]
    for shape in ((8, 2), (7, 3), (1, 3), (24,)):
        text = re.escape(f"context returned shape {shape}, but must return (8, 3)")
        with pytest.raises(fp.ContractError, match=text):
            fp.Session(fp.RBCSF(2), context=lambda *_, shape=shape: np.ones(shape)).round(NAMES)
    with pytest.raises(fp.MissingError, match="Session: RBCSF needs a context: pass context=function"):
        fp.Session(fp.RBCSF(2))


def test_who_is_available_must_be_a_list_of_names() -> None:
    session = fp.Session(fp.Uniform(2))
    with pytest.raises(fp.ContractError, match="available is the text 'ada', but must be a list of names"):
        session.round("ada")
    with pytest.raises(fp.ContractError, match="available is the text b'ada', but must be a list of names"):
        session.round(b"ada")
    with pytest.raises(NotEnoughClientsError, match="no client is available"):
        session.round([])


def test_what_cannot_be_a_name_is_ignored_with_one_warning(caplog) -> None:
    session = fp.Session(fp.Uniform(2))
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    wrong = [7, None, b"bob", [1], {"a": 1}, math.nan, "", "x" * 501, deep, 10**5000, "\x1b]0;x\x07" * 200]
    with session.round(["ada", *wrong, "bob"]) as r:
        assert set(r.chosen) == {"ada", "bob"}
    (said,) = [each.getMessage() for each in caplog.records if "ignored" in each.getMessage()]
    assert said == "ignored 11 clients: a name must be a string of 1 to 500 characters, but one is of type int: 7"
    with session.round({"ada": 3, 7: 4, (1, 2): 5}) as r:
        assert r.chosen == ("ada",)
    for alone in (wrong, [deep], [10**5000], [wrong[-1]]):
        with pytest.raises(NotEnoughClientsError, match="no client is available"):
            session.round(alone)
    assert session.names == ["ada", "bob"]
    assert session.current is None
    assert max(len(each.getMessage()) for each in caplog.records) < 200
    assert not any("\x1b" in each.getMessage() for each in caplog.records)


def test_an_answer_of_anything_raises_nothing() -> None:
    session = fp.Session(fp.Uniform(2), late=2)
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, 10**5000, {"a": deep}, b"x", object()):
        with session.round(["ada", "bob"]) as r:
            assert r.done(value) is r.failed(value) is None
            assert r.done("ada", loss=value, seconds=value, size=value, reports={"x": value}) == fp.Status.FAILED
        assert session.keep(value, 1.0, round=1) is session.keep("bob", 1.0, round=value) is None


def test_a_probe_must_give_a_loss_for_each_client() -> None:
    with pytest.raises(fp.ContractError, match="probe returned losses of shape"):
        fp.Session(fp.PowerOfChoice(2)).round(NAMES, probe=lambda names, batch: [1.0])


ANYONE = st.sampled_from([*NAMES, "", "x" * 501])


@given(st.lists(st.tuples(st.lists(ANYONE, max_size=12), st.sets(ANYONE) | st.none(), st.booleans()), max_size=6))
def test_who_is_there_and_who_is_new_as_if_names_were_read_one_by_one(rounds) -> None:
    session, enrolled, seen, number = fp.Session(fp.Uniform(3), limits=Limits(most_clients=6)), [], {}, 0
    for listed, approved, described in rounds:
        valid = [name for name in dict.fromkeys(listed) if 0 < len(name) <= 500]
        may = [name for name in valid if approved is None or name in approved]
        given_as = {name: 5.0 + len(name) for name in listed} if described else listed
        eligible = None if approved is None else lambda name, approved=approved: name in approved
        if not may:
            with pytest.raises(NotEnoughClientsError):
                session.round(given_as, eligible=eligible)
            continue
        number += 1
        with session.round(given_as, eligible=eligible) as r:
            new = [name for name in may if name not in enrolled]
            away = sorted((name for name in enrolled if name not in may), key=lambda name: seen[name])
            if (over := len(enrolled) + len(new) - 6) > 0:
                enrolled = [name for name in enrolled if name not in away[:over]]
            enrolled += new
            seen |= dict.fromkeys(may, number)
            assert list(session.names) == enrolled
            assert {name for name, there in zip(enrolled, r.view.there.tolist(), strict=True) if there} == set(may)
            sizes = r.view.clients.sizes[[enrolled.index(name) for name in new]].tolist()
            assert sizes == [5.0 + len(name) if described else 1.0 for name in new]
