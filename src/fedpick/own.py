"""Code of the user's own, referred to in a text like a built-in: "FILE.py:Name" and "package.module:Name".

A text, a configuration file or a manifest only contains such references; `load` imports the code, and only when the
user asked for it. `fingerprint` is the hash of the file, which shows whether the file changed after a run was made.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedpick.errors import ConfigError, unknown_name

__all__ = [
    *("fingerprint", "is_reference", "load", "moved", "place"),
    *("references", "replace_references", "shown", "sources"),
]

# A file that ends with .py or a dotted module, a colon, a name; references in quotes do not count.
_REFERENCE = re.compile(
    r"('[^']*'|\"[^\"]*\")|(?<![\w.])((?:[\w./\\~:+@ -]*[\w/\\~.-]\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*)"
)


def references(text: str) -> list[str]:
    """The references in a text, in the order of first occurrence.

    >>> references("over-select(rules/eps.py:EpsGreedy(eps=0.1), 1.3)")
    ['rules/eps.py:EpsGreedy']
    >>> references("e3cs(quota=0.5, sampler='a.py:b')")
    []
    """
    return list(dict.fromkeys(match[2].strip() for match in _REFERENCE.finditer(text) if match[2]))


def is_reference(text: object) -> bool:
    """Whether a text is one reference, with or without settings in brackets."""
    return isinstance(text, str) and references(text)[:1] == [text.split("(")[0].strip()]


def replace_references(text: str, replacements: dict[str, str]) -> str:
    """The text with its references replaced."""
    return _REFERENCE.sub(lambda m: m[0] if m[1] else m[0].replace(m[2].strip(), replacements[m[2].strip()]), text)


def moved(text: str, folder: Path) -> str:
    """The text with paths that are relative to this folder made relative to the working directory."""
    found = {}
    for reference in references(text):
        where, name = _split(reference)
        path = Path(where).expanduser()
        found[reference] = f"{folder / path}:{name}" if where.endswith(".py") and not path.is_absolute() else reference
    return replace_references(text, found)


def shown(text: str) -> str:
    """The text for tables: files without their folders.

    >>> shown("rules/eps.py:EpsGreedy(eps=0.1)")
    'eps.py:EpsGreedy(eps=0.1)'
    """
    return replace_references(text, {each: re.split(r"[/\\]", each)[-1] for each in references(text)})


def _split(reference: str) -> tuple[str, str]:
    where, _, name = reference.rpartition(":")
    return where, name


def _source(reference: str) -> Path:
    """The file of a reference; the parents of a module are imported to find it."""
    where, _ = _split(reference)
    if where.endswith(".py"):
        path = Path(where).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"{reference}: there is no file {str(path)!r}; write it like examples/my_policy.py:RoundRobin"
            )
        return path
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{reference}: cannot find the module {where!r}: {error}; install it, or name a file"
        ) from None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(f"{reference}: there is no module {where!r}; install it, or name a file: {where}.py:...")
    return Path(spec.origin)


def fingerprint(reference: str) -> str:
    """Hash of the file of a reference."""
    return hashlib.sha256(_source(reference).read_bytes()).hexdigest()[:16]


def sources(names: Iterable[str]) -> dict[str, bytes]:
    """Contents of the files of these references, by name without folder; installed modules are left out."""
    return {_source(each).name: _source(each).read_bytes() for each in names if _split(each)[0].endswith(".py")}


class _Fresh(SourceFileLoader):
    """Compiles the file as it is; bytecode that Python keeps counts as current if time (in seconds) and size agree."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


def _module(reference: str) -> ModuleType:
    where, _ = _split(reference)
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = _source(reference).resolve()
    # A unique name from path and content, because dataclasses and pickle look a module up by its name.
    key = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]
    name = f"fedpick_own_{path.stem}_{key}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # files in the same folder can be imported, as when the file is run
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def load(reference: str) -> Any:
    """Import the object of a reference; raises a ConfigError if that fails."""
    _source(reference)
    try:
        module = _module(reference)
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        raise ConfigError(f"{reference}: cannot be imported: {type(error).__name__}: {error}") from None
    where, name = _split(reference)
    if not hasattr(module, name):
        raise unknown_name(f"name in {where}", name, [each for each in vars(module) if not each.startswith("_")])
    return getattr(module, name)


def place(error: BaseException) -> str:
    """Where in the user's code an error arose, in brackets: " (in select, mine.py, line 9)"; "" if not in it."""
    frames = [(Path(each.filename), each) for each in traceback.extract_tb(error.__traceback__)]
    theirs = [(path, each) for path, each in frames if not path.is_relative_to(Path(__file__).parent)]
    if not theirs:
        return ""
    # A library that it calls, such as NumPy, is in another folder.
    path, at = next(pair for pair in reversed(theirs) if pair[0].parent == theirs[0][0].parent)
    return f" (in {at.name}, {path}, line {at.lineno})"
