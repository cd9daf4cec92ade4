"""OverSelect: ask more clients than are needed, keep the first that answer.

Bonawitz et al. (2019), "Towards Federated Learning at Scale: System Design", where 130% are asked.
"""

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedpick.errors import SettingError
from fedpick.policies._common import ByValue, check_number
from fedpick.protocol import Policy, traits
from fedpick.types import Choice, Clients, Outcome, View

__all__ = ["OverSelect"]

S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class OverSelect(ByValue, Generic[S]):
    """Any policy, asked for `factor` times its cohort; whoever runs the round keeps the first `cohort_size`.

    The others are SURPLUS: a success for the policy, unused by the aggregator. What it needs, wants and knows is what
    the policy inside does (`traits`).

    >>> import fedpick as fp
    >>> policy = fp.OverSelect(fp.Uniform(cohort_size=10), 1.3)
    >>> policy.cohort_size, policy.asks
    (10, 13)
    """

    policy: Policy[S]
    factor: float = 1.3

    def __post_init__(self) -> None:
        check_number(self, "factor", self.factor, 1.0)
        if traits(self.policy).cohort_size is None or not _sized(self.policy):
            raise SettingError(
                f"OverSelect: {type(self.policy).__name__} has no cohort_size to raise; it must be a dataclass with one"
            )
        self._wide()  # says now, not in round 1, if the policy cannot be that wide

    def _wide(self) -> Policy[S]:
        wide: Policy[S] = _resized(self.policy, self.asks)
        return wide

    @property
    def cohort_size(self) -> int:
        """How many are kept."""
        size = traits(self.policy).cohort_size
        assert size is not None
        return size

    @property
    def asks(self) -> int:
        """How many are chosen."""
        return math.ceil(self.cohort_size * self.factor - 1e-9)

    def before_admit(self, state: S) -> S:
        """As the policy inside."""
        prepare = getattr(self._wide(), "before_admit", None)
        out: S = state if prepare is None else prepare(state)
        return out

    def init(self, clients: Clients) -> S:
        """Return the state of the policy inside."""
        return self._wide().init(clients)

    def select(self, state: S, view: View, rng: np.random.Generator) -> Choice:
        """Choose `asks` clients."""
        return self._wide().select(state, view, rng)

    def observe(self, state: S, view: View, choice: Choice, outcome: Outcome) -> S:
        """Learn as the policy inside does."""
        return self._wide().observe(state, view, choice, outcome)


def _sized(policy: Any) -> bool:
    """Whether a cohort size can be set: in the policy, or in the one that it wraps (Guard)."""
    if not is_dataclass(policy):
        return False
    return any(entry.name == "cohort_size" for entry in fields(policy)) or _sized(getattr(policy, "policy", None))


def _resized(policy: Any, size: int) -> Any:
    """The policy with cohorts of this size."""
    if any(entry.name == "cohort_size" for entry in fields(policy)):
        return replace(policy, cohort_size=size)
    return replace(policy, policy=_resized(policy.policy, size))
