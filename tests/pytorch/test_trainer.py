"""What PyTorch adds: buffers, dropout, losses, optimisers, clipping, devices, and modules of all kinds."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` runs this")

import torch
from networks import Mlp, trainer_of
from torch import nn

import fedpick as fp

IDS = np.arange(8)


def trained(trainer: Any, model: Any = None, ids: Any = IDS, epochs: float = 2.0) -> tuple[Any, Any]:
    """The model and its clients' updates."""
    model = trainer.init(1) if model is None else model
    return model, trainer.train(
        model, ids, np.ones(len(ids), bool), np.full(len(ids), epochs), 1, np.random.default_rng(4)
    )


def deltas(updates: Any, name: str = "weights") -> Any:
    return updates.payload[0][name]


class Norm(nn.Module):
    """With BatchNorm, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
        self.first.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x)).relu())


def by_hand(
    module: nn.Module, trainer: Any, updates: Any, made: Callable[[Any, float], Any], clip: float | None = None
) -> list[nn.Module]:
    """What a plain loop makes of the same batches: a module for each client."""
    found = []
    data = trainer.data.dataset
    drawn = trainer.draw(IDS, IDS, np.full(8, 2.0), 1, np.random.default_rng(4))
    for c in IDS:
        mine = copy.deepcopy(module)
        optimizer = made(mine.parameters(), float(drawn.lr[c]))
        for s in range(drawn.steps[c]):
            rows = drawn.index[c, s, : drawn.count[c, s]]
            mine.train()
            if len(rows) == 1:
                for layer in mine.modules():
                    if isinstance(layer, nn.BatchNorm1d):
                        layer.eval()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(mine(torch.tensor(data.x[rows])), torch.tensor(data.y[rows]).long())
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_([p for p in mine.parameters() if p.requires_grad], clip)
            optimizer.step()
        found.append(mine)
    return found


def vectors(module: nn.Module) -> tuple[Any, Any]:
    """The trained numbers of a module, and the others that are floats."""
    weights = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
    frozen = [p.detach().reshape(-1) for p in module.parameters() if not p.requires_grad]
    kept = [*frozen, *(b.reshape(-1) for b in module.buffers() if b.is_floating_point())]
    return torch.cat(weights).numpy(), torch.cat(kept).numpy() if kept else np.empty(0)


OPTIMIZERS: dict[str, tuple[dict[str, Any], Callable[[Any, float], Any]]] = {
    "sgd": (
        {"momentum": 0.9, "weight_decay": 0.01},
        lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=0.01),
    ),
    "adam": ({"optimizer": "adam"}, lambda p, lr: torch.optim.Adam(p, lr)),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.1}, lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.1)),
}


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_client_does_what_a_plain_loop_does(name: str, clip: float | None) -> None:
    """With BatchNorm, frozen weights, batches of one example, and PyTorch's own optimisers."""
    settings, made = OPTIMIZERS[name]
    trainer = trainer_of("floats", Norm, lr=0.05, clip=clip, **settings)
    model, updates = trained(trainer)
    module = trainer.module(model)
    before = vectors(module)
    for c, mine in enumerate(by_hand(module, trainer, updates, made, clip)):
        after = vectors(mine)
        np.testing.assert_allclose(deltas(updates)[c], after[0] - before[0], rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(deltas(updates, "kept")[c], after[1] - before[1], rtol=1e-4, atol=2e-6)


def test_buffers_are_moved_by_the_mean_and_are_no_part_of_norms() -> None:
    trainer = trainer_of("floats", Norm)
    model, updates = trained(trainer)
    choice, status = fp.Choice(IDS), np.full(8, fp.Status.DONE)
    status[3] = fp.Status.FAILED
    after = trainer.aggregate(model, choice, fp.Outcome(status, np.ones(8), updates.loss), updates)
    shares = np.where(IDS == 3, 0, trainer.data.sizes) / (trainer.data.sizes.sum() - trainer.data.sizes[3])
    for name in ("weights", "kept"):
        expected = model["params"][name] + shares @ deltas(updates, name)
        np.testing.assert_allclose(after["params"][name], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(updates.reports["update_norm"], np.linalg.norm(deltas(updates), axis=1), rtol=1e-5)
    assert (after["params"]["kept"] != model["params"]["kept"]).sum() == 10  # means and variances, no frozen weight
    assert int(trainer.module(after).norm.num_batches_tracked) == 0  # whole numbers stay with the client


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn(alpha=0.5)"])
def test_algorithms_with_states_leave_buffers_to_the_mean(algorithm: str) -> None:
    """Also twice in a row, when clients have a state."""
    trainer = trainer_of("floats", Norm, algorithm=algorithm)
    model = trainer.init(1)
    ids, status = np.arange(3), np.full(3, fp.Status.DONE)
    shares = trainer.data.sizes[ids] / trainer.data.sizes[ids].sum()
    for round in (1, 2):
        rng = fp.rng.stream(1, round, "train")
        updates = trainer.train(model, ids, np.ones(3, np.bool_), np.ones(3), round, rng)
        before = model["params"]["kept"]
        model = trainer.aggregate(model, fp.Choice(ids), fp.Outcome(status, np.ones(3), updates.loss), updates)
        expected = before + shares @ deltas(updates, "kept")[:3]
        np.testing.assert_allclose(model["params"]["kept"], expected, rtol=1e-5, atol=1e-6)
    kept, rows = model["algorithm"]["clients"]
    assert kept.shape == (len(trainer.data), 0)
    assert (rows[3:] == 0).all()
    assert (rows[:3] != 0).any(axis=1).all()


def test_variances_stay_positive_under_weights_that_add_up_to_more_than_one() -> None:
    trainer = trainer_of("floats", Norm)
    model = trainer.init(1)
    delta = {name: np.tile(-part, (3, 1)) for name, part in model["params"].items()}  # all clients have 0
    kept = trainer.backend.combine(None, model, delta, np.array([0.9, 0.8, 0.7]))["params"]["kept"]
    np.testing.assert_allclose(kept, 0.0, atol=1e-6)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 4))

    def forward(self, x: Any) -> Any:
        return self.body(x)


def test_dropout_has_a_seed_for_each_task_and_leaves_the_users_random_numbers_alone() -> None:
    """The same bits again; other bits with another stream; a client's do not depend on who trains beside it."""
    trainer = trainer_of("floats", Dropping)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model, first = trained(trainer)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert np.array_equal(deltas(first), deltas(trained(trainer, model)[1]))
    calm = trainer_of("floats", lambda: nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 4)))
    still, other = trained(calm)
    np.testing.assert_array_equal(still["params"]["weights"], model["params"]["weights"])  # the same seed
    assert (deltas(first) != deltas(other)).any(axis=1).all()
    keys = [trainer.draw(IDS, IDS, np.ones(8), 1, np.random.default_rng(seed)).keys for seed in (4, 4, 5)]
    assert np.array_equal(keys[0], keys[1])
    assert not np.array_equal(keys[0], keys[2])


def test_one_thread_while_it_trains_and_the_users_number_after_it() -> None:
    seen = []

    class Asking(Mlp):
        def forward(self, x: Any) -> Any:
            seen.append(torch.get_num_threads())
            return super().forward(x)

    before = torch.get_num_threads()
    trainer = trainer_of("floats", lambda: Asking((6,), 4))
    model = trainer.init(1)
    seen.clear()
    trained(trainer, model)
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


def test_a_loss_of_the_users_own() -> None:
    """Cross-entropy by hand gives the same updates; half of it smaller steps and half the losses."""

    def own(outputs: Any, y: Any) -> Any:
        return -outputs.log_softmax(dim=1)[torch.arange(len(y)), y]

    plain, same, half = (
        trainer_of("floats", lambda: Mlp((6,), 4), loss=loss)
        for loss in (None, own, lambda outputs, y: 0.5 * own(outputs, y))
    )
    (model, usual), (_, mine), (_, less) = trained(plain), trained(same), trained(half)
    np.testing.assert_allclose(deltas(mine), deltas(usual), rtol=1e-4, atol=1e-6)
    assert (np.linalg.norm(deltas(less), axis=1) < 0.8 * np.linalg.norm(deltas(usual), axis=1)).all()
    probes = [each.probe(model, IDS, None, np.random.default_rng(0)) for each in (plain, half)]
    np.testing.assert_allclose(0.5 * probes[0], probes[1], rtol=1e-5)


def test_bfloat16_is_near_float32_and_weights_stay_float32() -> None:
    one, other = (trainer_of("floats", lambda: Mlp((6,), 4), precision=name) for name in ("float32", "bfloat16"))
    exact, rough = deltas(trained(one)[1]), deltas(trained(other)[1])
    assert rough.dtype == np.float32
    assert (exact != rough).any()
    assert np.linalg.norm(exact - rough) < 0.05 * np.linalg.norm(exact)


def test_modules_in_every_form() -> None:
    """A class, a function with what it asks for, and a module, whose weights are the first ones at every seed."""
    module = nn.Linear(6, 4)
    of_module = trainer_of("floats", module)
    for seed in (1, 2):
        assert torch.equal(of_module.module(of_module.init(seed)).weight, module.weight)
    of_function = trainer_of("floats", lambda: nn.Linear(6, 4))
    assert not np.array_equal(*(of_function.init(seed)["params"]["weights"] for seed in (1, 2)))
    asked = trainer_of("floats", Mlp)  # inputs and outputs are its arguments
    assert asked.module(asked.init(0)).layers[0].in_features == 6
    lazy = trainer_of("floats", lambda: nn.LazyLinear(4))
    assert lazy.megabytes == pytest.approx(4 * (6 * 4 + 4) / 1e6)
    before = module.weight.detach().clone()
    trained(of_module)
    assert torch.equal(module.weight, before)  # it is copied, not trained


def test_an_update_that_is_not_a_number_is_not_valid() -> None:
    trainer = trainer_of("floats", lambda: Mlp((6,), 4), lr=1e30, steps=20)
    _, updates = trained(trainer)
    assert not updates.valid.any()


def test_pixels_are_centred_scaled_and_have_channels_first() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
    data = fp.data.Dataset(
        "pixels", x, np.arange(20, dtype=np.int32) % 2, classes=2, mean=(0.1, 0.2, 0.3), std=(0.5, 1, 2)
    )
    seen = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(60, 2)

        def forward(self, x: Any) -> Any:
            seen.append(x.clone())
            return self.last(x.flatten(1))

    trainer = fp.learn.Trainer(fp.data.Federated(data, np.arange(20), np.array([0, 20])), Looking)
    model = trainer.init(0)
    seen.clear()
    trainer.scores(model["params"], np.arange(20))
    expected = ((x / 255.0 - np.array([0.1, 0.2, 0.3])) / np.array([0.5, 1, 2])).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(torch.cat(seen).numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("where", ["trained", "evaluated"])
def test_an_error_in_the_middle_of_a_run_is_one_sentence(where: str) -> None:
    class Moody(Mlp):
        broken = False

        def forward(self, x: Any) -> Any:
            if self.broken and self.training == (where == "trained"):
                raise RuntimeError("no\nmore")
            return super().forward(x)

    trainer = trainer_of("floats", lambda: Moody((6,), 4))
    model = trainer.init(1)
    Moody.broken = True
    try:
        with pytest.raises(fp.SettingError) as caught:
            trained(trainer, model) if where == "trained" else trainer.evaluate(model, 5)
    finally:
        Moody.broken = False
    says = f"the model '<lambda>' cannot be {where}: RuntimeError: no (in forward, {__file__}, line "
    assert str(caught.value).startswith(says)


def test_recurrent_and_tied_weights() -> None:
    """A module whose weights are used twice has them once, and an LSTM trains."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.LSTM(6, 4, batch_first=True)
            self.second.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            return self.last(self.second(self.first(x).relu())[:, None])[0][:, -1]

    trainer = trainer_of("floats", Tied, lr=0.1)
    model, updates = trained(trainer)
    module = trainer.module(model)
    assert len(model["params"]["weights"]) == sum(each.numel() for each in module.parameters())
    before = vectors(module)[0]
    hands = by_hand(module, trainer, updates, lambda p, lr: torch.optim.SGD(p, lr))
    for c, mine in enumerate(hands):
        np.testing.assert_allclose(deltas(updates)[c], vectors(mine)[0] - before, rtol=1e-4, atol=2e-6)


def test_several_models_at_once_are_each_as_alone() -> None:
    """Tasks from two versions, and runs that an executor stacks."""
    trainer = trainer_of("floats", Dropping)
    models = [trainer.init(seed) for seed in (1, 2)]
    stacked = trainer.backend.stack([each["params"] for each in models])
    index = np.arange(30)
    loss, hits = trainer.placed().launch(trainer.model, stacked, index, several=True)()
    for r, each in enumerate(models):
        alone = trainer.scores(each["params"], index)
        np.testing.assert_array_equal(loss[r], alone[0])
        np.testing.assert_array_equal(hits[r], alone[1])
    drawn = trainer.draw(IDS, IDS, np.ones(8), 1, np.random.default_rng(4))
    owner = np.array([0, 1] * 4)
    together = trainer.train_all(stacked, drawn, owner)
    for r, each in enumerate(models):
        alone = trainer.train_all(each["params"], drawn)
        np.testing.assert_array_equal(together.delta["weights"][owner == r], alone.delta["weights"][owner == r])
