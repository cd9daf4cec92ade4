"""Keeps the built site on its own host: other hosts' addresses are taken out of the theme's scripts.

The theme can load drawings and numbers of a code host on demand. No page here asks for them; without the addresses
none can.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

__all__ = ["on_post_build", "without_hosts"]

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
