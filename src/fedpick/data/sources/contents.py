"""The contents of a data set, checked against the catalogue and turned into a `Dataset`."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import DamagedError
from fedpick.data.federated import Dataset
from fedpick.data.sources.cache import Arrays
from fedpick.data.sources.catalogue import Source

__all__ = ["check", "dataset", "digest", "moments", "split"]


def split(arrays: Arrays) -> tuple[NDArray[Any], ...]:
    """x, y, test_x, test_y; OCR letters are stored as published, with pixels 0 and 1 and in ten folds."""
    if "fold" not in arrays:
        return arrays["x"], arrays["y"], arrays["test_x"], arrays["test_y"]
    x, y, held = arrays["x"][..., None] * np.uint8(255), arrays["y"], arrays["fold"] == 0
    return x[~held], y[~held], x[held], y[held]


def check(source: Source, arrays: Arrays, where: str) -> None:
    """Raise a DamagedError unless this is the data set: shapes, examples of each class, digest."""
    try:
        x, y, test_x, test_y = split(arrays)
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
            raise DamagedError(f"{where}: {what} labels must be {shape[0]} integers >= 0")
        found = np.bincount(labels, minlength=source.classes)
        if found.tolist() != list(counts):
            raise DamagedError(f"{where}: {what} examples of each class are {found.tolist()}, but must be {[*counts]}")
    if source.digest is not None and digest(arrays) != source.digest:
        raise DamagedError(f"{where}: its pixels and labels have the wrong checksum")


def digest(arrays: Arrays) -> str:
    """SHA-256 of the pixels and labels."""
    found = hashlib.sha256()
    for part in ("x", "y", "test_x", "test_y", "fold"):
        if part in arrays:
            found.update(np.ascontiguousarray(arrays[part], np.uint8).data)
    return found.hexdigest()


def moments(x: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of x/255 for each channel, exactly, from the counts of the 256 values."""
    channels, value = x.shape[-1], np.arange(256) / 255
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(x), 4096):  # bincount widens what it is given
        block = x[start : start + 4096].reshape(-1, channels)
        counts += [np.bincount(block[:, channel], minlength=256) for channel in range(channels)]
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ value
    std = np.sqrt(np.sum(share * (value - mean[:, None]) ** 2, axis=1))
    return tuple(mean.tolist()), tuple(std.tolist())


def dataset(name: str, source: Source, arrays: Arrays, where: str) -> Dataset:
    """The data set, checked; `where` is named in errors."""
    check(source, arrays, where)
    x, y, test_x, test_y = split(arrays)
    if "mean" in arrays and "std" in arrays:  # written by fedpick; a file made by hand has none
        mean, std = tuple(arrays["mean"].tolist()), tuple(arrays["std"].tolist())
    else:
        mean, std = moments(x)
    return Dataset(name, x, y.astype(np.int32), test_x, test_y.astype(np.int32), source.classes, mean, std)
