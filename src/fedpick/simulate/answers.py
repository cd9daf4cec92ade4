"""What comes back from the clients of a simulated round, and when: answers, probes, and the norms of a first phase."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.protocol import Trainer, check_asked
from fedpick.core.types import Bools, Choice, Floats, Ints, Updates
from fedpick.engine.cohort import Cohort, possible
from fedpick.engine.flight import Flight
from fedpick.engine.work import worked
from fedpick.simulate.abilities import TwoPhaseTrainer
from fedpick.worlds import Draw, World, WorldState

__all__ = ["Answers", "FirstPhase", "Meter", "usable"]


def usable(updates: Updates, used: Bools) -> Bools:
    """Mask of the updates that can be aggregated; the others' clients have failed."""
    if not isinstance(updates, Updates):
        raise ContractError(
            f"Trainer.train returned {type(updates).__name__}, but must return fp.Updates: the losses, and what "
            "Trainer.aggregate needs"
        )
    mask: Bools = possible(np.asarray(updates.loss))
    if updates.valid is not None:
        mask = mask & updates.valid
    if mask.shape != used.shape:
        raise ContractError(
            f"Trainer.train returned losses of shape {mask.shape}, but {len(used)} clients were chosen: "
            "return one per client, NaN for those whose work is not used"
        )
    return mask


@dataclass
class Meter:
    """Answers the policy's probes, and counts their clients and seconds."""

    world: World
    state: WorldState
    draw: Draw
    trainer: Trainer
    model: Any
    rng: np.random.Generator
    asked: int = 0
    seconds: float = 0.0
    work: float = 0.0  # seconds that they compute
    may: Bools | None = None  # mask of the clients that can be asked

    def __call__(self, ids: Ints, /, *, batch: int | None = None) -> Floats:
        """The losses of these clients, as `view.probe`."""
        assert self.may is not None
        check_asked(self.may, ids, "view.probe")
        share, (took, computing) = self.world.probe_share, self.world.times(self.state, self.draw, ids)
        self.seconds += share * float(took.max(initial=0.0))  # the server waits for the slowest
        self.work += share * worked(computing, np.inf)
        self.asked += len(ids)
        return self.trainer.probe(self.model, ids, batch, self.rng)


@dataclass(eq=False)
class Answers:
    """When the answers of a cohort come, on the virtual clock, and which of them cannot be used.

    A client that fails is never heard of again, so that the server waits for it until the deadline; without a deadline,
    the server notices it when the client should have answered.
    """

    cohort: Cohort
    took: Floats  # seconds until the answer; infinite: never
    computing: Floats  # seconds that the client would compute
    fails: Bools  # mask of those whose failure is noticed then
    order: Ints  # positions of those that come by the deadline, in the order of their times
    deadline: float | None
    bad: Bools = field(init=False)  # mask of those whose update has turned out to be unusable

    def __post_init__(self) -> None:
        self.bad = np.zeros(len(self.cohort), dtype=np.bool_)

    @classmethod
    def of(cls, world: World, state: WorldState, draw: Draw, cohort: Cohort, deadline: float | None) -> "Answers":
        """The answers of this cohort in this round of the world."""
        ids = cohort.choice.ids
        (took, computing), fails = world.times(state, draw, ids), ~world.works(state, draw, ids)
        if deadline is not None:
            took, fails = np.where(fails, np.inf, took), np.zeros(len(ids), dtype=np.bool_)
        come = np.flatnonzero(took <= (np.inf if deadline is None else deadline))
        if cohort.keep is not None and cohort.draws > cohort.keep:  # else their order does not matter
            come = come[draw.first(took[come], ids[come])]
        return cls(cohort, took, computing, fails, come, deadline)

    def needed(self) -> Bools:
        """Mask of the clients whose answers will be used, as far as is known: only these need to be trained."""
        come = self.order[~(self.fails | self.bad)[self.order]]
        if self.cohort.keep is not None:
            drawn = np.cumsum(self.cohort.choice.times[come])
            come = come[: int(np.searchsorted(drawn, self.cohort.keep)) + 1]
        mask = np.zeros(len(self.cohort), dtype=np.bool_)
        mask[come] = True
        return mask

    def reject(self, bad: Bools) -> bool:
        """Note updates that cannot be used; whether answers of others take their place, which must be trained, too."""
        if not bad.any():
            return False
        before = self.needed()
        self.bad |= bad
        return bool((self.needed() & ~before).any())

    def deliver(self, loss: Floats | None = None) -> float:
        """Let the answers come until the cohort is complete or the deadline is reached; returns the seconds."""
        cohort = self.cohort
        come = cohort.arrive_in_turn(self.order, self.took, loss, ~(self.fails | self.bad), ~self.fails)
        last = float(self.took[come].max(initial=0.0))
        seconds = last if cohort.complete or self.deadline is None else self.deadline
        cohort.close(seconds if self.deadline is None else self.deadline)
        return seconds


@dataclass
class FirstPhase:
    """Trains the clients that are asked for the norm of their update; those then chosen send the update."""

    world: World
    state: WorldState
    draw: Draw
    trainer: Trainer
    split: TwoPhaseTrainer  # the same one
    model: Any
    rng: np.random.Generator
    deadline: float | None
    may: Bools
    flight: Flight
    cohort: Cohort | None = None  # those who were asked
    seconds: float = 0.0
    answers: Answers = None  # type: ignore[assignment]
    updates: Updates = None  # type: ignore[assignment]

    def __call__(self, ids: Ints, /) -> Floats:
        """The lengths of these clients' updates, as `view.norms`."""
        if self.cohort is not None:
            raise ContractError("view.norms was called twice in a round, but clients train once: ask all at once")
        check_asked(self.may, ids, "view.norms")
        self.cohort = cohort = Cohort(Choice(ids), None, self.flight.issue(len(ids)))
        self.answers = Answers.of(self.world, self.state, self.draw, cohort, self.deadline)
        used, ids = self.answers.needed(), np.asarray(ids)
        self.updates = self.trainer.train(self.model, ids, used, self.state.epochs[ids], self.draw.round, self.rng)
        self.answers.reject(used & ~usable(self.updates, used))
        self.seconds = self.answers.deliver(self.updates.loss)
        norms = self.updates.reports.get("update_norm", np.full(len(ids), np.nan))  # none where nobody answers
        return np.where(cohort.used, np.asarray(norms), np.nan)

    def part(self, chosen: Ints) -> Updates:
        """The updates of the chosen, all of whom were asked."""
        assert self.cohort is not None
        where = {int(client): at for at, client in enumerate(self.cohort.choice.ids)}
        stranger = next((int(client) for client in chosen if int(client) not in where), None)
        if stranger is not None:
            raise ContractError(f"client {stranger} was chosen, but was not asked by view.norms: it has no update")
        return self.split.part(self.updates, np.array([where[int(client)] for client in chosen], dtype=np.int64))
