"""`fedpick reproduce` and `fedpick judge`, as a user meets them: commands of an entry point."""

import json
import shlex
import sys
from collections import namedtuple

import pytest

import fedpick.cli.app
from fedpick import cli
from fedpick.cli import console
from fedpick_papers import cli as commands
from fedpick_papers import studies
from fedpick_papers.studies import _storage


@pytest.fixture
def call(capsys, monkeypatch, tmp_path, no_pictures):
    """Call the command line in this process; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    for place in (console.out, console.err):
        monkeypatch.setattr(place, "_width", 200)

    def fedpick(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedpick", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return fedpick


def test_a_study_asks_for_the_seeds_that_would_decide_a_claim(call):
    code, out, _ = call("reproduce", "power-of-choice/fig1", "--seeds", 2, "--workers", 1, "--out", "my studies")
    assert code == 0
    asked = next(line for line in out.splitlines() if line.startswith("3 seeds"))
    head, _, command = asked.partition(": ")
    assert head == "3 seeds are the fewest that can decide a claim"
    assert command == "fedpick reproduce power-of-choice/fig1 --seeds 3 --workers 1 --out 'my studies'"
    code, out, _ = call(*shlex.split(command)[1:])
    assert code == 0
    assert "seeds are" not in out


def test_a_paper_s_name_stands_for_its_studies(call, monkeypatch):
    Outcome = namedtuple("Outcome", "study")
    asked = []
    monkeypatch.setattr(studies, "reproduce", lambda name, **how: asked.append(name) or Outcome(studies.STUDIES[name]))
    monkeypatch.setattr(commands, "_show", lambda *some: None)
    assert call("reproduce", "bsfl", "rbcs-f/fig4", "bsfl/fig5")[0] == 0
    mine = [name for name in studies.STUDIES if name.startswith("bsfl/")]
    assert len(mine) > 3
    assert asked == [*mine, "rbcs-f/fig4"]


def test_stored_studies_are_judged_again(call, tmp_path):
    names = ("Random", *(f"RBCS-F({v})" for v in (1, 10, 50, 100)), "FedCS(3)")
    least = {name: [0.16, 0.17, 0.19] for name in names}
    spread = {name: [0.1, 0.3, 0.2 + i] for i, name in enumerate(names)}
    (tmp_path / "all/rbcs-f/fig4").mkdir(parents=True)
    manifest = {"settings": dict(studies.STUDIES["rbcs-f/fig4"].settings)}
    (tmp_path / "all/rbcs-f/fig4/manifest.json").write_text(json.dumps(manifest))
    result = {"rounds": 500, "longer": 10_000, "guarantee": 0.15, "least": least, "least_later": least}
    result |= {"spread": spread}
    (tmp_path / "all/rbcs-f/fig4/result.json").write_text(json.dumps(result))
    (tmp_path / "page.md").write_text("no marks\n")
    before = sorted((tmp_path / "all").rglob("*"))
    assert call("judge", "--out", "all", "--page", "page.md")[0] == 2
    assert sorted((tmp_path / "all").rglob("*")) == before  # nothing was written
    (tmp_path / "page.md").write_text("<!-- studies:begin -->\n<!-- studies:end -->\n")
    code, out, _ = call("judge", "--out", "all", "--page", "page.md")
    assert code == 0
    assert "judged 1 studies" in out
    assert "**undecided**" in (tmp_path / "all/rbcs-f/fig4/findings.md").read_text()
    assert "3 claims of the five papers" in (tmp_path / "page.md").read_text()
    assert "rbcs-f/fig4" in (tmp_path / "all/index.md").read_text()
    measured = tmp_path / "all" / studies.JOBS / "rbcs-f/fig6-cifar10/uniform-seed-0-0123456789abcdef/measured.npz"
    _storage.write(measured, {"accuracy": 0.5}, {"device": "gpu"})
    code, out, _ = call("judge", "--out", "all", "--pack")
    assert code == 0
    assert "measurements added to all/rbcs-f/measured.tar.xz" in out
    assert "measurements" not in call("judge", "--out", "all", "--pack")[1]


def test_help_shows_what_an_argument_is(capsys):
    with pytest.raises(SystemExit):
        fedpick.cli.app.app(["reproduce", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Studies, as bsfl/fig5, or papers, as bsfl (default: all)." in said
    assert "checks that a study works; its numbers and verdicts are not those of the paper's settings" in said
    with pytest.raises(SystemExit):
        fedpick.cli.app.app(["repoduce"])
    assert capsys.readouterr().err.count("'reproduce'") == 1


def test_a_shell_completes_studies(monkeypatch, capsys):
    monkeypatch.setenv("_FEDPICK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fedpick reproduce e3cs/fig")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        fedpick.cli.app.app(prog_name="fedpick")
    assert capsys.readouterr().out.split() == ["e3cs/fig3", "e3cs/fig4", "e3cs/fig7"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["reproduce", "e3cs/fig5"], "unknown study 'e3cs/fig5'; did you mean e3cs/fig"),
        (["judge", "--out", "full"], "full: has no results of studies; run `fedpick reproduce --out full` first"),
        (["reproduce", "bfsl"], "unknown study 'bfsl'; did you mean bsfl"),
        (["judge", "--page", "full/thesis.tex"], "thesis.tex: has no marks; put"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, tmp_path, arguments, says):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("{}")
    code, out, err = call(*arguments)
    assert code == 2
    assert says in err
    assert err.startswith("error: ")
    assert "Traceback" not in out + err
