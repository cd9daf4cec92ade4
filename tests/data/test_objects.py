"""Data as people have it: lists and dicts of data sets, and tables of pandas; with mistakes, each in one sentence."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.experiment import Experiment


class Rows:
    """Indexed as a data set of PyTorch is."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        found = self.rows[i]
        if isinstance(found, Exception):
            raise found
        return found


def rows(count, shape=(2,), label=0):
    rng = np.random.default_rng(count)
    return Rows([(rng.normal(size=shape), label) for _ in range(count)])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([(3,), (2, 4), (1, 2, 3)]), st.booleans())
def test_each_client_gets_its_examples_in_order(sizes, shape, named):
    clients = [rows(size, shape, label) for label, size in enumerate(sizes)]
    found = fp.data.read({f"site {k}": each for k, each in enumerate(clients)} if named else clients)
    assert found.sizes.tolist() == sizes
    for k, client in enumerate(clients):
        for at, (x, y) in zip(found.examples_of(k), client.rows, strict=True):
            channels_last = np.moveaxis(x, 0, -1) if len(shape) == 3 else x
            np.testing.assert_array_equal(found.dataset.x[at], channels_last.astype(np.float32))
            assert found.dataset.y[at] == y
    assert found.dataset.x.dtype == np.float32


def test_rows_are_stored_once_whatever_the_largest_client_has():
    """Nothing is padded: 1,000 clients of one example and one of 1,000 take 2,000 rows."""
    found = fp.data.read([rows(1)] * 1000 + [rows(1000)])
    assert found.dataset.x.shape == (2000, 2)
    assert found.examples.shape == (2000,)


def test_kinds_of_inputs_and_targets():
    cases = {
        "pixels": (np.zeros((1, 4, 5), np.uint8), 1, np.uint8, (4, 5, 1), np.int32, ()),
        "tokens": (np.arange(3), np.arange(3), np.int32, (3,), np.int32, (3,)),
        "a vector": (np.zeros(2), np.zeros(4), np.float32, (2,), np.float32, (4,)),
        "a number": (0.5, 0.5, np.float32, (1,), np.float32, ()),
        "flags": (np.array([True, False]), True, np.float32, (2,), np.int32, ()),
        "a list": ([1.0, 2.0], [0.5], np.float32, (2,), np.float32, ()),
        "a text": ([1.0, 2.0], "cat", np.float32, (2,), np.int32, ()),
    }
    for what, (x, y, kind, inputs, label, targets) in cases.items():
        dataset = fp.data.read(Rows([(x, y)] * 3))
        assert isinstance(dataset, fp.data.Dataset), what
        assert (dataset.x.dtype, dataset.inputs, dataset.y.dtype, dataset.targets) == (kind, inputs, label, targets)


def test_rows_may_be_dicts_and_labels_texts_of_any_length():
    clients = [Rows([{"a": 1, "b": 2.5, "kind": kind}]) for kind in ("cat", "elephant", "cat")]
    found = fp.data.read(clients, label="kind", test=clients[1])
    np.testing.assert_array_equal(found.dataset.x, [[1, 2.5]] * 3)
    assert found.dataset.y.tolist() == [0, 1, 0]
    assert found.dataset.test_y.tolist() == [1]
    assert found.labels.tolist() == [[1, 0], [0, 1], [1, 0]]


FRAME = pd.DataFrame(
    {"age": [1, 2, 3, 4], "dose": [0.5, 1.5, 2.5, 3.5], "site": list("baba"), "outcome": ["no", "yes", "yes", "no"]}
)


def test_a_frame_is_read_as_its_parquet_file_is(tmp_path):
    for frame, columns in (
        (FRAME, {"client": "site", "label": "outcome"}),
        (FRAME.assign(site=FRAME["site"].astype("category")), {"client": "site", "label": "outcome"}),
        (FRAME, {"client": "site", "label": "dose", "inputs": "age"}),
        (FRAME.rename(columns={"site": "client", "outcome": "y"}).assign(test=[False, True, False, False]), {}),
    ):
        frame.to_parquet(tmp_path / "a.parquet")
        ours, file = fp.data.read(frame, **columns), fp.data.read(tmp_path / "a.parquet", **columns)
        assert [ours.examples_of(k).tolist() for k in range(2)] == [file.examples_of(k).tolist() for k in range(2)]
        for name in ("x", "y", "test_x", "test_y"):
            np.testing.assert_array_equal(getattr(ours.dataset, name), getattr(file.dataset, name))
    assert isinstance(fp.data.read(FRAME, label="outcome", inputs=["age", "dose"]), fp.data.Dataset)


def test_a_frame_for_each_client():
    clients = {site: part.drop(columns="site") for site, part in FRAME.groupby("site")}
    found = fp.data.read(clients, label="outcome", test=clients["a"])
    np.testing.assert_array_equal(found.dataset.x, [[2, 1.5], [4, 3.5], [1, 0.5], [3, 2.5]])
    assert found.dataset.y.tolist() == [1, 0, 0, 1]
    assert found.dataset.test_y.tolist() == [1, 0]


OK = (np.zeros(2), 0)
WRONG = {
    "one that raises": ({"anna": rows(2), "ben": Rows([OK, ZeroDivisionError("by zero")])}, {},
        ["client 'ben', example 1: ZeroDivisionError: by zero (in __getitem__, ", "nothing was trained yet"]),
    "another shape": ([rows(2), rows(1, (3,))], {},
        ["client 1, example 0: inputs of shape (3,), but those before have (2,): all must be equal; pad or cut them"]),
    "another shape of a label": ([Rows([OK, (np.zeros(2), [0, 1])])], {}, ["example 1: labels of shape (2,)"]),
    "another kind": ([Rows([OK, (np.zeros(2), 0.5)])], {},
        ["example 1: labels are float32, but those before are int64"]),
    "a NaN": ([rows(2), Rows([OK, (np.array([0, np.nan]), 0)])], {}, ["client 1, example 1: the inputs hold NaN"]),
    "three things": ([Rows([(1, 2, 3)])], {}, ["client 0, example 0: is 3 things, but must be a pair (inputs, label)"]),
    "one thing": ([Rows([np.zeros(2)])], {}, ["is numpy.ndarray, but must be a pair"]),
    "texts": ([Rows([("hello", 0)])], {}, ["client 0, example 0: inputs are str, but must be numbers"]),
    "an object": ([Rows([(object(), 0)])], {}, ["inputs are object, but must be numbers"]),
    "nobody's": ([rows(2), rows(0)], {}, ["client 1: has no examples; leave such clients out"]),
    "a dict without a label": ([Rows([{"a": 1}])], {}, ["example 0: has no column y, label or target, but a"]),
    "a column that is not there": (FRAME, {"client": "sites", "label": "outcome"},
        ["the DataFrame: client = 'sites', but the columns are age, dose, site, outcome; did you mean 'site'?"]),
    "a column of texts": (FRAME, {"label": "outcome"},
        ["the column 'site' holds str ('b'), but inputs must be numbers"]),
    "no label": (FRAME, {}, ["the DataFrame: has no column y, label or target, but age, dose, site, outcome; rename"]),
    "holes": (FRAME.assign(dose=[1, None, 2, None]), {"client": "site", "label": "outcome"},
        ["the DataFrame: the inputs hold NaN or infinity, in 2 of 4 examples, first in example 1; fill these"]),
    "ragged": (pd.DataFrame({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}), {},
        ["the column 'x' has entries of shapes (1,) and (2,): all must be equal; pad or cut them first"]),
    "a label below 0": ([Rows([(np.zeros(2), -1)])], {}, ["the labels go from -1 to -1, but must be from 0 to"]),
    "arrays": ([np.zeros(3), np.zeros(3)], {},
        ["data is a list of 2 objects, one of which is numpy.ndarray, but must be a list"]),
    "nothing": ([], {}, ["data is an empty list, but must be a list or dict of data sets (one for each client)"]),
    "a number": (3, {},
        ["data is int, but must be a list or dict of data sets", "arrays: fp.data.Dataset('mine', x, y"]),
    "a test of another kind": ([rows(2)], {"test": 3}, ["test is int, but must be examples as one client has"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_one_sentence_that_says_where(what):
    data, columns, says = WRONG[what]
    with pytest.raises(fp.DataError) as caught:
        fp.data.read(data, **columns)
    for part in says:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_indexed_is_named_with_the_way_out(monkeypatch):
    stream, loader = (type(name, (), {"__module__": "torch.utils.data"}) for name in ("IterableDataset", "DataLoader"))
    for kind, says in ((stream, "must be indexed: give a torch.utils.data.Dataset"), (loader, "attribute dataset")):
        for data in (kind(), [kind(), kind()]):
            with pytest.raises(fp.DataError, match=says):
                fp.data.read(data)


# ---- where data goes


def compared(tmp_path, data, **more):
    settings = {"model": "logistic", "cohort_size": 2, "seeds": 1, "rounds": 10, "world": "ideal", "executor": "serial"}
    return fp.compare(["uniform", "oort"], data=data, out=tmp_path / "out", **{**settings, **more})


def test_compare_takes_data_sets_frames_and_settings(tmp_path):
    clients = [rows(size, label=size % 2) for size in (3, 4, 5)]
    for data in (
        clients,
        {"a": clients[0], "b": clients[1], "c": clients[2]},
        {"name": clients, "test": clients[0], "seed": 1},
        {"name": FRAME, "client": "site", "label": "outcome"},
        {"name": FRAME.drop(columns="site"), "label": "outcome", "partition": "iid(size=2)", "hold_out": 0.5},
    ):
        world = {"name": "ideal", **({"num_clients": 2} if "partition" in data else {})}
        frame = compared(tmp_path, data, world=world).frame()
        assert len(frame) == 2, data
        assert np.isfinite(frame["train_loss"]).all()


def test_equal_data_is_not_played_again_and_other_data_is(tmp_path):
    for data, runs in (([rows(3), rows(4)], 2), ([rows(3), rows(4)], 2), ([rows(3), rows(5)], 4)):
        compared(tmp_path, data)
        assert len(list((tmp_path / "out" / "runs").iterdir())) == runs


def test_a_mistake_raises_before_a_run_is_made(tmp_path):
    with pytest.raises(fp.DataError, match="client 1, example 1: ValueError: broken"):
        compared(tmp_path, [rows(2), Rows([OK, ValueError("broken")])])
    assert not (tmp_path / "out").exists()


def test_a_file_with_its_columns_in_brackets_and_code_that_gives_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_parquet("a.parquet")
    lines = [
        "import pandas",
        "frame = pandas.read_parquet('a.parquet')",
        "def sites(num_clients, rng):",
        "    return {site: part.drop(columns='site') for site, part in frame.groupby('site')}",
        "def raises():",
        "    raise KeyError('x')",
        "wrong = 3",
    ]
    Path("mine.py").write_text("\n".join(lines))
    for data in (
        "a.parquet(client='site', label='outcome')",
        {"name": "a.parquet", "client": "site", "label": "outcome"},
        {"name": "mine.py:frame", "client": "site", "label": "outcome"},
        {"name": "mine.py:sites", "label": "outcome"},
    ):
        frame = compared(tmp_path, data).frame()
        assert len(frame) == 2, data
    for data, says in (
        ("a.parquet(clients='site')", "unknown setting of file 'clients'; did you mean 'client'"),
        ("mine.py:raises", "mine.py:raises: KeyError: 'x'"),
        ("mine.py:wrong", "mine.py:wrong: data is int, but must be a list or dict of data sets"),
        ({"name": "digits", "label": "y"}, r"\[data\] label: digits has no columns of yours; leave label out"),
        ({"name": FRAME, "client": "site", "label": "outcome", "partition": "iid"}, "comes with its clients"),
    ):
        with pytest.raises(fp.FedpickError, match=says):
            compared(tmp_path, data)


def test_a_plan_may_hold_several_data(tmp_path):
    federated = fp.data.read([rows(2), rows(3)])
    plan = Experiment("uniform", data=[federated, "digits", None])
    assert [each and each["name"].split("-")[0] for each in plan.data] == ["clients", "digits", None]
    assert plan.only(rounds=3).data == plan.data


def test_a_trainer_takes_data_sets_too():
    trainer = fp.learn.Trainer([rows(3), rows(4, label=1)], fp.learn.logistic((2,), 2))
    assert trainer.data.sizes.tolist() == [3, 4]
    with pytest.raises(fp.ContractError, match=r"is not divided among clients: data = fp\.data\.Dirichlet"):
        fp.learn.Trainer(rows(3), "logistic")


def test_nothing_is_imported_to_tell_what_an_object_is():
    from fedpick.data.objects import is_data

    assert not any(
        map(is_data, (3, "digits", None, np.zeros(3), [], {}, {"name": "digits"}, ["digits"], SimpleNamespace()))
    )
    assert is_data(FRAME)
    assert is_data([FRAME, rows(2)])
