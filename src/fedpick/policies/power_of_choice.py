"""Power-of-Choice: of d candidates, train the m with the highest loss.

Section 4 of the paper, and Algorithms 1 and 2 of its appendix F.

Trusts: the losses that clients report, and their data sizes, by which candidates are drawn. A client that reports an
impossible loss (NaN, infinity, above 1e12) ranks last;
in rpow-d it counts as a failure, that is as the lowest loss in its cohort, or its last one if that is lower. A client
that reports a huge but possible loss is chosen whenever it is a candidate; with `clip` it only ties with the highest.
A client that was not waited for keeps its loss; if it has none after three such rounds, it ranks in the middle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedpick import sampling, solvers
from fedpick.core.errors import MissingError, require
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import (
    EXCUSES,
    ByValue,
    answers,
    clip_losses,
    nobody,
    present,
    told,
    unheard_lowest,
    valid_losses,
)
from fedpick.policies.about import About, Paper

__all__ = ["PowerOfChoice", "PowerOfChoiceState"]

PAPER = Paper(
    "cho2020client",
    "Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri",
    "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies",
    2020,
    "journal = {arXiv preprint arXiv:2010.01243}",
    "https://arxiv.org/abs/2010.01243",
)

VARIANTS = ("pow-d", "cpow-d", "rpow-d")


@dataclass
class PowerOfChoiceState:
    """The last loss that each client reported (+inf: none yet), and how often each was chosen."""

    loss: Floats
    counts: Ints


@dataclass(frozen=True, eq=False)
class PowerOfChoice(ByValue):
    """The highest losses among d candidates that are drawn by data size.

    Args:
        cohort_size: m.
        candidates: d >= m, at most the available clients; None: 2m.
        variant: "pow-d" probes the candidates' full local loss, "cpow-d" the loss on one mini-batch, "rpow-d" does not
            probe and uses the last training loss that each client reported.
        schedule: callable round -> d, which replaces `candidates` (adapow-d): fp.schedules.Halving(K, every=5000),
            fp.schedules.Step(K, m, at=T / 2). At least m is used.
        batch: examples in cpow-d's mini-batch (each client uses min(batch, its size)).
        clip: a quantile; losses above it count as equal to it, so that a false loss can only tie. None: no limit, as
            in the paper.

    >>> import fedpick as fp
    >>> sorted(fp.PowerOfChoice(cohort_size=3, candidates=6).needs)
    ['probe']
    """

    cohort_size: int
    candidates: int | None = None
    variant: str = "pow-d"
    schedule: Callable[[int], float] | None = None
    batch: int = 64
    clip: float | None = None

    about = About(("power-of-choice",), PAPER, variants=VARIANTS, forms=({"variant": "rpow-d"},))

    def __post_init__(self) -> None:
        check.cohort_size(self)
        if self.candidates is not None:
            require(
                self.candidates >= self.cohort_size,
                "PowerOfChoice: candidates",
                self.candidates,
                f">= cohort_size = {self.cohort_size}",
                "the cohort is chosen among the candidates (d >= m)",
            )
        check.one_of(self, "variant", VARIANTS)
        check.number(self, "batch", low=1)
        check.number(self, "clip", low=0.0, high=1.0, open=True)

    @property
    def needs(self) -> tuple[str, ...]:
        """A probe, unless the variant uses reports."""
        return () if self.variant == "rpow-d" else ("probe",)

    def init(self, clients: Clients) -> PowerOfChoiceState:
        """Return the state before the first round: no reports yet."""
        return PowerOfChoiceState(np.full(len(clients), np.inf), np.zeros(len(clients), dtype=np.int64))

    def d(self, round: int) -> int:
        """The number of candidates in this round."""
        if self.schedule is not None:
            return max(int(self.schedule(round)), self.cohort_size)
        return 2 * self.cohort_size if self.candidates is None else self.candidates

    def select(self, state: PowerOfChoiceState, view: View, rng: np.random.Generator) -> Choice:
        """Draw the candidates, get their losses, take the highest."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        d = min(self.d(view.round), len(ids))
        if d < len(ids):
            sizes = view.clients.sizes if len(ids) == len(view.clients) else view.clients.sizes[ids]
            ids = ids[sampling.weighted(sizes, d, rng)]
        losses = clip_losses(self._losses(state, view, ids), self.clip)
        chosen = ids[solvers.top(losses, self.cohort_size, rng)]
        return Choice(chosen, weights=np.ones(len(chosen)))  # 1/m each: candidates were already drawn by size

    def _losses(self, state: PowerOfChoiceState, view: View, ids: Ints) -> Floats:
        if self.variant == "rpow-d":
            losses, silent = state.loss[ids], np.isposinf(state.loss[ids])
            often = silent & (state.counts[ids] >= EXCUSES)  # was never waited for; else it would come first for ever
            return np.where(often, np.median(losses[~silent]) if not silent.all() else 0.0, losses)
        if view.probe is None:
            raise MissingError(
                f"PowerOfChoice: variant {self.variant!r} asks the candidates for their loss, but view.probe is None; "
                "give the View a probe, or use variant='rpow-d', which needs none"
            )
        batch = self.batch if self.variant == "cpow-d" else None
        losses = answers(partial(view.probe, batch=batch), ids, "view.probe", "loss")
        return np.where(valid_losses(losses), losses, -np.inf)

    def observe(self, state: PowerOfChoiceState, view: View, choice: Choice, outcome: Outcome) -> PowerOfChoiceState:
        """Store the reported losses (rpow-d ranks by them)."""
        check_outcome(view, choice, outcome)
        heard = outcome.succeeded & valid_losses(outcome.loss)
        ids = choice.ids
        state.loss[ids[heard]] = outcome.loss[heard]
        # A client that failed does not keep its last loss: it would soon be the highest, because the others fall.
        lowest = unheard_lowest(state.loss[ids], heard)
        state.loss[ids] = np.where(told(outcome, outcome.loss), lowest, state.loss[ids])
        state.counts[ids] += 1
        return PowerOfChoiceState(state.loss, state.counts)
