r"""Turns the equations of a page into MathML when the site is built, so that a browser needs no script for them.

In a page, `$x$` and `$$x$$` are LaTeX; `\tag{22}` gives an equation its number.
"""

import html
import re

from latex2mathml.converter import convert

__all__ = ["equation", "on_page_content"]

_MARKED = re.compile(r'<(span|div) class="arithmatex">(\\\(|\\\[)(.*?)(\\\)|\\\])</\1>', re.S)
_TAG = re.compile(r"\\tag\{([^}]*)\}")


def equation(latex: str, block: bool = False) -> str:
    r"""One equation as MathML, its number beside it.

    >>> "<mi>x</mi>" in equation("x")
    True
    >>> equation(r"x \tag{22}", block=True).endswith('<span class="equation-number">(22)</span></div>')
    True
    """
    tag = _TAG.search(latex)
    drawn = convert(_TAG.sub("", latex).strip(), display="block" if block else "inline")
    if not block:
        return drawn
    number = f'<span class="equation-number">({html.escape(tag[1])})</span>' if tag else ""
    return f'<div class="equation" tabindex="0">{drawn}{number}</div>'


def on_page_content(content: str, **_: object) -> str:
    """Called by MkDocs with the HTML of each page."""
    return _MARKED.sub(lambda found: equation(html.unescape(found[3]), found[2] == r"\["), content)
