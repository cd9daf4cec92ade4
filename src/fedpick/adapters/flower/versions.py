"""Which versions of Flower were tested, and a warning about others."""

import re

__all__ = ["NEWEST", "OLDEST", "untested"]

OLDEST, NEWEST = "1.38", "1.42"  # `make test-flower` runs the tests with both


def untested(version: str) -> str | None:
    """A warning if this version of Flower is outside the tested ones, else None.

    >>> untested("1.41.0") is None
    True
    >>> untested("1.43.0.dev20261118")
    'fedpick was tested with Flower 1.38 to 1.42; this is 1.43.0.dev20261118, which is newer, and it is used. ...'
    """
    (oldest, newest), numbers = map(_numbers, (OLDEST, NEWEST)), _numbers(version)
    if oldest <= numbers <= newest:
        return None
    return (
        f"fedpick was tested with Flower {OLDEST} to {NEWEST}; this is {version}, which is "
        f"{'newer' if numbers > newest else 'older'}, and it is used. If it fails: "
        f'pip install "flwr>={OLDEST},<{newest[0]}.{newest[1] + 1}"'
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The first two parts of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
