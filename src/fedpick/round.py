"""ONE round, top to bottom."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpick import rng as rngs
from fedpick.errors import ContractError
from fedpick.protocol import Policy, traits
from fedpick.types import Bools, Choice, Floats, Ints, Outcome, Status, View
from fedpick.world import Draw, Timing, World, WorldState

__all__ = [
    "ROUND_COLUMNS",
    "Chosen",
    "Record",
    "RunState",
    "Trainer",
    "Updates",
    "choose",
    "judge",
    "play",
    "settle",
    "work",
]


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
    wall: Mapping[str, float] = field(default_factory=dict)  # real seconds of "selection" and "training"; not stored


# The columns that every table of rounds has; metrics have other names.
ROUND_COLUMNS = (
    *("round", "clock", "seconds", "available", "chosen"),
    *(status.name.lower() for status in Status),
    *("messages", "megabytes"),
)


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


@dataclass(frozen=True, eq=False)
class Chosen:
    """A round whose clients are chosen and timed, and not yet trained."""

    round: int
    view: View
    choice: Choice
    timing: Timing
    probes: int
    wall: float  # real seconds that the policy took


def play(policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None = None) -> Record:
    """Play the next round; the state moves on in place."""
    chosen = choose(policy, world, state, seed, trainer)
    start = time.perf_counter()
    if trainer is None:
        outcome = chosen.timing.report()
    else:
        updates = trainer.train(*work(chosen, state, seed))
        outcome = judge(chosen, updates)
        if (outcome.status == Status.DONE).any():
            state.model = trainer.aggregate(state.model, chosen.choice, outcome, updates)
    return settle(policy, world, state, chosen, outcome, trainer, time.perf_counter() - start)


def choose(policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None) -> Chosen:
    """The first half of a round: who is there, who is asked, and when they answer."""
    round = state.round + 1
    draw = world.draw(state.world, seed, round)

    meter = None
    if trainer is not None:
        meter = _Meter(world, state.world, draw, trainer, state.model, rngs.stream(seed, round, "probe"))
    view = world.view(state.world, draw, meter)

    start = time.perf_counter()
    choice = policy.select(state.policy, view, rngs.stream(seed, round, "policy"))
    wall = time.perf_counter() - start

    probing, probes = (0.0, 0) if meter is None else (meter.seconds, meter.asked)
    timing = world.close(state.world, draw, choice, traits(policy).cohort_size, probing)
    return Chosen(round, view, choice, timing, probes, wall)


def work(chosen: Chosen, state: RunState, seed: int) -> tuple[Any, ...]:
    """What `Trainer.train` is called with."""
    clients, round = chosen.choice.clients, chosen.round
    rng = rngs.stream(seed, round, "train")
    return state.model, clients, chosen.timing.used, state.world.epochs[clients], round, rng


def judge(chosen: Chosen, updates: Updates) -> Outcome:
    """What the server sees: an unusable update turns DONE into FAILED; it took its time and its message, though."""
    timing = chosen.timing
    usable = np.isfinite(updates.loss)
    if updates.valid is not None:
        usable = usable & updates.valid
    if usable.shape != timing.status.shape:
        raise ContractError(
            f"Trainer.train gave losses of shape {usable.shape}, but {len(timing.status)} clients were chosen: give "
            "one each, NaN for those whose work is not used"
        )
    status = np.where(timing.used & ~usable, Status.FAILED, timing.status).astype(np.int8)
    return replace(timing, status=status).report(np.where(timing.used, updates.loss, np.nan), updates.reports)


def settle(
    policy: Policy[Any],
    world: World,
    state: RunState,
    chosen: Chosen,
    outcome: Outcome,
    trainer: Trainer | None,
    wall: float,
) -> Record:
    """The end of a round: the policy learns, the model is evaluated; the state moves on in place."""
    choice, timing = chosen.choice, chosen.timing
    state.policy = policy.observe(state.policy, chosen.view, choice, outcome)
    state.round = chosen.round

    answered = int(np.count_nonzero(timing.status != Status.FAILED))  # an unusable update is a message, too
    return Record(
        round=chosen.round,
        clock=state.world.clock,
        seconds=timing.seconds,
        available=int(np.count_nonzero(chosen.view.available)),
        messages=len(choice) + answered + 2 * chosen.probes,
        megabytes=world.model_megabytes * (len(choice) + answered + chosen.probes),  # a probe's answer is one number
        clients=choice.clients,
        inclusion=np.full(len(choice), np.nan) if choice.inclusion is None else choice.inclusion,
        status=outcome.status,
        duration=outcome.duration,
        loss=outcome.loss,
        metrics={} if trainer is None else trainer.evaluate(state.model, chosen.round),
        wall={"selection": chosen.wall, "training": wall},
    )
