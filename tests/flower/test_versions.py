"""Versions of Flower that were not tested: a warning, and the rounds are played."""

import logging
from importlib.metadata import version

import pytest
from fake_flower import Clock, FakeGrid, model, trains
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
from fedpick.adapters.flower import strategy
from fedpick.adapters.flower.versions import NEWEST, OLDEST, untested
from fedpick.flower import Selected


@pytest.mark.parametrize("tested", [f"{OLDEST}.0", f"{OLDEST}.7", "1.40.1", f"{NEWEST}.0", f"{NEWEST}.3.post1", NEWEST])
def test_nothing_is_said_of_tested_versions(tested: str) -> None:
    assert untested(tested) is None


@pytest.mark.parametrize(
    ("other", "which"),
    [("1.43.0", "newer"), ("1.100.0", "newer"), ("2.0rc1", "newer"), ("1.37.9", "older"), ("1.9", "older")],
)
def test_others_are_named_with_the_range_and_a_remedy(other: str, which: str) -> None:
    assert untested(other) == (
        f"fedpick was tested with Flower {OLDEST} to {NEWEST}; this is {other}, which is {which}, and it is used. "
        'If it fails: pip install "flwr>=1.38,<1.43"'
    )


@pytest.mark.parametrize(("flower", "warnings"), [("1.43.0", 1), ("1.40.0", 0)])
def test_a_newer_version_warns_and_runs(clock: Clock, caplog, monkeypatch, flower: str, warnings: int) -> None:
    monkeypatch.setattr(strategy, "version", {"flwr": flower}.__getitem__)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    selected = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(2))
    selected.start(FakeGrid(clock, {node: trains() for node in range(4)}), model(), num_rounds=2)
    assert selected.round == 2
    said = [each for each in caplog.records if "was tested with Flower" in each.getMessage()]
    assert [each.levelno for each in said] == [logging.WARNING] * warnings


def test_the_version_here_is_a_tested_one() -> None:
    assert untested(version("flwr")) is None
