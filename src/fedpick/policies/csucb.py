"""CS-UCB and CS-UCB-Q: the m clients with the highest upper confidence bound of their speed.

Baselines in BSFL, with the confidence bound of its eq. (9). The -Q variant, for non-iid data, adds a virtual queue per
client, which grows by the participation floor each round and shrinks when the client is chosen.

Trusts: the durations. If they are measured on the server and `tau_min` is given, a client gains nothing by a false one.
If `tau_min` is learned, one false, very short duration makes all other clients look equally slow.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present
from fedpick.policies._speed import SpeedState, fresh_speed, learn_speed, upper_bound
from fedpick.policies.about import About, Paper

__all__ = ["CSUCB", "CSUCBState"]

PAPER = Paper(
    "xia2020multi",
    "Xia, Wenchao and Quek, Tony Q. S. and Guo, Kun and Wen, Wanli and Yang, Howard H. and Zhu, Hongbo",
    "Multi-Armed Bandit-Based Client Scheduling for Federated Learning",
    2020,
    "journal = {IEEE Transactions on Wireless Communications},\n  doi = {10.1109/TWC.2020.3008091}",
    "https://arxiv.org/abs/2007.02315",
)

VARIANTS = ("cs-ucb", "cs-ucb-q")


@dataclass
class CSUCBState:
    """Speeds learned so far, and the queue of each client (0 for "cs-ucb")."""

    speed: SpeedState
    queue: Floats


@dataclass(frozen=True, eq=False)
class CSUCB(ByValue):
    """The fastest clients, by upper confidence bounds, with or without a participation floor.

    Args:
        cohort_size: m.
        variant: "cs-ucb" (iid data) or "cs-ucb-q" (with queues).
        floor: participation rate that the queues aim at, as a share of m/K, in [0, 1].
        queue_weight: weight of a queue's length; speeds are in [0, 1].
        tau_min: the shortest possible duration, in seconds; None: the shortest seen.
        tau_max: the deadline, used as the duration of late and failed clients; None: the longest seen.
    """

    cohort_size: int
    variant: str = "cs-ucb"
    floor: float = 0.5
    queue_weight: float = 1.0
    tau_min: float | None = None
    tau_max: float | None = None

    about = About(("cs-ucb",), PAPER, variants=("cs-ucb-q",))
    rounds_only = "it makes rounds short, and without rounds there is no length to make short"

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.one_of(self, "variant", VARIANTS)
        check.number(self, "floor", low=0.0, high=1.0)
        check.number(self, "queue_weight", low=0.0)
        check.times(self)

    def init(self, clients: Clients) -> CSUCBState:
        """Return the state before the first round."""
        return CSUCBState(fresh_speed(len(clients)), np.zeros(len(clients)))

    def select(self, state: CSUCBState, view: View, rng: np.random.Generator) -> Choice:
        """The m highest bounds; clients never chosen come first, ties at random."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        score = upper_bound(state.speed, ids, self.tau_min, self.cohort_size, view.round)
        if self.variant == "cs-ucb-q":
            score += self.queue_weight * state.queue[ids]
        return Choice(ids[solvers.top(score, self.cohort_size, rng)])

    def observe(self, state: CSUCBState, view: View, choice: Choice, outcome: Outcome) -> CSUCBState:
        """Learn the speeds and update the queues."""
        check_outcome(view, choice, outcome)
        speed = learn_speed(state.speed, choice, outcome, self.tau_min, self.tau_max)
        queue = state.queue
        if self.variant == "cs-ucb-q":
            queue += self.floor * min(self.cohort_size / len(queue), 1.0)
            queue[choice.ids] -= 1.0
            np.maximum(queue, 0.0, out=queue)
        return CSUCBState(speed, queue)
