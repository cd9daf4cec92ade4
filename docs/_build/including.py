"""Fills in what pages take from elsewhere: results of benchmarks, the list of worlds, sizes of state files."""

import functools
import html
import re
import tempfile
from pathlib import Path

import numpy as np

import fedpick as fp
from fedpick.worlds import WORLDS

__all__ = ["on_page_markdown", "state_sizes", "worlds_table"]

ROOT = Path(__file__).parent.parent.parent
_INCLUDE = re.compile(r"<!-- include: (benchmarks/results/[\w./-]+\.md) -->")


def _include(found: re.Match[str]) -> str:
    """The file's text without its pictures, whose files are not part of the site, and with lower headings."""
    text = re.sub(r"^!\[.*\]\(.*\)\n", "", (ROOT / found[1]).read_text(encoding="utf-8"), flags=re.M)
    return re.sub(r"^(#+ )", r"##\1", text, flags=re.M).strip()


def worlds_table() -> str:
    """Every world by name, with the first sentence about it."""
    rows = ["| world | what it is |", "| --- | --- |"]
    about = {name: (maker.__doc__ or "").splitlines()[0] for name, maker in WORLDS.items()}
    return "\n".join(rows + [f"| `{name}` | {html.escape(text, quote=False)} |" for name, text in about.items()])


@functools.cache
def state_sizes(count: int = 100_000) -> str:
    """Bytes of the state file of some policies, written here."""
    clients = fp.Clients(np.ones(count))
    rows = [f"| policy | state.npz for {count:,} clients, MB |", "| --- | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        for text in ("uniform", "e3cs", "rpow-d", "bsfl", "oort", "rbcs-f"):
            policy, file = fp.policy(text, cohort_size=100), Path(folder) / "state.npz"
            fp.save_state(policy, policy.init(clients), file)
            rows.append(f"| `{text}` | {file.stat().st_size / 1e6:.1f} |")
    return "\n".join(rows)


_WRITTEN = {"<!-- worlds -->": worlds_table, "<!-- sizes of state files -->": state_sizes}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs with the text of each page."""
    for mark, write in _WRITTEN.items():
        if mark in markdown:
            markdown = markdown.replace(mark, write())
    return _INCLUDE.sub(_include, markdown)
