"""Data of real packages: PyTorch's, Hugging Face's, and partitioners of flwr-datasets; nothing is downloaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` runs this")
pytest.importorskip("flwr_datasets", reason="it is not installed here; `make test-torch` runs this")

import datasets
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split

import fedpick as fp

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), RNG.integers(0, 3, 60)
OWNER = np.array(["clinic", "anna", "ben"])[RNG.integers(0, 3, 60)]
IMAGES = RNG.normal(size=(12, 3, 5, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()
    datasets.disable_caching()


def of(x: Any, y: Any) -> TensorDataset:
    return TensorDataset(torch.tensor(x), torch.tensor(y))


class Mine(Dataset):
    """The user's own, with a transform."""

    def __init__(self, count: int, broken: int = -1) -> None:
        self.count, self.broken = count, broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if i == self.broken:
            raise OSError("cannot open 17.png")
        return torch.full((4,), float(i)), i % 3


# ---- PyTorch


def test_lists_dicts_subsets_and_what_is_joined() -> None:
    whole = of(X, Y)
    clients = {
        "a": Subset(whole, [5, 1, 9]),
        "b": ConcatDataset([Subset(whole, [0]), Subset(whole, [2, 3])]),
        "c": Mine(4),
    }
    found = fp.data.read(clients, test=Subset(whole, range(10)))
    assert found.sizes.tolist() == [3, 3, 4]
    np.testing.assert_array_equal(found.dataset.x[:6], X[[5, 1, 9, 0, 2, 3]])
    np.testing.assert_array_equal(found.dataset.y[:6], Y[[5, 1, 9, 0, 2, 3]])
    np.testing.assert_array_equal(found.dataset.test_x, X[:10])
    parts = random_split(whole, [20, 40], torch.Generator().manual_seed(0))
    again = fp.data.read(parts)
    np.testing.assert_array_equal(again.dataset.x, X[[*parts[0].indices, *parts[1].indices]])


class Seen(nn.Module):
    """Keeps what it was given."""

    def __init__(self, inputs: Any, outputs: int) -> None:
        super().__init__()
        self.last = nn.LazyLinear(outputs)
        self.inputs = inputs

    def forward(self, x: Any) -> Any:
        assert x.shape[1:] == (3, 5, 4)
        return self.last(x.flatten(1))


def test_a_module_gets_images_as_its_data_set_gave_them() -> None:
    data = fp.data.read([of(IMAGES[:6], Y[:6]), of(IMAGES[6:], Y[6:12])])
    assert data.dataset.inputs == (5, 4, 3)  # channels last, as everywhere
    trainer = fp.learn.Trainer(data, Seen)
    np.testing.assert_array_equal(trainer.placed().tensors.x.numpy(), IMAGES)


def test_pictures_of_pil_are_pixels() -> None:
    grey = [(Image.fromarray(np.full((5, 4), k, np.uint8)), k) for k in range(3)]
    colours = [(Image.fromarray(np.full((5, 4, 3), k, np.uint8)), k) for k in range(3)]
    for rows, channels in ((grey, 1), (colours, 3)):
        part = type("Rows", (Dataset,), {"__len__": lambda _: 3, "__getitem__": lambda _, i, rows=rows: rows[i]})()
        dataset = fp.data.read([part]).dataset
        assert (dataset.x.dtype, dataset.inputs) == (np.uint8, (5, 4, channels))
        assert dataset.x[:, 0, 0, 0].tolist() == [0, 1, 2]


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        yield torch.zeros(4), 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([Mine(3), Mine(5, broken=2)], "client 1, example 2: OSError: cannot open 17.png (in __getitem__, "),
        ({"x": Endless()}, "client 'x': is test_data.Endless, but must be indexed: give a torch.utils.data.Dataset"),
        (DataLoader(Mine(3)), "but must be indexed: give a torch.utils.data.Dataset with __len__ and __getitem__"),
        ([of(X, Y), of(X[:, :3], Y)], "client 1, example 0: inputs of shape (3,), but those before have (4,)"),
        ([of(X * np.nan, Y)], "client 0, example 0: the inputs hold NaN or infinity"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_lost(data: Any, says: str, tmp_path: Path) -> None:
    good = {"cohort_size": 1, "seeds": 1, "rounds": 10, "world": "ideal", "executor": "serial", "out": tmp_path / "out"}
    fp.compare("uniform", data=[of(X[:30], Y[:30]), of(X[30:], Y[30:])], model=lambda: nn.Linear(4, 3), **good)
    with pytest.raises(fp.FedpickError) as caught:
        fp.compare("uniform", data=data, model=lambda: nn.Linear(4, 3), **good)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(fp.load(tmp_path / "out").frame()) == 1


# ---- targets


def test_sequences_with_a_loss_of_ones_own_and_without() -> None:
    """Tokens come as indices, and a label for each is learnt."""
    x = RNG.integers(0, 5, (40, 6))
    data = fp.data.read(
        [of(x[:15], (x[:15] * 3 + 1) % 4), of(x[15:], (x[15:] * 3 + 1) % 4)], test=of(x, (x * 3 + 1) % 4)
    )

    def second_half(outputs: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(outputs.movedim(-1, 1), y, reduction="none")[:, 3:].mean(dim=1)

    for loss in (None, second_half):
        trainer = fp.learn.Trainer(data, lambda: nn.Embedding(5, 4), lr=2.0, batch=8, loss=loss, evaluate_every=20)
        run = fp.Run(fp.Uniform(2), fp.World(data.clients), seed=1, trainer=trainer)
        *_, last = run.rounds(20)
        assert last.metrics["accuracy"] == 1.0
        index = np.arange(5)
        scores = trainer.scores(run.state.model["params"], index)[0]
        outputs, y = trainer.module(run.state.model)(torch.tensor(x[:5])), torch.tensor((x[:5] * 3 + 1) % 4)
        each = nn.functional.cross_entropy(outputs.movedim(-1, 1), y, reduction="none")
        expected = (each if loss is None else each[:, 3:]).mean(dim=1).detach().numpy()
        np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_vectors_and_what_does_not_fit() -> None:
    targets = X @ RNG.normal(size=(4, 2)).astype(np.float32)
    data = fp.data.read([of(X[:30], targets[:30]), of(X[30:], targets[30:])], test=of(X, targets))
    trainer = fp.learn.Trainer(data, lambda: nn.Linear(4, 2), lr=0.3, batch=8, evaluate_every=20, metrics=("rmse",))
    run = fp.Run(fp.Uniform(2), fp.World(data.clients), seed=1, trainer=trainer)
    *_, last = run.rounds(20)
    assert last.metrics["test_loss"] < 0.01
    assert last.metrics["rmse"] == pytest.approx(np.sqrt(last.metrics["test_loss"]), rel=1e-4)
    with pytest.raises(fp.SettingError, match=r"has targets of shape \(2,\): it must give \(2, 2\)"):
        fp.learn.Trainer(data, lambda: nn.Linear(4, 3))
    labels = fp.data.read([of(X, np.stack([Y, Y], axis=1))])
    with pytest.raises(fp.SettingError, match=r"targets of shape \(2,\) with 3 labels: it must give \(2, 2, 3\); or"):
        fp.learn.Trainer(labels, lambda: nn.Linear(4, 3))
    with pytest.raises(
        fp.SettingError, match=r"for the accuracy it must give \(2, 2, 'any'\); give targets as floating"
    ):
        fp.learn.Trainer(labels, lambda: nn.Linear(4, 3), loss=lambda outputs, y: outputs.sum(dim=1))


# ---- Hugging Face


def hugging(**more: Any) -> Any:
    return datasets.Dataset.from_dict({"x": X, "label": Y, "writer": OWNER, **more})


def owned(found: fp.data.Federated) -> None:
    """Each client has its own rows of X."""
    for k, name in enumerate(np.unique(OWNER)):
        np.testing.assert_array_equal(
            np.sort(found.dataset.x[found.examples_of(k)], axis=0), np.sort(X[name == OWNER], axis=0)
        )


def test_a_data_set_with_a_column_for_the_client() -> None:
    owned(fp.data.read(hugging(), client="writer", inputs="x"))
    owned(fp.data.read(hugging().rename_column("writer", "client")))
    splits = datasets.DatasetDict(train=hugging(), test=hugging())
    found = fp.data.read(splits, client="writer")
    owned(found)
    np.testing.assert_array_equal(found.dataset.test_x, X)
    owned(fp.data.read(hugging().with_format("torch"), client="writer"))
    doubled = hugging().with_transform(lambda rows: {"x": [torch.tensor(x) * 2 for x in rows["x"]], "y": rows["label"]})
    np.testing.assert_allclose(fp.data.read(doubled, client="writer").dataset.x, 2 * X)
    assert isinstance(fp.data.read(hugging(), inputs="x"), fp.data.Dataset)  # to be divided by a partition


def test_images_and_tokens_of_hugging_face() -> None:
    pictures = [Image.fromarray(np.full((5, 4), 9 * k, np.uint8)) for k in range(3)]
    found = fp.data.read(
        datasets.Dataset.from_dict(
            {"image": pictures, "label": ["cat", "dog", "cat"], "client": [1, 2, 1]},
            features=datasets.Features(
                image=datasets.Image(), label=datasets.Value("string"), client=datasets.Value("int64")
            ),
        )
    )
    assert (found.dataset.x.dtype, found.dataset.inputs) == (np.uint8, (5, 4, 1))
    assert found.dataset.y.tolist() == [0, 1, 0]
    assert found.sizes.tolist() == [2, 1]
    tokens = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4]], "label": [0, 1]})
    assert fp.data.read(tokens).x.dtype == np.int32
    ragged = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]], "label": [0, 1]})
    with pytest.raises(
        fp.DataError, match=r"the column 'input_ids' has entries of shapes \(1,\) and \(2,\): all must be"
    ):
        fp.data.read(ragged)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"client": "writers"}, "client = 'writers', but the columns are x, label, writer; did you mean 'writer'?"),
        ({"label": "digit"}, "label = 'digit', but the columns are x, label, writer; name one of these: label='x'"),
        ({"inputs": "writer"}, "the column 'writer' holds texts ("),
    ],
)
def test_columns_that_are_not_there(columns: Any, says: str) -> None:
    with pytest.raises(fp.DataError) as caught:
        fp.data.read(hugging(), **columns)
    assert says in str(caught.value)
    with pytest.raises(fp.DataError, match="has the splits validation, but no 'train'"):
        fp.data.read(datasets.DatasetDict(validation=hugging()))


# ---- flwr-datasets


def test_partitioners_give_a_client_for_each_partition(tmp_path: Path) -> None:
    from flwr_datasets import FederatedDataset
    from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, NaturalIdPartitioner

    natural = NaturalIdPartitioner(partition_by="writer")
    natural.dataset = hugging()
    found = fp.data.read(natural, inputs="x")
    expected = [natural.load_partition(k) for k in range(3)]
    assert found.sizes.tolist() == [len(each) for each in expected]
    for k, each in enumerate(expected):
        np.testing.assert_allclose(found.dataset.x[found.examples_of(k)], np.array(each["x"]), rtol=1e-6)
    dirichlet = DirichletPartitioner(4, partition_by="label", alpha=0.5, min_partition_size=1, seed=1)
    with pytest.raises(fp.DataError, match="the DirichletPartitioner has no data set to divide; assign one first"):
        fp.data.read(dirichlet)
    dirichlet.dataset = hugging()
    assert fp.data.read(dirichlet, inputs="x").sizes.sum() == 60
    hugging().to_parquet(tmp_path / "train.parquet")
    hugging().select(range(9)).to_parquet(tmp_path / "test.parquet")
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("train", "test")}
    federated = FederatedDataset(
        dataset="parquet",
        data_files=files,
        partitioners={"train": IidPartitioner(5)},
        cache_dir=str(tmp_path / "cache"),
    )
    found = fp.data.read(federated, inputs="x")
    assert found.sizes.tolist() == [12] * 5
    assert len(found.dataset.test_x) == 9


def test_compare_takes_them_with_a_module(tmp_path: Path) -> None:
    from flwr_datasets.partitioner import IidPartitioner

    partitioner = IidPartitioner(5)
    partitioner.dataset = hugging().remove_columns("writer")
    for data in (
        partitioner,
        {"name": hugging(), "client": "writer", "test": hugging().remove_columns("writer")},
        {"name": hugging().remove_columns("writer"), "partition": "iid", "hold_out": 0.2},
    ):
        results = fp.compare(
            ["uniform", "oort"], data=data, model=lambda: nn.Linear(4, 3), cohort_size=2, seeds=1, rounds=10,
            world={"num_clients": 5} if isinstance(data, dict) and "partition" in data else "ideal", executor="serial",
            out=tmp_path / "out",
        )  # fmt: skip
        assert np.isfinite(results.frame()["train_loss"]).all()
