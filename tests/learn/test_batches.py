"""The order of examples: the twin's, uniform, and independent of the padding."""

from typing import Any

import numpy as np
import twin
from hypothesis import given
from hypothesis import strategies as st
from small_data import BATCH, data_of, split

from fedpick.learn import batches

IDS = np.array([4, 2, 0, 1, 6])


EPOCHS = np.array([1.0, 3.0, 2.0, 2.0, 1.0])


@st.composite
def populations(draw: st.DrawFn) -> tuple[Any, ...]:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    ids = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=5))
    epochs = draw(st.lists(st.integers(1, 3), min_size=len(ids), max_size=len(ids)))
    batch, steps = draw(st.integers(1, 7)), draw(st.none() | st.integers(1, 5))
    return sizes, ids, epochs, batch, steps, draw(st.integers(0, 2**31))


@given(populations())
def test_batches_are_the_twins_and_each_pass_sees_every_example_once(case: tuple[Any, ...]) -> None:
    sizes, ids, epochs, batch, steps, seed = case
    data = split(data_of("floats").dataset, np.array(sizes), seed)
    each = batches.steps_of(np.array(sizes)[ids], np.array(epochs), batch, steps)
    room = (len(ids) + 1, int(each.max()) + 2)
    rng, slow = np.random.default_rng(seed), np.random.default_rng(seed)
    found = batches.draw(data, np.array(ids), np.array(epochs), batch, steps, rng, batches.Batches.empty(*room, batch))
    assert found.index.shape == (*room, batch)
    assert list(found.steps) == [*each, 0]
    for row, (client, passes) in enumerate(zip(ids, epochs, strict=True)):
        wanted = twin.batches(data, client, passes, batch, steps, slow.random)
        mine = [list(found.index[row, s, : found.count[row, s]]) for s in range(each[row])]
        assert mine == wanted
        assert (found.count[row, each[row] :] == 0).all()
        seen, size = [example for part in mine for example in part], sizes[client]
        if steps is None:
            assert len(seen) == passes * size
        for start in range(0, len(seen) - size + 1, size):
            assert sorted(seen[start : start + size]) == sorted(data.examples_of(client))
    assert rng.random() == slow.random()  # one number for each example seen, and no more


def test_orders_are_uniform() -> None:
    """All 24 orders of four examples, alike: chi-squared with 23 degrees of freedom is below 49.7 in 99.9%."""
    data = split(data_of("floats").dataset, np.array([4]))
    times = 24 * 400
    empty = batches.Batches.empty(1, times, 4)
    drawn = batches.draw(data, np.array([0]), np.array([times]), 4, None, np.random.default_rng(3), empty)
    _, counts = np.unique(drawn.index[0], axis=0, return_counts=True)
    assert len(counts) == 24
    assert ((counts - 400) ** 2 / 400).sum() < 49.7


def test_padding_changes_nothing() -> None:
    data = data_of("floats")
    draws = [
        batches.draw(data, IDS, EPOCHS.astype(np.int64), BATCH, None, np.random.default_rng(0), empty)
        for empty in (batches.Batches.empty(5, 6, BATCH), batches.Batches.empty(9, 30, BATCH))
    ]
    np.testing.assert_array_equal(draws[0].index, draws[1].index[:5, :6])
    np.testing.assert_array_equal(draws[0].count, draws[1].count[:5, :6])
