"""REFL's selector: the available clients that will most likely be unavailable soon.

Section 4.1 of the paper (intelligent participant selection): the clients with the lowest forecast of being available in
the coming window train now, ties at random. The paper asks clients for a forecast, and its code reads the trace of the
simulation; here the forecast is learned from the availability in earlier rounds, by a Markov chain of two states for
each client. If all clients are always available, all forecasts are equal, and the choice is uniform.

REFL's other part, the use of late updates, is a setting of the world (`World.late`). Its pause of a few rounds after
each participation is `MinSeparation(REFL(m), rounds)`.

Trusts: which clients are there. A client that often comes and goes is chosen whenever it is available. Clients that
pause, or are busy with an earlier round, are there (`view.there`): otherwise each participation would look like
leaving.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present
from fedpick.policies.about import About, Paper

__all__ = ["REFL", "REFLState"]

PAPER = Paper(
    "abdelmoniem2023refl",
    "Abdelmoniem, Ahmed M. and Sahu, Atal Narayan and Canini, Marco and Fahmy, Suhaib A.",
    "{REFL}: Resource-Efficient Federated Learning",
    2023,
    "booktitle = {European Conference on Computer Systems (EuroSys)}",
    "https://arxiv.org/abs/2111.01108",
)


@dataclass
class REFLState:
    """How often each client was chosen, and its observed changes of availability."""

    counts: Ints
    was: Bools  # whether it was available in the last round
    stays: Ints  # number of rounds in which it was available, and in the round before as well
    leaves: Ints
    comes: Ints
    waits: Ints
    round: int = shared_field()  # the last round that was seen, 0: none


@dataclass(frozen=True, eq=False)
class REFL(ByValue):
    """Clients that will most likely be away soon.

    Args:
        cohort_size: how many train.
        window: number of rounds that the forecast covers: the mean probability of being available in them. The paper
            uses the next round.

    >>> import fedpick as fp
    >>> fp.REFL(cohort_size=10)
    REFL(cohort_size=10, window=1)
    """

    cohort_size: int
    window: int = 1

    about = About(("refl",), PAPER)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "window", low=1)

    def init(self, clients: Clients) -> REFLState:
        """Return the state before the first round: nothing observed."""
        none = np.zeros(len(clients), dtype=np.int64)
        was = np.zeros(len(clients), dtype=np.bool_)
        return REFLState(none, was, none.copy(), none.copy(), none.copy(), none.copy(), 0)

    def forecast(self, state: REFLState, ids: Ints, round: int = 0) -> Floats:
        """Mean probability that each of these clients, all available now, is available in the next `window` rounds.

        Transitions are counted with one more of each kind than were seen, so that nothing is certain.

        Args:
            state: what was seen until the round before.
            ids: clients that are available now.
            round: now; its transitions, which can be seen before the choice, are counted, too. 0: only those before.
        """
        stays, comes = state.stays[ids], state.comes[ids]
        if state.round and round == state.round + 1:
            stays, comes = stays + state.was[ids], comes + ~state.was[ids]
        stay = (stays + 1.0) / (stays + state.leaves[ids] + 2.0)
        come = (comes + 1.0) / (comes + state.waits[ids] + 2.0)
        rest = come / (1.0 - stay + come)  # share of rounds in which the client is available in the long run
        fade = stay - come  # factor by which the distance to that share shrinks each round
        w = self.window
        found: Floats = rest + (1.0 - rest) * fade * (1.0 - fade**w) / (w * (1.0 - fade))
        return found

    def select(self, state: REFLState, view: View, rng: np.random.Generator) -> Choice:
        """The lowest forecasts, ties at random."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        return Choice(ids[solvers.top(-self.forecast(state, ids, view.round), self.cohort_size, rng)])

    def observe(self, state: REFLState, view: View, choice: Choice, outcome: Outcome) -> REFLState:
        """Count the changes of availability since the last round."""
        check_outcome(view, choice, outcome)
        now = view.there  # who pauses or is busy is not away
        if state.round and view.round == state.round + 1:  # after a gap, the transitions are not known
            state.stays += state.was & now
            state.leaves += state.was & ~now
            state.comes += ~state.was & now
            state.waits += ~state.was & ~now
        state.counts[choice.ids] += 1
        state.was[:] = now
        return REFLState(state.counts, state.was, state.stays, state.leaves, state.comes, state.waits, view.round)
