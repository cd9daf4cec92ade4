"""The errors that fedpick raises for its users.

FedpickError
├── SettingError      a setting outside its bounds: `E3CS(cohort_size=0)`
├── UnknownNameError  an unknown name, with the most similar known one: `fp.policy("e3sc")`
├── ContractError     arrays that do not fit together: a view, a choice, an outcome, a policy's answer
├── MissingError      something that the policy needs and was not given: a probe, a context, features
├── StateError        a state file that is truncated, of another policy or for other clients
├── StoreError        a run's folder that cannot be read, written or used
├── ConfigError       a configuration file with a mistake in it
│   └── ChangedError  code or data of the user that changed after a plan was made
├── DataError         a data set that cannot be found, fetched, read or written
│   └── DamagedError  a file of a data set with wrong content
└── CheckError        a policy that breaks the rules of `fp.check_policy`

What a *client* can cause (a NaN loss, a negative duration) is never an error: policies tolerate it. A mistake in a
*program* (an array of the wrong length) always is. Each message names the value, the bound and the fix.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

__all__ = [
    *("ChangedError", "CheckError", "ConfigError", "ContractError", "DamagedError", "DataError", "FedpickError"),
    *("MissingError", "SettingError", "StateError", "StoreError", "UnknownNameError"),
    *("bare_name", "find_name", "printable", "require", "unknown_name"),
]


class FedpickError(Exception):
    """Any error that fedpick raises on purpose.

    Control characters in its text are replaced: it contains names of files and clients, and is shown in a terminal.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(each, keep="\n") if isinstance(each, str) else each for each in args))


def printable(text: object, keep: str = "", instead: str = "?") -> str:
    """A text without control characters: names of files and clients may hold codes that move a terminal's cursor.

    Args:
        text: or an object with one.
        keep: control characters that stay.
        instead: replaces each of the others.

    >>> printable("run\\x1b[2J, and\\na second line", keep="\\n")
    'run?[2J, and\\na second line'
    """
    return "".join(char if char.isprintable() or char in keep else instead for char in str(text))


class SettingError(FedpickError, ValueError):
    """A setting is outside its bounds."""


class UnknownNameError(FedpickError, ValueError):
    """An unknown name."""


class ContractError(FedpickError, ValueError):
    """Arrays that do not fit together."""


class MissingError(FedpickError, ValueError):
    """A policy was not given what it needs."""


class StateError(FedpickError, ValueError):
    """A state file cannot be used."""


class StoreError(FedpickError):
    """A run's folder cannot be read, written or used."""


class ConfigError(FedpickError, ValueError):
    """A configuration file has a mistake in it."""


class ChangedError(ConfigError):
    """Code or data of the user changed after a plan was made."""


class DataError(FedpickError):
    """A data set cannot be found, fetched, read or written."""


class DamagedError(DataError):
    """A file of a data set has wrong content."""


class CheckError(FedpickError, AssertionError):
    """A policy breaks the rules of `fp.check_policy`."""


def require(holds: bool, what: str, value: object, bound: str, fix: str = "") -> None:
    """Raise a SettingError that gives the value, the bound and the fix, unless `holds`."""
    if not holds:
        raise SettingError(f"{what} = {value!r}, but must be {bound}" + (f"; {fix}" if fix else ""))


@lru_cache(maxsize=4096)
def bare_name(name: str) -> str:
    """A name's letters and digits in lower case, for comparisons: "RBCS-F", "rbcs_f" and "RBCSF" are the same.

    >>> bare_name("RBCS-F")
    'rbcsf'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_name(name: str, known: Mapping[str, T], kind: str) -> T:
    """The entry with this name, in any spelling (see `bare_name`); an UnknownNameError suggests the most similar.

    >>> find_name("FashionMNIST", {"fashion-mnist": 1}, "data")
    1
    """
    for full, found in known.items():
        if bare_name(full) == bare_name(name):
            return found
    raise unknown_name(kind, name, list(known))


def unknown_name(kind: str, name: str, known: list[str]) -> UnknownNameError:
    """An UnknownNameError that lists the known names and suggests the most similar."""
    near = get_close_matches(str(name)[:200], known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return UnknownNameError(f"unknown {kind} {name!r:.200}{hint} There are: {', '.join(sorted(known))}")
