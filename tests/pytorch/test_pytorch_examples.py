"""The notebook and the loop of one's own in examples/, as a reader runs them."""

import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` runs this")

import fedpick as fp

ROOT = Path(__file__).parents[2]


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells, one after another; it holds no output, and its classes are found where a notebook has them."""
    notebook = json.loads((ROOT / "examples" / "pytorch" / "pytorch-in-ten-minutes.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names = vars(sys.modules["__main__"])
    before, printed = dict(names), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            for number, cell in enumerate(cells):
                exec(compile(cell, f"cell {number}", "exec"), names)
        results, own = names["results"].frame(), names["own"].frame()
    finally:
        names.clear()
        names.update(before)
    assert (results["accuracy"] > 0.5).all()
    assert (own["accuracy"] > 0.5).all()
    assert own["worst_decile"].notna().all()
    assert re.search(r"gives outputs of shape|cannot take the inputs", printed.getvalue())


def test_a_training_loop_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in examples/torch_loop.py: 25 lines, and nothing that a trainer gives is missing."""
    from test_use import own_lines

    from fedpick import cli

    source = (ROOT / "examples" / "torch_loop.py").read_text()
    assert own_lines(source) <= 25
    (command,) = re.findall(r"^fedpick (compare .*)$", source, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    options = ["-t", "20", "-s", "1", "-k", "20", "-m", "4", "--workers", "1", "--out", "out"]
    arguments = shlex.split(command.replace("examples/", f"{ROOT}/examples/"))
    monkeypatch.setattr(sys, "argv", ["fedpick", *arguments, *options])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    frame = fp.load(tmp_path / "out").frame()
    assert len(frame) == 3
    assert (frame["accuracy"] > 0.6).all()
    assert np.isfinite(frame["worst_decile"]).all()
    assert "no scores of single clients" not in printed.getvalue()
