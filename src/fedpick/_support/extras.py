"""Import optional packages."""

import importlib
from typing import Any

from fedpick.core.errors import MissingError

__all__ = ["needed"]


def needed(package: str, what: str, extra: str) -> Any:
    """Import a package that something needs; if it is missing, the error says which extra of fedpick installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.split(".")[0]
        raise MissingError(f"{what} needs {name}: pip install 'fedpick[{extra}]'") from None
