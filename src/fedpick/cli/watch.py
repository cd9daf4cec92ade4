"""`fedpick watch`, the page beside `fedpick compare --watch`, and `fedpick track`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedpick.cli import console
from fedpick.cli.options import Target
from fedpick.core.errors import StoreError
from fedpick.report import trackers as tracking
from fedpick.report.live import LivePage, serve
from fedpick.report.trackers import TRACKERS

__all__ = ["app", "beside"]

app = typer.Typer()

LINGER = 10.0  # seconds for an open page to fetch the last rounds


@app.command()
def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a run, of comparisons, or of a deployment's records.")
    ],
    port: Annotated[
        int | None, typer.Option(help="Port (default: 8642, or any free one if it is taken).", min=0, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond 127.0.0.1 a token is needed.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FEDPICK_TOKEN", help="A password of 16 characters or more that readers of the page must give."
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Policy that others are compared with (default: the first).")
    ] = None,
    target: Target = None,
) -> None:
    """Show the report as a page that follows runs as they go on, of simulations and of servers (`records=`).

    The page is on this machine only, reads the folder and changes nothing in it. End it with Ctrl-C.

    Example: `fedpick watch fedpick-runs/compare`
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: there is no such folder; give the folder of a run, a comparison or a deployment")
    with serve(LivePage(folder, reference=reference, target=target), host, port, token) as server:
        shown = server.url + ("?token=..., with the token in place of the dots" if token else "")
        console.line(f"{folder} is shown on {shown}\nEnd with Ctrl-C")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            console.out.print("\nended; the runs go on")


@app.command()
def track(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a run, of comparisons, or of a deployment's records.")
    ],
    to: Annotated[str, typer.Option("--to", help=f"{', '.join(TRACKERS[:-1])} or {TRACKERS[-1]}.")],
    where: Annotated[
        str | None,
        typer.Option(help="A folder; for mlflow a store such as sqlite:///mlflow.db (default: in fedpick-tracked/)."),
    ] = None,
    project: Annotated[str, typer.Option(help="Name of the experiment or project in the tracker.")] = "fedpick",
    follow: Annotated[bool, typer.Option("--follow", help="Keep copying until the runs have ended.")] = False,
) -> None:
    """Copy the rounds of runs into TensorBoard, MLflow, or Weights & Biases (offline).

    What was copied before is not copied again.

    Example: `fedpick track fedpick-runs/compare --to mlflow --where sqlite:///mlflow.db`
    """

    def tell(name: str, rounds: int) -> None:
        console.line(f"{name}: {rounds:,} rounds")

    try:
        total = tracking.track(folder, to, where, project=project, follow=follow, tell=tell)
    except KeyboardInterrupt:
        console.out.print("\nended; the same command goes on from here")
        return
    console.line(f"{total:,} new rounds are in {to}")


@contextmanager
def beside(folder: Path, target: str | None, metric: str | None) -> Iterator[None]:
    """Show a folder as a page while something else works in it.

    Args:
        folder: to show; it need not exist yet.
        target: as for `fedpick compare`.
        metric: the main one.
    """
    page = LivePage(folder, target=target, metric=metric)
    with serve(page, "127.0.0.1", None, None) as server:
        console.line(f"watch it on {server.url}", console.err)
        yield
        page.settle(LINGER)
