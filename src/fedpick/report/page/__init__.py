"""The report as one HTML file, which opens offline: no other file, no request to any machine.

The template is rendered with automatic escaping, the numbers of the charts are embedded as JSON, and a content security
policy allows only the script in the page. The live page is the same, and asks the server that sent it for news.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from fedpick._support.extras import needed
from fedpick._version import __version__
from fedpick.report.layout import Sheet
from fedpick.report.page.charts import setting
from fedpick.report.page.command import repeat_command
from fedpick.report.page.verdict import verdict
from fedpick.report.plots import Panel
from fedpick.report.summaries import Summary
from fedpick.store.manifest import read_manifest

_SCRIPTS = ("parts.js", "figures.js", "client_charts.js", "page.js")

__all__ = ["Content", "Live", "make_news", "make_page"]


@dataclass(frozen=True)
class Live:
    """What the live page says about runs that are going on."""

    state: str  # of all: "running", "finished", "ended", "stopped", "silent" or "waiting"
    sentence: str  # the same in words
    changed: float  # when a file was last written, in seconds since 1970
    runs: Sequence[dict[str, Any]]  # policy, seed, reached, rounds, state and why of each
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Content:
    """What a page shows."""

    title: str
    blocks: Sequence[Sequence[Summary]] = ()  # the rows of each block
    panels: Sequence[Panel] = ()  # the curves of each block
    sheets: Sequence[Sheet] = ()  # the table of each block
    drawn: Sequence[Sequence[Summary]] = ()  # `blocks`, but on a live page with each run up to its last round
    notes: Sequence[str] = ()  # what readers should know before they trust the numbers
    csv: str = ""  # all scores, to be downloaded
    trouble: Sequence[dict[str, Any]] = ()  # of a single run, the clients that failed or were late most often

    def charts(self) -> dict[str, Any]:
        """What the charts draw."""
        policies = sum(map(len, self.blocks))
        each = zip(self.panels, self.blocks, self.drawn, strict=True)
        return {"settings": [setting(panel, rows, drawn, policies) for panel, rows, drawn in each], "csv": self.csv}

    def texts(self) -> dict[str, Any]:
        """What the sections show."""
        parts = [
            {
                "place": sheet.title if len(self.blocks) > 1 else "",
                "verdict": verdict(rows),
                "sheet": sheet,
                "command": repeat_command([row.group for row in rows]),
                "manifest": json.dumps(read_manifest(rows[0].group.runs[0].info.folder), indent=1),
            }
            for rows, sheet in zip(self.blocks, self.sheets, strict=True)
        ]
        return {"title": self.title, "parts": parts, "notes": self.notes, "trouble": self.trouble}


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _script(*names: str) -> str:
    """These files as one script, whose names no other script sees."""
    return '"use strict";\n(() => {\n' + "".join(map(_file, names)) + "})();\n"


def _environment() -> Any:
    jinja = needed("jinja2", "a page", "report")
    loader = jinja.FunctionLoader(_file)
    return jinja, jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, loader=loader)


def make_page(content: Content, live: Live | None = None) -> str:
    """The page as text; `live` is None unless the page follows runs."""
    jinja, environment = _environment()
    dumps = partial(json.dumps, separators=(",", ":"), allow_nan=False)
    script = _script(*_SCRIPTS) + ("" if live is None else _script("live.js"))
    return str(
        environment.get_template("page.html").render(
            **content.texts(),
            version=__version__,
            live=live,
            data=jinja.utils.htmlsafe_json_dumps(content.charts(), dumps=dumps),
            style=jinja.utils.markupsafe.Markup(_file("page.css")),
            script=jinja.utils.markupsafe.Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def make_news(content: Content, live: Live) -> dict[str, Any]:
    """What the live page renews: texts, the HTML of sections, and what the charts draw."""
    parts = content.texts()["parts"]
    sections = _environment()[1].get_template("sections.html").module
    made = {
        "runs": sections.runs(live),
        "verdict": sections.verdict(parts),
        "table": sections.table(parts, content.notes),
        "trouble": sections.trouble(content.trouble, live),
        "again": sections.again(parts),
    }
    return {
        "title": content.title,
        "state": live.state,
        "changed": live.changed,
        "runs": list(live.runs),
        "sections": {name: str(html) for name, html in made.items()},
        "data": content.charts(),
    }
