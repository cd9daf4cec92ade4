"""Paces as texts, as on the command line and in configuration files."""

from dataclasses import fields
from typing import Any

from fedpick._support.text import Makers, canonical, make
from fedpick.core.errors import ConfigError
from fedpick.engine.paces import Buffered, Pace, Rounds

__all__ = ["WORLDS_OWN", "pace_of", "pace_text"]

WORLDS_OWN = "rounds"  # the text of rounds with the world's deadline, late updates and wait
PACES: Makers = {"rounds": Rounds, "buffered": Buffered}
_EXAMPLE = "rounds(deadline=30) or buffered(concurrency=30, size=10)"


def pace_text(value: Any) -> str:
    """The text of a pace, from a text or an object; None is that of rounds with the world's settings.

    >>> pace_text(Buffered(concurrency=30, size=5)), pace_text("Buffered( size=5,concurrency=30 )"), pace_text(None)
    ('buffered(concurrency=30, size=5)', 'buffered(concurrency=30, size=5)', 'rounds')
    """
    if value is None:
        return WORLDS_OWN
    if isinstance(value, str):
        pace_of(value)  # raises for a mistake
        return canonical(value, "pace", PACES, values={}, example=_EXAMPLE)
    for name, kind in PACES.items():
        if type(value) is kind:
            given = {each.name: getattr(value, each.name) for each in fields(value)}
            shown = [f"{each.name}={given[each.name]!r}" for each in fields(value) if given[each.name] != each.default]
            return f"{name}({', '.join(sorted(shown))})"
    raise ConfigError(
        f"pace = {value!r:.80}, but must be fp.Rounds(...), fp.Buffered(...), or a text such as {_EXAMPLE}"
    )


def pace_of(text: str) -> Pace | None:
    """The pace of a text; None: rounds with the world's settings."""
    found: Pace = make(text, "pace", PACES, values={}, example=_EXAMPLE)
    return None if canonical(text, "pace", PACES, values={}, example=_EXAMPLE) == WORLDS_OWN else found
