"""MinSeparation: no client takes part again before so many rounds have passed.

The guarantee of DP-FTRL rests on how far apart a client's participations are and how many there are. Two participations
of a client are at least `rounds` rounds apart, so that any `rounds` rounds in a row hold it at most once. Whether a run
kept these bounds is in its records, from which `fedpick.store.Certificate` makes a certificate.

A chosen client counts as a participant, whether or not it answered. Its update may come late and be used in a later
round: while it may still come, the distance does not begin. A client that was retired and enrolled again is a new
client for the policy; a session retires none that the policy must remember.

Trusts: nothing that is reported.
"""

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from fedpick.core.errors import SettingError
from fedpick.core.protocol import Policy, check_outcome, traits
from fedpick.core.types import Bools, Choice, Clients, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import Wrapper, of_all, wrapped
from fedpick.policies.about import About, Paper

__all__ = ["MinSeparation", "MinSeparationState"]

PAPER = Paper(
    "kairouz2021practical",
    "Kairouz, Peter and McMahan, Brendan and Song, Shuang and Thakkar, Om and Thakurta, Abhradeep and Xu, Zheng",
    "Practical and Private (Deep) Learning Without Sampling or Shuffling",
    2021,
    "booktitle = {International Conference on Machine Learning (ICML)}",
    "https://arxiv.org/abs/2103.00039",
)

S = TypeVar("S")


@dataclass
class MinSeparationState(Generic[S]):
    """The state of the policy inside, and for each client how often it was chosen, and the last round it took part in.

    That is the last round in which it was chosen or an update of an earlier round could still be used; 0: none.
    """

    inner: S
    last: Ints
    counts: Ints


@dataclass(frozen=True, eq=False)
class MinSeparation(Wrapper, Generic[S]):
    """Any policy, among clients whose last participation is at least so many rounds ago.

    Cohorts are smaller if too few clients may take part.

    Args:
        policy: chooses among the clients that may take part.
        rounds: between two participations of a client: chosen in round t, it can be chosen again in round t + rounds.
        at_most: how often a client takes part in all; None: no limit.

    >>> import fedpick as fp
    >>> fp.policy("min-separation(uniform, 10)", cohort_size=5).rounds
    10
    """

    policy: Policy[S]
    rounds: int = 1
    at_most: int | None = None

    about = About(("min-separation",), PAPER, kind="wrapper")
    fixed_size = False

    def __post_init__(self) -> None:
        check.whole(self, "rounds", "at_most", low=1)
        if traits(self.policy).replace:
            raise SettingError(
                f"MinSeparation: {type(self.policy).__name__} draws with replacement, so that a client could take part "
                "twice in one round; use one that does not, such as size-weighted(replace=False)"
            )
        if any(isinstance(each, MinSeparation) for each in wrapped(self.policy)):
            raise SettingError(
                "MinSeparation: the wrapped policy contains one already; use one, with the larger bounds"
            )

    def init(self, clients: Clients) -> MinSeparationState[S]:
        """Return the state before the first round: no participations."""
        none = np.zeros(len(clients), dtype=np.int64)
        return MinSeparationState(self.policy.init(clients), none, none.copy())

    @property
    def remembers(self) -> float:
        """Rounds for which no client must be forgotten: until it may take part again; for ever if that is counted."""
        return math.inf if self.at_most is not None else self.rounds - 1.0

    def _seen(self, state: MinSeparationState[S], view: View) -> View:
        """The view with those who may take part; who is there stays the same."""
        may: Bools = view.available & ~view.held & ((state.last == 0) | (view.round - state.last >= self.rounds))
        if self.at_most is not None:
            may &= state.counts < self.at_most
        return replace(view, available=may)

    def select(self, state: MinSeparationState[S], view: View, rng: np.random.Generator) -> Choice:
        """Let the policy inside choose among the clients that may take part."""
        seen = self._seen(state, view)
        return of_all(self.policy.select(state.inner, seen, rng), seen, view)

    def observe(
        self, state: MinSeparationState[S], view: View, choice: Choice, outcome: Outcome
    ) -> MinSeparationState[S]:
        """Let the policy inside learn; note who took part."""
        check_outcome(view, choice, outcome)
        seen = self._seen(state, view)
        seen.available[choice.ids] = view.available[choice.ids]  # they could be chosen when they were asked
        inner = self.policy.observe(state.inner, seen, choice, outcome)
        state.last[choice.ids] = view.round
        state.last[view.busy | view.held] = view.round
        state.counts[choice.ids] += 1
        return MinSeparationState(inner, state.last, state.counts)
