"""Writes the command-line reference from the program itself when the site is built."""

import html
import inspect
from collections.abc import Iterator

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedpick.cli.app import app

__all__ = ["on_files", "page"]

_TOP = """# Command line

Written from `fedpick --help` and the help of each command, of this version. A list such as `-p` can be given several times.
"""


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that reach it."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            if not below.hidden:
                yield from _commands(below, (*path, name))
    else:
        yield path, command


def _cell(text: object) -> str:
    return " ".join(html.escape(str(text), quote=False).replace("|", "\\|").split())


def _default(param: click.Parameter) -> str:
    return "" if param.default in (None, False, [], ()) or callable(param.default) else f"`{param.default}`"


def _row(param: click.Parameter) -> str:
    names = "`" + "`, `".join([*param.opts, *param.secondary_opts]) + "`"
    if isinstance(param, click.Argument):
        names = f"`{param.human_readable_name}`"
    kind = "" if isinstance(param, click.Option) and param.is_flag else param.type.name.removesuffix(" range")
    told = _cell(getattr(param, "help", None) or "") + (
        f" Default: {_cell(_default(param))}." if _default(param) else ""
    )
    return f"| {names} | {_cell(kind)} | {told} |"


def page(group: click.Command) -> str:
    """The whole page, as Markdown."""
    parts = [_TOP]
    for path, command in _commands(group, ("fedpick",)):
        usage = " ".join([*path, *command.collect_usage_pieces(click.Context(command))])
        params = [p for p in command.params if not getattr(p, "hidden", False)]
        parts += [f"## {' '.join(path)}\n", f"    {usage}\n", _prose(command.help or "") + "\n"]
        if params:
            rows = ["| argument or option | value | what it does |", "| --- | --- | --- |"]
            parts.append("\n".join(rows + [_row(p) for p in params]) + "\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    return html.escape(inspect.cleandoc(text), quote=False).replace("\b", "")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of the site."""
    files.append(File.generated(config, "reference/commands.md", content=page(typer.main.get_command(app))))
    return files
