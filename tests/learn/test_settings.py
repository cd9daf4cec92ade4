"""A trainer from plain settings: each data set's own defaults, however its name is written."""

import pytest
from small_data import data_of

from fedpick import data
from fedpick.data.settings import TRAINING
from fedpick.learn import settings


@pytest.mark.parametrize("name", ["cifar10", "CIFAR-10", "Cifar_10"])
def test_the_defaults_are_those_of_the_data_set(name):
    trainer = settings.build_trainer(data_of("floats"), {"name": name}, {"model": "logistic"})
    usual = TRAINING["cifar10"]
    assert (trainer.lr, trainer.batch, trainer.momentum) == (usual["lr"], usual["batch"], usual["momentum"])


def test_what_can_be_loaded_has_defaults():
    assert set(TRAINING) == {*data.SOURCES, *data.GENERATORS}
