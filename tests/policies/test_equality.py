"""Policies compare by value, whatever their settings hold."""

import copy
import dataclasses

import numpy as np
import pytest

import fedpick as fp
from zoo import zoo


@pytest.mark.parametrize("name", zoo(5))
def test_a_policy_equals_one_with_the_same_settings_and_has_its_hash(name):
    policy = zoo(5)[name]
    again = dataclasses.replace(policy)
    assert policy is not again
    assert policy == again
    assert hash(policy) == hash(again)
    changes = {"OverSelect": {"factor": 1.7}, "Guard": {"cap": 1.7}, "MinSeparation": {"rounds": 9}}
    changes["CriticalFL"] = {"policy": fp.Uniform(9)}
    assert policy != dataclasses.replace(policy, **changes.get(type(policy).__name__, {"cohort_size": 6}))
    assert policy != fp.OverSelect(fp.Uniform(5), 3.0)


def test_no_two_policies_of_the_zoo_are_equal():
    policies = list(zoo(5).values())
    assert len(set(policies)) == len(policies)


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda: fp.FedCS(2, success=np.array([0.1, 0.9])), lambda: fp.FedCS(2, success=np.array([0.1, 0.8]))),
        (lambda: fp.FedCS(deadline=1.0, theta=np.ones((2, 3))), lambda: fp.FedCS(deadline=1.0, theta=np.ones((3, 2)))),
        (lambda: fp.RBCSF(2, theta=np.ones((2, 3))), lambda: fp.RBCSF(2)),
        (lambda: fp.FedGS(2, graph=np.eye(3)), lambda: fp.FedGS(2, graph="embedding")),
        (lambda: fp.Genie(2, speed=[0.5, 1.0]), lambda: fp.Genie(2, speed=[1.0, 0.5])),
        (lambda: fp.BSFL(2, quality=np.array([0.5, 1.0])), lambda: fp.BSFL(2, quality=0.5)),
        (
            lambda: fp.OverSelect(fp.FedCS(2, success=np.ones(3))),
            lambda: fp.OverSelect(fp.FedCS(2, success=np.zeros(3))),
        ),
    ],
)
def test_arrays_are_compared_by_what_they_hold(make, other):
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() == copy.deepcopy(make())
    assert make() != other()


def test_a_list_equals_the_array_of_the_same_numbers_and_minus_0_is_0():
    assert fp.FedCS(2, success=[0, 1]) == fp.FedCS(2, success=np.array([-0.0, 1.0]))
    assert hash(fp.FedCS(2, success=[0, 1])) == hash(fp.FedCS(2, success=np.array([-0.0, 1.0])))


def test_a_setting_that_has_no_hash_does_not_keep_a_policy_from_having_one():
    class Rates(list):
        def __call__(self, clients):
            return self

    one, other = fp.FedCS(1, success=Rates([0.5, "unknown"])), fp.FedCS(1, success=Rates([0.4, "unknown"]))
    assert len({one, other}) == 2


def test_policies_of_different_classes_are_different():
    assert fp.Uniform(3) != fp.SizeWeighted(3)
    assert fp.Uniform(3) != 3
