"""S-FedAvg: clients drawn by the softmax of what their updates were worth on the server's validation data.

Algorithm 1: a client's relevance phi becomes alpha phi + (1 - alpha) times the Shapley value of its update in the
round; m clients are drawn without replacement in proportion to exp(phi).

The round's values are the report "shapley", which the server computes: of minus the validation loss, with updates
weighted by size. Relevances begin at 0; in the paper at 1/K, which is the same for all but would set newcomers apart.

Trusts: no report; the updates themselves are valued. The validation data must be like what the model is for.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import sampling
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present, valued
from fedpick.policies.about import About, Paper

__all__ = ["SFedAvg", "SFedAvgState"]

PAPER = Paper(
    "nagalapatti2021game",
    "Nagalapatti, Lokesh and Narayanam, Ramasuri",
    "Game of Gradients: Mitigating Irrelevant Clients in Federated Learning",
    2021,
    "booktitle = {AAAI Conference on Artificial Intelligence}",
    "https://arxiv.org/abs/2110.12257",
)

FLATTEST = -700.0  # the exponential of less is 0, and such a client could never be drawn


@dataclass
class SFedAvgState:
    """How often each client was chosen, and its relevance."""

    counts: Ints
    relevance: Floats


@dataclass(frozen=True, eq=False)
class SFedAvg(ByValue):
    """Clients drawn by a softmax of the Shapley values of their updates on the server's data.

    Args:
        cohort_size: m.
        memory: alpha, in [0, 1): how much of the old relevance stays.

    >>> import fedpick as fp
    >>> fp.SFedAvg(cohort_size=10).memory
    0.75
    """

    cohort_size: int
    memory: float = 0.75

    about = About(("s-fedavg",), PAPER)
    needs = (ReportSpec("shapley", 0, server=True),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "memory", low=0.0, high=np.nextafter(1.0, 0.0))

    def init(self, clients: Clients) -> SFedAvgState:
        """Return the state before the first round."""
        return SFedAvgState(np.zeros(len(clients), dtype=np.int64), np.zeros(len(clients)))

    def select(self, state: SFedAvgState, view: View, rng: np.random.Generator) -> Choice:
        """Draw the cohort."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        phi = state.relevance[ids]
        odds = np.exp(np.maximum(phi - phi.max(), FLATTEST))
        return Choice(np.sort(ids[sampling.weighted(odds, min(self.cohort_size, len(ids)), rng)]))

    def observe(self, state: SFedAvgState, view: View, choice: Choice, outcome: Outcome) -> SFedAvgState:
        """Move the relevances towards the values of this round."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        values, heard = valued(outcome)
        ids = choice.ids[heard]
        state.relevance[ids] = self.memory * state.relevance[ids] + (1.0 - self.memory) * values[heard]
        return SFedAvgState(state.counts, state.relevance)
