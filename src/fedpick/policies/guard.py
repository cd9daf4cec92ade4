"""Guard: limits what false reports can gain under any policy, and how often clients are asked that keep failing.

A combination of known methods, of no paper: a token bucket that begins empty limits each client's share of the places,
as for network traffic; sizes and weights are clipped at a multiple of their median; more failures in a row than are
usual lead to exponential back-off (Metcalfe & Boggs 1976, "Ethernet"); losses are clipped against the median and the
lower quartile of the cohort (Hampel 1974, "The influence curve and its role in robust estimation").

Trusts: no report and no data size, for more than `cap` times the equal share of the places or `weight` times the median
weight. A client that returns under another name is a newcomer; identities must be checked elsewhere.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedpick.core.bounds import limited
from fedpick.core.errors import SettingError
from fedpick.core.protocol import Policy, check_outcome, traits
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Probe, View
from fedpick.policies import _checks as check
from fedpick.policies._common import Wrapper, of_all, valid_losses
from fedpick.policies.about import About

__all__ = ["Guard", "GuardState"]

S = TypeVar("S")
ENOUGH = 4  # losses; fewer are not clipped
UNLIKELY = 0.005  # failures in a row are held against a client if an average client had them with this probability
ROUNDING = 1e-9  # places
MANY = 1e9  # places per round, instead of no limit
FENCE = 4.0  # times (median - lower quartile) above the median, which is 2.7 sigma for normal losses


@dataclass
class GuardState(Generic[S]):
    """The state of the policy inside; for each client the places used beyond its share, and its failures in a row."""

    inner: S
    used: Floats  # places taken minus `cap` equal shares for each round; the least is minus those of `window` rounds
    failures: Ints  # in a row; -1: never chosen
    until: Ints  # the last round of its probation


@dataclass(frozen=True, eq=False)
class Guard(Wrapper, Generic[S]):
    """Any policy, among clients that have neither used up their share nor failed too often.

    Share: with m places per round and n clients that are there, an equal share is m/n places per round. In the first t
    rounds after it joined, no client gets more than `cap` times the equal share of t rounds, plus one place; over any
    later t rounds, no more than that of t + `window` rounds, plus one place: what it did not take is kept that long.

    Weight: the policy inside sees no data size above `weight` times the median of all clients, and no update counts for
    more than `weight` times the median of its cohort, whether the policy sets the weights or the aggregator takes the
    sizes (`Choice.most`). So weights that should be unbiased are so only as far as none is larger.

    Probation: a client is held to what is usual. Let q be the fraction of clients whose last answer was a failure
    (LATE, FAILED, or an impossible loss) among those that were ever chosen, (failed + 1)/(chosen + 2). After f failures
    in a row with q^f <= 0.005, which an average client would rarely have, a client is not chosen for 2 n/m rounds,
    where n/m is the interval between choices if all were chosen equally often; each further failure doubles this, up
    to `probation` times n/m. So a client that always fails gets up to 1/`probation` of an equal share, and never
    nothing. One success ends it; a round that did not wait for a client's answer changes nothing; and nobody waits
    if all fail, as when a network is down.

    Losses: a loss, reported or probed, is at most the median of its cohort plus 4 times the distance from the lower
    quartile to the median; cohorts with fewer than four losses are not clipped.

    If fewer clients are left than there are places, those least above their share are admitted again, and then those
    whose probation ends first; so cohorts are as large as without a guard. A policy without a cohort size has no cap.

    Without rounds (`fp.Buffered`) the tasks that end between two moves of the model are the places of a round, however
    many clients work. A place is counted as soon as its task has ended, and the share grows when the model moves. If
    too few clients are left, places stay free, as long as half of them are taken.

    `inclusion` is exact if that of the policy inside is: the state alone determines who can be chosen, and the policy
    draws among them. For all others it is 0; the policy inside sees them as there, but not available.

    Args:
        policy: any policy; OverSelect can be inside or outside.
        cap: the maximum share, as a multiple of the equal share, >= 1.
        window: rounds whose share is kept for a client that did not take it, for policies that want the same clients
            for a while.
        probation: the longest wait after failures, as a multiple of n/m rounds; 0: none.
        weight: the largest data size that the policy sees, and the largest weight of an update, as a multiple of the
            median, >= 1; None: no limit, for those who know their clients' sizes.

    >>> import fedpick as fp
    >>> policy = fp.Guard(fp.PowerOfChoice(cohort_size=10, candidates=100, variant="rpow-d"), cap=1.5)
    >>> policy.cohort_size
    10
    """

    policy: Policy[S]
    cap: float = 1.5
    window: int = 50
    probation: float = 2.0
    weight: float | None = field(default=1.5, metadata={"added": True})  # not in the settings of before 0.3

    about = About(("guard",), kind="wrapper")

    def __post_init__(self) -> None:
        for name in ("init", "select", "observe"):
            if not callable(getattr(self.policy, name, None)):
                raise SettingError(f"Guard: policy is {self.policy!r:.80}, which has no {name}(), but must be a policy")
        check.number(self, "cap", low=1.0)
        check.whole(self, "window", low=0)
        check.number(self, "probation", low=0.0)
        if self.weight is not None:
            check.number(self, "weight", low=1.0)

    def init(self, clients: Clients) -> GuardState[S]:
        """Return the state before the first round."""
        count = len(clients)
        never = np.full(count, -1, dtype=np.int64)
        return GuardState(
            self.policy.init(self._sized(clients)), np.zeros(count), never, np.zeros(count, dtype=np.int64)
        )

    def _rate(self, places: int | None, there: int) -> float:
        """How many of so many places a client may take, of so many clients that are there."""
        return MANY if places is None else self.cap * places / max(there, 1)

    def _seen(self, state: GuardState[S], view: View) -> View:
        """The view of the policy inside; it depends on the state and the view only."""
        there = view.available
        asks = traits(self.policy).asks
        used, least = state.used, asks or 1  # who must be admitted at least
        if view.ended is not None:
            used = used + np.bincount(view.ended, minlength=len(used))
            busy = int(np.count_nonzero(view.busy))
            least = max((busy + least + 1) // 2 - busy, 0)  # so that half of all places are taken
        over = (used > ROUNDING) & (asks is not None)
        waits = state.until >= view.round
        mask = there & ~over & ~waits
        for back, rank in ((there & over & ~waits, used), (there & waits, state.until)):
            short = least - int(np.count_nonzero(mask))
            if short <= 0:
                break
            mask = mask | _first(back, rank, short)
        probe = None if view.probe is None else _clipped(view.probe)
        return replace(view, available=mask, clients=self._sized(view.clients), probe=probe)

    def _sized(self, clients: Clients) -> Clients:
        """The clients as the policy inside sees them: none much larger than usual."""
        sizes = clients.sizes if self.weight is None else limited(clients.sizes, self.weight)
        return clients if sizes is clients.sizes else Clients(sizes, clients.labels, clients.features)

    def select(self, state: GuardState[S], view: View, rng: np.random.Generator) -> Choice:
        """Let the policy inside choose among the admitted clients."""
        seen = self._seen(state, view)
        choice = of_all(self.policy.select(state.inner, seen, rng), seen, view)
        if self.weight is None:
            return choice
        if choice.weights is None:
            return choice.with_(most=self.weight)
        return choice.with_(weights=limited(choice.weights, self.weight))

    def observe(self, state: GuardState[S], view: View, choice: Choice, outcome: Outcome) -> GuardState[S]:
        """Let the policy inside learn from clipped losses; count places and failures."""
        check_outcome(view, choice, outcome, replace=traits(self.policy).replace)
        seen, ids, used = self._seen(state, view), choice.ids, state.used
        seen.available[ids] = True  # they could be chosen when they were asked
        heard = outcome.succeeded & valid_losses(outcome.loss)
        clipped = Outcome(outcome.status, outcome.duration, _clip(outcome.loss, heard), outcome.reports)
        inner = self.policy.observe(state.inner, seen, choice, clipped)
        asks, there = traits(self.policy).asks, int(np.count_nonzero(view.there))
        m = part = asks  # places of the round
        if view.ended is not None and asks is not None:
            m, part = len(view.ended), len(ids)  # tasks that ended before the model moved, and those told by this call
        np.maximum(used - self._rate(part, there), -self._rate(m, there) * self.window, out=used)
        np.add.at(used, ids, choice.times)
        # A loss of NaN is none: no loss was reported, as in runs without training.
        failed = ~outcome.succeeded | (~heard & ~np.isnan(outcome.loss))
        news, before, until = outcome.known, state.failures[ids], state.until[ids]
        state.failures[ids] = np.where(news, np.where(failed, np.maximum(before, 0) + 1, 0), before)
        between = there / (m or max(len(ids), 1))  # n/m rounds
        beyond = state.failures[ids] - _usual(state.failures)
        wait = between * np.minimum(np.ldexp(1.0, np.clip(beyond, 0, 60) + 1), self.probation)
        waits = failed & (beyond >= 0)
        ends = np.where(waits, view.round + np.minimum(wait, 1e9).astype(np.int64), 0)
        state.until[ids] = np.where(news, ends, until)
        return GuardState(inner, used, state.failures, state.until)


def _usual(failures: Ints) -> int:
    """How many failures in a row are too many, given those of all clients: the least f with q^f <= UNLIKELY."""
    failing = (np.count_nonzero(failures > 0) + 1) / (np.count_nonzero(failures >= 0) + 2)
    return int(np.ceil(np.log(UNLIKELY) / np.log(failing)))


def _first(who: Bools, rank: np.ndarray[Any, Any], count: int) -> Bools:
    """Mask of the `count` clients with the lowest rank, including ties: no client is preferred for its index."""
    ranks = rank[who]
    if len(ranks) <= count:
        return who
    mask: Bools = who & (rank <= np.partition(ranks, count - 1)[count - 1])
    return mask


def _clip(losses: Floats, heard: Bools) -> Floats:
    """Losses, those of `heard` limited by their median and lower quartile."""
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
