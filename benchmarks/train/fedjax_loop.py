"""FedAvg as fedjax has it: its own algorithm and its `jit` backend; XLA uses all cores inside each step.

python fedjax_loop.py DATA
"""

import sys

import jax

jax.tree_map = jax.tree.map  # fedjax 0.0.17 calls it by the name that JAX has dropped since

import fedjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from protocol import private_stdout, serve  # noqa: E402
from workloads import Params, Task, Workload, read  # noqa: E402


def logits(work: Workload, params: list[jax.Array], x: jax.Array) -> jax.Array:
    """The forward pass."""
    layers = list(zip(params[::2], params[1::2], strict=True))
    for weight, bias in layers[: len(work.filters)]:
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    for i, (weight, bias) in enumerate(layers[len(work.filters) :], start=1):
        x = x @ weight + bias
        if i <= len(work.hidden):
            x = jax.nn.relu(x)
    return x


class Planned(fedjax.ClientDataset):
    """A client's examples, in the plan's batches."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batches: np.ndarray) -> None:
        super().__init__({"x": x, "y": y})
        self.batches = batches

    def shuffle_repeat_batch(self, hparams=None, **kwargs):
        """What fedjax trains on."""
        x, y = self.raw_examples["x"], self.raw_examples["y"]
        return ({"x": x[batch], "y": y[batch]} for batch in self.batches)


class Loop:
    """fedjax's federated averaging."""

    def __init__(self, task: Task) -> None:
        self.task = task

        def loss(params: list[jax.Array], batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
            return -jnp.take_along_axis(
                jax.nn.log_softmax(logits(task.work, params, batch["x"])), batch["y"][:, None], axis=1
            )[:, 0]

        fedjax.set_for_each_client_backend("jit")
        self.algorithm = fedjax.algorithms.fed_avg.federated_averaging(
            fedjax.grad(loss),
            client_optimizer=fedjax.optimizers.sgd(task.work.lr),
            server_optimizer=fedjax.optimizers.sgd(1.0),
            client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(task.work.batch, num_steps=task.work.steps or 1),
        )
        self.key = jax.random.PRNGKey(0)
        self.reset()

    def reset(self) -> None:
        """Back to the first weights and round 0."""
        self.round = 0
        self.state = self.algorithm.init([jnp.asarray(p) for p in self.task.params])

    def run(self, rounds: int) -> None:
        """So many more."""
        task = self.task
        for _ in range(rounds):
            plan = zip(*task.plan(self.round), strict=True)
            sizes = task.work.sizes
            clients = [
                (int(i), Planned(task.x[i][: sizes[i]], task.y[i][: sizes[i]], batches), self.key)
                for i, batches in plan
            ]
            self.state, _ = self.algorithm.apply(self.state, clients)
            self.round += 1
        jax.block_until_ready(self.state.params)

    def params(self) -> Params:
        """The present ones."""
        return [np.asarray(p) for p in self.state.params]


def main() -> None:
    """Answer the driver."""
    out = private_stdout()
    serve(out, Loop(read(sys.argv[1])), ["fedjax", "jax", "jaxlib"])


if __name__ == "__main__":
    main()
