"""The world, made of parts: what it draws, what it shows to the server, and when its clients answer."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core import rng as rngs
from fedpick.core.errors import require
from fedpick.core.types import Bools, Clients, Floats, Ints, Probe, View
from fedpick.worlds.availability import Diurnal
from fedpick.worlds.latency import MODEL_MEGABYTES, Device
from fedpick.worlds.parts import (
    Availability,
    Latency,
    Noise,
    PartState,
    Volatility,
    asks_latency,
    asks_volatility,
    at_least,
    numbers,
    tells_computing,
)
from fedpick.worlds.volatility import SuccessRates

__all__ = ["Draw", "World", "WorldState", "phone_clients"]

OLD_DRAWS = False  # for tests: True draws durations, failures and ties for all clients, with the numbers of 0.2


def phone_clients(count: int = 100, seed: int = 0) -> Clients:
    """A fleet of phones: log-normal data sizes, and a few of ten labels per client.

    >>> len(phone_clients(50))
    50
    """
    rng = rngs.stream(seed, 0, "clients")
    sizes = np.maximum(np.round(rng.lognormal(5.5, 0.8, count)), 10.0)
    mix = rng.dirichlet(np.full(10, 0.3), count)
    return Clients(sizes, labels=np.round(mix * sizes[:, None]), features=mix)


@dataclass
class WorldState:
    """What the world keeps between rounds: its parts' memories, the last cohort, and the time."""

    availability: PartState
    volatility: PartState
    latency: PartState
    epochs: Floats
    idle: Bools  # mask of those that did not take part in the last round
    clock: float = 0.0


@dataclass(frozen=True, eq=False)
class Draw:
    """The world's random draws for a round, the same for every policy.

    Durations and failures are drawn for the clients that `World.seconds` and `World.works` are asked about, with
    numbers that depend on the seed, the client and the round only; here is what is drawn for all.
    """

    round: int
    presence: NDArray[Any]
    works: Bools | None  # None: drawn for those who are asked
    latency: Mapping[str, NDArray[Any]]
    seed: int = 0
    old: bool = False  # see OLD_DRAWS
    nth: Ints | None = None  # if given, each client's numbers are those of its n-th task and not of the round

    kept: dict[tuple[str, bytes], Floats] = field(default_factory=dict, init=False, repr=False)  # came with others

    def noise(self, name: str, ids: Ints, also: str | None = None) -> Noise:
        """The random numbers of these clients: called with a number of columns, or without for one number each.

        Args:
            name: what they are for.
            ids: the clients.
            also: what one number each will be needed for next; drawing both at once takes less time.
        """
        counter = self.round if self.nth is None else self.nth[ids]

        def numbers(count: int | None = None) -> Floats:
            if count is None and (name, ids.tobytes()) in self.kept:
                return self.kept[name, ids.tobytes()]
            found = rngs.uniforms(self.seed, name, ids, counter, count, also)
            if also is not None:
                self.kept.clear()
                self.kept[also, ids.tobytes()] = found[:, -1]
                found = found[:, 0] if count is None else found[:, :-1]
            return found

        return numbers

    def first(self, took: Floats, ids: Ints) -> Ints:
        """Positions of these answers in the order of their times; equal times in a random order of the clients.

        The order is the same for every policy. Sorted by the clients' numbers, equal times would put the same clients
        last in every round, whose work would never be used.
        """
        order: Ints = np.argsort(took, kind="stable")
        if (np.diff(took[order]) == 0.0).any():
            if self.old:
                chance = rngs.stream(self.seed, self.round, "ties").random(int(ids.max()) + 1)[ids]
            else:
                chance = self.noise("ties", ids)()
            order = np.lexsort((chance, took))
        return order


@dataclass(frozen=True, eq=False)
class World:
    """Clients that are away, slow or fail.

    Args:
        clients: the K clients; by default a fleet of 100 phones. All other arguments are keyword-only.
        availability: which clients are available.
        volatility: which clients would return a model.
        latency: how long clients take.
        deadline: seconds after which answers are LATE; None waits for the slowest, so a client that fails
            costs the time that it would have taken.
        epochs: numbers of local epochs; each client is assigned one of them for all rounds.
        probe_share: a probe takes this share of a client's round time.
        model_megabytes: size of a message with a model.
        wait: seconds until the server tries again if no client is available.
        late: how many rounds late an update may come and still be used, with a smaller weight (REFL); its client is
            not available until then. 0: late updates are dropped.

    >>> world = World()
    >>> state = world.init(seed=0)
    >>> draw = world.draw(state, seed=0, round=1)
    >>> len(world.view(state, draw).clients)
    100
    """

    clients: Clients = field(default_factory=phone_clients)
    _: KW_ONLY
    availability: Availability = field(default_factory=Diurnal)
    volatility: Volatility = field(default_factory=lambda: SuccessRates((0.7, 0.85, 0.95, 0.99)))
    latency: Latency = field(default_factory=Device)
    deadline: float | None = 30.0
    epochs: tuple[int, ...] = (1, 2, 3, 4)
    probe_share: float = 0.1
    model_megabytes: float = MODEL_MEGABYTES
    wait: float = 60.0
    late: int = 0

    def __post_init__(self) -> None:
        if self.deadline is not None:
            fits = 0 < self.deadline < np.inf
            require(fits, "World: deadline", self.deadline, "> 0 seconds and finite", "None waits for the slowest")
        epochs = numbers("World: epochs", self.epochs)
        fits = epochs.ndim == 1 and len(epochs) > 0 and bool(((epochs >= 1) & (epochs < np.inf)).all())
        require(fits, "World: epochs", self.epochs, "one or more numbers >= 1", "such as (1, 2, 3, 4), or (1,) for all")
        require(0 <= self.probe_share <= 1, "World: probe_share", self.probe_share, "in [0, 1]")
        at_least("World: model_megabytes", self.model_megabytes, 0.0)
        at_least("World: wait", self.wait, 0.0, " seconds", above=True)
        whole = isinstance(self.late, int | np.integer) and not isinstance(self.late, bool) and self.late >= 0
        require(whole, "World: late", self.late, "a whole number of rounds >= 0")

    @property
    def step(self) -> float:
        """Seconds after which what is drawn in each round is drawn anew where there are no rounds (`fp.Buffered`)."""
        return self.wait if self.deadline is None else self.deadline

    def init(self, seed: int) -> WorldState:
        """Draw what is the same in all rounds."""
        clients = self.clients
        latency = self.latency.sized(self.model_megabytes) if isinstance(self.latency, Device) else self.latency
        return WorldState(
            self.availability.init(clients, rngs.stream(seed, 0, "availability")),
            self.volatility.init(clients, rngs.stream(seed, 0, "volatility")),
            latency.init(clients, rngs.stream(seed, 0, "latency")),
            rngs.stream(seed, 0, "epochs").choice(np.asarray(self.epochs, dtype=np.float64), len(clients)),
            np.ones(len(clients), dtype=bool),
        )

    def draw(self, state: WorldState, seed: int, round: int) -> Draw:
        """Draw what a round has for all clients; advances Markov chains, and does not depend on what policies chose."""
        clients, works, latency = self.clients, None, self.latency
        presence = self.availability.draw(state.availability, clients, round, rngs.stream(seed, round, "availability"))
        if OLD_DRAWS or not asks_volatility(self.volatility):
            works = self.volatility.draw(state.volatility, clients, round, rngs.stream(seed, round, "volatility"))
        asked = not OLD_DRAWS and asks_latency(latency)
        draw = getattr(latency, "before", None) if asked else latency.draw
        drawn = {} if draw is None else draw(state.latency, clients, round, rngs.stream(seed, round, "latency"))
        return Draw(round, presence, works, drawn, seed, OLD_DRAWS)

    def view(self, state: WorldState, draw: Draw, probe: Probe | None = None, wanted: int | None = None) -> View:
        """What the server may know before it chooses; `wanted` is how many clients it wants to ask."""
        mask = self.availability.mask(state.availability, draw.presence, self.clients, draw.round, state.clock)
        context = self.latency.context(state.latency, draw.latency, state.idle)
        return View(draw.round, mask, self.clients, context=context, probe=probe, wanted=wanted)

    def truth(self, seed: int = 0) -> dict[str, Floats]:
        """What no server knows about the clients, for oracles: arrays with a row per client, by name.

        The names are, if the parts know them: "success" (rates), "times" (mean seconds), "speed" (mean of the
        shortest time divided by the client's) and "theta" (the context's coefficients in the mean time). A part that
        you write can add to them with a method `truth(memory, clients)`, or for latency `truth(memory, clients,
        epochs)`.

        Args:
            seed: of the run; some clients' means are drawn with it.

        >>> from fedpick import worlds
        >>> worlds.named("e3cs", 4).truth()["success"].tolist()
        [0.1, 0.3, 0.6, 0.9]
        """
        state, found = self.init(seed), {}
        for part, memory, more in (
            (self.availability, state.availability, ()),
            (self.volatility, state.volatility, ()),
            (self.latency, state.latency, (state.epochs,)),
        ):
            truth = getattr(part, "truth", None)
            if truth is not None:
                found.update(truth(memory, self.clients, *more))
        return {name: np.array(value, dtype=np.float64) for name, value in found.items()}

    def seconds(self, state: WorldState, draw: Draw, ids: Ints) -> Floats:
        """How long these clients would take in this round."""
        return self.times(state, draw, ids)[0]

    def times(self, state: WorldState, draw: Draw, ids: Ints) -> tuple[Floats, Floats]:
        """How long these clients would take in this round, and how long of it they would compute."""
        latency, epochs = self.latency, state.epochs[ids]
        if draw.old or not asks_latency(latency):
            took = latency.seconds(state.latency, draw.latency, state.idle, ids, epochs)
            return took, took
        noise = draw.noise("latency", ids, also="volatility" if draw.works is None else None)
        if tells_computing(latency):
            return latency.times_of(state.latency, draw.latency, state.idle, ids, epochs, noise)
        took = latency.seconds_of(state.latency, draw.latency, state.idle, ids, epochs, noise)
        return took, took

    def works(self, state: WorldState, draw: Draw, ids: Ints) -> Bools:
        """Which of these clients would return a model in this round."""
        if draw.works is not None:
            return draw.works[ids]
        assert asks_volatility(self.volatility)  # see draw
        return self.volatility.works_of(state.volatility, self.clients, ids, draw.round, draw.noise("volatility", ids))
