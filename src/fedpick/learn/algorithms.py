"""Algorithms beside FedAvg: SCAFFOLD, FedDyn and FedNova, as parts of a trainer.

An algorithm may add a constant to each gradient of a client, keep a state for each client and one for the server, and
change what updates weigh. All else is the trainer's.

The rule of a client's state: it moves when the server aggregates the client's update (DONE), and at no other time. A
client that failed, was late or was SURPLUS has its old state, whatever it computed; in a round of two phases that is
everybody who was asked for a norm, but not for the update.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedpick._support.text import Makers
from fedpick.core.errors import SettingError, require
from fedpick.core.types import Floats, Ints
from fedpick.learn.backend import Backend, LocalSGD

__all__ = ["ALGORITHMS", "MOST", "FedAvg", "FedDyn", "FedNova", "Scaffold", "Work", "added", "distance", "learnt"]

MOST = 4 * 10**9  # bytes that the states of all clients may take together

Leaves = list[Any]  # arrays of numbers, in one order (`Backend.leaves`)
State = dict[str, Leaves]  # "clients": a row for each client; "server"


class Work(NamedTuple):
    """The local work behind some updates.

    Args:
        steps: of each client.
        lr: of each client.
    """

    steps: Ints
    lr: Floats


def distance(work: Work, local: LocalSGD) -> Floats:
    """Length |a_i|_1 of each client's path: how often a gradient that stays the same is subtracted, times lr.

    Wang et al. (2020), section 4: the number of steps for plain SGD; with momentum and FedProx's term it is summed up
    here step by step, which gives the sums printed there and also covers both at once.

    >>> distance(Work(np.array([1, 2, 3]), np.full(3, 0.1)), LocalSGD(momentum=0.5)).tolist()
    [1.0, 2.5, 4.25]
    """
    gone, speed = np.zeros(len(work.steps)), np.zeros(len(work.steps))
    if not (local.momentum or local.prox):
        return work.steps.astype(np.float64)
    for step in range(int(work.steps.max(initial=0))):
        speed = local.momentum * speed + 1.0 - local.prox * work.lr * gone
        gone = np.where(step < work.steps, gone + speed, gone)
    return gone


@dataclass(frozen=True)
class FedAvg:
    """Nothing beside the trainer's own; the others say what they do differently."""

    reason = ""  # why it needs the answers of one round
    keeps = False  # whether there is a state
    parts = 1  # messages of the model's size in place of one

    @property
    def prox(self) -> float:
        """FedProx's mu that it brings along."""
        return 0.0

    def check(self, local: LocalSGD, aggregation: str, server: Any) -> None:
        """Raise unless it goes together with these settings of a trainer."""

    def fits(self, numbers: int, clients: int, precision: str) -> None:
        """Raise if the states of so many clients, of a model of so many numbers, would not fit."""
        size = numbers * (8 if precision == "float64" else 4)
        if self.keeps and clients * size > MOST:
            raise SettingError(
                f"Trainer: algorithm = {self.name!r} keeps as many numbers for each client as the model has: "
                f"{clients:,} clients times {size / 1e6:,.2f} MB are {clients * size / 1e9:,.1f} GB, but must be at "
                f"most {MOST / 1e9:g} GB; use a smaller model, at most {MOST // size:,} clients, or 'fednova', which "
                "keeps nothing"
            )

    def init(self, params: Leaves, clients: int, still: Sequence[int]) -> State:
        """The state before the first round: zeros; none of the arrays that no gradient moves."""
        if not self.keeps:
            return {}
        kinds = [(np.shape(leaf) if at not in still else (0,), leaf.dtype) for at, leaf in enumerate(params)]
        return {
            "clients": [np.zeros((clients, *shape), kind) for shape, kind in kinds],
            "server": [np.zeros(shape, kind) for shape, kind in kinds],
        }

    @property
    def name(self) -> str:
        """As users write it."""
        return type(self).__name__.lower()

    def added(self, state: State, ids: Ints) -> Leaves:
        """What is added to every gradient of these clients, a row each."""
        raise NotImplementedError

    def learn(self, state: State, ids: Ints, updates: Leaves, work: Work, shares: Floats) -> tuple[State, Leaves]:
        """The next state, and what is added to the model beside the mean update; [] for nothing.

        It writes into the rows of the old state: to copy those of all clients takes longer than a small round.

        Args:
            state: before the round.
            ids: of the clients whose updates are used.
            updates: of these clients, a row each.
            work: of these clients.
            shares: of each of them in the mean over all clients.
        """
        raise NotImplementedError

    def weigh(self, weights: Floats, work: Work, local: LocalSGD) -> Floats:
        """The weights of the updates of clients that trained, from those of the aggregation."""
        return weights


def _rows(factors: Floats, leaf: Any) -> Any:
    """Factors of rows, for a product with them."""
    return factors.astype(leaf.dtype).reshape(-1, *(1,) * (leaf.ndim - 1))


def _sum(shares: Floats, leaf: Any) -> Any:
    return (_rows(shares, leaf) * leaf).sum(axis=0)


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1): gradients are corrected by control variates c - c_i.

    A client's control variate is by option II of eq. (4): c_i+ = c_i - c + (x - y_i)/(steps lr), which takes no pass
    over its data; a client's own number of steps stands for K. c is the mean of all clients' c_i: over N as in the
    paper with the aggregation "mean", by data size with "fedavg", whose objective weighs them so.
    """

    reason = "the control variates of scaffold are compared with the model that a whole round was sent"
    keeps, parts = True, 2

    def check(self, local: LocalSGD, aggregation: str, server: Any) -> None:
        """Raise unless the mean gradient can be read off an update."""
        _need_mean(self, aggregation)
        for name, value, usual in (
            ("momentum", local.momentum, 0.0),
            ("prox", local.prox, 0.0),
            ("optimizer", local.optimizer, "sgd"),
            ("clip", local.clip, None),
        ):
            if value != usual:
                raise SettingError(
                    f"Trainer: {name} = {value!r}, but scaffold takes the mean gradient from the way that plain SGD "
                    f"has gone; leave {name} out, or use another algorithm"
                )

    def added(self, state: State, ids: Ints) -> Leaves:
        """c - c_i."""
        return [c - rows[ids] for c, rows in zip(state["server"], state["clients"], strict=True)]

    def learn(self, state: State, ids: Ints, updates: Leaves, work: Work, shares: Floats) -> tuple[State, Leaves]:
        """New control variates of these clients, and their mean."""
        server, each = [], 1.0 / (work.steps * work.lr.astype(np.float64))
        for c, rows, update in zip(state["server"], state["clients"], updates, strict=True):
            change = -c - _rows(each, update) * update
            rows[ids] += change
            server.append(c + _sum(shares, change))
        return {"clients": state["clients"], "server": server}, []


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """FedDyn (Acar et al. 2021, Algorithm 1): the local objectives are changed so that they agree in the end.

    A client keeps its last gradient, by the first-order condition of eq. (1): g_i+ = g_i - alpha (y_i - x); it
    subtracts g_i from its gradients and adds alpha (y - x). The server keeps h = -alpha times the sum of what the
    clients have moved, each times its share, and adds -h/alpha to the mean model. Shares are 1/N as in the paper with
    the aggregation "mean", by data size with "fedavg". A round in which nobody answers changes nothing.

    Args:
        alpha: of the regulariser.
    """

    alpha: float = 0.01
    reason = "feddyn takes the mean of the models of a whole round"
    keeps = True

    def __post_init__(self) -> None:
        require(self.alpha > 0.0, "feddyn: alpha", self.alpha, "> 0")

    @property
    def prox(self) -> float:
        """The regulariser's quadratic part."""
        return self.alpha

    def check(self, local: LocalSGD, aggregation: str, server: Any) -> None:
        """Raise if another part of a trainer does what it does."""
        _need_mean(self, aggregation)
        for name, value in (("prox", local.prox or None), ("server", server)):
            if value is not None:
                raise SettingError(
                    f"Trainer: {name} = {value!r:.60}, but feddyn has its own; leave {name} out, or use another "
                    "algorithm"
                )

    def added(self, state: State, ids: Ints) -> Leaves:
        """-g_i."""
        return [-rows[ids] for rows in state["clients"]]

    def learn(self, state: State, ids: Ints, updates: Leaves, work: Work, shares: Floats) -> tuple[State, Leaves]:
        """New gradients of these clients, h, and -h/alpha."""
        server = []
        for h, rows, update in zip(state["server"], state["clients"], updates, strict=True):
            change = (-self.alpha * update).astype(h.dtype)
            rows[ids] += change
            server.append(h + _sum(shares, change))
        return {"clients": state["clients"], "server": server}, [-h / self.alpha for h in server]


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedNova (Wang et al. 2020, eqs. (8) and (10)): each update is divided by the length of its client's path.

    tau_eff is the mean length by the updates' weights, the paper's choice for FedAvg's pace. Where weights do not sum
    to 1 (the aggregation "o2") it is still their mean, not their sum, so that equal work gives FedAvg again.
    """

    reason = "fednova divides by the mean work of a whole round"

    def check(self, local: LocalSGD, aggregation: str, server: Any) -> None:
        """Raise unless the length of a path is known."""
        if local.optimizer != "sgd":
            raise SettingError(
                f"Trainer: optimizer = {local.optimizer!r}, but fednova knows only how far SGD goes; use 'sgd', or "
                "another algorithm"
            )

    def weigh(self, weights: Floats, work: Work, local: LocalSGD) -> Floats:
        """p_i tau_eff/|a_i|."""
        if not weights.sum() > 0.0:
            return weights
        length = np.where(weights > 0.0, distance(work, local), 1.0)
        return weights * ((weights * length).sum() / weights.sum()) / length


def _need_mean(algorithm: FedAvg, aggregation: str) -> None:
    if aggregation not in ("fedavg", "mean"):
        raise SettingError(
            f"Trainer: aggregation = {aggregation!r}, but {algorithm.name} takes a mean over the clients that "
            "answered; use 'mean' as its paper does, or 'fedavg'"
        )


def added(backend: Backend, algorithm: FedAvg, those: Sequence[tuple[Any, Ints]], lanes: int) -> tuple[Any, ...]:
    """(what is added to every gradient of these clients of some models, padded,); () for nothing."""
    if not algorithm.keeps:
        return ()
    rows = [algorithm.added(model["algorithm"], ids) for model, ids in those]
    found = []
    for each in zip(*rows, strict=True):
        padded = np.zeros((lanes, *each[0].shape[1:]), each[0].dtype)
        padded[: sum(map(len, each))] = np.concatenate(each)
        found.append(padded)
    return (backend.restore(those[0][0]["params"], found),)


def learnt(
    backend: Backend, algorithm: FedAvg, model: Any, after: Any, used: tuple[Ints, Any, Ints, Work], shares: Floats
) -> Any:
    """The model after a round, with the states of the clients whose updates were used.

    Args:
        backend: that trained.
        algorithm: with a state.
        model: before the round.
        after: with the mean update.
        used: ids of these clients, updates, the rows of theirs among these, and their work.
        shares: of each of them in the mean over all clients.
    """
    ids, delta, slots, work = used
    rows = [np.asarray(leaf)[slots] for leaf in backend.leaves(delta)]
    for still in backend.still:
        rows[still] = rows[still][:, :0]
    state, more = algorithm.learn(model["algorithm"], ids, rows, work, shares)
    if not more:
        return {**after, "algorithm": state}
    leaves = backend.leaves(after["params"])
    step = [np.zeros_like(leaves[at]) if at in backend.still else leaf for at, leaf in enumerate(more)]
    rest = backend.restore(after["params"], [leaf[None] for leaf in step])
    (params,) = backend.add([after["params"]], rest, np.ones((1, 1), leaves[-1].dtype))
    return {**after, "params": params, "algorithm": state}


ALGORITHMS: Makers = {"fedavg": FedAvg, "scaffold": Scaffold, "feddyn": FedDyn, "fednova": FedNova}
