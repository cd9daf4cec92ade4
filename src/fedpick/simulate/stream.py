"""Asynchronous training on a virtual clock; start reading at `steps`.

What an answer counts as and when the model moves are rules of `fedpick.engine.stream`; what the policy sees and learns
is one of `fedpick.engine.asking`. Here are the clock, the world, and the trainer's calls: a task is trained when the
first answer to an untrained one comes, together with all others that are in flight, each from the model that it was
sent.

What happens in a world by rounds (availability that is drawn, spells of failures) happens here once in every
`World.step` seconds of the clock. How long a client takes and whether it fails are drawn for its n-th task.
"""

import heapq
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import FedpickError
from fedpick.core.protocol import Policy, Trainer
from fedpick.core.types import Choice, Ints, Status, Updates, View
from fedpick.engine.asking import Asker, Marks, lessons, outcome_of, tell
from fedpick.engine.cohort import possible
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Ended, Job, Stream, TaskCall, stream_bases
from fedpick.engine.work import worked
from fedpick.simulate.abilities import StreamTrainer
from fedpick.simulate.round import described, evaluate
from fedpick.store.checkpoint import RunState, StreamState, Trained
from fedpick.store.records import Record, packed, presence
from fedpick.worlds import Draw, World

__all__ = ["Found", "begin", "play_commit", "steps"]

LOOKS = 10_000  # in a row at which nobody could be asked and nothing was in flight: then nothing will ever happen
IN_VAIN = 1_000  # times the concurrency: tasks that ended in a row, none of which is used


def begin(pace: Buffered, world: World) -> StreamState:
    """Nothing asked yet."""
    return StreamState(Stream(pace), np.zeros(len(world.clients), dtype=np.int64))


Found = tuple[Updates, Mapping[str, Any], float]  # what `train_tasks` gave, and the real seconds that it took


def play_commit(
    policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None, pace: Buffered
) -> Record:
    """Play until the model moves next; changes `state` in place."""
    play = steps(policy, world, state, seed, trainer, pace)
    try:
        call = next(play)
        while True:
            assert isinstance(trainer, StreamTrainer)  # nothing else has tasks trained
            start = time.perf_counter()
            updates, rows = trainer.train_tasks(*call)
            call = play.send((updates, rows, time.perf_counter() - start))
    except StopIteration as end:
        record: Record = end.value
        return record


def steps(
    policy: Policy[Any], world: World, state: RunState, seed: int, trainer: Trainer | None, pace: Buffered
) -> Generator[TaskCall, Found, Record]:
    """As `play_commit`, but the caller trains: tasks of several runs may be trained in one call."""
    assert state.stream is not None  # see Run
    play = _Play(policy, world, state, seed, trainer, pace, state.stream)
    looks = 0
    while True:
        while (call := play.untrained()) is not None:
            play.learn(call, *(yield call))
        if play.answers() or play.times_out():
            return play.move()
        play.ask()
        looks = 0 if play.stream.flying else looks + 1
        if looks > LOOKS:
            raise FedpickError(
                f"{type(policy).__name__}: nobody could be asked for {looks * pace.wait:,.0f} simulated seconds, and "
                f"nobody works: the model will not move again after version {play.stream.version}. Play fewer "
                "versions, or have clients that the world and the policy let be asked"
            )
        stream = play.stream
        if not stream.held and len(stream.ended) > IN_VAIN * pace.concurrency:
            raise FedpickError(
                f"none of the last {len(stream.ended):,} tasks can be used: {_counts(stream.ended)}; a longer timeout "
                f"than {stream.timeout:g} s, or a larger oldest, may help"
            )
        play.wait()


def _counts(ended: list[Ended]) -> str:
    """How these tasks ended, in words."""
    found = Counter(each.status.name for each in ended)
    return ", ".join(f"{count:,} are {name}" for name, count in sorted(found.items()))


class _Play:
    """The virtual clock until the model moves."""

    def __init__(
        self,
        policy: Policy[Any],
        world: World,
        state: RunState,
        seed: int,
        trainer: Trainer | None,
        pace: Buffered,
        flow: StreamState,
    ) -> None:
        self.policy, self.world, self.state, self.seed, self.pace = policy, world, state, seed, pace
        self.trainer, self.flow, self.stream = trainer, flow, flow.stream
        assert trainer is None or isinstance(trainer, StreamTrainer)  # see check_fit
        self.learner: StreamTrainer | None = trainer
        if flow.asker is None or flow.marks is None:
            flow.asker, flow.marks = Asker(policy), Marks(self.stream, len(world.clients))
        self.asker, self.marks = flow.asker, flow.marks
        self.wall = {"selection": 0.0, "training": 0.0}
        self.work = 0.0  # seconds that the clients asked since the model last moved compute

    @property
    def now(self) -> float:
        """The simulated clock."""
        return self.state.world.clock

    def answers(self) -> bool:
        """Judge the answers that are due, until the model moves."""
        agenda, stream = self.flow.agenda, self.stream
        while agenda and agenda[0][0] <= self.now:
            id = heapq.heappop(agenda)[1]
            known = self.flow.trained[id] if self.learner is not None else None
            loss, usable = (None, True) if known is None else (known.loss, known.usable)
            self.marks.ended(stream.flying[id].client)
            stream.arrive(id, self.now, loss, usable)
            if stream.full:
                return True
        return False

    def times_out(self) -> bool:
        """Give up the tasks that have timed out; returns whether the model moves by the clock."""
        for each in self.stream.expire(self.now):
            self.marks.ended(each.task.client)
        return self.stream.due(self.now)

    def draw(self) -> Draw:
        """What the world has drawn for the present step; memories advance step by step."""
        step, found = 1 + int(self.now // self.world.step), self.flow.draw
        for each in range(1 if found is None else found.round + 1, step + 1):
            found = self.world.draw(self.state.world, self.seed, each)
        assert found is not None
        self.flow.draw = found
        return found

    def view(self) -> View:
        """What the server may know now."""
        seen = self.world.view(self.state.world, self.draw())
        return self.marks.view(seen, self.stream.version)

    def ask(self) -> None:
        """Give tasks to clients, if places are free and somebody is there."""
        free, stream = self.stream.free, self.stream
        if not free:
            return
        view = self.view()
        if not view.available.any():
            return
        rng = rngs.stream(self.seed, self.flow.asks + 1, "policy")
        start = time.perf_counter()
        choice = self.asker.ask(self.state.policy, view, free, rng)
        self.wall["selection"] += time.perf_counter() - start
        self.flow.asks += 1
        if len(choice):
            sized = self.learner is not None and self.learner.aggregation == "fedavg"
            base = stream_bases(choice, self.world.clients, sized, self.pace.correct)
            self.give(stream.send(choice, choice.ids.tolist(), self.now, base), choice)

    def give(self, tasks: list[Job], choice: Choice) -> None:
        """Draw when the answers to these tasks will come, and whether they will."""
        world, flow, ids = self.world, self.flow, choice.ids
        flow.nth[ids] += 1
        self.marks.asked(ids)
        draw = replace(self.draw(), nth=flow.nth)
        (took, computing), works = world.times(self.state.world, draw, ids), world.works(self.state.world, draw, ids)
        self.work += worked(computing, self.stream.timeout)
        comes = works & (took <= self.stream.timeout)
        for task, seconds, good in zip(tasks, took.tolist(), comes.tolist(), strict=True):
            if good:  # the others are never heard of
                heapq.heappush(flow.agenda, (self.now + seconds, task.id))
        if self.learner is not None and comes.any():
            flow.models.setdefault(self.stream.version, self.state.model)

    def untrained(self) -> TaskCall | None:
        """All that is in flight and not trained yet, if an answer of it is due; None: nothing has to be trained."""
        agenda, known = self.flow.agenda, self.flow.trained
        if self.learner is None or not agenda or agenda[0][0] > self.now:
            return None
        if all(id in known for due, id in agenda if due <= self.now):
            return None
        coming = sorted({id for _, id in agenda}.difference(known))
        tasks = [self.stream.flying[id] for id in coming]
        ids = np.array([task.client for task in tasks], dtype=np.int64)
        rngs_of = [rngs.stream(self.seed, task.id, "train task") for task in tasks]
        return TaskCall(self.flow.models, tasks, self.state.world.epochs[ids], rngs_of, self.pace.concurrency)

    def learn(self, call: TaskCall, updates: Updates, rows: Mapping[str, Any], seconds: float) -> None:
        """Keep what these tasks will answer."""
        usable = possible(np.asarray(updates.loss)) & (True if updates.valid is None else updates.valid)
        for at, task in enumerate(call.tasks):
            mine, reports = ({k: v[at] for k, v in part.items()} for part in (rows, updates.reports))
            self.flow.trained[task.id] = Trained(float(updates.loss[at]), bool(usable[at]), mine, reports)
        self.wall["training"] += seconds

    def wait(self) -> None:
        """Advance the clock to the next moment at which something happens."""
        clock = self.stream.next(self.now)
        if self.flow.agenda:
            clock = min(clock, self.flow.agenda[0][0])
        if self.stream.free:  # somebody may come
            clock = min(clock, self.now + self.pace.wait)
        self.state.world.clock = max(clock, self.now)

    def move(self) -> Record:
        """The model moves, and the policy learns."""
        stream, state, flow = self.stream, self.state, self.flow
        asked, back, begun = stream.asked, stream.back, stream.moved_at
        ended = stream.commit(self.now)
        self.marks.told()
        done = [each for each in ended if each.status == Status.DONE]
        start = time.perf_counter()
        if done and self.learner is not None:
            state.model = self._moved(done)
        self.wall["training"] += time.perf_counter() - start
        state.round = stream.version
        view = self._learn(ended)
        for each in ended:
            flow.trained.pop(each.task.id, None)
        needed = {task.version for task in stream.flying.values()}
        flow.models = {version: model for version, model in flow.models.items() if version in needed}
        models = asked + back
        found = Record.of(
            view,
            Choice([each.task.client for each in ended]),
            outcome_of(ended),
            clock=self.now,
            seconds=self.now - begun,
            messages=models,
            megabytes=self.world.model_megabytes * models + described(self.policy, view.clients, state.round),
            metrics={} if self.trainer is None else evaluate(self.trainer, state.model, state.round),
            client_seconds=self.work,
            wall=self.wall,
            there=presence(view.there),
            mask=packed(view.there),
            unusable=sum(each.status == Status.FAILED for each in ended),
            asked=asked,
            flying=len(stream.flying),
            tasks=tuple(ended),
        )
        return replace(found, inclusion=np.array([each.task.inclusion for each in ended], dtype=np.float64))

    def _moved(self, done: list[Ended]) -> Any:
        """The model after these answers."""
        assert self.learner is not None
        flow, weights = self.flow, np.array([each.weight for each in done])
        each_row = [flow.trained[each.task.id].rows for each in done]
        rows = {name: np.stack([row[name] for row in each_row]) for name in each_row[0]}
        if self.pace.mixing is None:
            return self.learner.move(self.state.model, rows, weights / len(done))
        (last,) = done  # (1 - a) model + a (sent + update) = model + a (update + sent - model)
        return self.learner.move(self.state.model, rows, weights, sent=flow.models[last.task.version])

    def _learn(self, ended: list[Ended]) -> View:
        """Let the policy learn from what has ended."""
        state, view = self.state, self.view()
        state.policy = tell(self.policy, state.policy, lessons(view, ended, _find, self._reports))
        return replace(view, round=self.stream.version, version=self.stream.version - 1)

    def _reports(self, part: list[Ended]) -> dict[str, Any]:
        """What the clients of these tasks report, NaN for those whose update is not used."""
        known = [self.flow.trained.get(each.task.id) for each in part]
        names = next((one.reports for one in known if one is not None), {})
        found = {}
        for name, value in names.items():
            shape = np.shape(value)
            found[name] = np.full((len(part), *shape), np.nan)
            for at, (each, one) in enumerate(zip(part, known, strict=True)):
                if one is not None and each.status == Status.DONE:
                    found[name][at] = one.reports[name]
        return found


def _find(clients: Sequence[Any]) -> Ints:
    """In a simulated run, clients are numbers."""
    return np.array(clients, dtype=np.int64)
