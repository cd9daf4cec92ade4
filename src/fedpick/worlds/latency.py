"""Latency: how long clients take, in simulated seconds.

`Linear` is the law of RBCS-F (https://doi.org/10.1109/TPDS.2020.3040887), `Gamma` that of the studies of BSFL
(https://arxiv.org/abs/2303.10373).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Bools, Clients, Floats, Ints
from fedpick.worlds.parts import Noise, PartState, at_least, per_client, per_round
from fedpick.worlds.volatility import by_class

__all__ = ["Device", "Drawn", "Gamma", "Linear", "LogNormalTime", "PerClient", "Replayed"]

Drawn = Mapping[str, NDArray[Any]]
MODEL_MEGABYTES = 5.0
MOST_STAGES = 8  # a gamma variable of a whole shape up to this is a sum of so many exponential ones


def _normals(noise: Noise, sigma: float) -> tuple[Floats, Floats]:
    """Two independent normal variables of this standard deviation for each client (Box and Muller)."""
    first, second = noise(2).T
    radius, angle = np.sqrt((-2.0 * sigma**2) * np.log(first)), (2.0 * np.pi) * second
    return radius * np.cos(angle), radius * np.sin(angle)


class _NoContext:
    """Base class of laws without a context."""

    def context(self, memory: PartState, drawn: Drawn, idle: Bools) -> Floats | None:
        """The server knows nothing in advance."""
        return None


@dataclass(frozen=True, eq=False)
class PerClient(_NoContext):
    """The same time in every round: a number of seconds, or one per client (0 for worlds without time)."""

    times: ArrayLike = 0.0

    def __post_init__(self) -> None:
        at_least("PerClient: times", self.times, 0.0, " seconds")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Each client's time."""
        return {"times": per_client("PerClient: times", self.times, clients)}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """Nothing is drawn."""
        return {}

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        times: Floats = memory["times"][ids]
        return times

    def seconds_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> Floats:
        """How long these clients take."""
        return self.seconds(memory, drawn, idle, ids, epochs)

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """The times, and the speeds: the shortest time divided by each client's."""
        times = memory["times"]
        return {"times": times} | ({"speed": times.min() / times} if (times > 0).all() else {})


@dataclass(frozen=True)
class Gamma(_NoContext):
    """tau = shift + a gamma variable of the given shape, whose mean is drawn from U(low, high) for each client.

    The law of the BSFL studies; the paper gives none. It is the time of the whole round, regardless of the epochs.
    """

    shift: float = 1.0
    shape: float = 4.0
    low: float = 0.2
    high: float = 8.0

    def __post_init__(self) -> None:
        at_least("Gamma: shift", self.shift, 0.0, " seconds")
        at_least("Gamma: shape", self.shape, 0.0, above=True)
        at_least("Gamma: low, high", (self.low, self.high), 0.0, " seconds", above=True)
        require(self.low <= self.high, "Gamma: low, high", (self.low, self.high), "low <= high")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Each client's mean."""
        return {"mean": rng.uniform(self.low, self.high, len(clients))}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """Gamma noise of mean 1."""
        return {"noise": rng.standard_gamma(self.shape, len(clients)) / self.shape}

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        times: Floats = self.shift + memory["mean"][ids] * drawn["noise"][ids]
        return times

    def seconds_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> Floats:
        """How long these clients take."""
        shape = self.shape
        if shape <= MOST_STAGES and shape == int(shape):
            unit = -np.log(noise(int(shape)).prod(axis=1))
        else:
            from scipy.special import gammaincinv  # slow to import, and not needed for most

            unit = gammaincinv(shape, noise())
        times: Floats = self.shift + memory["mean"][ids] * (unit / shape)
        return times

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """Mean times, and mean speeds E[shift/tau]: no time is shorter than the shift."""
        found: dict[str, Floats] = {"times": self.shift + memory["mean"]}
        if self.shift > 0:
            from scipy.special import gammaincinv  # slow to import, and only needed here

            middle = (np.arange(2000) + 0.5) / 2000
            noise = gammaincinv(self.shape, middle) / self.shape  # equally likely values of the unit noise
            found["speed"] = np.array([(self.shift / (self.shift + mean * noise)).mean() for mean in memory["mean"]])
        return found


@dataclass(frozen=True)
class LogNormalTime(_NoContext):
    """tau = median of the client's class, times a log-normal factor."""

    medians: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0)
    sigma: float = 0.4

    def __post_init__(self) -> None:
        at_least("LogNormalTime: medians", self.medians, 0.0, " seconds", above=True)
        at_least("LogNormalTime: sigma", self.sigma, 0.0)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Each client's median."""
        return {"median": by_class(self.medians, len(clients))}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """Log-normal noise of median 1."""
        return {"noise": np.exp(self.sigma * rng.standard_normal(len(clients)))}

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        times: Floats = memory["median"][ids] * drawn["noise"][ids]
        return times

    def seconds_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> Floats:
        """How long these clients take."""
        times: Floats = memory["median"][ids] * np.exp(_normals(noise, self.sigma)[0])
        return times

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """Mean times."""
        return {"times": memory["median"] * np.exp(self.sigma**2 / 2.0)}


@dataclass(frozen=True)
class Linear:
    """RBCS-F's law, eq. (14): tau = c'theta + noise, c = [1/mu, s, M/B], theta = [tau_b, tau_s, 1/eta].

    mu ~ U[0.5, 2] is the free computing capacity, B ~ U[2, 4] MHz the bandwidth, M the model's size; s is 1 for clients
    that did not take part in the last round (cold start). The noise is uniform on (-c'theta, c'theta).

    Args:
        compute: tau_b of each class, seconds.
        cold_start: tau_s, seconds.
        snr: signal-to-noise ratio of each class.
        megabits: M.
        base: of the logarithm in eta = log(1 + SNR), which the paper does not give. 2 is Shannon's; with the natural
            one (2.718...) a transfer takes 1.44 times as long.
    """

    compute: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)
    cold_start: float = 1.0
    snr: tuple[float, ...] = (1000.0, 100.0, 10.0, 1.0)
    megabits: float = 20.0
    base: float = 2.0

    def __post_init__(self) -> None:
        at_least("Linear: compute", self.compute, 0.0, " seconds")
        at_least("Linear: cold_start", self.cold_start, 0.0, " seconds")
        at_least("Linear: snr", self.snr, 0.0, above=True)
        at_least("Linear: megabits", self.megabits, 0.0)
        at_least("Linear: base", self.base, 1.0, above=True)

    def theta(self, clients: Clients) -> Floats:
        """The true coefficients (K, 3), for oracles."""
        count = len(clients)
        rate = np.log2(1.0 + by_class(self.snr, count)) / np.log2(self.base)
        return np.column_stack([by_class(self.compute, count), np.full(count, self.cold_start), 1.0 / rate])

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """The coefficients of each client."""
        return {"theta": self.theta(clients)}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """Capacity, bandwidth and noise of this round."""
        return {**self.before(memory, clients, round, rng), "noise": rng.uniform(-1.0, 1.0, len(clients))}

    def before(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """Capacity and bandwidth of this round, which the context shows."""
        count = len(clients)
        return {
            "inverse_mu": 1.0 / rng.uniform(0.5, 2.0, count),
            "transfer": self.megabits / rng.uniform(2.0, 4.0, count),
        }

    def context(self, memory: PartState, drawn: Drawn, idle: Bools) -> Floats | None:
        """c for every client."""
        return np.column_stack([drawn["inverse_mu"], idle, drawn["transfer"]])

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        times: Floats = self._terms(memory, drawn, idle, ids).sum(axis=1) * (1.0 + drawn["noise"][ids])
        return times

    def seconds_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> Floats:
        """How long these clients take."""
        return self.times_of(memory, drawn, idle, ids, epochs, noise)[0]

    def times_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> tuple[Floats, Floats]:
        """How long these clients take, and of it computing and cold start."""
        terms, factor = self._terms(memory, drawn, idle, ids), 2.0 * noise()
        return terms.sum(axis=1) * factor, terms[:, :2].sum(axis=1) * factor

    def _terms(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints) -> Floats:
        """The terms of c'theta of these clients: computing, cold start, transfer."""
        c = np.column_stack([drawn["inverse_mu"][ids], idle[ids], drawn["transfer"][ids]])
        terms: Floats = c * memory["theta"][ids]
        return terms

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """The coefficients."""
        return {"theta": memory["theta"]}


@dataclass(frozen=True)
class Device:
    """A fleet of phones: cold start + download + compute + upload, from each client's device, link and data.

    Speeds of devices and links are log-normal, and fluctuate from round to round. The server's context is
    [size / speed, s, transfer], in typical seconds, without this round's fluctuation; s is 1 for clients that did not
    take part in the last round. `truth` has the coefficients of the context in the mean time.

    Args:
        examples_per_second: median speed of a device in training.
        megabits_per_second: median bandwidth; upload is a third of it.
        model_megabytes: size of the model; None: the world's.
        spread: standard deviation of the logarithm of speed and bandwidth between clients.
        waver: standard deviation of the logarithm of both between the rounds of a client.
        cold_start: seconds to load the data, for clients that did not take part in the last round.
    """

    examples_per_second: float = 200.0
    megabits_per_second: float = 20.0
    model_megabytes: float | None = None
    spread: float = 0.7
    waver: float = 0.25
    cold_start: float = 2.0

    def __post_init__(self) -> None:
        for name in ("examples_per_second", "megabits_per_second"):
            at_least(f"Device: {name}", getattr(self, name), 0.0, above=True)
        for name in ("spread", "waver", "cold_start"):
            at_least(f"Device: {name}", getattr(self, name), 0.0)
        if self.model_megabytes is not None:
            at_least("Device: model_megabytes", self.model_megabytes, 0.0)

    def sized(self, model_megabytes: float) -> "Device":
        """This law with a model of that size, unless `model_megabytes` is set."""
        return self if self.model_megabytes is not None else replace(self, model_megabytes=model_megabytes)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Each client's typical seconds of computing (one epoch) and of transfer."""
        count = len(clients)
        speed = self.examples_per_second * np.exp(self.spread * rng.standard_normal(count))
        link = self.megabits_per_second * np.exp(self.spread * rng.standard_normal(count))
        megabits = 8.0 * (MODEL_MEGABYTES if self.model_megabytes is None else self.model_megabytes)
        return {"compute": clients.sizes / speed, "transfer": megabits / link + megabits / (link / 3.0)}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """This round's fluctuation of computing and transfer."""
        noise = np.exp(self.waver * rng.standard_normal((2, len(clients))))
        return {"compute": noise[0], "transfer": noise[1]}

    def context(self, memory: PartState, drawn: Drawn, idle: Bools) -> Floats | None:
        """What a server can know: typical computing and transfer times, and which clients have a cold start."""
        return np.column_stack([memory["compute"], idle, memory["transfer"]])

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        return self._times(memory, idle, ids, epochs, drawn["compute"][ids], drawn["transfer"][ids])[0]

    def seconds_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> Floats:
        """How long these clients take."""
        return self.times_of(memory, drawn, idle, ids, epochs, noise)[0]

    def times_of(
        self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats, noise: Noise
    ) -> tuple[Floats, Floats]:
        """How long these clients take, and of it cold start and computing."""
        compute, transfer = _normals(noise, self.waver)
        return self._times(memory, idle, ids, epochs, np.exp(compute), np.exp(transfer))

    def _times(
        self, memory: PartState, idle: Bools, ids: Ints, epochs: Floats, compute: Floats, transfer: Floats
    ) -> tuple[Floats, Floats]:
        """Cold start, computing and transfer, with these fluctuations; and without the transfer."""
        computing: Floats = self.cold_start * idle[ids] + memory["compute"][ids] * epochs * compute
        return computing + memory["transfer"][ids] * transfer, computing

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """The coefficients of the context in the mean time, including the mean of the fluctuation."""
        mean = np.full(len(epochs), np.exp(self.waver**2 / 2.0))
        return {"theta": np.column_stack([epochs * mean, np.full(len(epochs), self.cold_start), mean])}


@dataclass(frozen=True, eq=False)
class Replayed(_NoContext):
    """Seconds from a (T, K) matrix; after its last row, the first is used again."""

    matrix: ArrayLike

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Check the matrix."""
        times = per_round("Replayed: matrix", self.matrix, clients)
        if not (np.isfinite(times).all() and (times >= 0).all()):
            raise ContractError(
                "Replayed: matrix holds a time that is negative, NaN or infinite; for clients that never answer, use "
                "volatility ReplayedFlags"
            )
        return {"times": times}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Drawn:
        """The row of this round."""
        return {"row": memory["times"][(round - 1) % len(memory["times"])]}

    def seconds(self, memory: PartState, drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        times: Floats = drawn["row"][ids]
        return times

    def truth(self, memory: PartState, clients: Clients, epochs: Floats) -> dict[str, Floats]:
        """Mean times."""
        return {"times": memory["times"].mean(axis=0)}
