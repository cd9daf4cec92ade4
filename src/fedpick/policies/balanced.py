"""Balanced: short rounds, equal participation, and cohorts whose data are like everybody's, in one objective.

The cohort S of m available clients minimises  v m max_S d - sum_S q + w sqrt(m) |sum_S a|.  d is a client's predicted
duration in units of the median one, at most 5; q is its fair share so far less the number of times it was chosen; a is
how its data differ from the mean of all clients', in units of the median difference, at most 3.

Without data the optimum is exact (`fedpick.solvers.bottleneck`). With data it is searched from there by exchanges of
one client, until none is better. Among more than 10,000 available clients, those with the largest q are compared.

So a client that is left out never has a q more than W = 5 v m + 6 w sqrt(m) + 0.01 above that of one that is chosen,
and times chosen and fair share never differ by more than (W + 1)(K - 1)/2, whoever is there when; the proof is on its
page. It is for rounds in which all who are there may be chosen, without pauses or late work.

A client that is late or fails keeps the duration of its answers; one that never answered counts as no faster than the
slowest of its rounds. One never tried counts as the median; one without a known update as the mean of the data.

Trusts: durations, and updates or label counts. A false one moves a client's d or a, within their limits; its
participation stays within the bound.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places, told
from fedpick.policies._labels import counts_of, shares_of
from fedpick.policies._vectors import LARGEST_ENTRY, fresh_vectors, known_vectors
from fedpick.policies.about import About

__all__ = ["Balanced", "BalancedState"]

DATA = ("updates", "labels", "none")
WIDTH = 32  # of the sketches
REPORT = f"sketch_{WIDTH}"
SLOWEST = 5.0  # medians: longer durations count as this
FARTHEST = 3.0  # median differences of data: larger ones are shortened to this
LONGEST = 1e12  # seconds: longer durations are no durations
MEMORY = 0.1  # least weight of a new duration, so that a client whose speed changes is noticed
COMPARED = 10_000  # clients whose data are compared at most
LEAST = 0.01  # an exchange that gains less is not made


@dataclass
class BalancedState:
    """What each client is owed, and what is known of its speed and its data (NaN: nothing)."""

    queue: Floats
    duration: Floats
    timed: Ints
    vectors: Floats


@dataclass(frozen=True, eq=False)
class Balanced(ByValue):
    """Short rounds, equal participation and cohorts whose data are like everybody's.

    Args:
        cohort_size: m.
        speed: v, how much less each member of a cohort may be owed, in participations, for a round that is shorter by
            a median duration.
        mix: w, the same for a cohort with the data of all clients instead of a random one's.
        data: "updates", by the sketch (32 numbers) of each client's last update; "labels", the label counts that
            clients tell; or "none".

    >>> import fedpick as fp
    >>> fp.traits(fp.Balanced(cohort_size=10)).needs
    frozenset()
    """

    cohort_size: int
    speed: float = 0.5
    mix: float = 0.5
    data: str = "updates"

    about = About(("balanced",), forms=({"data": "labels"}, {"data": "none"}))
    rounds_only = "it makes rounds short, and without rounds there is no length to make short"

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "speed", "mix", low=0.0)
        check.one_of(self, "data", DATA, "source of data")

    @property
    def needs(self) -> tuple[str, ...]:
        """Label counts, if `data` names them."""
        return ("labels",) if self.data == "labels" else ()

    @property
    def wants(self) -> tuple[ReportSpec, ...]:
        """Sketches of the updates."""
        blind = "durations and participation only"
        return (ReportSpec(REPORT, WIDTH, instead=blind),) if self.data == "updates" else ()

    def init(self, clients: Clients) -> BalancedState:
        """Return the state before the first round: nobody is owed anything."""
        count = len(clients)
        if self.data == "labels":
            counts_of(self, clients)  # raises without labels
        vectors = fresh_vectors(count, WIDTH if self.data == "updates" else None)
        return BalancedState(np.zeros(count), np.full(count, np.nan), np.zeros(count, dtype=np.int64), vectors)

    def select(self, state: BalancedState, view: View, rng: np.random.Generator) -> Choice:
        """The exact optimum without data; from there, exchanges of one client until none is better."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        haste, likeness = self.speed * m, self.mix * np.sqrt(m)
        compares = self.data != "none" and self.mix > 0.0 and m < len(ids)
        if compares and len(ids) > (most := max(COMPARED, 2 * m)):
            ids = ids[solvers.top(state.queue[ids], most, rng)]
        owed, slow = state.queue[ids], self._slowness(state, ids)
        picked = solvers.bottleneck(-haste * slow, owed, m, rng=rng)
        if compares:
            apart = self._apart(state, view.clients, ids)
            if apart is not None:
                picked = _exchange(haste * slow, owed, likeness * apart, picked, rng)
        return Choice(np.sort(ids[picked]))

    def _slowness(self, state: BalancedState, ids: Ints) -> Floats:
        """d: the predicted durations in units of the median of all."""
        known = state.duration[~np.isnan(state.duration)]
        if not len(known):
            return np.ones(len(ids))
        slow = np.nan_to_num(state.duration[ids] / np.median(known), nan=1.0)
        return np.minimum(slow, SLOWEST)

    def _apart(self, state: BalancedState, clients: Clients, ids: Ints) -> Floats | None:
        """a: how the data of each of these clients differ from the mean of all; None if nothing is known."""
        count = len(clients)
        some = np.linspace(0, count - 1, min(count, COMPARED)).astype(np.int64)  # all of up to 10,000
        others, rows = self._rows(state, clients, some), self._rows(state, clients, ids)
        told_of = known_vectors(others)
        if not told_of.any():
            return None
        known = known_vectors(rows)
        apart = np.where(known[:, None], rows - others[told_of].mean(axis=0), 0.0)
        far = np.sqrt(np.square(apart).sum(axis=1))
        usual = np.median(far[known]) if known.any() else 0.0
        return apart / np.maximum(far / FARTHEST, usual)[:, None] if usual > 0.0 else None

    def _rows(self, state: BalancedState, clients: Clients, ids: Ints) -> Floats:
        """What describes the data of these clients; NaN: not known."""
        return shares_of(counts_of(self, clients, ids)) if self.data == "labels" else state.vectors[ids]

    def observe(self, state: BalancedState, view: View, choice: Choice, outcome: Outcome) -> BalancedState:
        """Everyone there earns its share, the chosen pay; durations and updates are learned."""
        check_outcome(view, choice, outcome)
        if len(choice):
            state.queue += view.there * (len(choice) / np.count_nonzero(view.there))
            state.queue[choice.ids] -= 1.0  # also of late and failed clients: they were chosen
            _learn_durations(state, choice, outcome)
            if self.data == "updates" and REPORT in outcome.reports:
                _learn_updates(state, choice, outcome)
        return BalancedState(state.queue, state.duration, state.timed, state.vectors)


def _exchange(cost: Floats, owed: Floats, apart: Floats, picked: Ints, rng: np.random.Generator) -> Ints:
    """Exchange one client after another for the best one, until no exchange is better.

    The objective is max cost - sum owed + |sum apart|, to be minimised.
    """
    order = rng.permutation(len(cost))  # so that ties are broken at random
    cost, owed, apart = cost[order], owed[order], apart[order]
    inside = np.zeros(len(cost), dtype=np.bool_)
    inside[np.argsort(order)[picked]] = True
    members = np.flatnonzero(inside)
    own = np.square(apart).sum(axis=1)
    total = apart[members].sum(axis=0)
    tried = 0  # members in a row for which no other client is better
    while tried < len(members):
        for place, out in enumerate(members):
            rest = total - apart[out]
            slowest = np.delete(cost[members], place).max(initial=-np.inf)
            distance = np.sqrt(np.maximum(rest @ rest + 2.0 * (apart @ rest) + own, 0.0))
            value = np.maximum(cost, slowest) - owed + distance
            now = value[out]
            value[inside] = np.inf
            best = int(np.argmin(value))
            tried += 1
            if value[best] < now - LEAST:
                inside[out], inside[best] = False, True
                members[place], total, tried = best, rest + apart[best], 0
            if tried >= len(members):
                break
    found: Ints = order[members]
    return found


def _learn_durations(state: BalancedState, choice: Choice, outcome: Outcome) -> None:
    """Mean durations, of which the last ten or so count; of a client that never answered, the longest wait."""
    took = outcome.duration
    with np.errstate(invalid="ignore"):
        possible = (took > 0.0) & (took <= LONGEST)
    timed = possible & outcome.succeeded
    longest = took.max(where=timed, initial=0.0)
    ids, seconds = choice.ids[timed], took[timed]
    state.timed[ids] += 1
    old = np.where(state.timed[ids] > 1, state.duration[ids], seconds)
    state.duration[ids] = old + (seconds - old) * np.maximum(1.0 / state.timed[ids], MEMORY)
    failed = told(outcome, took) & ~timed & (state.timed[choice.ids] == 0)
    waited = np.maximum(np.where(possible, took, 0.0), longest)[failed]
    ids = choice.ids[failed]
    state.duration[ids] = np.where(waited > 0.0, np.fmax(state.duration[ids], waited), state.duration[ids])


def _learn_updates(state: BalancedState, choice: Choice, outcome: Outcome) -> None:
    """Keep the direction of each usable update: its length falls as training goes on, and is easily made large."""
    rows = np.asarray(outcome.reports[REPORT], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        usable = outcome.succeeded & (np.abs(rows) <= LARGEST_ENTRY).all(axis=1)
    length = np.sqrt(np.square(rows[usable]).sum(axis=1, keepdims=True))
    state.vectors[choice.ids[usable]] = rows[usable] / np.maximum(length, 1e-300)
