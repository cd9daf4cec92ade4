"""Active Federated Learning (AFL): sample clients by a softmax over the values of their data.

Algorithm 1; a baseline in Power-of-Choice, with the settings used there.

Trusts: the losses that clients report, and their data sizes; neither can influence the share alpha3, which is drawn
uniformly. A client that reports an impossible loss (NaN, infinity, above 1e12) or fails gets the lowest value in its
cohort, or keeps its last one if that is lower; `clip` limits the effect of a possible but huge loss. A client that was
not waited for keeps its value.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, clip_losses, nobody, places, told, unheard_lowest, valid_losses
from fedpick.policies.about import About, Paper

__all__ = ["ActiveFL", "ActiveFLState"]

PAPER = Paper(
    "goetz2019active",
    "Goetz, Jack and Malik, Kshitiz and Bui, Duc and Moon, Seungwhan and Liu, Honglei and Kumar, Anuj",
    "Active Federated Learning",
    2019,
    "journal = {arXiv preprint arXiv:1909.12641}",
    "https://arxiv.org/abs/1909.12641",
)


@dataclass
class ActiveFLState:
    """Each client's value sqrt(n_k) * loss from its last report; NaN if it has not been asked yet."""

    value: Floats


@dataclass(frozen=True, eq=False)
class ActiveFL(ByValue):
    """Clients drawn by a softmax over their reported losses, and a share of them uniformly.

    Args:
        cohort_size: m.
        alpha1: share of the available clients, those with the lowest values, that is left out of the softmax.
        alpha2: the softmax's inverse temperature.
        alpha3: share of the cohort drawn uniformly from the other clients: m - floor((1 - alpha3) m), but at least one
            client is drawn by value.
        clip: a quantile; values above it count as equal to it. None: no limit, as in the paper.
    """

    cohort_size: int
    alpha1: float = 0.75
    alpha2: float = 0.01
    alpha3: float = 0.1
    clip: float | None = None

    about = About(("active-fl",), PAPER)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "alpha1", "alpha3", low=0.0, high=1.0)
        check.number(self, "alpha2", low=0.0)
        check.number(self, "clip", low=0.0, high=1.0, open=True)

    def init(self, clients: Clients) -> ActiveFLState:
        """Return the state before the first round: no reports yet."""
        return ActiveFLState(np.full(len(clients), np.nan))

    def select(self, state: ActiveFLState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        value = clip_losses(state.value[ids], self.clip)
        # The paper gives no value for clients that have not reported: we take the largest known, so none is left out.
        unknown = np.isnan(value)
        value[unknown] = 0.0 if unknown.all() else np.nanmax(value)
        by_value = max(math.floor((1.0 - self.alpha3) * m + 1e-9), 1)  # as in the authors' code; the rest is uniform
        kept = max(len(ids) - int(self.alpha1 * len(ids)), by_value)
        pool = solvers.top(value, kept, rng)
        keys = self.alpha2 * value[pool] + rng.gumbel(size=len(pool))  # Gumbel-top-k: softmax without replacement
        drawn = pool[solvers.top(keys, by_value, rng)]
        rest = np.delete(np.arange(len(ids)), drawn)
        others = rng.choice(rest, m - by_value, replace=False, shuffle=False)
        return Choice(np.sort(ids[np.concatenate([drawn, others])]))

    def observe(self, state: ActiveFLState, view: View, choice: Choice, outcome: Outcome) -> ActiveFLState:
        """Update the values: of clients that reported a loss, and of those that failed to."""
        check_outcome(view, choice, outcome)
        heard = outcome.succeeded & valid_losses(outcome.loss)
        ids = choice.ids
        state.value[ids[heard]] = np.sqrt(view.clients.sizes[ids[heard]]) * outcome.loss[heard]
        lowest = unheard_lowest(state.value[ids], heard)
        state.value[ids] = np.where(told(outcome, outcome.loss), lowest, state.value[ids])
        return ActiveFLState(state.value)
