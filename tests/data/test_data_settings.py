"""Data from plain settings: names however they are written."""

import numpy as np
import pytest

from fedpick import data
from fedpick.core.errors import ConfigError, UnknownNameError
from fedpick.data import settings


@pytest.fixture
def loaded(monkeypatch):
    """A toy in place of every data set; holds the names that were loaded."""
    names = []
    x, y = np.zeros((400, 3), np.float32), np.arange(400, dtype=np.int32) % 4
    monkeypatch.setattr(settings, "_load", lambda name: names.append(name) or data.Dataset("toy", x, y, classes=4))
    settings._build_known.cache_clear()
    yield names
    settings._build_known.cache_clear()


@pytest.mark.parametrize("name", ["fashion-mnist", "FashionMNIST", "Fashion_MNIST", "fashion mnist"])
def test_a_data_set_is_found_however_its_name_is_written(name, loaded):
    assert settings.known_name({"name": name}) == "fashion-mnist"
    assert len(settings.build_data({"name": name}, num_clients=5)) == 5
    assert loaded == ["fashion-mnist"]


@pytest.mark.parametrize("name", ["synthetic(1, 1)", "Synthetic(1, 1)", "SYNTHETIC (1, 1)"])
def test_a_generator_is_found_however_its_name_is_written(name):
    assert settings.known_name({"name": name}) == "synthetic"
    assert settings.build_data({"name": name}, num_clients=5).dataset.name == "synthetic(1, 1)"


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown data 'fashion'; did you mean 'fashion-mnist'"):
        settings.build_data({"name": "fashion"}, num_clients=5)


def test_the_test_may_be_what_clients_hold_out():
    plain = {"name": "digits", "partition": "iid(size=20)", "hold_out": 0.1}
    own = settings.build_data(plain, num_clients=30)
    held = settings.build_data({**plain, "test": "held-out"}, num_clients=30)
    assert len(own.dataset.test_x) > 0
    assert len(held.dataset.test_x) == 0
    np.testing.assert_array_equal(own.held, held.held)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"test": "all"}, r"test = 'all', but must be 'own' \(the data set's test examples\) or 'held-out'"),
        ({"test": "held-out"}, "no client holds anything out; set hold_out = 0.1"),
    ],
)
def test_where_to_test_is_checked(more, message):
    with pytest.raises(ConfigError, match=message):
        settings.build_data({"name": "digits", "partition": "iid(size=20)", **more}, num_clients=30)
