"""The parts of a program of the user's own: the local files that it imports, and the versions of installed packages.

Nothing is imported for it: the source is read, and modules are searched for as Python would. Local is what is neither
in Python's library nor among the installed packages: beside the file, in the working directory, on PYTHONPATH, or
installed in editable form.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["Code", "digest", "is_local", "read_code", "version_of"]

_OURS = __name__.partition(".")[0]
_WRITING = ("write", "save", "dump", "to_", "mkdir", "makedirs", "unlink", "rename")  # calls that make a file


@dataclass(frozen=True)
class Code:
    """The parts of a program."""

    modules: dict[str, Path] = field(default_factory=dict)  # local ones, by the names that they are imported under
    data: set[Path] = field(default_factory=set)  # files whose paths are texts in the source
    packages: dict[str, str] = field(default_factory=dict)  # versions of installed ones


def digest(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@lru_cache
def _libraries() -> tuple[Path, ...]:
    """Folders of Python's library and of installed packages."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({Path(each).resolve() for each in (*named, *site.getsitepackages(), site.getusersitepackages())})


def is_local(path: Path) -> bool:
    """Whether a file is the user's own: not of Python's library, of an installed package, or of fedpick."""
    found = path.resolve()
    return not any(found.is_relative_to(each) for each in (*_libraries(), Path(__file__).resolve().parents[1]))


@lru_cache
def version_of(package: str) -> str:
    """The version of the distribution that holds a package; "" if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass
    # Its distribution has another name, as sklearn's is scikit-learn.
    names = importlib.metadata.packages_distributions().get(package, [])
    return "+".join(sorted(importlib.metadata.version(name) for name in names))


def read_code(path: Path, name: str = "") -> Code:
    """The parts of the program that begins with this file.

    Args:
        path: of the file.
        name: that it is imported under; "": it is a file by itself, whose folder is searched for modules first.
    """
    if not is_local(path):  # installed: its version stands for what it imports
        top = name.partition(".")[0]
        return Code({name: path}, packages={top: version_of(top)} if top else {})
    code = Code()
    first = [] if name else [str(path.resolve().parent)]
    todo = [(name, path)]
    for parent in _parents(name):
        todo += [(parent, file) for file in _files(_find(parent, first))]
    while todo:
        module, file = todo.pop()
        if module in code.modules:
            continue
        code.modules[module] = file
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        wanted, texts = _read(file.read_bytes(), file.name)
        code.data.update(found for text in texts for found in _data_file(text, file))
        for level, relative, names in wanted:
            absolute = _absolute(package, level, relative)
            if absolute is not None:
                todo += _follow(code, absolute, names, first)
    return code


def _follow(code: Code, name: str, names: tuple[str, ...], first: list[str]) -> Iterator[tuple[str, Path]]:
    """The local modules of one import; of an installed package, the version is added to `code`."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _OURS:
        return
    spec = _find(top, first)
    if spec is None:
        return
    places = [Path(each) for each in (spec.origin, *(spec.submodule_search_locations or ())) if each]
    if not any(is_local(each) for each in places if each.exists()):
        code.packages[top] = version_of(top)
        return
    for each in (*_parents(name), name, *(f"{name}.{part}" for part in names)):
        for file in _files(_find(each, first)):
            yield each, file


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _absolute(package: str, level: int, name: str) -> str | None:
    """The name of a module that is imported by a relative name; None if the file is in no such package."""
    if level == 0:
        return name
    parts = package.split(".") if package else []
    if len(parts) < level:
        return None
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def _find(name: str, first: list[str]) -> ModuleSpec | None:
    """Where Python would find a module; its parents are not imported."""
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top, [*first, *sys.path]) or _otherwise(top)
    for i in range(len(rest)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join([top, *rest[: i + 1]]), list(spec.submodule_search_locations))
    return spec


def _otherwise(top: str) -> ModuleSpec | None:
    """A package that is not in a folder on the path, such as some editable installations."""
    try:
        return None if top in sys.modules else importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None


def _files(spec: ModuleSpec | None) -> Iterator[Path]:
    """The source of a module; nothing for a folder without __init__.py and for compiled modules."""
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py") and Path(spec.origin).is_file():
        yield Path(spec.origin)


_Import = tuple[int, str, tuple[str, ...]]  # level, module, names taken from it


@lru_cache(maxsize=512)
def _read(source: bytes, name: str) -> tuple[list[_Import], list[str]]:
    """The imports in a source, and its texts that may be paths of files that it reads."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # importing it raises the error
        return [], []
    wanted: list[_Import] = []
    texts: list[str] = []
    written: set[int] = set()
    for node in ast.walk(tree):  # from the outside to the inside: a call comes before its arguments
        if isinstance(node, ast.Import):
            wanted += [(0, each.name, ()) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted.append((node.level, node.module or "", tuple(each.name for each in node.names)))
        elif isinstance(node, ast.Call):
            text = _first_text(node)
            if text is not None and _called(node) in ("import_module", "__import__"):
                wanted.append((len(text) - len(text.lstrip(".")), text.lstrip("."), ()))
            elif _writes(node):
                written.update(id(each) for each in ast.walk(node))
            elif _called(node) in ("join", "joinpath") and id(node) not in written:
                texts.append(_joined(node.args))
        elif isinstance(node, ast.BinOp) and id(node) not in written:
            texts.append(_joined(_divided(node)))  # Path(__file__).parent / "data" / "table.csv"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in written:
            texts.append(node.value)
    return wanted, texts


def _divided(node: ast.expr) -> list[ast.expr]:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return [node]
    return [*_divided(node.left), node.right]


def _joined(parts: list[ast.expr]) -> str:
    """The texts at the end of a path's parts; what comes before is known only when the code runs."""
    found: list[str] = []
    for each in reversed(parts):
        if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
            break
        found.insert(0, each.value)
    return "/".join(found)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _first_text(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _writes(call: ast.Call) -> bool:
    """Whether a call writes a file, so that the file is a result, and not a part of the program."""
    name = _called(call)
    if name == "open":
        modes = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
        texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return any(len(text) <= 3 and set(text) & set("wax+") and set(text) <= set("rwaxbt+") for text in texts)
    return name.startswith(_WRITING)


def _data_file(text: str, beside: Path) -> Iterator[Path]:
    """The file whose path a text is, beside the source or in the working directory."""
    if not 2 < len(text) < 500 or "\n" in text or "." not in text or "\0" in text:
        return
    for folder in (beside.parent, Path()):
        path = folder / text
        try:
            if path.is_file() and path.suffix != ".py":
                yield path.resolve()
                return
        except (OSError, ValueError):
            return
