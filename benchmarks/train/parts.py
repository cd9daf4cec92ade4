"""What a local step of the workloads A and B consists of, on one core: each part compiled alone, beside the whole.

    python benchmarks/train/parts.py            some seconds; writes results/train/parts.md and .json

Times are medians of blocks of calls, the parts in turns, less an empty call. The parts alone need not add up to the
whole: in it XLA fuses some of them, and what one part leaves in the cache helps the next one.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from workloads import WORKLOADS

from fedpick import learn
from fedpick.learn.jax import cohort
from fedpick.learn.jax.objective import Affine, losses, prepare

sys.path.append(str(Path(__file__).parent.parent))
from _manifest import manifest

BLOCKS, SECONDS = 15, 0.15
RESULTS = Path(__file__).parent.parent / "results" / "train"
WHOLE, NUMPY = "the whole step", "the same products in NumPy (BLAS)"
PARTS = {
    "products": "matrix products: forward, to the weights, to the inputs",
    "patches": "patches of the convolutions, and the way back",
    "pooling": "bias, ReLU and pooling, and the way back",
    "update": "update of the weights",
    "batch": "reading and scaling the batch",
    "loss": "loss and its gradient",
}


def network(work):
    """The workload's model."""
    if work.filters:
        return learn.cnn(work.inputs, work.classes, channels=work.filters, hidden=work.hidden)
    return learn.mlp(work.inputs, work.classes, hidden=work.hidden)


def whole(work, rng):
    """One client's local training, as the library compiles it; as many steps as the workload has."""
    model, local = network(work), cohort.LocalSGD()
    x = jnp.asarray(rng.integers(0, 255, (work.held, *work.inputs), dtype=np.uint8))
    y = jnp.asarray(rng.integers(0, work.classes, work.held).astype(np.int32))
    index = jnp.asarray(rng.integers(0, work.held, (work.steps, work.batch)).astype(np.int32))
    count = jnp.full(work.steps, work.batch, jnp.int32)
    params, affine = model.init(jax.random.key(0)), affine_for(work)
    run = jax.jit(lambda *given: cohort._client(model, local, affine, x, y, *given))
    rest = (index, count, jnp.int32(work.steps), jnp.zeros(2, jnp.uint32), jnp.float32(work.lr))
    return lambda: run(params, *rest)


def affine_for(work):
    """Pixels to numbers around 0."""
    channels = work.inputs[-1] if len(work.inputs) == 3 else 1
    return Affine(jnp.full(channels, 1 / 64, jnp.float32), jnp.full(channels, -2.0, jnp.float32))


def draw(rng, *shape):
    """Random numbers."""
    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32))


def products(work, rng, library):
    """All of a step's, in JAX or NumPy."""
    made = [
        tuple(draw(rng, *shape) for shape in ((rows, inner), (inner, columns), (rows, columns)))
        for rows, inner, columns in work.products
    ]

    def multiply(made):
        out = []
        for i, (x, weight, grad) in enumerate(made):
            # Convolutions have the batch last (`fedpick/learn/convolution.py`): the same products, turned.
            out += [(weight.T @ x.T) if i < len(work.filters) else x @ weight, x.T @ grad]
            out += [grad @ weight.T] if i else []
        return out

    if library == "numpy":
        arrays = [tuple(map(np.asarray, one)) for one in made]
        return lambda: multiply(arrays)
    run = jax.jit(multiply)
    return lambda: run(made)


def maps(work):
    """(channels, height, width) before each convolution."""
    side, channels, out = work.inputs[0], work.inputs[2], []
    for filters in work.filters:
        out.append((channels, side, side))
        side, channels = (side - 4) // 2, filters
    return out


def patches(work, rng):
    """Copies for the products of all convolutions; the way back of all but the first."""
    images = [draw(rng, *shape, work.batch) for shape in maps(work)]

    def cut(x):
        high, broad = x.shape[1] - 4, x.shape[2] - 4
        windows = [x[:, i : i + high, j : j + broad] for i in range(5) for j in range(5)]
        return lax.optimization_barrier(jnp.stack(windows, axis=1).reshape(25 * len(x), -1))

    def run(images, back):
        first, *rest = images
        out = [cut(first)]
        for x, d in zip(rest, back, strict=True):
            y, pull = jax.vjp(cut, x)
            out += [y, pull(d)]
        return out

    back = [draw(rng, *jax.eval_shape(cut, x).shape) for x in images[1:]]
    compiled = jax.jit(run)
    return lambda: compiled(images, back)


def pooling(work, rng):
    """Bias, ReLU and, after convolutions, pooling of all layers but the last; forward and back."""
    shapes = [
        (wide, side - 4, side - 4, work.batch) for (_, side, _), wide in zip(maps(work), work.filters, strict=True)
    ] if work.filters else []  # fmt: skip
    shapes += [(work.batch, units) for units in work.hidden]

    def one(y, b):
        if y.ndim == 2:
            return jax.nn.relu(y + b)
        wide, high, broad, count = y.shape
        y = jax.nn.relu(y + b[:, None, None, None])
        return y.reshape(wide, high // 2, 2, broad // 2, 2, count).max(axis=(2, 4))

    def run(given):
        out = []
        for y, b, d in given:
            z, pull = jax.vjp(one, y, b)
            out += [z, pull(d)]
        return out

    given = []
    for shape in shapes:
        y, b = draw(rng, *shape), draw(rng, shape[0] if len(shape) == 4 else shape[1])
        given.append((y, b, draw(rng, *jax.eval_shape(one, y, b).shape)))
    compiled = jax.jit(run)
    return lambda: compiled(given)


def update(work, rng):
    """Of all weights and biases."""
    weights = [draw(rng, *shape) for shape in work.shapes]
    step = jax.jit(lambda w, g: jax.tree.map(lambda w, g: w - work.lr * g, w, g))
    gradients = [draw(rng, *shape) for shape in work.shapes]
    return lambda: step(weights, gradients)


def batch(work, rng):
    """Examples from the client's data, as numbers around 0."""
    x = jnp.asarray(rng.integers(0, 255, (work.held, *work.inputs), dtype=np.uint8))
    index = jnp.asarray(rng.integers(0, work.held, work.batch).astype(np.int32))
    run = jax.jit(lambda x, index: prepare(x[index], affine_for(work), "float32"))
    return lambda: run(x, index)


def loss(work, rng):
    """Of the outputs."""
    outputs, y = draw(rng, work.batch, work.classes), jnp.asarray(rng.integers(0, work.classes, work.batch))
    run = jax.jit(jax.grad(lambda o: losses(o, y).mean()))
    return lambda: run(outputs)


def seconds(run, least=1):
    """Of a call, over as many as fit into the time."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS or calls < least:
        jax.block_until_ready(run())
        calls += 1
    return (time.perf_counter() - start) / calls


def measure(work, blocks):
    """Milliseconds of the whole step and of its parts."""
    rng = np.random.default_rng(0)
    nothing, given = jax.jit(lambda x: x), jnp.zeros(())
    runs = {"": lambda: nothing(given), WHOLE: whole(work, rng), NUMPY: products(work, rng, "numpy")}
    runs["products"] = products(work, rng, "jax")
    if work.filters:
        runs["patches"] = patches(work, rng)
    runs |= {name: function(work, rng) for name, function in (("pooling", pooling), ("update", update))}
    runs |= {name: function(work, rng) for name, function in (("batch", batch), ("loss", loss))}
    for run in runs.values():
        jax.block_until_ready(run())  # compiles
    took = {name: [] for name in runs}
    for _ in range(blocks):
        for name, run in runs.items():
            took[name].append(seconds(run))
    middle = {name: 1e3 * statistics.median(values) for name, values in took.items()}
    empty = middle.pop("")
    middle[WHOLE] /= work.steps
    return {name: max(value - (0 if name in (WHOLE, NUMPY) else empty), 0.0) for name, value in middle.items()}


def render(result):
    """The result as a page."""
    lines = [
        "### What a step consists of",
        "",
        "Milliseconds of one client's local step on one core, and of its parts, each compiled alone. Written by "
        "`python benchmarks/train/parts.py`.",
        "",
        "| part | " + " | ".join(f"{WORKLOADS[name].title} | of the step" for name in result["workloads"]) + " |",
        "| --- |" + " ---: |" * 2 * len(result["workloads"]),
    ]
    found = list(result["workloads"].values())
    for name in (WHOLE, *PARTS, NUMPY):
        cells = [f"{one[name]:.3f} | {one[name] / one[WHOLE]:.0%}" if name in one else " | " for one in found]
        lines.append(f"| {PARTS.get(name, name)} | " + " | ".join(cells) + " |")
    about = result["manifest"]
    load = about["load"][0] if about.get("load") else "unknown"
    lines += ["", f"Measured {about['date'][:10]} (commit {about['commit']}, load {load} at the end)."]
    for name, one in result["workloads"].items():
        rest = one[WHOLE] - sum(value for part, value in one.items() if part in PARTS)
        said = (
            f"{rest / one[WHOLE]:.0%} of the step is in none of the parts"
            if rest > 0
            else f"the parts alone take {1 - rest / one[WHOLE]:.2f} times the step, in which XLA fuses some of them"
        )
        gain = (one["products"] - one[NUMPY]) / one[WHOLE]
        lines += ["", f"{name}: {said}. BLAS instead of XLA's products would save {max(gain, 0.0):.0%} of the step."]
    return "\n".join(lines) + "\n"


def main():
    """Measure, print, keep."""
    tiny = "--tiny" in sys.argv
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # libraries count cores when they are imported: begin again
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    measured = {name: measure(WORKLOADS[name], 1 if tiny else BLOCKS) for name in ("A", "B")}
    result = {"workloads": measured, "manifest": manifest({"blocks": BLOCKS, "cores": 1})}
    print(render(result))
    if not tiny:
        (RESULTS / "parts.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "parts.md").write_text(render(result))


if __name__ == "__main__":
    main()
