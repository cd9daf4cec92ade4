"""Metrics of fedpick's own trainer: the same in every form and in a stack; the usual evaluation stays as it was."""

import jax
import numpy as np
import pytest
from small_data import data_of, model_of

import fedpick as fp
from fedpick.data import Dataset, Federated
from fedpick.learn import measures, settings
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import play_together

ALL = ("macro_f1", "balanced_accuracy", "auroc", "perplexity")


def outputs_of(trainer, model, x):
    scaled = x if x.dtype == np.float32 else (x / 255.0 - trainer.data.dataset.mean) / trainer.data.dataset.std
    return np.asarray(trainer.model.apply(model["params"], jax.numpy.asarray(scaled, np.float32), None))


@pytest.mark.parametrize("kind", ["floats", "images"])
def test_they_are_of_the_outputs_on_the_test_examples(kind):
    trainer = Trainer(data_of(kind), model_of(kind), evaluate_every=2, metrics=ALL)
    model, dataset = trainer.init(3), trainer.data.dataset
    assert trainer.evaluate(model, 1) == {}
    found = trainer.evaluate(model, 2)
    outputs = outputs_of(trainer, model, dataset.test_x).astype(np.float64)
    wanted = {name: measures.MEASURES[name](outputs, dataset.test_y) for name in ALL}
    assert {name: found[name] for name in ALL} == pytest.approx(wanted, rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(found["test_loss"]), rel=1e-5)


def test_the_other_figures_do_not_change_by_a_bit():
    bare, more = (Trainer(data_of("floats"), model_of("floats"), evaluate_every=1, metrics=m) for m in ((), ALL))
    plain, found = bare.evaluate(bare.init(3), 1), more.evaluate(more.init(3), 1)
    assert list(found) == [*plain, *ALL]
    assert {name: found[name] for name in plain} == plain


def test_numbers_have_errors():
    trainer = Trainer(data_of("regression"), model_of("regression"), evaluate_every=1, metrics=("mae", "rmse"))
    found = trainer.evaluate(trainer.init(3), 1)
    assert found["rmse"] == pytest.approx(np.sqrt(found["test_loss"]), rel=1e-5)
    assert 0 < found["mae"] <= found["rmse"]


def test_a_loop_and_a_compiled_call_measure_the_same():
    found = []
    for form in ("loop", "scan", "vmap"):
        trainer = Trainer(data_of("floats"), model_of("floats"), evaluate_every=1, metrics=ALL, form=form)
        found.append(trainer.evaluate(trainer.init(3), 1))
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)


def test_a_stack_measures_what_each_run_does_alone():
    def run(seed):
        trainer = Trainer(data_of("floats"), model_of("floats"), batch=4, steps=2, evaluate_every=2, metrics=ALL)
        return fp.Run(fp.Uniform(3), fp.World(trainer.data.clients), seed=seed, trainer=trainer)

    stacked = list(play_together([run(0), run(1)], until=4))
    for seed in (0, 1):
        for mine, alone in zip([each[seed] for each in stacked], run(seed).rounds(until=4), strict=True):
            assert list(mine.metrics) == list(alone.metrics)
            assert mine.metrics == pytest.approx(alone.metrics, rel=1e-4)
    assert set(ALL) < set(stacked[-1][0].metrics)


def test_without_a_test_set_they_are_of_the_clients_held_out_examples():
    there = data_of("floats", 2)
    bare = Dataset("own", there.dataset.x, there.dataset.y, classes=4)
    data = Federated(bare, there.examples, there.starts, there.held, there.held_starts)
    trainer = Trainer(data, model_of("floats"), evaluate_every=1, spread_every=0, metrics=("macro_f1",))
    model = trainer.init(2)
    wanted = measures.macro_f1(outputs_of(trainer, model, bare.x[data.held]), bare.y[data.held])
    assert trainer.evaluate(model, 1)["macro_f1"] == pytest.approx(wanted)
    nothing = Federated(bare, there.examples, there.starts)
    assert Trainer(nothing, model_of("floats"), metrics=("macro_f1",)).measured(model, 10) == {}


SCORE = """
def score(outputs, targets):
    return {"first": float(outputs[0, 0]), "examples": len(targets)}

score.directions = {"first": "larger", "examples": "smaller"}
"""


def test_settings_name_metrics_and_functions(tmp_path):
    (tmp_path / "my.py").write_text(SCORE)
    given = {"model": "logistic", "evaluate_every": 1, "metrics": f"macro_f1, loss, {tmp_path}/my.py:score"}
    trainer = settings.build_trainer(data_of("floats"), {"name": "mine.npz"}, given)
    found = trainer.evaluate(trainer.init(0), 1)
    assert found["examples"] == len(data_of("floats").dataset.test_x)
    assert {"macro_f1", "first"} < set(found)
    assert trainer.directions == {"first": "larger", "examples": "smaller"}
    with pytest.raises(fp.FedpickError, match="macro-f2"):
        settings.build_trainer(data_of("floats"), {"name": "mine.npz"}, {"metrics": "macro-f2"})
