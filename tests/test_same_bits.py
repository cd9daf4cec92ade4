"""The script that plays configurations before and after a change: it repeats itself, and sees what changed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "same_bits.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    both = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    for folder in both:
        done = run("write", folder, "--once", "--only", "over-select of guard", "--only", "session, names")
        assert done.returncode == 0, done.stderr
    return both


def test_two_configurations_repeat_themselves(folders: tuple[Path, Path]) -> None:
    done = run("compare", *folders, "--only", "over-select of guard", "--only", "session, names")
    assert done.returncode == 0, done.stdout
    assert "2 of 2 configurations are equal, bit for bit" in done.stdout


def test_a_changed_array_is_found(folders: tuple[Path, Path], tmp_path: Path) -> None:
    old, _ = folders
    with np.load(old / "over-select-of-guard.npz") as kept:
        arrays = dict(kept)
    name = next(each for each in arrays if each.endswith("rounds|clock"))
    arrays[name] = arrays[name].copy()
    arrays[name][3] = np.nextafter(arrays[name][3], np.inf)  # the last bit
    np.savez(tmp_path / "over-select-of-guard.npz", **arrays)
    done = run("compare", old, tmp_path, "--only", "over-select of guard", "--only", "session, names")
    assert done.returncode == 1
    changed, missing, total = done.stdout.splitlines()
    assert changed.startswith(f"DIFFERS  over-select of guard: 1 of {len(arrays)} arrays; ")
    assert "rounds/clock: 1 of 30 numbers differ, by at most" in changed
    assert missing == "MISSING  session, names: not in both folders"
    assert total == "0 of 2 configurations are equal, bit for bit"


def test_new_columns_are_no_difference_and_lost_ones_are(folders: tuple[Path, Path], tmp_path: Path) -> None:
    old, only = folders[0], ("--only", "session, names")
    with np.load(old / "session-names.npz") as kept:
        np.savez(tmp_path / "session-names.npz", **dict(kept), **{"records|rounds|more": np.zeros(2)})
    more = run("compare", old, tmp_path, *only)
    assert more.returncode == 0
    assert "and 1 more in the new one" in more.stdout
    less = run("compare", tmp_path, old, *only)
    assert less.returncode == 1
    assert "records/rounds/more is only in the old one" in less.stdout


def test_the_old_draws_are_others(tmp_path: Path) -> None:
    for folder, more in (("new", ()), ("old", ("--old-draws",))):
        assert not run("write", tmp_path / folder, "--once", "--only", "uniform", *more).returncode
    assert (
        "selections/duration" in run("compare", tmp_path / "old", tmp_path / "new", "--only", "uniform", "--all").stdout
    )


def test_the_names_are_listed_and_others_refused(tmp_path: Path) -> None:
    assert len(run("list").stdout.splitlines()) >= 24
    done = run("write", tmp_path, "--only", "nothing")
    assert done.returncode == 2
    assert "no configuration is called 'nothing'" in done.stderr
