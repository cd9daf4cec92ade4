"""Data from objects of other libraries: PyTorch, Hugging Face, flwr-datasets, pandas. None of them is imported here.

    [Dataset, ...] or {"name": Dataset, ...}     a `torch.utils.data.Dataset` for each client (or what indexes like one)
    datasets.Dataset, datasets.DatasetDict       with a column that names the client of each example
    FederatedDataset, a Partitioner              of flwr-datasets, a client for each partition
    pandas.DataFrame                             with a column that names the client of each row

Examples are copied once, into the flat arrays of `fedpick.data.federated`. A module of PyTorch gets each as its data
set gave it; in the arrays, images have their channels last.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError, DataError
from fedpick.data.examples import OF_ONE, Stack, column_of, filled, kind_of, length_of, names_of, type_of, wanted
from fedpick.data.federated import Dataset, Federated
from fedpick.data.files import ENDINGS, load_file
from fedpick.data.tables import Columns, from_arrays, known_column

__all__ = ["divided", "is_data", "read"]


def is_data(thing: Any) -> bool:
    """Whether `read` takes this object: one of the libraries, or a list or dict with one for each client."""
    if isinstance(thing, Dataset | Federated) or kind_of(thing):
        return True
    several = list(thing.values()) if isinstance(thing, Mapping) else thing
    return isinstance(several, list | tuple) and bool(several) and all(kind_of(each) in OF_ONE for each in several)


def read(
    data: Any,
    *,
    client: str | None = None,
    label: str | None = None,
    inputs: str | Sequence[str] | None = None,
    test: Any = None,
    name: str | None = None,
) -> Dataset | Federated:
    """Read data as people have it: a Federated if the clients are known, otherwise a Dataset, to be divided.

    Args:
        data: a list or dict of PyTorch's data sets, one for each client; a data set or the splits ("train", "test") of
            Hugging Face; a FederatedDataset or a partitioner of flwr-datasets; a DataFrame; or a file, "mine.parquet"
            or "mine.npz".
        client: the column that names the client of each example; None: "client", if there is one.
        label: the column to predict; None: "y", "label" or "target".
        inputs: the column of the inputs, or several; None: "x", or all others.
        test: examples for testing, which belong to no client: an object as one client of `data` has.
        name: of the data set; None: what it is.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [41, 52, 63], "site": ["b", "a", "b"], "y": [0, 1, 1]})
    >>> read(frame, client="site")
    Federated('frame', 2 clients, 1 to 2 examples each)
    """
    columns = Columns(client, label, inputs)
    if isinstance(data, str | Path):
        if not str(data).endswith(ENDINGS):
            raise DataError(f"{data}: is no file of data; it must end in {' or '.join(ENDINGS)}")
        if test is not None:
            raise DataError(f"{data}: test is given, but a file has its own: test_x and test_y, or the column test")
        return load_file(data, columns)
    if isinstance(data, Dataset | Federated):
        if test is not None or columns != Columns():
            raise DataError(f"{data!r}: client, label, inputs and test are already in it; leave them out")
        return data
    return _of(data, columns, test, name)


def divided(data: Any) -> Federated:
    """The same, for what needs to know the clients."""
    found = read(data)
    if isinstance(found, Federated):
        return found
    raise ContractError(
        f"{found!r} is not divided among clients: data = fp.data.Dirichlet(alpha=0.3)(data, 100, fp.rng.stream(0, 0, "
        "'data')), or give a list with a data set for each client, or the column that names them"
    )


def _of(data: Any, columns: Columns, test: Any, name: str | None) -> Dataset | Federated:
    kind, several = kind_of(data), isinstance(data, Mapping | list | tuple)
    if kind == "splits":
        data, test = _splits(data, test)
        kind, several = kind_of(data), False
    if kind in ("columns", "frame"):
        return _one(data, columns, test, name or kind)
    if kind == "rows":
        return _stacked(name or "data", [("the data set", data)], columns, test, owners=False)
    if kind in ("federated", "partitions"):
        parts, test = _partitions(data, test)
        return _stacked(name or "partitions", parts, columns, test)
    if several and is_data(data):
        pairs = data.items() if isinstance(data, Mapping) else enumerate(data)
        return _stacked(name or "clients", ((f"client {key!r}", each) for key, each in pairs), columns, test)
    raise DataError(f"data is {type_of(data)}, but must be {wanted(data)}")


def _splits(data: Any, test: Any) -> tuple[Any, Any]:
    """The training and test examples of Hugging Face's splits."""
    if "train" not in data:
        raise DataError(
            f"the DatasetDict has the splits {', '.join(data)}, but no 'train'; give one: data=splits['...']"
        )
    return data["train"], data["test"] if test is None and "test" in data else test


def _partitions(data: Any, test: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The partitions of flwr-datasets, and the examples for testing."""
    try:
        if kind_of(data) == "federated":
            found = data.partitioners
            if len(found) != 1:
                raise DataError(
                    f"the FederatedDataset has partitioners of {', '.join(found) or 'nothing'}, but must have one, of "
                    "the split to train on; give the partitioner: data=dataset.partitioners['train']"
                )
            (split,) = found
            if test is None and split != "test":
                try:
                    test = data.load_split("test")
                except ValueError:  # there is none
                    test = None
            data = found[split]
        if not data.is_dataset_assigned():
            raise DataError(
                f"the {type(data).__name__} has no data set to divide; assign one first: partitioner.dataset = dataset"
            )
        return [(f"partition {k}", data.load_partition(k)) for k in range(data.num_partitions)], test
    except DataError:
        raise
    except Exception as error:  # of the library, or of the user's own partitioner
        raise DataError(f"{type(data).__name__}: {type(error).__name__}: {str(error)[:300]}") from None


def _one(data: Any, columns: Columns, test: Any, name: str) -> Dataset | Federated:
    """A table that may name the client of each row, and which rows are for testing."""
    source, names = f"the {type(data).__name__}", list(map(str, names_of(data)))
    owner = known_column(source, columns.client, names, "client") if columns.client else "client"
    stack = filled(source, data, columns)
    x, y, more = stack.x, stack.y, {}
    client = column_of(data, owner) if owner in names else None
    if client is not None and client.dtype.kind == "O":
        client = client.astype(str)
    if test is None and "test" in names:
        mask = column_of(data, "test").astype(bool)
        if mask.any():
            x, y, more = x[~mask], y[~mask], {"test_x": x[mask], "test_y": y[mask]}
            client = None if client is None else client[~mask]
    return from_arrays(source, name, x, y, client, **(more or _tested(test, columns)), whole=stack.whole)


def _stacked(
    name: str, parts: Iterable[tuple[str, Any]], columns: Columns, test: Any, owners: bool = True
) -> Dataset | Federated:
    """The clients' examples one after another, each copied once."""
    if columns.client is not None:
        raise DataError(f"client = {columns.client!r}, but here each data set is a client's; leave client out")
    several = list(parts)
    sizes = [length_of(who, each) for who, each in several]
    if 0 in sizes:
        raise DataError(f"{several[sizes.index(0)][0]}: has no examples; leave such clients out")
    stack = Stack(sum(sizes))
    for who, each in several:
        stack.take(who, each, columns)
    flat = from_arrays(name, name, stack.x, stack.y, **_tested(test, columns), whole=stack.whole)
    if not owners or isinstance(flat, Federated):
        return flat
    return Federated(flat, np.arange(len(flat)), np.concatenate([[0], np.cumsum(sizes)]))


def _tested(test: Any, columns: Columns) -> dict[str, Any]:
    """The examples for testing, as arguments of `from_arrays`."""
    if test is None:
        return {}
    if kind_of(test) not in OF_ONE:
        raise DataError(
            f"test is {type_of(test)}, but must be examples as one client has, such as a data set of PyTorch"
        )
    stack = filled("test", test, columns)
    return {"test_x": stack.x, "test_y": stack.y}
