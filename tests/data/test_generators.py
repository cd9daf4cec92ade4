"""Made data: the recipes of the papers, step by step."""

import numpy as np
import pytest

from fedpick.core.errors import SettingError, UnknownNameError
from fedpick.data.generators import FedGSSynthetic, LinearRegression, Synthetic, generate
from fedpick.data.partitions import LogNormalSizes


def rng(seed=0):
    return np.random.default_rng(seed)


def synthetic_twin(alpha, beta, dim, classes, clients, rng):
    """FedProx's recipe, one example after the other; random numbers in the order of `Synthetic`."""
    sizes = [int(size) + 50 for size in rng.lognormal(4, 2, clients)]
    u = rng.normal(0, alpha, clients)
    B = rng.normal(0, beta, clients)
    data = []
    for k in range(clients):
        v = rng.normal(B[k], 1, dim)
        W = rng.normal(u[k], 1, (dim, classes))
        b = rng.normal(u[k], 1, classes)
        mine = []
        for _ in range(sizes[k]):
            x = np.array([v[j] + np.sqrt((j + 1) ** -1.2) * rng.standard_normal() for j in range(dim)], np.float32)
            scores = [sum(x[j] * W[j, c] for j in range(dim)) + b[c] for c in range(classes)]
            odds = np.exp(np.array(scores) - max(scores))
            mine.append((x, int(np.argmax(odds / odds.sum()))))
        data.append(mine)
    return data


def test_synthetic_is_fedproxs_recipe():
    clients = 4
    fast = Synthetic(1.0, 1.0, dim=3, classes=4, test=0.0)(clients, rng(5))
    slow = synthetic_twin(1.0, 1.0, 3, 4, clients, rng(5))
    for k in range(clients):
        mine = fast.examples_of(k)
        assert len(mine) == len(slow[k])
        np.testing.assert_allclose(fast.dataset.x[mine], [x for x, _ in slow[k]], rtol=1e-5)
        assert fast.dataset.y[mine].tolist() == [y for _, y in slow[k]]


def test_inputs_have_the_recipes_spread():
    K, n, dim, beta = 300, 40, 5, 2.0
    made = Synthetic(0.0, beta, dim=dim, size=n, test=0.0)(K, rng())
    x = made.dataset.x.reshape(K, n, dim)
    within = x.var(axis=1, ddof=1).mean(axis=0)  # of the examples of one client
    variance = np.arange(1, dim + 1) ** -1.2
    assert (np.abs(within - variance) < 4.5 * variance * np.sqrt(2 / (K * (n - 1)))).all()
    centres = x.mean(axis=1)
    between = centres.mean(axis=1).var(ddof=1)  # of clients' mean inputs: beta^2 and the mean of v_k
    expected = beta**2 + (1 + variance.mean() / n) / dim
    assert abs(between - expected) < 4.5 * expected * np.sqrt(2 / K)


def test_alpha_moves_all_scores_alike_and_so_no_label():
    one, other = (Synthetic(alpha, 0.5, size=50)(20, rng(3)) for alpha in (0.0, 5.0))
    np.testing.assert_array_equal(one.dataset.x, other.dataset.x)
    assert (one.dataset.y == other.dataset.y).mean() > 0.999  # but for rounding


def test_synthetic_sizes_and_what_is_held_out():
    made = Synthetic(0.5, 0.5)(30, rng())
    held = np.diff(made.held_starts)
    assert (made.sizes + held).min() >= 50
    np.testing.assert_array_equal(held, np.rint(0.1 * (made.sizes + held)))
    np.testing.assert_array_equal(made.dataset.test_x, made.dataset.x[made.held])
    np.testing.assert_array_equal(made.dataset.test_y, made.dataset.y[made.held])
    assert not set(made.held) & set(made.examples)
    assert made.dataset.x.dtype == np.float32
    assert made.dataset.y.dtype == np.int32
    K = 5_000
    logs = np.log(Synthetic(dim=1, classes=2, test=0.0)(K, rng()).sizes - 49.5)
    assert abs(np.median(logs) - 4.0) < 4.5 * 1.2533 * 2.0 / np.sqrt(K) + 0.02  # whole numbers


def test_nothing_held_out_is_no_test_set():
    made = Synthetic(test=0.0, size=20)(3, rng())
    assert len(made.dataset.test_x) == len(made.held) == 0


def test_linear_regression_is_one_line_for_all():
    made = LinearRegression(dim=4, size=500, noise=0.3, shift=2.0, test=3_000)(20, rng())
    x, y = made.dataset.x.astype(float), made.dataset.y
    w, *_ = np.linalg.lstsq(x, y, rcond=None)
    spread = (made.dataset.test_y - made.dataset.test_x @ w).std()
    assert abs(spread - 0.3) < 4.5 * 0.3 / np.sqrt(2 * 3_000)
    centres = np.array([x[made.examples_of(k)].mean(axis=0) for k in range(20)])
    expected = 4.0 + 1 / 500
    assert abs(centres.var() - expected) < 4.5 * expected * np.sqrt(2 / 80)
    np.testing.assert_allclose((x - np.repeat(centres, 500, axis=0)).var(axis=0), 1.0, atol=4.5 * np.sqrt(2 / 10_000))
    assert made.dataset.classes == 0
    assert made.labels is None
    assert made.dataset.y.dtype == made.dataset.x.dtype == np.float32


def test_linear_regression_without_shift_is_iid():
    made = LinearRegression(size=400)(20, rng())
    centres = np.array([made.dataset.x[made.examples_of(k)].mean(axis=0) for k in range(20)])
    assert np.abs(centres).max() < 4.5 / np.sqrt(400)
    assert (made.sizes == 400).all()
    skewed = LinearRegression(size=LogNormalSizes(1.0, mean=100))(20, rng())
    assert skewed.sizes.sum() == 2_000
    assert skewed.sizes.max() > 3 * skewed.sizes.min()


def test_test_examples_are_fresh():
    made = LinearRegression(size=30, test=50)(5, rng())
    train = {row.tobytes() for row in made.dataset.x}
    assert not any(row.tobytes() in train for row in made.dataset.test_x)


def test_test_examples_are_from_the_clients_in_proportion_to_their_sizes():
    made = LinearRegression(dim=2, size=LogNormalSizes(1.0, mean=200), shift=50.0, test=5_000)(10, rng())
    centres = np.array([made.dataset.x[made.examples_of(k)].mean(axis=0) for k in range(10)])
    nearest = np.linalg.norm(made.dataset.test_x[:, None] - centres, axis=2).argmin(axis=1)
    share = made.sizes / made.sizes.sum()
    error = np.sqrt(share * (1 - share) / 5_000)
    assert (np.abs(np.bincount(nearest, minlength=10) / 5_000 - share) < 4.5 * error).all()


def test_the_data_of_fedgs_is_the_same_for_every_seed_and_has_its_authors_draws():
    one, other = (FedGSSynthetic()(4, rng(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one.dataset.x, other.dataset.x)
    # By their order: a global model, the models' means, then each model, drawn with the seed 97.
    legacy = np.random.RandomState(97)
    legacy.normal(size=60 * 10 + 10)
    means = legacy.normal(0, 0.5, 4)
    first = legacy.normal(means[0], 1, (60, 10))
    models = FedGSSynthetic().models(4)
    np.testing.assert_allclose(models[0, :600], first.ravel())
    # Labels are those of the client's own model, and the last tenth is held out.
    for k in range(4):
        mine = one.examples[one.starts[k] : one.starts[k + 1]]
        w, b = models[k, :600].reshape(60, 10), models[k, 600:]
        right = np.argmax(one.dataset.x[mine] @ w + b, axis=1) == one.dataset.y[mine]
        assert right.mean() > 0.99  # stored in single precision
        held = one.held[one.held_starts[k] : one.held_starts[k + 1]]
        total = held[-1] + 1 - mine[0]
        assert (len(mine), len(held)) == (int(0.75 * total), total - int(0.9 * total))


@pytest.mark.parametrize("text", ["synthetic(size=20)", "linear-regression(shift=1)", "quadratic"])
def test_the_same_seed_is_the_same_data(text):
    one, again, other = (generate(text, 5, rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.dataset.x, again.dataset.x)
    np.testing.assert_array_equal(one.dataset.y, again.dataset.y)
    np.testing.assert_array_equal(one.examples, again.examples)
    assert not np.array_equal(one.dataset.y, other.dataset.y)


ERRORS = [
    ("fedgs-synthetic(-1)", 3, "FedGSSynthetic: alpha = -1, but must be in [0, 1e6]; this is a standard deviation"),
    ("fedgs-synthetic(seed=-1)", 3, "FedGSSynthetic: seed = -1, but must be an integer >= 0"),
    ("synthetic(-1)", 3, "Synthetic: alpha = -1, but must be in [0, 1e6]; this is a standard deviation"),
    ("synthetic(1, -1)", 3, "Synthetic: beta = -1, but must be in [0, 1e6]"),
    ("synthetic(dim=0)", 3, "Synthetic: dim = 0, but must be an integer >= 1"),
    ("synthetic(classes=1)", 3, "Synthetic: classes = 1, but must be an integer >= 2"),
    ("synthetic(test=1.0)", 3, "Synthetic: test = 1.0, but must be in [0, 1); it is a share"),
    ("synthetic(size=0)", 3, "Synthetic: size = 0, but must be an integer >= 1, a law of sizes, or None"),
    (
        "synthetic(size=power-law)",
        3,
        "Synthetic: mean of PowerLawSizes = None, but must be a number here; made data has no total: size=power-law(me",
    ),
    ("synthetic", 0, "Synthetic: num_clients = 0, but must be an integer >= 1"),
    ("linear-regression(dim=0)", 3, "LinearRegression: dim = 0, but must be an integer >= 1"),
    ("linear-regression(test=-1)", 3, "LinearRegression: test = -1, but must be an integer >= 0"),
    ("linear-regression(noise=-1)", 3, "LinearRegression: noise = -1, but must be in [0, 1e6]"),
    ("linear-regression(shift=-1)", 3, "LinearRegression: shift = -1, but must be in [0, 1e6]"),
    ("linear-regression(size=None)", 3, "LinearRegression: size = None, but must be an integer >= 1 or a law of sizes"),
    ("linear-regression(size=log-normal)", 3, "LinearRegression: mean of LogNormalSizes = None, but must be a number"),
    ("linear-regression", 0, "LinearRegression: num_clients = 0, but must be an integer >= 1"),
    ("quadratic(v=0)", 3, "Quadratic: v = 0, but must be an integer >= 1"),
    ("quadratic(copies=0)", 3, "Quadratic: copies = 0, but must be an integer >= 1"),
    ("quadratic", 0, "Quadratic: num_clients = 0, but must be an integer >= 1"),
]


@pytest.mark.parametrize(("text", "clients", "message"), ERRORS)
def test_what_cannot_be_made_is_an_error(text, clients, message):
    with pytest.raises(SettingError) as error:
        generate(text, clients, rng())
    assert message in str(error.value)


def test_an_unknown_generator_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown generator 'syntetic'; did you mean 'synthetic'"):
        generate("syntetic(1, 1)", 3, rng())
