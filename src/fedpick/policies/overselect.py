"""OverSelect: ask more clients than are needed, keep the first that answer.

Bonawitz et al. (2019), "Towards Federated Learning at Scale: System Design", where 130% are asked.
"""

import math
from dataclasses import dataclass, is_dataclass
from typing import Generic, TypeVar

import numpy as np

from fedpick.errors import SettingError
from fedpick.policies._common import ByValue, check_number, with_cohort_size, wrapped
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
        if traits(self.policy).cohort_size is None or not is_dataclass(self.policy):
            raise SettingError(
                f"OverSelect: {type(self.policy).__name__} has no cohort_size to raise; it must be a dataclass with one"
            )
        if any(isinstance(each, OverSelect) for each in wrapped(self.policy)):
            raise SettingError("OverSelect: there is one inside already; give one of them, with the product of factors")
        self._wide()  # says now, not in round 1, if the policy cannot be that wide

    def _wide(self) -> Policy[S]:
        wide: Policy[S] = with_cohort_size(self.policy, self.asks)
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
