"""Draws the figures of the studies when the site is built, from the results in docs/studies.

What was drawn is kept in .cache/studies until the result, the studies' code or the locked packages change.
"""

import hashlib
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedpick_papers.studies import NOT_DRAWN, STUDIES, draw

__all__ = ["drawn", "on_files", "on_page_markdown"]

ROOT = Path(__file__).parent.parent.parent


def _folder(id: str, stored: Path, code: str) -> Path:
    """Where the figure of this result and this code is kept."""
    key = hashlib.sha256((stored / id / "result.json").read_bytes() + code.encode()).hexdigest()[:20]
    return ROOT / ".cache" / "studies" / f"{id.replace('/', '-')}-{key}"


def drawn(ids: Sequence[str], stored: Path) -> dict[str, Path]:
    """The figure of each study; those that are missing are drawn, one process per core."""
    code = hashlib.sha256((ROOT / "requirements-dev.lock").read_bytes())
    for file in sorted((ROOT / "papers" / "src").rglob("*.py")):
        code.update(file.read_bytes())
    folders = {id: _folder(id, stored, code.hexdigest()) for id in ids}
    missing = {id: folder for id, folder in folders.items() if not (folder / "figure.png").is_file()}
    if missing:
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(draw, missing, [stored] * len(missing), missing.values(), chunksize=4))
    return {id: folder / "figure.png" for id, folder in folders.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of the site."""
    stored = Path(config.docs_dir) / "studies"
    ids = [id for id in STUDIES if (stored / id / "result.json").is_file()]
    for id, figure in drawn(ids, stored).items():
        uri = f"studies/{id}/figure.png"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Show the figure where the page of a study says how to draw it."""
    id = page.file.src_uri.removeprefix("studies/").removesuffix("/findings.md")
    return markdown.replace(NOT_DRAWN, f"![{STUDIES[id].title}](figure.png)") if id in STUDIES else markdown
