"""Names, however they are written, and the sizes that the catalogue promises."""

import pytest

from fedpick.core.errors import UnknownNameError
from fedpick.data import sources

pytestmark = pytest.mark.usefixtures("alone")


def test_unknown_names():
    for ask in (sources.load, sources.fetch, sources.cached):
        with pytest.raises(UnknownNameError, match="unknown data set 'fashon-mnist'; did you mean 'fashion-mnist'"):
            ask("fashon-mnist")
    for written in ("EMNIST_Letters", "EMNIST Letters", "emnistletters"):
        assert sources.find(written) == "emnist-letters"
    assert sources.find("FashionMNIST") == "fashion-mnist"
    with pytest.raises(UnknownNameError, match="'sythetic'; did you mean 'synthetic'"):
        sources.find("sythetic", also=["synthetic"])


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
