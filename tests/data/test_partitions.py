"""Every partition: whole, reproducible, and errors that give the fix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import DISJOINT, EVEN, REGRESSION, SHARED, UNEVEN, labelled, rng, sets

from fedpick.core.errors import SettingError, UnknownNameError
from fedpick.data.partitions import (
    IID,
    partition,
)


@pytest.mark.parametrize("text", DISJOINT + SHARED)
@given(clients=st.integers(1, 12), seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_every_split_is_whole(text, clients, seed):
    for data in (EVEN, UNEVEN):
        try:
            split = partition(text, data, clients, rng(seed))
        except SettingError:  # too much wanted of a label of the uneven data: said, never dealt
            assert data is UNEVEN
            continue
        held = sets(split)
        assert len(split) == clients
        assert min(split.sizes) >= 1
        assert [len(one) for one in held] == split.sizes.tolist()  # a client has nothing twice
        if text in DISJOINT:
            assert len(set().union(*held)) == split.sizes.sum()
        again = partition(text, data, clients, rng(seed))
        np.testing.assert_array_equal(split.examples, again.examples)
        np.testing.assert_array_equal(split.starts, again.starts)


@pytest.mark.parametrize(
    "text", ["iid", "dirichlet", "primary-label(size=20)", "labels-per-client", "dirichlet-labels(size=20)"]
)
def test_another_seed_is_another_split(text):
    one, other = (partition(text, EVEN, 5, rng(seed)) for seed in (1, 2))
    assert not np.array_equal(one.examples, other.examples)


# Errors


ERRORS = [
    ("iid", EVEN, 0, "IID: num_clients = 0, but must be an integer >= 1"),
    ("iid", EVEN, 601, "IID: num_clients = 601, but must be <= 600, the number of examples of toy; every client needs"),
    ("iid(overlap=True)", EVEN, 601, "IID: num_clients = 601, but must be <= 600"),
    ("iid(size=0)", EVEN, 2, "IID: size = 0, but must be an integer >= 1, a law of sizes, or None for all the data"),
    ("iid(size=True)", EVEN, 2, "IID: size = True, but must be an integer >= 1"),
    ("iid(size='big')", EVEN, 2, "IID: size = 'big', but must be an integer >= 1"),
    (
        "iid(size=500)",
        EVEN,
        2,
        "IID: examples for 2 clients = 1000, but must be <= 600: toy has no more, and no example is "
        "given twice; take at most 1 clients, or a size of at most 300, or overlap=True",
    ),
    (
        "iid(size=601, overlap=True)",
        EVEN,
        1,
        "IID: largest client = 601, but must be <= 600, the examples of toy; take a smaller size",
    ),
    ("iid(size=log-normal(mean=100))", EVEN, 7, "IID: examples for 7 clients = 700, but must be <= 600"),
    (
        "iid(size=log-normal(at_least=100))",
        EVEN,
        7,
        "LogNormalSizes: at_least * num_clients = 700, but must be <= 600, the "
        "examples to give; take fewer clients or a lower at_least",
    ),
    ("iid(size=log-normal(sigma=-1))", EVEN, 7, "LogNormalSizes: sigma = -1, but must be in [0, 10]"),
    ("iid(size=log-normal(mean=2))", EVEN, 7, "LogNormalSizes: mean = 2, but must be finite and >= at_least = 10"),
    ("iid(size=power-law(a=0))", EVEN, 7, "PowerLawSizes: a = 0, but must be in [0.01, 1e6]; the paper has 3"),
    ("iid(size=power-law(at_least=0))", EVEN, 7, "PowerLawSizes: at_least = 0, but must be an integer >= 1"),
    ("primary-label(1.2)", EVEN, 2, "PrimaryLabel: share = 1.2, but must be in [0, 1]; the paper has 0.8"),
    ("primary-label", REGRESSION, 2, "PrimaryLabel divides by label, but line is a regression (classes = 0); use iid"),
    (
        "primary-label(size=100)",
        EVEN,
        2,
        "PrimaryLabel: client 0 wants 80 examples of one label and 20 of the others, but no label of toy has so many "
        "(60 of 600 at most); take a smaller size",
    ),
    ("primary-label(0.1, size=100)", labelled(120), 20, "wants 10 examples of one label and 90 of the others, but no"),
    (
        "dirichlet-labels(1e6, size=100)",
        labelled(10, 590),
        2,
        "label 0 wanted by one client = 50, but must be <= 10: toy has no more; take a size smaller by 80%",
    ),
    ("primary-label(1.0, size=50, overlap=False)", EVEN, 12, "wanted by all clients ="),
    ("primary-label(1.0, size=50, overlap=False)", EVEN, 12, "%, or fewer clients, or overlap=True"),
    (
        "dirichlet-labels(0)",
        EVEN,
        2,
        "DirichletLabels: alpha = 0, but must be in [0.001, 1e6]; a larger alpha makes clients more alike",
    ),
    (
        "dirichlet-labels(0.01, size=60, overlap=False)",
        EVEN,
        10,
        "but must be <= 60: toy has no more, and no example is",
    ),
    ("dirichlet(1e9)", EVEN, 2, "Dirichlet: alpha = 1000000000.0, but must be in [0.001, 1e6]"),
    ("dirichlet(at_least=0)", EVEN, 2, "Dirichlet: at_least = 0, but must be an integer >= 1"),
    ("dirichlet(tries=0)", EVEN, 2, "Dirichlet: tries = 0, but must be an integer >= 1"),
    (
        "dirichlet(at_least=301)",
        EVEN,
        2,
        "Dirichlet: at_least * num_clients = 602, but must be <= 600, the examples of toy; "
        "take fewer clients or a lower at_least",
    ),
    (
        "dirichlet(0.01, at_least=30, tries=5)",
        EVEN,
        19,
        "Dirichlet: in 5 tries the poorest of 19 clients held at most 0 "
        "examples, but at_least = 30; raise alpha = 0.01, lower at_least or take fewer clients",
    ),
    (
        "labels-per-client(11)",
        EVEN,
        2,
        "LabelsPerClient: labels = 11, but must be <= 10, the labels that toy has examples",
    ),
    ("labels-per-client(5)", UNEVEN, 2, "LabelsPerClient: labels = 5, but must be <= 4, the labels that uneven has"),
    ("labels-per-client(0)", EVEN, 2, "LabelsPerClient: labels = 0, but must be an integer >= 1"),
    (
        "labels-per-client(3, size=2)",
        EVEN,
        2,
        "LabelsPerClient: size = 2, but must be >= labels = 3; every label needs",
    ),
    (
        "labels-per-client(2, size=40)",
        EVEN,
        20,
        "LabelsPerClient: examples for 20 clients = 800, but must be <= 600: toy "
        "has no more, and no example is given twice; take at most 15 clients, or a size of at most 30",
    ),
    (
        "labels-per-client(10)",
        EVEN,
        61,
        "LabelsPerClient: clients that hold label 0 = 61, but must be <= 60, its examples; "
        "take fewer clients or labels per client, or a larger mean",
    ),
]


@pytest.mark.parametrize(("text", "data", "clients", "message"), ERRORS)
def test_what_cannot_be_made_is_an_error_with_the_fix(text, data, clients, message):
    with pytest.raises(SettingError) as error:
        partition(text, data, clients, rng())
    assert message in str(error.value)


def test_the_fix_of_too_many_examples_works():
    data = labelled(*[6000] * 10)
    with pytest.raises(SettingError, match="at most 120 clients, or a size of at most 300, or overlap=True"):
        IID(size=500)(data, 200, rng())
    assert len(IID(size=500)(data, 120, rng())) == 120
    assert len(IID(size=300)(data, 200, rng())) == 200
    assert len(IID(size=500, overlap=True)(data, 200, rng())) == 200


def test_an_unknown_partition_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown partition 'dirichlt'; did you mean 'dirichlet'"):
        partition("dirichlt(0.3)", EVEN, 2, rng())
    with pytest.raises(UnknownNameError, match="did you mean 'log-normal'"):
        partition("iid(size=lognorml())", EVEN, 2, rng())
