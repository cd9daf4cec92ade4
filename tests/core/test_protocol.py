"""What a policy says about itself, and that a wrapper says the same."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fedpick as fp
from fedpick.core.protocol import Traits, check_reports
from zoo import zoo


@dataclass(frozen=True)
class Own:
    """A policy of a user's own that says all there is to say."""

    cohort_size: int
    secret: Any = None

    needs = ("context", fp.ReportSpec("gradient", 8), "anything")
    wants = (fp.ReportSpec("gain", 0), "features", fp.ReportSpec("embedding", unless="features"))
    context = 2
    truths = ("secret",)
    fixed_size = False


@dataclass(frozen=True)
class Wrapper:
    """A wrapper of a user's own: it holds the policy under that name, and says nothing itself."""

    policy: Any


SAID = fp.traits(Own(3))


def test_traits_read_what_a_policy_says():
    assert (SAID.cohort_size, SAID.asks, SAID.context, SAID.truths) == (3, 3, 2, ("secret",))
    assert (SAID.oracle, SAID.fixed_size, SAID.replace) == (True, False, False)
    assert SAID.needs == {"context", "gradient", "anything"}
    assert SAID.wants == {"gain", "features", "embedding"}
    assert [(report.name, report.width) for report in SAID.reports] == [
        ("anything", None),
        ("embedding", None),
        ("gain", 0),
        ("gradient", 8),
    ]


def test_a_silent_policy_gets_the_defaults():
    assert fp.traits(object()) == Traits(
        cohort_size=None,
        asks=None,
        needs=frozenset(),
        wants=frozenset(),
        reports=(),
        context=None,
        truths=(),
        oracle=False,
        fixed_size=True,
        replace=False,
        remembers=0.0,
    )


def test_of_nested_policies_the_one_that_must_remember_longest_counts():
    class Remembers:
        remembers, policy = 7, fp.MinSeparation(fp.Uniform(2), 5)

    assert fp.traits(Remembers()).remembers == 7
    assert fp.traits(fp.OverSelect(Remembers.policy, 1.5)).remembers == 4
    Remembers.policy = fp.Guard(fp.MinSeparation(fp.Uniform(2), 5, at_most=3))
    assert fp.traits(Remembers()).remembers == math.inf


@pytest.mark.parametrize("wrap", [Wrapper, lambda policy: Wrapper(Wrapper(policy))])
@pytest.mark.parametrize("policy", [Own(3), *zoo(3).values()], ids=lambda policy: type(policy).__name__)
def test_a_wrapper_says_what_the_policy_inside_says(policy, wrap):
    assert fp.traits(wrap(policy)) == fp.traits(policy)


def test_over_select_says_what_the_policy_inside_says_but_for_how_many_it_asks():
    inside, outside = SAID, fp.traits(fp.OverSelect(Own(3), 2.0))
    assert (outside.cohort_size, outside.asks) == (3, 6)
    for name in ("needs", "wants", "reports", "context", "truths", "oracle", "fixed_size", "replace"):
        assert getattr(outside, name) == getattr(inside, name)


def test_reports_are_collected_unless_the_clients_make_them_superfluous():
    bare, described = fp.Clients([1.0]), fp.Clients([1.0], features=[[1.0]])
    everything = {"anything": None, "embedding": None, "gain": 0, "gradient": 8}
    assert SAID.collect() == SAID.collect(bare) == everything
    assert SAID.collect(described) == {name: everything[name] for name in ("anything", "gain", "gradient")}


def test_what_is_needed_is_collected_whatever_else_is_there():
    described = fp.Clients([1.0], features=[[1.0]])
    assert fp.traits(fp.FedGS(2)).collect(described) == {}
    assert fp.traits(fp.FedGS(2)).collect(fp.Clients([1.0])) == {"embedding": None}
    assert fp.traits(fp.FedGS(2, graph="embedding")).collect(described) == {"embedding": None}


def test_oracles_are_those_that_were_told_what_no_server_knows():
    oracles = {type(policy).__name__ for policy in zoo(3).values() if fp.traits(policy).oracle}
    assert oracles == {"FedCS", "Genie", "RBCSF"}
    assert not fp.traits(fp.RBCSF(3)).oracle
    assert fp.traits(fp.OverSelect(fp.RBCSF(3, theta=np.ones((5, 3))), 1.5)).oracle


def test_a_context_that_is_no_number_says_nothing_of_its_width():
    class Odd:
        context = "kitchen"

    assert fp.traits(Odd()).context is None
    assert fp.traits(fp.RBCSF(2, context=4)).context == 4


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ({"gradient": np.zeros((2, 8)), "gain": np.zeros(2), "anything": np.zeros((2, 3, 3))}, None),
        (
            {"gradient": np.zeros((2, 7))},
            r"'gradient' has shape \(7,\) for each client, but Own .* a vector of 8 numbers",
        ),
        ({"gradient": np.zeros(2)}, r"'gradient' has shape \(\) for each client"),
        (
            {"gain": np.zeros((2, 1))},
            r"'gain' has shape \(1,\) for each client, but Own declares that it needs one number",
        ),
    ],
)
def test_reports_of_another_shape_are_refused(reports, says):
    outcome = fp.Outcome([0, 0], [1.0, 1.0], [1.0, 1.0], reports)
    if says is None:
        check_reports(Own(2), outcome)
    else:
        with pytest.raises(fp.ContractError, match=says):
            check_reports(Own(2), outcome)
