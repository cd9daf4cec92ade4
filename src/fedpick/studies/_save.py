"""Write the result files of a study."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fedpick import atomic, store
from fedpick.errors import StoreError
from fedpick.studies import _plots
from fedpick.studies._study import Reproduction

__all__ = ["save", "save_index"]


def _replace(path: Path, write: Callable[[Path], object]) -> Path:
    try:
        with atomic.replacing(path) as temporary:
            write(temporary)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write ({error.strerror or error}); choose a folder you may write to"
        ) from None
    return path


def save(outcome: Reproduction, folder: str | os.PathLike[str]) -> list[Path]:
    """Write result.json, findings.md, figure.png, figure.svg and manifest.json into the folder; returns their paths."""
    at, study = Path(folder), outcome.study
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{at}: cannot make the folder ({error.strerror or error}); choose another") from None
    text = f"# {study.id}: {study.title}\n\n{study.paper}\n\n{outcome.table()}\n![{study.title}](figure.png)\n"
    manifest = {"study": study.id, "title": study.title, "paper": study.paper, "settings": outcome.settings}
    with _plots.style():
        figure = study.plot(outcome.result)
        pictures = [_replace(at / f"figure.{kind}", _plots.writer(figure, kind)) for kind in ("png", "svg")]
    return [
        _replace(at / "result.json", lambda path: path.write_text(json.dumps(outcome.result) + "\n")),
        _replace(at / "findings.md", lambda path: path.write_text(text)),
        *pictures,
        _replace(
            at / "manifest.json",
            lambda path: path.write_text(json.dumps({**manifest, **store.machine()}, indent=2) + "\n"),
        ),
    ]


def save_index(outcomes: Sequence[Reproduction], folder: str | os.PathLike[str]) -> Path:
    """Write index.md: a line for each study saved under the folder, with the number of its claims that hold."""
    head = ["study", "what", "claims reproduced", "in part", "not"]
    lines = [head, ["---", "---", "---:", "---:", "---:"]]
    for outcome in outcomes:
        verdicts = [finding.verdict for finding in outcome.findings]
        counts = [str(verdicts.count(each)) for each in ("reproduced", "in part", "not reproduced")]
        lines.append([f"[{outcome.study.id}]({outcome.study.id}/findings.md)", outcome.study.title, *counts])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    text = (
        "# The papers' experiments, rerun\n\nEach page sets a paper's claims beside our figures, with 95% intervals "
        f"over seeds, and says which hold. `fedpick reproduce` writes them.\n\n{table}\n"
    )
    return _replace(Path(folder) / "index.md", lambda path: path.write_text(text))
