"""Between library and papers: the library knows nothing of the papers, which take it by its public interface."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "papers" / "src" / "fedpick_papers"
# Modules of the library that may move without notice.
INTERNAL = ["archive", "atomic", "devices", "imports", "native", "own", "text", "web", "_support"]


def imports(path):
    """Every module, or name of a module, that a file imports from the library."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedpick":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "fedpick")


@pytest.mark.parametrize("path", sorted(PAPERS.rglob("*.py")), ids=lambda path: str(path.relative_to(PAPERS)))
def test_papers_take_the_library_by_its_public_interface(path):
    found = [name for name in imports(path) if any(part.startswith("_") for part in name.split("."))]
    assert found == []
    assert [name for name in imports(path) if name.split(".")[1] in INTERNAL] == []


def test_the_library_imports_nothing_of_the_papers():
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"fedpick_papers|fedpick[./](studies|theory)\b", path.read_text(encoding="utf-8")), path


@pytest.mark.slow
def test_the_wheels_share_no_file(tmp_path):
    for project in (ROOT, ROOT / "papers"):
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(project)]
        subprocess.run(build, check=True, capture_output=True)
    library, papers = (
        zipfile.ZipFile(*tmp_path.glob(f"{name}-*.whl")).namelist() for name in ("fedpick", "fedpick_papers")
    )
    assert not [name for name in library if re.search("papers|studies|theory|oort_testing", name)]
    packages = {name.split("/")[0] for name in papers if ".dist-info" not in name}
    assert packages == {"fedpick_papers"}
    assert "fedpick_papers/studies/tournament/table.py" in papers


def test_the_pages_in_git_say_how_to_draw_a_figure_and_the_site_shows_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
    import study_figures

    for path in (ROOT / "docs" / "studies").glob("*/*/findings.md"):
        text, uri = path.read_text(encoding="utf-8"), path.relative_to(ROOT / "docs").as_posix()
        assert text.count(study_figures.NOT_DRAWN) == 1, f"{path}: run `make judge`"
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
        assert study_figures.on_page_markdown(text, page).count("](figure.png)") == 1
