"""`.ci/rooms.py`: a private part of one room that another imports is found, and nothing else is."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def rooms():
    spec = importlib.util.spec_from_file_location("rooms", ROOT / ".ci" / "rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(tmp_path: Path) -> Path:
    files = {
        "house/__init__.py": "from house._support import files\nfrom house._version import __version__\n",
        "house/_version.py": "__version__ = '1'\n",
        "house/_support/__init__.py": "",
        "house/_support/files.py": "",
        "house/kitchen/__init__.py": "from house.kitchen._stove import _light, cook\nfrom ._stove import heat\n",
        "house/kitchen/pots.py": "from house.kitchen.lids import _lift\n",
        "house/kitchen/lids.py": "",
        "house/kitchen/_stove.py": "import numpy._core\nfrom house._support import files\n",
        "house/cellar/__init__.py": "from house.kitchen import cook\nfrom house import __version__\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "house"


def test_private_parts_at_home_are_no_finding(rooms, house, capsys):
    assert rooms.main([house]) == 0
    assert capsys.readouterr().out == "Private parts are used at home only: house\n"


@pytest.mark.parametrize(
    ("line", "name", "room"),
    [
        ("from house.kitchen._stove import cook", "house.kitchen._stove.cook", "house.kitchen"),
        ("import house.kitchen._stove", "house.kitchen._stove", "house.kitchen"),
        ("from house.kitchen import _stove", "house.kitchen._stove", "house.kitchen"),
        ("from house.kitchen import _light", "house.kitchen._light", "house.kitchen"),
        ("from house.kitchen.lids import _lift", "house.kitchen.lids._lift", "house.kitchen"),
        ("from ..kitchen import _stove", "house.kitchen._stove", "house.kitchen"),
    ],
)
def test_a_private_part_of_another_room_is_found(rooms, house, capsys, line, name, room):
    (house / "cellar" / "wine.py").write_text(f"def pour():\n    {line}\n")
    assert rooms.main([house]) == 1
    expected = f"wine.py:2: imports {name}, which is private to {room}: give it a public name there\n"
    assert capsys.readouterr().out.endswith(expected)


def test_another_package_may_not_use_support(rooms, house, capsys):
    shed = house.parent / "shed"
    shed.mkdir()
    (shed / "__init__.py").write_text("from house._support import files\n")
    assert rooms.main([house, shed]) == 1
    assert "imports house._support.files, which is private to house" in capsys.readouterr().out


def test_the_house_itself_has_no_finding(rooms, capsys):
    assert rooms.main([ROOT / name for name in rooms.PACKAGES if (ROOT / name).is_dir()]) == 0, capsys.readouterr().out
