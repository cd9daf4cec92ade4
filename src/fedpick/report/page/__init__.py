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
from fedpick.report.groups import Block, Summary
from fedpick.report.layout import Sheet
from fedpick.report.page.again import command
from fedpick.report.page.content import setting
from fedpick.report.page.verdict import verdict
from fedpick.report.plots import Panel
from fedpick.report.tables import place_names
from fedpick.store.manifest import read_manifest

__all__ = ["make_page"]


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def make_page(
    rows: Sequence[Summary], sheet: Sheet, panels: Sequence[Panel], csv: str, trouble: Sequence[dict[str, Any]]
) -> str:
    """The page as text.

    Args:
        rows: of the table.
        sheet: the table.
        panels: the curves of each block, in the order of the rows' blocks.
        csv: all scores, to be downloaded.
        trouble: of a single run, the clients that failed or were late most often.
    """
    jinja = needed("jinja2", "a page", "report")
    blocks: dict[Block, list[Summary]] = {}
    for row in rows:
        blocks.setdefault(row.group.block, []).append(row)
    inside = list(blocks.values())
    script = _file("page.js")
    charts = [setting(panel, each, len(rows)) for panel, each in zip(panels, inside, strict=True)]
    places = place_names([each[0].group for each in inside])
    dumps = partial(json.dumps, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    return str(
        environment.from_string(_file("page.html")).render(
            title=sheet.title,
            version=__version__,
            sheet=sheet,
            verdicts=[(place, verdict(each)) for place, each in zip(places, inside, strict=True)],
            charts=charts,
            trouble=trouble,
            again=[(place, command([row.group for row in each])) for place, each in zip(places, inside, strict=True)],
            manifests=[_manifest(place, each) for place, each in zip(places, inside, strict=True)],
            data=jinja.utils.htmlsafe_json_dumps({"settings": charts, "csv": csv}, dumps=dumps),
            style=jinja.utils.markupsafe.Markup(_file("page.css")),
            script=jinja.utils.markupsafe.Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _manifest(place: str, rows: Sequence[Summary]) -> tuple[str, str]:
    """The configuration of a block's first run, and the versions and machine that made it, as text."""
    manifest = read_manifest(rows[0].group.runs[0].info.folder)
    shown = {key: value for key, value in manifest.items() if key != "files"}
    return place, json.dumps(shown, indent=1)
