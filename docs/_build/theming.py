"""Corrections of the theme.

Other hosts' addresses are taken out of its scripts: it can load drawings and numbers of a code host on demand; no page
here asks for them, and without the addresses none can. Its search gets a name for screen readers, and long lines of
code can be scrolled with the keyboard.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

__all__ = ["on_post_build", "on_post_page", "without_hosts"]

_FOREIGN = re.compile(r"""(["'`])https?://(?!www\.w3\.org/)[^"'`]*""")


def without_hosts(script: str) -> str:
    """A script in which every text that is another host's address is replaced.

    >>> without_hosts('load("https://example.org/x.js"), ns("http://www.w3.org/2000/svg")')
    'load("about:blank"), ns("http://www.w3.org/2000/svg")'
    """
    return _FOREIGN.sub(r"\1about:blank", script)


def on_post_build(config: MkDocsConfig) -> None:
    """Called by MkDocs when all files are written."""
    for path in Path(config.site_dir).rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        path.write_text(without_hosts(text), encoding="utf-8")


def on_post_page(output: str, **_: object) -> str:
    """Called by MkDocs with the whole HTML of each page."""
    named = output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
    return named.replace("<pre><span></span><code>", '<pre><span></span><code tabindex="0">')  # long lines scroll by key
