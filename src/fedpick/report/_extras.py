"""Import optional packages."""

import importlib
from typing import Any

from fedpick.core.errors import MissingError

__all__ = ["needed"]


def needed(package: str, what: str, extra: str) -> Any:
    """Import an optional package; if it is missing, raise an error that says what to install.

    Args:
        package: to import.
        what: what needs it, for the error message.
        extra: fedpick's extra that installs it.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.split(".")[0]
        raise MissingError(f"{what} needs {name}: pip install 'fedpick[{extra}]'") from None
