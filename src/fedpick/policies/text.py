"""Policies from one line of text, as the command line and configuration files write them.

Text is parsed, never evaluated: names of policies and schedules, and Python literals as settings.
"""

import ast
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fedpick import policies, schedules
from fedpick.errors import FedpickError, SettingError, unknown_name

__all__ = ["policy", "policy_names"]


def _makers() -> dict[str, Callable[..., Any]]:
    """Every name a text can start with, and what it makes."""
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


def policy_names() -> dict[str, Callable[..., Any]]:
    """Every name that `policy` knows, and the class (or class with a variant) it makes."""
    return _makers()


def _plain(name: str) -> str:
    """Names are told apart by letters and digits alone: "RBCS-F", "rbcs_f" and "rbcsf" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _lookup(name: str, known: dict[str, Callable[..., Any]], kind: str) -> Callable[..., Any]:
    for full, maker in known.items():
        if _plain(full) == _plain(name):
            return maker
    raise unknown_name(kind, name, list(known))


def _call(node: ast.Call, maker: Callable[..., Any], shown: str, extra: dict[str, Any]) -> Any:
    if any(keyword.arg is None for keyword in node.keywords):
        raise SettingError(f"{shown}: ** is not understood here; write each setting as name=value")
    positional = [_value(argument, shown, extra) for argument in node.args]
    named = {str(keyword.arg): _value(keyword.value, shown, extra) for keyword in node.keywords}
    settings = list(inspect.signature(maker).parameters)
    for name in named:
        if name not in settings:
            raise unknown_name(f"setting of {shown}", name, settings)
    taken = settings[: len(positional)]
    extra = {name: value for name, value in extra.items() if name in settings and name not in (*taken, *named)}
    try:
        return maker(*positional, **named, **extra)
    except FedpickError:
        raise
    except TypeError as error:  # a missing or repeated setting
        message = str(error).replace("__init__()", "").replace("  ", " ")
        raise SettingError(f"{shown}: {message}; its settings are {', '.join(settings)}") from None


def _value(node: ast.expr, where: str, extra: dict[str, Any]) -> Any:
    """A literal, a schedule, or a policy inside a policy (which gets the same further settings)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        known: dict[str, Callable[..., Any]] = {
            name.lower(): getattr(schedules, name) for name in schedules.__all__ if name != "Schedule"
        }
        known |= _makers()
        return _call(node, _lookup(node.func.id, known, f"value in {where}"), node.func.id, extra)
    if isinstance(node, ast.Name):
        if where == "over-select":
            return _value(ast.Call(node, [], []), where, extra)
        raise SettingError(f"{where}: {node.id} is neither a number nor a text; did you mean {node.id!r} in quotes?")
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise SettingError(
            f"{where}: cannot read {ast.unparse(node)!r}; settings are numbers, texts or lists"
        ) from None


def policy(text: str, **settings: Any) -> Any:
    """Make a policy from its text form.

    Args:
        text: a name, with settings in brackets if wanted: "uniform", "e3cs(quota=0.5, sampler='systematic')",
            "pow-d(candidates=30, schedule=halving(100, every=50))", "over-select(e3cs(quota=0.5), 1.3)".
        settings: further settings, `cohort_size` above all; what the text says wins.

    >>> import fedpick as fp
    >>> fp.policy("rpow-d(candidates=50)", cohort_size=3).variant
    'rpow-d'
    >>> fp.policy("e3sc(quota=0.5)", cohort_size=20)
    Traceback (most recent call last):
    fedpick.errors.UnknownNameError: unknown policy 'e3sc'; did you mean 'e3cs'? There are: ...
    """
    quoted = re.split(r"('[^']*'|\"[^\"]*\")", text.strip())  # hyphens in names are read as underscores
    source = "".join(
        part if i % 2 else re.sub(r"(?<=[A-Za-z0-9])-(?=[A-Za-z])", "_", part) for i, part in enumerate(quoted)
    )
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        raise SettingError(f"cannot read the policy {text!r}; write it like e3cs(quota=0.5) or uniform") from None
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise SettingError(f"cannot read the policy {text!r}; write it like e3cs(quota=0.5) or uniform")
    name = text.strip().split("(")[0].strip()
    maker = _lookup(name, _makers(), "policy")
    for setting in settings:
        if setting != "cohort_size" and setting not in inspect.signature(maker).parameters:
            raise unknown_name(f"setting of {name}", setting, list(inspect.signature(maker).parameters))
    return _call(node, maker, name, settings)
