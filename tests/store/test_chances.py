"""Records of who was there, with which chance each would have been chosen, and which updates were used when."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick import store
from fedpick.store.records import MOST, Record, packed, packed_chances, unpacked, unpacked_chances
from fedpick.store.writer import Tables

masks = st.lists(st.booleans(), min_size=1, max_size=40)


@given(masks)
def test_who_was_there_comes_back_bit_for_bit(there):
    mask = np.array(there)
    np.testing.assert_array_equal(unpacked(packed(mask), len(mask)), mask)


@given(masks, st.booleans(), st.integers(0, 2**32 - 1))
def test_chances_come_back_for_those_who_could_be_chosen_and_are_0_for_the_others(there, same, seed):
    rng = np.random.default_rng(seed)
    here = np.array(there)
    free = here & (rng.random(len(here)) < 0.7)
    each = rng.random(int(free.sum())).astype(np.float32).astype(np.float64)
    chances = 0.25 if same else each
    view = fp.View(1, free, fp.Clients(np.ones(len(here))), there=here)
    found = unpacked_chances(packed_chances(view, fp.Choice([], chances=chances)), here)
    np.testing.assert_array_equal(found[free], chances)
    assert not found[~free].any()


def test_of_a_million_clients_only_a_rule_is_recorded():
    free = np.ones(MOST + 1, bool)
    view = fp.View(1, free, fp.Clients(np.ones(MOST + 1)))
    assert packed(free) is None
    assert len(packed_chances(view, fp.Choice([], chances=0.1))) == 9
    assert packed_chances(view, fp.Choice([], chances=lambda: np.ones(MOST + 1))) is None


KNOWN = {
    "uniform": fp.Uniform(6),
    "size-weighted": fp.SizeWeighted(6, replace=False),
    "with replacement": fp.SizeWeighted(6),
    "fixed": fp.FixedProbabilities(6, p=np.linspace(0.0, 1.0, 24), sampler="pivotal"),
    "e3cs": fp.E3CS(6, quota=0.3),
    "over-selection": fp.OverSelect(fp.E3CS(6, quota=0.3), 1.5),
    "clustered": fp.Clustered(6),
    "pause": fp.MinSeparation(fp.Uniform(6), 2),
}


@pytest.mark.parametrize("policy", KNOWN.values(), ids=KNOWN)
def test_recorded_chances_are_those_of_the_choice_and_add_up_to_its_size(policy, tmp_path):
    world = fp.worlds.named("volatile", 24)
    run = fp.Run(policy, world, seed=4)
    records = list(run.rounds(8))
    asks = fp.traits(policy).asks
    for record in records:
        there = unpacked(record.mask, 24)
        chances = unpacked_chances(record.chances, there)
        assert there[record.ids].all()
        assert record.present == there.sum()
        assert chances.sum() == pytest.approx(min(asks, (chances > 0).sum()), rel=1e-6)
        if "Over" not in type(policy).__name__:  # there, inclusion is of those used
            np.testing.assert_allclose(chances[record.ids], record.inclusion, rtol=1e-6)


def test_a_policy_that_does_not_know_its_chances_records_none():
    record = next(fp.Run(fp.ActiveFL(5), fp.worlds.named("volatile", 24), 1).rounds(1))
    assert record.chances is None
    assert record.mask is not None


def test_uses_are_read_with_the_round_in_which_each_update_was_sent(tmp_path):
    def record(round, ids, status, late=()):
        ids = np.array(ids)
        late_ids, late_rounds = np.array(late, dtype=np.int64).reshape(-1, 2).T
        nothing = np.full(len(ids), np.nan)
        return Record(
            *(round, float(round), 1.0, 5, 0, 0.0, ids, nothing, np.array(status, np.int8), nothing, nothing),
            version=round - 1,
            present=5,
            mask=packed(np.ones(5, bool)),
            late_ids=late_ids,
            late_rounds=late_rounds,
        )

    tables = Tables(tmp_path, {"policy": "uniform"})
    DONE, LATE = fp.Status.DONE, fp.Status.LATE
    tables.write([record(1, [0, 3], [DONE, LATE]), record(2, [1], [DONE], [(3, 1)])], [], 0)
    tables.close()
    assert store.read_uses(tmp_path).to_pylist() == [
        {"round": 1, "client": 0, "sent": 1},
        {"round": 2, "client": 1, "sent": 2},
        {"round": 2, "client": 3, "sent": 1},
    ]
    rounds = store.read_rounds(tmp_path).to_pylist()
    assert [(row["late_used"], row["staleness_max"]) for row in rounds] == [(0, None), (1, 1)]
    numbers, there, chances = store.read_chances(tmp_path, 5)
    assert numbers.tolist() == [1, 2]
    assert there.all()
    assert np.isnan(chances).all()


def test_a_sessions_late_update_is_recorded_with_the_round_of_its_use(tmp_path):
    session = fp.Session(fp.Uniform(2), late=2, records=tmp_path / "records", state=tmp_path / "state")
    with session.round(["ada", "bob"]) as r:
        r.done("ada", loss=1.0, update=np.ones(1))
    session.keep("bob", np.ones(1), round=1)
    with session.round(["ada", "bob", "cyd"]) as r:
        r.done("ada", loss=1.0, update=np.ones(1))
        r.parts()
    session.close()
    uses = store.read_uses(tmp_path / "records").to_pylist()
    assert {(row["round"], row["client"], row["sent"]) for row in uses} == {(1, 0, 1), (2, 0, 2), (2, 1, 1)} or {
        (row["round"], row["client"], row["sent"]) for row in uses
    } == {(1, 0, 1), (2, 1, 1)}  # ada may not have been chosen in round 2
    _, there, chances = store.read_chances(tmp_path / "records", 3)
    assert there.tolist() == [[True, True, False], [True, True, True]]
    np.testing.assert_allclose(chances, [[1.0, 1.0, 0.0], [2 / 3, 2 / 3, 2 / 3]])
