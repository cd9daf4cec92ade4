"""The fused layer is convolution, ReLU and max pooling: values and gradients, in float64, in both of its forms."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twin import reference_features

from fedpick.learn.jax.convolution import features


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["cpu", "gpu"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layer has one form for each; both are computed here."""
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return str(request.param)


def layers_of(channels: tuple[int, ...], kernel: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.normal(size=(kernel, kernel, deep, wide)) / kernel, "b": rng.normal(size=wide) * 0.1}
        for deep, wide in pairwise(channels)
    ]


def both(layers: list[Any], x: np.ndarray, padding: str) -> tuple[Any, Any]:
    """Outputs, and gradients of a random sum of them, of the layer and of the reference."""

    def all_of(function: Any) -> Any:
        def outputs_and_gradients(layers: Any, x: Any) -> Any:
            y, pull = jax.vjp(lambda w, v: function(w, v, padding), layers, x)
            return y, pull(jnp.asarray(np.random.default_rng(1).normal(size=y.shape)))

        return outputs_and_gradients

    both_of = lambda *given: (all_of(features)(*given), all_of(reference_features)(*given))  # noqa: E731
    return jax.jit(both_of, compiler_options={"xla_backend_optimization_level": 0})(layers, x)  # compiled sooner


def check(layers: list[Any], x: np.ndarray, padding: str) -> None:
    mine, wanted = both(layers, x, padding)
    assert mine[0].dtype == np.float64
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), mine, wanted)


@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "padding"),
    [
        pytest.param((3, 8, 8, 1), (1, 4), 3, "valid", marks=pytest.mark.slow),
        ((3, 9, 7, 2), (2, 3), 2, "valid"),  # an odd output: its last row and column are not pooled
        pytest.param((1, 8, 11, 3), (3, 2), 5, "valid", marks=pytest.mark.slow),
        ((2, 7, 9, 2), (2, 3), 4, "same"),  # an even kernel: one more zero after than before
        pytest.param((2, 9, 9, 1), (1, 3), 5, "same", marks=pytest.mark.slow),
        ((2, 12, 11, 1), (1, 9, 4), 3, "same"),
        ((2, 18, 19, 1), (1, 9, 5), 4, "valid"),  # in the second layer patches run along the width only, on a GPU
        pytest.param((2, 6, 5, 2), (2, 3), 1, "valid", marks=pytest.mark.slow),
    ],
)
def test_values_and_gradients(
    shape: tuple[int, ...], channels: tuple[int, ...], kernel: int, padding: str, form: str
) -> None:
    check(layers_of(channels, kernel, sum(shape)), np.random.default_rng(0).normal(size=shape), padding)


def shared_features(layers: list[Any], x: Any, padding: str) -> Any:
    """The reference, but equal ones of a pool share the gradient."""
    (layer,) = layers
    kernel = layer["w"].shape[0]
    around = ((kernel - 1) // 2, kernel // 2) if padding == "same" else (0, 0)
    order = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), [around, around], dimension_numbers=order) + layer["b"]
    count, high, broad, wide = y.shape
    y = jax.nn.relu(y[:, : high // 2 * 2, : broad // 2 * 2])
    return y.reshape(count, high // 2, 2, broad // 2, 2, wide).max(axis=(2, 4)).reshape(count, -1)


def test_ties_are_shared_on_a_cpu_and_go_to_the_first_on_a_gpu(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flat regions and few grey levels: the total is the same, and never given out twice."""
    if form == "cpu":
        monkeypatch.setitem(globals(), "reference_features", shared_features)
    rng = np.random.default_rng(5)
    x = rng.integers(0, 2, (4, 9, 8, 1)).astype(np.float64)
    x[0] = 1.0
    x[1, :5] = 0.0
    layer = {"w": rng.integers(-1, 2, (2, 2, 1, 3)).astype(np.float64), "b": np.array([0.5, 0.25, 1.0])}
    check([layer], x, "valid")
    check([layer], x, "same")


def test_where_relu_is_flat_nothing_comes_back(form: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 1))
    dead = [{"w": np.zeros((3, 3, 1, 2)), "b": np.array([-1.0, 0.0])}]  # at 0, too
    (y, gradients), _ = both(dead, x, "valid")
    assert not np.asarray(y).any()
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradients))


def test_side_by_side_as_one_by_one(form: str) -> None:
    """Under vmap, each client with weights of its own."""
    stacks = [layers_of((1, 3), 3, seed) for seed in (1, 2)]
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 7, 1))

    @jax.jit
    def slope(layers: Any, x: Any) -> Any:
        return jax.grad(lambda w: (features(w, x, "same") ** 2).sum())(layers)

    together = jax.jit(jax.vmap(slope))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacks), x)
    for number, layers in enumerate(stacks):
        alone = slope(layers, x[number])
        jax.tree.map(lambda a, b, n=number: np.testing.assert_allclose(a[n], b, rtol=1e-10), together, alone)
