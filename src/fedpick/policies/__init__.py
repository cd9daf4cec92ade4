"""The policies: one paper, one file. What a file says in `about` (see `fedpick.policies.about`) is all there is to add.

`TABLE` has all policies by the name of their class: by kind, then by the year of their paper.
"""

import importlib
import pkgutil
from typing import Any

from fedpick.policies.about import KINDS, About


def _place(policy: type[Any]) -> tuple[int, int, str]:
    about: About = policy.about
    return KINDS.index(about.kind), about.paper.year if about.paper else 9999, policy.__name__


def _found() -> dict[str, type[Any]]:
    """The classes that have `about`, in the files of this folder."""
    files = [entry.name for entry in pkgutil.iter_modules(__path__) if not entry.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in files if name != "text"]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and "about" in vars(value)
    ]
    return {policy.__name__: policy for policy in sorted(classes, key=_place)}


TABLE = _found()
globals().update(TABLE)

__all__ = sorted(TABLE)  # what type checkers see is in __init__.pyi, written by `make policies`
