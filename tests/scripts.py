"""Scripts of what clients do, drawn at random, and a session and the twin (`rounds`) that play them.

What happens: in each round some clients are there; one that is asked answers after some seconds (ties are common, and
some take several deadlines), with a loss that may be impossible, or with an update that cannot be used, or is silent.
All times are multiples of 1/32 s, so that clocks are exact.

Where drivers cannot be told the same:

- A simulated client that fails is silent: with a deadline it is LATE, and without one its failure is noticed when it
  should have answered. A session's server is then told `failed(answered=False)`, and Flower sends an error, which
  counts as a message.
- A session and Flower have no round in which nobody is there: they raise. So this is the last event of a script. A
  round in which some are there, but all are busy, has all drivers.
- A session enrols clients when it first sees them, so all are there in the first round; newcomers are scripts of their
  own, for sessions and Flower.
- A session takes the width of a report that the policy leaves open from the first two clients that give one, so in the
  first round all answer.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest

import fedpick as fp
import rounds as twin
from fedpick.core.protocol import Traits
from fedpick.core.state import pack
from fedpick.policies import TABLE
from fedpick.policies.text import example
from fedpick.server import Lateness
from fedpick.server import round as server_round
from fedpick.server import session as server_session
from fedpick.server.view import NotEnoughClientsError
from zoo import sizes

M, CLIENTS, ROUNDS = 4, 12, 6
STEP = 7  # from policy to policy, so that neighbours differ
SCRIPTS = 1000  # in all
NUMBERS = 16  # in an update: one is 1 for each client, so that the model's change holds the weights; the rest is random
SHARE = 1 / 8  # of a client's seconds, for a probe
WAIT = 60.0

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "over": partial(fp.OverSelect, factor=1.5),
    "apart": partial(fp.MinSeparation, rounds=2),
    "guard": partial(fp.Guard, window=3),
}
CHAINS = [(), *((name,) for name in WRAPPERS), *((a, b) for a in WRAPPERS for b in WRAPPERS)]
BARE = {
    f"{name}{'-' + '-'.join(map(str, form.values())) if form else ''}": example(listed, M, sizes, **form)
    for name, listed in TABLE.items()
    if listed.about.kind != "wrapper"
    for form in ({}, *listed.about.forms)
}


def composed(chain: tuple[str, ...], name: str) -> Any:
    """A policy inside wrappers, the first one outside; None if one of them refuses."""
    policy = BARE[name]
    try:
        for wrapper in reversed(chain):
            policy = WRAPPERS[wrapper](policy)
    except fp.SettingError:
        return None
    return policy


POLICIES = [policy for chain in CHAINS for name in BARE if (policy := composed(chain, name)) is not None]


@dataclass(eq=False)
class Script:
    """What clients do, and the settings of the rounds; arrays have a row for each round and an entry for each client.

    Args:
        policy: that chooses.
        seed: of its random numbers, and of ties.
        deadline, late, beta: of the rounds.
        there: who is there.
        seconds: until each answers.
        silent: who is never heard of.
        broken: whose update cannot be used.
        loss: that each reports, which may be impossible.
        updates: vectors of NUMBERS numbers.
        joined: for each client the first round in which it may be there.
    """

    policy: Any
    seed: int
    deadline: float | None
    late: int
    beta: float
    there: np.ndarray
    seconds: np.ndarray
    silent: np.ndarray
    broken: np.ndarray
    loss: np.ndarray
    updates: np.ndarray
    now: int = 0  # the round that a simulator plays

    @classmethod
    def draw(cls, number: int, newcomers: bool = False) -> "Script":
        """A script of this number; with newcomers, half of the clients are not there at first."""
        policy = POLICIES[number * STEP % len(POLICIES)]
        rng = np.random.default_rng([29, number])
        shape = (ROUNDS, CLIENTS)
        deadline = [None, 2.0, 2.0, 4.0][rng.integers(4)]
        there = rng.random(shape) < rng.choice([0.15, 0.5, 1.0])
        there[np.arange(ROUNDS), rng.integers(CLIENTS, size=ROUNDS)] = True
        seconds = rng.integers(1, 9, shape) / 4.0 * np.where(rng.random(shape) < 0.3, rng.integers(1, 6, shape), 1)
        for t in np.flatnonzero(rng.random(ROUNDS) < 0.3)[1:]:  # only those who are there and slow before stay
            slow = there[t - 1] & (seconds[t - 1] > (deadline or 0.0))
            there[t] = slow if slow.any() else there[t - 1]
        if rng.random() < 0.25:
            there[-1] = False
        bad = rng.choice([0.0, 0.1, 0.3])
        silent, broken = rng.random(shape) < bad, rng.random(shape) < bad
        odd = rng.choice([np.nan, 1e13, -1e13, np.inf, 1e12], shape)
        loss = np.where(rng.random(shape) < bad, odd, rng.gamma(2.0, size=shape))
        there[0] = np.arange(CLIENTS) < CLIENTS // 2 if newcomers else True
        silent[0] = broken[0] = False
        loss[0] = rng.gamma(2.0, size=CLIENTS)
        if deadline is not None:
            seconds[0] = rng.integers(1, 5, CLIENTS) / 2.0  # all in time
        updates = np.zeros((*shape, NUMBERS))
        updates[:, np.arange(CLIENTS), np.arange(CLIENTS)] = 1.0
        updates[..., CLIENTS:] = rng.normal(size=(*shape, NUMBERS - CLIENTS))
        late = 0 if deadline is None else int(rng.integers(3))
        beta = float(rng.choice([0.0, 0.35, 1.0]))
        return cls(policy, number, deadline, late, beta, there, seconds, silent, broken, loss, updates)

    @cached_property
    def clients(self) -> fp.Clients:
        """Clients of different sizes, with features and labels."""
        rng = np.random.default_rng(self.seed)
        counts = rng.integers(1, 9, (CLIENTS, 4))
        return fp.Clients(counts.sum(axis=1), counts, counts / counts.sum(axis=1, keepdims=True))

    @cached_property
    def about(self) -> Traits:
        """What the policy declares."""
        return fp.traits(self.policy)

    @cached_property
    def pace(self) -> fp.Rounds:
        """The rounds' settings."""
        return fp.Rounds(self.deadline, self.late, self.beta, WAIT)

    @cached_property
    def reports(self) -> dict[str, np.ndarray]:
        """What all clients would report in each round; a report of any width has three numbers."""
        widths = self.about.collect(self.clients)
        rng = np.random.default_rng([self.seed, 1])
        return {
            name: rng.uniform(0.1, 1.0, (ROUNDS, CLIENTS, *(() if width == 0 else (width or 3,))))
            for name, width in widths.items()
        }

    def context(self, round: int, idle: np.ndarray) -> np.ndarray:
        """What is known of each client before a round; the last column is who was idle."""
        rng = np.random.default_rng([self.seed, 2, round])
        return np.column_stack([rng.uniform(0.5, 1.5, (CLIENTS, 2))[: len(idle)], idle.astype(float)])

    def probes(self, round: int) -> np.ndarray:
        """The loss that each client answers a probe with."""
        return np.random.default_rng([self.seed, 3, round]).gamma(2.0, size=CLIENTS)

    def lots(self, round: int) -> np.ndarray:
        """What decides between answers of the same time."""
        return fp.rng.uniforms(self.seed, "ties", np.arange(CLIENTS), round)

    def order(self, round: int, ids: Any) -> list[int]:
        """These clients in the order of their answers."""
        lot = self.lots(round)
        return sorted(ids, key=lambda k: (self.seconds[round - 1, k], lot[k]))

    def answer(self, round: int, k: int) -> twin.Answer:
        """What a client does if it is asked."""
        at = round - 1, k
        broken, silent = bool(self.broken[at]), bool(self.silent[at])
        return twin.Answer(float(self.seconds[at]), float(self.loss[at]), broken, silent, self.updates[at])

    def probe_seconds(self, round: int, ids: Any) -> float:
        """How long it takes to probe these clients."""
        return SHARE * float(self.seconds[round - 1, ids].max(initial=0.0))


@dataclass
class Heard:
    """What a driver tells of a round; `step` is the change of the model."""

    ids: np.ndarray
    status: np.ndarray
    duration: np.ndarray
    loss: np.ndarray
    inclusion: np.ndarray
    messages: int
    clock: float
    sent_at: float
    late: list[tuple[int, int]]
    step: np.ndarray
    state: dict[str, Any]
    seconds: float = math.nan

    @classmethod
    def of(cls, record: fp.Record, step: np.ndarray, state: Any) -> "Heard":
        """From the record of a round, the model's change and the policy's state after it."""
        late = list(zip(record.late_ids.tolist(), record.late_rounds.tolist(), strict=True))
        return cls(
            *(np.array(value) for value in (record.ids, record.status, record.duration, record.loss, record.inclusion)),
            record.messages,
            record.clock,
            record.sent_at,
            sorted(late),
            step,
            {name: np.array(value) for name, value in pack(state).items()},
            record.seconds,
        )


def check_same(one: list[Heard], other: list[Heard], what: str, extra: list[int] | None = None) -> None:
    """Statuses, durations, losses, inclusion, messages, clocks and states are equal, the model's change nearly.

    Args:
        one: rounds of a driver.
        other: of another.
        what: the drivers, for the error.
        extra: messages that the other one counts more, in each round.
    """
    assert len(one) == len(other), what
    for t, (a, b) in enumerate(zip(one, other, strict=True), 1):
        where = f"{what}, round {t}"
        for name in ("ids", "status", "duration", "loss", "inclusion", "clock", "sent_at", "seconds"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), f"{where}: {name}")
        assert a.late == b.late, where
        assert a.messages + (extra[t - 1] if extra else 0) == b.messages, where
        np.testing.assert_allclose(a.step, b.step, rtol=1e-4, atol=1e-5, err_msg=f"{where}: step")
        assert a.state.keys() == b.state.keys(), where
        for name, value in a.state.items():
            np.testing.assert_array_equal(value, b.state[name], f"{where}: state {name}")


def check_rules(script: Script, heard: list[Heard], policy: "Listening", mean: bool = False) -> list[twin.Played]:
    """What a driver tells is what the twin says of the same choices; with the `mean`, all updates count the same."""
    rounds = twin.Rounds(script.deadline, script.late, script.beta, WAIT)
    sizes = dict(enumerate(np.ones(CLIENTS) if mean else script.clients.sizes.tolist()))
    played = []
    told = zip(heard, policy.views, policy.choices, policy.probed, strict=True)
    for t, (found, view, choice, probed) in enumerate(told, 1):
        busy = rounds.busy(t)
        assert np.flatnonzero(view.busy).tolist() == sorted(busy)
        assert (view.available == (script.there[t - 1] & ~np.isin(np.arange(CLIENTS), busy))).all()
        assert (view.there == script.there[t - 1]).all()
        assert not view.held.any()
        lots, begun = script.lots(t), rounds.clock
        spent = sum(script.probe_seconds(t, ids) for ids in probed)
        wanted = rounds.play(
            t,
            choice.ids.tolist(),
            answers={k: script.answer(t, k) for k in range(CLIENTS)},
            sizes=sizes,
            free=bool(view.available.any()),
            keep=script.about.keeps,
            inclusion=None if choice.inclusion is None else choice.inclusion.tolist(),
            weights=None if choice.weights is None or mean else choice.weights.tolist(),
            normalise=choice.normalise or mean,
            most=None if mean else choice.most,
            lot=lots.__getitem__,
            probed=sum(map(len, probed)),
            spent=spent,
        )
        assert found.ids.tolist() == wanted.ids
        assert found.status.tolist() == wanted.status
        np.testing.assert_array_equal(found.duration, wanted.duration)
        np.testing.assert_array_equal(found.loss, wanted.loss)
        chance = np.full(len(wanted.ids), np.nan) if wanted.inclusion is None else wanted.inclusion
        np.testing.assert_allclose(found.inclusion, chance, rtol=1e-12)
        assert found.messages == wanted.messages
        assert found.late == sorted(wanted.late)
        assert found.clock == rounds.clock
        assert found.sent_at == begun + spent
        step = np.zeros(NUMBERS)
        for (k, tau), weight in wanted.weights.items():
            step += weight * script.updates[t - 1 - tau, k]
        np.testing.assert_allclose(found.step, step, rtol=1e-4, atol=1e-5, err_msg=f"round {t}")
        played.append(wanted)
    return played


@dataclass(eq=False)
class Listening:
    """A policy, and what it saw and chose; each ask has random numbers of its own, keyed by its number."""

    policy: Any
    seed: int
    views: list[fp.View] = field(default_factory=list)
    choices: list[fp.Choice] = field(default_factory=list)
    outcomes: list[fp.Outcome] = field(default_factory=list)
    probed: list[list[np.ndarray]] = field(default_factory=list)  # the clients of each probe of a round

    def __getattr__(self, name: str) -> Any:
        if name == "policy":  # while copying
            raise AttributeError(name)
        return getattr(self.policy, name)

    def init(self, clients: fp.Clients) -> Any:
        return self.policy.init(clients)

    def select(self, state: Any, view: fp.View, rng: np.random.Generator) -> fp.Choice:
        asked: list[np.ndarray] = []
        assert rng.bit_generator.state == fp.rng.stream(self.seed, view.round, "policy").bit_generator.state
        assert view.version == view.round - 1

        def probe(ids: Any, /, *, batch: int | None = None) -> Any:
            asked.append(np.asarray(ids))
            assert view.probe is not None
            return view.probe(ids, batch=batch)

        choice = self.policy.select(state, replace(view, probe=probe), rng)
        self.probed.append(asked)
        self.views.append(view)
        self.choices.append(choice)
        return choice

    def observe(self, state: Any, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Any:
        assert len(np.unique(choice.ids)) == len(choice), "a client stands twice in one observe"
        self.outcomes.append(outcome)
        return self.policy.observe(state, view, choice, outcome)


class Clock:
    """Moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@contextmanager
def server_clock(*modules: Any) -> Iterator[Clock]:
    """The clock of sessions in this block."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        for module in (server_round, server_session, *modules):
            patch.setattr(module, "monotonic", clock.monotonic)
        yield clock


def described_as(clients: fp.Clients, k: int) -> dict[str, Any]:
    """What a client says of itself when it joins."""
    assert clients.labels is not None
    assert clients.features is not None
    return {"size": clients.sizes[k], "labels": clients.labels[k].tolist(), "features": clients.features[k].tolist()}


def name_of(k: int) -> str:
    return f"node:{k + 1}"


def number_of(name: str) -> int:
    return int(name.removeprefix("node:")) - 1


def options(script: Script) -> dict[str, Any]:
    """Settings that sessions and Flower share."""
    return {
        "deadline": script.deadline,
        "late": Lateness(script.late, script.beta),
        "seed": script.seed,
        "context": lambda round, names, idle: script.context(round, idle),
    }


def play_session(script: Script) -> tuple[list[Heard], Listening]:
    """The script as a server of one's own plays it, with its own small loop over events."""
    policy = Listening(script.policy, script.seed)
    valued = next(iter(script.about.valued), None)
    heard: list[Heard] = []
    with server_clock() as clock:
        session = fp.Session(
            policy,
            value=lambda updates: {name: worth_of(script, session, valued, name) for name in updates},
            **options(script),
        )
        owed: list[tuple[float, float, int, int]] = []  # (when it answers, lot, client, round)

        def deliver(until: float) -> None:
            """What comes late; the server does not look at who owes it."""
            while owed and owed[0][0] <= until:
                _, _, k, t = heapq.heappop(owed)
                said = script.answer(t, k)
                if not script.late:
                    continue
                if said.good:
                    session.keep(name_of(k), said.update, round=t)
                else:
                    session.late.drop(name_of(k), t, "unusable")

        for t in range(1, ROUNDS + 1):
            there = np.flatnonzero(script.there[t - 1])
            described = {name_of(k): described_as(script.clients, k) for k in there}
            if not described:
                with pytest.raises(NotEnoughClientsError):
                    session.round(described)
                break

            def probe(names: list[str], batch: int | None, t: int = t) -> np.ndarray:
                ids = np.array([number_of(name) for name in names], dtype=np.int64)
                clock.now += script.probe_seconds(t, ids)
                return script.probes(t)[ids]

            r = session.round(described, probe=probe)
            asked = clock.now
            number = {name: number_of(name) for name in r.chosen}
            for k in script.order(t, number.values()):
                said = script.answer(t, k)
                if r.cohort.complete or (script.deadline is not None and said.seconds > script.deadline):
                    break
                if said.silent and script.deadline is not None:
                    continue
                clock.now = asked + said.seconds
                if said.silent or said.broken:
                    r.failed(name_of(k), "silent" if said.silent else "broken", answered=not said.silent)
                else:
                    reports = {name: values[t - 1, k] for name, values in script.reports.items() if name != valued}
                    r.done(name_of(k), loss=said.loss, update=said.update, reports=reports)
            if not r.chosen:
                coming = [due - asked for due, _, k, sent in owed if session.late.owes(name_of(k), sent)]
                clock.now += session.rounds.empty(bool(r.view.available.any()), min(coming, default=None))
            elif not r.cohort.complete:
                clock.now = asked + script.deadline
            assert r.wait() == r.cohort.complete
            deliver(clock.now)
            step = sum((part.weight * part.update for part in r.parts()), np.zeros(NUMBERS))
            record = r.close()
            heard.append(Heard.of(record, step, session.roster.state))
            for name, how in zip(r.chosen, record.status, strict=True):
                k = number[name]
                if how == fp.Status.LATE and not script.silent[t - 1, k]:
                    due = asked + script.seconds[t - 1, k]
                    heapq.heappush(owed, (due, script.lots(t)[k], k, t))
    return heard, policy


def worth_of(script: Script, session: fp.Session, valued: str | None, name: str) -> float:
    """What the server finds an update worth."""
    assert valued is not None
    return float(script.reports[valued][session.round_number, number_of(name)])
