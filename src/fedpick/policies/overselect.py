"""OverSelect: choose more clients than needed, and keep the first that answer; 130% in the paper.

Trusts: what the wrapped policy trusts.
"""

import math
from dataclasses import dataclass, is_dataclass
from typing import Generic, TypeVar

import numpy as np

from fedpick.core.errors import SettingError
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Choice, Clients, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, wrapped
from fedpick.policies.about import About, Paper
from fedpick.policies.sizes import with_cohort_size

__all__ = ["OverSelect"]

PAPER = Paper(
    "bonawitz2019towards",
    "Bonawitz, Keith and Eichner, Hubert and Grieskamp, Wolfgang and Huba, Dzmitry and Ingerman, Alex and "
    "Ivanov, Vladimir and Kiddon, Chlo{\\'e} and Kone{\\v{c}}n{\\'y}, Jakub and Mazzocchi, Stefano and "
    "McMahan, Brendan and {Van Overveldt}, Timon and Petrou, David and Ramage, Daniel and Roselander, Jason",
    "Towards Federated Learning at Scale: System Design",
    2019,
    "booktitle = {Machine Learning and Systems (MLSys)}",
    "https://arxiv.org/abs/1902.01046",
)

S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class OverSelect(ByValue, Generic[S]):
    """Any policy, with `factor` times as many clients, of which the first `cohort_size` answers are used.

    The round is closed with the last answer that is needed. The others are SURPLUS: no failure, and unused by the
    aggregator. Of those that still worked then nothing is known, neither a duration nor a loss: this is no news, and
    the policy keeps what it knew about them. Its `traits` are those of the wrapped policy.

    What the policy said of all `asks` clients is brought to those used: after the round, `inclusion` is the probability
    of being chosen and used, and weights that are used as they are (`normalise=False`, as F3AST's) are scaled so that
    the clients used stand for all that answered or could have. The engine does this; a policy need not.

    >>> import fedpick as fp
    >>> policy = fp.OverSelect(fp.Uniform(cohort_size=10), 1.3)
    >>> policy.cohort_size, policy.asks
    (10, 13)
    """

    policy: Policy[S]
    factor: float = 1.3

    about = About(("over-select",), PAPER, kind="wrapper")
    rounds_only = "without rounds no answer is surplus; raise the concurrency instead"

    def __post_init__(self) -> None:
        check.number(self, "factor", low=1.0)
        if traits(self.policy).cohort_size is None or not is_dataclass(self.policy):
            raise SettingError(
                f"OverSelect: {type(self.policy).__name__} has no cohort_size to raise; it must be a dataclass with one"
            )
        if any(isinstance(each, OverSelect) for each in wrapped(self.policy)):
            raise SettingError(
                "OverSelect: the wrapped policy contains one already; use one, with the product of the factors"
            )
        if any(getattr(each, "grows", False) for each in wrapped(self.policy)):
            raise SettingError(
                "OverSelect: the wrapped policy changes the size of cohorts, but over-selection uses a fixed number of "
                "answers; use a deadline instead"
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
