"""Guard: any policy, in a form in which nobody captures it and nobody dead holds it up.

Ours, from three known parts: a token bucket caps each client's share of the places, as in a network's traffic shaping;
failures lead to exponential back-off (Metcalfe & Boggs 1976, Ethernet); reported losses are clipped against the median
and quartile of those reported beside them, which fewer than half of a cohort cannot move (Hampel 1974).

Trusts: nothing that is reported, for more than `cap` times the equal share. A client that comes back under another name
is a newcomer: who a client is must be known by other means.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedpick.errors import SettingError
from fedpick.policies._common import ByValue, check_number, check_whole, valid_losses
from fedpick.protocol import Policy, check_outcome, traits
from fedpick.types import Bools, Choice, Clients, Floats, Ints, Outcome, Probe, View

__all__ = ["Guard", "GuardState"]

S = TypeVar("S")
ENOUGH = 4  # losses; fewer have no distribution to clip against
FENCE = 4.0  # distances from the lower quartile to the median, above the median: 2.7 sigma of normal losses


@dataclass
class GuardState(Generic[S]):
    """The state of the policy inside; how many places each client took beyond its share; its failures in a row."""

    inner: S
    used: Floats  # places taken, less cap equal shares for each round since; never below 0
    failures: Ints
    until: Ints  # the last round in which it is not asked


@dataclass(frozen=True, eq=False)
class Guard(ByValue, Generic[S]):
    """Any policy, asked to choose among fewer: without those who took their share, and those who keep failing.

    *Share.* With m places a round and n clients there, an equal share is m/n of a place a round. Over any t rounds
    nobody gets more than `cap` times the equal share of t + `window` rounds, plus one place.

    *Probation.* After f failures in a row (LATE or FAILED, or a loss that cannot be one), a client is not asked for
    2^f - 1 rounds, and never for more than `probation` rounds. One success clears it.

    *Losses.* A loss, reported or probed, that is further above the median of those beside it than 4 times the distance
    from the lower quartile to the median is set to that bound, where there are four or more.

    Cohorts stay as large: where fewer are left than there are places, those come back who are the least above their
    share, and then those whose waiting ends first. A policy without a cohort size fills no places, so it has no cap.

    `inclusion` stays exact: who may be chosen follows from the state alone, and given that, the policy inside draws as
    it says; for clients that are left out it is 0. To the policy inside they are away.

    Args:
        policy: any; also OverSelect, and Guard can be inside it.
        cap: the largest share, in equal shares, >= 1.
        window: how many rounds' share can be taken in advance; a policy that wants the same clients for a while can.
        probation: the longest wait after failures, in rounds; 0 asks them as if nothing had happened.

    >>> import fedpick as fp
    >>> policy = fp.Guard(fp.PowerOfChoice(cohort_size=10, candidates=100, variant="rpow-d"), cap=1.5)
    >>> policy.cohort_size
    10
    """

    policy: Policy[S]
    cap: float = 1.5
    window: int = 50
    probation: int = 100

    def __post_init__(self) -> None:
        for name in ("init", "select", "observe"):
            if not callable(getattr(self.policy, name, None)):
                raise SettingError(f"Guard: policy is {self.policy!r:.80}, which has no {name}(), but must be a policy")
        check_number(self, "cap", self.cap, 1.0)
        check_whole(self, "window", self.window, 0)
        check_whole(self, "probation", self.probation, 0)

    @property
    def cohort_size(self) -> int | None:
        """As the policy inside."""
        return traits(self.policy).cohort_size

    def before_admit(self, state: GuardState[S]) -> GuardState[S]:
        """As the policy inside."""
        prepare = getattr(self.policy, "before_admit", None)
        return state if prepare is None else replace(state, inner=prepare(state.inner))

    def init(self, clients: Clients) -> GuardState[S]:
        """Return the state before the first round: everyone in good standing."""
        none = np.zeros(len(clients), dtype=np.int64)
        return GuardState(self.policy.init(clients), np.zeros(len(clients)), none, none.copy())

    def _rate(self, there: int) -> float:
        """Places a round that one of so many may take."""
        asks = traits(self.policy).asks
        return np.inf if asks is None else self.cap * asks / max(there, 1)

    def _seen(self, state: GuardState[S], view: View) -> View:
        """What the policy inside sees; it depends on the state and the view alone."""
        there = view.available
        over = state.used > self._rate(int(np.count_nonzero(there))) * self.window
        waits = state.until >= view.round
        mask = there & ~over & ~waits
        asks = traits(self.policy).asks or 1
        for back, rank in ((there & over & ~waits, state.used), (there & waits, state.until)):
            short = asks - int(np.count_nonzero(mask))
            if short <= 0:
                break
            mask = mask | _first(back, rank, short)
        return replace(view, available=mask, probe=None if view.probe is None else _clipped(view.probe))

    def select(self, state: GuardState[S], view: View, rng: np.random.Generator) -> Choice:
        """Let the policy choose among those in good standing."""
        return self.policy.select(state.inner, self._seen(state, view), rng)

    def observe(self, state: GuardState[S], view: View, choice: Choice, outcome: Outcome) -> GuardState[S]:
        """Let the policy learn from clipped losses, and count places and failures."""
        check_outcome(view, choice, outcome, replace=traits(self.policy).replace)
        seen, ids, used = self._seen(state, view), choice.ids, state.used
        heard = outcome.succeeded & valid_losses(outcome.loss)
        told = Outcome(outcome.status, outcome.duration, _clip(outcome.loss, heard), outcome.reports)
        inner = self.policy.observe(state.inner, seen, choice, told)
        np.maximum(used - min(self._rate(int(np.count_nonzero(view.available))), 1e9), 0.0, out=used)
        np.add.at(used, ids, 1.0)
        failed = ~outcome.succeeded | (~heard & ~np.isnan(outcome.loss))  # NaN: nobody asked for a loss
        state.failures[ids] = np.where(failed, state.failures[ids] + 1, 0)
        wait = np.minimum(2 ** np.minimum(state.failures[ids], 30) - 1, self.probation)
        state.until[ids] = np.where(failed, view.round + wait, 0)
        return GuardState(inner, used, state.failures, state.until)


def _first(who: Bools, rank: np.ndarray[Any, Any], count: int) -> Bools:
    """Mask of the `count` lowest of these by rank, and whoever ties with the last: a tie must not be for an index."""
    ranks = rank[who]
    if len(ranks) <= count:
        return who
    mask: Bools = who & (rank <= np.partition(ranks, count - 1)[count - 1])
    return mask


def _clip(losses: Floats, heard: Bools) -> Floats:
    """Losses, those of `heard` not above what the median and the lower quartile of them allow."""
    if np.count_nonzero(heard) < ENOUGH:
        return losses
    low, middle = np.quantile(losses[heard], [0.25, 0.5])
    return np.where(heard, np.minimum(losses, middle + FENCE * (middle - low)), losses)


def _clipped(probe: Probe) -> Probe:
    """A probe whose answers are clipped."""

    def clipped(ids: Ints, /, *, batch: int | None = None) -> Floats:
        losses = np.asarray(probe(ids, batch=batch), dtype=np.float64)
        return _clip(losses, valid_losses(losses)) if losses.shape == ids.shape else losses

    return clipped
