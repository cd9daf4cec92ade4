"""A cohort trained in one compiled call is what a slow loop over clients, steps and layers gives."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import twin
from small_data import BATCH, SIZES, data_of, model_of, same_bits, split

import fedpick as fp
from fedpick import learn
from fedpick.core import schedules
from fedpick.core.rng import stream
from fedpick.data import Dataset
from fedpick.learn import batches
from fedpick.learn.batches import Batches
from fedpick.learn.jax import cohort
from fedpick.learn.trainer import Trainer

pytestmark = pytest.mark.usefixtures("quick_start")

IDS = np.array([4, 2, 0, 1, 6])


USED = np.array([True, True, False, True, True])


EPOCHS = np.array([1.0, 3.0, 2.0, 2.0, 1.0])


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "weight_decay": {"weight_decay": 0.05},
    "prox": {"prox": 0.7},
    "lr": {"lr": schedules.Halving(0.4, every=2)},
    "steps": {"steps": 3},
    "all": {"momentum": 0.5, "weight_decay": 0.02, "prox": 0.3, "lr": schedules.Halving(0.4, every=2), "steps": 2},
}


def make(kind: str, form: str, dropout: float = 0.0, **options: Any) -> Trainer:
    settings = {"lr": 0.1, "batch": BATCH, "form": form} | options
    return Trainer(data_of(kind), model_of(kind, dropout), **settings)


def check(
    trainer: Trainer,
    network: twin.Network,
    ids: np.ndarray = IDS,
    used: np.ndarray = USED,
    epochs: np.ndarray = EPOCHS,
    tolerance: float = 1e-5,
) -> None:
    """Deltas, losses and norms against the twin, in round 3."""
    model = trainer.init(seed=5)
    updates = trainer.train(model, ids, used, epochs, 3, stream(1, 3, "train"))
    slow = twin.train(trainer, network, model["params"], ids, used, epochs.astype(int), 3, stream(1, 3, "train"))
    delta, at, slots = updates.payload
    assert list(at) == list(slow)
    for row, place in zip(slots, at, strict=True):
        mine = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), delta)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance), mine, slow[place].delta)
        np.testing.assert_allclose(updates.loss[place], slow[place].loss, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            updates.reports["update_norm"][place], slow[place].norm, rtol=tolerance, atol=tolerance
        )
    assert np.isnan(updates.loss[~used]).all()
    assert np.isnan(updates.reports["update_norm"][~used]).all()


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The forms that a GPU takes, computed here."""
    cohort._compiled.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield
    cohort._compiled.cache_clear()


# ---- dealt out to several devices, or not


def test_a_cohort_has_the_same_bits_dealt_out_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for worth in (10**9, 0):
        monkeypatch.setattr(cohort, "WORTH", worth)
        trainer = make("floats", "scan", **OPTIONS["all"])
        model = trainer.init(seed=5)
        updates = trainer.train(model, IDS, USED, EPOCHS, 3, stream(1, 3, "train"))
        found.append((updates.payload[0], updates.loss, updates.reports["update_norm"]))
    alone, dealt = found
    assert trainer.backend.devices == 2
    assert len(jax.tree.leaves(alone[0])[0]) == -(-len(IDS) // trainer.backend.devices) * trainer.backend.devices
    assert same_bits(alone, dealt)


def test_a_cohort_is_dealt_out_where_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    compiled = cohort._compiled

    def spy(model: Any, local: Any, stacked: bool, devices: int) -> Any:
        asked.append(devices)
        return compiled(model, local, stacked, devices)

    monkeypatch.setattr(cohort, "_compiled", spy)
    trainer = make("floats", "scan", **OPTIONS["all"])
    model = trainer.init(seed=5)
    drawn = trainer.draw(IDS, np.flatnonzero(USED), EPOCHS, 3, stream(1, 3, "train"))
    work = cohort._multiplications(model["params"], drawn, False)
    assert work == drawn.index.size * sum(leaf.size for leaf in jax.tree.leaves(model["params"]))
    for worth in (work, work + 1):
        monkeypatch.setattr(cohort, "WORTH", worth)
        trainer.train(model, IDS, USED, EPOCHS, 3, stream(1, 3, "train"))
    assert asked == [trainer.backend.devices, 1]


# ---- against the twin


# A local step is one function for both forms: the options that only change it, one at a time, are quick in one form.
ONE_FORM = ("momentum", "weight_decay", "prox")


@pytest.mark.parametrize(
    ("option", "form"),
    [
        pytest.param(option, form, marks=[pytest.mark.slow] * (form == "scan" and option in ONE_FORM))
        for option in OPTIONS
        for form in ("scan", "vmap")
    ],
)
def test_every_option_is_the_twins(option: str, form: str) -> None:
    check(make("floats", form, **OPTIONS[option]), twin.Network())


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("images", "vmap"),
        ("regression", "scan"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("images", "scan"), ("regression", "vmap"))),
    ],
)
def test_pixels_and_regressions_with_all_options(kind: str, form: str) -> None:
    check(make(kind, form, **OPTIONS["all"]), twin.Network())


@pytest.mark.parametrize("form", [pytest.param("scan", marks=pytest.mark.slow), "vmap"])
def test_dropout_takes_the_same_units_away(form: str) -> None:
    check(make("floats", form, dropout=0.4, momentum=0.5), twin.Network(dropout=0.4))


@pytest.mark.parametrize("form", ["scan", pytest.param("vmap", marks=pytest.mark.slow)])
@pytest.mark.parametrize("client", [0, 5], ids=["twenty examples", "one example"])
def test_a_cohort_of_one(client: int, form: str) -> None:
    check(make("floats", form), twin.Network(), np.array([client]), np.array([True]), np.array([2.0]))


@pytest.mark.parametrize("form", ["scan", pytest.param("vmap", marks=pytest.mark.slow)])
def test_clients_that_all_have_fewer_examples_than_a_batch(form: str) -> None:
    ids = np.array([5, 1, 2, 1])  # one of them twice, as a policy with replacement may choose
    for steps in (None, 3):
        trainer = make("floats", form, batch=9, steps=steps)
        check(trainer, twin.Network(), ids, np.ones(4, bool), np.array([1.0, 2.0, 4.0, 1.0]))


@pytest.mark.parametrize("steps", [None, 2])
def test_the_form_for_gpus_masks_what_is_beyond_a_clients_steps(steps: int | None, as_on_a_gpu: None) -> None:
    check(make("floats", "vmap", momentum=0.9, weight_decay=0.05, prox=0.7, steps=steps), twin.Network())


def test_clients_that_have_finished_are_left_out_of_later_stages() -> None:
    ids, epochs = np.arange(40) % len(SIZES), 1.0 + np.arange(40) % 4
    trainer = make("floats", "vmap", momentum=0.9, steps=2)
    assert cohort._stages(np.sort(2 * epochs)[::-1], 8) == (2, [40, 32, 32, 32])
    check(trainer, twin.Network(), ids, epochs != 2, epochs)


# Every layer takes seconds to compile: one network has two convolutions and dropout, the quick others have one.
@pytest.mark.parametrize(
    ("padding", "form", "channels", "dropout"),
    [
        ("valid", "scan", (3, 4), 0.3),
        pytest.param("same", "vmap", (3,), 0.0, marks=pytest.mark.slow),
        pytest.param("same", "vmap", (3, 4), 0.3, marks=pytest.mark.slow),
    ],
)
def test_a_convolutional_network(padding: str, form: str, channels: tuple[int, ...], dropout: float) -> None:
    kernel = 2 if padding == "valid" else 3
    model = learn.cnn((10, 9, 2), 4, channels=channels, hidden=(6,), kernel=kernel, padding=padding, dropout=dropout)
    trainer = Trainer(data_of("images"), model, lr=0.1, batch=BATCH, momentum=0.5, form=form)
    check(trainer, twin.Network(dropout=dropout, padding=padding))


@pytest.mark.parametrize("channels", [(3,), pytest.param((3, 4), marks=pytest.mark.slow)])
def test_a_convolutional_network_in_the_form_for_gpus(channels: tuple[int, ...], as_on_a_gpu: None) -> None:
    model = learn.cnn((10, 9, 2), 4, channels=channels, hidden=(6,), kernel=2)
    check(Trainer(data_of("images"), model, lr=0.1, batch=BATCH, form="vmap"), twin.Network())


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_one_layer(kind: str) -> None:
    if kind == "logistic":
        trainer = Trainer(data_of("floats"), learn.logistic((6,), 4), batch=BATCH)
    else:
        trainer = Trainer(data_of("regression"), learn.linear((6,)), batch=BATCH)
    check(trainer, twin.Network())


def test_bfloat16_is_near_and_keeps_weights_in_float32() -> None:
    trainer = make("floats", "vmap", precision="bfloat16")
    check(trainer, twin.Network(), tolerance=0.03)  # bfloat16 has 8 bits: 0.4% each, and these add up over the steps
    delta, *_ = trainer.train(trainer.init(5), IDS, USED, EPOCHS, 3, stream(1, 3, "train")).payload
    assert {leaf.dtype for leaf in jax.tree.leaves(delta)} == {np.dtype(np.float32)}
    fine = make("floats", "vmap").train(trainer.init(5), IDS, USED, EPOCHS, 3, stream(1, 3, "train"))
    assert not same_bits(delta, fine.payload[0])


def test_momentum_starts_anew_in_each_round() -> None:
    trainer = make("floats", "vmap", momentum=0.9)
    model = trainer.init(5)
    first = trainer.train(model, IDS, USED, EPOCHS, 1, stream(1, 1, "train"))
    again = trainer.train(model, IDS, USED, EPOCHS, 2, stream(1, 1, "train"))
    assert same_bits(first.payload[0], again.payload[0])


def test_clients_may_start_from_different_models() -> None:
    """Several runs stacked into one call: what each of them gives alone."""
    trainer = make("floats", "vmap", momentum=0.5)
    models = [trainer.init(seed)["params"] for seed in (1, 2)]
    empty = batches.Batches.empty(len(IDS), 12, BATCH)
    drawn = batches.draw(trainer.data, IDS, EPOCHS.astype(np.int64), BATCH, None, np.random.default_rng(0), empty)
    drawn.lr[:] = [0.1, 0.2, 0.3, 0.4, 0.5]
    owner = np.array([1, 0, 0, 1, 1])

    def call(sent: Any, owner: Any = None) -> Any:
        return cohort.side_by_side(trainer.model, trainer._local, trainer.placed(), sent, drawn, owner)

    both = call(jax.tree.map(lambda *leaves: np.stack(leaves), *models), owner)
    for number, model in enumerate(models):
        alone = call(model)
        mine = owner == number
        np.testing.assert_allclose(np.asarray(both.loss)[mine], np.asarray(alone.loss)[mine], rtol=1e-6)
        jax.tree.map(
            lambda a, b, mine=mine: np.testing.assert_allclose(np.asarray(a)[mine], np.asarray(b)[mine], atol=1e-6),
            both.delta,
            alone.delta,
        )


def test_how_many_steps_are_gathered_at_once_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("floats", "scan").init(5)
    found = []
    for bytes in (1, 2 * BATCH * 4 * data_of("floats").dataset.x.shape[1], 1 << 20):  # 1 step, 2 of 2 to 6, all
        cohort._compiled.cache_clear()
        monkeypatch.setattr(cohort, "GATHERED", bytes)
        trainer = make("floats", "scan", **OPTIONS["all"])
        found.append(trainer.train(model, IDS, USED, EPOCHS, 1, stream(1, 1, "train")))
    cohort._compiled.cache_clear()
    for other in found[1:]:
        assert same_bits(found[0].payload[0], other.payload[0])
        np.testing.assert_array_equal(found[0].loss, other.loss)


# ---- who is trained


def test_a_client_without_steps_may_stand_anywhere() -> None:
    trainer = make("floats", "scan")
    model = trainer.init(5)["params"]
    at = np.arange(len(IDS))
    drawn = trainer.draw(IDS, at, EPOCHS, 1, stream(1, 1, "train"))
    all = trainer.train_all(model, drawn)
    count, steps = drawn.count.copy(), drawn.steps.copy()
    count[1] = steps[1] = 0
    others = trainer.train_all(model, Batches(drawn.index, count, steps, drawn.keys, drawn.lr))
    assert np.asarray(all.norm)[1] > 0
    assert np.asarray(others.norm)[1] == 0
    for one, other in zip(jax.tree.leaves(all.delta), jax.tree.leaves(others.delta), strict=True):
        np.testing.assert_array_equal(np.delete(one, 1, axis=0), np.delete(other, 1, axis=0))


@pytest.mark.parametrize("form", ["scan", "vmap"])
def test_clients_that_will_not_be_used_are_not_trained(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make("floats", form)
    seen: list[Batches] = []
    real = trainer.backend.train

    def spy(*args: Any, **settings: Any) -> Any:
        seen.extend(arg for arg in args if isinstance(arg, Batches))
        return real(*args, **settings)

    monkeypatch.setattr(trainer.backend, "train", spy)
    model = trainer.init(5)
    some = trainer.train(model, IDS, USED, EPOCHS, 1, stream(1, 1, "train"))
    at = np.flatnonzero(USED)
    np.testing.assert_array_equal(seen[0].steps[: len(at)], [2, 3, 2, 2])
    assert seen[0].steps[len(at) :].sum() == 0
    assert seen[0].count.sum() == (SIZES[IDS] * EPOCHS)[USED].sum()

    only = trainer.train(model, IDS[at], np.ones(len(at), bool), EPOCHS[at], 1, stream(1, 1, "train"))
    np.testing.assert_array_equal(some.loss[at], only.loss)  # nothing is drawn for the others, either
    assert same_bits(some.payload[0], only.payload[0])


def test_nobody_used_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make("floats", "vmap")
    monkeypatch.setattr(trainer.backend, "train", None)
    for ids in (IDS, IDS[:0]):
        updates = trainer.train(
            trainer.init(5), ids, np.zeros(len(ids), bool), EPOCHS[: len(ids)], 1, stream(1, 1, "t")
        )
        assert updates.loss.shape == ids.shape
        assert np.isnan(updates.loss).all()


@pytest.mark.parametrize("form", ["scan", "vmap"])
def test_nothing_is_compiled_again_for_fewer_clients_or_steps(form: str, caplog: pytest.LogCaptureFixture) -> None:
    trainer = make("floats", form, batch=5)  # a shape that no other test has compiled
    model = trainer.init(5)

    def play(ids: np.ndarray, used: np.ndarray, epochs: np.ndarray, round: int) -> list[str]:
        caplog.clear()
        with jax.log_compiles():
            trainer.train(model, ids, used, epochs, round, stream(1, round, "train"))
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith("Compiling")]

    assert play(IDS, np.ones(5, bool), EPOCHS, 1)  # that the log is read at all
    assert play(IDS, USED, EPOCHS, 2) == []
    assert play(IDS[:2], np.ones(2, bool), EPOCHS[:2], 3) == []
    assert play(IDS[1:2], np.ones(1, bool), np.ones(1), 4) == []
    assert play(IDS[::-1], np.ones(5, bool), np.ones(5), 5) == []


def test_the_second_round_compiles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    run = fp.Run(
        fp.Uniform(3), fp.World(data_of("floats").clients, epochs=(1,)), seed=1, trainer=make("floats", "scan", batch=6)
    )
    with jax.log_compiles():
        next(run.rounds(2))
        first = [record for record in caplog.records if record.getMessage().startswith("Compiling")]
        caplog.clear()
        next(run.rounds(2))
    assert first
    assert not [record for record in caplog.records if record.getMessage().startswith("Compiling")]


# ---- poison


@pytest.mark.parametrize("form", [pytest.param("scan", marks=pytest.mark.slow), "vmap"])
@pytest.mark.parametrize("example", [0, 7])
def test_a_bad_input_harms_only_the_clients_that_hold_it(example: int, form: str) -> None:
    """Example 0 too, which may stand where a batch has none."""
    value = np.nan if example else np.inf
    good = data_of("floats").dataset
    x = good.x.copy()
    x[example] = value
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    data = split(Dataset("bad", x, good.y, classes=4), SIZES)
    holders = set(owner[data.examples == example].tolist())
    ids = np.arange(len(SIZES))
    trainer = Trainer(data, model_of("floats"), lr=0.1, batch=BATCH, form=form)
    updates = trainer.train(trainer.init(5), ids, np.ones(7, bool), np.ones(7), 1, stream(1, 1, "train"))
    bad = ~(np.isfinite(updates.loss) & updates.valid)
    assert set(np.flatnonzero(bad).tolist()) == holders
