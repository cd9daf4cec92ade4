"""Many rounds: an iterator of records that can be stopped, resumed, and extended to more rounds.

>>> import fedpick as fp
>>> run = fp.Run(fp.E3CS(cohort_size=20, quota=0.5), fp.worlds.named("e3cs"), seed=1)
>>> records = list(run.rounds(until=50))
>>> len(records), run.state.round
(50, 50)
>>> sum(int((record.status == fp.Status.DONE).sum()) for record in run.rounds(until=60)) > 0  # continues
True
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError, MissingError, SettingError, require
from fedpick.core.protocol import Policy, Trainer, check_methods, traits
from fedpick.core.types import Clients
from fedpick.engine.asking import check_stream
from fedpick.engine.paces import Buffered, Pace
from fedpick.policies.text import policy as policy_from_text
from fedpick.simulate import stream
from fedpick.simulate.abilities import (
    DataTrainer,
    LateTrainer,
    ReportingTrainer,
    RoundsTrainer,
    StreamTrainer,
    TwoPhaseTrainer,
)
from fedpick.simulate.round import pace_of, play
from fedpick.store.checkpoint import RunState
from fedpick.store.records import Record
from fedpick.worlds import World

__all__ = ["Run", "check_fit", "megabytes_of", "policy_for"]


def check_fit(policy: Policy[Any], world: World, trainer: Trainer | None = None, pace: Pace | None = None) -> None:
    """Raise a MissingError if the policy needs something that this world, trainer or pace does not provide."""
    check_methods(policy)
    _check_clients(world, trainer)
    about = traits(policy)
    name = type(policy).__name__
    if isinstance(pace, Buffered):
        check_stream(policy, pace)
        _check_streaming(pace, trainer)
    elif late := world.late if pace is None else pace.late:
        _check_late(late, trainer)
    if "probe" in about.needs and trainer is None:
        raise MissingError(
            f"{name} asks clients for their loss, but nothing is trained in this run; use a policy that needs no "
            "probe, such as rpow-d, or give a trainer"
        )
    if "norms" in about.needs:
        if not isinstance(trainer, TwoPhaseTrainer):
            raise MissingError(
                f"{name} needs rounds in two phases: a trainer that can give a part of its updates (a method "
                "`part(updates, positions)`, as fedpick.learn.Trainer has); give one, or use another policy"
            )
        if isinstance(trainer, ReportingTrainer) and "update_norm" not in trainer.reports:
            raise MissingError(f"{name} needs the report 'update_norm'; make the trainer with it in reports=(...)")
    if "context" in about.needs:
        state = world.init(0)
        context = world.view(state, world.draw(state, 0, 1)).context
        if context is None:
            raise MissingError(
                f"{name} needs a context, but the latency {type(world.latency).__name__} of this world gives none; use "
                "a world with latency linear or device, such as rbcs-f or phones"
            )
        columns = context.shape[1]
        fits = about.context in (None, columns)
        require(fits, f"{name}: context", about.context, f"{columns}, the columns this world gives")
    if "features" in about.needs and world.clients.features is None:
        raise MissingError(
            f"{name} needs Clients.features, but the clients of this world have none; use a world whose clients have, "
            "such as phones, volatile or fedgs-ln"
        )
    if "labels" in about.needs and world.clients.labels is None:
        raise MissingError(
            f"{name} needs Clients.labels, the label counts of each client, but the clients of this world have none; "
            "use data with labels, a world such as phones, or another policy"
        )
    reports = [report.name for report in about.reports if report.name in about.needs]
    given = trainer.reports if isinstance(trainer, ReportingTrainer) else reports
    lacking = [report for report in reports if report not in given]
    if lacking:
        raise MissingError(
            f"{name} needs the report {lacking[0]!r}, but this trainer reports {', '.join(given)}; make it with "
            f"reports=(..., {lacking[0]!r})"
        )
    if reports and trainer is None:
        raise MissingError(
            f"{name} needs the report {reports[0]!r} of clients that trained, but nothing is trained in this run; use "
            "other settings of it, or give a trainer"
        )


def _check_streaming(pace: Buffered, trainer: Trainer | None) -> None:
    """Raise unless this trainer can do without rounds."""
    if trainer is None:
        return
    if not isinstance(trainer, StreamTrainer):
        raise MissingError(
            "fp.Buffered: this trainer cannot train single tasks (methods `train_tasks` and `move`, as "
            "fedpick.learn.Trainer has); give one that can, or use fp.Rounds"
        )
    if trainer.aggregation not in ("fedavg", "mean"):
        raise SettingError(
            f"fp.Buffered: the aggregation {trainer.aggregation!r} weighs the updates of a round; use 'fedavg' or "
            "'mean'"
        )
    if isinstance(trainer, RoundsTrainer) and trainer.rounds_only:
        raise SettingError(f"fp.Buffered: {trainer.rounds_only}; use fp.Rounds, or the algorithm 'fedavg'")
    if pace.mixing is not None and getattr(trainer, "server", None) is not None:
        raise SettingError(
            f"fp.Buffered: mixing = {pace.mixing!r} (FedAsync) has no place for an optimiser of the server; use one or "
            "the other"
        )


def _check_late(late: int, trainer: Trainer | None) -> None:
    """Raise unless updates that come up to so many rounds late can be aggregated."""
    if not isinstance(trainer, LateTrainer):
        raise MissingError(
            f"World: late = {late}, but there is no trainer that can keep late updates (with a method `keep`, as "
            "fedpick.learn.Trainer has); give one, or use late=0"
        )
    if trainer.aggregation not in ("fedavg", "mean"):
        raise SettingError(
            f"World: late = {late}, but the aggregation {trainer.aggregation!r} has no place for late updates; "
            "use 'fedavg' or 'mean', or late=0"
        )
    if isinstance(trainer, RoundsTrainer) and trainer.rounds_only:
        raise SettingError(
            f"World: late = {late}, but {trainer.rounds_only}, and a late update is of another; use late=0, or the "
            "algorithm 'fedavg'"
        )


def _check_clients(world: World, trainer: Trainer | None) -> None:
    """Raise if the clients of the trainer's data are not the world's."""
    held = getattr(trainer.data, "clients", None) if isinstance(trainer, DataTrainer) else None
    if not isinstance(held, Clients):
        return  # not known for a trainer of the user's own
    fix = "make the world with clients=data.clients, the clients of the trainer's data"
    if len(held) != len(world.clients):
        raise ContractError(f"the world has {len(world.clients)} clients, but the trainer's data {len(held)}; {fix}")
    other = np.flatnonzero(held.sizes != world.clients.sizes)
    if len(other):
        k = other[0]
        raise ContractError(
            f"client {k} has {world.clients.sizes[k]:g} examples in the world, but {held.sizes[k]:g} in the "
            f"trainer's data; {fix}"
        )


def megabytes_of(model: Any) -> float:
    """Size of a model's arrays, in nested dicts, lists or tuples, in units of 1e6 bytes.

    >>> megabytes_of({"w": np.zeros((10, 20), np.float32), "b": [np.zeros(10)]})
    0.00088
    """
    if isinstance(model, Mapping):
        return sum(megabytes_of(each) for each in model.values())
    if isinstance(model, list | tuple):
        return sum(megabytes_of(each) for each in model)
    return np.asarray(model).nbytes / 1e6 if model is not None else 0.0


def policy_for(text: str, world: World, cohort_size: int, seed: int = 0) -> Any:
    """A policy from text; oracles get the truth that they ask for from the world.

    Args:
        text: as for `fp.policy`.
        world: whose truth oracles get.
        cohort_size: used unless the text has one.
        seed: of the run; some worlds draw their clients' means with it.

    >>> from fedpick import worlds
    >>> policy_for("over-select(fedcs, 2.0)", worlds.named("e3cs", 4), cohort_size=1).policy.success.tolist()
    [0.1, 0.3, 0.6, 0.9]
    """
    return policy_from_text(text, truth=lambda: world.truth(seed), cohort_size=cohort_size)


@dataclass
class Run:
    """A policy in a world with one seed; `rounds` plays the next rounds.

    Args:
        policy: that chooses the clients.
        world: the simulated clients.
        seed: of all random numbers.
        trainer: trains the model; None simulates only the selection.
        state: to continue from; None starts a new run.
        pace: `fp.Rounds` or `fp.Buffered`; None: rounds with the world's deadline, late updates and wait.
    """

    policy: Policy[Any]
    world: World
    seed: int = 0
    trainer: Trainer | None = None
    state: RunState = None  # type: ignore[assignment]
    pace: Pace = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.pace is None:
            self.pace = pace_of(self.world, self.trainer)
        if isinstance(self.pace, Buffered):
            self.pace = self.pace.within(self.world.deadline)
        check_fit(self.policy, self.world, self.trainer, self.pace)
        if self.state is None:
            model = None if self.trainer is None else self.trainer.init(self.seed)
            self.state = RunState(self.policy.init(self.world.clients), self.world.init(self.seed), model)
        if isinstance(self.pace, Buffered) and self.state.stream is None:
            self.state.stream = stream.begin(self.pace, self.world)

    def rounds(self, until: int) -> Iterator[Record]:
        """Play up to and including round `until`."""
        while self.state.round < until:
            if isinstance(self.pace, Buffered):
                yield stream.play_commit(self.policy, self.world, self.state, self.seed, self.trainer, self.pace)
            else:
                yield play(self.policy, self.world, self.state, self.seed, self.trainer, self.pace)
