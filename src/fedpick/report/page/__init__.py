"""The report as one HTML file, which opens offline: no other file, no request to any machine.

The template is rendered with automatic escaping, the numbers of the charts are embedded as JSON, and a content security
policy allows only the page's own script. The live page is the same, and asks its own server for news.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
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

_SCRIPTS = ("parts.js", "figures.js", "who.js", "page.js")

__all__ = ["Content", "Live", "make_news", "make_page"]


@dataclass(frozen=True)
class Live:
    """What the live page says about runs that are going on.

    Args:
        state: of all: "running", "finished", "ended", "stopped", "silent" or "waiting".
        said: the same in a sentence.
        changed: when a file was last written, in seconds since 1970.
        runs: policy, seed, reached, rounds, state and why of each.
        notes: what readers should know.
    """

    state: str
    said: str
    changed: float
    runs: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Content:
    """What a page shows.

    Args:
        title: of the page.
        blocks: the rows of each block.
        panels: the curves of each block.
        sheets: the table of each block.
        drawn: the rows of each block for the charts of selections; of a live page, each run is drawn to its end.
        notes: what readers should know before they trust the numbers.
        csv: all scores, to be downloaded.
        trouble: of a single run, the clients that failed or were late most often.
    """

    title: str
    blocks: Sequence[Sequence[Summary]] = ()
    panels: Sequence[Panel] = ()
    sheets: Sequence[Sheet] = ()
    drawn: Sequence[Sequence[Summary]] = ()
    notes: Sequence[str] = ()
    csv: str = ""
    trouble: Sequence[dict[str, Any]] = field(default_factory=list)

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
                "command": command([row.group for row in rows]),
                "manifest": _manifest(rows[0]),
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
    """The page as text.

    Args:
        content: of the page.
        live: of a page that follows runs.
    """
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
    texts = content.texts()
    sections = _environment()[1].get_template("sections.html").module
    parts, trouble = texts["parts"], texts["trouble"]
    made = {
        "runs": sections.runs(live),
        "verdict": sections.verdict(parts),
        "table": sections.table(parts, texts["notes"]),
        "trouble": sections.trouble(trouble, live),
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


def _manifest(row: Summary) -> str:
    """The configuration of a policy's first run, and the versions and machine that made it, as text."""
    return json.dumps(read_manifest(row.group.runs[0].info.folder), indent=1)
