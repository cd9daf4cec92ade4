"""Policies from one line of text: "e3cs(quota=0.5)", or "my_policy.py:EpsGreedy(eps=0.1)" for one of your own."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fedpick import policies
from fedpick._support import user_code
from fedpick._support.text import Makers, canonical, make
from fedpick.core import schedules
from fedpick.core.errors import bare_name, find_name, unknown_name
from fedpick.policies.about import About

__all__ = [
    *("GROUP", "canonical_policy", "example", "find_policy", "installed_policies", "label", "policy", "policy_names"),
]

GROUP = "fedpick.policies"  # entry points with which an installed package provides policies
_EXAMPLE = "e3cs(quota=0.5) or uniform; one of your own like my_policy.py:EpsGreedy(eps=0.1)"


def policy_names() -> dict[str, Callable[..., Any]]:
    """All names that `policy` knows, with their classes (or classes with a variant)."""
    names: dict[str, Callable[..., Any]] = {}
    for listed in policies.TABLE.values():
        about: About = listed.about
        maker: Callable[..., Any] = listed
        names |= dict.fromkeys(about.names, maker)
        names |= {name: partial(maker, variant=name) for name in about.variants}
    return names


def installed_policies() -> dict[str, EntryPoint]:
    """Policies of installed packages, by name; each is imported only when it is used."""
    return dict(_installed(entry_points, tuple((path, _changed(path or ".")) for path in sys.path)))


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:  # an entry of sys.path need not exist
        return 0


@lru_cache(maxsize=1)
def _installed(find: Callable[..., Iterable[EntryPoint]], where: Any) -> dict[str, EntryPoint]:
    """What `find` finds; again only where a folder of `sys.path` has changed, since it takes 40 ms."""
    return {entry.name: entry for entry in find(group=GROUP)}


def find_policy(name: str) -> Callable[..., Any]:
    """What makes the policy of this name, be it built in, installed or a reference to a file or module.

    >>> find_policy("E3CS").__name__
    'E3CS'
    """
    return user_code.load(name) if user_code.is_reference(name) else find_name(name, _known(name), "policy")


def _known(text: str) -> dict[str, Callable[..., Any]]:
    """The built-in names, and those of installed packages that occur in the text; a built-in name has priority."""
    known = policy_names()
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    mentioned = {bare_name(name) for name in re.findall(r"(?<![\w.:])[A-Za-z_][\w-]*(?![\w.:]|\s*=)", unquoted)}
    foreign = mentioned - {bare_name(name) for name in _values(known)}
    if foreign:  # looking through the installed packages takes a while
        known |= {name: entry.load() for name, entry in installed_policies().items() if bare_name(name) in foreign}
    return known


def _values(known: Mapping[str, Any]) -> Makers:
    return {name.lower(): getattr(schedules, name) for name in schedules.__all__ if name != "Schedule"} | dict(known)


@cache
def _our_settings() -> frozenset[str]:
    """All settings of the policies that are built in."""
    return frozenset(name for maker in policy_names().values() for name in inspect.signature(maker).parameters)


def policy(text: str, *, truth: Callable[[], Mapping[str, Any]] | None = None, **settings: Any) -> Any:
    """Make a policy from its text form.

    Args:
        text: a name, with settings in brackets if wanted: "uniform", "e3cs(quota=0.5, sampler='systematic')",
            "pow-d(candidates=30, schedule=halving(100, every=50))", "over-select(e3cs(quota=0.5), 1.3)"; one of your
            own as "FILE.py:Class(setting=...)" or "package.module:Class(...)", also inside a wrapper.
        truth: returns the truth for oracles, by name; each policy in the text gets those of its `truths` that the text
            does not set. Called only if there is such a policy.
        settings: further settings, usually `cohort_size`; settings in the text have priority.

    >>> import fedpick as fp
    >>> fp.policy("rpow-d(candidates=50)", cohort_size=3).variant
    'rpow-d'
    >>> fp.policy("e3sc(quota=0.5)", cohort_size=20)
    Traceback (most recent call last):
    fedpick.core.errors.UnknownNameError: unknown policy 'e3sc'; did you mean 'e3cs'? There are: ...
    """
    known = _known(text)
    others = [maker for name, maker in known.items() if name not in policy_names()]
    everything = _our_settings().union(*(inspect.signature(maker).parameters for maker in others))
    if not user_code.references(text):  # a policy of one's own may have any setting
        for setting in settings:
            if setting not in everything:
                raise unknown_name("setting of a policy", setting, sorted(everything))

    def truths_of(maker: Callable[..., Any]) -> Mapping[str, Any]:
        truths = getattr(maker.func if isinstance(maker, partial) else maker, "truths", ())
        if truth is None or not truths or not isinstance(truths, tuple | list | set | frozenset):
            return {}
        return {name: value for name, value in truth().items() if name in truths}

    return make(text, "policy", known, values=_values(known), example=_EXAMPLE, further=truths_of, **settings)


def example(listed: type[Any], cohort_size: int, truth: Any, **settings: Any) -> Any:
    """A policy of the table, to try it: a wrapper around `uniform`; `truth` is what `About.given` names.

    >>> from fedpick import policies
    >>> example(policies.Genie, 3, [0.5, 1.0], alpha=2.0)
    Genie(cohort_size=3, speed=[0.5, 1.0], alpha=2.0, beta=1.0, quality=None, g=None)
    """
    about: About = listed.about
    given = {} if about.given is None else {about.given: truth}
    text = about.names[0] + ("(uniform)" if about.kind == "wrapper" else "")
    return policy(text, cohort_size=cohort_size, **given, **settings)


def canonical_policy(text: str) -> str:
    """The normal form of a policy's text, equal for all ways to write it; an unknown name raises.

    >>> canonical_policy("OverSelect(E3CS(sampler='pivotal',quota=.5),1.3)")
    "over-select(e3cs(quota=0.5, sampler='pivotal'), 1.3)"
    """
    known = _known(text)
    if not user_code.is_reference(text):
        find_name(text.strip().split("(")[0].strip(), known, "policy")
    return canonical(text, "policy", known, values=_values(known), example=_EXAMPLE)


def label(policy: Any) -> str:
    """A short text for a policy or its class: its name, and the plain settings that are not the defaults.

    >>> import fedpick as fp
    >>> label(fp.OverSelect(fp.E3CS(20, quota=0.3), 1.5))
    'OverSelect(E3CS(quota=0.3), factor=1.5)'
    """
    if isinstance(policy, type):
        return policy.__name__
    if not is_dataclass(policy):
        return type(policy).__name__
    settings = []
    for entry in fields(policy):
        value = getattr(policy, entry.name)
        if is_dataclass(value):
            settings.append(label(value))
        elif isinstance(value, str | int | float) and entry.name != "cohort_size" and value != entry.default:
            settings.append(f"{entry.name}={value!r}")
    return type(policy).__name__ + (f"({', '.join(settings)})" if settings else "")
