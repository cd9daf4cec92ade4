"""Settings of data, worlds, schedules and paces reach exactly to their bounds, and the error names the bound."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import fedpick as fp
from fedpick import data, worlds
from fedpick.core import schedules

UP = math.nextafter  # UP(1.0, 2.0) is the number after 1
BELOW_0, ABOVE_1, BELOW_1 = -5e-324, UP(1.0, 2.0), UP(1.0, 0.0)
RATE = ([0.0, 1.0], [BELOW_0, ABOVE_1], "one or more probabilities, in [0, 1]")
ABSENCE = ([0.0, BELOW_1], [BELOW_0, 1.0], "in [0, 1); beta is the degree of absence")
SPREAD = ([0.0, 1e6], [BELOW_0, UP(1e6, 2e6)], "in [0, 1e6]; this is a standard deviation")
ALIKE = ([0.001, 1e6], [UP(0.001, 0.0), UP(1e6, 2e6)], "in [0.001, 1e6]; a larger alpha makes clients more alike")
POSITIVE = ([5e-324, 1e300], [0.0, -1.0, math.inf], "finite and > 0")
AT_LEAST_0 = ([0.0, 1e300], [BELOW_0, math.inf], "finite and >= 0")
ROUNDS = ([1.0, 1e300], [UP(1.0, 0.0), math.inf], "finite and >= 1 round")
FROM_1 = ([1], [0, -1, 1.5], "an integer >= 1")
BOUNDS: list[tuple[Callable[..., Any], str, dict[str, Any], tuple[list[Any], list[Any], str]]] = [
    (worlds.Bernoulli, "p", {}, RATE),
    (worlds.Halves, "away", {}, RATE),
    (worlds.Diurnal, "night", {}, RATE),
    (worlds.Diurnal, "day", {}, RATE),
    (worlds.Diurnal, "zones", {}, ([0.0, 24.0], [BELOW_0, UP(24.0, 25.0)], "in [0, 24] hours")),
    (worlds.SuccessRates, "rates", {}, RATE),
    (worlds.Bursts, "rates", {}, RATE),
    (worlds.Bursts, "spell", {"rates": 0.5}, ROUNDS),
    (worlds.MarkovOnOff, "on", {"off": 2.0}, ROUNDS),
    (worlds.MarkovOnOff, "off", {"on": 2.0}, ROUNDS),
    (worlds.MoreDataFirst, "beta", {}, ABSENCE),
    (worlds.LessDataFirst, "beta", {}, ABSENCE),
    (worlds.YMaxFirst, "beta", {}, ABSENCE),
    (worlds.YCycle, "beta", {}, ABSENCE),
    (worlds.SinLogNormal, "beta", {}, ABSENCE),
    (worlds.Gamma, "shape", {}, POSITIVE),
    (worlds.Gamma, "shift", {}, AT_LEAST_0),
    (worlds.PerClient, "times", {}, AT_LEAST_0),
    (worlds.Linear, "base", {}, ([UP(1.0, 2.0)], [1.0, math.inf], "finite and > 1")),
    (worlds.Linear, "megabits", {}, AT_LEAST_0),
    (worlds.Device, "examples_per_second", {}, POSITIVE),
    (worlds.Device, "megabits_per_second", {}, POSITIVE),
    (worlds.Device, "spread", {}, AT_LEAST_0),
    (worlds.Device, "cold_start", {}, AT_LEAST_0),
    (data.Dirichlet, "alpha", {}, ALIKE),
    (data.DirichletLabels, "alpha", {}, ALIKE),
    (data.Dirichlet, "at_least", {"alpha": 1.0}, FROM_1),
    (data.Dirichlet, "tries", {"alpha": 1.0}, FROM_1),
    (data.LabelsPerClient, "labels", {}, FROM_1),
    (data.PrimaryLabel, "share", {}, ([0.0, 1.0], [BELOW_0, ABOVE_1], "in [0, 1]; the paper has 0.8")),
    (data.Synthetic, "alpha", {"beta": 1.0}, SPREAD),
    (data.Synthetic, "beta", {"alpha": 1.0}, SPREAD),
    (data.Synthetic, "dim", {"alpha": 1.0, "beta": 1.0}, FROM_1),
    (data.Synthetic, "classes", {"alpha": 1.0, "beta": 1.0}, ([2], [1, 2.5], "an integer >= 2")),
    (data.Synthetic, "test", {"alpha": 1.0, "beta": 1.0}, ([0.0, BELOW_1], [BELOW_0, 1.0], "in [0, 1); it is a share")),
    (data.FedGSSynthetic, "seed", {}, ([0], [-1, 0.5], "an integer >= 0")),
    (data.LinearRegression, "noise", {}, SPREAD),
    (data.LinearRegression, "test", {}, ([0], [-1, 0.5], "an integer >= 0")),
    (data.Quadratic, "copies", {}, FROM_1),
    (schedules.Decay, "factor", {"start": 1.0}, ([5e-324, 1.0], [0.0, ABOVE_1], "in (0, 1]")),
    (schedules.Halving, "every", {"start": 1.0}, ([1], [0], ">= 1 round")),
    (schedules.Linear, "horizon", {"start": 1.0, "end": 0.0}, ([2], [1], ">= 2 rounds")),
    (schedules.Cosine, "horizon", {"start": 1.0, "end": 0.0}, ([2], [1], ">= 2 rounds")),
    (fp.Rounds, "deadline", {}, ([5e-324, 1e300], [0.0, -1.0], "a number of seconds > 0")),
    (fp.Rounds, "late", {"deadline": 1.0}, ([0, 3], [-1, 0.5], "a whole number of rounds >= 0")),
    (fp.Buffered, "concurrency", {}, ([1], [0, 1.5], "a whole number >= 1")),
]


@pytest.mark.parametrize(("make", "name", "more", "bound"), BOUNDS, ids=[f"{b[0].__name__}.{b[1]}" for b in BOUNDS])
def test_a_setting_reaches_to_its_bound_and_not_beyond(make, name, more, bound):
    inside, outside, text = bound
    for value in inside:
        assert getattr(make(**more, **{name: value}), name) == value
    for value in [*outside, math.nan]:
        with pytest.raises(fp.FedpickError) as caught:
            make(**more, **{name: value})
        assert f"must be {text}" in str(caught.value)
        assert name in str(caught.value)
