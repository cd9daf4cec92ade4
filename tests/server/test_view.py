"""What a session's policy sees before it chooses."""

import math

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
    with pytest.raises(fp.ContractError, match=r"context returned shape \(8, 2\), but must return \(8, 3\)"):
        fp.Session(fp.RBCSF(2), context=lambda round, names, idle: np.ones((len(names), 2))).round(NAMES)
    with pytest.raises(fp.MissingError, match="Session: RBCSF needs a context: pass context=function"):
        fp.Session(fp.RBCSF(2))


def test_who_is_available_must_be_a_list_of_names() -> None:
    session = fp.Session(fp.Uniform(2))
    with pytest.raises(fp.ContractError, match="available is the text 'ada', but must be a list of names"):
        session.round("ada")
    with pytest.raises(fp.ContractError, match="available holds 7, but clients are known by strings"):
        session.round([7])
    with pytest.raises(NotEnoughClientsError, match="no client is available"):
        session.round([])


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
