"""Late updates that are kept (`World.late`): trained from the model that was sent, used in the round they arrive in.

They wait in the run's state as arrays whose first axis is the update: "client", "round" (in which it was sent), "due"
(the clock when it arrives), and what the trainer keeps of it. Until then its client is busy, and not available.

In a round of two phases, a client whose norm comes late cannot be drawn by its norm. Its update is used as if it had
been drawn with probability 1: its base weight is its share of the data of all who were asked and did not fail.
"""

from typing import Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.protocol import Trainer
from fedpick.core.types import Bools, Choice, Floats, Ints, Status
from fedpick.simulate.abilities import LateTrainer
from fedpick.store.checkpoint import RunState
from fedpick.worlds import Timing, World

__all__ = ["behind", "busy", "take", "train", "wait"]

Kept = dict[str, Any]


def busy(state: RunState, clients: int) -> Bools:
    """Mask of the clients that still work on an earlier round."""
    mask = np.zeros(clients, dtype=np.bool_)
    if state.late:
        mask[state.late["client"][state.late["due"] > state.world.clock]] = True
    return mask


def behind(ids: Ints, asked: Timing, sizes: Floats) -> tuple[Choice, Timing]:
    """The late clients of a first phase, as a choice with their times.

    Args:
        ids: of all who were asked.
        asked: how that ended.
        sizes: of all clients.
    """
    late, held = asked.status == Status.LATE, np.where(asked.status == Status.FAILED, 0.0, sizes[ids])
    weights = held[late] / max(held.sum(), np.finfo(np.float64).tiny)
    arrives = None if asked.arrives is None else asked.arrives[late]
    timing = Timing(asked.status[late], asked.duration[late], asked.seconds, arrives)
    return Choice(ids[late], weights=weights, normalise=False), timing


def train(
    world: World, trainer: Trainer, state: RunState, seed: int, round: int, choice: Choice, timing: Timing
) -> Kept:
    """What arrives later of this round; its clients train from the model that they were sent: the present one."""
    late = timing.status == Status.LATE
    if not world.late or timing.arrives is None or not late.any():
        return {}
    ids = choice.ids
    rng = rngs.stream(seed, round, "train late")
    updates = trainer.train(state.model, ids, late, state.world.epochs[ids], round, rng)
    assert isinstance(trainer, LateTrainer)  # see check_fit
    at, kept = trainer.keep(choice, updates)
    return {"client": ids[at], "round": np.full(len(at), round), "due": timing.arrives[at], **kept} if len(at) else {}


def take(world: World, state: RunState, round: int) -> Kept:
    """The updates that have arrived by the end of this round and are not too old; what arrived leaves the state."""
    held = state.late
    if not held:
        return {}
    here, young = held["due"] <= state.world.clock, round - held["round"] <= world.late
    state.late = {} if here.all() else {name: values[~here] for name, values in held.items()}
    found = {name: values[here & young] for name, values in held.items()}
    return {**found, "now": round} if len(found["client"]) else {}


def wait(state: RunState, more: Kept) -> None:
    """Add these to the updates that wait in the state."""
    if more:
        held = state.late
        state.late = {name: np.concatenate([held[name], new]) if held else new for name, new in more.items()}
