"""Commands that list policies and worlds, and that check a user's own policy."""

import inspect
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedpick import policy_names
from fedpick._support import user_code
from fedpick.cli import console
from fedpick.cli.options import complete_policy, count
from fedpick.core import checks
from fedpick.core.errors import CheckError, ConfigError
from fedpick.policies.text import find_policy, installed_policies
from fedpick.policies.text import policy as policy_from_text
from fedpick.worlds import WORLDS

__all__ = ["app"]

app = typer.Typer()


@app.command()
def policies(
    name: Annotated[
        str | None, typer.Argument(help="Show the documentation of this policy.", autocompletion=complete_policy)
    ] = None,
) -> None:
    """List the policies and their settings."""
    if name is not None:
        made = find_policy(name)
        console.out.print(escape(inspect.getdoc(getattr(made, "func", made)) or ""))
        return
    table = Table(title="write a policy like e3cs(quota=0.5); fedpick policies NAME shows details")
    for heading in ("policy", "what it does", "settings"):
        table.add_column(heading)
    for text, maker in policy_names().items():
        target = getattr(maker, "func", maker)
        line = (inspect.getdoc(target) or "").splitlines()[0]
        taken = [p for p in inspect.signature(maker).parameters if p != "cohort_size"]
        table.add_row(text, escape(line), ", ".join(taken))
    for text, entry in installed_policies().items():
        table.add_row(text, f"from an installed package: {escape(entry.value)}", "")
    console.out.print(table)
    console.out.print("a policy of your own can be used in the same places: 'FILE.py:Class(setting=...)'", markup=False)


@app.command()
def worlds() -> None:
    """List the worlds, and the parts that a configuration file can replace in them."""
    from fedpick.experiment import PARTS  # slow to import

    table = Table(title=escape("worlds: fedpick compare --world NAME, or name = in [world] of a configuration"))
    for heading in ("world", "what it is"):
        table.add_column(heading)
    for name, maker in WORLDS.items():
        table.add_row(name, escape((maker.__doc__ or "").splitlines()[0]))
    console.out.print(table)
    parts = Table(title=escape('parts: availability = "bernoulli(p=0.8)" in [world]'))
    parts.add_column("part")
    parts.add_column("names and settings")
    for part, makers in PARTS.items():
        lines = [f"{name}({', '.join(inspect.signature(maker).parameters)})" for name, maker in makers.items()]
        parts.add_row(part, escape("\n".join(lines)))
    console.out.print(parts)


@app.command()
def check(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:POLICY", help="A file and a policy's name in it, or a built-in policy.")
    ],
    cohort_size: Annotated[int, count("--cohort-size", "-m", help="Clients chosen per round.")] = 5,
) -> None:
    """Check whether a policy follows the rules that fedpick relies on."""
    if target.endswith(".py"):
        raise ConfigError(f"{target!r} names no policy; write it like examples/my_policy.py:RoundRobin")
    given = f"{target} with cohort_size={cohort_size}"
    policy = user_code.call(given, lambda: policy_from_text(target, cohort_size=cohort_size))
    try:
        for rule in checks.check_policy(policy):
            console.out.print(f"[green]keeps[/]  {rule}")
    except CheckError as error:
        console.out.print(escape(str(error)))
        raise typer.Exit(1) from None
    console.out.print(f"{type(policy).__name__} keeps all rules")
