"""Small dense networks in one compiled loop: what the slow loop gives, the same bits however they are dealt out."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import BATCH, SIZES, data_of, same_bits, split
from test_cohort import EPOCHS, IDS, OPTIONS, USED, check

from fedpick import learn
from fedpick.core.errors import SettingError
from fedpick.core.rng import stream
from fedpick.data import Dataset, Federated
from fedpick.learn.jax import dense, forms, loops, placement
from fedpick.learn.trainer import Trainer


@pytest.fixture(autouse=True, scope="module")
def plain_start() -> Iterator[None]:
    """First weights that take no compiling, for every shape anew."""

    def first(model: learn.Model) -> Any:
        shapes = jax.eval_shape(model.init, jax.random.key(0))

        def draw(key: Any) -> Any:
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            return jax.tree.map(lambda leaf: rng.normal(scale=0.3, size=leaf.shape).astype(np.float32), shapes)

        return draw

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "_initial", first)
        yield


def of_labels(labels: int, inputs: int = 6) -> Federated:
    rng = np.random.default_rng(labels)
    x, y = rng.normal(size=(50, inputs)).astype(np.float32), rng.integers(0, labels, 50, dtype=np.int32)
    return split(Dataset("labels", x, y, classes=labels), SIZES)


def make(data: Federated, form: str = "loop", hidden: tuple[int, ...] = (), **options: Any) -> Trainer:
    model = learn.mlp(data.dataset.inputs, data.dataset.classes or 1, hidden)
    return Trainer(data, model, **({"lr": 0.1, "batch": BATCH, "form": form} | options))


def train(trainer: Trainer, model: Any = None) -> Any:
    model = trainer.init(5) if model is None else model
    updates = trainer.train(model, IDS, USED, EPOCHS, 3, stream(1, 3, "train"))
    return updates.payload[0], updates.loss, updates.reports["update_norm"], updates.valid


# ---- against the twin


@pytest.mark.parametrize("hidden", [(), (7, 5)])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["floats", "images", "regression"])
def test_every_option_is_the_twins(kind: str, option: str, hidden: tuple[int, ...]) -> None:
    check(make(data_of(kind), hidden=hidden, **OPTIONS[option]), twin.Network())


@pytest.mark.parametrize("hidden", [(1,), (7,), (8,), (16, 3), (3, 17), (2, 9, 4), (5, 4, 3, 2)])
def test_any_number_of_layers_and_units(hidden: tuple[int, ...]) -> None:
    check(make(of_labels(5, 9), hidden=hidden, **OPTIONS["all"]), twin.Network())


@pytest.mark.parametrize("labels", [*range(2, 18), 62])
def test_any_number_of_labels(labels: int) -> None:
    check(make(of_labels(labels)), twin.Network())


@pytest.mark.parametrize("inputs", [1, 15, 16, 17, 60])
def test_any_number_of_inputs(inputs: int) -> None:
    check(make(of_labels(3, inputs), **OPTIONS["all"]), twin.Network())


@pytest.mark.parametrize("batch", [1, 4, 5, 6, 20, 50])
def test_any_size_of_batches(batch: int) -> None:
    check(make(data_of("floats"), batch=batch), twin.Network())


def test_inputs_of_several_dimensions_are_rows() -> None:
    flat = data_of("floats").dataset
    cubes = split(Dataset("cubes", flat.x.reshape(50, 1, 3, 2), flat.y, classes=4), SIZES)
    model = make(data_of("floats")).init(5)
    assert same_bits(train(make(cubes), model), train(make(data_of("floats")), model))


# ---- the parts of a step


def entropy(z: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The compiled loss and slope of these outputs."""
    z = z.copy()
    bits = np.empty(z.size, np.int32)
    loss = loops._cross_entropy(z, z.reshape(-1), len(z), y.astype(np.float32), bits, bits.view(np.float32))
    return loss, z


@given(st.lists(st.floats(-87, 0, width=32), min_size=1, max_size=40))
@settings(max_examples=200)
def test_exponentials(values: list[float]) -> None:
    z = np.array([*values, 0.0, -0.0, -87.0], np.float32)
    wanted = np.exp(z.astype(np.float64))
    bits = np.empty(len(z), np.int32)
    loops._exponentials(z, len(z), bits, bits.view(np.float32))
    np.testing.assert_allclose(z, wanted, rtol=3e-7)  # two or three units in the last place of a float32


def test_exponentials_of_what_is_no_number_or_far_below() -> None:
    z = np.array([np.nan, -np.inf, -1e30, -88.0], np.float32)
    bits = np.empty(4, np.int32)
    loops._exponentials(z, 4, bits, bits.view(np.float32))
    assert np.isnan(z[0])
    assert ((z[1:] >= 0) & (z[1:] < 2e-38)).all()


@given(
    st.integers(1, 12).flatmap(
        lambda labels: st.lists(
            st.lists(
                st.floats(-100, 100, width=32) | st.sampled_from([0.0, 3e38, -3e38]), min_size=labels, max_size=labels
            ),
            min_size=1,
            max_size=9,
        )
    ),
    st.integers(0, 100),
)
@settings(max_examples=100)
def test_cross_entropy(outputs: list[list[float]], seed: int) -> None:
    """Ties and huge outputs too; and many examples at once, whose sums are multiplied before the logarithm."""
    z = np.array(outputs * (1 if seed % 2 else 60), np.float32)
    y = np.random.default_rng(seed).integers(0, z.shape[1], len(z)).astype(np.int32)
    exact = z.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)  # 3e38 + log 2 is 3e38
    with np.errstate(over="ignore"):
        loss, slope = entropy(z, y)
    each = twin.losses(exact, y)
    if (each < 3e38).all():  # else float32 has no such difference
        np.testing.assert_allclose(loss, each.sum(), rtol=1e-6, atol=1e-5 * len(z))
    np.testing.assert_allclose(slope, twin._slope(exact, y), atol=1e-6 / len(z))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_an_output_that_is_no_number_gives_no_loss(bad: float, place: int) -> None:
    z = np.zeros((2, 5), np.float32)
    z[1, place] = bad
    loss, slope = entropy(z, np.zeros(2, np.int32))
    assert np.isnan(loss)
    assert np.isfinite(slope[0]).all()
    assert np.isnan(slope[1]).all()


# ---- what goes wrong, as elsewhere


@pytest.mark.parametrize("hidden", [(), (12,)])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
@pytest.mark.parametrize("kind", ["floats", "regression"])
def test_bad_inputs_are_as_bad_as_in_the_other_forms(kind: str, value: float, hidden: tuple[int, ...]) -> None:
    good = data_of(kind).dataset
    x = good.x.copy()
    x[7] = value
    data = split(Dataset("bad", x, good.y, classes=good.classes), SIZES)
    ids = np.arange(len(SIZES))
    found = []
    for form in ("scan", "loop"):
        trainer = make(data, form, hidden)
        updates = trainer.train(trainer.init(5), ids, np.ones(7, bool), np.full(7, 2.0), 1, stream(1, 1, "train"))
        found.append((np.isfinite(updates.loss), updates.valid))
    (scan, scan_valid), (loop, loop_valid) = found
    assert not (scan & scan_valid).all()
    np.testing.assert_array_equal(loop & loop_valid, scan & scan_valid)


@pytest.mark.parametrize("settings", [{"lr": 1e30, "steps": 4}, {}], ids=["rate", "weights"])
def test_a_client_that_diverges_is_marked(settings: dict[str, Any]) -> None:
    trainer = make(data_of("regression"), **settings)
    model = trainer.init(5)
    if not settings:
        model["params"][0]["w"] = model["params"][0]["w"].copy()
        model["params"][0]["w"][0] = np.inf
    _, _, _, valid = train(trainer, model)
    assert not valid[USED].any()


# ---- the same bits


@pytest.mark.parametrize("option", ["plain", "all"])
@pytest.mark.parametrize("hidden", [(), (7, 5)])
def test_any_number_of_threads_gives_the_same_bits(
    hidden: tuple[int, ...], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make(data_of("floats"), hidden=hidden, **OPTIONS[option])
    monkeypatch.setattr(alone.backend, "devices", 1)
    wanted = train(alone)
    used: list[int] = []
    pool = dense._pool
    monkeypatch.setattr(dense, "_pool", lambda threads: used.append(threads) or pool(threads))
    monkeypatch.setattr(dense, "SHARE", 1)
    for threads in (2, 3, 7):  # 7: more than clients
        trainer = make(data_of("floats"), hidden=hidden, **OPTIONS[option])
        monkeypatch.setattr(trainer.backend, "devices", threads)
        delta, *rest = train(trainer)
        slots = len(wanted[1])
        assert same_bits((jax.tree.map(lambda leaf: leaf[:slots], delta), rest), (wanted[0], wanted[1:]))  # noqa: B023
    assert used == [2, 3, 7]


@pytest.mark.parametrize("hidden", [(), (7, 5)])
def test_stacked_or_alone_grouped_or_not_the_bits_are_the_same(hidden: tuple[int, ...]) -> None:
    trainer = make(data_of("floats"), hidden=hidden, **OPTIONS["all"])
    models = [trainer.init(seed)["params"] for seed in (1, 2)]
    drawn = trainer.draw(IDS, np.arange(len(IDS)), EPOCHS, 1, stream(1, 1, "train"))
    owner = np.array([1, 0, 0, 1, 1, 0][: len(drawn.lr)])
    both = trainer.train_all(jax.tree.map(lambda *leaves: np.stack(leaves), *models), drawn, owner)
    assert np.all(np.asarray(both.norm)[: len(IDS)] > 0)
    for client in range(len(IDS)):
        alone = trainer.train_all(models[owner[client]], drawn.part(slice(client, client + 1)))
        assert same_bits(jax.tree.map(lambda leaf, at=client: leaf[at : at + 1], both), alone)


def test_one_compiled_program_serves_all() -> None:
    train(make(data_of("floats")))
    before = len(loops.train_clients.compiled.signatures)
    train(make(data_of("regression"), **OPTIONS["all"]))
    train(make(of_labels(5, 17), batch=3, hidden=(6, 5)))
    train(make(data_of("images"), hidden=(6,)))
    assert len(loops.train_clients.compiled.signatures) == before == 1


# ---- where it is used


def test_it_is_what_auto_means_for_small_dense_networks_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data, images = data_of("floats"), data_of("images")
    one, two = learn.logistic((6,), 4), learn.mlp((6,), 4, hidden=(5,))
    own = learn.Model(one.init, one.apply)
    for federated, model, options, form in (
        (data, one, {}, "loop"),
        (data_of("regression"), learn.linear((6,)), {}, "loop"),
        (data, two, {}, "loop"),
        (images, learn.logistic((10, 9, 2), 4), {}, "loop"),
        (images, learn.mlp((10, 9, 2), 4, hidden=(30,)), {}, "loop"),
        (data, learn.mlp((6,), 4, hidden=(5,), dropout=0.1), {}, "scan"),
        (images, learn.mlp((10, 9, 2), 4, hidden=(33,)), {}, "scan"),
        (data, own, {}, "scan"),
        (data, one, {"precision": "bfloat16"}, "scan"),
    ):
        assert Trainer(federated, model, **options).form == form
        if form == "scan":
            with pytest.raises(SettingError, match=r"form = 'loop', .* at most 6,000 weights, .*form='auto'"):
                Trainer(federated, model, form="loop", **options)
    monkeypatch.setattr(dense, "ROOM", 10)  # so many pixels as floats would fill the memory
    assert make(images, "auto").form == "scan"
    assert make(data, "auto").form == "loop"


def test_a_gpu_takes_the_other_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert make(data_of("floats"), "auto").form == "vmap"


# ---- scores, and the mean of updates


@pytest.mark.parametrize("hidden", [(), (7, 5)])
@pytest.mark.parametrize("kind", ["floats", "images", "regression"])
@pytest.mark.parametrize("count", [1, 7, 50])
def test_scores_are_the_twins(kind: str, hidden: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(data_of(kind), hidden=hidden)
    index = np.random.default_rng(count).integers(0, 50, count)
    models = [trainer.init(seed)["params"] for seed in (1, 2)]
    dataset = trainer.data.dataset
    rows = dense.place(dataset, "train", 1)
    found = [dense.scores(params, rows, index) for params in models]
    for params, (loss, hits) in zip(models, found, strict=True):
        out = twin.Network().outputs(twin.double(params), twin.inputs_of(dataset, dataset.x[index]))
        np.testing.assert_allclose(loss, twin.losses(out, dataset.y[index]), rtol=1e-5, atol=1e-5)
        wanted = out.argmax(axis=1) == dataset.y[index] if dataset.classes else np.zeros(count)
        np.testing.assert_array_equal(hits, wanted)
    # In other pieces, in threads, and of two models at once: the same bits.
    monkeypatch.setattr(dense, "TESTED", 5)
    monkeypatch.setattr(dense, "SHARE", 1)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    both = dense.scores(stacked, dense.place(dataset, "train", 3), index, several=True)
    assert same_bits([list(pair) for pair in zip(*both, strict=True)], [list(pair) for pair in found])


def test_the_first_of_the_highest_outputs_is_the_answer_and_no_number_is_the_highest() -> None:
    x = np.array([[1, 1, 0], [0, 2, 2], [np.nan, 9, 9], [0, np.inf, 0]], np.float32)
    data = split(Dataset("ties", x, np.array([0, 1, 0, 1], np.int32), classes=3), np.array([4]))
    eye = [{"w": np.eye(3, dtype=np.float32), "b": np.zeros(3, np.float32)}]
    loss, hits = dense.scores(eye, dense.place(data.dataset, "train", 1), np.arange(4))
    scan = placement.place(data.dataset, "train", 1).launch(learn.logistic((3,), 3), eye, np.arange(4))()
    np.testing.assert_array_equal(hits[:3], scan[1][:3])
    np.testing.assert_allclose(loss, scan[0], rtol=1e-6)
    assert np.isfinite(loss).tolist() == [True, True, False, False]


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_the_mean_of_updates(clients: int, spare: int, seed: int) -> None:
    """Exact to float32's precision; what is not used may be anything, and may stand anywhere."""
    rng = np.random.default_rng(seed)
    shapes = {"w": (3, 2), "b": (2,)}
    old = [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}]
    weights = np.where(rng.random(clients) < 0.7, rng.random(clients), 0.0).astype(np.float32)
    delta = [{name: rng.normal(size=(clients, *shape)).astype(np.float32) for name, shape in shapes.items()}]
    found = dense.plus(old, dense.mean(delta, weights))
    for name in shapes:
        wanted = old[0][name] + np.tensordot(weights.astype(np.float64), delta[0][name].astype(np.float64), axes=1)
        np.testing.assert_allclose(found[0][name], wanted, rtol=1e-5, atol=1e-6)
    places = np.sort(rng.permutation(clients + spare)[:clients])
    apart = [{name: np.full((clients + spare, *shape), np.nan, np.float32) for name, shape in shapes.items()}]
    more = np.zeros(clients + spare, np.float32)
    more[places] = weights
    for name in shapes:
        apart[0][name][places] = delta[0][name]
        apart[0][name][more == 0] = np.nan
    assert same_bits(dense.plus(old, dense.mean(apart, more)), found)


def test_the_mean_of_updates_is_that_of_the_other_forms() -> None:
    trainer = make(data_of("floats"), hidden=(7, 5))
    model = trainer.init(1)
    delta, *_ = train(trainer, model)
    weights = np.zeros(len(delta[0]["b"]), np.float32)
    weights[:4] = 0.5, 0.2, 0.0, 0.3
    slow, _ = forms.combine(None, model["params"], (), delta, weights)
    found = dense.plus(model["params"], dense.mean(delta, weights))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, slow)
