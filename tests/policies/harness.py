"""Rounds played by the rules of the engine, in plain Python: what a policy is told is what a server can know.

A round is full when as many clients answered as are kept; it closes with that answer. Clients that still work then are
SURPLUS, without a duration, a loss or reports; those who answer within `grace` seconds are SURPLUS with them. A round
that does not become full ends at the deadline: who has not answered is LATE, also if it crashed. With `late`, clients
that are late work on, and are busy until they are done.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import fedpick as fp
from fedpick.core.protocol import check_choice

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


@dataclass(frozen=True)
class Setting:
    """How clients behave: the same for all, but for their seconds."""

    there: float = 1.0  # probability of being there
    stays: float = 0.0  # of 1: as in the round before
    noise: float = 0.2  # standard deviation of the logarithm of a duration
    crash: float = 0.0  # probability of falling silent
    error: float = 0.0  # probability of answering with an error
    deadline: float = np.inf
    late: bool = False
    grace: float = 0.0
    trained: bool = True  # whether clients report losses
    decline: float = 0.0  # of the losses, each round


@dataclass
class Log:
    """What was played: for each round who was chosen and how it ended, by the clients' names."""

    names: np.ndarray  # of the clients that are enrolled at the end
    enrolled: int  # all names ever given
    rounds: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    there: np.ndarray = field(default_factory=lambda: np.zeros(0))
    state: Any = None

    @property
    def counts(self) -> np.ndarray:
        """How often each was chosen."""
        return np.bincount(np.concatenate([ids for ids, _ in self.rounds]), minlength=self.enrolled)

    def ended(self, status: int) -> int:
        """How many clients ended so."""
        return sum(int(np.count_nonzero(how == status)) for _, how in self.rounds)


def people(number: int, seed: int = 0, equal: bool = True) -> fp.Clients:
    """Clients with features and labels, all of the same size or not."""
    rng = np.random.default_rng(seed)
    sizes = np.full(number, 100.0) if equal else rng.integers(20, 200, number).astype(float)
    return fp.Clients(sizes, rng.integers(0, 30, (number, 4)), rng.dirichlet(np.ones(4), number))


def merged(choice: fp.Choice) -> fp.Choice:
    """The copies of a client as one entry, its weights added up."""
    ids, first = np.unique(choice.ids, return_index=True)
    if len(ids) == len(choice):
        return choice
    weights = None if choice.weights is None else np.bincount(choice.ids, choice.weights)[ids]
    inclusion = None if choice.inclusion is None else choice.inclusion[first]
    return fp.Choice(ids, inclusion, weights, normalise=choice.normalise, probed=choice.probed)


def close(policy: Any, choice: fp.Choice, seconds: np.ndarray, setting: Setting, rng: np.random.Generator):
    """Statuses and durations that the server sees, and which clients work on."""
    count = len(choice)
    fate = rng.random(count)
    crashed, error = fate < setting.crash, (fate >= setting.crash) & (fate < setting.crash + setting.error)
    when = np.where(crashed, np.inf, seconds)
    good = when[~error & (when <= setting.deadline)]
    keep = fp.traits(policy).keeps
    full = keep is not None and len(good) >= keep and count > keep
    end = np.sort(good)[keep - 1] if full else setting.deadline
    status, duration = np.full(count, DONE), when.copy()
    status[error] = FAILED
    open_ = when > end
    if full:
        heard = open_ & ~error & (when <= min(end + setting.grace, setting.deadline))
        status[open_] = SURPLUS
        duration[open_ & ~heard] = np.nan
    elif np.isfinite(end):
        status[open_], duration[open_] = LATE, end
    else:  # no deadline: who crashed is given up as failed
        status[crashed], duration[crashed] = FAILED, np.nan
    return status, duration, open_ & ~crashed, min(end, np.max(when[np.isfinite(when)], initial=0.0))


def play(
    policy: Any,
    clients: fp.Clients,
    seconds: np.ndarray,
    rounds: int,
    setting: Setting | None = None,
    seed: int = 0,
    changes: dict[int, tuple[int, int]] | None = None,
) -> Log:
    """Play rounds; after those in `changes`, so many of the first clients leave and so many newcomers enrol."""
    setting = setting or Setting()
    rng = np.random.default_rng(seed)
    about = fp.traits(policy)
    width = about.context or 3
    state, names = policy.init(clients), np.arange(len(clients))
    log = Log(names, len(names))
    free_at, now = np.zeros(len(clients)), 0.0
    there = rng.random(len(clients)) < setting.there
    half = -(-len(clients) // 2)  # a fast and a slow client each, whose data are alike
    worth = np.resize(np.exp(0.3 * rng.normal(size=half)), len(clients))
    for t in range(1, rounds + 1):
        count = len(clients)
        fresh = rng.random(count) < setting.there
        there = np.where(rng.random(count) < setting.stays, there, fresh)
        busy = free_at > now
        took = seconds * np.exp(setting.noise * rng.normal(size=count))
        losses = 2.0 * (1.0 - setting.decline) ** t * worth * np.exp(0.1 * rng.normal(size=count))

        def asked(ids, batch=None, losses=losses, may=there & ~busy):
            assert may[ids].all(), "a client was probed that is away or busy"
            return losses[ids]

        view = fp.View(
            t,
            there & ~busy,
            clients,
            context=np.tile(seconds[:, None], width),
            probe=asked,
            norms=asked,
            there=there,
            busy=busy,
        )
        drawn = policy.select(state, view, fp.rng.stream(seed, t, "policy"))
        check_choice(policy, view, drawn, replace=about.replace)
        choice = merged(drawn)
        ids = choice.ids
        assert len(np.unique(ids)) == len(ids)
        assert there[ids].all()
        assert not busy[ids].any()
        status, duration, works, length = close(policy, choice, took[ids], setting, rng)
        told = (status == DONE) | ((status == SURPLUS) & ~np.isnan(duration))
        loss = np.where(told & setting.trained, losses[ids], np.nan)
        reports = {}
        for name, columns in about.collect(clients).items():
            values = rng.random(len(ids)) if columns == 0 else rng.normal(size=(len(ids), columns or 6))
            sent = status == DONE if name in about.valued else told
            values[~sent] = np.nan
            reports[name] = values
        surplus, used = np.count_nonzero(status == SURPLUS), np.count_nonzero(status == DONE)
        if surplus and choice.inclusion is not None:
            choice = fp.Choice(
                ids,
                choice.inclusion * used / (used + surplus),
                choice.weights,
                normalise=choice.normalise,
                probed=choice.probed,
            )
        state = policy.observe(state, view, choice, fp.Outcome(status, duration, loss, reports))
        if setting.late:
            late = works & (status == LATE)
            free_at[ids[late]] = now + took[ids[late]]
        now += max(length, 1e-3)
        log.rounds.append((names[ids], status))
        if changes and t in changes:
            leave, join = changes[t]
            keep = np.arange(leave, count)
            state, clients = fp.retire(policy, state, keep), clients.take(keep)
            new = people(join, seed=t)
            state, clients = fp.admit(policy, state, new), clients.join(new)
            names = np.concatenate([names[keep], log.enrolled + np.arange(join)])
            log = replace(log, names=names, enrolled=log.enrolled + join)
            seconds = np.concatenate([seconds[keep], rng.uniform(1.0, 5.0, join)])
            free_at = np.concatenate([free_at[keep], np.zeros(join)])
            worth = np.concatenate([worth[keep], np.exp(0.3 * rng.normal(size=join))])
            there = np.concatenate([there[keep], np.ones(join, dtype=bool)])
    log.state = state
    return log


def jain(counts: np.ndarray) -> float:
    """Jain's index: 1 if all are chosen equally often, n/K if n of K are."""
    return float(counts.sum() ** 2 / (len(counts) * np.square(counts).sum()))


def fast_to_slow(
    policy: Any, rounds: int = 300, number: int = 100, setting: Setting | None = None, seeds: int = 2
) -> float:
    """How often fast clients are chosen for each time that slow ones are; the slow half takes five times as long."""
    seconds = np.where(np.arange(number) < number // 2, 1.0, 5.0)
    total = np.zeros(number)
    for seed in range(seeds):
        total += play(policy, people(number), seconds, rounds, setting, seed).counts
    return float(total[: number // 2].sum() / max(total[number // 2 :].sum(), 1))
