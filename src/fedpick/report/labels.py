"""Names of policies in tables, legends and pages: labels such as "my.py:X=Ours", and versions of the user's code.

A name never changes a run.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import ConfigError, FedpickError, bare_name, unknown_name
from fedpick.policies.text import canonical_policy
from fedpick.report.runs import RunInfo
from fedpick.store.manifest import MANIFEST

__all__ = ["labelled", "read_labels", "resolve", "short_version", "with_versions"]


def labelled(runs: Sequence[RunInfo], given: Mapping[str, str]) -> list[RunInfo]:
    """The runs with labels for their policies; see `resolve`."""
    names = resolve(given, {run.policy: run.label for run in runs})
    return [replace(run, label=names[run.policy]) for run in runs]


def resolve(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The label of every policy; raises for an unknown policy, or if two would have the same name.

    Args:
        given: policy -> label; a policy may be written in any way.
        known: policy -> label so far, or "".
    """
    found = dict(known) | {_match(policy, list(known)): label for policy, label in given.items()}
    policies: dict[str, str] = {}  # by name
    for policy, label in found.items():
        other = policies.setdefault(label or policy, policy)
        if other != policy:
            raise ConfigError(f"label: {other} and {policy} would both be called {label or policy!r}; give another")
    return found


def _match(wanted: str, known: Sequence[str]) -> str:
    """Which of the known policies a text means; no code that the text names is imported."""
    try:
        wanted = user_code.shown(canonical_policy(wanted))
    except FedpickError:  # a policy that was made in Python
        wanted = user_code.shown(wanted)
    same = [policy for policy in known if policy == wanted]
    same += [policy for policy in known if bare_name(policy) == bare_name(wanted)]
    if not same:
        raise unknown_name("policy in a label", wanted, list(known))
    return same[0]


def read_labels(given: Any) -> dict[str, str]:
    """Labels of policies, from texts such as "my.py:X=Ours" or a mapping.

    >>> read_labels(["my.py:X=Ours", "e3cs(quota=0.5)=E3CS"])
    {'my.py:X': 'Ours', 'e3cs(quota=0.5)': 'E3CS'}
    """
    if given is None:
        return {}
    pairs = given.items() if isinstance(given, Mapping) else (_pair(text) for text in given)
    found = {}
    for policy, label in pairs:
        if not (isinstance(label, str) and label.strip() and label.isprintable()):
            raise ConfigError(f"label: {label!r} for {policy}, but must be a text to be shown, such as 'Ours'")
        found[policy] = label.strip()
    return found


def _pair(text: str) -> tuple[str, str]:
    """Policy and label: divided at the first "=" that is not in brackets."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "=" and depth == 0:
            return text[:i].strip(), text[i + 1 :]
    raise ConfigError(f"label = {text!r}, but must be a policy and its name: 'my.py:X=Ours'")


# ---- versions of seeds, and of the user's code, which are shown separately and compared only if the user names one


def with_versions(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], list[str]]:
    """The runs with the versions of their code and of what seeds mean, and a note for each that has several."""
    found, notes = _with_versions_of_code(runs)
    numbers = sorted({run.numbers for run in runs if run.simulated})
    if len(numbers) > 1:
        found = [_seeds(run) if run.simulated else run for run in found]
        notes.append(
            "with the same seed, these runs are not in the same world: they are of versions of fedpick that draw other "
            f"durations and failures ({'; '.join(numbers)}), and are not compared with each other. fedpick runs FOLDER "
            "--prune removes those that no plan asks for any more"
        )
    return found, notes


def _seeds(run: RunInfo) -> RunInfo:
    text = f"seeds of fedpick {run.numbers}"
    return replace(run, setting_version=", ".join(filter(None, [run.setting_version, text])))


def _with_versions_of_code(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], list[str]]:
    seen: dict[str, dict[str, RunInfo]] = {}
    for run in runs:
        for name, text in run.code.items():
            if run.simulated:
                seen.setdefault(name, {}).setdefault(text, run)
    several = {name: versions for name, versions in seen.items() if len(versions) > 1}
    if not several:
        return list(runs), []
    found = []
    for run in runs:
        named = {name: short_version(text) for name, text in run.code.items() if name in several}
        policy = [f"code {text}" for name, text in named.items() if name in run.policy]
        rest = [f"{name} (code {text})" for name, text in named.items() if name not in run.policy]
        found.append(replace(run, version=", ".join(policy), setting_version=", ".join(rest)))
    return found, [_note(name, versions) for name, versions in several.items()]


def short_version(text: str) -> str:
    """The name of a version of code.

    >>> short_version("loop.py 1f2e3d4c5b6a7988, numpy 2.3.1")
    '3d571a'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _note(name: str, versions: dict[str, RunInfo]) -> str:
    texts = sorted(versions, key=lambda text: _written(versions[text]))
    changed = user_code.differences(texts[-2], texts[-1])
    dates = ", ".join(f"{short_version(text)} ({_written(versions[text]):%Y-%m-%d %H:%M})" for text in texts)
    return (
        f"{name}: these runs are of {len(texts)} versions of the code, which are not compared with each other: {dates}"
        f"; in the last, {'; '.join(changed)}. fedpick compare shows the runs of the current code alone"
    )


def _written(run: RunInfo) -> datetime:
    return datetime.fromtimestamp((run.folder / MANIFEST).stat().st_mtime)
