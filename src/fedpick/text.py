"""Things made from one line of text, as the command line and configuration files write them.

Text is parsed, never evaluated: known names, and Python literals as settings.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpick.errors import FedpickError, SettingError, bare_name, find_name, unknown_name

__all__ = ["Makers", "make"]

Makers = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class _Reader:
    """What may stand as a value, and settings that everything made gets unless it says otherwise."""

    values: Makers
    extra: Mapping[str, Any]
    told: Callable[[Callable[..., Any]], Mapping[str, Any]]

    def call(self, node: ast.Call, maker: Callable[..., Any], shown: str) -> Any:
        if any(keyword.arg is None for keyword in node.keywords):
            raise SettingError(f"{shown}: ** is not understood here; write each setting as name=value")
        positional = [self.value(argument, shown) for argument in node.args]
        named = {str(keyword.arg): self.value(keyword.value, shown) for keyword in node.keywords}
        settings = list(inspect.signature(maker).parameters)
        for name in named:
            if name not in settings:
                raise unknown_name(f"setting of {shown}", name, settings)
        said = (*settings[: len(positional)], *named)
        more = {**self.extra, **self.told(maker)}
        extra = {name: value for name, value in more.items() if name in settings and name not in said}
        try:
            return maker(*positional, **named, **extra)
        except FedpickError:
            raise
        except TypeError as error:  # a missing or repeated setting
            message = str(error).replace("__init__()", "").replace("  ", " ")
            raise SettingError(f"{shown}: {message}; its settings are {', '.join(settings)}") from None

    def value(self, node: ast.expr, where: str) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.call(node, find_name(node.func.id, self.values, f"value in {where}"), node.func.id)
        if isinstance(node, ast.Name):
            if bare_name(node.id) not in map(bare_name, self.values):
                raise SettingError(
                    f"{where}: {node.id} is neither a number nor a text; did you mean {node.id!r} in quotes?"
                )
            return self.call(ast.Call(node, [], []), find_name(node.id, self.values, "value"), node.id)
        try:
            return ast.literal_eval(node)
        except ValueError:
            shown = ast.unparse(node)
            raise SettingError(f"{where}: cannot read {shown!r}; settings are numbers, texts or lists") from None


def make(
    text: str,
    kind: str,
    known: Makers,
    *,
    values: Makers,
    example: str,
    told: Callable[[Callable[..., Any]], Mapping[str, Any]] = lambda maker: {},
    **extra: Any,
) -> Any:
    """Make what the text names, such as "e3cs(quota=0.5)".

    Args:
        text: a name, with settings in brackets if wanted.
        kind: what it is, for errors: "policy".
        known: names it may start with, and what each makes.
        values: names that may stand as values of settings.
        example: a text that works, for errors.
        told: further settings for one maker alone, such as what the world tells an oracle.
        extra: settings for whatever is made and takes them; what the text says wins.

    >>> make("range(2, step=3)", "range", {"range": lambda stop, step: (stop, step)}, values={}, example="range(1)")
    (2, 3)
    """
    quoted = re.split(r"('[^']*'|\"[^\"]*\")", text.strip())
    source = "".join(  # hyphens in names are read as underscores
        part if i % 2 else re.sub(r"(?<=[A-Za-z0-9])-(?=[A-Za-z])", "_", part) for i, part in enumerate(quoted)
    )
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        node = ast.Constant(None)
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise SettingError(f"cannot read the {kind} {text!r}; write it like {example}")
    name = text.strip().split("(")[0].strip()
    return _Reader(values, extra, told).call(node, find_name(name, known, kind), name)
