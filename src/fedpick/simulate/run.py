"""Many rounds: an iterator of records that can be stopped, resumed, and continued past its first horizon.

>>> import fedpick as fp
>>> run = fp.Run(fp.E3CS(cohort_size=20, quota=0.5), fp.worlds.named("e3cs"), seed=1)
>>> records = list(run.rounds(until=50))
>>> len(records), run.state.round
(50, 50)
>>> sum(int((record.status == fp.Status.DONE).sum()) for record in run.rounds(until=60)) > 0   # goes on where it was
True
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.errors import MissingError, require
from fedpick.policies import OverSelect
from fedpick.policies.text import policy as policy_from_text
from fedpick.protocol import Policy, TrainerLike, traits
from fedpick.simulate.round import play
from fedpick.store.checkpoint import RunState
from fedpick.store.records import Record
from fedpick.worlds import Linear, Reliable, SuccessRates, World, by_class

__all__ = ["Run", "check_fit", "policy_for"]


def check_fit(policy: Policy[Any], world: World, trainer: TrainerLike | None = None) -> None:
    """Raise a MissingError that says what the policy needs and this world does not give."""
    needs = traits(policy).needs
    name = type(policy).__name__
    if "probe" in needs and trainer is None:
        raise MissingError(
            f"{name} asks clients for their loss, but nothing is trained in this run; use a policy that needs no "
            "probe, such as rpow-d, or give a trainer"
        )
    if "context" in needs:
        state = world.init(0)
        context = world.view(state, world.draw(state, 0, 1)).context
        if context is None:
            raise MissingError(
                f"{name} needs a context, but the latency {type(world.latency).__name__} of this world gives none; use "
                "a world with latency linear or device, such as rbcs-f or phones"
            )
        inner: Any = policy.policy if isinstance(policy, OverSelect) else policy
        width = getattr(inner, "context", context.shape[1])
        require(
            width == context.shape[1], f"{name}: context", width, f"{context.shape[1]}, the columns this world gives"
        )
    if "features" in needs and world.clients.features is None:
        raise MissingError(
            f"{name} needs Clients.features, but the clients of this world have none; use a world whose clients have, "
            "such as phones, volatile or fedgs-ln"
        )
    reports = sorted(needs - {"probe", "context", "features"})
    given: tuple[str, ...] = getattr(trainer, "reports", tuple(reports))
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


def policy_for(text: str, world: World, cohort_size: int) -> Any:
    """A policy from text; the oracle fedcs is told the truth of this world, openly."""
    truth: dict[str, Any] = {}
    if re.search(r"\bfed[-_]?cs\b", text, re.IGNORECASE):
        if isinstance(world.latency, Linear) and "deadline" in text:
            truth = {"theta": world.latency.theta}
        elif isinstance(world.volatility, SuccessRates) and "deadline" not in text:
            truth = {"success": by_class(world.volatility.rates, len(world.clients))}
        elif isinstance(world.volatility, Reliable) and "deadline" not in text:
            truth = {"success": np.ones(len(world.clients))}
    return policy_from_text(text, cohort_size=cohort_size, **truth)


@dataclass
class Run:
    """A policy in a world at one seed; `rounds` plays on from wherever it is.

    Args:
        policy: who chooses.
        world: who is there, how fast, and who fails.
        seed: of everything that is drawn.
        trainer: trains the model; None for a numerical experiment.
        state: where to go on from; None starts anew.
    """

    policy: Policy[Any]
    world: World
    seed: int = 0
    trainer: TrainerLike | None = None
    state: RunState = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_fit(self.policy, self.world, self.trainer)
        if self.state is None:
            model = None if self.trainer is None else self.trainer.init(self.seed)
            self.state = RunState(self.policy.init(self.world.clients), self.world.init(self.seed), model)

    def rounds(self, until: int) -> Iterator[Record]:
        """Play through round `until`."""
        while self.state.round < until:
            yield play(self.policy, self.world, self.state, self.seed, self.trainer)
