"""The engine alone as a player of scripts: `Stream` with a plain loop around it, as a server is.

Unlike the simulator it can be sent an answer twice, after the timeout, or to no task.
"""

import heapq
import math

import numpy as np
from simulated import Asked, ended_of, pace_of

import fedpick as fp
from asynchronous import Ask, Commit, Log, Script, usable
from fedpick.engine.stream import Stream, stream_bases


def streamed(script: Script, commits: int) -> Log:
    """As `play` of the reference."""
    return _Server(script).run(commits)


class _Server:
    def __init__(self, script: Script) -> None:
        self.script, self.log, self.asked = script, Log(), Asked()
        self.stream = Stream(pace_of(script))
        self.clients = fp.Clients(script.sizes or np.ones(script.clients))
        self.models = [np.array(script.start, dtype=np.float64)]  # by version
        self.velocity = np.zeros_like(self.models[0])
        self.updates: dict[int, np.ndarray] = {}
        self.answers = list(script.unknown)
        heapq.heapify(self.answers)
        self.changes = [0.0, *sorted(script.changes)]

    def run(self, commits: int) -> Log:
        now, stream = 0.0, self.stream
        while len(self.log.commits) < commits and now <= self.script.until:
            something = bool(self.changes) and self.changes[0] <= now
            self.changes = [time for time in self.changes if time > now]
            while self.answers and self.answers[0][0] <= now and len(self.log.commits) < commits:
                something |= self.answer(heapq.heappop(self.answers)[1], now)
            if len(self.log.commits) == commits:
                break
            something |= bool(stream.expire(now))
            if stream.due(now):
                self.commit(now)
                something = True
            if something and len(self.log.commits) < commits:
                self.ask(now)
            first = [times[0] for times in (self.changes, [time for time, _ in self.answers[:1]]) if times]
            now = min([stream.next(now), *first])
        self.log.ended += [ended_of(each, self.asked, stream.version) for each in stream.ended]
        return self.log

    def answer(self, number: int, now: float) -> bool:
        """Whether it counts."""
        if number not in self.stream.flying:
            assert self.stream.arrive(number, now, 0.5) is None
            self.log.ignored.append((now, number))
            return False
        task, nth = self.stream.flying[number], self.asked.tasks[number][1]
        model = self.models[task.version]
        loss, update = self.script.loss(task.client, nth), self.script.update(task.client, nth, model)
        fits = usable(None, update, model)
        self.updates[number] = np.asarray(update, dtype=np.float64) if fits else np.zeros(1)
        self.stream.arrive(number, now, loss, fits)
        if self.stream.full:
            self.commit(now)
        return True

    def commit(self, now: float) -> None:
        stream, model = self.stream, self.models[-1]
        asked, interval = stream.asked, stream.version
        ended = stream.commit(now)
        done = [each for each in ended if each.status == fp.Status.DONE]
        if self.script.mixing is None:
            total = sum(each.weight * self.updates[each.task.id] for each in done)
            self.velocity = self.script.momentum * self.velocity + self.script.eta / len(done) * total
            model = model + self.velocity
        else:
            (one,) = done
            model = (1 - one.weight) * model + one.weight * (self.models[one.task.version] + self.updates[one.task.id])
        self.models.append(model)
        found = tuple(ended_of(each, self.asked, interval) for each in ended)
        self.log.ended += found
        self.log.commits.append(Commit(stream.version, now, found, asked, len(stream.flying), model))

    def ask(self, now: float) -> None:
        script, stream = self.script, self.stream
        idle = [k for k in range(script.clients) if k not in stream.busy and script.there(k, now)]
        if not (stream.free and idle):
            return
        wanted = stream.free
        chosen = script.choose(stream.version, wanted, list(idle))
        if not set(chosen) <= set(idle):
            raise ValueError(f"chosen: {chosen}, idle: {idle}")  # the driver's part, see `Asker`
        weights = None if script.weigh is None else script.weigh(stream.version, chosen)
        choice = fp.Choice(np.array(chosen, dtype=int), weights=weights, normalise=script.normalise or weights is None)
        tasks = stream.send(choice, chosen, now, stream_bases(choice, self.clients, script.sized, script.correct))
        ids = tuple(task.id for task in tasks)
        self.log.asks.append(Ask(now, stream.version, wanted, tuple(idle), tuple(chosen), ids))
        for task in tasks:
            nth = self.asked.nth[task.client]
            self.asked.nth[task.client] += 1
            self.asked.tasks.append((task.client, nth))
            seconds, again = script.duration(task.client, nth), script.repeat(task.client, nth)
            if seconds < math.inf:
                heapq.heappush(self.answers, (now + seconds, task.id))
                if again is not None:
                    heapq.heappush(self.answers, (now + seconds + again, task.id))
