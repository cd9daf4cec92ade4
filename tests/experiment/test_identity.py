"""Which policy an object is: no two that choose differently share their runs."""

import itertools
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.experiment.identity import policy_text
from fedpick.store.tables import read_selections


@dataclass(frozen=True)
class Weighted(fp.Uniform):
    """A policy with settings that no text can hold."""

    weights: Any = None
    tags: list[str] = field(default_factory=list)


class Plain:
    """A policy that is no dataclass."""

    def __init__(self, cohort_size: int, eps: float, seen: Any = None):
        self.cohort_size, self.eps, self._seen = cohort_size, eps, seen

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])


def made(eps):
    return lambda cohort_size: Plain(cohort_size, eps)


def test_policies_that_differ_have_different_texts():
    found = [
        policy_text(each)
        for each in (
            Weighted(5),
            Weighted(5, np.ones(3)),
            Weighted(5, np.arange(3)),
            Weighted(5, np.arange(3.0)),
            Weighted(5, tags=["a"]),
            Plain(5, 0.1),
            Plain(5, 0.2),
            Plain(5, 0.2, np.ones(2)),
            partial(Plain, eps=0.3),
            partial(Plain, eps=0.3, seen=np.ones(2)),
            made(0.1),
            made(0.2),
            lambda cohort_size: fp.Uniform(cohort_size),
            lambda cohort_size: fp.SizeWeighted(cohort_size),
            fp.E3CS(5, quota=lambda round: 0.5),
            fp.E3CS(5, quota=lambda round: 0.6),
            fp.OverSelect(Weighted(5), 1.5),
            fp.OverSelect(Weighted(5, np.ones(3)), 1.5),
            fp.OverSelect(Weighted(5, np.arange(3)), 1.5),
        )
    ]
    assert len(set(found)) == len(found), found


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Weighted(5), "Weighted"),
        (Weighted, "Weighted"),
        (Plain(5, 0.1), "Plain(eps=0.1)"),
        (Plain(5, 0.1, np.ones(2)), "Plain(eps=0.1)#"),
        (partial(fp.E3CS, quota=0.3), "E3CS(quota=0.3)"),
        (fp.E3CS(5, quota=0.3), "E3CS(quota=0.3)"),
        (made, "made#"),
    ],
)
def test_what_a_text_can_hold_is_said_in_words(policy, text):
    assert policy_text(policy).split("#")[0] == text.rstrip("#")
    assert ("#" in policy_text(policy)) == text.endswith("#")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_texts_are_equal_where_the_arrays_are(one, other):
    same = np.array(one).tobytes() == np.array(other).tobytes()
    assert (policy_text(Weighted(5, np.array(one))) == policy_text(Weighted(5, np.array(other)))) == same


def test_a_text_is_the_same_in_another_process():
    code = (
        "import fedpick as fp; from fedpick.experiment.identity import policy_text; "
        "print(policy_text(fp.E3CS(5, quota=lambda t: 0.5 if str(t) in {'1', '2', '3', '4'} else 0.1)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert found.pop().startswith("E3CS#")


def test_objects_that_differ_in_an_array_are_two_rows_with_runs_of_their_own(tmp_path):
    @dataclass(frozen=True)
    class Only(fp.Uniform):
        """Chooses the first of the clients that it may."""

        allowed: Any = None

        def select(self, state, view, rng):
            there = np.flatnonzero(view.available & self.allowed)
            return fp.Choice(there[: self.cohort_size])

    halves = [np.arange(20) < 10, np.arange(20) >= 10]
    policies = [Only(3, allowed=half) for half in halves]
    world = {"name": "ideal", "num_clients": 20}
    common = {"world": world, "data": None, "cohort_size": 3, "seeds": 1, "rounds": 4, "executor": "serial"}
    together = fp.compare(policies, out=tmp_path / "one", **common)
    assert len(together.runs) == 2
    for policy, (first, second) in zip(policies, itertools.pairwise([0, 10, 20]), strict=True):
        alone = fp.compare([policy], out=tmp_path / "two", **common)  # the same folder: nothing of the other's is taken
        (run,) = alone.runs
        chosen = read_selections(run.folder)["client"].to_pylist()
        assert set(chosen) == set(range(first, first + 3)) < set(range(first, second))
