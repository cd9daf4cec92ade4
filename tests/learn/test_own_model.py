"""A model of one's own is two functions, whatever library they come from."""

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest

from fedpick import Uniform
from fedpick.core.errors import FedpickError
from fedpick.experiment import Config
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


WRONG = """
import jax.numpy as jnp
from fedpick.learn import Model
fine = lambda key: {"w": jnp.zeros((60, 10))}
number = lambda inputs, outputs: 3
start = lambda inputs, outputs: Model(lambda key: undefined, fine)
key = lambda inputs, outputs: Model(fine, lambda params, x, key: x @ params["v"])
pair = lambda inputs, outputs: Model(fine, lambda params, x, key: (x @ params["w"], 1))
wide = lambda inputs, outputs: Model(fine, lambda params, x, key: x)
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "number",
            "is int, but must be a fedpick.learn.Model (for JAX: return Model(init, apply)) or a torch.nn.Module",
        ),
        ("start", "cannot be initialised: NameError: name 'undefined' is not defined (in <lambda>, {file}, line 6)"),
        (
            "key",
            "cannot take the inputs of synthetic(1, 1), of shape (60,): KeyError: 'v' (in <lambda>, {file}, line 7)",
        ),
        ("pair", ": apply returns tuple, but must return an array of outputs"),
        ("wide", "gives outputs of shape (2, 60) for 2 inputs, but synthetic(1, 1) has 10 labels"),
    ],
)
def test_a_wrong_model_is_not_taken_for_a_wrong_policy(name: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    config = Config("uniform", 5, 3, data={"name": "synthetic(1, 1)"}, train={"model": f"{file}:{name}"})
    with pytest.raises(FedpickError) as caught:
        config.build()
    said = str(caught.value)
    assert said.startswith(f"the model 'wrong.py:{name}'")
    assert says.format(file=file) in said


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
