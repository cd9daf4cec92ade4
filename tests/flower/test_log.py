"""Flower's log tells the truth about a wrapped strategy."""

import logging

import pytest
from fake_flower import Clock, FakeGrid, model, trains
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedMedian

import fedpick as fp
from fedpick.flower import Selected


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO)
    flower = logging.getLogger("flwr")
    flower.addHandler(caplog.handler)  # it does not pass records on to the root
    yield lambda: [record.getMessage() for record in caplog.records]
    flower.removeHandler(caplog.handler)


def grid(clock: Clock) -> FakeGrid:
    return FakeGrid(clock, {node: trains() for node in range(50)})


@pytest.mark.parametrize("make", [FedAvg, FedMedian])
def test_the_nodes_that_are_connected_are_counted(clock: Clock, told, make) -> None:
    base = make(fraction_train=1.0, fraction_evaluate=0.5)
    strategy = Selected(DifferentialPrivacyServerSideFixedClipping(base, 0.0, 10.0, 10), fp.Uniform(10))
    strategy.start(grid(clock), model(), num_rounds=1)
    assert "configure_train: Sampled 10 nodes (out of 50)" in told()
    assert "configure_evaluate: Sampled 25 nodes (out of 50)" in told()
    assert not any("out of 10" in text for text in told())


def test_settings_without_effect_are_not_shown_as_if_they_had(clock: Clock, told) -> None:
    Selected(FedAvg(fraction_evaluate=0.5), fp.Uniform(10)).start(grid(clock), model(), num_rounds=1)
    text = "\n".join(told())
    assert "train (1.00)" not in text
    assert "Fraction: train (chosen by the policy) | evaluate ( 0.50)" in text
    assert "Minimum nodes: train (chosen by the policy) | evaluate (2, or as many as are connected)" in text
    assert "Minimum available nodes: not waited for" in text


def test_rounds_are_counted_on_after_a_restart(clock: Clock, told, tmp_path) -> None:
    for _ in range(2):
        Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(10), state=tmp_path).start(
            grid(clock), model(), num_rounds=2
        )
    shown = [text for text in told() if text.startswith("[ROUND")]
    assert set(shown) == {"[ROUND 1/2]", "[ROUND 2/2]", "[ROUND 3/4]", "[ROUND 4/4]"}


def test_afterwards_flower_s_log_is_its_own(clock: Clock, told) -> None:
    before = list(logging.getLogger("flwr").filters)
    inner = FedAvg(fraction_evaluate=0.0)
    Selected(inner, fp.Uniform(10)).start(grid(clock), model(), num_rounds=1)
    assert logging.getLogger("flwr").filters == before
    inner.summary()
    assert "Fraction: train (1.00)" in "\n".join(told())


def test_policy_and_folders_are_shown_at_the_start(clock: Clock, told, tmp_path) -> None:
    for options, where in (
        ({}, "state: not saved; model: not kept; records: not written"),
        (
            {"state": tmp_path / "s", "records": tmp_path / "r"},
            f"state: {tmp_path / 's'}; model: not kept; records: {tmp_path / 'r'}",
        ),
    ):
        Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(10), **options).start(grid(clock), model(), num_rounds=1)
        assert f"clients are chosen by {fp.Uniform(10)!r}; {where}" in told()
