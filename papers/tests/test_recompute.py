"""The program that computes the headline claims again: it agrees, it would notice, and it is independent."""

import ast
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM, STORED = ROOT / "papers" / "recompute.py", ROOT / "docs" / "studies"


def test_intervals_and_verdicts_of_the_headline_claims_are_found_again():
    command = [sys.executable, PROGRAM, STORED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "claims computed again, 0 differ" in done.stdout


def test_it_shares_no_code_with_the_project():
    tree = ast.parse(PROGRAM.read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules <= {"json", "math", "sys", "itertools", "pathlib", "numpy", "scipy"}


@pytest.fixture
def run(capsys):
    main = runpy.run_path(str(PROGRAM))["main"]
    return lambda folder: (main(folder), capsys.readouterr().out)


@pytest.fixture
def copied(tmp_path):
    folder = tmp_path / "studies"
    shutil.copytree(STORED, folder, ignore=shutil.ignore_patterns("*.xz", "*.md", ".jobs", "*.png", "*.svg"))
    return folder


def test_a_wrong_verdict_a_wrong_interval_and_a_wrong_part_are_noticed(copied, run):
    at = copied / "verdicts.json"
    rows = json.loads(at.read_text())
    second, first = (row for row in rows if row["study"] in ("rbcs-f/fig3", "bsfl/fig4") and row["headline"])
    first["verdict"] = "contradicted"
    second["parts"][0]["values"][0] += 1e-3
    other = next(row for row in rows if not row["headline"] and row["verdict"] == "reproduced" and row["parts"])
    other["parts"][0]["verdict"] = "undecided"
    at.write_text(json.dumps(rows))
    wrong, said = run(copied)
    assert wrong
    assert "reproduced, stored is contradicted" in said
    assert "interval (" in said
    assert f"{other['study']}: {other['parts'][0]['what']}: reproduced, stored is undecided" in said


def test_another_result_is_noticed(copied, run):
    at = copied / "rbcs-f/fig3/result.json"
    result = json.loads(at.read_text())
    result["seconds"]["Random"][0] += 1.0
    at.write_text(json.dumps(result))
    wrong, said = run(copied)
    assert wrong
    assert "rbcs-f/fig3: RBCS-F trains in less time" in said
