"""Scripts of asynchronous training, from lists and by chance, for the reference and for what must agree with it."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from asynchronous import FedAsync, Script


def listed(*values: Sequence[Any]) -> Callable[[int, int], Any]:
    """A function of client and nth from a list for each client; its last value stays."""
    return lambda client, nth: values[client][min(nth, len(values[client]) - 1)]


def steps(*values: Sequence[float]) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """Updates of one number, the same way."""
    return lambda client, nth, model: np.array([float(listed(*values)(client, nth))])


@dataclass(frozen=True)
class People:
    """What clients do by chance, the same each time: durations, timeouts and ticks are multiples of a quarter."""

    seed: int
    vanish: float  # probabilities
    fail: float
    again: float
    away: float  # in each spell of 2.5 seconds
    refuse: float  # that fewer are chosen than could be

    def luck(self, *what: object) -> float:
        """Uniform in [0, 1)."""
        digest = hashlib.blake2b(f"{self.seed} {what}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "little") / 2**48

    def pick(self, values: Sequence[Any], *what: object) -> Any:
        return values[int(self.luck(*what) * len(values))]

    def duration(self, client: int, nth: int) -> float:
        if self.luck("vanish", client, nth) < self.vanish:
            return math.inf
        return self.pick([0.25, 0.5, 0.75, 1.0, 1.0, 1.5, 2.0, 4.0], "duration", client, nth)

    def fault(self, client: int, nth: int) -> str | None:
        if self.luck("fail", client, nth) >= self.fail:
            return None
        return self.pick(["loss", "nan", "inf", "shape", "error"], "fault", client, nth)

    def loss(self, client: int, nth: int) -> float | None:
        bad = self.fault(client, nth) == "loss"
        return self.pick([math.nan, math.inf, -2e12] if bad else [0.5, 1.0, 0.0, 1e12, None], "loss", client, nth)

    def update(self, client: int, nth: int, model: np.ndarray) -> np.ndarray | None:
        """A step from the model towards the client's own optimum."""
        fault = self.fault(client, nth)
        optimum = np.sin((client + 1) * np.arange(1, len(model) + 1))
        step: np.ndarray = 0.1 * (optimum - model) + 0.01 * np.cos(nth + np.arange(len(model)))
        if fault in ("nan", "inf"):
            step[nth % len(step)] = float(fault)
        return None if fault == "error" else step[:-1] if fault == "shape" else step

    def repeat(self, client: int, nth: int) -> float | None:
        if self.luck("again", client, nth) >= self.again:
            return None
        return self.pick([0.0, 0.25, 1.0, 5.0], "repeat", client, nth)

    def there(self, client: int, time: float) -> bool:
        return self.luck("there", client, time // 2.5) >= self.away

    def choose(self, version: int, wanted: int, idle: list[int]) -> list[int]:
        most = min(wanted, len(idle))
        if self.luck("refuse", version, wanted, idle) < self.refuse:
            most = self.pick(range(most), "most", version, wanted, idle)
        return sorted(idle, key=lambda client: self.luck("choose", version, wanted, client))[:most]

    def weigh(self, version: int, chosen: list[int]) -> list[float]:
        return [self.pick([0.5, 1.0, 3.0], "weigh", version, client) for client in chosen]


RARE = st.sampled_from([0.0, 0.1, 0.3])
LOOKED = ("size", "clock", "mixing")  # for a server that looks at given times: those of a bound are between them


@st.composite
def scripts(draw: st.DrawFn, paces: tuple[str, ...] = (*LOOKED, "bound")) -> Script:
    """Scripts with ties, failures, vanished clients, double and unknown answers, and absences."""
    people = People(draw(st.integers(0, 10**6)), *(draw(RARE) for _ in range(5)))
    clients, concurrency = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    base = draw(st.sampled_from(["one", "size", "weights", "weights as they are"]))
    pace = draw(st.sampled_from(paces))
    if pace == "mixing":
        kind = draw(st.sampled_from(["constant", "polynomial", "hinge"]))
        form = {"mixing": FedAsync(draw(st.sampled_from([0.9, 0.3])), kind, p=0.5, g=4.0, h=draw(st.integers(0, 2)))}
    else:
        form = {"eta": draw(st.sampled_from([1.0, 0.5])), "momentum": draw(st.sampled_from([0.0, 0.5]))}
        form |= {"size": draw(st.integers(1, 5)), "correct": draw(st.sampled_from([False, False, True]))}
        form |= {"every": draw(st.sampled_from([0.5, 1.0, 2.75]))} if pace == "clock" else {}
        form |= {"bound": draw(st.sampled_from([0, 1, 3]))} if pace == "bound" else {}
    return Script(
        clients,
        concurrency,
        timeout=draw(st.sampled_from([5.0, 2.0, 1.0])),
        oldest=draw(st.sampled_from([None, 0, 1, 3])),
        refill=draw(st.integers(1, concurrency)),
        sizes=[people.pick([1.0, 2.0, 7.0], "size", client) for client in range(clients)],
        sized=base == "size",
        normalise=base != "weights as they are",
        start=(0.0, 1.0, -2.0),
        duration=people.duration,
        loss=people.loss,
        update=people.update,
        there=people.there,
        changes=[2.5 * n for n in range(1, 121)] if people.away else [],
        choose=people.choose,
        weigh=people.weigh if base.startswith("weights") else None,
        repeat=people.repeat,
        unknown=draw(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.25]), st.sampled_from([-1, 10**6, 2**62])))),
        until=300.0,
        people=people,
        **form,
    )
