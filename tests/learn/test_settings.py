"""A trainer from plain settings: each data set's own defaults, however its name is written."""

from dataclasses import fields

import pytest
from small_data import data_of

from fedpick import data
from fedpick.core.errors import ConfigError, UnknownNameError
from fedpick.data.settings import TRAINING
from fedpick.learn import Trainer, settings


@pytest.mark.parametrize("name", ["cifar10", "CIFAR-10", "Cifar_10"])
def test_the_defaults_are_those_of_the_data_set(name):
    trainer = settings.build_trainer(data_of("floats"), {"name": name}, {"model": "logistic"})
    usual = TRAINING["cifar10"]
    assert (trainer.lr, trainer.batch, trainer.momentum) == (usual["lr"], usual["batch"], usual["momentum"])


def test_what_can_be_loaded_has_defaults():
    assert set(TRAINING) == {*data.SOURCES, *data.GENERATORS}


TEXTS = ("aggregation", "server", "precision", "form", "optimizer", "place", "algorithm")
WHOLE = ("batch", "steps", "spread_every", "evaluate_every", "set_aside")
NUMBERS = ("momentum", "weight_decay", "prox", "late_beta", "clip")


def built(**train):
    return settings.build_trainer(data_of("floats"), None, {"model": "logistic", **train})


def refused(**train):
    with pytest.raises(ConfigError) as caught:
        built(**train)
    return str(caught.value)


def test_every_setting_that_text_can_give_is_a_text_or_a_number_and_no_truth():
    others = {"data", "model", "lr", "loss", "metrics", "reports"}
    assert {each.name for each in fields(Trainer) if each.init} == {*TEXTS, *WHOLE, *NUMBERS, *others}
    for key in TEXTS:
        assert refused(**{key: 1}) == f"[train] {key} = 1, but must be a text"
    for key in (*WHOLE, *NUMBERS):
        assert refused(**{key: "a"}) == f"[train] {key} = 'a', but must be a number"
        assert refused(**{key: True}) == f"[train] {key} = True, but must be a number"
    for key in WHOLE:
        for value in (1.5, -1, 1_000_001):
            assert refused(**{key: value}) == f"[train] {key} = {value}, but must be a whole number from 0 to 1,000,000"


def test_whole_numbers_reach_their_bounds_and_no_steps_are_a_pass():
    made = built(batch=1_000_000, evaluate_every=1.0, spread_every=0, steps=0)
    assert (made.batch, made.evaluate_every, made.spread_every, made.steps) == (1_000_000, 1, 0, None)
    assert built(steps=2).steps == 2


def test_what_does_not_exist_is_refused():
    for key in ("data", "reports"):
        with pytest.raises(UnknownNameError, match=rf"^unknown setting of \[train\] '{key}'"):
            built(**{key: 1})
    assert refused(loss="my_loss") == "[train] loss = 'my_loss', but must name a function in a file of yours: " + (
        "'net.py:my_loss'"
    )
    for value in (3, 0.5, [1], (1,), {}, None):
        assert refused(
            model=value
        ) == f"[train] model = {value!r}, but must be a text such as 'mlp(hidden=(64, 30))' " + (
            "or 'net.py:Net'; in Python also a model or a torch.nn.Module"
        )


def test_the_update_s_length_is_always_given_and_of_the_rest_what_a_trainer_can_give():
    known = {"model": "logistic"}
    made = settings.build_trainer(data_of("floats"), None, known, ("sketch_4", "update_norm", "loss_std", "update"))
    assert made.reports == ("update_norm", "sketch_4", "update")
    assert built().reports == ("update_norm",)


@pytest.mark.parametrize(
    "rate",
    ["step(0.5, 0.1, at=2)", "linear(0.5, 0.1, 4)", "cosine(0.5, 0.1, 4)", "decay(0.5, 0.9)", "halving(0.5, every=2)"],
)
def test_every_schedule_has_a_name(rate):
    assert type(built(lr=rate).lr).__name__.lower() == rate.split("(")[0]
