"""Rounds: settings out of bounds, rounds in which nobody is asked, and for how long answers are of use."""

import pytest

import fedpick as fp


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"deadline": 0.0}, r"Rounds: deadline = 0\.0, but must be a number of seconds > 0"),
        ({"deadline": float("inf")}, "Rounds: deadline = inf"),
        ({"deadline": float("nan")}, "Rounds: deadline = nan"),
        ({"late": -1}, "Rounds: late = -1, but must be a whole number of rounds >= 0"),
        ({"late": 1.5}, r"Rounds: late = 1\.5"),
        ({"late": True}, "Rounds: late = True"),
        ({"beta": 1.5}, r"Rounds: late\.beta = 1\.5, but must be in \[0, 1\]"),
        ({"wait": 0.0}, r"Rounds: wait = 0\.0"),
    ],
)
def test_settings_out_of_bounds(settings, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.Rounds(**settings)


@pytest.mark.parametrize(
    ("free", "first", "seconds"),
    [
        (True, None, 0.0),  # the policy wanted nobody
        (True, 5.0, 0.0),
        (False, None, 60.0),
        (False, 5.0, 5.0),
        (False, 1930.0, 60.0),  # it was waited for until it came
        (False, -1.0, 0.0),  # it came while clients were probed
    ],
)
def test_how_long_a_round_lasts_in_which_nobody_is_asked(free, first, seconds):
    assert fp.Rounds().empty(free, first) == seconds


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("limit", [1.0, 40.0])
def test_an_answer_is_of_use_as_long_as_the_longest_rounds_last(late, limit):
    pace = fp.Rounds(limit, late)
    longest = max(limit + limit, pace.empty(False, None))  # with probes, or with nobody free
    assert pace.lifetime(limit) == limit + late * longest
    assert pace.lifetime(None) is None
