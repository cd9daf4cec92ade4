"""README and pages as they are read in the repository: links, code, commands, figures, notebooks.

Lines with `>>>` are run by doctest (see pyproject.toml); test_site.py looks at the built site.
"""

import ast
import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest
import typer

import fedpick as fp
from fedpick.cli.app import app
from fedpick.policies import TABLE

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted(DOCS.glob("tutorials/*.ipynb"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")), *TUTORIALS]
# Made when the site is built: the page, and where its headings come from.
MADE = {DOCS / "reference" / "commands.md"}
ANCHORS_MADE = {DOCS / "reference", DOCS / "policies"}
PROGRAM = typer.main.get_command(app)
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.M | re.S)
INDENTED = re.compile(r"(?:\A|\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)")
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)[^)]*\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown") + "\n"


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of the code blocks: fenced, and indented ones, whose language is empty."""
    found = [(kind, re.sub(rf"^{indent}", "", body, flags=re.M)) for indent, kind, body in FENCE.findall(text)]
    rest = FENCE.sub("", text)
    return found + [("", re.sub(r"^ {4}", "", body, flags=re.M)) for body in INDENTED.findall(rest)]


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and code hosts make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(path: Path) -> set[str]:
    return {slug(line) for line in re.findall(r"^#+ +(.*)$", FENCE.sub("", text_of(path)), re.M)}


def broken(page: Path, text: str) -> list[str]:
    """The links of a text that lead nowhere, as seen from this page."""
    found = []
    for _, address in LINK.findall(FENCE.sub("", text)):
        parts = urlsplit(address)
        if parts.scheme:
            if parts.scheme != "https" or "." not in parts.netloc:
                found.append(address)
            continue
        path, anchor = urldefrag(address)
        there = (page.parent / path).resolve() if path else page
        if there in MADE:
            continue
        if not there.exists() or (anchor and there.parent not in ANCHORS_MADE and anchor not in anchors(there)):
            found.append(address)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_figure_of_a_page_is_there(page):
    assert broken(page, text_of(page)) == []


def test_a_link_that_leads_nowhere_is_found():
    text = (
        "[a](no-such.md) ![b](figures/no-such.svg) [c](faq.md) [d](worlds.md#time) [e](worlds.md#space) [f](http://x)"
    )
    assert broken(DOCS / "index.md", text) == ["no-such.md", "figures/no-such.svg", "worlds.md#space", "http://x"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_of_a_page_is_python_toml_or_json(page):
    for kind, body in blocks(text_of(page)):
        if ">>>" in body:
            continue
        if kind == "python":
            ast.parse(body)
        elif kind == "toml" or (not kind and re.match(r"(?:\[\w+\]|\w+ = )", body)):
            tomllib.loads(body) if "results = " not in body else ast.parse(body)
        elif kind == "json":
            json.loads(body)


def commands(text: str) -> list[list[str]]:
    """The calls of fedpick in code blocks, and those written in the text from `fedpick` to the end of the quotation."""
    lines = [line for _, body in blocks(text) for line in re.sub(r"\\\n\s*", " ", body).splitlines()]
    calls = [shlex.split(line, comments=True) for line in lines if re.match(r"(?:\S*/)?fedpick ", line)]
    return [call[1:] for call in calls]


def understood(call: list[str]) -> None:
    """Raise where the command line would not take this call; nothing runs."""
    command, name = PROGRAM, "fedpick"
    while hasattr(command, "commands"):
        name, *call = call
        command = command.commands[name]
    context = command.make_context(name, list(call), resilient_parsing=False)
    for policy in context.params.get("policy") or []:
        if ".py:" not in policy:
            fp.policies.text.canonical_policy(policy)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_a_page_are_understood(page):
    for call in commands(text_of(page)):
        if "..." not in " ".join(call):
            understood(call)


def test_commands_are_found():
    assert sum(len(commands(text_of(page))) for page in PAGES) >= 15


@pytest.mark.parametrize("line", ["fedpick compare --polcy uniform", "fedpick compaer", "fedpick compare -p unifrom"])
def test_a_command_that_is_not_understood_is_found(line):
    with pytest.raises((Exception, SystemExit), match=r"polcy|compaer|unifrom"):
        understood(commands(f"text\n\n    {line}\n")[0])


def test_every_extra_and_make_target_that_is_named_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = text_of(page)
        for named in re.findall(r"\.\[([\w,]+)\]\"", text):
            assert set(named.split(",")) <= extras, page
        said = [line for _, body in blocks(text) for line in body.splitlines()] + re.findall(r"`(make [^`]*)`", text)
        for call in said:
            for target in re.findall(r"^make ((?:[a-z][a-z-]* ?)+)", call):
                assert set(target.split()) <= targets, (page, call)


@pytest.mark.parametrize("path", TUTORIALS, ids=name_of)
def test_a_tutorial_is_stored_without_output(path):
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    for cell in cells:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=name_of)
def test_a_tutorial_runs(path, monkeypatch):
    """With what it prints kept for the build of the site, as `make docs` does."""
    monkeypatch.syspath_prepend(str(DOCS / "_hooks"))
    played = importlib.import_module("notebooks").played(path)
    assert any(cell.get("outputs") for cell in played.cells)


@pytest.fixture
def table(monkeypatch):
    """The module that writes what the repository keeps of the table of policies."""
    monkeypatch.syspath_prepend(str(DOCS / "_hooks"))
    return importlib.import_module("policy_table")


def test_the_list_of_the_readme_and_the_names_for_type_checkers_are_what_the_policies_say(table):
    text = (ROOT / "README.md").read_text()
    assert text == table.readme(text), "run `make policies`"
    stub = (ROOT / "src" / "fedpick" / "policies" / "__init__.pyi").read_text()
    assert stub == table.stub(), "run `make policies`"
    assert all(f"`fp.{name}`" in text for name in TABLE)


def test_a_page_by_hand_is_of_one_policy_and_links_its_paper():
    names = {listed.about.names[0]: name for name, listed in TABLE.items()}
    for page in (DOCS / "policies").glob("*.md"):
        name = names[page.stem]
        assert re.findall("facts: (\\w+)", page.read_text()) == [name]
        assert "https://" in page.read_text() or name in ("Guard", "Genie"), f"{page.name} links no paper"


def test_what_pages_take_from_benchmarks_is_there():
    """docs/_hooks/including.py puts it into the site; without the file the site cannot be built."""
    wanted = [name for page in DOCS.glob("*.md") for name in re.findall(r"<!-- include: (\S+) -->", page.read_text())]
    assert len(wanted) >= 6
    assert [name for name in wanted if not (ROOT / name).is_file()] == []


def test_the_rooms_on_the_page_on_architecture_are_those_of_the_source(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_hooks")
    house = importlib.import_module("house")
    page = house.PAGE.read_text()
    assert house.written(page) == page, "run `make house`"
    assert all(
        f"      {room.name}/" in page for room in (ROOT / "src/fedpick").iterdir() if (room / "__init__.py").exists()
    )


def test_files_named_on_the_page_on_architecture_exist():
    text = (DOCS / "architecture.md").read_text()
    named = set(re.findall(r"\b[\w/]+/\w+\.py\b", text))
    assert len(named) > 20
    rooms = (ROOT, ROOT / "src/fedpick", ROOT / "papers/src/fedpick_papers")
    paths = {path.removeprefix("src/fedpick/") for path in named}
    assert [path for path in paths if not any((room / path).exists() for room in rooms)] == []


@pytest.mark.parametrize("page", ["limits.md", "baselines.md"])
def test_no_page_denies_late_updates_in_nvflare(page):
    assert not re.search(r"except in NVFlare|NVFlare drops late", " ".join(text_of(DOCS / page).split()))


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_numbers_of_the_front_page_are_over_many_seeds(page):
    counts = [int(number) for number in re.findall(r"uniform\s+over\s+(\d+)\s+seeds", (ROOT / page).read_text())]
    assert counts
    assert min(counts) >= 20
