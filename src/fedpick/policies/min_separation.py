"""MinSeparation: no client takes part again before so many rounds have passed; with a certificate from the log.

The guarantee of DP-FTRL rests on how far apart a client's participations are and how many there are. Two participations
of a client are at least `rounds` rounds apart, so that any `rounds` rounds in a row hold it at most once.

A chosen client counts as a participant, whether or not it answered. A client that was retired and enrolled again is a
new client for the policy.

Trusts: nothing that is reported.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedpick._support import atomic
from fedpick.core.errors import CheckError, ContractError, SettingError
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Bools, Choice, Clients, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import Wrapper, of_all, wrapped
from fedpick.policies.about import About, Paper

__all__ = ["Certificate", "MinSeparation", "MinSeparationState"]

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
    """The state of the policy inside, and for each client the last round it was chosen in (0: never), and how often."""

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
        inner = self.policy.observe(state.inner, self._seen(state, view), choice, outcome)
        state.last[choice.ids] = view.round
        state.counts[choice.ids] += 1
        return MinSeparationState(inner, state.last, state.counts)


def _rows(rounds: ArrayLike, clients: ArrayLike) -> tuple[Ints, Ints]:
    """The log in the order of clients and rounds."""
    when, who = np.asarray(rounds, dtype=np.int64), np.asarray(clients, dtype=np.int64)
    if when.ndim != 1 or when.shape != who.shape:
        raise ContractError(f"rounds has shape {when.shape} and clients {who.shape}, but must be two columns of a log")
    order = np.lexsort((when, who))
    return when[order], who[order]


@dataclass(frozen=True)
class Certificate:
    """What a log of participations shows; made from it with `of`, and checked against it with `check`.

    Args:
        participations: rows of the log.
        clients: who took part at all.
        rounds: the last round in the log.
        separation: the smallest distance in rounds between two participations of a client; None: no client had two.
        most: the largest number of participations of one client.
        digest: SHA-256 of the log.

    >>> log = Certificate.of(rounds=[1, 1, 4, 5], clients=[0, 1, 0, 1])
    >>> log.separation, log.most
    (3, 2)
    >>> log.check([1, 1, 4, 5], [0, 1, 0, 1], separation=3)
    """

    participations: int
    clients: int
    rounds: int
    separation: int | None
    most: int
    digest: str

    @classmethod
    def of(cls, rounds: ArrayLike, clients: ArrayLike) -> "Certificate":
        """From two columns of a log: `round` and `client` of `fedpick.store.read_selections(folder)`."""
        when, who = _rows(rounds, clients)
        gaps = np.diff(when)[who[1:] == who[:-1]]
        digest = hashlib.sha256(np.stack([who, when]).astype("<i8").tobytes()).hexdigest()
        counts = np.unique(who, return_counts=True)[1]
        least = int(gaps.min()) if len(gaps) else None
        last, most = int(when.max(initial=0)), int(counts.max(initial=0))
        return cls(len(when), len(counts), last, least, most, digest)

    def holds(self, separation: int, at_most: int | None = None) -> bool:
        """Whether the log keeps these bounds."""
        apart = self.separation is None or self.separation >= separation
        return apart and (at_most is None or self.most <= at_most)

    def check(self, rounds: ArrayLike, clients: ArrayLike, *, separation: int = 1, at_most: int | None = None) -> None:
        """Raise a CheckError unless it is the certificate of this log, and the log keeps these bounds."""
        found = Certificate.of(rounds, clients)
        for name, value in asdict(self).items():
            if getattr(found, name) != value:
                raise CheckError(
                    f"the certificate says {name} = {value}, but the log has {getattr(found, name)}: one of them was "
                    "changed; make the certificate anew from a log that you trust"
                )
        if not self.holds(separation, at_most):
            when, who = _rows(rounds, clients)
            close = np.flatnonzero((who[1:] == who[:-1]) & (np.diff(when) < separation))
            if len(close):
                at = close[0]
                raise CheckError(
                    f"client {who[at]} took part in rounds {when[at]} and {when[at + 1]}, but must wait {separation}"
                )
            raise CheckError(f"a client took part {self.most} times, but at most {at_most} are allowed")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, atomically."""
        with atomic.replacing(Path(path)) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Certificate":
        """Read what `save` wrote."""
        try:
            stored: dict[str, Any] = json.loads(Path(path).read_text())
            return cls(**stored)
        except (ValueError, TypeError) as error:
            raise CheckError(f"{path}: not a certificate ({error}); make it anew with Certificate.of") from None
