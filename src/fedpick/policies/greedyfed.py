"""GreedyFed: the clients whose updates were worth most on the server's validation data.

Algorithm 1: in the first rounds every client is chosen once; then the m with the highest Shapley value, which is the
mean over the rounds that a client took part in, or an exponential average.

The round's values are the report "shapley", which the server computes: GTG-Shapley, of minus the validation loss.
Clients never tried come first, in random order (in the paper by their number). A client that was chosen but not valued,
because it failed, counts as the lowest of its cohort, or keeps its value if that is lower: with the initial value of 0,
it would rank above clients of negative value. If the server could value nobody (its function raised, or gave NaN),
nothing changes for clients that answered, and clients never valued still come first; but only three times, because an
update may be made to break the server's function. The same holds for a client that was not waited for.

Trusts: no report; the updates themselves are valued. The validation data must be like what the model is for.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import EXCUSES, ByValue, nobody, present, unheard_lowest, valued
from fedpick.policies.about import About, Paper

__all__ = ["GreedyFed", "GreedyFedState"]

PAPER = Paper(
    "singhal2024greedy",
    "Singhal, Pranava and Pandey, Shashi Raj and Popovski, Petar",
    "Greedy {Shapley} Client Selection for Communication-Efficient Federated Learning",
    2024,
    "journal = {IEEE Networking Letters}",
    "https://arxiv.org/abs/2312.09108",
)


@dataclass
class GreedyFedState:
    """How often each client was tried, valued, and excused (the server could not value it); its average value."""

    counts: Ints
    valued: Ints
    excused: Ints
    worth: Floats


@dataclass(frozen=True, eq=False)
class GreedyFed(ByValue):
    """Clients with the highest average Shapley value of their updates on the server's data.

    Args:
        cohort_size: m.
        memory: None: the mean of all of a client's values; else alpha in [0, 1), and the average is alpha times the
            old one plus 1 - alpha times the new value.

    >>> import fedpick as fp
    >>> fp.traits(fp.GreedyFed(cohort_size=10)).needs
    frozenset({'shapley'})
    """

    cohort_size: int
    memory: float | None = None

    about = About(("greedyfed",), PAPER)
    needs = (ReportSpec("shapley", 0, server=True),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "memory", low=0.0, high=np.nextafter(1.0, 0.0))

    def init(self, clients: Clients) -> GreedyFedState:
        """Return the state before the first round."""
        none = np.zeros(len(clients), dtype=np.int64)
        return GreedyFedState(none, none.copy(), none.copy(), np.zeros(len(clients)))

    def select(self, state: GreedyFedState, view: View, rng: np.random.Generator) -> Choice:
        """Clients never tried first; then those of the highest value, ties at random."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        fresh = (state.counts[ids] == 0) & (state.excused[ids] < EXCUSES)
        rank = np.where(fresh, np.inf, state.worth[ids])
        return Choice(np.sort(ids[solvers.top(rank, self.cohort_size, rng)]))

    def observe(self, state: GreedyFedState, view: View, choice: Choice, outcome: Outcome) -> GreedyFedState:
        """Average the values of this round."""
        check_outcome(view, choice, outcome)
        values, heard = valued(outcome)
        spare = outcome.status == Status.SURPLUS  # surplus updates are never valued
        excused = ((outcome.status == Status.DONE) & ~heard.any()) | (spare & ~heard)
        state.counts[choice.ids[~excused]] += 1
        state.excused[choice.ids[excused]] += 1
        ids, new = choice.ids[heard], values[heard]
        state.valued[ids] += 1
        if self.memory is None:
            state.worth[ids] += (new - state.worth[ids]) / state.valued[ids]
        else:
            state.worth[ids] = self.memory * state.worth[ids] + (1.0 - self.memory) * new
        judged = ~excused
        ids = choice.ids[judged]
        state.worth[ids] = unheard_lowest(state.worth[ids], heard[judged])
        return GreedyFedState(state.counts, state.valued, state.excused, state.worth)
