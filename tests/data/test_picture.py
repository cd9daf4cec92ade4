"""A split as a figure and in words."""

import sys

import numpy as np
import pytest

from fedpick.core.errors import MissingError
from fedpick.data.federated import Dataset, Federated, hold_out
from fedpick.data.generators import generate
from fedpick.data.partitions import partition
from fedpick.data.picture import describe, draw


def split(text, clients, classes=10, N=3_000):
    y = (np.arange(N) % classes).astype(np.int32)
    data = Dataset("toy", np.zeros((N, 1), np.float32), y, classes=classes)
    return partition(text, data, clients, np.random.default_rng(1))


def heights(axes):
    return np.array([[bar.get_height() for bar in bars] for bars in axes.containers])


def test_few_clients_are_stacked_bars_with_a_legend(tmp_path):
    shown = split("dirichlet(0.5)", 10)
    figure = draw(shown, "ten clients")
    mix, side, amount, spread = figure.axes
    np.testing.assert_allclose(heights(mix), (shown.labels / shown.sizes[:, None]).T)
    assert [text.get_text() for text in side.get_legend().get_texts()] == [str(label) for label in range(9, -1, -1)]
    np.testing.assert_array_equal(heights(amount)[0], shown.sizes)
    assert sum(bar.get_width() for bar in spread.patches) == 10
    assert amount.get_xlabel() == "client"
    assert figure.get_suptitle() == "ten clients"
    figure.savefig(tmp_path / "few.png")
    assert (tmp_path / "few.png").stat().st_size > 5_000


@pytest.mark.parametrize(("clients", "classes"), [(300, 10), pytest.param(20, 26, marks=pytest.mark.slow)])
def test_many_clients_or_labels_are_a_heat_map_in_order(clients, classes, tmp_path):
    shown = split("dirichlet-labels(0.2, size=50)", clients, classes)
    figure = draw(shown, "many")
    mix, amount = figure.axes[0], figure.axes[2]
    cells = np.asarray(mix.collections[0].get_array()).reshape(classes, clients)
    np.testing.assert_allclose(cells.sum(axis=0), 1.0)
    assert (np.diff(cells.argmax(axis=0)) >= 0).all()
    assert "sorted by the label" in amount.get_xlabel()
    figure.savefig(tmp_path / "many.svg")


def test_sizes_stand_under_the_mixes_that_they_belong_to():
    shown = split("labels-per-client(1, size=log-normal(sigma=1))", 80)
    figure = draw(shown, "sizes")
    cells = np.asarray(figure.axes[0].collections[0].get_array()).reshape(10, 80)
    stairs = figure.axes[2].patches[0].get_data().values
    for label in range(10):
        drawn = stairs[cells.argmax(axis=0) == label].sum()
        assert drawn == shown.sizes[shown.labels.argmax(axis=1) == label].sum()


@pytest.mark.parametrize("clients", [20, 100])
def test_a_regression_shows_sizes_only(clients):
    figure = draw(generate("linear-regression(size=log-normal(mean=100))", clients, np.random.default_rng(0)), "line")
    assert len(figure.axes) == 2
    assert figure.axes[0].get_yscale() == "log"
    assert ("largest first" in figure.axes[0].get_xlabel()) == (clients > 60)


def test_equal_sizes_are_on_a_plain_scale():
    figure = draw(split("iid", 30), "equal")
    assert figure.axes[2].get_yscale() == "linear"
    assert len(draw(split("iid", 1), "one").axes) == 4


def test_the_description_counts_everything():
    shown = hold_out(split("iid(size=100)", 20), 0.1, np.random.default_rng(2))
    assert describe(shown).splitlines()[:3] == [
        "toy: 20 clients, 10 labels",
        "examples: 1,800 to train on, 200 held out by clients, 0 to test for everyone",
        "examples per client: 90 least, 90 median, 90 most",
    ]


@pytest.mark.parametrize(("text", "labels", "distance"), [("labels-per-client(1)", 1.0, 0.9), ("iid", 10.0, 0.066)])
def test_how_far_mixes_are_from_the_whole(text, labels, distance):
    """One label of ten is 1 - 1/10 away; a tenth of the data, 300 examples, 0.9 sqrt(10 / (2 pi 300)) on average."""
    last = describe(split(text, 10)).splitlines()[-1]
    assert last.startswith(f"labels per client: {labels} on average; label mixes are ")
    assert abs(float(last.split("label mixes are ")[1].split()[0]) - distance) < 0.02


def test_the_description_says_that_clients_share_examples():
    data = split("iid", 2).dataset
    shared = Federated(data, np.array([0, 1, 1, 0]), np.array([0, 2, 4]))
    assert "50% of the training examples are copies of others" in describe(shared)


def test_the_description_of_a_regression_has_no_labels():
    text = describe(generate("linear-regression", 20, np.random.default_rng(0)))
    assert text.splitlines()[0] == "linear-regression: 20 clients, a regression"
    assert "1,000 to test for everyone" in text
    assert "label mixes" not in text


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"needs matplotlib: pip install 'fedpick\[report\]'"):
        draw(split("iid", 3), "none")
