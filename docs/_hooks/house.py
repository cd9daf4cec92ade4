"""The rooms of the house, for docs/architecture.md: each with the first line of its docstring and its modules.

python docs/_hooks/house.py     writes the list between the two marks of the page (`make house`)

A room stands after those that it imports: the order is that of the layers in pyproject.toml.
"""

import ast
import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by `make house` -->\n", "<!-- end of rooms -->\n"
PACKAGES = {"src/fedpick": "the library", "papers/src/fedpick_papers": "the papers' experiments, a package of its own"}
WIDTH, MARGIN = 120, 18


def sentence(module: Path) -> str:
    """The first line of a module's docstring, without the full stop."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".")


def contents(room: Path, *, deep: bool) -> str:
    """The public modules of a room, then the rooms inside it, if `deep` with theirs."""
    modules = [path.stem for path in sorted(room.glob("*.py")) if not path.stem.startswith("_")]
    inner = [f"{path.name}/" + (f" ({contents(path, deep=True)})" if deep else "") for path in rooms(room)]
    return ", ".join([*modules, *inner])


def rooms(folder: Path) -> list[Path]:
    """The packages inside a folder, the lowest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    order = re.findall(rf"\b{folder.name}\.(\w+)", " ".join(reversed(layers)))
    found = [path.parent for path in folder.glob("*/__init__.py")]
    return sorted(found, key=lambda room: (order.index(room.name) if room.name in order else len(order), room.name))


def shown() -> str:
    """The list as it stands on the page, an indented block."""
    lines = []
    for package, words in PACKAGES.items():
        lines.append(f"    {package + '/':<34}{words}")
        for room in rooms(ROOT / package):
            texts = [sentence(room / "__init__.py"), contents(room, deep=package == "src/fedpick")]
            body = [line for text in texts for line in textwrap.wrap(text, WIDTH - MARGIN)]
            lines.append(f"      {room.name + '/':<{MARGIN - 6}}{body[0]}")
            lines += [" " * MARGIN + line for line in body[1:]]
        lines.append("")
    return BEGIN + "\n" + "\n".join(lines) + "\n" + END


def written(page: str) -> str:
    """The page's text with the list of today."""
    before, _, rest = page.partition(BEGIN)
    return before + shown() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
