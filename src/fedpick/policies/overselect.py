"""OverSelect: choose more clients than needed, and keep the first that answer.

Bonawitz et al. (2019), "Towards Federated Learning at Scale: System Design" (https://arxiv.org/abs/1902.01046), with
130%.
"""

import math
from dataclasses import dataclass, is_dataclass
from typing import Generic, TypeVar

import numpy as np

from fedpick.core.errors import SettingError
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Choice, Clients, Outcome, View
from fedpick.policies._common import ByValue, check_number, with_cohort_size, wrapped

__all__ = ["OverSelect"]

S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class OverSelect(ByValue, Generic[S]):
    """Any policy, with a cohort `factor` times as large, of which the first `cohort_size` answers are used.

    The other clients are SURPLUS: a success for the policy, unused by the aggregator. Its `traits` are those of the
    wrapped policy.

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
            raise SettingError(
                "OverSelect: the wrapped policy contains one already; use one, with the product of the factors"
            )
        self._wide()  # raises here, not in round 1, if the policy does not allow this cohort size

    def _wide(self) -> Policy[S]:
        wide: Policy[S] = with_cohort_size(self.policy, self.asks)
        return wide

    @property
    def cohort_size(self) -> int:
        """Number of answers that are used."""
        size = traits(self.policy).cohort_size
        assert size is not None
        return size

    @property
    def asks(self) -> int:
        """Number of clients that are chosen."""
        return math.ceil(self.cohort_size * self.factor - 1e-9)

    def before_admit(self, state: S) -> S:
        """As the wrapped policy."""
        prepare = getattr(self._wide(), "before_admit", None)
        out: S = state if prepare is None else prepare(state)
        return out

    def init(self, clients: Clients) -> S:
        """Return the state of the wrapped policy."""
        return self._wide().init(clients)

    def select(self, state: S, view: View, rng: np.random.Generator) -> Choice:
        """Choose `asks` clients."""
        return self._wide().select(state, view, rng)

    def observe(self, state: S, view: View, choice: Choice, outcome: Outcome) -> S:
        """Learn as the wrapped policy does."""
        return self._wide().observe(state, view, choice, outcome)
