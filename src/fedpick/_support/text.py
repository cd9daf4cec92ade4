"""Make objects from one line of text, as on the command line and in configuration files.

Text is parsed, never evaluated: known names, references to the user's code ("FILE.py:Name"), and Python literals as
settings.
"""

import ast
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fedpick._support import user_code
from fedpick.core.errors import FedpickError, SettingError, bare_name, find_name, unknown_name

__all__ = ["Makers", "canonical", "make"]

Makers = Mapping[str, Callable[..., Any]]
LARGEST = 10**300  # of whole numbers: larger ones are no floating-point numbers
_QUOTED = r"('[^']*'|\"[^\"]*\")"


def _parse(text: str, kind: str, example: str) -> tuple[ast.Call, dict[str, str]]:
    """A text as a call with placeholders for references to the user's code, and the references by placeholder."""
    placeholders = {reference: f"own{i}_" for i, reference in enumerate(user_code.references(text))}
    quoted = re.split(_QUOTED, user_code.replace_references(text.strip(), placeholders))
    source = "".join(  # hyphens in names are read as underscores
        part if i % 2 else re.sub(r"(?<=[A-Za-z0-9])-(?=[A-Za-z])", "_", part) for i, part in enumerate(quoted)
    )
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        node = ast.Constant(None)
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise SettingError(f"cannot read the {kind} {text!r:.200}; write it like {example}")
    return node, {name: reference for reference, name in placeholders.items()}


@dataclass(frozen=True)
class _Reader:
    """Makes objects from parsed calls."""

    values: Makers  # names allowed as values of settings
    extra: Mapping[str, Any]  # settings for every object that has them and does not set them
    further: Callable[[Callable[..., Any]], Mapping[str, Any]]  # more settings for one maker
    own: Mapping[str, str]  # placeholder -> reference

    def make(self, node: ast.Call, known: Makers, kind: str, shown: str | None = None) -> Any:
        name = node.func.id  # type: ignore[attr-defined]
        if name not in self.own:
            return self.call(node, find_name(name if shown is None else shown, known, kind), shown or name)
        found = user_code.load(self.own[name])
        is_object = hasattr(found, "select") and not isinstance(found, type)  # not a class or function that makes one
        if callable(found) and not is_object:
            return self.call(node, found, self.own[name], foreign=True)
        if node.args or node.keywords:
            raise SettingError(f"{self.own[name]} is already an object ({type(found).__name__}) and takes no settings")
        return found

    def call(self, node: ast.Call, maker: Callable[..., Any], shown: str, foreign: bool = False) -> Any:
        if any(keyword.arg is None for keyword in node.keywords):
            raise SettingError(f"{shown}: ** is not allowed here; write each setting as name=value")
        positional = [self.value(argument, shown) for argument in node.args]
        named = {str(keyword.arg): self.value(keyword.value, shown) for keyword in node.keywords}
        try:
            settings = list(inspect.signature(maker).parameters)
        except (TypeError, ValueError) as error:  # a class or function of the user's that cannot be looked into
            raise SettingError(f"{shown}: {error}") from None
        for name in named:
            if name not in settings:
                raise unknown_name(f"setting of {shown}", name, settings)
        if not foreign:
            _check_kinds(maker, {**dict(zip(settings, positional, strict=False)), **named}, shown)
        given = (*settings[: len(positional)], *named)
        more = {**self.extra, **self.further(maker)}
        extra = {name: value for name, value in more.items() if name in settings and name not in given}
        try:
            return maker(*positional, **named, **extra)
        except FedpickError:
            raise
        except TypeError as error:  # a missing or repeated setting
            message = str(error).rpartition("__init__() ")[2]
            raise SettingError(f"{shown}: {message}; its settings are {', '.join(settings)}") from None
        except (Exception, SystemExit) as error:  # a value that it did not expect, or the user's own code
            raise SettingError(f"{shown}: {type(error).__name__}: {str(error)[:200]}") from None

    def value(self, node: ast.expr, where: str) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.make(node, self.values, f"value in {where}")
        if isinstance(node, ast.Name):
            if node.id not in self.own and bare_name(node.id) not in map(bare_name, self.values):
                raise SettingError(
                    f"{where}: {node.id} is neither a number nor a text; did you mean {node.id!r} in quotes?"
                )
            return self.make(ast.Call(node, [], []), self.values, "value")
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value > LARGEST:
                raise SettingError(f"{where}: {str(part.value)[:40]}... is too large; whole numbers go up to 1e300")
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError):  # TypeError: a list as a key
            raise SettingError(f"{where}: cannot read {_text(node)!r}; settings are numbers, texts or lists") from None


_KINDS = {float: "a number", int: "a whole number", bool: "True or False", str: "a text", NoneType: "None"}


def _check_kinds(maker: Callable[..., Any], given: Mapping[str, Any], shown: str) -> None:
    """Raise where a value is not of the type that the maker declares; the maker itself checks bounds."""
    try:
        hints = get_type_hints(vars(maker)["__init__"] if isinstance(maker, type) else getattr(maker, "func", maker))
    except (NameError, TypeError, AttributeError, KeyError):  # its types cannot be read
        return
    for name, value in given.items():
        kinds = _options(hints.get(name, Any))
        if not any(_fits(value, kind) for kind in kinds):
            words = " or ".join(
                _KINDS.get(kind, "a schedule" if get_origin(kind) is Callable else "a list") for kind in kinds
            )
            raise SettingError(f"{shown}: {name} = {repr(value)[:80]}, but must be {words}")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value can be of this type; types that are not known here fit everything."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (float, int):
        return number and (kind is float or isinstance(value, int) or math.isfinite(value))
    if kind in (bool, str, NoneType):
        return isinstance(value, kind)
    if get_origin(kind) is Callable:
        return callable(value)
    if get_origin(kind) is tuple:
        each = _options(get_args(kind)[0])
        return number or (isinstance(value, list | tuple) and all(any(_fits(v, k) for k in each) for v in value))
    return True


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:80]
    except RecursionError:
        return "..."


def make(
    text: str,
    kind: str,
    known: Makers,
    *,
    values: Makers,
    example: str,
    further: Callable[[Callable[..., Any]], Mapping[str, Any]] = lambda maker: {},
    **extra: Any,
) -> Any:
    """Make what the text names, such as "e3cs(quota=0.5)" or "my_policy.py:EpsGreedy(eps=0.1)".

    Args:
        text: a name, optionally with settings in brackets.
        kind: of the object, for errors: "policy".
        known: names that the text may begin with, and their makers.
        values: names that are allowed as values of settings.
        example: a correct text, for errors.
        further: maker -> more settings for it.
        extra: settings for every object that has them; settings in the text have priority.

    >>> make("range(2, step=3)", "range", {"range": lambda stop, step: (stop, step)}, values={}, example="range(1)")
    (2, 3)
    """
    call, references = _parse(text, kind, example)
    return _Reader(values, extra, further, references).make(call, known, kind, text.split("(")[0].strip())


def canonical(text: str, kind: str, known: Makers, *, values: Makers, example: str) -> str:
    """The normal form of a text, equal for all ways to write it: names as listed, settings sorted, spaces and quotes.

    >>> known = {"over-select": print, "uniform": print}
    >>> canonical("Over_Select( uniform,1.30 )", "policy", known, values={}, example="")
    'over-select(uniform, 1.3)'
    """
    call, references = _parse(text, kind, example)
    names = {bare_name(name): name for name in [*values, *known]}
    for node in ast.walk(call):
        if isinstance(node, ast.Call):
            node.keywords.sort(key=lambda keyword: str(keyword.arg))
    plain = re.sub(r"\(\)", "", ast.unparse(call))
    pieces = re.split(_QUOTED, plain)

    def official(match: re.Match[str]) -> str:
        return references.get(match[0]) or names.get(bare_name(match[0]), match[0])

    return "".join(
        piece if i % 2 else re.sub(r"\b[A-Za-z_]\w*\b(?!=)", official, piece) for i, piece in enumerate(pieces)
    )
