"""Names of policies in tables, legends and pages, in place of their texts: "my.py:X=Ours". They never change a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import ConfigError, FedpickError, bare_name, unknown_name
from fedpick.policies.text import canonical_policy
from fedpick.report.runs import RunInfo

__all__ = ["labelled", "read_labels", "resolve"]


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
    called: dict[str, str] = {}
    for policy, label in found.items():
        other = called.setdefault(label or policy, policy)
        if other != policy:
            raise ConfigError(f"label: {other} and {policy} would both be called {label or policy!r}; give another")
    return found


def _match(wanted: str, known: Sequence[str]) -> str:
    """The policy that a text means, of those of some runs; no code that it names is imported."""
    try:
        wanted = user_code.shown(canonical_policy(wanted))
    except FedpickError:  # a policy that was made in Python
        wanted = user_code.shown(wanted)
    same = [policy for policy in known if policy == wanted]
    same += [policy for policy in known if bare_name(policy) == bare_name(wanted)]
    if not same:
        raise unknown_name("policy to label among these", wanted, list(known))
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
