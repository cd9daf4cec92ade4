"""S-FedAvg: clients drawn by the softmax of what their updates were worth on the server's validation data.

Nagalapatti & Narayanam (2021), "Game of Gradients: Mitigating Irrelevant Clients in Federated Learning", AAAI,
Algorithm 1. A client's relevance phi becomes alpha phi + (1 - alpha) times the Shapley value of its update in the
round; m clients are drawn without replacement in proportion to exp(phi).

The round's values come as the report "shapley", which the server computes: of minus the validation loss, with updates
weighted by size. Relevances begin at 0; in the paper at 1/K, which is the same for all but would set newcomers apart.

Trusts: no report; the updates themselves are valued. The validation data must be like what the model is for.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import sampling
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies._common import ByValue, check_cohort_size, check_number, nobody, present, valid_losses

__all__ = ["SFedAvg", "SFedAvgState"]

FLATTEST = -700.0  # exp of less is 0, with which nobody could be drawn


@dataclass
class SFedAvgState:
    """How often each client was chosen, and its relevance."""

    counts: Ints
    relevance: Floats


@dataclass(frozen=True, eq=False)
class SFedAvg(ByValue):
    """Clients drawn in proportion to the exponential of their relevance.

    Args:
        cohort_size: m.
        memory: alpha, in [0, 1): how much of the old relevance stays.

    >>> import fedpick as fp
    >>> fp.SFedAvg(cohort_size=10).memory
    0.75
    """

    cohort_size: int
    memory: float = 0.75

    needs = (ReportSpec("shapley", 0, server=True),)

    def __post_init__(self) -> None:
        check_cohort_size(self, self.cohort_size)
        check_number(self, "memory", self.memory, 0.0, np.nextafter(1.0, 0.0))

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
        told = np.asarray(outcome.reports.get("shapley", np.full(len(choice), np.nan)), dtype=np.float64)
        heard = outcome.succeeded & valid_losses(told)
        ids = choice.ids[heard]
        state.relevance[ids] = self.memory * state.relevance[ids] + (1.0 - self.memory) * told[heard]
        return SFedAvgState(state.counts, state.relevance)
