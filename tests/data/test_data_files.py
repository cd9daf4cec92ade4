"""Parquet files of the user's own: what they hold is read right, and what would fill the memory is refused before."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.data import files
from fedpick.data.files import load_file


def lists(values: int, deep: int = 1) -> pa.Array:
    """One row of this many zeros, each in lists of one but for the outermost."""
    found, each = pa.array(np.zeros(values, np.float32)), np.arange(values + 1, dtype=np.int32)
    for _ in range(deep - 1):
        found = pa.ListArray.from_arrays(pa.array(each), found)
    return pa.ListArray.from_arrays(pa.array([0, values], pa.int32()), found)


def written(path: Path, columns, **more) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", **more)
    return path


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_lists_of_lists_are_read_as_python_reads_them(tmp_path_factory, shape, rows, group, names) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, *shape)).astype(np.float32)
    columns = {"x": x.tolist(), "y": np.arange(rows), "test": [False] * rows}
    if names:
        columns["client"] = [f"site {k % 2}" for k in range(rows)]
    found = load_file(written(tmp_path_factory.mktemp("data") / "a.parquet", columns, row_group_size=group))
    dataset = found.dataset if names else found
    np.testing.assert_array_equal(dataset.x, x)
    np.testing.assert_array_equal(dataset.y, np.arange(rows))
    if names:
        assert [sorted(found.examples_of(k).tolist()) for k in range(len(found))] == [
            [k for k in range(rows) if k % 2 == client] for client in range(min(rows, 2))
        ]


BOMBS = {
    "a row of many values": lambda: {"x": lists(80_000_000), "y": [0]},
    "a row of many nested lists": lambda: {"x": lists(30_000_000, 4), "y": [0]},
}


@pytest.mark.parametrize("what", BOMBS)
def test_lists_that_need_more_memory_than_promised_are_refused_unread(tmp_path, what, monkeypatch) -> None:
    file = written(tmp_path / "a.parquet", BOMBS[what]())
    assert file.stat().st_size < 10_000
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", None)
    with pytest.raises(fp.DataError, match=r"claims \d+ bytes in \d+ bytes of file; it is damaged or made to harm"):
        load_file(file)


def test_a_long_name_in_every_row_is_refused_in_little_memory(tmp_path) -> None:
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["a" * 1_000_000]))
    file = written(tmp_path / "a.parquet", {"a": np.zeros(100_000), "y": np.zeros(100_000), "client": names})
    code = "import sys, resource as r; r.setrlimit(r.RLIMIT_AS, (4 * 2**30,) * 2)\n"
    code += "from fedpick.data.files import load_file\nload_file(sys.argv[1])"
    ended = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert "DamagedError" in ended.stderr
    assert "holds names of clients of 400000000000 bytes" in ended.stderr


def test_a_footer_that_is_not_true_is_noticed_while_row_groups_are_read(tmp_path, monkeypatch) -> None:
    file = written(tmp_path / "a.parquet", {"x": [[1.0] * 100] * 1000, "y": [0] * 1000}, row_group_size=10)
    assert len(load_file(file)) == 1000
    monkeypatch.setattr(files, "_claimed", lambda file: 0)
    monkeypatch.setattr(files, "LARGEST", 50_000)
    monkeypatch.setattr(files, "MOST_DENSE", 0)
    with pytest.raises(fp.DataError, match=r"holds 5\d{4} bytes in"):  # not all 800,000
        load_file(file)


@pytest.mark.parametrize(
    "columns",
    [
        {"x": [[1.0], [1.0, 2.0]], "y": [0, 1]},
        {"x": [[1.0], None], "y": [0, 1]},
        {"x": [[[1.0]], [[1.0], [2.0]]], "y": [0, 1]},
        {"x": [[1.0], [None]], "y": [0, 1]},
        {"a": ["x", "y"], "y": [0, 1]},
    ],
)
def test_what_is_no_table_of_numbers_is_one_line(tmp_path, columns) -> None:
    with pytest.raises(fp.DataError, match=r"a.parquet: "):
        load_file(written(tmp_path / "a.parquet", columns))


X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
WRONG = {
    "nothing of x": (
        {"y": Y},
        r"has no 'x', but y; save it with np\.savez\(file, x=\.\.\., y=\.\.\.\), or name the arrays",
    ),
    "nothing of y": ({"x": X}, "has no 'y', but x; save it with"),
    "other names": ({"images": X, "labels": Y}, "has no 'x', but images, labels; save it with"),
    "a slip": (
        {"x": X, "y": Y, "clients": Y},
        "holds clients, x, y, but 'clients' is none of x, y, client, test_x, test_y",
    ),
    "one half of a test": ({"x": X, "y": Y, "test_x": X}, "has one of test_x and test_y; give both, or none"),
    "the other half": ({"x": X, "y": Y, "test_y": Y}, "has one of test_x and test_y; give both, or none"),
    "a wider test": (
        {"x": X, "y": Y, "test_x": np.zeros((4, 3)), "test_y": Y},
        r"test_x has inputs of shape \(3,\), but x of shape \(2,\)",
    ),
    "no rows": ({"x": X[0], "y": Y[:2]}, r"the inputs have shape \(2,\), but must have a row for each example"),
    "texts": ({"x": X.astype(str), "y": Y}, "the inputs are <U32, but must be numbers"),
    "NaN": ({"x": X * np.nan, "y": Y}, "the inputs hold NaN or infinity, in 4 of 4 examples, first in example 0"),
    "NaN in the test": ({"x": X, "y": Y, "test_x": X * np.nan, "test_y": Y}, "the inputs hold NaN or infinity"),
    "labels as rows of texts": (
        {"x": X, "y": np.array([["a", "b"]] * 4)},
        r"the labels are <U1 of shape \(4, 2\), but must be numbers, or one text for each example",
    ),
    "labels for tests of another shape": (
        {"x": X, "y": Y, "test_x": X, "test_y": np.stack([Y, Y], 1)},
        r"test_y has labels of shape \(2,\), but y of shape \(\) for each example",
    ),
    "too few labels": ({"x": X, "y": Y[:3]}, "4 inputs, but y has 3: one label each"),
    "a label below 0": ({"x": X, "y": Y - 1}, "the labels go from -1 to 0, but must be from 0 to"),
    "a label too large": ({"x": X, "y": Y * 10**7}, "the labels go from 0 to 10000000, but must be from 0 to"),
    "a target of NaN": ({"x": X, "y": Y * np.nan}, "the labels hold NaN or infinity"),
    "too few names": ({"x": X, "y": Y, "client": Y[:3]}, "4 examples, but client has 3: one each"),
    "names in rows": ({"x": X, "y": Y, "client": X}, r"client is float32 of shape \(4, 2\), but must be one name each"),
}


@pytest.mark.parametrize("what", WRONG)
def test_arrays_that_are_no_data_set_are_refused_with_what_is_wrong(tmp_path, what) -> None:
    arrays, says = WRONG[what]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(fp.DataError, match=says):
        load_file(tmp_path / "a.npz")


def test_no_file_and_no_columns_are_said(tmp_path) -> None:
    with pytest.raises(fp.DataError, match=r"none\.npz: there is no such file"):
        load_file(tmp_path / "none.npz")
    for columns, says in (
        ({"a": [1]}, "has no column y, label or target, but a"),
        ({"y": [1]}, "no columns of inputs"),
    ):
        with pytest.raises(fp.DataError, match=says):
            load_file(written(tmp_path / "a.parquet", columns))


def test_arrays_and_columns_of_other_names(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", images=X + 1, kind=Y, site=["b", "a", "b", "a"], test_images=X[:1], test_kind=Y[:1])
    pairs = {"a": [1.0, 2], "b": [3, 4], "kind": ["no", "yes"], "site": ["q", "p"], "x": [0, 0], "client": [1, 1]}
    table = written(tmp_path / "a.parquet", pairs)
    found = fp.data.read(tmp_path / "a.npz", inputs="images", label="kind", client="site")
    assert [found.examples_of(k).tolist() for k in range(2)] == [[1, 3], [0, 2]]
    np.testing.assert_array_equal(found.dataset.test_x, X[:1])
    found = fp.data.read(table, inputs=["b", "a"], label="kind", client="site")
    np.testing.assert_array_equal(found.dataset.x, [[3, 1], [4, 2]])
    np.testing.assert_array_equal(found.dataset.y, [0, 1])
    assert found.examples_of(0).tolist() == [1]


@pytest.mark.parametrize(
    ("file", "columns", "says"),
    [
        ("a.parquet", {"client": "sites"}, "client = 'sites', but the columns are a, site, y; did you mean 'site'"),
        ("a.parquet", {"label": "z"}, "label = 'z', but the columns are a, site, y; name one of these: label='a'"),
        ("a.parquet", {"inputs": ["a", "b"]}, "inputs = 'b', but the columns are a, site, y"),
        ("a.parquet", {"inputs": 3}, "inputs = 3, but must be the name of a column, or a list of names"),
        ("a.parquet", {"label": 3}, "label = 3, but must be the name of a column"),
        ("a.parquet", {}, "the column 'site' holds str ('p'), but inputs must be numbers; make numbers of it, or name"),
        ("a.npz", {"client": "site"}, "has no 'site', but x, y"),
        ("a.npz", {"inputs": ["x", "y"]}, "of a .npz one array holds all inputs"),
        ("a.csv", {}, "a.csv: is no file of data; it must end in .npz or .parquet"),
    ],
)
def test_names_that_are_not_there(tmp_path, file, columns, says) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    written(tmp_path / "a.parquet", {"a": [1.0, 2], "site": ["p", "q"], "y": [0, 1]})
    with pytest.raises(fp.DataError) as caught:
        fp.data.read(tmp_path / file, **columns)
    assert says in str(caught.value)
