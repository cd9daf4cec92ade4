"""What a study has in common with the library: the interval, and the data of the quadratic problem."""

import numpy as np
import pytest

from fedpick.core import rng as rngs
from fedpick.data.generators import Quadratic
from fedpick.report.intervals import band, interval
from fedpick_papers.studies import _stats
from fedpick_papers.studies.power_of_choice import _problem as study


def test_the_studies_use_the_library_s_interval():
    assert _stats.interval is interval
    assert _stats.band is band


@pytest.mark.parametrize(("K", "v"), [(30, 5), (7, 2)])
def test_the_quadratic_data_is_the_problem_of_the_study(K, v):
    problem = study.Quadratic.draw(K, v, seed=4, kind="centred")
    made = Quadratic(v)(K, rngs.stream(4, 0, f"quadratic {K}"))
    for w in (np.zeros(v), problem.optimum, np.random.default_rng(0).standard_normal(v)):
        losses = []
        for k in range(K):
            mine = made.examples_of(k)
            losses.append(np.mean((made.dataset.x[mine] @ w - made.dataset.y[mine]) ** 2))
        np.testing.assert_allclose(losses, problem.losses(w), rtol=1e-4)
    p = made.sizes / made.sizes.sum()
    assert np.abs(p - problem.p).max() < 0.01 / K  # whole copies, 100 on average
