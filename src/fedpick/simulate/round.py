"""One simulated round from beginning to end; start reading at `play`.

What an answer counts as, who is busy and what an update weighs are rules of `fedpick.engine`; here are the virtual
clock and the trainer's calls.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, MissingError
from fedpick.core.protocol import Policy, Trainer, check_choice, check_reports, traits
from fedpick.core.state import observe
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Updates, View
from fedpick.engine.cohort import Cohort
from fedpick.engine.flight import Task
from fedpick.engine.paces import Rounds
from fedpick.engine.work import worked
from fedpick.simulate import late
from fedpick.simulate.abilities import LateTrainer, ProbedTrainer, ScoringTrainer, TwoPhaseTrainer
from fedpick.simulate.answers import Answers, FirstPhase, Meter, usable
from fedpick.store.checkpoint import RunState
from fedpick.store.records import Record, late_uses, packed, packed_chances, presence
from fedpick.worlds import World

__all__ = [
    "Closed",
    "OpenRound",
    "Work",
    "choose",
    "close",
    "evaluate",
    "over_clients",
    "pace_of",
    "play",
    "settle",
    "train",
    "work",
]


@dataclass(frozen=True, eq=False)
class OpenRound:
    """A round whose clients are chosen, but have not trained."""

    round: int
    view: View
    answers: Answers
    pace: Rounds
    begun: float  # the clock when the clients are asked
    spent: float  # seconds that probes took before
    probes: int
    wall: float  # real seconds that the policy took
    work: float = 0.0  # seconds that clients computed for probes
    used: list[Task] = field(default_factory=list)  # late ones, of earlier rounds
    first: FirstPhase | None = None  # of a round of two phases
    sent: Updates | None = None  # by the chosen, who have trained in the first phase
    probe_load: float = 1.0  # what a probe carries of a message to train

    @property
    def cohort(self) -> Cohort:
        """The clients that are asked."""
        return self.answers.cohort


def play(
    policy: Policy[Any],
    world: World,
    state: RunState,
    seed: int,
    trainer: Trainer | None = None,
    pace: Rounds | None = None,
) -> Record:
    """Play the next round; changes `state` in place. `pace` is by default that of the world."""
    chosen = choose(policy, world, state, seed, trainer, pace or pace_of(world, trainer))
    start = time.perf_counter()
    if trainer is None:
        return settle(policy, world, state, chosen, close(state, chosen, None), None, time.perf_counter() - start)
    updates = train(trainer, chosen, state, seed) if chosen.sent is None else chosen.sent
    closed = close(state, chosen, updates)
    arrived, delayed = late.take(state, chosen), late.train(trainer, state, seed, chosen)
    if arrived:
        assert isinstance(trainer, LateTrainer)  # see check_fit
        state.model = trainer.aggregate(state.model, closed.choice, closed.outcome, updates, arrived)
    elif chosen.cohort.drawn:
        state.model = trainer.aggregate(state.model, closed.choice, closed.outcome, updates)
    late.wait(state, delayed)
    return settle(policy, world, state, chosen, closed, trainer, time.perf_counter() - start)


def pace_of(world: World, trainer: Trainer | None) -> Rounds:
    """Rounds with the deadline, the late updates and the wait of the world."""
    return Rounds(world.deadline, world.late, getattr(trainer, "late_beta", Rounds.beta), world.wait)


def choose(
    policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None, pace: Rounds
) -> OpenRound:
    """The first half of a round: who is there and free, the policy's choice, and when the answers will come."""
    round, about, flight = state.round + 1, traits(policy), state.flight
    draw = world.draw(state.world, seed, round)
    flight.give_up(round, pace.late)

    meter = None
    if trainer is not None:
        meter = Meter(world, state.world, draw, trainer, state.model, rngs.stream(seed, round, "probe"))
    view = world.view(state.world, draw, meter, about.asks)
    if flight.busy:
        busy = flight.mask(len(world.clients))
        view = replace(view, available=view.there & ~busy, busy=busy)
    if meter is not None:
        meter.may = view.available
    first = None
    if trainer is not None and "norms" in about.needs:
        assert isinstance(trainer, TwoPhaseTrainer)  # see check_fit
        rng = rngs.stream(seed, round, "train")
        first = FirstPhase(
            world, state.world, draw, trainer, trainer, state.model, rng, pace.deadline, view.available, flight
        )
        view = replace(view, norms=first)

    start = time.perf_counter()
    choice = policy.select(state.policy, view, rngs.stream(seed, round, "policy"))
    wall = time.perf_counter() - start
    check_choice(policy, view, choice, replace=about.replace)

    probing, probes, probed = (0.0, 0, 0.0) if meter is None else (meter.seconds, meter.asked, meter.work)
    cohort = Cohort(choice, about.keeps, flight.issue(len(choice)))
    answers = Answers.of(world, state.world, draw, cohort, pace.deadline)
    asked = None if first is None or first.cohort is None else first
    sent = None if asked is None else asked.part(cohort.choice.ids)
    load = trainer.probe_load if isinstance(trainer, ProbedTrainer) else 1.0
    begun = state.world.clock
    return OpenRound(
        round, view, answers, pace, begun, probing, probes, wall, probed, first=asked, sent=sent, probe_load=load
    )


class Work(NamedTuple):
    """The arguments of `Trainer.train`."""

    model: Any
    ids: Ints
    used: Bools
    epochs: Floats
    round: int
    rng: np.random.Generator


def work(chosen: OpenRound, state: RunState, seed: int) -> Work:
    """The local work of a round."""
    ids, round = chosen.cohort.choice.ids, chosen.round
    rng = rngs.stream(seed, round, "train")
    return Work(state.model, ids, chosen.answers.needed(), state.world.epochs[ids], round, rng)


def train(trainer: Trainer, chosen: OpenRound, state: RunState, seed: int, updates: Updates | None = None) -> Updates:
    """The updates of the clients that are used; where one is unusable, those whose answers take its place train, too.

    `updates` are those of a first attempt, if there was one.
    """
    while True:
        job = work(chosen, state, seed)
        found = trainer.train(*job) if updates is None else updates
        if not chosen.answers.reject(job.used & ~usable(found, job.used)):
            return found
        updates = None


class Closed(NamedTuple):
    """What the server knows when it closes a round."""

    choice: Choice  # with inclusion and weights of those used
    outcome: Outcome
    seconds: float
    work: float  # seconds that clients computed


def close(state: RunState, chosen: OpenRound, updates: Updates | None) -> Closed:
    """Let the answers come until the round is closed; advances the clock."""
    cohort, world = chosen.cohort, state.world
    if chosen.sent is not None and updates is not None:
        chosen.answers.reject(chosen.answers.needed() & ~usable(updates, chosen.answers.bad))
    seconds = chosen.answers.deliver(None if updates is None else np.asarray(updates.loss, dtype=np.float64))
    work = _worked(chosen, seconds)
    if not len(cohort):
        first = state.flight.first - world.clock - chosen.spent
        seconds = chosen.pace.empty(bool(chosen.view.available.any()), None if np.isinf(first) else first)
    if chosen.first is not None:  # the round lasts as long as all who were asked took
        seconds = max(seconds, chosen.first.seconds)
    seconds += chosen.spent
    world.clock += seconds
    world.idle[:] = True
    world.idle[cohort.choice.ids] = False
    reports: dict[str, Any] = {}
    for name, values in ({} if updates is None else updates.reports).items():
        reports[name] = values = np.array(values)
        if values.dtype.kind == "f" and len(values) == len(cohort):
            values[~cohort.used] = np.nan  # of those that are not used, nothing has come
    state.flight.land(world.clock)
    return Closed(cohort.settled(), cohort.outcome(reports), seconds, work)


def _worked(chosen: OpenRound, seconds: float) -> float:
    """Seconds that clients compute in a round: what is late but may still be used goes on, the rest is given up."""
    answers, given_up = chosen.answers, seconds
    if chosen.first is not None:  # those who were asked have trained; those chosen only send
        answers, given_up = chosen.first.answers, chosen.first.seconds
    goes_on = chosen.pace.late > 0 and not answers.cohort.full
    return chosen.work + worked(answers.computing, np.inf if goes_on else given_up)


def _reported(policy: Policy[Any], clients: Clients, outcome: Outcome) -> float:
    """Megabytes of the reports that the policy asks for, four bytes a number; the update is the model's own message."""
    if not outcome.reports:
        return 0.0
    total, about = 0, traits(policy)
    for name in about.collect(clients):
        if name in outcome.reports and name != "update" and name not in about.valued:
            rows = outcome.reports[name].reshape(len(outcome), -1)
            total += rows.shape[1] * int(np.count_nonzero(~np.isnan(rows).all(axis=1)))
    return 4e-6 * total


def described(policy: Policy[Any], clients: Clients, round: int) -> float:
    """Megabytes of the label counts of all clients, if the policy needs them: sent once, charged in round 1."""
    if round > 1 or clients.labels is None or "labels" not in traits(policy).needs:
        return 0.0
    return 4e-6 * clients.labels.size


def settle(
    policy: Policy[Any],
    world: World,
    state: RunState,
    chosen: OpenRound,
    closed: Closed,
    trainer: Trainer | None,
    wall: float,
) -> Record:
    """The end of a round: the policy learns, the model is evaluated; changes `state` in place."""
    choice, outcome = closed.choice, closed.outcome
    check_reports(policy, outcome)
    lacking = _lacking(policy, chosen.view.clients, outcome)
    state.policy = observe(policy, state.policy, chosen.view, choice, outcome)
    state.round = chosen.round

    asked = 0 if chosen.first is None or chosen.first.cohort is None else len(chosen.first.cohort)
    back, state.flight.landed = chosen.cohort.back + state.flight.landed, 0
    # In two phases, all who are asked get the model.
    models = (asked or len(choice)) + back + chosen.probe_load * chosen.probes
    return Record.of(
        chosen.view,
        choice,
        outcome,
        clock=state.world.clock,
        seconds=closed.seconds,
        messages=len(choice) + back + 2 * chosen.probes + 2 * asked,
        megabytes=world.model_megabytes * models  # a probe's answer is one number
        + 4e-6 * asked
        + described(policy, chosen.view.clients, chosen.round)
        + _reported(policy, chosen.view.clients, outcome),
        client_seconds=closed.work,
        metrics={} if trainer is None else evaluate(trainer, state.model, chosen.round),
        wall={"selection": chosen.wall, "training": wall},
        there=presence(chosen.view.there),
        lacking=lacking,
        unusable=chosen.cohort.unusable,
        sent_at=chosen.begun + chosen.spent,
        mask=packed(chosen.view.there),
        chances=packed_chances(chosen.view, choice),
        **late_uses(chosen.used),
    )


def _lacking(policy: Policy[Any], clients: Clients, outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Reports that the policy wants and no client gave, though some trained, and what it takes instead.

    A report that it needs raises.
    """
    trained = np.isfinite(outcome.loss)
    if not trained.any() or not (trained & outcome.succeeded).any() or not (about := traits(policy)).reports:
        return ()
    asked = about.collect(clients)
    lacking = [each for each in about.reports if each.name in asked and each.name not in outcome.reports]
    for each in lacking:
        if each.name in about.needs:
            raise MissingError(
                f"{type(policy).__name__} needs the report {each.name!r}, but the trainer gave "
                f"{', '.join(map(repr, outcome.reports)) or 'none'}; return it from train, in Updates(reports={{...}})"
            )
    return tuple((each.name, each.instead) for each in lacking)


def evaluate(trainer: Trainer, model: Any, round: int) -> Mapping[str, float]:
    """What the trainer's evaluation gives, and spread and worst tenth of its clients' scores if it has some."""
    found = trainer.evaluate(model, round)
    each = trainer.client_scores(model, round) if found and isinstance(trainer, ScoringTrainer) else None
    return found if each is None else {**over_clients(np.asarray(each, dtype=np.float64)), **found}


def over_clients(scores: Floats) -> dict[str, float]:
    """Spread and worst tenth of the clients' scores, in which larger is better; NaN is a client without."""
    if scores.ndim != 1:
        raise ContractError(f"client_scores returned an array of shape {scores.shape}, but must return one per client")
    known = np.sort(scores[np.isfinite(scores)])
    if not len(known):
        return {}
    return {"spread": float(known.std()), "worst_decile": float(known[: max(1, len(known) // 10)].mean())}
