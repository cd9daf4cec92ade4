"""Examples held out: nobody trains on them, each equally likely, one always stays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import DISJOINT, EVEN, SHARED, labelled, rng

from fedpick.core.errors import ContractError, SettingError
from fedpick.data.federated import Federated, hold_out
from fedpick.data.partitions import (
    IID,
    partition,
)


# hold_out
def hold_out_is_right(split, share, after):
    tested = set(after.held.tolist())
    assert len(after) == len(split)
    for k in range(len(split)):
        before, mine, stays = split.examples_of(k), after.held_of(k).tolist(), after.examples_of(k).tolist()
        assert len(mine) == min(round(share * len(before)), len(before) - 1)
        assert set(mine) <= set(before.tolist())
        assert stays == [example for example in before.tolist() if example not in tested]
        assert stays


@pytest.mark.parametrize("text", DISJOINT + SHARED)
@given(share=st.floats(0, 0.3), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_what_anyone_holds_out_nobody_trains_on(text, share, seed):
    split = partition(text, EVEN, 8, rng(seed))
    try:
        after = hold_out(split, share, rng(seed + 1))
    except SettingError:  # the others hold out all that a client has
        assert text in SHARED
        return
    hold_out_is_right(split, share, after)
    if text in DISJOINT:
        assert len(after.examples) + len(after.held) == len(split.examples)
    np.testing.assert_array_equal(after.held, hold_out(split, share, rng(seed + 1)).held)


def test_held_out_examples_are_equally_likely():
    split, draws = IID()(labelled(10, 10), 2, rng()), 4_000
    count = np.zeros(20)
    for seed in range(draws):
        count[hold_out(split, 0.3, rng(seed)).held] += 1
    assert np.abs(count / draws - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / draws)


def test_one_example_always_stays():
    split = Federated(EVEN, np.array([0, 1, 2]), np.array([0, 1, 3]))
    after = hold_out(split, 0.99, rng())
    assert after.sizes.tolist() == [1, 1]


def test_errors_of_holding_out():
    split = IID()(EVEN, 3, rng())
    with pytest.raises(SettingError, match=r"hold_out: share = 1, but must be in \[0, 1\); something must stay"):
        hold_out(split, 1, rng())
    with pytest.raises(ContractError, match="hold_out: 60 examples are held out already; hold out only once"):
        hold_out(hold_out(split, 0.1, rng()), 0.1, rng())
    same = Federated(EVEN, np.arange(40) % 2, np.arange(0, 41, 2))  # twenty clients with the same two examples
    with pytest.raises(
        SettingError, match="left for training of client 0 = 0, but must be >= 1; other clients hold its"
    ):
        hold_out(same, 0.5, rng())
