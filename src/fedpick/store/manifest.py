"""A run's manifest: its configuration, and the versions and machine that produced the result."""

import hashlib
import json
import os
import platform
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedpick._support import atomic, git, user_code
from fedpick._support.archive import is_newer
from fedpick._version import NUMBERS, __version__
from fedpick.core.errors import FedpickError, StoreError
from fedpick.policies.text import canonical_policy

__all__ = [
    *("as_json", "checked_json", "identity", "last_entry", "machine", "next_entry", "numbers_of"),
    *("read_manifest", "run_of", "same_run", "summed_json", "write_manifest"),
]

MANIFEST = "manifest.json"
LABELS = "labels.json"  # of policies, in the folder of a comparison
_THEN = ", then "


@lru_cache(maxsize=1)  # a process runs the files that it was started with
def _source_hash() -> str:
    """Hash of fedpick's source files: identifies the code that computed the result, also between two versions."""
    root, found = Path(__file__).parents[1], hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


@lru_cache(maxsize=1)  # finding them takes longer than a short run
def _versions() -> dict[str, str]:
    """Of the packages that are installed and can change a result."""
    found = {}
    for name in ("numpy", "scipy", "numba", "pyarrow", "jax", "torch", "flwr"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine() -> dict[str, Any]:
    """Versions, commit and machine that produced a result."""
    return {
        "fedpick": __version__,
        "numbers": NUMBERS,
        "versions": dict(_versions()),
        "python": platform.python_version(),
        "source": _source_hash(),
        "commit": git.commit(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def as_json(value: Any) -> Any:
    """The value after a round trip through JSON, to compare a configuration with the manifest's."""
    return json.loads(json.dumps(value, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)))


def same_run(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two configurations describe the same run.

    The number of rounds (a run may be continued), the checkpoint interval and spaces in a policy's text do not count.
    """
    return _what(one) == _what(other)


def identity(config: dict[str, Any]) -> str:
    """Hash of a configuration without the number of rounds and the checkpoint interval; it is in all files of a run."""
    text = json.dumps(_what(as_json(config)), sort_keys=True)
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def run_of(manifest: dict[str, Any]) -> str:
    """The `identity` of the run that a manifest describes."""
    return str(manifest.get("run") or identity(manifest["config"]))


def _what(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that determines the records."""
    found = {**config, "rounds": 0, "checkpoint_every": 0}
    with suppress(FedpickError, KeyError, TypeError, AttributeError):  # a deployment's policy may be any text
        found["policy"] = user_code.shown(canonical_policy(config["policy"]))
    return found


def next_entry(before: Any, now: Any) -> Any:
    """The new entry of "about" when a run continues elsewhere: texts are joined, other values replaced.

    >>> next_entry("cpu", "gpu: NVIDIA H200")
    'cpu, then gpu: NVIDIA H200'
    >>> next_entry("cpu, then gpu: NVIDIA H200", "gpu: NVIDIA H200")
    'cpu, then gpu: NVIDIA H200'
    """
    if not (isinstance(before, str) and isinstance(now, str)):
        return now
    return before if last_entry(before) == now else before + _THEN + now


def last_entry(text: str) -> str:
    """The last of the texts that `next_entry` joined."""
    return text.rsplit(_THEN, 1)[-1]


def _sum(content: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in content.items() if key != "sum"}, sort_keys=True)
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()


def summed_json(content: dict[str, Any]) -> str:
    """Content as a JSON text with a checksum of it."""
    content = as_json(content)
    return json.dumps({**content, "sum": _sum(content)}, indent=1) + "\n"


def checked_json(text: str | bytes) -> dict[str, Any]:
    """The content of such a text; a ValueError if its checksum is wrong. A text without a checksum is accepted."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("it is not a table")
    expected = content.pop("sum", None)
    if expected is not None and expected != _sum(content):
        raise ValueError("it was changed after it was written, its sum is another")
    return content


def _comparable(content: dict[str, Any]) -> bool:
    """Whether the run's hash can be checked: it is of this version, and needs no policy's file that may be missing."""
    policy = str(content["config"].get("policy"))
    return "run" in content and content.get("fedpick") == __version__ and not user_code.references(policy)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a run's manifest; its "config" is the configuration."""
    manifest = Path(path) / MANIFEST
    if not manifest.is_file():
        raise StoreError(f"{path}: is not a run's folder: it has no manifest.json; start a run with fedpick run")
    try:
        text = manifest.read_bytes()
        content = checked_json(text)
        study = "study" in content and "config" not in content
        if not study and not isinstance(content["config"], dict):
            raise TypeError("its config is not a table")
        if "run" in content and b'"sum"' not in text:
            raise ValueError("it was changed after it was written, its sum is gone")
        if not study and _comparable(content) and content["run"] != identity(content["config"]):
            raise ValueError("its configuration is not that of the run")
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise StoreError(
            f"{manifest}: cannot be read ({type(error).__name__}: {str(error)[:200]}); restore it from a backup, or "
            "choose another folder"
        ) from None
    if study:
        raise StoreError(
            f"{path}: holds the result of the study {str(content['study'])[:60]}, not a run; see its findings.md"
        )
    if is_newer(content.get("fedpick")):
        raise StoreError(
            f"{path}: was written by fedpick {str(content['fedpick'])[:40]}, but this is fedpick {__version__}; upgrade"
        )
    return content


def numbers_of(manifest: dict[str, Any]) -> str:
    """Since which minor version a seed gives the numbers of this run; two, joined by "then", if it was continued."""
    return str(manifest.get("numbers", "0.1"))


def write_manifest(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Replace a run's manifest."""
    atomic.write_text(Path(path) / MANIFEST, summed_json(content))
