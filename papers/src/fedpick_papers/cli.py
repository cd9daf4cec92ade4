"""The commands `fedpick reproduce` and `fedpick judge`."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from fedpick.cli import console
from fedpick.cli.options import Device, Executor, Workers, completing
from fedpick.core.errors import StoreError, UnknownNameError

if TYPE_CHECKING:
    from fedpick_papers.studies import Reproduction

__all__ = ["app"]

app = typer.Typer()


def _studies() -> Iterable[str]:
    from fedpick_papers.studies import STUDIES

    return dict.fromkeys([*(name.partition("/")[0] for name in STUDIES), *STUDIES])


@app.command()
def reproduce(
    study: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies, as bsfl/fig5, or papers, as bsfl (default: all).", autocompletion=completing(_studies)
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Few rounds and seeds, and small networks for images: checks that a study works; its numbers and "
            "verdicts are not those of the paper's settings.",
        ),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds (default: the study's).", min=1, metavar="N")
    ] = None,
    seed0: Annotated[int, typer.Option("--seed0", help="The first seed.", min=0, metavar="N")] = 0,
    folder: Annotated[Path, typer.Option("--out", help="Folder for results and plots.")] = Path("fedpick-studies"),
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Rerun the papers' experiments and compare our results with the printed ones.

    Finished jobs are kept in the folder: after an interruption, the same command continues.
    """
    from fedpick.experiment import executors
    from fedpick_papers import studies

    names = list(dict.fromkeys(name for each in study for name in _named(each))) if study else list(studies.STUDIES)
    how: dict[str, Any] = {"quick": quick, "seeds": seeds, "seed0": seed0, "workers": workers}
    how |= {"executor": executor, "device": device}
    outcomes, took, since = [], {}, time.perf_counter()

    def show(outcome: studies.Reproduction, seconds: float) -> None:
        took[outcome.study.id] = seconds
        _show(outcome, folder, quick, seconds, {key: how[key] for key in ("seed0", "workers", "executor", "device")})

    on_cpu = executors.kind_of_device(device) == "cpu"
    try:
        if quick and len(names) > 1 and executor in ("auto", "processes") and workers != 1 and on_cpu:
            with _bar("studies", transient=True) as (bar, task):

                def done(outcome: studies.Reproduction, seconds: float) -> None:
                    bar.stop()
                    show(outcome, seconds)
                    bar.start()
                    bar.update(task, completed=len(took), total=len(names), state=f"{len(took)} of {len(names)}")

                changes = {"seed0": seed0} | ({} if seeds is None else {"seeds": seeds})
                outcomes = studies.reproduce_quickly(names, folder, workers=workers, done=done, **changes)
        else:
            with executors.staying():
                for name in names:
                    begun = time.perf_counter()
                    with _bar(name) as (bar, task):

                        def tell(now: studies.Progress, bar: Progress = bar, task: Any = task) -> None:
                            bar.update(task, completed=now.done, total=now.total, state=str(now))

                        outcomes.append(studies.reproduce(name, out=folder, tell=tell, **how))
                    show(outcomes[-1], time.perf_counter() - begun)
    except KeyboardInterrupt as stop:
        console.err.print("\nstopped; finished jobs are kept. Continue with:")
        console.err.print(escape(studies.command(study, folder, **how)), soft_wrap=True)
        raise typer.Exit(128 + getattr(stop, "signal", 2)) from None
    if not study:
        console.out.print(f"all of them: {studies.save_index(outcomes, folder)}")
    if len(names) > 1:
        slowest = sorted(took, key=lambda name: -took[name])[:10]
        console.out.print(f"{len(names)} studies in {time.perf_counter() - since:,.0f} s; the longest:")
        for name in slowest:
            console.out.print(f"  {took[name]:6,.1f} s  {name}")


def _named(text: str) -> list[str]:
    """The study of this name, or all of a paper."""
    from fedpick_papers.studies import STUDIES

    found = [text] if text in STUDIES else [name for name in STUDIES if name.startswith(f"{text.rstrip('/')}/")]
    if not found:
        papers = dict.fromkeys(name.partition("/")[0] for name in STUDIES)
        near = get_close_matches(text, [*papers, *STUDIES], n=5, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}? The" if near else "the"
        raise UnknownNameError(
            f"unknown study {text!r}; {hint} papers are {', '.join(papers)}; each has studies, as bsfl/fig5"
        )
    return found


@contextmanager
def _bar(name: str, transient: bool = False) -> Iterator[tuple[Progress, TaskID]]:
    """A bar of progress for something of this name."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console.err, transient=transient) as bar:
        yield bar, bar.add_task(name, total=None, state="")


def _show(outcome: "Reproduction", folder: Path, quick: bool, seconds: float, how: dict[str, Any]) -> None:
    """Print what was found, where it is, and the command for more seeds if they would decide something."""
    from fedpick_papers.studies import JOBS, command

    name = outcome.study.id
    table = Table(title=f"{name}: {outcome.study.title}" + (" (quick)" if quick else ""), show_lines=True)
    for heading in ("claim", "paper", "ours", "verdict", "why"):
        table.add_column(heading, overflow="fold")
    colours = {"reproduced": "green", "direction only": "yellow", "contradicted": "red"}
    for finding in outcome.findings:
        verdict = f"[{colours.get(finding.verdict, 'default')}]{finding.verdict}[/]"
        claim, paper, ours, why = map(escape, (finding.claim, finding.paper, finding.ours, finding.reason))
        table.add_row(f"(ours) {claim}" if finding.extension else claim, paper, ours, verdict, why)
    if outcome.findings:
        console.out.print(table)
    console.out.print(f"written to {escape(str(folder / name))} ({seconds:,.1f} s)", soft_wrap=True)
    more = None if quick else outcome.more()
    if more:
        again = command(name, folder, seeds=more[0], **how)
        console.out.print(f"{more[1]}: {escape(again)}", soft_wrap=True)
    report = folder / JOBS / name / "page.html"
    if report.is_file():
        console.out.print(f"a page with all runs: {escape(str(report))}", soft_wrap=True)


@app.command()
def judge(
    folder: Annotated[Path, typer.Option("--out", help="Folder with the results.")] = Path("fedpick-studies"),
    page: Annotated[
        Path | None,
        typer.Option("--page", help="A page; the numbers are written between its marks studies:begin and studies:end."),
    ] = None,
    guide: Annotated[
        Path | None, typer.Option("--guide", help="The page that advises on policies, from the tournament's results.")
    ] = None,
    paces: Annotated[
        Path | None, typer.Option("--paces", help="The page that compares rounds with training without them.")
    ] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the figures and show them on the pages.")] = False,
    pack: Annotated[
        bool, typer.Option("--pack", help="Add what a GPU measured to the archive of its paper, measured.tar.xz.")
    ] = False,
) -> None:
    """Judge the stored results of `fedpick reproduce` anew and write the index of all papers; nothing runs."""
    from fedpick_papers import studies

    if page is not None:
        studies.check_page(page)  # before anything is written
    for archive in studies.pack(folder) if pack else []:
        console.out.print(f"measurements added to {escape(str(archive))}", soft_wrap=True)
    outcomes = [outcome for name in studies.STUDIES if (outcome := studies.judge(name, folder, draw=draw))]
    if not outcomes:
        raise StoreError(f"{folder}: has no results of studies; run `fedpick reproduce --out {folder}` first")
    console.out.print(f"judged {len(outcomes)} studies: {studies.save_index(outcomes, folder)}", soft_wrap=True)
    if page is not None:
        console.out.print(f"numbers written to {studies.save_summary(outcomes, page)}", soft_wrap=True)
    if guide is not None and (written := studies.save_guide(outcomes, folder, guide)):
        console.out.print(f"advice written to {written}", soft_wrap=True)
    if paces is not None and (written := studies.save_paces(outcomes, folder, paces)):
        console.out.print(f"the page on paces written to {written}", soft_wrap=True)
