"""Small data sets in each official form, and what the tests of `fedpick.data.sources` share."""

import gzip
import io
import json
import sys
import tarfile
import zipfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedpick.data import sources

TRAIN, TEST = (3, 2), (1, 2)  # examples of two classes, in place of each data set's own


def made(shape, counts, seed):
    """Random pixels, and labels with these counts in a shuffled order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.uint8)
    return rng.integers(0, 256, (len(y), *shape), dtype=np.uint8), y


def small(name):
    """Arrays like those of the data set, with few examples."""
    shape = sources.SOURCES[name].shape
    (x, y), (test_x, test_y) = made(shape, TRAIN, 1), made(shape, TEST, 2)
    return {"x": x, "y": y, "test_x": test_x, "test_y": test_y}


gz = partial(gzip.compress, mtime=0)  # the same file whenever it is built


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return head + array.astype(np.uint8).tobytes()


def idx_files(arrays, pattern="{}-{}-ubyte.gz", parts=("train", "t10k"), pack=gz):
    files = {}
    for part, prefix in zip(parts, ("", "test_"), strict=True):
        files[pattern.format(part, "images-idx3")] = pack(idx(arrays[f"{prefix}x"][..., 0]))
        files[pattern.format(part, "labels-idx1")] = pack(idx(arrays[f"{prefix}y"]))
    return files


def tar(files):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gz(held.getvalue())


def cifar_binary(arrays):
    def records(x, y):
        return b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(x, y, strict=True))

    x, y = arrays["x"], arrays["y"]
    files = {f"data_batch_{i + 1}": records(x[i : i + 1], y[i : i + 1]) for i in range(5)}  # five images, one a file
    files["test_batch"] = records(arrays["test_x"], arrays["test_y"])
    return {"cifar-10-binary.tar.gz": tar({f"cifar-10-batches-bin/{n}.bin": c for n, c in files.items()})}


def cifar_npm(arrays):
    from PIL import Image

    def png(x):
        held = io.BytesIO()
        Image.fromarray(x.reshape(len(x), 1024, 3)).save(held, "PNG")
        return held.getvalue()

    files = {f"data_batch_{i + 1}.png": png(arrays["x"][i : i + 1]) for i in range(5)}
    files["test_batch.png"] = png(arrays["test_x"])
    files["train_lables.json"] = json.dumps(arrays["y"].tolist()).encode()
    files["test_lables.json"] = json.dumps(arrays["test_y"].tolist()).encode()
    return tar({f"package/{name}": content for name, content in files.items()})


def emnist(arrays):
    """Both data sets in one file; images lie on their side, letters count from 1."""
    turned = {k: v.swapaxes(1, 2) if k.endswith("x") else v for k, v in arrays.items()}
    letters = {k: v if k.endswith("x") else v + 1 for k, v in turned.items()}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for kind, these in (("letters", letters), ("digits", turned)):
            for name, content in idx_files(these, f"gzip/emnist-{kind}-{{}}-{{}}-ubyte.gz", ("train", "test")).items():
                archive.writestr(zipfile.ZipInfo(name), content)
    return {"gzip.zip": held.getvalue()}


def ocr(arrays):
    """The training examples in folds 1, 2, ..., the test examples in fold 0, as lines of the official file."""
    x = np.concatenate([arrays["x"], arrays["test_x"]])[..., 0] > 127
    y = np.concatenate([arrays["y"], arrays["test_y"]])
    fold = [1 + i for i in range(len(arrays["x"]))] + [0] * len(arrays["test_x"])
    lines = [
        "\t".join([str(i + 1), chr(97 + y[i]), "-1", str(3 + i // 2), "1", str(fold[i]), *map(str, x[i].ravel() * 1)])
        for i in range(len(x))
    ]
    return {"letter.data.gz": gz("".join(f"{line}\t\n" for line in lines).encode())}


OFFICIAL = {
    "fashion-mnist": idx_files,
    "mnist": idx_files,
    "cifar10": cifar_binary,
    "emnist-letters": emnist,
    "emnist-digits": emnist,
    "ocr-letters": ocr,
}


def change(monkeypatch, name, **settings):
    monkeypatch.setitem(sources.SOURCES, name, replace(sources.SOURCES[name], **settings))


def by_hand(tmp_path, name, files=None):
    folder = tmp_path / "cache" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (files or OFFICIAL[name](small(name))).items():
        (folder / file).write_bytes(content)
    return folder


def check(name, dataset):
    """That this is small(name)."""
    expected = small(name)
    for part in ("x", "test_x"):
        if name == "ocr-letters":
            expected[part] = (expected[part] > 127) * np.uint8(255)
        assert getattr(dataset, part).dtype == np.uint8
        np.testing.assert_array_equal(getattr(dataset, part), expected[part])
    for part in ("y", "test_y"):
        assert getattr(dataset, part).dtype == np.int32
        np.testing.assert_array_equal(getattr(dataset, part), expected[part])
    assert (dataset.name, dataset.classes, dataset.inputs) == (name, 2, sources.SOURCES[name].shape)
    pixels = expected["x"] / 255
    np.testing.assert_allclose(dataset.mean, pixels.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(dataset.std, pixels.std((0, 1, 2)), rtol=1e-12)


def tool(tmp_path, name, code):
    path = tmp_path / "bin" / name
    path.write_text(f"#!{sys.executable}\nimport sys, shutil, pathlib\n{code}\n")
    path.chmod(0o755)


needs_scripts = pytest.mark.skipif(sys.platform == "win32", reason="the tools are scripts")
