"""The command line: it parses and prints; other packages do the work.

A user's mistake gives one line and exit code 2, never a traceback.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of `fedpick` and of `python -m fedpick`."""
    if sys.argv[1:] == ["--version"]:  # fast, without imports
        from fedpick._version import __version__

        sys.stdout.write(f"{__version__}\n")
        return
    try:
        from fedpick.cli.app import run
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in ("typer", "rich", "click", "pyarrow", "filelock"):
            raise
        sys.stderr.write(f"error: the command line needs {error.name}: pip install 'fedpick[cli]'\n")
        sys.exit(2)
    run()
