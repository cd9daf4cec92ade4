"""What a round's useful steps take on one core if nothing else is done: no batches, no clients, no aggregation.

    python bound.py DATA

One compiled loop over as many steps as the round's clients have together, all on one batch: forward, gradient (by
automatic differentiation), update. For models of dense layers.
"""

import os
import sys

if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from protocol import private_stdout, serve
from workloads import Params, Task, read


class Loop:
    """The steps alone."""

    def __init__(self, task: Task) -> None:
        self.task = task
        x, y = jnp.asarray(task.x[0, : task.work.batch]), jnp.asarray(task.y[0, : task.work.batch])

        def loss(params: list[jax.Array]) -> jax.Array:
            z = x
            for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
                z = jax.nn.relu(z @ weight + bias)
            z = z @ params[-2] + params[-1]
            right = jnp.take_along_axis(z, y[:, None], axis=1)[:, 0]
            return jnp.mean(jax.nn.logsumexp(z, axis=1) - right)

        def step(_: int, params: list[jax.Array]) -> list[jax.Array]:
            return [p - task.work.lr * g for p, g in zip(params, jax.grad(loss)(params), strict=True)]

        self.steps = jax.jit(lambda params, n: lax.fori_loop(0, n, step, params))
        self.reset()

    def reset(self) -> None:
        """Back to the first weights and round 0."""
        self.round, self.now = 0, [jnp.asarray(p) for p in self.task.params]

    def run(self, rounds: int) -> None:
        """As many steps as so many rounds have."""
        for _ in range(rounds):
            self.now = self.steps(self.now, int(self.task.cohort(self.round)[1].sum()))
            self.round += 1
        jax.block_until_ready(self.now)

    def params(self) -> Params:
        """The present ones."""
        return [np.asarray(p) for p in self.now]


def main() -> None:
    """Answer the driver."""
    out = private_stdout()
    serve(out, Loop(read(sys.argv[1])), ["jax", "jaxlib"])


if __name__ == "__main__":
    main()
