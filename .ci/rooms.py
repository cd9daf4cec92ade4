"""Are private parts used at home only: is each module or name with an underscore imported inside its own room alone?

python .ci/rooms.py [FOLDER ...]     exit code 1 and a line for each finding; without FOLDER: this repository's packages

The room of a module is the package that it lies in: `policies/_speed.py` belongs to `policies`, and `_support`, which
is a room itself, to the whole of `fedpick`. Another room, or another package, takes what it needs by a public name.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("src/fedpick", "papers/src/fedpick_papers")


def private(name: str) -> bool:
    """Whether the name starts with one underscore; `__version__` and `__main__` are public."""
    return name.startswith("_") and not name.startswith("__")


def imported(tree: ast.AST, home: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports; `home` is the package that it lies in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def foreign(name: str, home: str, packages: dict[str, Path]) -> str | None:
    """The room whose private part this is, if `home` is neither that room nor inside it; None: all is well."""
    parts = name.split(".")
    if parts[0] not in packages:
        return None  # of a package that is not ours
    for at, part in enumerate(parts):
        if not private(part):
            continue
        room = parts[:at]
        while not packages[parts[0]].parent.joinpath(*room).is_dir():  # a name in a module: the module's room
            room = room[:-1]
        if home.split(".")[: len(room)] != room:
            return ".".join(room)
    return None


def findings(folder: Path, packages: dict[str, Path]) -> Iterator[str]:
    """A line for each private part of another room that the package in this folder imports."""
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        home = module.removesuffix(".__init__") if path.name == "__init__.py" else module.rpartition(".")[0]
        for line, name in imported(ast.parse(path.read_text(encoding="utf-8")), home):
            room = foreign(name, home, packages)
            if room is not None:
                yield f"{path}:{line}: imports {name}, which is private to {room}: give it a public name there"


def main(folders: list[Path]) -> int:
    """Print the findings; 1 if there is one."""
    packages = {folder.name: folder for folder in folders}
    found = [line for folder in folders for line in findings(folder, packages)]
    print("\n".join(found) or f"Private parts are used at home only: {', '.join(packages)}")
    return 1 if found else 0


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    sys.exit(main(given or [ROOT / name for name in PACKAGES if (ROOT / name).is_dir()]))
