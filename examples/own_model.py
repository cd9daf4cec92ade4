"""Train a model of your own: two functions, without any change to fedpick.

`prototypes` uses only jax.numpy. `with_flax` and `with_equinox` make such a pair from a module of these libraries;
fedpick needs neither, and each is trained here only if it is installed.
Run it: python examples/own_model.py
"""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

import fedpick as fp
from fedpick import data, learn, worlds


def prototypes() -> learn.Model:
    """One picture per label: a label is more likely the nearer an input is to its picture.

    init(key) returns the parameters: arrays in nested dicts, lists or tuples.
    apply(parameters, inputs, key) returns one row of outputs per input; the key is for dropout, None in evaluation.
    """

    def init(key: jax.Array) -> Any:
        return {"pictures": 0.1 * jax.random.normal(key, (10, 64)), "sharpness": jnp.full((1,), -3.0)}

    def apply(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        apart = x.reshape(len(x), 1, 64) - params["pictures"]
        return -jnp.exp(params["sharpness"]) * jnp.square(apart).sum(axis=-1)

    return learn.Model(init, apply, name="prototypes")


def with_flax() -> learn.Model:
    """A Flax module: its own `init` and `apply`, without the level "params"."""
    from flax import linen

    class Net(linen.Module):
        """Dense, dropout, dense."""

        @linen.compact
        def __call__(self, x: jax.Array, training: bool = False) -> jax.Array:
            """Outputs of a batch."""
            x = linen.relu(linen.Dense(32)(x.reshape(len(x), -1)))
            x = linen.Dropout(0.2, deterministic=not training)(x)
            return linen.Dense(10)(x)

    net = Net()

    def init(key: jax.Array) -> Any:
        return net.init(key, jnp.zeros((1, 8, 8, 1)))["params"]

    def apply(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        if key is None:
            return net.apply({"params": params}, x)
        return net.apply({"params": params}, x, training=True, rngs={"dropout": key})

    return learn.Model(init, apply, name="flax")


def with_equinox() -> learn.Model:
    """An Equinox module: its arrays are the parameters, as a list, so that they can be stored."""
    import equinox

    def build(key: jax.Array) -> Any:
        return equinox.nn.MLP(in_size=64, out_size=10, width_size=32, depth=1, key=key)

    arrays, rest = equinox.partition(build(jax.random.key(0)), equinox.is_array)
    shape = jax.tree.structure(arrays)

    def init(key: jax.Array) -> Any:
        return jax.tree.leaves(equinox.filter(build(key), equinox.is_array))

    def apply(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        net = equinox.combine(jax.tree.unflatten(shape, params), rest)
        return jax.vmap(net)(x.reshape(len(x), 64))

    return learn.Model(init, apply, name="equinox")


def train(model: learn.Model, rounds: int = 20) -> float:
    """Train on handwritten digits, 6 of 30 clients in each round; return the accuracy on test digits."""
    federated = data.Dirichlet(alpha=1.0)(data.load("digits"), 30, fp.rng.stream(0, 0, "data"))
    trainer = learn.Trainer(federated, model, lr=0.1, batch=16, momentum=0.5, evaluate_every=rounds)
    place = fp.World(federated.clients, availability=worlds.Bernoulli(0.8), epochs=(1, 2))
    run = fp.Run(fp.E3CS(6, quota=0.5), place, seed=1, trainer=trainer)
    *_, last = run.rounds(until=rounds)
    return last.metrics["accuracy"]


if __name__ == "__main__":
    print(f"prototypes: {train(prototypes()):.0%} of the held-out digits are right")
    for library, make in (("flax", with_flax), ("equinox", with_equinox)):
        if importlib.util.find_spec(library):
            print(f"{library}: {train(make()):.0%}")
        else:
            print(f"{library}: not installed")
