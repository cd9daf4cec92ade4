"""The command that repeats the runs of a block."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedpick.core.errors import FedpickError
from fedpick.policies.text import canonical_policy
from fedpick.report.groups import Group
from fedpick.store.manifest import read_manifest

__all__ = ["repeat_command"]

# The options of `fedpick compare` for the settings of [train].
_TRAIN = ("model", "lr", "batch", "algorithm", "prox", "server", "precision", "trainer")
_OPTIONS = {name: f"--{name}" for name in _TRAIN}


def repeat_command(groups: Sequence[Group]) -> str | None:
    """The command that repeats these runs, all of one block; None: real clients, or policies made in Python.

    It is one line, or a file and a line where the settings are more than the options can express.
    """
    try:
        configs = [read_manifest(group.runs[0].info.folder)["config"] for group in groups]
        for config in configs:
            canonical_policy(config["policy"])
        if any("engine" in config for config in configs):
            return None
        seeds = sorted({seed for group in groups for seed in group.seeds})
        rest = configs[0]
        found = {
            "policy": list(dict.fromkeys(str(config["policy"]) for config in configs)),
            "cohort_size": rest["cohort_size"],
            "rounds": max(run.info.rounds or len(run.all_rounds) for group in groups for run in group.runs),
            "seeds": len(seeds) if seeds == list(range(len(seeds))) else seeds,
            "world": {"name": "phones", **(rest.get("world") or {})},  # the default before 0.2
            **{name: rest[name] for name in ("data", "train") if rest.get(name)},
        }
        return _line(found) or _file(found)
    except (FedpickError, KeyError, TypeError, ValueError):
        return None


def _line(plan: Mapping[str, Any]) -> str | None:
    """The plan as options of `fedpick compare`; None if it has settings without an option."""
    world, data, train = plan["world"], plan.get("data") or {}, plan.get("train") or {}
    if isinstance(plan["seeds"], list) or set(world) - {"name", "num_clients"} or set(data) - {"name", "partition"}:
        return None
    if set(train) - set(_OPTIONS):
        return None
    words = ["fedpick", "compare", *(word for policy in plan["policy"] for word in ("-p", policy))]
    words += ["--world", world["name"]]
    words += ["--num-clients", world["num_clients"]] if "num_clients" in world else []
    words += ["--cohort-size", plan["cohort_size"], "--rounds", plan["rounds"], "--seeds", plan["seeds"]]
    words += ["--data", data.get("name", "none")]
    words += ["--partition", data["partition"]] if "partition" in data else []
    words += [word for name, value in train.items() for word in (_OPTIONS[name], value)]
    line = shlex.join(map(str, words))
    return line if line.isprintable() else None  # a file has escapes for other characters


def _file(plan: Mapping[str, Any]) -> str:
    tops = {key: value for key, value in plan.items() if not isinstance(value, dict)}
    lines = [f"{key} = {_toml(value)}" for key, value in tops.items()]
    for name, table in plan.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(["cat > study.toml <<'END'", *lines, "END", "fedpick compare study.toml"])


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _text(text: str) -> str:
    def safe(char: str) -> str:
        return "\\" + char if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08X}"

    return '"' + "".join(map(safe, text)) + '"'


def _toml(value: Any) -> str:
    """A value of a configuration as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    raise TypeError(f"a configuration holds a {type(value).__name__}, which TOML does not have")
