"""ONE round, top to bottom."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpick import rng as rngs
from fedpick.errors import ContractError
from fedpick.protocol import Policy, traits
from fedpick.types import Bools, Choice, Floats, Ints, Outcome, Status
from fedpick.world import Draw, Timing, World, WorldState

__all__ = ["Record", "RunState", "Trainer", "Updates", "play"]


@dataclass(frozen=True, eq=False)
class Updates:
    """What local training gave, aligned with the chosen clients (NaN for those that did not train).

    Args:
        loss: mean local training loss; one that is not finite says that the update is unusable.
        reports: further arrays by name, for the policy.
        payload: the trainer's own: the updates themselves.
        valid: mask of usable updates, for a trainer that finds NaN in an update whose loss is finite; None: all.
    """

    loss: Floats
    reports: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    valid: Bools | None = None


class Trainer(Protocol):
    """Trains the model; a run without one is a numerical experiment.

    All that a trainer carries from round to round is in the model (optimiser states too): arrays, in dicts, lists or
    tuples, as deep as it likes. That is what a run's folder keeps.
    """

    def init(self, seed: int) -> Any:
        """The model before the first round."""
        ...

    def probe(self, model: Any, ids: Ints, batch: int | None, rng: np.random.Generator) -> Floats:
        """Loss of the model on these clients' data."""
        ...

    def train(
        self, model: Any, ids: Ints, used: Bools, epochs: Floats, round: int, rng: np.random.Generator
    ) -> Updates:
        """Train on those of the chosen clients whose work is used; that may be nobody."""
        ...

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates) -> Any:
        """The next model, from the clients whose status is DONE; not called where there is none."""
        ...

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """What is measured after this round; empty in rounds without evaluation."""
        ...


@dataclass
class RunState:
    """Everything that a run carries from one round to the next."""

    policy: Any
    world: WorldState
    model: Any = None
    round: int = 0


@dataclass(frozen=True, eq=False)
class Record:
    """What happened in a round: one row, and one row for each chosen client."""

    round: int
    clock: float  # simulated seconds at the end of the round
    seconds: float  # that it lasted
    available: int
    messages: int
    megabytes: float
    clients: Ints
    inclusion: Floats  # NaN where the policy does not know it
    status: NDArray[np.int8]
    duration: Floats
    loss: Floats
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class _Meter:
    """Counts what probes cost while the policy chooses."""

    world: World
    state: WorldState
    draw: Draw
    trainer: Trainer
    model: Any
    rng: np.random.Generator
    asked: int = 0
    seconds: float = 0.0

    def __call__(self, ids: Ints, /, *, batch: int | None = None) -> Floats:
        took = self.world.probe_share * self.world.seconds(self.state, self.draw, ids)
        self.seconds += float(took.max(initial=0.0))  # the server waits for the slowest
        self.asked += len(ids)
        return self.trainer.probe(self.model, ids, batch, self.rng)


def _judge(timing: Timing, updates: Updates) -> Timing:
    """Turn DONE into FAILED where the update is unusable; it took its time and its message all the same."""
    usable = np.isfinite(updates.loss)
    if updates.valid is not None:
        usable = usable & updates.valid
    if usable.shape != timing.status.shape:
        raise ContractError(
            f"Trainer.train gave losses of shape {usable.shape}, but {len(timing.status)} clients were chosen: give "
            "one each, NaN for those whose work is not used"
        )
    return replace(timing, status=np.where(timing.used & ~usable, Status.FAILED, timing.status).astype(np.int8))


def play(policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None = None) -> Record:
    """Play the next round; the state moves on in place."""
    round = state.round + 1
    draw = world.draw(state.world, seed, round)

    meter = None
    if trainer is not None:
        meter = _Meter(world, state.world, draw, trainer, state.model, rngs.stream(seed, round, "probe"))
    view = world.view(state.world, draw, meter)

    choice = policy.select(state.policy, view, rngs.stream(seed, round, "policy"))

    probing = 0.0 if meter is None else meter.seconds
    timing = world.close(state.world, draw, choice, traits(policy).cohort_size, probing)

    if trainer is None:
        outcome = timing.report()
    else:
        epochs = state.world.epochs[choice.clients]
        rng = rngs.stream(seed, round, "train")
        updates = trainer.train(state.model, choice.clients, timing.used, epochs, round, rng)
        judged = _judge(timing, updates)
        outcome = judged.report(np.where(timing.used, updates.loss, np.nan), updates.reports)
        if (outcome.status == Status.DONE).any():
            state.model = trainer.aggregate(state.model, choice, outcome, updates)

    state.policy = policy.observe(state.policy, view, choice, outcome)
    state.round = round

    probes = 0 if meter is None else meter.asked
    answered = int(np.count_nonzero(timing.status != Status.FAILED))  # an unusable update is a message, too
    return Record(
        round=round,
        clock=state.world.clock,
        seconds=timing.seconds,
        available=int(np.count_nonzero(view.available)),
        messages=len(choice) + answered + 2 * probes,
        megabytes=world.model_megabytes * (len(choice) + answered + probes),  # a probe's answer is one number
        clients=choice.clients,
        inclusion=np.full(len(choice), np.nan) if choice.inclusion is None else choice.inclusion,
        status=outcome.status,
        duration=outcome.duration,
        loss=outcome.loss,
        metrics={} if trainer is None else trainer.evaluate(state.model, round),
    )
