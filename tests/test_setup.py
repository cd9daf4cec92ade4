"""Setting up from the locks: closed, alike, and installed by the oldest pip that a supported Python ships."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
OLDEST_PIP = "22.3"  # of Python 3.11.0


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    import closed

    yield closed
    sys.modules.pop("closed")


def without(lock: Path, name: str, to: Path) -> Path:
    """A lock with one package less."""
    text, count = re.subn(rf"^{name}==.*\n(    --hash.*\n)+", "", lock.read_text(), flags=re.MULTILINE)
    assert count > 0
    to.write_text(text)
    return to


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_requirement_of_every_locked_package_is_met_inside_the_lock(closed, name: str) -> None:
    assert closed.findings(ROOT / name, closed.LOCKS[name]) == []


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("rich", r"requires rich>=13.7; extra == \"(cli|report)\", which is missing"),  # by fedpick itself
        ("llvmlite", r"numba \S+ requires llvmlite.*, which is missing"),
        ("colorama", r"click \S+ requires colorama; .*, which is missing \(Python 3.11 on Windows\)"),  # elsewhere
    ],
)
def test_what_a_lock_lacks_is_found(closed, tmp_path: Path, name: str, required: str) -> None:
    lock = without(ROOT / "requirements.lock", name, tmp_path / "a.lock")
    found = closed.findings(lock, closed.LOCKS["requirements.lock"])
    assert any(re.fullmatch(rf"a\.lock: .*{required}.*", line) for line in found), found


def test_what_only_an_extra_requires_is_followed(closed, tmp_path: Path) -> None:
    """flwr requires uvicorn[standard], which alone requires watchfiles."""
    lock = without(ROOT / "requirements-dev.lock", "watchfiles", tmp_path / "a.lock")
    (found,) = closed.findings(lock, closed.LOCKS["requirements-dev.lock"])
    assert re.match(r"a\.lock: uvicorn\[standard\] \S+ requires watchfiles.*which is missing", found)


def test_a_version_that_another_package_refuses_is_found(closed, tmp_path: Path) -> None:
    lock = without(ROOT / "requirements.lock", "llvmlite", tmp_path / "a.lock")
    lock.write_text(lock.read_text() + "llvmlite==0.1\n")
    found = closed.findings(lock, closed.LOCKS["requirements.lock"])
    assert any(re.match(r"a\.lock: numba \S+ requires llvmlite.*, but 0\.1 is locked", line) for line in found), found
    assert "a.lock: llvmlite 0.1 is not installed, so what it requires is not known" in "\n".join(found)
    lock.with_suffix(".override").write_text("# why\nllvmlite\n")
    assert not any("is locked" in line for line in closed.findings(lock, closed.LOCKS["requirements.lock"]))


def test_a_locked_package_that_nobody_requires_is_followed_too(closed, tmp_path: Path) -> None:
    """It would be installed, and what it lacks would be missing."""
    (tmp_path / "a.lock").write_text("numba==" + version("numba"))
    found = closed.findings(tmp_path / "a.lock", ())
    assert sorted(re.findall(r"numba \S+ requires ([a-z]+)", "\n".join(found))) == ["llvmlite", "numpy"]


def test_two_versions_of_a_package_for_one_python_are_an_error(closed, tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("a==1 ; python_version >= '3.11'\na==2\n")
    with pytest.raises(ValueError, match=r"a\.lock: two versions of a for Python 3\.1"):
        closed.findings(tmp_path / "a.lock", ("a",))


def test_developers_get_what_users_get_and_more(closed) -> None:
    """So `make test` after `make demo` adds packages and changes none."""
    for environment in closed.environments():
        users = closed.pinned(ROOT / "requirements.lock", environment)
        developers = closed.pinned(ROOT / "requirements-dev.lock", environment)
        assert users.items() < developers.items()
        assert not {"ray", "nvflare", "mlflow-skinny", "wandb", "playwright", "mkdocs", "flwr"} & set(users)


def test_one_range_of_flower_everywhere(closed) -> None:
    """The same in pyproject.toml, examples and their messages; both ends of what was tested have a lock."""
    from fedpick.adapters.flower.versions import NEWEST, OLDEST

    flower = {str(one.specifier) for one in closed.own_requirements(ROOT / "pyproject.toml") if one.name == "flwr"}
    assert flower == {str(SpecifierSet(f">={OLDEST},<2"))}
    files = [*(ROOT / "examples").rglob("*.txt"), *(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("*.md")]
    pattern = re.compile(r"flwr(?:\[simulation\])?[<>=~]=?[0-9.,<>=]+")
    said = {text for file in files for text in pattern.findall(file.read_text())}
    assert {str(Requirement(text).specifier) for text in said} == flower
    here = next(closed.environments())
    locks = sorted(path.relative_to(ROOT) for path in (ROOT / "tests" / "flower").glob("flwr-*.lock"))
    assert [str(path) for path in locks] == [f"tests/flower/flwr-{end}.lock" for end in (OLDEST, NEWEST)]
    versions = [closed.pinned(ROOT / path, here)["flwr"] for path in locks]
    assert [version.rpartition(".")[0] for version in versions] == [OLDEST, NEWEST]


@pytest.mark.slow
def test_the_oldest_pip_sets_up_the_demo_and_then_everything(closed, tmp_path: Path) -> None:
    """make, from an empty environment; then the real demo with what users have."""
    venv = tmp_path / "venv"
    python = tmp_path / "python"  # sets up environments with the oldest pip, as Python 3.11.0 does
    python.write_text(
        f'#!/bin/sh\nset -e\n"{sys.executable}" "$@"\n'
        f'if [ "$2" = venv ]; then "$3/bin/python" -m pip install --quiet pip=={OLDEST_PIP}; fi\n'
    )
    python.chmod(0o755)
    # Whatever would be built from source would need tools of the day, which no lock holds.
    env = os.environ | {"PIP_ONLY_BINARY": ":all:", "PIP_NO_WARN_SCRIPT_LOCATION": "1"}
    for name in ("MAKEFLAGS", "MAKELEVEL", "PYTHONPATH"):
        env.pop(name, None)

    def run(*command: object) -> str:
        done = subprocess.run([str(word) for word in command], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def installed() -> dict[str, str]:
        rows = json.loads(run(venv / "bin" / "python", "-m", "pip", "list", "--format", "json"))
        found = {re.sub(r"[-_.]+", "-", row["name"]).lower(): row["version"] for row in rows}
        assert found.pop("pip") == OLDEST_PIP
        assert found.pop("fedpick")
        return found

    make = (shutil.which("make"), "-C", ROOT, f"VENV={venv}", f"PYTHON={python}")
    here = next(closed.environments())
    run(*make, "setup-demo")
    found = installed()
    found.pop("setuptools", None)  # comes with environments of Python 3.11
    assert found == closed.pinned(ROOT / "requirements.lock", here)
    assert "Next, compare a policy of your own" in run(venv / "bin" / "fedpick", "demo")
    run(*make, "setup")
    found = installed()
    assert found.pop("fedpick-papers")
    assert found == closed.pinned(ROOT / "requirements-dev.lock", here)
    assert "No broken requirements found." in run(venv / "bin" / "python", "-m", "pip", "check")


def test_pytorch_is_in_no_lock_and_its_tests_take_a_version_that_the_extra_allows(closed) -> None:
    locks = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock", *(ROOT / "tests").glob("*/*.lock")]
    assert ROOT / closed.TORCH in locks
    for lock in locks:
        names = {closed.canonicalize_name(entry.name) for entry in closed.entries(lock)}
        assert not [name for name in names if name == "torch" or name.startswith(("nvidia-", "cuda-"))], lock
    (pinned,) = re.findall(r"^TORCH := torch==(\S+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    (wanted,) = [one for one in closed.own_requirements(ROOT / "pyproject.toml") if one.name == "torch"]
    assert wanted.specifier.contains(pinned)
