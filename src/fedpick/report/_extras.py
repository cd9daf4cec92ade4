"""Packages that only some of the reports need."""

import importlib
from typing import Any

from fedpick.errors import MissingError

__all__ = ["needed"]


def needed(package: str, what: str, extra: str) -> Any:
    """Import a package of an extra; where it is missing, one line says what to install.

    Args:
        package: what is imported.
        what: that needs it, for the error.
        extra: of fedpick, which brings it.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.split(".")[0]
        raise MissingError(f"{what} needs {name}: pip install 'fedpick[{extra}]'") from None
