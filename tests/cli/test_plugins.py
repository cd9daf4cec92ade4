"""Commands of other packages, and those of fedpick-papers where it is not installed."""

import sys
from importlib.metadata import EntryPoint

import pytest
import typer

from fedpick.cli import console, plugins


@pytest.fixture
def call(monkeypatch, capsys):
    """Call an app that has the commands of these entry points; returns exit code, standard output and error."""
    monkeypatch.setenv("COLUMNS", "200")
    for place in (console.out, console.err):
        monkeypatch.setattr(place, "_width", 200)

    def run(entries, *arguments):
        monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == "fedpick.commands" else [])
        app = typer.Typer(pretty_exceptions_enable=False)
        app.command("first")(lambda: None)
        plugins.add_commands(app)
        monkeypatch.setattr(sys, "argv", ["fedpick", *arguments])
        with pytest.raises(SystemExit) as stop:
            console.run(app)
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.mark.parametrize("arguments", [["reproduce"], ["reproduce", "e3cs/fig4", "--quick"], ["judge", "--out", "x"]])
def test_without_the_papers_their_commands_say_in_one_line_what_to_install(call, arguments):
    code, out, err = call([], *arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert f"error: `fedpick {arguments[0]}` is a command of the package fedpick-papers: in a clone" in err
    assert "Traceback" not in out + err


def test_without_the_papers_their_commands_are_listed(call):
    code, out, _ = call([], "--help")
    assert code == 0
    assert "Rerun the papers' experiments and compare our results with the printed ones. Needs the package" in out
    said = " ".join(call([], "judge", "--help")[1].split())
    assert "Needs the package fedpick-papers: in a clone of the repository, pip install" in said


added = typer.Typer()


@added.command()
def judge() -> None:
    """Judge otherwise."""
    console.out.print("judged otherwise")


MINE = EntryPoint("mine", "test_plugins:added", plugins.GROUP)


def test_an_installed_package_adds_its_commands(call):
    assert call([MINE], "judge")[:2] == (0, "judged otherwise\n")
    assert call([MINE], "reproduce")[0] == 2


def test_a_package_that_cannot_be_imported_does_not_stop_the_others(call):
    code, out, err = call([EntryPoint("broken", "no_such_module:app", plugins.GROUP), MINE], "judge")
    assert (code, out) == (0, "judged otherwise\n")
    assert err == "warning: no_such_module:app gives no commands (No module named 'no_such_module')\n"
