"""Write the result files of a study."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpick import Results, store
from fedpick.core.errors import MissingError, StoreError
from fedpick_papers.studies import _plots
from fedpick_papers.studies._index import index_page, summary, verdicts_data
from fedpick_papers.studies._pages import beyond_page, outcomes_of, paper_page, rules_page
from fedpick_papers.studies._papers import PAPERS
from fedpick_papers.studies._study import Reproduction, Result, Study
from fedpick_papers.studies._verdicts import RULES

__all__ = ["check_page", "save", "save_figure", "save_guide", "save_index", "save_page", "save_runs", "save_summary"]

# In place of a figure, which is drawn from result.json; builders of a site look for this line.
NOT_DRAWN = "*`fedpick judge --draw` draws the figure here.*"


def _replace(path: Path, write: Callable[[Path], object]) -> Path:
    try:
        with store.replacing(path) as temporary:
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
    manifest: dict[str, Any] = {
        "study": study.id,
        "title": study.title,
        "paper": study.paper,
        "settings": outcome.settings,
    }
    manifest["seconds"] = outcome.seconds
    manifest |= {"limits": {name: limit.value for name, limit in study.limits.items()}}
    return [
        _replace(at / "result.json", lambda path: path.write_text(json.dumps(outcome.result) + "\n")),
        save_page(outcome, at, drawn=True),
        *save_figure(study, outcome.result, at),
        _replace(
            at / "manifest.json",
            lambda path: path.write_text(
                json.dumps({**manifest, **store.machine(), "numbers": study.numbers}, indent=2) + "\n"
            ),
        ),
    ]


def save_figure(
    study: Study, result: Result, folder: str | os.PathLike[str], kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw figure.png and figure.svg, or one of them, from a result."""
    at = Path(folder)
    with _plots.style():
        figure = study.plot(result)
        return [_replace(at / f"figure.{kind}", _plots.writer(figure, kind)) for kind in kinds]


def save_page(outcome: Reproduction, folder: str | os.PathLike[str], *, drawn: bool) -> Path:
    """Write findings.md alone: the claims, our numbers and the verdicts.

    Args:
        outcome: of the study.
        folder: to write to.
        drawn: whether the figure is beside the page; if not, the page says how to draw it.
    """
    study, notes = outcome.study, outcome.notes()
    parts = [f"# {study.id}: {study.title}\n", f"{study.paper}\n" if study.paper else ""]
    if outcome.earlier:
        changed = "which changed what is drawn and how rounds end; they were not run again since"
        parts.append(f"**These numbers are of the draws and rules {outcome.earlier}**, {changed}.\n")
    parts += [outcome.table(), f"![{study.title}](figure.png)\n" if drawn else f"{NOT_DRAWN}\n"]
    if study.paper:
        beyond = " · [what we would change](../beyond.md)" if outcome.beyond else ""
        rules = f"[rules](../../rules.md), last changed on {RULES[-1][0]}"
        parts.append(f"[The paper](../index.md){beyond} · {rules}\n")
    parts.append(_folded("What was done", f"{outcome.about()}.\n\n{outcome.again()}\n"))
    folded = {"What is not reproduced, and why": outcome.why(), "All numbers": outcome.body()}
    folded["Notes and thresholds"] = notes
    parts += [_folded(title, text) for title, text in folded.items() if text]
    text = "\n".join(part for part in parts if part)
    return _replace(Path(folder) / "findings.md", lambda path: path.write_text(text))


def _folded(title: str, text: str) -> str:
    """A part of a page that a reader opens."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n</details>\n'


def save_runs(runs: Sequence[Path], folder: Path) -> Path | None:
    """Write page.html, the report of these runs, into the folder; None if it cannot be made."""
    if not runs:
        return None
    try:
        text = Results(list(runs)).page()
    except (MissingError, StoreError):  # no Jinja2, or files that were removed: the result is whole without it
        return None
    folder.mkdir(parents=True, exist_ok=True)  # the folder may be missing: the runs may be in that of another study
    return _replace(folder / "page.html", lambda path: path.write_text(text, encoding="utf-8"))


def save_guide(outcomes: Sequence[Reproduction], folder: Path, page: str | os.PathLike[str]) -> Path | None:
    """Write the page "Which policy should I use?" from the tournament's results; None if there are none.

    Args:
        outcomes: of all studies.
        folder: with the studies' pages.
        page: to write.
    """
    from fedpick_papers.studies.tournament.guide import guide

    # With one seed there is no interval: the page would say "no policy is better" whatever the result.
    there = [one for one in outcomes if one.study.id.startswith("tournament/") and one.result["seeds"] > 1]
    if not there:
        return None
    at = Path(page)
    link = {one.study.id: os.path.relpath(folder / one.study.id / "findings.md", at.parent) for one in there}
    return _replace(at, lambda path: path.write_text(guide(there, link)))


def save_index(outcomes: Sequence[Reproduction], folder: str | os.PathLike[str]) -> Path:
    """Write index.md, rules.md and verdicts.json, and of each paper index.md and beyond.md; returns the first."""
    at = Path(folder)
    pages = {at / "index.md": index_page(outcomes), at / "rules.md": rules_page()}
    pages[at / "verdicts.json"] = verdicts_data(outcomes)
    for paper in PAPERS:
        if outcomes_of(paper, outcomes):
            pages[at / paper / "index.md"] = paper_page(paper, outcomes)
            pages[at / paper / "beyond.md"] = beyond_page(paper, outcomes)
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, lambda to, text=text: to.write_text(text))  # type: ignore[misc]
    return at / "index.md"


def check_page(page: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a page before and after the place that `save_summary` writes to; raises if it has none."""
    at = Path(page)
    try:
        before, rest = at.read_text().split("<!-- studies:begin", 1)
        head, rest = rest.split("-->", 1)
        after = rest.split("<!-- studies:end -->", 1)[1]
    except OSError as error:
        raise StoreError(f"{at}: cannot read ({error.strerror or error}); name an existing page") from None
    except (ValueError, IndexError):
        raise StoreError(
            f"{at}: has no marks; put '<!-- studies:begin -->' and '<!-- studies:end -->' where the numbers belong"
        ) from None
    return f"{before}<!-- studies:begin{head}-->", f"<!-- studies:end -->{after}"


def save_summary(outcomes: Sequence[Reproduction], page: str | os.PathLike[str]) -> Path:
    """Write the numbers of verdicts between the two marks of a page that has them, such as the README."""
    before, after = check_page(page)
    return _replace(Path(page), lambda path: path.write_text(f"{before}\n\n{summary(outcomes)}\n{after}"))
