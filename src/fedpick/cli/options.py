"""Options shared by several commands, and the values that a shell completes."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

__all__ = [
    *("Device", "Executor", "Label", "Target", "Workers"),
    *("complete_data", "complete_policy", "complete_world", "completing", "count"),
]


def count(*names: str, help: str) -> Any:
    """An option that is a whole number >= 1."""
    return typer.Option(*names, help=help, min=1, metavar="N")


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell offers for the beginning of a value; the names are looked up only then."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _policies() -> list[str]:
    from fedpick.policies.text import installed_policies, policy_names

    return [*policy_names(), *installed_policies()]


def _worlds() -> Iterable[str]:
    from fedpick.worlds import WORLDS

    return WORLDS


def _data() -> list[str]:
    from fedpick.data.sources.catalogue import SOURCES

    return ["none", "synthetic(1, 1)", *SOURCES]


complete_policy, complete_world, complete_data = map(completing, (_policies, _worlds, _data))

Workers = Annotated[int | None, count(help="Number of processes (default: one per core).")]
Executor = Annotated[
    str,
    typer.Option(
        help="auto, serial, processes, stacked (many runs in one compiled call), or ray.",
        autocompletion=completing(lambda: ("auto", "serial", "processes", "stacked", "ray")),
    ),
]
Device = Annotated[
    str, typer.Option(help="auto, cpu or gpu.", autocompletion=completing(lambda: ("auto", "cpu", "gpu")))
]
Target = Annotated[
    str | None,
    typer.Option(
        help="A test accuracy such as 0.85, or 'macro_f1=0.8': the table shows rounds and hours until it is reached "
        "(default: 95% of the reference's main metric)."
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option(help="A policy's name in tables and legends: 'my.py:X=Ours'; repeatable.", metavar="POLICY=NAME"),
]
