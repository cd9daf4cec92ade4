"""The forms of training with JAX, an object each (`fedpick.learn.backend.Backend`), and the server's optimisers."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedpick._support import devices
from fedpick._support.text import Makers
from fedpick.core import rng as rngs
from fedpick.core.errors import SettingError
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.backend import Backend, Examples, LocalResults, Params
from fedpick.learn.jax import cohort, dense, placement, vectors
from fedpick.learn.jax.models import Model

__all__ = ["FORMS", "SERVERS", "Loop", "Scan", "Server", "Vmap", "combine", "form_of"]

Server: TypeAlias = optax.GradientTransformation


def fedavgm(lr: float = 1.0, momentum: float = 0.9) -> Server:
    """FedAvgM (Hsu et al. 2019): momentum on the server."""
    return optax.sgd(lr, momentum)


def fedadam(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> Server:
    """FedAdam (Reddi et al. 2021) on the server, as optax has it: with bias correction."""
    return optax.adam(lr, b1, b2, eps)


def fedyogi(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> Server:
    """FedYogi (Reddi et al. 2021) on the server, as optax has it: with bias correction."""
    return optax.yogi(lr, b1, b2, eps)


def fedadagrad(lr: float = 0.01, eps: float = 1e-3) -> Server:
    """FedAdagrad (Reddi et al. 2021) on the server: Algorithm 2 with beta_1 = 0, as in its experiments.

    v is eps^2 at first. Not optax's Adagrad, which adds eps below the root.
    """

    def init(params: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, eps**2), params)

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        state = jax.tree.map(lambda v, g: v + jnp.square(g), state, gradient)
        return jax.tree.map(lambda g, v: -lr * g / (jnp.sqrt(v) + eps), gradient, state), state

    return optax.GradientTransformation(init, update)


SERVERS: Makers = {"fedavgm": fedavgm, "fedadam": fedadam, "fedyogi": fedyogi, "fedadagrad": fedadagrad}


@lru_cache
def _initial(model: Model) -> Callable[[jax.Array], Any]:
    # Called once: XLA took 2.2 s to make code for one small layer's random numbers as fast as it can be.
    return jax.jit(model.init, compiler_options={"xla_backend_optimization_level": 1})


def _started(model: Model, server: Server | None, seed: int, precision: str) -> dict[str, Any]:
    params = _initial(model)(jax.random.key(int(rngs.stream(seed, 0, "model").integers(2**31))))
    if precision == "float64":
        params = jax.tree.map(lambda leaf: leaf.astype(precision), params)
    return {"params": params, "server": [] if server is None else jax.tree.leaves(server.init(params))}


def _state(server: Server | None, model: dict[str, Any]) -> Any:
    """The server's state as optax has it; a model holds its arrays as a list."""
    if server is None:
        return ()
    return jax.tree.unflatten(jax.tree.structure(server.init(model["params"])), model["server"])


@partial(jax.jit, static_argnums=0)
def combine(server: Server | None, params: Params, state: Any, delta: Params, weights: Any) -> Any:
    """Parameters and the server's state after this round; updates of weight 0 may hold anything, NaN too."""

    def total(leaf: jax.Array) -> jax.Array:
        flat = jnp.where(weights[:, None] > 0, leaf.reshape(len(leaf), -1), 0.0)
        if flat.shape[1] == 1:  # a plain dot product sums in an order that depends on its length, padding included
            flat = jnp.repeat(flat, 2, axis=1)
        summed = jnp.tensordot(weights, flat, axes=1, precision="highest")
        return summed[: leaf[0].size].reshape(leaf.shape[1:])

    return _moved(server, params, state, jax.tree.map(total, delta))


def _moved(server: Server | None, params: Params, state: Any, step: Params) -> Any:
    if server is None:
        return jax.tree.map(jnp.add, params, step), state
    # The pseudo-gradient of Reddi et al. (2021): minus the mean update.
    changes, state = server.update(jax.tree.map(jnp.negative, step), state, params)
    return optax.apply_updates(params, changes), state


_move = jax.jit(_moved, static_argnums=0)  # the second half of `combine`, given the weighted sum of the updates


@jax.jit
def _rows(delta: Params, slots: Any) -> Params:
    return jax.tree.map(lambda leaf: leaf[slots], delta)


@jax.jit
def _stack(models: Sequence[Params]) -> Params:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)


@jax.jit
def _add(models: Sequence[Params], delta: Params, weights: Any) -> Sequence[Params]:
    def total(leaf: jax.Array) -> jax.Array:
        used = weights.sum(axis=0).reshape((-1,) + (1,) * (leaf.ndim - 1)) > 0  # the others may hold NaN
        return jnp.tensordot(weights, jnp.where(used, leaf, 0.0), axes=1, precision="highest")

    steps = jax.tree.map(total, delta)
    return tuple(jax.tree.map(lambda w, step, r=r: w + step[r], model, steps) for r, model in enumerate(models))


class Scan:
    """Clients one after another on each device: for CPUs."""

    compiles = True
    still: tuple[int, ...] = ()
    train: "staticmethod[..., LocalResults]" = staticmethod(cohort.one_by_one)
    rows = staticmethod(_rows)
    add = staticmethod(_add)
    stack = staticmethod(_stack)
    leaves = staticmethod(jax.tree.leaves)
    distances = staticmethod(vectors.distances)
    inputs = staticmethod(vectors.inputs_of)
    embed = staticmethod(vectors.embed)
    validation_losses = staticmethod(vectors.validation_losses)

    def __init__(self, precision: str = "float32") -> None:
        self.devices = jax.local_device_count()
        self.precision = precision

    @property
    def kind(self) -> str:
        """What JAX computes on."""
        return devices.describe()

    def restore(self, params: Params, leaves: Sequence[Any]) -> Params:
        """Arrays in the structure of these parameters."""
        return jax.tree.unflatten(jax.tree.structure(params), [jnp.asarray(leaf) for leaf in leaves])

    def trained(self, model: Model, delta: Params) -> list[Any]:
        """All of the updates."""
        return jax.tree.leaves(delta)

    def init(self, model: Model, server: Server | None, seed: int) -> dict[str, Any]:
        """The first parameters and the server's state."""
        # On its device, as later models are: else all that takes a model would be compiled again in the second round.
        return jax.device_put(_started(model, server, seed, self.precision), jax.local_devices()[0])

    def place(self, dataset: Dataset, part: str) -> Examples:
        """The examples on all devices."""
        return placement.place(dataset, part, self.devices)

    def everywhere(self, params: Params) -> Params:
        """The parameters on all devices."""
        return params if self.devices == 1 else jax.device_put(params, placement.everywhere(self.devices))

    def combine(self, server: Server | None, model: dict[str, Any], delta: Params, weights: Any) -> dict[str, Any]:
        """The next parameters and server's state."""
        params, state = combine(server, model["params"], _state(server, model), delta, weights)
        return {"params": params, "server": jax.tree.leaves(state)}

    def outputs(self, model: Model, params: Params, dataset: Dataset, part: str, index: Ints) -> Floats:
        """What the model gives for these examples, computed on one device."""
        return placement.place(dataset, part, self.devices).first.outputs(model, params, index)


class Vmap(Scan):
    """Clients side by side in every product: for GPUs."""

    train = staticmethod(cohort.side_by_side)

    def __init__(self, precision: str = "float32") -> None:
        self.devices, self.precision = 1, precision


class Loop(Scan):
    """Small dense networks in loops that Numba compiles, clients dealt out to threads: for CPUs."""

    compiles = False  # anew: shapes are no part of what is compiled
    train = staticmethod(dense.train)

    def init(self, model: Model, server: Server | None, seed: int) -> dict[str, Any]:
        """The first parameters, in the host's memory, and the server's state."""
        started = _started(model, server, seed, self.precision)
        return {**started, "params": jax.tree.map(np.asarray, started["params"])}

    def place(self, dataset: Dataset, part: str) -> Examples:
        """The examples as rows."""
        return dense.place(dataset, part, self.devices)

    def everywhere(self, params: Params) -> Params:
        """Threads share the host's memory."""
        return params

    def combine(self, server: Server | None, model: dict[str, Any], delta: Params, weights: Any) -> dict[str, Any]:
        """The next parameters and server's state; without a server XLA has no part in it."""
        step = dense.mean(delta, weights)
        if server is None:
            return {"params": dense.plus(model["params"], step), "server": []}
        params, state = _move(server, model["params"], _state(server, model), step)
        return {"params": params, "server": jax.tree.leaves(state)}

    def outputs(self, model: Model, params: Params, dataset: Dataset, part: str, index: Ints) -> Floats:
        """What the model gives for these examples."""
        return placement.place(dataset, part, 1).outputs(model, params, index)


FORMS: dict[str, type[Scan]] = {"scan": Scan, "vmap": Vmap, "loop": Loop}


def form_of(name: str, model: Model, size: int, dataset: Dataset, precision: str) -> tuple[str, Backend]:
    """A form by name, and its name: for "auto", the fastest one on this machine for a model of this size."""
    in_loop = dense.suits(model, dataset, precision)
    if name == "auto":
        name = "loop" if in_loop else "scan" if jax.default_backend() == "cpu" else "vmap"
    elif name == "loop" and not in_loop:
        raise SettingError(
            f"Trainer: form = 'loop', which trains only logistic, linear, or an mlp without dropout of at most "
            f"{dense.SMALL:,} weights, in float32 on a CPU, not {model.name!r} of {size:,} parameters here; use "
            "form='auto'"
        )
    return name, FORMS[name](precision)
