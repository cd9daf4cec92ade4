"""The site builds without a warning, and what it shows comes from its own host."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

ROOT = Path(__file__).parent.parent.parent
LOADED = {
    **dict.fromkeys(
        ("script", "img", "iframe", "embed", "audio", "video", "source", "track", "input"), ("src", "srcset")
    ),
    "link": ("href",),
    "object": ("data",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
}
# What a browser fetches because a style or a script says so; addresses in comments are not fetched.
IN_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""")
IN_SCRIPT = re.compile(r"""["'`]((?:https?:)?//(?!www\.w3\.org/)[\w-]+\.[\w.-]+[^"'`]*)""")


class Page(HTMLParser):
    """The addresses in a page: those loaded with it, those linked to, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.anchors, self.code = [], [], set(), []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self._inside = tag if tag in ("script", "style") else ""
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        self.loads += [given[name] for name in LOADED.get(tag, ()) if given.get(name)]
        self.code += [given["style"]] if "style" in given else []
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])

    def handle_data(self, data):
        if self._inside:
            self.code.append(data)

    def handle_endtag(self, tag):
        self._inside = ""


def foreign(text: str) -> list[str]:
    """Addresses of other hosts that a page with this HTML loads."""
    page = Page(text)
    found = [address for address in page.loads if urlsplit(address).netloc]
    return found + [each for code in page.code for each in {*IN_STYLE.findall(code), *IN_SCRIPT.findall(code)}]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<script src="//cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        '<img src="https://example.org/badge.svg">',
        "<style>@font-face { src: url(https://example.org/a.woff2) }</style>",
        "<style>@import 'https://example.org/a.css';</style>",
        '<p style="background: url(//example.org/a.png)">',
        "<script>require.config({paths: {a: 'https://cdn.example.org/a'}})</script>",
        '<svg><image xlink:href="https://example.org/a.png"/></svg>',
    ],
)
def test_a_foreign_host_is_found(text):
    assert len(foreign(text)) == 1


def test_a_link_to_another_site_is_no_foreign_host():
    assert (
        foreign('<a href="https://arxiv.org/abs/1">p</a><script>/* https://x.org */ f("http://www.w3.org/1")</script>')
        == []
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built as `make docs` does."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def pages(site):
    """Every page by its path in the site."""
    return {path.relative_to(site).as_posix(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site):
    found = {}
    for path in site.rglob("*"):
        if path.suffix == ".html":
            found[path.relative_to(site).as_posix()] = foreign(path.read_text())
        elif path.suffix == ".css":
            found[path.relative_to(site).as_posix()] = IN_STYLE.findall(path.read_text())
        elif path.suffix == ".js":
            found[path.relative_to(site).as_posix()] = IN_SCRIPT.findall(path.read_text())
        elif path.suffix == ".svg":
            found[path.relative_to(site).as_posix()] = [
                each for each in Page(path.read_text()).loads if urlsplit(each).netloc
            ]
    assert len(found) > 50
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


@pytest.mark.slow
def test_every_address_inside_the_site_is_there(site, pages):
    """Links with their anchors, pictures, scripts and styles; MkDocs checks those in Markdown, not those it makes."""
    missing = []
    for name, page in pages.items():
        if name == "404.html":  # its addresses start at the root of a host
            continue
        for address in [*page.loads, *page.links]:
            if urlsplit(address).scheme or urlsplit(address).netloc:
                continue
            path, anchor = urldefrag(unquote(address))
            there = (site / name).parent.joinpath(path).resolve() if path else site / name
            there = there / "index.html" if there.is_dir() else there
            known = (
                pages.get(there.relative_to(site.resolve()).as_posix())
                if there.is_relative_to(site.resolve())
                else None
            )
            if not there.is_file() or (anchor and known and anchor not in known.anchors):
                missing.append(f"{name}: {address}")
    assert missing == []


@pytest.mark.slow
def test_equations_are_mathml_and_no_latex_is_left(site):
    text = "".join(path.read_text() for path in site.rglob("*.html"))
    assert "arithmatex" not in text
    assert 'class="math' not in text


@pytest.mark.slow
def test_every_command_is_in_the_reference(site):
    page = (site / "reference" / "commands" / "index.html").read_text()
    for words in ("compare", "demo", "report", "data fetch", "policies", "verify"):
        assert f"fedpick {words}" in page
