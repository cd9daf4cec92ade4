"""A trainer from plain settings: names however they are written, and each data set's own defaults."""

import numpy as np
import pytest

from fedpick import data
from fedpick.errors import UnknownNameError
from fedpick.learn import settings


@pytest.mark.parametrize("name", ["fashion-mnist", "FashionMNIST", "Fashion_MNIST", "fashion mnist"])
def test_a_data_set_is_found_however_its_name_is_written(name, monkeypatch):
    asked = []
    rng = np.random.default_rng(0)
    toy = data.Dataset("toy", rng.random((400, 3), np.float32), np.arange(400, dtype=np.int32) % 4, classes=4)
    monkeypatch.setattr(settings, "_load", lambda found: asked.append(found) or toy)
    people = settings.build_data({"name": name}, num_clients=5)
    assert asked == ["fashion-mnist"]
    assert settings.build_trainer(people, {"name": name}, {}).batch == settings.DEFAULTS["fashion-mnist"]["batch"]


@pytest.mark.parametrize("name", ["synthetic(1, 1)", "Synthetic(1, 1)", "SYNTHETIC (1, 1)"])
def test_a_generator_is_found_however_its_name_is_written(name):
    assert settings.build_data({"name": name}, num_clients=5).dataset.name == "synthetic(1, 1)"


def test_what_can_be_loaded_has_defaults():
    assert set(settings.DEFAULTS) == {*data.SOURCES, *data.GENERATORS}


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown data 'fashion'; did you mean 'fashion-mnist'"):
        settings.build_data({"name": "fashion"}, num_clients=5)
