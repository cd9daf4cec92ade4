"""Constants and defaults of every module are those that were written down: none changes by a slip of the hand.

A constant or default that is new needs no entry; after one that is meant to change, `python tests/test_constants.py`
writes the file anew. Of texts with spaces, which are wording, only that there is one is kept.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fedpick.core.errors import MissingError
from fedpick.policies.about import Paper

FILE = Path(__file__).with_suffix(".json")
SOURCES = Path(__file__).parents[1] / "src" / "fedpick"
NO_CONSTANTS = {"__all__", "__version__", "TABLE"}  # the policies that there are
MODULES = sorted(
    ".".join(("fedpick", *file.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
    for file in SOURCES.rglob("*.py")
    if file.stem not in ("__main__", "_version")
)


class NotKept(Exception):
    """A value that is no plain one."""


def plain(value: Any) -> str:
    """A value as text that is the same on every machine."""
    match value:
        case Enum() | None | bool() | int() | float() | complex() | bytes():
            return repr(value)
        case str() if re.search(r"\s|^/", value):
            return "a text"
        case str():
            return repr(value)
        case Paper():
            return f"{value.key} {value.year}"
        case re.Pattern():
            return repr((value.pattern, value.flags))
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(plain, value)))}}}"
        case dict():
            return f"{{{', '.join(f'{plain(key)}: {plain(each)}' for key, each in value.items())}}}"
        case tuple() | list():
            return f"({', '.join(map(plain, value))})"
        case type():
            return value.__name__
    if inspect.isfunction(value) or inspect.isbuiltin(value):
        return f"{value.__name__}()"
    if is_dataclass(value):
        inside = (f"{each.name}={plain(getattr(value, each.name))}" for each in fields(value) if each.init)
        return f"{type(value).__name__}({', '.join(inside)})"
    raise NotKept


def values_of(module: Any) -> Iterator[tuple[str, Any]]:
    """All constants and defaults of what a module itself defines, by name."""
    own = assigned(module) - NO_CONSTANTS
    for name, value in list(vars(module).items()):
        if name in own:
            yield name, value
        elif getattr(value, "__module__", None) != module.__name__:
            continue
        elif inspect.isfunction(value):
            yield from defaults_of(name, value)
        elif isinstance(value, type):
            yield from values_of_class(name, value)


def assigned(module: Any) -> set[str]:
    """The names that are given a value at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=targets):
                found.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(name)):
                found.add(name)
    return found


def defaults_of(name: str, function: Any) -> Iterator[tuple[str, Any]]:
    for each in inspect.signature(function).parameters.values():
        if each.default is not inspect.Parameter.empty:
            yield f"{name}({each.name})", each.default


def values_of_class(name: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    made = {each.name: each for each in fields(kind)} if is_dataclass(kind) else {}
    for each in made.values():
        if each.default is not MISSING:
            yield f"{name}.{each.name}", each.default
        elif each.default_factory is not MISSING:
            yield f"{name}.{each.name}", each.default_factory
        if each.metadata:
            yield f"{name}.{each.name} metadata", dict(each.metadata)
    for key, value in list(vars(kind).items()):
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function):
            if function.__module__ == kind.__module__ and not (made and key == "__init__"):
                yield from defaults_of(f"{name}.{key}", function)
        elif not key.startswith("_") and key not in made:
            yield f"{name}.{key}", value


def found(module: str) -> dict[str, str]:
    """The constants and defaults of a module, as texts."""
    texts = {}
    for name, value in values_of(import_module(module)):
        try:
            texts[name] = plain(value)
        except NotKept:
            continue
    return texts


@pytest.mark.parametrize("module", MODULES)
def test_constants_and_defaults_stay(module: str) -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8")).get(module, {})
    if not kept:
        return
    try:
        now = found(module)
    except (ImportError, MissingError) as error:
        pytest.skip(f"{module} cannot be imported here: {error}")
    assert {name: now.get(name) for name in kept} == kept


if __name__ == "__main__":
    texts = {}
    for module in MODULES:
        try:
            if values := found(module):
                texts[module] = values
        except ImportError as error:
            sys.stderr.write(f"left out: {module} ({error})\n")
    FILE.write_text(json.dumps(texts, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
