"""The code and data of the user's own that a run depends on: a part of its key, so that old results are never shown
for new code.

Code that a text names is read from its files (`user_code.fingerprint`). The code of an object is the file of its class
with all that this imports; for a class from a script or a notebook, whose other lines may change, only what the class
uses.
"""

import builtins
import dis
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedpick._support import user_code
from fedpick._support.program_files import digest, is_local, read_code, version_of
from fedpick.core.errors import ConfigError
from fedpick.core.state import settings_hash

__all__ = ["Reader", "code_of", "named_files", "named_references"]

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_DATA = (".npz", ".parquet")
_PLAIN = (str, int, float, bool, bytes, tuple, list, dict, set, frozenset, type(None))


def named_references(texts: Iterable[str]) -> list[str]:
    """References to the user's own code ("FILE.py:Name") in these texts."""
    return list(dict.fromkeys(each for text in texts for each in user_code.references(text)))


def named_files(texts: Iterable[str]) -> list[str]:
    """Texts that may be paths of data files: "mine.npz", and those in quotes, as in "trace('away.csv')".

    >>> named_files(["uniform", "mine.npz", "trace('away.csv', wrap=True)"])
    ['mine.npz', 'away.csv']
    """
    found = []
    for text in texts:
        found += [text] if text.endswith(_DATA) else [a or b for a, b in _QUOTED.findall(text)]
    return list(dict.fromkeys(each for each in found if "." in each))


class Reader:
    """Reads each file once, for all runs of a plan."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def read(self, texts: Iterable[str]) -> dict[str, str]:
        """The code and the data files that these texts name, by name, as `user_code.fingerprint` describes them."""
        given = list(texts)
        found = {}
        for each in named_references(given):
            if each not in self.known:
                self.known[each] = user_code.fingerprint(each)
            found[user_code.shown(each)] = self.known[each]
        for each in filter(os.path.isfile, named_files(given)):  # opening a missing one raises the error
            if each not in self.known:
                self.known[each] = f"{Path(each).name} {digest(Path(each))}"
            found[each] = self.known[each]
        return found


def code_of(thing: Any) -> str:
    """The code of an object, a class or a function of this process; "" if all of it is fedpick's."""
    kinds = dict.fromkeys(_kinds(thing))
    return ", ".join(dict.fromkeys(text for kind in kinds for text in _described(kind) if text))


def _kinds(thing: Any) -> Iterator[Any]:
    """The classes and functions that an object is made of: its own, and those of what it wraps."""
    if isinstance(thing, partial):
        yield from _kinds(thing.func)
        for each in (*thing.args, *thing.keywords.values()):
            yield from _kinds(each)
    elif isinstance(thing, type) or inspect.isroutine(thing):
        yield thing
    elif not isinstance(thing, _PLAIN):
        yield type(thing)
        names = [each.name for each in fields(thing)] if is_dataclass(thing) else getattr(thing, "__dict__", {})
        for value in [getattr(thing, name) for name in names]:
            if is_dataclass(value) or inspect.isroutine(value) or hasattr(value, "select"):
                yield from _kinds(value)


def _described(kind: Any) -> Iterator[str]:
    """The parts of the code of a class or a function, each with a hash or a version."""
    kind = inspect.unwrap(kind)
    name = getattr(kind, "__module__", None) or "builtins"
    top, module = name.partition(".")[0], sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if top in ("fedpick", "builtins") or top in sys.stdlib_module_names - {"__main__"}:
        return
    if name == "__main__" or file is None or not Path(file).is_file():
        yield from sorted(_live(kind, set()))
    elif is_local(Path(file)):
        code = read_code(Path(file), name)
        _check_current(kind, module, Path(file))
        yield user_code.described(code, Path(file))
    else:
        yield f"{top} {version_of(top)}".strip()


def _check_current(kind: Any, module: ModuleType | None, file: Path) -> None:
    """Raise if a file changed after this process imported it: the code that would run is not the file's."""
    if type(getattr(module, "__loader__", None)) is not SourceFileLoader:  # others may change what they load
        return
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        code = None
    written: dict[str, list[Any]] = {}
    for name, each in _codes(code) if code is not None else ():
        written.setdefault(name, []).append(steps(each))
    for name, each in _methods(kind):
        if code is None or steps(each) not in written.get(name, [steps(each)]):
            raise ConfigError(
                f"{file}: has changed since this process imported it ({name}), so results would not be those of the "
                "file; restart Python, or use importlib.reload"
            )


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The functions in a compiled source, by qualified name."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _codes(each)


def _methods(kind: Any) -> Iterator[tuple[str, CodeType]]:
    for value in vars(kind).values() if isinstance(kind, type) else [kind]:
        function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
        if isinstance(function, FunctionType) and function.__module__ == kind.__module__:
            yield function.__code__.co_qualname, function.__code__


def steps(code: CodeType) -> list[Any]:
    """What compiled code does, without the places of its lines."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    values = [each for each in code.co_consts if not isinstance(each, CodeType)]
    plain = [repr(sorted(map(repr, each)) if isinstance(each, frozenset) else each) for each in values]
    return [code.co_code, code.co_names, plain, *(steps(each) for each in inner)]


def _live(kind: Any, seen: set[int]) -> Iterator[str]:
    """The sources of a class or a function of a script or a notebook, and of what it uses there, each as a hash."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield f"{kind.__qualname__} {_hash(_source(kind))}"
    for base in getattr(kind, "__bases__", ()):
        yield from _used(base.__name__, base, seen)
    outside = vars(sys.modules.get(kind.__module__) or builtins)
    for _, code in _methods(kind):
        for name in _globals(code):
            if name in outside:
                yield from _used(name, outside[name], seen)


def _used(name: str, value: Any, seen: set[int]) -> Iterator[str]:
    """The code or value that a script's code uses under a name: a module, a class, a function or a plain value."""
    if isinstance(value, ModuleType):
        file = getattr(value, "__file__", None)
        top = value.__name__.partition(".")[0]
        if file is not None and file.endswith(".py") and is_local(Path(file)):
            yield user_code.described(read_code(Path(file), value.__name__), Path(file))
        elif top not in ("fedpick", "builtins") and top not in sys.stdlib_module_names:
            yield f"{top} {version_of(top)}".strip()
    elif isinstance(value, type) or inspect.isfunction(value):
        yield from _live(value, seen) if value.__module__ == "__main__" else _described(value)
    elif isinstance(value, _PLAIN):
        yield f"{name} {settings_hash([value])}"


def _globals(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _globals(each)


def _source(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # defined at a prompt
        return repr([steps(code) for _, code in _methods(kind)])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
