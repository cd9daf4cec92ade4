"""A model of one's own is two functions, whatever library they come from."""

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest

from fedpick import Uniform
from fedpick.simulate.round import RunState
from fedpick.store.checkpoint import pack_run
from fedpick.worlds import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["prototypes", "with_flax", "with_equinox"])
def test_the_example_learns_and_can_be_kept(name: str, example: ModuleType) -> None:
    if name.startswith("with_"):
        pytest.importorskip(name.removeprefix("with_"))
    model = getattr(example, name)()
    params = model.init(jax.random.key(0))
    for key in (None, jax.random.PRNGKey(1)):
        assert model.apply(params, jnp.ones((3, 8, 8, 1)), key).shape == (3, 10)
    assert example.train(model) > 0.7
    world, policy = World(), Uniform(3)
    kept = pack_run(RunState(policy.init(world.clients), world.init(0), {"params": params, "server": []}))
    assert sum(name.startswith("model/params") for name in kept) == len(jax.tree.leaves(params))
