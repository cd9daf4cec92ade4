"""Results as files: all of them in a folder, or one by the end of its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpick._support import atomic
from fedpick.core.errors import ConfigError, FedpickError, MissingError
from fedpick.report.results import Results

__all__ = ["is_file", "write", "write_file"]

# The format of a file of results, by the end of its name.
KINDS = {
    ".html": "page",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
    ".txt": "text",
    ".bib": "bibtex",
}
FIGURES = (".pdf", ".pgf", ".png", ".svg")


def write(results: Results, folder: Path, name: str) -> tuple[list[str], list[str]]:
    """Write name.json, name.csv, the page name.html and the plots.

    Returns the files' names, and the reasons why others are missing.
    A missing optional package is no error here, because all files can be made later from the runs.
    """
    made, missed = [], []

    def attempt(file: str, make: Callable[[Path], None]) -> None:
        try:
            _put(folder / file, make)
            made.append(file)
        except MissingError as error:
            missed.append(str(error))

    attempt(f"{name}.json", lambda path: _text(path, results.table("json")))
    attempt(f"{name}.csv", lambda path: _text(path, results.table("csv")))
    attempt(f"{name}.html", lambda path: _text(path, results.page()))
    try:
        figure = results.plot()
    except FedpickError as error:
        missed.append(str(error))
        return made, missed
    for kind in ("png", "svg"):
        attempt(f"{name}.{kind}", lambda path, kind=kind: figure.savefig(path, format=kind))  # type: ignore[misc]
        figure.set_layout_engine("none")  # the second file keeps the first one's layout, which takes long to find
    return made, missed


def is_file(path: Path) -> bool:
    """Whether a path is that of a file of results, by its end, such as .html; otherwise it is that of a folder.

    An end such as .xlsx is refused, unless a folder of this name exists; a path such as quota-0.5 is a folder's.
    """
    end = path.suffix.lower()
    if path.is_dir() or not end[1:2].isalpha():
        return False
    if end not in (*KINDS, *FIGURES):
        raise ConfigError(
            f"{path}: fedpick writes no {end} files, but {', '.join((*KINDS, *FIGURES))}; make a folder of this name "
            "first if it should be one"
        )
    return True


def write_file(results: Results, path: Path, format: str | None = None, **figure: Any) -> None:
    """Write one file of results.

    Args:
        results: to be written.
        path: of the file.
        format: of the table, see `Results.table`; None: by the end of the file's name, .html being the page.
        figure: arguments of `Results.plot`, for a figure.
    """
    end = path.suffix.lower()
    if format is None and end in FIGURES:
        drawn = results.plot(**figure)
        _put(path, lambda temporary: drawn.savefig(temporary, format=end[1:]))
        return
    kind = format or KINDS[end]
    text = results.page() if kind == "page" else results.table(kind)
    _put(path, lambda temporary: _text(temporary, text))


def _put(path: Path, make: Callable[[Path], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            make(temporary)
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: cannot write {path.name} ({error.strerror}); the runs are intact. Free space or choose "
            "another folder with --out"
        ) from None


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
