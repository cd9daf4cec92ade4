"""Who may be asked at all."""

import numpy as np
import pytest

import fedpick as fp

NAMES = [f"site-{k}" for k in range(6)]


def test_only_eligible_clients_are_enrolled_probed_and_chosen() -> None:
    approved, probed = {"site-1", "site-2", "site-4"}, set()
    session = fp.Session(fp.PowerOfChoice(cohort_size=2, candidates=3))

    def probe(names, batch):
        probed.update(names)
        return np.ones(len(names))

    with session.round(NAMES, probe=probe, eligible=approved.__contains__) as r:
        assert set(r.chosen) <= approved
    assert session.names == ["site-1", "site-2", "site-4"]
    assert probed == approved
    approved.discard("site-1")  # withdrawn: it keeps its history, and is not asked from now on
    for _ in range(5):
        with session.round(NAMES, probe=probe, eligible=lambda name: np.bool_(name in approved)) as r:
            assert set(r.chosen) == {"site-2", "site-4"}
    assert "site-1" in session.names


def test_nobody_eligible_is_an_error_with_the_remedy() -> None:
    session = fp.Session(fp.Uniform(2))
    with pytest.raises(
        fp.server.NotEnoughClientsError,
        match=r"none of the 6 available clients is eligible, so that nobody .* 'site-0'",
    ):
        session.round(NAMES, eligible=lambda name: False)
    assert session.current is None
    assert session.names == []


@pytest.mark.parametrize(
    ("eligible", "said"),
    [
        (
            lambda name: 1 / 0,
            r"Session: eligible\('site-0'\) raised ZeroDivisionError: division by zero; it must return",
        ),
        (lambda name: "no", r"Session: eligible\('site-0'\) returned 'no', but must return True or False"),
        (lambda name: None, r"returned None, but must return True or False; nobody is asked until it does"),
    ],
)
def test_a_function_that_does_not_answer_is_an_error(eligible, said) -> None:
    session = fp.Session(fp.Uniform(2))
    with pytest.raises(fp.ContractError, match=said):
        session.round(NAMES, eligible=eligible)
    assert session.current is None
