"""Runs stacked into one call: data that was made twice, whose error it is, and vectors of a run's own clients."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import fedpick as fp
from fedpick import data
from fedpick.core.errors import SettingError
from fedpick.learn import logistic
from fedpick.learn.jax import placement
from fedpick.learn.reports import vectors as real_vectors
from fedpick.learn.trainer import Trainer
from fedpick.simulate import together
from fedpick.simulate.together import RunError, play_together

pytestmark = pytest.mark.usefixtures("quick_start")


def small_data(seed: int = 0) -> data.Federated:
    return data.Synthetic(1.0, 1.0)(num_clients=8, rng=fp.rng.stream(seed, 0, "data"))


def run(seed: int, policy: Any = None, federated: data.Federated | None = None, **settings: Any) -> fp.Run:
    federated = small_data() if federated is None else federated
    trainer = Trainer(federated, logistic((60,), 10), batch=8, steps=2, evaluate_every=2, **settings)
    return fp.Run(policy or fp.Uniform(3), fp.World(federated.clients), seed=seed, trainer=trainer)


def test_data_made_twice_is_put_on_the_device_once() -> None:
    runs = [run(0), run(1)]
    first, second = (r.trainer.data.dataset for r in runs)  # type: ignore[union-attr]
    assert first is not second
    rounds = list(play_together(runs, until=2))
    assert runs[1].trainer.data.dataset is first  # type: ignore[union-attr]
    for number in (0, 1):
        alone = list(run(number).rounds(until=2))
        for mine, wanted in zip([records[number] for records in rounds], alone, strict=True):
            np.testing.assert_array_equal(mine.ids, wanted.ids)
            np.testing.assert_allclose(mine.loss, wanted.loss, rtol=1e-5)
            assert mine.metrics == pytest.approx(wanted.metrics, rel=1e-5)
            assert list(mine.metrics) == list(wanted.metrics)


def test_models_are_evaluated_together_where_the_examples_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs 0 and 1 on the same examples; run 2 never on what the clients hold, run 3 with others held out."""
    real, calls = placement.Arrays.launch, []

    def launch(arrays: Any, model: Any, params: Any, index: Any, several: bool = False) -> Any:
        calls.append(len(jax.tree.leaves(params)[0]) if several else 1)
        return real(arrays, model, params, index, several)

    def runs() -> list[fp.Run]:
        made = small_data()
        bare = replace(made.dataset, test_x=made.dataset.test_x[:0], test_y=made.dataset.test_y[:0])
        shared = replace(made, dataset=bare, held=np.arange(16), held_starts=np.arange(9) * 2)
        other = replace(shared, held=np.arange(16)[::-1].copy())
        different: list[dict[str, Any]] = [{}, {}, {"spread_every": 0}, {}]
        partitions = [shared, shared, shared, other]
        return [run(r, federated=partitions[r], form="vmap", **different[r]) for r in range(4)]  # on one device

    with monkeypatch.context() as patch:
        patch.setattr(placement.Arrays, "launch", launch)
        mine = [records[r].metrics for records in play_together(runs(), until=4) for r in range(4)]
    assert calls == [3, 3, 1] * 2  # own examples of 0, 1, 3; held-out ones of 0, 1, 2; those of 3
    wanted = [metrics for several in zip(*(r.rounds(until=4) for r in runs()), strict=True) for metrics in several]
    assert len(wanted) == len(mine) == 16
    for found, record in zip(mine, wanted, strict=True):
        assert found == pytest.approx(record.metrics, rel=1e-5)
        assert list(found) == list(record.metrics)


@pytest.mark.parametrize("part", ["x", "y"])
def test_data_that_differs_is_not_taken_for_the_same(part: str) -> None:
    mine, other = small_data(), small_data()
    getattr(other.dataset, part)[0] += 1 if part == "x" else -1 if other.dataset.y[0] else 1
    with pytest.raises(SettingError, match=r"must share one data set, but have Dataset\('synthetic"):
        next(play_together([run(0, federated=mine), run(1, federated=other)], until=1))


def test_an_error_says_whose_it_is() -> None:
    class Tired(fp.Uniform):
        def select(self, state: Any, view: Any, rng: Any) -> Any:
            if view.round == 2:
                raise ZeroDivisionError("tired")
            return super().select(state, view, rng)

    runs = [run(0), run(1, Tired(3))]
    rounds = play_together(runs, until=3)
    next(rounds)
    with pytest.raises(RunError, match="run 1 of those played together: tired") as caught:
        next(rounds)
    assert caught.value.index == 1
    assert isinstance(caught.value.error, ZeroDivisionError)


def test_a_choice_against_the_rules_is_refused_in_a_stack_too() -> None:
    class Twice(fp.Uniform):
        def select(self, state: Any, view: Any, rng: Any) -> Any:
            return fp.Choice(np.flatnonzero(view.available)[[1, 1]])

    with pytest.raises(RunError, match="run 1 of those played together: Twice, round 1: it chose a client twice"):
        next(play_together([run(0), run(1, Twice(2))], until=1))


def test_memory_that_runs_out_is_nobodys_error() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError), together.blame(0):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("report", ["update", "embedding"])
def test_vectors_are_those_of_the_runs_own_clients(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of three clients beside one of five, of which only one reports vectors."""
    seen: list[int] = []

    def vectors(asked: Any, backend: Any, model: Any, dataset: Any, sent: Any, delta: Any) -> Any:
        if delta is not None:
            seen.append(len(jax.tree.leaves(delta)[0]))
        return real_vectors(asked, backend, model, dataset, sent, delta)

    monkeypatch.setattr("fedpick.learn.trainer.vectors", vectors)
    heard: dict[str, Any] = {}

    class Listening(fp.Uniform):
        def observe(self, state: Any, view: Any, choice: Any, outcome: Any) -> Any:
            heard["reports"] = outcome.reports[report]
            return super().observe(state, view, choice, outcome)

    reports = ("update_norm", report)
    list(play_together([run(0, fp.Uniform(5)), run(1, Listening(3), reports=reports)], until=1))
    together_, width = heard["reports"], seen[-1]
    list(run(1, Listening(3), reports=reports).rounds(until=1))
    np.testing.assert_allclose(together_, heard["reports"], rtol=1e-4, atol=1e-6)
    assert width == 3  # its own cohort, not the eight of the stack


@pytest.mark.parametrize("settings", [{"server": "fedavgm(momentum=0.9)"}, {"aggregation": "fedau"}], ids=str)
def test_a_round_in_which_nobody_returns_changes_nothing_in_a_stack_either(settings: dict[str, Any]) -> None:
    """No momentum is applied and no interval counted, as alone; beside a run in which some return."""

    def runs() -> list[fp.Run]:
        made = [run(seed, **settings) for seed in (0, 1)]
        for each, rates in zip(made, ((0.4,), (1.0,)), strict=True):
            each.world = replace(each.world, volatility=fp.worlds.SuccessRates(rates), deadline=None)
        return made

    stack, alone = runs(), runs()
    nobody = False
    before: Any = None
    for number, (records, *others) in enumerate(
        zip(play_together(stack, until=8), *(each.rounds(until=8) for each in alone), strict=True)
    ):
        for mine, other in zip(stack, alone, strict=True):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *_models(mine, other))
        assert [record.status.tolist() for record in records] == [record.status.tolist() for record in others]
        if number and not (records[0].status == fp.Status.DONE).any():
            nobody = True
            jax.tree.map(np.testing.assert_array_equal, stack[0].state.model, before)
        before = jax.tree.map(np.array, stack[0].state.model)
    assert nobody


def _models(*runs: fp.Run) -> list[Any]:
    return [each.state.model for each in runs]
