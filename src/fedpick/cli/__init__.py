"""The command line: it parses and prints; other packages do the work.

A user's mistake gives one line and exit code 2, never a traceback.
"""

import os
import sys

from fedpick.core.errors import MissingError

__all__ = ["main"]

_LIGHT = ("policies", "worlds", "check")  # commands that need neither experiments nor reports, which load slowly


def main() -> None:
    """Entry point of `fedpick` and of `python -m fedpick`."""
    if sys.argv[1:] == ["--version"]:  # fast, without imports
        from fedpick._version import __version__

        sys.stdout.write(f"{__version__}\n")
        return
    try:
        if sys.argv[1:2] and sys.argv[1] in _LIGHT:
            from fedpick.cli.catalogue import app
        else:
            shown = sys.stderr.isatty() and "_FEDPICK_COMPLETE" not in os.environ  # not for a shell
            if shown:
                sys.stderr.write("loading ...")  # imports take a second
                sys.stderr.flush()
            from fedpick.cli.app import app

            if shown:
                sys.stderr.write("\r           \r")
        from fedpick.cli.console import run
    except MissingError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"error: the command line needs {error.name}: pip install 'fedpick[cli]'\n")
        sys.exit(2)
    run(app)
