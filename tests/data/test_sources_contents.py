"""What is in a data set is checked: shapes, classes, checksum; and its moments."""

import os

import numpy as np
import pytest
from official import change, check, small

from fedpick.core.errors import DataError
from fedpick.data import sources
from fedpick.data.sources import contents
from fedpick.data.sources.cache import read_arrays, write_arrays

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": np.zeros((5, 28, 28, 1))}, "training images are float64 of shape .*, but must be uint8 of shape"),
        (
            {"x": np.zeros((4, 28, 28, 1), np.uint8)},
            r"shape \(4, 28, 28, 1\), but must be uint8 of shape \(5, 28, 28, 1\)",
        ),
        ({"test_x": np.zeros((5, 28, 28, 1), np.uint8)}, "test images are"),
        ({"y": np.zeros(4, np.uint8)}, "training labels must be 5 integers >= 0"),
        ({"y": np.zeros(5)}, "training labels must be 5 integers >= 0"),
        ({"test_y": np.array([0, -1, 1])}, "test labels must be 3 integers >= 0"),
        ({"y": np.array([0, 1, 1, 1, 0])}, r"training examples of each class are \[2, 3\], but must be \[3, 2\]"),
        ({"y": np.array([0, 0, 0, 1, 2])}, r"training examples of each class are \[3, 1, 1\], but must be \[3, 2\]"),
        ({"fold": np.zeros(3)}, "its arrays are not those of this data set"),
    ],
)
def test_npz_that_is_something_else(tmp_path, changed, told):
    path = tmp_path / "cache" / "mnist.npz"
    write_arrays(path, small("mnist") | changed)
    with pytest.raises(
        DataError, match=rf"^{path}: .*{told}.*; it was set aside as mnist.npz.damaged.\nmnist is not in"
    ):
        sources.load("mnist")
    assert os.listdir(tmp_path / "cache") == ["mnist.npz.damaged"]


def test_npz_without_an_array(tmp_path):
    arrays = small("mnist")
    del arrays["test_y"]
    write_arrays(tmp_path / "cache" / "mnist.npz", arrays)
    with pytest.raises(DataError, match=r"its arrays are not those of this data set \('test_y'\)"):
        sources.load("mnist")


def test_one_wrong_pixel_is_noticed(tmp_path, monkeypatch):
    arrays = small("mnist")
    change(monkeypatch, "mnist", digest=contents.digest(arrays))
    path = tmp_path / "cache" / "mnist.npz"
    write_arrays(path, arrays)
    check("mnist", sources.load("mnist"))
    arrays["test_x"][2, 3, 4] ^= 1
    write_arrays(path, arrays)
    with pytest.raises(DataError, match="its pixels and labels have the wrong checksum; it was set aside"):
        sources.load("mnist")


def test_moments_over_many_blocks():
    x = np.random.default_rng(0).integers(0, 256, (9000, 2, 3, 3), dtype=np.uint8)
    mean, std = contents.moments(x)
    np.testing.assert_allclose(mean, (x / 255).mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (x / 255).std((0, 1, 2)), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("fashion-mnist", (0.2860,), (0.3530,)),
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ("mnist", (0.1307,), (0.3081,)),
        ("emnist-letters", None, None),
        ("emnist-digits", None, None),
        ("ocr-letters", None, None),
    ],
)
def test_the_real_thing(monkeypatch, name, mean, std):
    """What lies in this machine's own cache is the data set, and its pixels have the moments that everyone uses."""
    monkeypatch.undo()
    found = sources.cached(name)
    if found is None:
        pytest.skip(f"{name} is not in the cache")
    data = contents.dataset(name, sources.SOURCES[name], read_arrays(found.path), name)  # reads only: it is the user's
    pixels = data.x[::50] / 255
    np.testing.assert_allclose(data.mean, pixels.mean((0, 1, 2)), atol=0.02)
    if mean is not None:
        np.testing.assert_allclose(data.mean, mean, atol=6e-5)
        np.testing.assert_allclose(data.std, std, atol=6e-5)
