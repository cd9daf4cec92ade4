"""Runs the tutorials when the site is built, and shows them with what they print.

The notebooks in docs/tutorials hold no output. What a notebook printed is kept in .cache/tutorials until the notebook,
fedpick's source or the locked packages change.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

__all__ = ["on_files", "on_page_markdown", "page", "played"]

ROOT = Path(__file__).parent.parent.parent
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"(\]\([^)\s]*?)([\w-]+)\.ipynb(?=[)#])")
_TOP = "[Download this notebook]({name}){{ .md-button download }}\n"


def _key(path: Path) -> str:
    key = hashlib.sha256()
    for file in [path, ROOT / "requirements-dev.lock", *sorted((ROOT / "src").rglob("*.py"))]:
        key.update(file.read_bytes())
    return key.hexdigest()[:20]


def played(path: Path) -> nbformat.NotebookNode:
    """The notebook after a run in an empty folder; an error in a cell is raised."""
    kept = ROOT / ".cache" / "tutorials" / f"{path.stem}-{_key(path)}.ipynb"
    if not kept.exists():
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(notebook, timeout=900, startup_timeout=300, resources={"metadata": {"path": folder}})
            client.extra_arguments = ["--IPKernelApp.log_level=ERROR"]  # nothing about its port on this machine
            client.execute()
        kept.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, kept)
    return nbformat.read(kept, as_version=4)


def _output(output: Any) -> str:
    """One output of a cell as Markdown."""
    if output.output_type == "stream":
        return f"```text\n{_COLOUR.sub('', output.text).rstrip()}\n```\n" if output.name == "stdout" else ""
    data = output.data
    if "image/png" in data:
        return f'<img alt="the plot that this cell draws" src="data:image/png;base64,{data["image/png"].strip()}">\n'
    if "text/html" in data:
        inner = "\n".join(line for line in data["text/html"].splitlines() if line.strip())
        return f'<div class="output">\n{inner}\n</div>\n'
    return f"```text\n{data['text/plain']}\n```\n"


def _parts(notebook: nbformat.NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source + "\n"
        else:
            yield f"```python\n{cell.source}\n```\n"
            yield from map(_output, cell.outputs)


def page(notebook: nbformat.NotebookNode, name: str) -> str:
    """A notebook that was run, as a page in Markdown."""
    title, *rest = _parts(notebook)
    return "\n".join([title, *rest, _TOP.format(name=name)])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of the site."""
    for path in sorted(Path(config.docs_dir).glob("tutorials/*.ipynb")):
        text = page(played(path), path.name)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """A link to a notebook leads to its page; the one to download stays."""
    return _LINK.sub(lambda found: found[0] if "Download" in found[1] else f"{found[1]}{found[2]}.md", markdown)
