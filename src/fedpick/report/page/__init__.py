"""The report as one HTML file, which opens offline: no other file, no request to any machine.

The template is rendered with automatic escaping, the numbers of the charts are embedded as JSON, and a content security
policy allows only the page's own script.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from fedpick._version import __version__
from fedpick.report._extras import needed
from fedpick.report.groups import Summary
from fedpick.report.layout import Sheet
from fedpick.report.page.again import command
from fedpick.report.page.content import setting
from fedpick.report.page.verdict import verdict
from fedpick.report.plots import Panel
from fedpick.store.manifest import read_manifest

__all__ = ["make_page"]


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def make_page(
    *,
    title: str,
    blocks: Sequence[Sequence[Summary]],
    panels: Sequence[Panel],
    sheets: Sequence[Sheet],
    notes: Sequence[str],
    csv: str,
    trouble: Sequence[dict[str, Any]],
) -> str:
    """The page as text.

    Args:
        title: of the page.
        blocks: the rows of each block.
        panels: the curves of each block.
        sheets: the table of each block.
        notes: what readers should know before they trust the numbers.
        csv: all scores, to be downloaded.
        trouble: of a single run, the clients that failed or were late most often.
    """
    jinja = needed("jinja2", "a page", "report")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    dumps = partial(json.dumps, separators=(",", ":"), allow_nan=False)
    policies = sum(map(len, blocks))
    charts = [setting(panel, rows, policies) for panel, rows in zip(panels, blocks, strict=True)]
    parts = [
        {
            "place": sheet.title if len(blocks) > 1 else "",
            "verdict": verdict(rows),
            "sheet": sheet,
            "command": command([row.group for row in rows]),
            "manifest": _manifest(rows[0]),
        }
        for rows, sheet in zip(blocks, sheets, strict=True)
    ]
    script = _file("page.js")
    return str(
        environment.from_string(_file("page.html")).render(
            title=title,
            version=__version__,
            parts=parts,
            notes=notes,
            trouble=trouble,
            data=jinja.utils.htmlsafe_json_dumps({"settings": charts, "csv": csv}, dumps=dumps),
            style=jinja.utils.markupsafe.Markup(_file("page.css")),
            script=jinja.utils.markupsafe.Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _manifest(row: Summary) -> str:
    """The configuration of a policy's first run, and the versions and machine that made it, as text."""
    return json.dumps(read_manifest(row.group.runs[0].info.folder), indent=1)
