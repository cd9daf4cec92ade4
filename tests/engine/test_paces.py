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


@pytest.mark.parametrize(
    ("mixing", "weights"),
    [
        ("constant", [0.6, 0.6, 0.6, 0.6, 0.6]),
        ("polynomial", [0.6, 0.3, 0.6 / 5**0.5, 0.6 / 6**0.5, 0.2]),
        ("hinge", [0.6, 0.6, 0.6, 0.6 / 11, 0.6 / 41]),
    ],
)
def test_settings_of_fedasync_that_are_not_given_are_the_papers(mixing, weights):
    """Section 6 of Xie et al.: alpha = 0.6, a = 0.5 of the polynomial, a = 10 and b = 4 of the hinge."""
    pace = fp.Buffered(concurrency=8, size=1, mixing=mixing)
    assert pace.damping([0, 3, 4, 5, 8]).tolist() == pytest.approx(weights)


def test_a_task_is_given_up_after_its_own_timeout_the_deadline_or_ten_minutes():
    assert fp.Buffered(8, timeout=7.0).within(30.0).timeout == 7.0
    assert fp.Buffered(8).within(30.0).timeout == 30.0
    assert fp.Buffered(8).within(None).timeout == 600.0


def test_other_settings_that_are_not_given():
    """FedBuff's ten answers, one place, no limits; REFL's beta."""
    assert fp.Rounds() == fp.Rounds(deadline=None, late=0, beta=0.35, wait=60.0)
    given = {"size": 10, "timeout": None, "oldest": None, "refill": 1, "every": None, "mixing": None, "wait": 60.0}
    given |= {"correct": False, "bound": None}
    assert fp.Buffered(8) == fp.Buffered(8, **given)
