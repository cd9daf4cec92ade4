"""The site builds without a warning, and what it shows comes from its own host."""

import functools
import html
import http.server
import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

import browsers

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


# Opens a page of the site in a frame, in light or dark, and writes down what is wrong with it.
OPENED = """<!doctype html><meta charset="utf-8"><pre id="said"></pre>
<iframe width="{width}" height="900" src="{address}"></iframe>
<script>
const frame = document.querySelector('iframe');
frame.addEventListener('load', async () => {{
  const inside = frame.contentDocument;
  inside.body.dataset.mdColorScheme = '{scheme}';
  const style = inside.createElement('style');
  style.textContent = '* {{ transition: none !important; animation: none !important; }}';
  inside.head.append(style);
  await new Promise((done) => setTimeout(done, 500));
  const found = {{ wide: inside.documentElement.scrollWidth - frame.clientWidth, text: inside.body.innerText.length }};
  const script = inside.createElement('script');
  script.src = '/axe.js';
  inside.head.append(script);
  script.addEventListener('load', async () => {{
    // The theme's own script makes code that scrolls focusable, but only once it is in view.
    const rules = {{ 'scrollable-region-focusable': {{ enabled: false }} }};
    const told = await frame.contentWindow.axe.run({{ rules }});
    found.axe = told.violations.filter((each) => ['serious', 'critical'].includes(each.impact))
      .map((each) => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 150)]);
    document.getElementById('said').textContent = JSON.stringify(found);
  }});
}});
</script>"""


@pytest.fixture(scope="module")
def served(site, tmp_path_factory):
    """The address of the site on this machine, with axe beside it."""
    browsers.require("axe_playwright_python")
    folder = tmp_path_factory.mktemp("served") / "site"
    shutil.copytree(site, folder)
    axe = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    (folder / "axe.js").write_text(axe.read_text(encoding="utf-8"), encoding="utf-8")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1440, "default"), (390, "slate")])
@pytest.mark.parametrize("page", ["", "policies/e3cs/", "tutorials/first-comparison/", "reference/round/"])
def test_a_browser_shows_a_page_and_axe_finds_nothing_serious(served, tmp_path, page, width, scheme):
    """No other host can be reached: a page that asks for one says so on the console."""
    folder, address = served
    (folder / "opened.html").write_text(OPENED.format(width=width, scheme=scheme, address=f"/{page}"), encoding="utf-8")
    done = subprocess.run(
        [browsers.CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={tmp_path / 'profile'}",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-first-run", "--disable-component-update",
         "--disable-background-networking", "--enable-logging=stderr", "--window-size=1600,1000",
         "--virtual-time-budget=20000", "--dump-dom", f"{address}/opened.html"],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    said = json.loads(html.unescape(re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)[1]))
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert said["text"] > 500
    assert said["wide"] <= 0
    assert said["axe"] == []
