"""Durations by arrival: honest ones are seen through the polling, and a liar cannot be faster than its replies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.server.delay import Delay

NUMBERS = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(st.none() | NUMBERS, NUMBERS), max_size=40))
def test_a_duration_is_what_was_said_or_the_arrival_less_the_delay(replies) -> None:
    delay, gaps = Delay(), []
    for said, arrived in replies:
        usual = float(np.quantile(gaps, 0.25)) if len(gaps) >= 5 else 0.0
        assert delay.seconds == usual
        least = max(arrived - usual, arrived / 4)
        assert delay.duration(said, arrived) == (least if said is None else max(said, least))
        if said is not None and said <= arrived:
            gaps.append(arrived - said)


def polled(durations: str, liars: int, rounds: int = 150, seed: int = 0):
    """BSFL's mean speeds after rounds in which replies come 1 to 4 s late, and how often liars were chosen."""
    rng = np.random.default_rng(seed)
    names, truth = [f"c{k}" for k in range(30)], rng.uniform(2.0, 12.0, 30)
    session = fp.Session(fp.BSFL(5, tau_min=0.5, alpha=0.3), durations=durations)
    taken = 0
    for _ in range(rounds):
        with session.round(names) as r:
            for name in r.chosen:
                k = int(name[1:])
                took = truth[k] * rng.uniform(0.9, 1.1)
                r.done(name, seconds=0.01 if k < liars else took, arrived=took + rng.uniform(1.0, 4.0))
                taken += k < liars
    return session, truth, taken / (5 * rounds)


@pytest.mark.parametrize("liars", [0, 3])
def test_bsfl_sees_more_than_noise_through_the_polling(liars) -> None:
    session, truth, _ = polled("arrival", liars)
    learned = session.roster.state.speed.rate
    assert np.corrcoef(1.0 / truth, learned)[0, 1] > 0.9
    assert 1.0 < session.delay.seconds < 3.0


@pytest.mark.slow
def test_a_liar_wins_nothing_by_a_short_duration() -> None:
    """Believed, it is among the fastest; by arrival it is no faster than it is."""
    honest, told, seen = polled("arrival", 0)[2], polled("reported", 3)[2], polled("arrival", 3)[2]
    session, truth, _ = polled("arrival", 3)
    assert told > 1.2 * seen
    assert honest == 0.0
    rate = session.roster.state.speed.rate[:3]
    assert (rate <= 1.25 / truth[:3]).all()  # a quarter faster at most, by luck of the polling


def test_a_client_may_say_that_it_was_slower() -> None:
    """As in a simulation, where seconds are made up."""
    session = fp.Session(fp.Uniform(1))
    with session.round(["a"]) as r:
        r.done("a", seconds=30.0, arrived=0.1)
    assert r.record.duration.tolist() == [30.0]


def test_the_delay_is_that_of_the_last_200_replies() -> None:
    delay, gaps, rng = Delay(), [], np.random.default_rng(0)
    for gap in rng.choice([0.5, 1.25, 3.0, 7.0, 0.1, 1 / 3], 700) * rng.choice([1.0, 1.1], 700):
        delay.duration(1.0, 1.0 + gap)
        gaps.append(1.0 + gap - 1.0)
        if len(gaps) >= 5:
            assert delay.seconds == np.quantile(gaps[-200:], 0.25)


def test_answers_with_an_impossible_loss_say_nothing_about_the_delay() -> None:
    session = fp.Session(fp.Uniform(8))
    with session.round([f"c{k}" for k in range(8)]) as r:
        for name in r.chosen:
            assert r.done(name, loss=float("nan"), seconds=1.0, arrived=4.0) == fp.Status.FAILED
    assert session.delay.seconds == 0.0
    with session.round([f"c{k}" for k in range(8)]) as r:
        for name in r.chosen:
            r.done(name, loss=0.5, seconds=1.0, arrived=4.0)
    assert session.delay.seconds == 3.0
