"""One simulated round from beginning to end; start reading at `play`."""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, MissingError
from fedpick.core.protocol import Policy, Trainer, check_asked, check_choice, check_reports, traits
from fedpick.core.state import observe
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Status, Updates, View
from fedpick.simulate import late
from fedpick.simulate.abilities import LateTrainer, ScoringTrainer, TwoPhaseTrainer
from fedpick.store.checkpoint import RunState
from fedpick.store.records import Record, presence
from fedpick.worlds import Draw, Timing, World, WorldState

__all__ = ["OpenRound", "Work", "choose", "delay", "evaluate", "judge", "over_clients", "play", "settle", "work"]


@dataclass
class _Meter:
    """Answers the policy's probes, and counts their clients and seconds."""

    world: World
    state: WorldState
    draw: Draw
    trainer: Trainer
    model: Any
    rng: np.random.Generator
    asked: int = 0
    seconds: float = 0.0
    there: Bools | None = None  # mask of the clients that can be asked

    def __call__(self, ids: Ints, /, *, batch: int | None = None) -> Floats:
        assert self.there is not None
        check_asked(self.there, ids, "view.probe")
        took = self.world.probe_share * self.world.seconds(self.state, self.draw, ids)
        self.seconds += float(took.max(initial=0.0))  # the server waits for the slowest
        self.asked += len(ids)
        return self.trainer.probe(self.model, ids, batch, self.rng)


@dataclass
class _FirstPhase:
    """Trains the clients that are asked for the norm of their update; those then chosen send the update."""

    world: World
    state: WorldState
    draw: Draw
    trainer: Trainer
    split: TwoPhaseTrainer  # the same one
    model: Any
    rng: np.random.Generator
    there: Bools
    ids: Ints | None = None
    asked: Timing | None = None  # who of them answers, and when
    updates: Updates | None = None

    def __call__(self, ids: Ints, /) -> Floats:
        if self.ids is not None:
            raise ContractError("view.norms was called twice in a round, but clients train once: ask all at once")
        check_asked(self.there, ids, "view.norms")
        asked = self.asked = self.world.close(copy.deepcopy(self.state), self.draw, Choice(ids))
        self.ids = np.asarray(ids)
        epochs = self.state.epochs[self.ids]
        self.updates = self.trainer.train(self.model, self.ids, asked.used, epochs, self.draw.round, self.rng)
        usable = np.isfinite(self.updates.loss)
        if self.updates.valid is not None:
            usable = usable & self.updates.valid
        norms = self.updates.reports.get("update_norm", np.full(len(self.ids), np.nan))  # none where nobody answers
        return np.where(asked.used & usable, np.asarray(norms), np.nan)

    def part(self, chosen: Ints) -> Updates:
        """The updates of the chosen, all of whom were asked."""
        assert self.ids is not None
        assert self.updates is not None
        where = {int(client): at for at, client in enumerate(self.ids)}
        stranger = next((int(client) for client in chosen if int(client) not in where), None)
        if stranger is not None:
            raise ContractError(f"client {stranger} was chosen, but was not asked by view.norms: it has no update")
        positions = np.array([where[int(client)] for client in chosen], dtype=np.int64)
        return self.split.part(self.updates, positions)


@dataclass(frozen=True, eq=False)
class OpenRound:
    """A round whose clients are chosen and timed, but have not trained."""

    round: int
    view: View
    choice: Choice
    timing: Timing
    probes: int
    wall: float  # real seconds that the policy took
    # In a round of two phases:
    asked: int = 0  # clients that trained for the norm of their update
    sent: Updates | None = None  # by the chosen
    behind: tuple[Choice, Timing] | None = None  # clients too late to be chosen, if late updates are kept


def play(policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None = None) -> Record:
    """Play the next round; changes `state` in place."""
    chosen = choose(policy, world, state, seed, trainer)
    start = time.perf_counter()
    if trainer is None:
        outcome = chosen.timing.report()
    else:
        updates = trainer.train(*work(chosen, state, seed)) if chosen.sent is None else chosen.sent
        outcome = judge(chosen, updates)
        delayed = delay(world, trainer, state, seed, chosen)
        arrived = late.take(world, state, chosen.round)
        if arrived:
            assert isinstance(trainer, LateTrainer)  # see check_fit
            state.model = trainer.aggregate(state.model, chosen.choice, outcome, updates, arrived)
        elif (outcome.status == Status.DONE).any():
            state.model = trainer.aggregate(state.model, chosen.choice, outcome, updates)
        late.wait(state, delayed)
    return settle(policy, world, state, chosen, outcome, trainer, time.perf_counter() - start)


def delay(world: World, trainer: Trainer, state: RunState, seed: int, chosen: OpenRound) -> late.Kept:
    """The late updates of this round that are kept."""
    choice, timing = chosen.behind or (chosen.choice, chosen.timing)
    return late.train(world, trainer, state, seed, chosen.round, choice, timing)


def choose(policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None) -> OpenRound:
    """The first half of a round: availability, the policy's choice, and the clients' times."""
    round = state.round + 1
    draw = world.draw(state.world, seed, round)

    meter = None
    if trainer is not None:
        meter = _Meter(world, state.world, draw, trainer, state.model, rngs.stream(seed, round, "probe"))
    view = world.view(state.world, draw, meter)
    if state.late:
        view = replace(view, available=view.available & ~late.busy(state, len(world.clients)))
    if meter is not None:
        meter.there = view.available
    about, first = traits(policy), None
    if trainer is not None and "norms" in about.needs:
        assert isinstance(trainer, TwoPhaseTrainer)  # see check_fit
        train = rngs.stream(seed, round, "train")
        first = _FirstPhase(world, state.world, draw, trainer, trainer, state.model, train, view.available)
        view = replace(view, norms=first)

    start = time.perf_counter()
    choice = policy.select(state.policy, view, rngs.stream(seed, round, "policy"))
    wall = time.perf_counter() - start
    check_choice(policy, view, choice, replace=about.replace)

    probing, probes = (0.0, 0) if meter is None else (meter.seconds, meter.asked)
    timing = world.close(state.world, draw, choice, about.keeps, probing)
    if state.late and not view.available.any():  # all who are there are busy: until the first of them answers
        longer = max(float(state.late["due"].min()) - state.world.clock, 0.0)
        state.world.clock += longer
        timing = replace(timing, seconds=timing.seconds + longer)
    if first is None or first.ids is None:
        return OpenRound(round, view, choice, timing, probes, wall)
    # The chosen have trained already, with all who were asked: the round lasts as long as those took.
    assert first.asked is not None
    longer = max(first.asked.seconds - timing.seconds, 0.0)
    state.world.clock += longer
    timing = replace(timing, seconds=timing.seconds + longer)
    behind = late.behind(first.ids, first.asked, world.clients.sizes) if world.late else None
    return OpenRound(round, view, choice, timing, probes, wall, len(first.ids), first.part(choice.ids), behind)


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
    ids, round = chosen.choice.ids, chosen.round
    rng = rngs.stream(seed, round, "train")
    return Work(state.model, ids, chosen.timing.used, state.world.epochs[ids], round, rng)


def judge(chosen: OpenRound, updates: Updates) -> Outcome:
    """The outcome as the server sees it: an unusable update turns DONE into FAILED, but counts as time and message."""
    timing = chosen.timing
    if not isinstance(updates, Updates):
        raise ContractError(
            f"Trainer.train returned {type(updates).__name__}, but must return fp.Updates: the losses, and what "
            "Trainer.aggregate needs"
        )
    usable = np.isfinite(updates.loss)
    if updates.valid is not None:
        usable = usable & updates.valid
    if usable.shape != timing.status.shape:
        raise ContractError(
            f"Trainer.train returned losses of shape {usable.shape}, but {len(timing.status)} clients were chosen: "
            "return one per client, NaN for those whose work is not used"
        )
    status = np.where(timing.used & ~usable, Status.FAILED, timing.status).astype(np.int8)
    return replace(timing, status=status).report(np.where(timing.used, updates.loss, np.nan), updates.reports)


def _reported(policy: Policy[Any], clients: Clients, outcome: Outcome) -> float:
    """Megabytes of the reports that the policy asks for, four bytes a number; the update is the model's own message."""
    total, about = 0, traits(policy)
    for name in about.collect(clients):
        if name in outcome.reports and name != "update" and name not in about.valued:
            rows = outcome.reports[name].reshape(len(outcome), -1)
            total += rows.shape[1] * int(np.count_nonzero(~np.isnan(rows).all(axis=1)))
    return 4e-6 * total


def settle(
    policy: Policy[Any],
    world: World,
    state: RunState,
    chosen: OpenRound,
    outcome: Outcome,
    trainer: Trainer | None,
    wall: float,
) -> Record:
    """The end of a round: the policy learns, the model is evaluated; changes `state` in place."""
    choice, timing = chosen.choice, chosen.timing
    check_reports(policy, outcome)
    lacking = _lacking(policy, chosen.view.clients, outcome)
    state.policy = observe(policy, state.policy, chosen.view, choice, outcome)
    state.round = chosen.round

    answered = int(np.count_nonzero(timing.status != Status.FAILED))  # an unusable update is a message, too
    answered += 0 if chosen.behind is None else len(chosen.behind[0])
    models = (chosen.asked or len(choice)) + answered + chosen.probes  # in two phases, all who are asked get the model
    return Record.of(
        chosen.view,
        choice,
        outcome,
        clock=state.world.clock,
        seconds=timing.seconds,
        messages=len(choice) + answered + 2 * chosen.probes + 2 * chosen.asked,
        megabytes=world.model_megabytes * models  # a probe's answer is one number
        + 4e-6 * chosen.asked
        + _reported(policy, chosen.view.clients, outcome),
        metrics={} if trainer is None else evaluate(trainer, state.model, chosen.round),
        wall={"selection": chosen.wall, "training": wall},
        there=presence(chosen.view.available),
        lacking=lacking,
    )


def _lacking(policy: Policy[Any], clients: Clients, outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Reports that the policy wants and no client gave, though some trained, and what it takes instead.

    A report that it needs raises.
    """
    about = traits(policy)
    if not about.reports or not (outcome.succeeded & np.isfinite(outcome.loss)).any():
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
