"""The kernels for a GPU compute convolution, ReLU and max pooling: values and gradients, in float64, interpreted."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twin import reference_features

from fedpick.learn.jax import kernels
from fedpick.learn.jax.convolution import features


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """As if there were a GPU that the kernels are for; gives which of them are called."""
    called: list[str] = []
    for name in ("convolve", "convolve_and_pool", "weights_gradient"):
        function = getattr(kernels, name)
        monkeypatch.setattr(
            kernels, name, lambda *given, name=name, function=function: (called.append(name), function(*given))[1]
        )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "usable", lambda: True)
    with jax.enable_x64(True):
        yield called


def layers_of(channels: tuple[int, ...], kernel: int, clients: int) -> list[Any]:
    rng = np.random.default_rng(kernel)
    return [
        {
            "w": rng.normal(size=(clients, kernel, kernel, deep, wide)) / kernel,
            "b": rng.normal(size=(clients, wide)) * 0.1,
        }
        for deep, wide in pairwise(channels)
    ]


def check(shape: tuple[int, ...], channels: tuple[int, ...], kernel: int, padding: str) -> None:
    """Outputs, and gradients of a random sum of them, of clients side by side, against the reference."""
    x = np.random.default_rng(0).normal(size=shape)

    def all_of(function: Any) -> Any:
        def outputs_and_gradients(layers: Any, x: Any) -> Any:
            y, pull = jax.vjp(lambda w, v: jax.vmap(lambda w, v: function(w, v, padding))(w, v), layers, x)
            return y, pull(jnp.asarray(np.random.default_rng(1).normal(size=y.shape)))

        return jax.jit(outputs_and_gradients, compiler_options={"xla_backend_optimization_level": 0})

    layers = layers_of((shape[-1], *channels), kernel, shape[0])
    mine, wanted = all_of(features)(layers, x), all_of(reference_features)(layers, x)
    assert mine[0].dtype == np.float64
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), mine, wanted)


def test_values_and_gradients(in_place: list[str]) -> None:
    """An odd map, rows of patches that are padded, and a gradient to the inputs in place as well."""
    check((2, 1, 6, 7, 16), (16,), 3, "valid")
    assert in_place == ["convolve_and_pool", "weights_gradient", "convolve"]


@pytest.mark.slow  # interpreted kernels take seconds to compile
@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "padding"),
    [
        ((2, 2, 11, 9, 3), (16,), 5, "valid"),  # few channels: the gradient to the inputs is not in place
        ((1, 3, 16, 15, 1), (16, 32), 5, "same"),
        ((3, 2, 13, 14, 3), (32, 16), 4, "same"),  # an even kernel: one more zero after than before
        ((2, 12, 12, 12, 2), (64,), 2, "valid"),  # more than one block of outputs, the last not full
        ((2, 3, 9, 9, 64), (16,), 5, "same"),  # several chunks in a row of a patch
    ],
)
def test_values_and_gradients_of_many_shapes(
    in_place: list[str], shape: tuple[int, ...], channels: tuple[int, ...], kernel: int, padding: str
) -> None:
    check(shape, channels, kernel, padding)
    assert in_place.count("weights_gradient") == len(channels)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 5),
    height=st.integers(4, 9),
    width=st.integers(4, 9),
    depth=st.sampled_from([1, 3, 7, 16, 32]),
    kernel=st.integers(2, 4),
    padding=st.sampled_from(["valid", "same"]),
)
def test_values_and_gradients_of_any_shape(
    count: int, height: int, width: int, depth: int, kernel: int, padding: str
) -> None:
    if padding == "valid" and min(height, width) < kernel + 1:
        padding = "same"
    check((1, count, height, width, depth), (16,), kernel, padding)


@pytest.mark.parametrize(("kernel", "depth", "wide"), [(5, 20, 50), (1, 16, 16), (3, 16, 8), (3, 256, 64)])
def test_other_layers_are_products_over_strips(in_place: list[str], kernel: int, depth: int, wide: int) -> None:
    layers = [{"w": np.zeros((kernel, kernel, depth, wide)), "b": np.zeros(wide)}]
    jax.eval_shape(lambda x: features(layers, x, "valid"), np.zeros((1, 8, 8, depth)))
    assert in_place == []


def test_the_kernels_are_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for a GPU that they were not tried on."""
    monkeypatch.undo()
    assert kernels.usable() is False

    class Device:
        platform = "gpu"
        compute_capability = "7.5"

    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    assert kernels.usable() is False
    monkeypatch.setattr(Device, "compute_capability", "9.0")
    assert kernels.usable() is True
