"""Operations on a policy's state between rounds: enrol and retire clients, save and load.

A state is a dataclass of arrays. Every field has one entry per client along its first axis, unless it is declared
with `shared_field()` (one value for all clients: a scalar, a matrix of any shape) or `pairwise_field()` (a K x K
matrix).
"""

import copy
import hashlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick._support.archive import FORMAT, read_archive, write_archive
from fedpick._version import __version__
from fedpick.core.errors import ContractError, StateError
from fedpick.core.protocol import Policy
from fedpick.core.types import Choice, Clients, Outcome, View

__all__ = [
    *("added_field", "admit", "load_state", "observe", "pack", "pairwise_field", "policy_kind", "retire", "save_state"),
    *("settings_hash", "shared_field", "state_fields", "unpack"),
]

S = TypeVar("S")
DEEPEST = 20  # levels of settings within settings that a hash distinguishes

# A policy enters the hash of its settings as "fedpick.policies.PLACE.NAME", wherever its class is today, because states
# and keys of run folders contain such hashes. PLACE is the name in small letters, but for these.
_PLACES = {
    "ActiveFL": "active_fl",
    **dict.fromkeys(("FixedProbabilities", "SizeWeighted", "Uniform"), "baselines"),
    "Genie": "bsfl",
    "MinSeparation": "min_separation",
    "OptimalSampling": "optimal_sampling",
    "PowerOfChoice": "power_of_choice",
    "SFedAvg": "s_fedavg",
}


def shared_field(**options: Any) -> Any:
    """Declare a state field that is not one entry per client; it does not change when clients join or leave."""
    return field(metadata={"kind": "shared"}, **options)


def pairwise_field(**options: Any) -> Any:
    """Declare a state field of shape (K, K): rows and columns are added (as NaN) and removed with the clients.

    Shape (0, 0) means "not known yet" for any number of clients.
    """
    return field(metadata={"kind": "pairs"}, **options)


def added_field(**options: Any) -> Any:
    """Declare a field with one entry per client that states of earlier versions lack: it is then as `init` has it."""
    return field(metadata={"kind": "client", "added": True}, **options)


def _added(state: Any, prefix: str = "") -> set[str]:
    """Names of the fields that states of earlier versions lack."""
    found: set[str] = set()
    for entry in fields(state) if is_dataclass(state) else ():
        found |= {prefix + entry.name} if entry.metadata.get("added") else set()
        found |= _added(getattr(state, entry.name), f"{prefix}{entry.name}.")
    return found


def state_fields(state: Any) -> list[tuple[str, str, Any]]:
    """(name, kind, value) of every field, including those of nested states. None, a state without fields, has none."""
    if state is None:
        return []
    if not is_dataclass(state) or isinstance(state, type):
        raise ContractError(
            f"a state must be a dataclass of arrays, but this is {type(state).__name__}: return a dataclass from init "
            "and observe, or None if the policy keeps nothing"
        )
    found = []
    for entry in fields(state):
        value, kind = getattr(state, entry.name), entry.metadata.get("kind", "client")
        if value is None or is_dataclass(value):
            found += [(f"{entry.name}.{name}", k, v) for name, k, v in state_fields(value)]
        else:
            found.append((entry.name, kind, value))
    return found


def _rebuild(state: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """A copy of the state with these values."""
    if state is None:
        return None
    new = {}
    for entry in fields(state):
        value, name = getattr(state, entry.name), prefix + entry.name
        new[entry.name] = _rebuild(value, values, name + ".") if value is None or is_dataclass(value) else values[name]
    return replace(state, **new)


def observe(
    policy: Policy[S], state: S, view: View, choice: Choice, outcome: Outcome, *, spoil: bool | None = None
) -> S:
    """Call `policy.observe`; optionally overwrite the old state, to find code that still uses it.

    Args:
        policy: that learns.
        state: the old state, which must not be used afterwards.
        view, choice, outcome: of the round.
        spoil: whether to fill the old state's arrays with NaN and extreme integers (the new state is then a copy);
            None: if the environment variable FEDPICK_DEBUG is 1. It costs a copy of the state per round.

    >>> import fedpick as fp
    >>> policy, clients = fp.Uniform(cohort_size=1), fp.Clients([10, 20])
    >>> old, view = policy.init(clients), fp.View(1, np.ones(2, bool), clients)
    >>> new = observe(policy, old, view, fp.Choice([0]), fp.Outcome([0], [1.0], [0.5]), spoil=True)
    >>> new.counts.tolist(), old.counts.tolist()
    ([1, 0], [-9223372036854775808, -9223372036854775808])
    """
    new = policy.observe(state, view, choice, outcome)
    debugging = os.environ.get("FEDPICK_DEBUG", "0") not in ("", "0")
    if not (debugging if spoil is None else spoil):
        return new
    new = copy.deepcopy(new)
    kept = [*_arrays(view.clients), *_arrays(policy)]  # a state may share arrays with these, which must not change
    for array in _arrays(state):
        kind = array.dtype.kind
        if not array.flags.writeable or any(np.may_share_memory(array, other) for other in kept):
            continue
        if kind in "fc":
            array[...] = np.nan
        elif kind in "iu":
            array[...] = np.iinfo(array.dtype).min if kind == "i" else np.iinfo(array.dtype).max
        elif kind == "b":
            array[...] = ~array
    return new


def _arrays(holder: Any) -> list[NDArray[Any]]:
    """The arrays in the fields of a dataclass, including nested dataclasses."""
    if isinstance(holder, np.ndarray):
        return [holder]
    held = fields(holder) if is_dataclass(holder) else ()
    return [array for entry in held for array in _arrays(getattr(holder, entry.name))]


def _append(name: str, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Rows of old, then rows of new; trailing axes of different lengths (a report's width) are padded with NaN."""
    if old.ndim != new.ndim:
        raise ContractError(f"state field {name!r}: init gave newcomers {new.ndim} axes, the state has {old.ndim}")
    if old.shape[1:] == new.shape[1:]:
        return np.concatenate([old, new])
    width = tuple(max(a, b) for a, b in zip(old.shape[1:], new.shape[1:], strict=True))
    out = np.full((len(old) + len(new), *width), np.nan, dtype=np.result_type(old, new, np.float32))
    out[(slice(0, len(old)), *map(slice, old.shape[1:]))] = old
    out[(slice(len(old), None), *map(slice, new.shape[1:]))] = new
    return out


def admit(policy: Policy[S], state: S, newcomers: Clients) -> S:
    """Enrol newcomers: append their values from `policy.init` to every per-client field.

    >>> import fedpick as fp
    >>> policy = fp.BSFL(cohort_size=2)
    >>> state = policy.init(fp.Clients([10, 20, 30]))
    >>> fp.admit(policy, state, fp.Clients([40, 50])).counts.shape
    (5,)
    """
    if (prepare := getattr(policy, "before_admit", None)) is not None:  # E3CS centres its weights
        state = prepare(state)
    fresh = {name: value for name, _, value in state_fields(policy.init(newcomers))}
    values: dict[str, Any] = {}
    for name, kind, old in state_fields(state):
        if kind == "shared" or (kind == "pairs" and not old.size):
            values[name] = old
        elif kind == "pairs":
            size = len(old) + len(newcomers)
            values[name] = np.full((size, size), np.nan, dtype=old.dtype)
            values[name][: len(old), : len(old)] = old
        else:
            values[name] = _append(name, np.asarray(old), np.asarray(fresh[name]))
    out: S = _rebuild(state, values)
    return out


def retire(policy: Policy[S], state: S, keep: ArrayLike) -> S:
    """Remove clients: keep those with these indices (in this order), or where the mask is True.

    >>> import fedpick as fp
    >>> policy = fp.BSFL(cohort_size=2)
    >>> state = policy.init(fp.Clients([10, 20, 30]))
    >>> fp.retire(policy, state, keep=[0, 2]).counts.shape
    (2,)
    """
    index = np.asarray(keep)
    index = np.flatnonzero(index) if index.dtype == np.bool_ else index
    if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
        raise ContractError(f"keep is {index.dtype} of shape {index.shape}, but must be client indices or a mask")
    index = index.astype(np.int64)
    if len(np.unique(index)) != len(index):
        raise ContractError("keep names a client twice, but a client can be kept only once")
    values: dict[str, Any] = {}
    for name, kind, old in state_fields(state):
        if kind == "shared" or (kind == "pairs" and not old.size):
            values[name] = old
        elif kind == "pairs":
            values[name] = old[np.ix_(index, index)]
        else:
            if len(index) and (index.min() < 0 or index.max() >= len(old)):
                raise ContractError(f"keep names client {index.max()}, but the state has clients 0 to {len(old) - 1}")
            values[name] = np.asarray(old)[index]
    out: S = _rebuild(state, values)
    return out


def policy_kind(policy: object) -> str:
    """The name of the policy in a state file."""
    inner = getattr(policy, "policy", None)  # of a wrapper such as OverSelect
    return type(policy).__name__ + (f"({policy_kind(inner)})" if inner is not None else "")


def settings_hash(policy: object) -> str:
    """A hash of a policy: its class, its settings, those of the policy that it wraps, and the code of a user's class.

    >>> import fedpick as fp
    >>> settings_hash(fp.E3CS(5, quota=0.3)), settings_hash(fp.E3CS(5, quota=0.9))
    ('bea9b6f9e4922221', '3ae21ea1de652629')
    """
    pieces = b"".join(piece + b"\0" for piece in _pieces(policy, 0))
    return hashlib.blake2b(pieces, digest_size=8).hexdigest()


def _pieces(value: Any, depth: int) -> Iterator[bytes]:
    """A setting in bytes that are the same in every process: they depend on no address and on no order of a set."""
    if depth > DEEPEST:
        return
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield value.tobytes() if value.dtype.kind != "O" else b""
    elif isinstance(value, list | tuple):
        for each in (value.__class__.__name__, *value):
            yield from _pieces(each, depth + 1)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _pieces([str(key), value[key]], depth + 1)
    elif isinstance(value, np.generic):
        yield from _pieces(value.item(), depth)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        plain = int(value) if isinstance(value, float) and value.is_integer() else value
        yield repr(plain).encode(errors="backslashreplace")
    elif isinstance(value, ModuleType):  # in a function's closure
        yield value.__name__.replace("fedpick.core.", "fedpick.").encode()
    elif callable(value) and hasattr(value, "__qualname__"):  # a schedule that is a function
        yield _hashed_as(value).encode()
    else:
        kind = type(value)
        users = not kind.__module__.startswith(("fedpick.", "numpy"))
        yield (f".{kind.__qualname__}" if users else _hashed_as(kind)).encode()
        if users:
            yield _code(kind)  # which may change under the same name
        named = _named(value) if is_dataclass(value) else sorted(getattr(value, "__dict__", ()))
        for name in named:
            yield from _pieces([name, getattr(value, name)], depth + 1)


def _named(settings: Any) -> list[str]:
    """The fields that the hash covers: not those added since it was first stored, while they have their default."""
    every = (
        (each.name, each.metadata.get("added") and getattr(settings, each.name) == each.default)
        for each in fields(settings)
    )
    return [name for name, as_before in every if not as_before]


def _hashed_as(named: Any) -> str:
    """The text for a class or a function: a policy by its name alone, others by their module as well."""
    module = str(getattr(named, "__module__", "")).replace("fedpick.core.", "fedpick.")  # hashes are older than core
    name = named.__qualname__
    if isinstance(named, type) and module.startswith("fedpick.policies."):
        return f"fedpick.policies.{_PLACES.get(name, name.lower())}.{name}"
    return f"{module}.{name}"


def _code(kind: type) -> bytes:
    """The code of a user's class: the whole file if it was named as FILE.py:Name, else the lines of the class."""
    try:
        if kind.__module__.startswith("fedpick_own_"):
            return Path(inspect.getfile(kind)).read_bytes()
        return inspect.getsource(kind).encode(errors="replace")
    except (OSError, TypeError):  # typed into an interpreter, or compiled
        return b""


def pack(state: Any) -> dict[str, Any]:
    """The fields of a state by name, including those of nested states."""
    return {name: value for name, _, value in state_fields(state)}


def unpack(template: S, arrays: dict[str, NDArray[Any]], num_clients: int, owner: str) -> S:
    """A state with the template's structure and these arrays; error messages begin with `owner`."""
    stored, added = dict(arrays), _added(template)
    values: dict[str, Any] = {}
    for name, kind, fresh in state_fields(template):
        if name not in stored and name in added:
            values[name] = fresh
            continue
        if name not in stored:
            raise StateError(
                f"{owner} has no field {name!r}, which the policy needs; use the settings and version it was saved with"
            )
        array, model = stored.pop(name), np.asarray(fresh)
        if array.ndim != model.ndim or array.dtype.kind != model.dtype.kind:
            raise StateError(
                f"{owner} has field {name!r} as {array.dtype} of shape {array.shape}, but the policy with these "
                f"settings has {model.dtype} of shape {model.shape}"
            )
        if kind == "client" and len(array) != num_clients:
            raise StateError(f"{owner} has {len(array)} entries in field {name!r}, but there are {num_clients} clients")
        values[name] = type(fresh)(array) if isinstance(fresh, int | float) else array
    if stored:
        raise StateError(f"{owner} has fields that the policy does not: {', '.join(sorted(stored))}")
    out: S = _rebuild(template, values)
    return out


def save_state(policy: Policy[S], state: S, path: str | os.PathLike[str], **notes: Any) -> None:
    """Write the state to a .npz file, which is replaced atomically.

    The file contains the arrays and a JSON text (format, version, policy, settings, number of clients, your notes);
    reading a file from elsewhere runs no code.
    """
    enrolled = {len(value) for _, kind, value in state_fields(state) if kind == "client"}
    if len(enrolled) > 1:
        raise ContractError(f"the state's per-client fields have lengths {sorted(enrolled)}, but must be one length")
    meta = {
        "format": FORMAT,
        "fedpick": __version__,
        "policy": policy_kind(policy),
        "settings": repr(policy),
        "clients": enrolled.pop() if enrolled else None,
        "notes": notes,
    }
    write_archive(path, pack(state), meta)


def load_state(policy: Policy[S], path: str | os.PathLike[str], clients: Clients) -> tuple[S, dict[str, Any]]:
    """Read a state that `save_state` wrote for this policy and these clients; returns it with the saved notes.

    A file that is truncated, of another policy, or for another number of clients raises a StateError; the file is never
    changed.
    """
    source = Path(path)
    if not source.is_file():
        raise StateError(f"{source}: there is no such file; start anew with policy.init(clients)")
    arrays, meta = read_archive(source)
    try:
        kind, enrolled, notes = meta["policy"], meta["clients"], dict(meta["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{source}: is no state that save_state wrote ({type(error).__name__}: {str(error)[:80]}); start anew with "
            "policy.init(clients)"
        ) from None
    if kind != policy_kind(policy):
        raise StateError(f"{source}: holds the state of {kind}, but the policy is {policy_kind(policy)}")
    if enrolled is not None and enrolled != len(clients):
        raise StateError(
            f"{source}: is for {enrolled} clients, but {len(clients)} are enrolled; load it with the clients it was "
            "saved for, then use fp.admit or fp.retire"
        )
    return unpack(policy.init(clients), arrays, len(clients), f"{source}:"), notes
