"""Forms of the CIFAR-10 CNN's two convolution layers for all clients of a round, on a GPU.

    python benchmarks/gpu/convolutions.py                   all forms, some minutes; needs a GPU
    python benchmarks/gpu/convolutions.py --only Pallas     forms with this in their name; only prints
    TINY=1 python benchmarks/gpu/convolutions.py            a smoke test on a CPU; only prints; --only for a part of it

One step is 20 clients' SGD step on 40 images each, with weights of their own: forward, gradients, update. Times are
medians of 20 calls of 10 steps, of both layers alone (5x5, 64 channels, ReLU, 2x2 pool) and of the whole network. What
differs from products over strips (the library's form where its kernels cannot be used), and from that in float32 with
exact products, is the length of the difference over the length, in the worst of the outputs and gradients. Writes
results/gpu/convolutions.md and .json.
"""

import argparse
import contextlib
import functools
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

from fedpick.learn.jax import convolution, kernels

sys.path.append(str(Path(__file__).parent.parent))
from _manifest import manifest

TINY = os.environ.get("TINY") == "1"
K = 5  # the kernels' side
CLIENTS, BATCH, SIDE, WIDE, STEPS, CALLS = (2, 2, 16, 16, 2, 2) if TINY else (20, 40, 32, 64, 10, 20)
HIDDEN = (16, 16) if TINY else (384, 192)
LR = 1e-3
RESULTS = Path(__file__).parent.parent / "results" / "gpu"
STRIPS = "products over strips along the width"
PALLAS = "the library's: Pallas, patches read in place"
MIXED = "bfloat16 inside float32"

# ---- forms of a layer: (S, N, H, W, C), (S, k, k, C, O), (S, O) -> (S, N, H'', W'', O)


@contextlib.contextmanager
def use_kernels(on):
    """Let the library's layer use its Pallas kernels, or not."""
    kept, kernels.usable = kernels.usable, lambda: on
    jax.clear_caches()  # of what was traced
    try:
        yield
    finally:
        kernels.usable = kept
        jax.clear_caches()


def library_layer(x, w, b):
    """The library's form for a GPU, mapped over clients."""
    return jax.vmap(convolution._batch_first)(x, w, b)


def half(layer):
    """The layer in bfloat16, its parameters and results in float32."""

    def run(x, w, b):
        return layer(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), b.astype(jnp.bfloat16)).astype(x.dtype)

    return run


def pooled(multiply):
    """Bias, ReLU and pool after a convolution, with the gradients that JAX derives."""

    def layer(x, w, b):
        y = multiply(x, w)
        *lead, high, broad, wide = y.shape
        y = y[..., : high // 2 * 2, : broad // 2 * 2, :].reshape(*lead, high // 2, 2, broad // 2, 2, wide)
        best = functools.reduce(jnp.maximum, [y[..., :, i, :, j, :] for i in (0, 1) for j in (0, 1)])
        return jax.nn.relu(best + b[:, None, None, None])

    return layer


def from_inputs(multiply, gradients):
    """A layer that keeps nothing but its inputs: the library's pool, and gradients (x, w, which, dy) as given."""

    @jax.custom_vjp
    def layer(x, w, b):
        return save(x, w, b)[0]

    def save(x, w, b):
        pool = jax.vmap(lambda y, b: convolution._pool(convolution._quarters(y), b))
        out, which = pool(multiply(x, w), b)
        return out, (x, w, which)

    def back(kept, dy):
        return gradients(*lax.optimization_barrier(kept), dy)

    layer.defvjp(save, back)
    return layer


AXES = ("NHWC", "HWIO", "NHWC")


def single(x, w):
    """The convolution of one client."""
    return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=AXES)


def one_by_one(x, w):
    """A convolution for each client."""
    return jnp.stack([single(x[s], w[s]) for s in range(len(x))])


def grouped(x, w):
    """One convolution whose groups are the clients."""
    s, n, height, width, c = x.shape
    o = w.shape[-1]
    x = x.transpose(1, 2, 3, 0, 4).reshape(n, height, width, s * c)
    w = w.transpose(1, 2, 3, 0, 4).reshape(K, K, c, s * o)
    y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=AXES, feature_group_count=s)
    return y.reshape(n, height - K + 1, width - K + 1, s, o).transpose(3, 0, 1, 2, 4)


def around_map(dy, which, high, broad):
    """The gradient before the pool (S, N, high, broad, O), with K - 1 zeros around it."""
    dz = jax.vmap(lambda dy, which: convolution._unpool(dy, which, high, broad))(dy, which)
    return jnp.pad(dz, ((0, 0), (0, 0), (K - 1, K - 1), (K - 1, K - 1), (0, 0)))


def turned(w):
    """Weights for the way back: rotated by half a turn, inputs and outputs exchanged."""
    return w[:, ::-1, ::-1].transpose(0, 1, 2, 4, 3)


def grouped_gradients(x, w, which, dy):
    """The weights' by a convolution with groups of the batch, the inputs' by a grouped one."""
    s, n, height, width, c = x.shape
    o = w.shape[-1]
    high, broad = height - K + 1, width - K + 1
    around = around_map(dy, which, high, broad)
    dz = around[:, :, K - 1 : K - 1 + high, K - 1 : K - 1 + broad]
    left = x.transpose(0, 4, 2, 3, 1).reshape(s * c, height, width, n)  # images are what is summed over
    right = dz.transpose(2, 3, 1, 0, 4).reshape(high, broad, n, s * o)
    dw = lax.conv_general_dilated(left, right, (1, 1), "VALID", dimension_numbers=AXES, batch_group_count=s)
    dw = dw.reshape(c, K, K, s, o).transpose(3, 1, 2, 0, 4)
    return grouped(around, turned(w)), dw, jax.vmap(convolution._bias_gradient)(dy, which)


def strips(x, w):
    """The library's products."""
    return jax.vmap(lambda x, w: convolution._multiply(x, w)[0])(x, w)


def strips_again(x, w, which, dy):
    """The library's gradients, from patches that are cut again."""

    def cut(x):
        along = convolution._cut(x, K, 2)
        return along if convolution._wide(x, K) else convolution._cut(along, K, 1)

    return jax.vmap(convolution._back_first)((jax.vmap(cut)(x), which, w, x), dy)


def _patches(x):
    """Whole patches: (S, outputs, k * k * C)."""
    return convolution._cut(convolution._cut(x, K, 3), K, 2).reshape(len(x), -1, K * K * x.shape[-1])


def whole_patches(x, w):
    """One product over copies of the patches (im2col)."""
    s, n, height, width, _ = x.shape
    return (_patches(x) @ w.reshape(s, -1, w.shape[-1])).reshape(s, n, height - K + 1, width - K + 1, -1)


def whole_gradients(x, w, which, dy):
    """Each by one product over whole patches."""
    s, _, height, width, c = x.shape
    high, broad = height - K + 1, width - K + 1
    around = around_map(dy, which, high, broad)
    dz = around[:, :, K - 1 : K - 1 + high, K - 1 : K - 1 + broad].reshape(s, -1, w.shape[-1])
    dw = jnp.einsum("smk,smo->sko", _patches(x), dz).reshape(w.shape)
    dx = jnp.einsum("smk,skc->smc", _patches(around), turned(w).reshape(s, -1, c)).reshape(x.shape)
    return dx, dw, jax.vmap(convolution._bias_gradient)(dy, which)


def make_forms():
    """(name, precision, both layers) of every form, in the order of the table."""
    f32, b16 = "float32", "bfloat16"
    library = (library_layer, library_layer)
    plain = {
        "one grouped lax.conv": (pooled(grouped),) * 2,
        "lax.conv under vmap": (pooled(jax.vmap(single)),) * 2,
        "one lax.conv for each client": (pooled(one_by_one),) * 2,
        "grouped lax.conv, weights' gradient by batch_group_count": (from_inputs(grouped, grouped_gradients),) * 2,
        "strips, cut again for the gradient": (from_inputs(strips, strips_again),) * 2,
        "layer 2 with copies of whole patches (im2col)": (library_layer, from_inputs(whole_patches, whole_gradients)),
    }
    return [
        *((form, kind, library) for form in (STRIPS, PALLAS) for kind in (f32, b16)),
        *((form, MIXED, tuple(map(half, library))) for form in (STRIPS, PALLAS)),
        *((name, kind, layers) for name, layers in plain.items() for kind in (f32, b16)),
    ]


# ---- the work and its timing


@functools.cache
def make_data(kind):
    """Parameters of the two layers and of the rest, images of every step, a gradient to the layers' results, labels."""
    rng = np.random.default_rng(0)
    flat = (((SIDE - K + 1) // 2 - K + 1) // 2) ** 2 * WIDE

    def draw(*shape, scale=1.0):
        return jnp.asarray(rng.standard_normal(shape, dtype=np.float32) * scale, kind)

    s = CLIENTS
    params = {
        "w1": draw(s, K, K, 3, WIDE, scale=75**-0.5), "b1": draw(s, WIDE, scale=0.05),
        "w2": draw(s, K, K, WIDE, WIDE, scale=(25 * WIDE) ** -0.5), "b2": draw(s, WIDE, scale=0.05),
    }  # fmt: skip
    dense, last = {}, flat
    for i, units in enumerate((*HIDDEN, 10)):
        dense[f"d{i}"], dense[f"c{i}"] = draw(s, last, units, scale=last**-0.5), draw(s, units, scale=0.01)
        last = units
    images = draw(STEPS, s, BATCH, SIDE, SIDE, 3)
    towards = draw(s, BATCH, flat, scale=1 / BATCH)
    return params, dense, images, towards, jnp.asarray(rng.integers(0, 10, (s, BATCH)))


def features(layers, p, x):
    """Results of both layers."""
    x = layers[1](layers[0](x, p["w1"], p["b1"]), p["w2"], p["b2"])
    return x.reshape(CLIENTS, BATCH, -1)


def layers_loss(layers, p, x, towards, labels):
    """For the layers alone."""
    return (features(layers, p, x).astype(jnp.float32) * towards.astype(jnp.float32)).sum()


def cnn_loss(layers, p, x, towards, labels):
    """For the whole network."""
    x = features(layers, p, x)
    for i in range(3):
        x = jnp.einsum("snf,sfo->sno", x, p[f"d{i}"]) + p[f"c{i}"][:, None]
        x = jax.nn.relu(x) if i < 2 else x
    logs = jax.nn.log_softmax(x.astype(jnp.float32))
    return -jnp.take_along_axis(logs, labels[..., None], axis=-1).sum() / BATCH


def time_steps(loss, layers, p, images, towards, labels):
    """Milliseconds of a step: the median over calls."""

    @jax.jit
    def go(p, images, towards, labels):
        def step(p, x):
            g = jax.grad(functools.partial(loss, layers))(p, x, towards, labels)
            return jax.tree.map(lambda a, d: a - jnp.asarray(LR, a.dtype) * d, p, g), None

        return lax.scan(step, p, images)[0]

    took = []
    for _ in range(CALLS + 2):
        start = time.perf_counter()
        jax.block_until_ready(go(p, images, towards, labels))
        took.append(time.perf_counter() - start)
    return 1e3 * statistics.median(took[2:]) / STEPS  # the first compiles


def compute(layers, p, x, towards, labels):
    """Gradients and results of one step."""
    go = jax.jit(lambda *args: (jax.grad(functools.partial(layers_loss, layers))(*args), features(layers, *args[:2])))
    return jax.device_get(go(p, x, towards, labels))


@functools.cache
def reference(kind, exact):
    """What products over strips compute."""
    p, _, images, towards, labels = make_data(kind)
    layers = (library_layer, library_layer)
    if not exact:
        with use_kernels(False):
            return compute(layers, p, images[0], towards, labels)
    with use_kernels(False), jax.default_matmul_precision("highest"):
        p, x, towards = jax.tree.map(lambda a: a.astype(jnp.float32), (p, images[0], towards))
        return compute(layers, p, x, towards, labels)


def difference(found, wanted):
    """Length of the difference over the length, of the worst array."""
    worst = 0.0
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
        worst = max(worst, float(np.linalg.norm(one - two) / max(np.linalg.norm(two), 1e-30)))
    return worst


def compare(form, layers, kind):
    """How much the form differs from products over strips and from the exact results."""
    p, _, images, towards, labels = make_data(kind)
    with use_kernels(form == PALLAS):
        found = compute(layers, p, images[0], towards, labels)
    return {
        "difference_strips": difference(found, reference(kind, False)),
        "difference_exact": difference(found, reference(kind, True)),
    }


def measure(form, layers, precision):
    """Times and differences of one form."""
    kind = precision.split()[-1]
    p, dense, *rest = make_data(kind)
    with use_kernels(form == PALLAS):
        took = {
            "layers_ms": time_steps(layers_loss, layers, p, *rest),
            "cnn_ms": time_steps(cnn_loss, layers, p | dense, *rest),
        }
    return took | compare(form, layers, kind)


# ---- the page


def render(result):
    """The result as a page."""
    rows = {(row["form"], row["precision"]): row for row in result["rows"]}
    about = result["manifest"]
    lines = [
        "# Forms of the convolution layer on a GPU",
        "",
        "Milliseconds of one SGD step of 20 clients on 40 images each, with weights of their own: both convolution "
        "layers of the CIFAR-10 CNN, and the whole network; how many times as fast as products over strips with "
        "parameters of the same precision; and the difference from its results and from exact ones (length of the "
        "difference over the length, worst of outputs and gradients; float32 products are TF32 unless exact). Empty: "
        "not measured. "
        "Written by `make bench-convolutions`.",
        "",
        "| form | precision | both layers, ms | whole CNN, ms | layers beside strips | CNN beside strips "
        "| differs from strips | differs from exact |",
        "| --- | --- |" + " ---: |" * 6,
    ]
    for (form, precision), row in rows.items():
        if "failed" in row:
            continue
        base = rows.get((STRIPS, precision.split()[-1]), {})
        times = [f"{row[key]:.2f}" if key in row else "" for key in ("layers_ms", "cnn_ms")]
        beside = [f"{base[k] / row[k]:.2f}x" if k in row and k in base else "" for k in ("layers_ms", "cnn_ms")]
        off = [f"{row[key]:.1e}" for key in ("difference_strips", "difference_exact")]
        lines.append(f"| {form} | {precision} | {' | '.join([*times, *beside, *off])} |")
    note = f"; {about['note']}" if "note" in about else ""
    date, version = about["date"][:10], about["versions"]["jax"]
    lines += ["", f"- {result['device']}, {date}, commit {about['commit']}, jax {version}{note}."]
    lines += [
        f"- {row['form']}, {row['precision']}: failed: {row['failed']}" for row in rows.values() if "failed" in row
    ]
    if tried := result.get("also_tried"):
        told = "; ".join(f"{row['form']}: {row['layers_ms']:.2f}" for row in tried["rows"])
        lines.append(f"- Also tried on {tried['date']}, in float32, and not kept, with both layers' ms: {told}.")
    keys = [(form, precision) for precision in ("float32", "bfloat16") for form in (STRIPS, PALLAS)]
    if all("cnn_ms" in rows.get(key, {}) for key in keys):
        lines += ["", learned(rows, *(rows[key]["cnn_ms"] for key in keys))]
    return "\n".join(lines) + "\n"


def learned(rows, strips, pallas, strips_half, pallas_half):
    """What the figures say, and where the library uses what."""
    others = [row for row in rows.values() if row["form"] not in (STRIPS, PALLAS)]
    gains = [
        (rows[STRIPS, row["precision"]]["layers_ms"] / row["layers_ms"], row) for row in others if "layers_ms" in row
    ]
    most, best = max(gains, key=lambda gain: gain[0], default=(0.0, None))
    rest = (
        f" Of the forms without Pallas the fastest reaches {most:.2f}x in the layers ({best['form']})." if best else ""
    )
    return (
        "The library's kernels read patches in place, with bias, ReLU and pool fused: "
        f"{pallas:.2f} ms for a step of the network in float32 and {pallas_half:.2f} in bfloat16, against {strips:.2f} "
        f"and {strips_half:.2f} by products over strips: {strips / pallas:.1f}x and {strips_half / pallas_half:.1f}x "
        f"as fast.{rest}\n\n"
        "The kernels are used on GPUs of compute capability 9.0 (H100, H200), where they were measured, and for layers "
        "of 16, 32, 64 or 128 channels. Other GPUs and layers have the products over strips. Pallas for Triton is an "
        "experimental part of JAX."
    )


def keep(result, folder):
    """Write what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "convolutions.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "convolutions.md").write_text(render(result))


def main():
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder; results/gpu if all forms are measured on a GPU")
    parser.add_argument("--only", default="", help="forms whose names contain this")
    options = parser.parse_args()
    if jax.default_backend() == "cpu" and not TINY:
        sys.exit(f"no GPU here: JAX sees {jax.devices()}; TINY=1 is for a smoke test on a CPU")
    out = options.out or (None if TINY or options.only else RESULTS)
    settings = {"clients": CLIENTS, "batch": BATCH, "steps": STEPS, "calls": CALLS}
    result = {"device": jax.devices()[0].device_kind, "manifest": manifest(settings), "rows": []}
    if out and (out / "convolutions.json").exists():  # whose code is gone: it cannot be measured again
        result["also_tried"] = json.loads((out / "convolutions.json").read_text()).get("also_tried")
    for form, precision, layers in make_forms():
        if options.only not in form:
            continue
        row = {"form": form, "precision": precision}
        try:
            row |= measure(form, layers, precision)
        except Exception as error:  # of the compiler, for one form: the others are measured all the same
            row["failed"] = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        print(json.dumps(row), flush=True)
        result["rows"].append(row)
        if out:
            keep(result, out)


if __name__ == "__main__":
    main()
