"""Models by name: shapes, numbers of parameters, and what is said where they do not fit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_data import data_of

from fedpick import learn
from fedpick.core.errors import ContractError, FedpickError, SettingError, UnknownNameError
from fedpick.data import Dataset, Federated
from fedpick.learn.trainer import Trainer


def count(model: learn.Model) -> int:
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


PARAMETERS = {  # by hand: weights and biases, layer by layer
    ("logistic", (60,), 10): 60 * 10 + 10,
    ("linear", (5,), 1): 5 + 1,
    ("mlp", (28, 28, 1), 10): (784 * 200 + 200) + (200 * 200 + 200) + (200 * 10 + 10),
    ("mlp(hidden=(64, 30), dropout=0.5)", (28, 28, 1), 10): (784 * 64 + 64) + (64 * 30 + 30) + (30 * 10 + 10),
    ("cnn", (28, 28, 1), 10): (25 * 20 + 20) + (25 * 20 * 50 + 50) + (16 * 50 * 500 + 500) + (500 * 10 + 10),
    ("cnn(channels=(4,), hidden=(), kernel=3)", (9, 8, 2), 3): (9 * 2 * 4 + 4) + (3 * 3 * 4 * 3 + 3),
    ("e3cs-letters", (28, 28, 1), 26): (25 * 10 + 10) + (25 * 10 * 10 + 10)
    + (16 * 10 * 1280 + 1280) + (1280 * 256 + 256) + (256 * 26 + 26),
    ("cifar-cnn", (32, 32, 3), 10): (25 * 3 * 64 + 64) + (25 * 64 * 64 + 64)
    + (25 * 64 * 384 + 384) + (384 * 192 + 192) + (192 * 10 + 10),
    ("rbcsf-fashion", (28, 28, 1), 10): (25 * 20 + 20) + (25 * 20 * 50 + 50) + (16 * 50 * 500 + 500) + (500 * 10 + 10),
    ("fedgs-fashion", (28, 28, 1), 10): (25 * 32 + 32) + (25 * 32 * 64 + 64) + (49 * 64 * 512 + 512) + (512 * 10 + 10),
    ("bsfl-cnn", (28, 28, 1), 10): (9 * 32 + 32) + (9 * 32 * 64 + 64) + (25 * 64 * 128 + 128) + (128 * 10 + 10),
}  # fmt: skip


@pytest.mark.parametrize(("text", "inputs", "outputs"), PARAMETERS)
def test_parameters_and_outputs(text: str, inputs: tuple[int, ...], outputs: int) -> None:
    model = learn.model(text, inputs, outputs)
    assert count(model) == PARAMETERS[text, inputs, outputs]
    params = jax.eval_shape(model.init, jax.random.key(0))
    for key in (None, jax.ShapeDtypeStruct((2,), jnp.uint32)):
        batch = jax.ShapeDtypeStruct((3, *inputs), jnp.float32)
        assert jax.eval_shape(model.apply, params, batch, key).shape == (3, outputs)


def test_every_name_is_tested() -> None:
    assert {text.partition("(")[0] for text, *_ in PARAMETERS} == set(learn.MODELS)


def test_weights_start_within_one_over_the_root_of_the_inputs() -> None:
    model = learn.cnn((12, 12, 2), 4, channels=(6,), hidden=(50,), kernel=3)
    params = model.init(jax.random.key(3))
    for layer in (*params["conv"], *params["dense"]):
        bound = 1.0 / math.sqrt(math.prod(layer["w"].shape[:-1]))
        weights = np.asarray(layer["w"]).ravel()
        assert np.abs(weights).max() <= bound
        assert np.abs(np.asarray(layer["b"])).max() <= bound
        # uniform: the mean square is a third of the bound's; its relative error is sqrt(4/5/n)
        assert abs((weights**2).mean() * 3 / bound**2 - 1) < 4 * math.sqrt(0.8 / len(weights))


def test_each_seed_has_a_model_of_its_own() -> None:
    """Of a thousand seeds; one weight, of which there are about 2^24, may be the same for two."""
    trainer = Trainer(data_of("regression"), learn.linear((6,)))
    firsts = {float(np.ravel(jax.tree.leaves(trainer.init(seed)["params"])[-1])[0]) for seed in range(1000)}
    assert len(firsts) > 995


def test_the_same_settings_are_the_same_model() -> None:
    assert learn.mlp((6,), 4, (7,)) is learn.mlp((6,), 4, (7,))
    assert learn.model("mlp(hidden=(7,))", (6,), 4).name == "mlp 6-7-4"
    assert learn.model("fedgs-fashion", (28, 28, 1), 10).name == "cnn 32-64-512"


def test_dropout_is_for_training_only_and_keeps_the_mean() -> None:
    model = learn.mlp((3,), 1, hidden=(4000,), dropout=0.25)
    params = [{"w": jnp.ones((3, 4000)), "b": jnp.zeros(4000)}, {"w": jnp.ones((4000, 1)), "b": jnp.zeros(1)}]
    x = jnp.ones((1, 3))
    whole = float(model.apply(params, x, None)[0, 0])
    assert whole == 12000.0
    some = float(model.apply(params, x, jax.random.key(0))[0, 0])
    assert some != whole
    # 4000 units kept with 3/4: the relative error of their number is sqrt(1/4 / 3/4 / 4000) = 0.9%
    assert abs(some / whole - 1) < 4 * 0.0092


@pytest.mark.parametrize(
    ("text", "inputs", "says"),
    [
        ("mlp(dropout=1.0)", (6,), "mlp: dropout = 1.0, but must be a share in [0, 1)"),
        ("mlp(hidden=(4, 0))", (6,), "mlp: hidden = (4, 0), but must be numbers of units >= 1"),
        ("cnn", (60,), "cnn: inputs = (60,), but must be (height, width, channels); use mlp"),
        ("cnn(padding='full')", (28, 28, 1), "cnn: padding = 'full', but must be 'valid' or 'same'"),
        ("cnn(dropout=-0.1)", (28, 28, 1), "cnn: dropout = -0.1, but must be a share in [0, 1)"),
        ("cnn", (8, 8, 1), "large enough for 2 kernels of 5 and poolings; use padding='same', or a smaller kernel"),
        ("cnn(channels=(2, 2, 2, 2), padding='same')", (8, 8, 1), "large enough for 4 kernels of 5"),
        ("mlp(width=3)", (6,), "width"),
        ("mlp(hidden=[4, 3])", (6,), None),
        ("mlp(hidden=4)", (6,), "hidden"),
        ("cnn(channels=8)", (28, 28, 1), "channels"),
    ],
)
def test_settings_that_cannot_be(text: str, inputs: tuple[int, ...], says: str | None) -> None:
    if says is None:  # a list does as well as a tuple
        assert learn.model(text, inputs, 4).name == "mlp 6-4-3-4"
        return
    with pytest.raises(FedpickError) as caught:
        learn.model(text, inputs, 4)
    assert says in str(caught.value)


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match="resnet"):
        learn.model("resnet", (28, 28, 1), 10)
    with pytest.raises(UnknownNameError, match=r"did you mean.*mlp"):
        learn.model("mpl", (28, 28, 1), 10)


# ---- a model and data that do not fit


def test_outputs_that_do_not_match_the_labels() -> None:
    with pytest.raises(SettingError) as caught:
        Trainer(data_of("floats"), learn.mlp((6,), 3))
    for part in ("'mlp 6-200-200-3'", "(2, 3)", "floats has 4 labels", "outputs=4"):
        assert part in str(caught.value)


def test_outputs_that_do_not_match_a_target() -> None:
    with pytest.raises(SettingError, match=r"shape \(2, 2\) for 2 inputs, but regression has one target.*outputs=1"):
        Trainer(data_of("regression"), learn.linear((6,), 2))


@pytest.mark.parametrize("model", [learn.mlp((5,), 4), learn.cnn((28, 28, 1), 4)], ids=["mlp", "cnn"])
def test_inputs_of_another_shape(model: learn.Model) -> None:
    with pytest.raises(
        SettingError, match=r"cannot take the inputs of floats, of shape \(6,\).*make it for this shape"
    ):
        Trainer(data_of("floats"), model)


def test_images_of_another_size() -> None:
    with pytest.raises(SettingError, match=r"cannot take the inputs of images, of shape \(10, 9, 2\)"):
        Trainer(data_of("images"), learn.cnn((12, 12, 2), 4, channels=(3,), kernel=3))


def test_a_regression_may_give_one_number_without_an_axis() -> None:
    inner = learn.linear((6,))
    flat = learn.Model(inner.init, lambda params, x, key: inner.apply(params, x, key)[:, 0], "flat")
    trainers = [Trainer(data_of("regression"), model, evaluate_every=1) for model in (inner, flat)]
    one, other = (trainer.evaluate(trainer.init(1), 1) for trainer in trainers)
    assert one == pytest.approx(other)


def test_a_client_without_examples() -> None:
    data = Federated(data_of("floats").dataset, np.arange(3), np.array([0, 2, 2, 3]))
    with pytest.raises(ContractError, match="client 1 has no examples; leave such clients out of the partition"):
        Trainer(data, learn.logistic((6,), 4))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch": 0}, "Trainer: batch = 0, but must be >= 1 example"),
        ({"steps": 0}, "Trainer: steps = 0, but must be >= 1, or None for a pass"),
        ({"lr": 0.0}, "Trainer: lr = 0.0, but must be > 0, or a function of the round"),
        ({"momentum": 1.0}, "Trainer: momentum = 1.0, but must be in [0, 1)"),
        ({"weight_decay": -1.0}, "Trainer: weight_decay = -1.0, but must be >= 0"),
        ({"prox": -0.1}, "Trainer: prox = -0.1, but must be >= 0"),
        ({"evaluate_every": 0}, "Trainer: evaluate_every = 0, but must be >= 1 round"),
        ({"aggregation": "sum"}, "unknown aggregation 'sum'"),
        ({"precision": "float16"}, "unknown precision 'float16'"),
        ({"form": "pmap"}, "unknown form 'pmap'"),
        ({"reports": ("loss",)}, "unknown report 'loss'"),
        ({"server": "fedprox"}, "unknown server optimiser 'fedprox'"),
        ({"server": "fedadam(rate=1)"}, "rate"),
        ({"server": "fedadam(lr=oops)"}, "fedadam"),
    ],
)
def test_settings_of_a_trainer_that_cannot_be(settings: dict[str, object], says: str) -> None:
    with pytest.raises(FedpickError) as caught:
        Trainer(data_of("floats"), learn.logistic((6,), 4), **settings)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_labels_and_targets_of_the_wrong_type_are_not_trained_on() -> None:
    """Integers in a regression would be taken for labels, floats in a classification for targets."""
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(FedpickError, match="classes"):
        Trainer(one_client(Dataset("ints", x, np.array([0, 1, 2, 3], np.int32))), learn.linear((6,)))
    with pytest.raises(FedpickError, match="float"):
        Trainer(one_client(Dataset("floats", x, np.zeros(4, np.float32), classes=2)), learn.logistic((6,), 2))


def one_client(dataset: Dataset) -> Federated:
    return Federated(dataset, np.arange(len(dataset)), np.array([0, len(dataset)]))


def test_settings_of_a_trainer_that_are_not_given() -> None:
    """Plain FedAvg: results of runs that leave them out depend on them."""
    given = {
        "lr": 0.05,
        "batch": 50,
        "steps": None,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "prox": 0.0,
        "aggregation": "fedavg",
        "late_beta": 0.35,
        "server": None,
        "evaluate_every": 10,
        "spread_every": None,
        "metrics": (),
        "reports": ("update_norm",),
        "precision": "float32",
    }
    trainer = Trainer(data_of("floats"), learn.logistic((6,), 4))
    assert {name: getattr(trainer, name) for name in given} == given
    whole = Trainer(data_of("floats"), learn.logistic((6,), 4), **given)  # type: ignore[arg-type]
    assert trainer.form == whole.form
