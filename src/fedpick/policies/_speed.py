"""The bandit of BSFL (https://arxiv.org/abs/2303.10373) and CS-UCB: counts and mean speeds, speed = tau_min / tau.

The state has the mean of 1/tau, so that past speeds stay correct when a smaller tau_min is learned.
"""

from dataclasses import dataclass

import numpy as np

from fedpick.core.state import added_field, shared_field
from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome
from fedpick.policies._common import EXCUSES, told

__all__ = ["SpeedState", "fresh_speed", "learn_speed", "mean_speed", "never_timed", "upper_bound"]


@dataclass
class SpeedState:
    """Times chosen, mean of 1/duration, and the extreme durations seen (NaN: none yet)."""

    counts: Ints
    rate: Floats
    fastest: float = shared_field()
    slowest: float = shared_field()
    untimed: Ints = added_field()  # how often it was chosen and not waited for

    @property
    def timed(self) -> Ints:
        """How many durations are in each mean."""
        return self.counts - self.untimed


def fresh_speed(clients: int) -> SpeedState:
    """Return the state before the first round."""
    none = np.zeros(clients, dtype=np.int64)
    return SpeedState(none, np.zeros(clients), np.nan, np.nan, none.copy())


def learn_speed(
    state: SpeedState, choice: Choice, outcome: Outcome, tau_min: float | None, tau_max: float | None
) -> SpeedState:
    """Update counts and mean rates by BSFL's eq. (10), (11); writes into the arrays of the state.

    A client that is late, fails or reports an impossible duration counts as tau_max (if None, the slowest seen; speed
    0 if none was seen yet), so that a failure never looks fast. One that was not waited for is counted as chosen, and
    its mean stays.
    """
    duration = outcome.duration
    with np.errstate(invalid="ignore"):
        timed = outcome.succeeded & np.isfinite(duration) & (duration > 0.0)
    duration = np.clip(duration, 1e-300, 1e300)  # so that 1/duration is a number
    fastest, slowest = state.fastest, state.slowest
    if timed.any():
        fastest = float(np.fmin(fastest, duration[timed].min()))
        slowest = float(np.fmax(slowest, duration[timed].max()))
    worst = slowest if tau_max is None else tau_max
    seconds = np.where(timed, duration, np.nan if worst is None else worst)
    if tau_max is not None:
        seconds = np.minimum(seconds, tau_max)
    if tau_min is not None:
        seconds = np.maximum(seconds, tau_min)  # no client is faster than possible
    with np.errstate(divide="ignore"):
        rate = np.nan_to_num(1.0 / seconds, nan=0.0)
    news = told(outcome, outcome.duration)
    state.counts[choice.ids] += 1
    state.untimed[choice.ids[~news]] += 1
    ids = choice.ids[news]
    state.rate[ids] += (rate[news] - state.rate[ids]) / state.timed[ids]
    return SpeedState(state.counts, state.rate, fastest, slowest, state.untimed)


def never_timed(state: SpeedState, ids: Ints) -> Bools:
    """Mask of the clients to try first: never timed, and not often chosen in vain."""
    mask: Bools = (state.timed[ids] == 0) & (state.untimed[ids] < EXCUSES)
    return mask


def mean_speed(state: SpeedState, ids: Ints, tau_min: float | None) -> Floats:
    """Mean of tau_min/tau for these clients, in [0, 1]; 0 for those never chosen."""
    scale = state.fastest if tau_min is None else tau_min
    with np.errstate(over="ignore"):
        speed: Floats = np.nan_to_num(state.rate[ids] * scale, nan=0.0)
    return np.minimum(speed, 1.0)


def upper_bound(state: SpeedState, ids: Ints, tau_min: float | None, m: int, round: int) -> Floats:
    """BSFL's eq. (9): mean speed + sqrt((m + 1) ln t / c), +inf for clients never chosen.

    A client that was chosen three times or more and never waited for counts as of average speed.
    """
    counts = state.timed[ids]
    with np.errstate(divide="ignore", invalid="ignore"):
        bonus = np.sqrt((m + 1) * np.log(round) / counts)
    bound: Floats = mean_speed(state, ids, tau_min) + bonus
    bound[counts == 0] = np.inf
    often = (counts == 0) & (state.untimed[ids] >= EXCUSES)
    if often.any():
        timed = np.flatnonzero(state.timed > 0)
        speed = mean_speed(state, timed, tau_min).mean() if len(timed) else 0.0
        bound[often] = speed + np.sqrt((m + 1) * np.log(round) / state.untimed[ids[often]])
    return bound
