"""Code of the user's own, which a text names in place of a built-in: "FILE.py:Name" and "package.module:Name".

A text, a configuration file or a manifest only contains such references; `load` imports the code, and only when the
user asked for it. `fingerprint` tells which code a reference stood for when a run was made: the file, every local file
that it imports, and the versions of installed packages.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedpick._support.program_files import Code, digest, is_local, read_code
from fedpick.core.errors import ConfigError, FedpickError, unknown_name

__all__ = [
    *("call", "described", "differences", "fingerprint", "is_reference", "load", "moved", "place"),
    *("references", "replace_references", "shown", "sources"),
]

_EXTRAS = {"torch": "torch", "jax": "learn", "optax": "learn"}  # of fedpick, that install what models are written in

# A file that ends with .py or a dotted module, a colon, a name; references in quotes do not count. A file's name begins
# where the characters before it cannot belong to it: to try it anywhere else would take quadratic time.
_REFERENCE = re.compile(
    r"('[^']*'|\"[^\"]*\")"
    r"|((?:(?<![\w./\\~:+@ -])[\w./\\~:+@ -]*[\w/\\~.-]\.py|(?<![\w.])[A-Za-z_][\w.]*):[A-Za-z_]\w*)"
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


def _program(reference: str) -> tuple[Code, Path]:
    """The parts of a reference's program, and the file that it begins with."""
    where, _ = _split(reference)
    path = _source(reference)
    return read_code(path, "" if where.endswith(".py") else where), path


def fingerprint(reference: str) -> str:
    """The code of a reference: every local file with its hash, every installed package with its version."""
    return described(*_program(reference))


def described(code: Code, first: Path) -> str:
    """A program as one line of text: files with their hashes, packages with their versions.

    Args:
        code: the program.
        first: the file that it begins with; others are named by their paths from its folder.
    """
    files = {_shown_path(path, first): path for path in (*code.modules.values(), *code.data)}
    parts = [f"{name} {digest(path)}" for name, path in sorted(files.items())]
    return ", ".join([*parts, *(f"{name} {version}".strip() for name, version in sorted(code.packages.items()))])


def _shown_path(path: Path, first: Path) -> str:
    """A file's path from the folder of another; of one elsewhere, its name and its folder's."""
    folder, path = first.resolve().parent, path.resolve()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else "/".join(path.parts[-2:])


def differences(before: str, after: str) -> list[str]:
    """What changed between two fingerprints, a phrase for each file or package.

    >>> differences("loop.py aa, net.py bb, torch 2.12.0", "loop.py aa, net.py cc, torch 2.13.0")
    ['net.py has changed', 'torch was 2.12.0 and is 2.13.0']
    """
    old, new = (dict(part.rpartition(" ")[::2] for part in text.split(", ")) for text in (before, after))
    found = []
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            found.append(f"{name} is {'new' if was is None else 'gone'}")
        elif was != now:
            found.append(f"{name} was {was} and is {now}" if "." in was + now else f"{name} has changed")
    return found


def sources(names: Iterable[str]) -> dict[str, bytes]:
    """Contents of the local files of these references, by their paths in one folder; installed ones are left out."""
    found: dict[str, bytes] = {}
    for each in names:
        if not _split(each)[0].endswith(".py"):
            continue
        for place, path in _places(*_program(each)):
            content = path.read_bytes()
            if found.setdefault(place, content) != content:
                raise ConfigError(
                    f"{path}: another file of this name is used in the same run, and both cannot be sent to one folder "
                    "of another machine; rename one of them"
                )
    return found


def _places(code: Code, first: Path) -> Iterator[tuple[str, Path]]:
    """Each file of a program with its path in a folder, so that imports of the first file find the others."""
    for name, path in code.modules.items():
        end = "/__init__.py" if path.name == "__init__.py" else ".py"
        yield (name.replace(".", "/") + end if name else path.name), path
    for path in code.data:
        if path.is_relative_to(first.resolve().parent):
            yield path.relative_to(first.resolve().parent).as_posix(), path


class _Fresh(SourceFileLoader):
    """Compiles a file as it is now: Python would use old bytecode if the file's time (in seconds) and size agree."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_READ] = digest(Path(self.path))
        super().exec_module(module)


_READ = "__fedpick_read__"  # in a module that was loaded here: the hash of its file


class _Local(MetaPathFinder):
    """Finds the local modules of one program, before those of the same name elsewhere."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.modules.get(fullname)
        if file is None:
            return None
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        loader = _Fresh(fullname, str(file))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=inside)


def _is_current(module: ModuleType, path: Path) -> bool:
    """Whether a module in memory was loaded from its file as it is now."""
    file = getattr(module, "__file__", None)
    if file is None or Path(file).resolve() != path.resolve():
        return False
    if _READ in vars(module):
        return bool(vars(module)[_READ] == digest(path))
    try:  # imported by others: the bytecode kept then has the file's time and size
        header = Path(getattr(module, "__cached__", None) or "").read_bytes()[8:16]
    except OSError:
        return False
    is_at = path.stat()
    return header == b"".join((int(n) & 0xFFFFFFFF).to_bytes(4, "little") for n in (is_at.st_mtime, is_at.st_size))


@contextmanager
def _importing(code: Code, folder: Path | None) -> Iterator[None]:
    """In this block, imports find the local modules of a program as their files are now.

    Args:
        code: the program.
        folder: searched first, as when a file in it is run; None: none.
    """
    local = {name: path for name, path in code.modules.items() if name and is_local(path)}
    loaded = {name: sys.modules[name] for name in local if name in sys.modules}
    if not all(_is_current(module, local[name]) for name, module in loaded.items()):
        for name in loaded:  # also unchanged ones: they hold objects that they imported from the others
            del sys.modules[name]
    finder = _Local(local)
    sys.meta_path.insert(0, finder)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if folder is not None:
            sys.path.remove(str(folder))


def _module(reference: str) -> ModuleType:
    where, _ = _split(reference)
    code, path = _program(reference)
    path = path.resolve()
    if not where.endswith(".py"):
        with _importing(code, None):
            return importlib.import_module(where)
    # A unique name from path and content, because dataclasses and pickle look a module up by its name.
    key = hashlib.sha256(f"{path} {described(code, path)}".encode()).hexdigest()[:16]
    name = f"fedpick_own_{path.stem}_{key}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importing(code, path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load(reference: str) -> Any:
    """Import the object of a reference; raises a ConfigError if that fails."""
    _source(reference)
    try:
        module = _module(reference)
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        extra = _EXTRAS.get(error.name or "") if isinstance(error, ModuleNotFoundError) else None
        fix = f": pip install 'fedpick[{extra}]'" if extra else ""
        raise ConfigError(f"{reference}: cannot be imported: {type(error).__name__}: {error}{fix}") from None
    where, name = _split(reference)
    if not hasattr(module, name):
        raise unknown_name(f"name in {where}", name, [each for each in vars(module) if not each.startswith("_")])
    return getattr(module, name)


def call(name: str, function: Callable[[], Any]) -> Any:
    """The result of code of the user's own, which can raise anything: a ConfigError says what, and where.

    Args:
        name: of the code, for the error.
        function: that calls it.
    """
    try:
        return function()
    except FedpickError:
        raise
    except Exception as error:
        raise ConfigError(f"{name}: {type(error).__name__}: {error}{place(error)}") from None


def place(error: BaseException, caller: str | None = None) -> str:
    """Where in the user's code an error arose, in brackets: " (in select, mine.py, line 9)"; "" if not in it.

    Args:
        error: that arose.
        caller: a file of a library that calls the user's code: all in its folder is not the user's.
    """
    frames = [(Path(each.filename), each) for each in traceback.extract_tb(error.__traceback__)]
    others = [Path(__file__).parents[1], *([] if caller is None else [Path(caller).parent])]
    theirs = [(path, each) for path, each in frames if not any(map(path.is_relative_to, others))]
    if not theirs:
        return ""
    # A library that it calls, such as NumPy, is in another folder.
    path, at = next(pair for pair in reversed(theirs) if pair[0].parent == theirs[0][0].parent)
    return f" (in {at.name}, {path}, line {at.lineno})"
