"""Policies from one line of text: "e3cs(quota=0.5)"."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedpick import policies, schedules
from fedpick.errors import unknown_name
from fedpick.text import make

__all__ = ["policy", "policy_names"]


def policy_names() -> dict[str, Callable[..., Any]]:
    """Every name that `policy` knows, and the class (or class with a variant) it makes."""
    choice = policies.PowerOfChoice
    return {
        "uniform": policies.Uniform,
        "size-weighted": policies.SizeWeighted,
        "fixed-probabilities": policies.FixedProbabilities,
        "fedcs": policies.FedCS,
        "power-of-choice": choice,
        "pow-d": partial(choice, variant="pow-d"),
        "cpow-d": partial(choice, variant="cpow-d"),
        "rpow-d": partial(choice, variant="rpow-d"),
        "active-fl": policies.ActiveFL,
        "e3cs": policies.E3CS,
        "cs-ucb": policies.CSUCB,
        "cs-ucb-q": partial(policies.CSUCB, variant="cs-ucb-q"),
        "bsfl": policies.BSFL,
        "genie": policies.Genie,
        "rbcs-f": policies.RBCSF,
        "fedgs": policies.FedGS,
        "over-select": policies.OverSelect,
    }


def policy(text: str, *, truth: Callable[[], Mapping[str, Any]] | None = None, **settings: Any) -> Any:
    """Make a policy from its text form.

    Args:
        text: a name, with settings in brackets if wanted: "uniform", "e3cs(quota=0.5, sampler='systematic')",
            "pow-d(candidates=30, schedule=halving(100, every=50))", "over-select(e3cs(quota=0.5), 1.3)".
        truth: gives what oracles may be told, by name; each policy named in the text gets those of its `truths` that
            the text leaves open. Called only if there is such a policy.
        settings: further settings, `cohort_size` above all; what the text says wins.

    >>> import fedpick as fp
    >>> fp.policy("rpow-d(candidates=50)", cohort_size=3).variant
    'rpow-d'
    >>> fp.policy("e3sc(quota=0.5)", cohort_size=20)
    Traceback (most recent call last):
    fedpick.errors.UnknownNameError: unknown policy 'e3sc'; did you mean 'e3cs'? There are: ...
    """
    known = policy_names()
    values = {name.lower(): getattr(schedules, name) for name in schedules.__all__ if name != "Schedule"} | known
    everything = {name for maker in known.values() for name in inspect.signature(maker).parameters}
    for setting in settings:
        if setting not in everything:
            raise unknown_name("setting of a policy", setting, sorted(everything))

    def told(maker: Callable[..., Any]) -> Mapping[str, Any]:
        truths = getattr(maker.func if isinstance(maker, partial) else maker, "truths", ())
        if truth is None or not isinstance(truths, tuple) or not truths:
            return {}
        return {name: value for name, value in truth().items() if name in truths}

    return make(text, "policy", known, values=values, example="e3cs(quota=0.5) or uniform", told=told, **settings)
