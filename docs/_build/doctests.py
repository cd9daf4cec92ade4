"""Shows the examples of docstrings as code: lines from `>>>` to the next empty one."""

import re
from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


def fenced(text: str) -> str:
    """The text with a fence around each example.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


class Doctests(griffe.Extension):
    """For mkdocstrings, which reads docstrings as Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
