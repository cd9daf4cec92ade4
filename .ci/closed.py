"""Are the locks closed: is every requirement of every locked package, extras included, met inside its lock?

python .ci/closed.py [LOCK ...]     where the locks are installed; exit code 1 and a line for each finding

The Makefile installs locks and resolves nothing. What a lock lacks would then be missing without an error, and what it
holds in a version that another package refuses would only show when something breaks.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent

# What `make lock` resolves for each lock that is installed into .venv.
LOCKS = {
    "requirements.lock": ("fedpick[cli,learn,report]", "editables", "hatchling"),
    "requirements-dev.lock": ("fedpick[dev]",),
}
# PyTorch itself is in no lock, but what the installed one requires is.
TORCH = "tests/pytorch/torch.lock"
FLOWER = ("fedpick[cli,flower,learn,report]", "editables", "hatchling", "hypothesis", "pytest")

Environment = dict[str, str]
PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
SYSTEMS = (("linux", "Linux", "posix"), ("darwin", "Darwin", "posix"), ("win32", "Windows", "nt"))


def environments() -> Iterator[Environment]:
    """This machine's, then those of every supported Python on every system."""
    here = {name: str(value) for name, value in default_environment().items()}
    yield here
    for python in PYTHONS:
        for sys_platform, system, os_name in SYSTEMS:
            yield here | {
                "python_full_version": python,
                "python_version": python.rpartition(".")[0],
                "sys_platform": sys_platform,
                "platform_system": system,
                "os_name": os_name,
            }


def entries(path: Path) -> list[Requirement]:
    """The lines of a lock, or of any list of requirements, without hashes and comments."""
    lines = (line.partition(" \\")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "--hash"))]


def pinned(lock: Path, environment: Environment) -> dict[str, str]:
    """Version of each package that a lock installs in an environment."""
    found: dict[str, str] = {}
    for entry in entries(lock):
        if entry.marker is None or entry.marker.evaluate(environment):
            name = canonicalize_name(entry.name)
            if name in found:
                raise ValueError(f"{lock.name}: two versions of {name} for Python {environment['python_version']}")
            found[name] = str(entry.specifier).removeprefix("==")
    return found


@cache
def own_requirements(pyproject: Path) -> list[Requirement]:
    """fedpick's requirements, as its metadata would say them."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = [
        Requirement(f"{text}; extra == '{extra}'")
        for extra, texts in project["optional-dependencies"].items()
        for text in texts
    ]
    return [Requirement(text) for text in project["dependencies"]] + extras


@cache
def installed_requirements(name: str, version: str) -> list[Requirement] | None:
    """What an installed package requires; None if it is not installed in this version."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return [Requirement(text) for text in found.requires or ()] if found.version == version else None


def added(required: list[Requirement], environment: Environment, extra: str) -> list[Requirement]:
    """Those of a package's requirements that an extra adds, or for "" those that hold without any."""

    def applies(one: Requirement, extra: str) -> bool:
        return one.marker is None or one.marker.evaluate(environment | {"extra": extra})

    return [one for one in required if applies(one, extra) and not (extra and applies(one, ""))]


def roots_of_torch(lock: Path) -> tuple[str, ...]:
    """What the lock for PyTorch holds: all but PyTorch, and what only its build for CUDA requires (the .override)."""
    left_out = {canonicalize_name(one.name) for one in entries(lock.with_suffix(".override"))} | {"torch"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["torch"]
    needed = [one for one in distribution("torch").requires or () if "extra ==" not in one]
    wanted = [one for one in (*extra, *needed) if canonicalize_name(Requirement(one).name) not in left_out]
    tools = ("datasets", "flwr-datasets", "editables", "hatchling", "hypothesis", "pytest")
    return ("fedpick[cli,learn,report]", *wanted, *tools)


def roots_of(lock: str) -> tuple[str, ...]:
    """What `make lock` resolves for a lock; tests/flower/flwr-1.38.lock is for the tests of Flower 1.38."""
    if lock == TORCH:
        return roots_of_torch(ROOT / lock)
    flower = re.fullmatch(r"tests/flower/flwr-([0-9.]+)\.lock", lock)
    return (*FLOWER, f"flwr[simulation]=={flower[1]}.*") if flower else LOCKS[lock]


def findings(lock: Path, roots: tuple[str, ...], pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """What is missing or of a refused version, a line each, for the first Python and system that it concerns.

    A file beside the lock that ends in .override replaces what packages require, as it did when the lock was made.
    Requirements of packages that are not installed here, because only other systems or Pythons need them, are not
    known and are not followed.
    """
    overriding = lock.with_suffix(".override")
    overrides = {canonicalize_name(one.name): one for one in (entries(overriding) if overriding.exists() else ())}
    found: dict[str, str] = {}
    every = list(environments())
    for environment in every:
        where = f"Python {environment['python_version']} on {environment['platform_system']}"
        versions = pinned(lock, environment) | {"fedpick": ""}
        seen: set[tuple[str, str]] = set()  # packages, each with an extra or "" for none
        waiting = [("make lock", Requirement(text)) for text in (*roots, *versions)]
        while waiting:
            who, wanted = waiting.pop()
            name = canonicalize_name(wanted.name)
            if name not in versions:
                found.setdefault(f"{who} requires {wanted}, which is missing", where)
                continue
            version = versions[name]
            if version and not overrides.get(name, wanted).specifier.contains(version, prereleases=True):
                found.setdefault(f"{who} requires {wanted}, but {version} is locked", where)
            required = installed_requirements(name, version) if version else own_requirements(pyproject)
            if required is None and environment is every[0]:
                found.setdefault(f"{name} {version} is not installed, so what it requires is not known", where)
            for extra in sorted({"", *wanted.extras}):
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    label = f"{name}[{extra}] {version}" if extra else f"{name} {version}"
                    waiting += [(label.strip(), one) for one in added(required or [], environment, extra)]
    return [f"{lock.name}: {text} ({where})" for text, where in found.items()]


def main() -> int:
    """Print the findings."""
    names = sys.argv[1:] or list(LOCKS)
    found = [line for name in names for line in findings(ROOT / name, roots_of(name))]
    for line in found:
        print(line)
    if found:
        print("After make lock and make setup, every requirement should be met.")
    else:
        count = len({entry.name for name in names for entry in entries(ROOT / name)})
        print(f"closed: the requirements of {count} packages are met in {', '.join(names)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
