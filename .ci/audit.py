"""Does the lock pin, or pyproject.toml allow, a version with a known vulnerability? Works offline, from advisories.txt.

python .ci/audit.py [FOLDER]      of a checkout; exit code 1 and a line for each finding
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version


class Advisory(NamedTuple):
    """A line of the list."""

    package: str
    affected: SpecifierSet
    name: str
    source: str


def advisories(path: Path) -> list[Advisory]:
    """The list; ValueError for a line that cannot be read."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 4 or not words[3].startswith("https://"):
            raise ValueError(f"{path.name}, line {number}: must be package, affected versions, id, https source")
        found.append(Advisory(canonicalize_name(words[0]), SpecifierSet(words[1]), words[2], words[3]))
    return found


def pins(path: Path) -> dict[str, set[Version]]:
    """Versions of each package in a lock; markers can give one package several."""
    found: dict[str, set[Version]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(Version(version))
    return found


def unhashed(path: Path) -> list[str]:
    """Packages of a lock without a hash."""
    entries = path.read_text().replace("\\\n", " ").splitlines()
    return [line.split("==")[0] for line in entries if "==" in line and "--hash=sha256:" not in line]


def allows(wanted: SpecifierSet, affected: SpecifierSet) -> Version | None:
    """A version that both contain, if there is one: two ranges that meet do so at the beginning of one of them."""
    begins = [each.version for each in (*wanted, *affected) if each.operator in (">=", "==", "~=")]
    for version in map(Version, ["0", *begins]):
        if wanted.contains(version, prereleases=True) and affected.contains(version, prereleases=True):
            return version
    return None


def findings(folder: Path) -> list[str]:
    """What is wrong, a line each."""
    known = advisories(folder / ".ci" / "advisories.txt")
    lock = folder / "requirements-dev.lock"
    pinned = pins(lock)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {})
    wanted = [Requirement(text) for texts in (project["dependencies"], *extras.values()) for text in texts]
    found = [f"{lock.name}: {name} has no hash; make lock" for name in unhashed(lock)]
    for one in known:
        for version in sorted(pinned.get(one.package, ())):
            if one.affected.contains(version, prereleases=True):
                found.append(f"{lock.name}: {one.package} {version} has {one.name}, see {one.source}")
        for requirement in {str(each): each for each in wanted if canonicalize_name(each.name) == one.package}.values():
            if version := allows(requirement.specifier, one.affected):
                found.append(f"pyproject.toml: {requirement} allows {version}, which has {one.name}, see {one.source}")
    return found


def main() -> int:
    """Print the findings."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    found = findings(folder)
    for line in found:
        print(line)
    if not found:
        known = advisories(folder / ".ci" / "advisories.txt")
        pinned = pins(folder / "requirements-dev.lock")
        about = f"{len({one.package for one in known} & set(pinned))} of {len(pinned)} locked packages"
        print(f"audit: none of {len(known)} known vulnerabilities of {about}; every file of the lock has a hash")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
