"""The same policy with another cohort size: for over-selection, and where a few clients are asked at a time."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from fedpick.core.errors import SettingError

__all__ = ["with_cohort_size"]


def with_cohort_size(policy: Any, size: int) -> Any:
    """The same policy with another cohort size, also inside a wrapper; a SettingError if it has none to change.

    >>> import fedpick as fp
    >>> with_cohort_size(fp.MinSeparation(fp.Uniform(10), 2), 3)
    MinSeparation(policy=Uniform(cohort_size=3), rounds=2, at_most=None)
    """
    if is_dataclass(policy) and not isinstance(policy, type):
        if any(entry.name == "cohort_size" for entry in fields(policy)):
            return replace(policy, cohort_size=size)
        if getattr(policy, "policy", None) is not None:
            return replace(policy, policy=with_cohort_size(policy.policy, size))  # type: ignore[attr-defined]
    raise SettingError(f"{type(policy).__name__} has no cohort_size to change; it must be a dataclass with one")
