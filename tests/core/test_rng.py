"""Random streams: one for each seed, round and name, the same in every release, and independent of each other."""

import itertools

import numpy as np
import pytest

from fedpick.core.errors import SettingError
from fedpick.core.rng import stream


def test_streams_are_those_of_earlier_releases():
    """Runs and studies were made with these: another generator or key would change every one of them."""
    first = [int(stream(*key).integers(2**32)) for key in ((0, 0, "data"), (1, 1, "policy"), (7, 70, "world"))]
    assert first == [2181927811, 3117310048, 2770686146]


def test_no_two_of_seed_round_and_name_run_into_each_other():
    keys = [*itertools.product((1, 11, 111), (1, 2, 12, 112), ("", "1", "12", "policy", "policy1"))]
    firsts = {float(stream(*key).random()) for key in keys}
    assert len(firsts) == len(keys)


def test_streams_of_neighbouring_rounds_and_seeds_are_not_correlated():
    """The correlation of n independent pairs has a standard error of n^-1/2."""
    n = 4_000
    by_round = np.array([stream(3, t, "policy").random() for t in range(1, n + 2)])
    by_seed = np.array([stream(s, 3, "policy").random() for s in range(n + 1)])
    for drawn in (by_round, by_seed):
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4.5 / np.sqrt(n)
        assert abs(drawn.mean() - 0.5) < 4.5 * np.sqrt(1 / 12 / n)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((-1, 1, "x"), "seed = -1, but must be an integer >= 0"),
        (
            (1, -1, "x"),
            "round = -1, but must be an integer >= 0; rounds start at 1; 0 is for draws before the first round",
        ),
    ],
)
def test_errors_give_the_value_and_the_bound(key, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        stream(*key)
