"""The names of objects in keys: they differ where results may differ, so that no two policies or worlds share runs."""

import hashlib
import inspect
import io
import pickle
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, cast

from fedpick._support import user_code
from fedpick.core.errors import ConfigError
from fedpick.core.state import settings_hash
from fedpick.experiment.code import steps
from fedpick.policies.text import canonical_policy, label

__all__ = ["fingerprint", "policy_text"]

_PLAIN = str | int | float


def policy_text(policy: Any) -> str:
    """The text of a policy in plans, tables and keys; settings that are no plain values end it as a hash.

    >>> from functools import partial
    >>> import fedpick as fp
    >>> policy_text("e3cs( quota=0.5 )"), policy_text(fp.E3CS), policy_text(partial(fp.E3CS, quota=0.5))
    ('e3cs(quota=0.5)', 'E3CS', 'E3CS(quota=0.5)')
    >>> policy_text(fp.FedCS(2, success=[0.1, 0.9])) == policy_text(fp.FedCS(2, success=[0.9, 0.1]))
    False
    """
    if isinstance(policy, str):
        return user_code.shown(canonical_policy(policy))
    name, settings = label(policy), _unlabelled(policy)
    if isinstance(policy, partial):
        name = label(policy.func) if isinstance(policy.func, type) else policy.func.__name__
    elif inspect.isroutine(policy):
        name = policy.__name__
    shown = {key: value for key, value in settings.items() if isinstance(value, _PLAIN) and key[0] != "_"}
    text = ", ".join(f"{key}={value!r}" for key, value in shown.items())
    hidden = [(key, _hashable(value)) for key, value in settings.items() if key not in shown]
    return name + (f"({text})" if shown else "") + (f"#{settings_hash(hidden)[:6]}" if hidden else "")


def _unlabelled(policy: Any) -> Mapping[str, Any]:
    """The settings that a policy's label leaves out; `cohort_size` has a place of its own."""
    if isinstance(policy, type):
        return {}
    if isinstance(policy, partial):
        code = {} if isinstance(policy.func, type) else {"_code": policy.func}
        return {**policy.keywords, **code, **({"_args": policy.args} if policy.args else {})}
    if inspect.isroutine(policy):
        return {"_code": policy}
    if not is_dataclass(policy):
        given = getattr(policy, "__dict__", {}).items()
        return {key: value for key, value in given if key != "cohort_size" and value is not None}
    found: dict[str, Any] = {}
    for entry in fields(policy):
        value, default = getattr(policy, entry.name), entry.default
        if entry.default_factory is not MISSING:
            default = entry.default_factory()
        if is_dataclass(value):
            found |= {f"{entry.name}.{name}": inner for name, inner in _unlabelled(value).items()}
        elif not isinstance(value, _PLAIN) and _hash(value) != _hash(default):
            found[entry.name] = value
    return found


def _hash(value: Any) -> str:
    return settings_hash([_hashable(value)])


def _hashable(value: Any) -> Any:
    """A setting for a hash; a function is described by its compiled code, because two lambdas have the same name."""
    if inspect.ismethod(value):
        return [_hashable(value.__func__), value.__self__]
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__qualname__, steps(value.__code__), value.__defaults__, value.__kwdefaults__, cells]
    return value


class _Pickler(pickle._Pickler):  # the one in Python: that in C cannot write another name
    """Pickles without the room `core` in the names of classes: modules that moved there in 0.2 left no key behind."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        module, this, usual = getattr(obj, "__module__", None) or "", cast(Any, self), cast(Any, super())
        if not module.startswith("fedpick.core."):
            usual.save_global(obj, name)
            return
        this.save(module.replace("fedpick.core.", "fedpick."))
        this.save(obj.__qualname__)
        this.write(pickle.STACK_GLOBAL)
        this.memoize(obj)

    def memoize(self, obj: Any) -> None:
        if not (isinstance(obj, bytes) and id(obj) in cast(Any, self).memo):  # the contents of a second empty array
            cast(Any, super()).memoize(obj)


def fingerprint(value: Any) -> str:
    """A hash of an object that is a world or data, by what it holds."""
    written = io.BytesIO()
    try:
        _Pickler(written, protocol=5).dump(value)
        return hashlib.blake2b(written.getvalue(), digest_size=4).hexdigest()
    except Exception as error:
        raise ConfigError(
            f"{type(value).__name__} cannot be pickled, so it cannot be identified ({error}); put it into a file and "
            "name it: 'my_file.py:name'"
        ) from None
