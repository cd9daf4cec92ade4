"""The machine's matrix ceiling: GFLOP/s of float32 products, the best of many, as JSON.

python ceiling.py numpy|torch|jax        a large square product, all cores
python ceiling.py products A|B|C|D        a workload's own products and nothing else, one NumPy thread for each core
"""

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

if sys.argv[1] == "products":
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from workloads import WORKLOADS, Workload

SIDE = 3072
SECONDS = 2.0


def best(work: Callable[[], object], gflop: float) -> float:
    """The fastest of as many calls as fit into the time."""
    work()
    fastest, end = np.inf, time.perf_counter() + SECONDS
    while (started := time.perf_counter()) < end:
        work()
        fastest = min(fastest, time.perf_counter() - started)
    return gflop / fastest


def square(library: str) -> Callable[[], object]:
    """One product of that library."""
    a = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    if library == "torch":
        import torch

        torch.set_num_threads(os.cpu_count() or 1)
        t = torch.from_numpy(a)
        return lambda: t @ t
    if library == "jax":
        import jax

        j = jax.numpy.asarray(a)
        multiply = jax.jit(jax.numpy.matmul)
        return lambda: multiply(j, j).block_until_ready()
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out=out)


def products(work: Workload, cores: int) -> tuple[Callable[[], object], float]:
    """Local steps on each core, products only: forward, the weights' gradient, the inputs' but in the first layer."""
    rng = np.random.default_rng(0)

    def step(layers: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
        for i, (x, weight, grad) in enumerate(layers):
            x @ weight
            x.T @ grad
            if i:
                grad @ weight.T

    made = [
        [
            tuple(rng.random(shape, dtype=np.float32) for shape in ((rows, inner), (inner, columns), (rows, columns)))
            for rows, inner, columns in work.products
        ]
        for _ in range(cores)
    ]
    steps = max(1, round(2.0 / (work.gflop / work.client_steps * 30)))  # calls long beside a thread's hand-over
    pool = ThreadPoolExecutor(cores)

    def run(layers: list) -> None:
        for _ in range(steps):
            step(layers)

    return lambda: list(pool.map(run, made)), cores * steps * work.gflop / work.client_steps


def main() -> None:
    """Measure what is asked."""
    if sys.argv[1] == "products":
        print(json.dumps(best(*products(WORKLOADS[sys.argv[2]], os.cpu_count() or 1))))
    else:
        print(json.dumps(best(square(sys.argv[1]), 2 * SIDE**3 / 1e9)))


if __name__ == "__main__":
    main()
