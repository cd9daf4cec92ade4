"""`make audit`: known vulnerabilities are kept out of the lock and of what may be installed, without a network."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    for name in (".ci/advisories.txt", "pyproject.toml", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_is_found_here(audit) -> None:
    assert audit.findings(ROOT) == []
    done = subprocess.run([sys.executable, ROOT / ".ci" / "audit.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("audit: none of ")) == (0, True)


@pytest.mark.parametrize(
    ("floor", "lower"),
    [
        ("filelock>=3.20.3", "filelock>=3.20.2"),
        ("jinja2>=3.1.6", "jinja2>=3.1"),
        ("pillow>=12.2", "pillow>=12.1.1"),
        ("scikit-learn>=1.5", "scikit-learn"),
    ],
)
def test_a_floor_below_a_known_vulnerability_is_found(audit, checkout: Path, floor: str, lower: str) -> None:
    change(checkout / "pyproject.toml", f'"{floor}"', f'"{lower}"')
    assert any(f"pyproject.toml: {lower} allows" in line and "CVE-" in line for line in audit.findings(checkout))


def test_a_pin_with_a_known_vulnerability_is_found(audit, checkout: Path) -> None:
    (checkout / ".ci" / "advisories.txt").write_text("Jinja2 >=3,<4 CVE-1 https://example.org/1\n")
    assert any(line.startswith("requirements-dev.lock: jinja2 3.") for line in audit.findings(checkout))


def test_a_pin_without_a_hash_is_found(audit, checkout: Path) -> None:
    with (checkout / "requirements-dev.lock").open("a") as lock:
        lock.write("something==1.0\n")
    assert audit.findings(checkout) == ["requirements-dev.lock: something has no hash; make lock"]


def test_a_line_that_cannot_be_read_is_an_error(audit, checkout: Path) -> None:
    (checkout / ".ci" / "advisories.txt").write_text("# a comment\n\njinja2 <3 CVE-1 http://example.org\n")
    with pytest.raises(ValueError, match=r"advisories.txt, line 3: must be package, affected versions, id, https"):
        audit.findings(checkout)


def test_ranges_that_meet(audit) -> None:
    for wanted, affected, found in [
        (">=1,<3", ">=2,<4", "2"),
        (">=3", ">=1,<3", None),
        ("", "<1", "0"),
        (">=1.5,<2", "<1.5", None),
        (">=1,<2", ">=0.5,<1.2", "1"),
    ]:
        assert audit.allows(audit.SpecifierSet(wanted), audit.SpecifierSet(affected)) == (
            found and audit.Version(found)
        )


def test_every_pin_of_the_lock_is_read(audit) -> None:
    lines = [line for line in (ROOT / "requirements-dev.lock").read_text().splitlines() if "==" in line.split(";")[0]]
    assert sum(map(len, audit.pins(ROOT / "requirements-dev.lock").values())) == len(lines) > 200
