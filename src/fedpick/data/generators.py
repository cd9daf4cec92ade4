"""Data generated client by client: Synthetic(alpha, beta), linear regression, Power-of-Choice's quadratics.

Each generator is a frozen dataclass of its settings; called with a number of clients and a generator of random numbers
it returns a `Federated`.

The papers: FedProx (https://arxiv.org/abs/1812.06127), Power-of-Choice (https://arxiv.org/abs/2010.01243), FedGS
(https://arxiv.org/abs/2211.13975), BSFL (https://arxiv.org/abs/2303.10373).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedpick._support.text import Makers, make
from fedpick.core.errors import require
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset, Federated, hold_out
from fedpick.data.partitions.sizes import SIZES, SizeLaw, check_size, check_whole

__all__ = ["GENERATORS", "FedGSSynthetic", "LinearRegression", "Quadratic", "Synthetic", "generate"]


def _check_scale(what: str, value: float) -> None:
    require(0.0 <= value <= 1e6, what, value, "in [0, 1e6]", "this is a standard deviation")


def _check_size(part: object, size: int | SizeLaw | None) -> None:
    check_size(part, size)
    if isinstance(size, SizeLaw):
        what = f"{type(part).__name__}: mean of {type(size).__name__}"
        require(size.mean is not None, what, None, "a number here", "made data has no total: size=power-law(mean=200)")


def _sizes(size: int | SizeLaw, num_clients: int, rng: np.random.Generator) -> Ints:
    if isinstance(size, SizeLaw):
        return size(num_clients, rng, round((size.mean or 0.0) * num_clients))
    return np.full(num_clients, int(size))


def _starts(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True)
class Synthetic:
    """Synthetic(alpha, beta) of FedProx, as Power-of-Choice and FedGS use it: a logistic model for each client.

    Client k has W_k, b_k ~ N(u_k, 1) with u_k ~ N(0, alpha), and inputs x ~ N(v_k, diag(j^-1.2)) with v_k ~ N(B_k, 1)
    and B_k ~ N(0, beta); labels are argmax(W_k x + b_k). alpha and beta are standard deviations, as in FedProx's code
    (its paper can be read as variances; at 0 and 1 they are the same). u_k adds the same to every label's score, so
    alpha changes no label; it is kept because the data set is named after it. Clients differ by the rest of W_k and by
    beta.

    Args:
        alpha: standard deviation of u_k.
        beta: standard deviation of B_k, the means of the clients' inputs.
        dim: of the inputs.
        classes: labels.
        size: examples per client: a number, a law with a mean, or None for FedProx's 50 + LogNormal(4, 2).
        test: share of its examples that each client holds out; `test_x` is what all of them hold out together.

    >>> split = Synthetic(1.0, 1.0, size=40)(30, np.random.default_rng(0))
    >>> len(split), split.dataset.inputs, split.sizes[:3], len(split.dataset.test_x)
    (30, (60,), array([36, 36, 36]), 120)
    """

    alpha: float = 1.0
    beta: float = 1.0
    dim: int = 60
    classes: int = 10
    size: int | SizeLaw | None = None
    test: float = 0.1

    def __post_init__(self) -> None:
        _check_scale("Synthetic: alpha", self.alpha)
        _check_scale("Synthetic: beta", self.beta)
        check_whole("Synthetic: dim", self.dim, 1)
        check_whole("Synthetic: classes", self.classes, 2)
        require(0.0 <= self.test < 1.0, "Synthetic: test", self.test, "in [0, 1)", "it is a share")
        _check_size(self, self.size)

    def __call__(self, num_clients: int, rng: np.random.Generator) -> Federated:
        """Make the data of this many clients."""
        check_whole("Synthetic: num_clients", num_clients, 1)
        if self.size is None:
            sizes = 50 + rng.lognormal(4.0, 2.0, num_clients).astype(np.int64)
        else:
            sizes = _sizes(self.size, num_clients, rng)
        starts = _starts(sizes)
        model_mean = rng.normal(0.0, self.alpha, num_clients)
        input_mean = rng.normal(0.0, self.beta, num_clients)
        deviation = np.arange(1, self.dim + 1) ** -0.6  # the variances are j^-1.2
        x = np.empty((starts[-1], self.dim), np.float32)
        y = np.empty(starts[-1], np.int32)
        for k in range(num_clients):  # clients differ in their models and sizes
            mine = slice(starts[k], starts[k + 1])
            centre = rng.normal(input_mean[k], 1.0, self.dim)
            w = rng.normal(model_mean[k], 1.0, (self.dim, self.classes))
            b = rng.normal(model_mean[k], 1.0, self.classes)
            x[mine] = centre + deviation * rng.standard_normal((sizes[k], self.dim))
            y[mine] = np.argmax(x[mine] @ w + b, axis=1)
        name = f"synthetic({self.alpha:g}, {self.beta:g})"
        made = Federated(Dataset(name, x, y, classes=self.classes), np.arange(len(y)), starts)
        split = hold_out(made, self.test, rng)
        return replace(split, dataset=replace(split.dataset, test_x=x[split.held], test_y=y[split.held]))


@dataclass(frozen=True)
class FedGSSynthetic:
    """The one data set of FedGS's Table 2: Synthetic(alpha, beta) in its authors' order of draws, with their seed.

    Unlike `Synthetic`, the data is the same whatever generator it is called with. Clients train on the first 75% of
    their examples and hold out the last 10%; the authors' validation set, between them, is left out. NumPy guarantees
    the numbers of its legacy generator, but multivariate draws may differ with the version of the linear algebra.

    Args:
        alpha: as in `Synthetic`.
        beta: as in `Synthetic`.
        seed: of NumPy's legacy generator.

    >>> split = FedGSSynthetic()(2, np.random.default_rng(0))
    >>> split.sizes, len(split.dataset.test_x)
    (array([60, 62]), 17)
    """

    _DIM: ClassVar[int] = 60
    _CLASSES: ClassVar[int] = 10
    alpha: float = 0.5
    beta: float = 0.5
    seed: int = 97

    def __post_init__(self) -> None:
        _check_scale("FedGSSynthetic: alpha", self.alpha)
        _check_scale("FedGSSynthetic: beta", self.beta)
        check_whole("FedGSSynthetic: seed", self.seed, 0)

    def __call__(self, num_clients: int, rng: np.random.Generator) -> Federated:
        """Make the data of this many clients; `rng` is not used."""
        draw, w, b = self._drawn(num_clients)
        centres = [draw.normal(mean, 1, self._DIM) for mean in draw.normal(0, self.beta, num_clients)]
        sizes: Ints = draw.lognormal(4, 2, num_clients).astype(np.int64) + 50
        spread = np.diag(np.arange(1, self._DIM + 1) ** -1.2)
        inputs = [draw.multivariate_normal(centres[k], spread, int(sizes[k])) for k in range(num_clients)]
        x = np.concatenate(inputs).astype(np.float32)
        y = np.concatenate([np.argmax(inputs[k] @ w[k] + b[k], axis=1) for k in range(num_clients)]).astype(np.int32)
        starts = _starts(sizes)
        first, last = (0.75 * sizes).astype(np.int64), (0.9 * sizes).astype(np.int64)
        train = [np.arange(start, start + count) for start, count in zip(starts, first, strict=False)]
        held = [np.arange(start + count, end) for start, count, end in zip(starts, last, starts[1:], strict=False)]
        held_all = np.concatenate(held)
        name = f"fedgs-synthetic({self.alpha:g}, {self.beta:g})"
        return Federated(
            Dataset(name, x, y, x[held_all], y[held_all], classes=self._CLASSES),
            np.concatenate(train),
            _starts(first),
            held_all,
            _starts(sizes - last),
        )

    def models(self, num_clients: int) -> Floats:
        """(K, 610) the clients' true models, weights and biases: what the authors' oracle graph compares."""
        _, w, b = self._drawn(num_clients)
        return np.array([np.vstack([w[k], b[k]]).ravel() for k in range(num_clients)])

    def _drawn(self, num_clients: int) -> tuple[np.random.RandomState, list[Floats], list[Floats]]:
        """The generator after the models were drawn, and each client's weights and biases."""
        check_whole("FedGSSynthetic: num_clients", num_clients, 1)
        draw = np.random.RandomState(self.seed)  # the authors' generator
        draw.normal(0, 1, (self._DIM, self._CLASSES))  # a global model, drawn but not used in this variant
        draw.normal(0, 1, self._CLASSES)
        means = draw.normal(0, self.alpha, num_clients)
        w = [draw.normal(mean, 1, (self._DIM, self._CLASSES)) for mean in means]
        return draw, w, [draw.normal(mean, 1, self._CLASSES) for mean in means]


@dataclass(frozen=True)
class LinearRegression:
    """y = w'x + noise, with one w for all clients: BSFL's synthetic data, of which the paper gives no numbers.

    "iid" is the default; the paper's non-iid clients differ in their amounts of data (size=log-normal(mean=100)), and
    `shift` makes their inputs differ, too: x ~ N(v_k, I) with v_k ~ N(0, shift^2 I).

    Args:
        dim: of the inputs.
        size: examples per client: a number, or a law with a mean.
        noise: standard deviation of the targets about w'x, w ~ N(0, I).
        shift: standard deviation of the clients' mean inputs.
        test: fresh examples that no client holds, from clients drawn in proportion to their sizes.

    >>> split = LinearRegression(size=50)(20, np.random.default_rng(0))
    >>> len(split), len(split.dataset), split.dataset.classes, len(split.dataset.test_x)
    (20, 1000, 0, 1000)
    """

    dim: int = 10
    size: int | SizeLaw = 100
    noise: float = 0.1
    shift: float = 0.0
    test: int = 1_000

    def __post_init__(self) -> None:
        check_whole("LinearRegression: dim", self.dim, 1)
        check_whole("LinearRegression: test", self.test, 0)
        _check_scale("LinearRegression: noise", self.noise)
        _check_scale("LinearRegression: shift", self.shift)
        require(self.size is not None, "LinearRegression: size", None, "an integer >= 1 or a law of sizes")
        _check_size(self, self.size)

    def __call__(self, num_clients: int, rng: np.random.Generator) -> Federated:
        """Make the data of this many clients."""
        check_whole("LinearRegression: num_clients", num_clients, 1)
        sizes = _sizes(self.size, num_clients, rng)
        w = rng.standard_normal(self.dim)
        centres = self.shift * rng.standard_normal((num_clients, self.dim))
        train = np.repeat(np.arange(num_clients), sizes)
        whose = np.concatenate([train, rng.choice(train, self.test)])
        x = (centres[whose] + rng.standard_normal((len(whose), self.dim))).astype(np.float32)
        y = (x @ w + self.noise * rng.standard_normal(len(whose))).astype(np.float32)
        n = len(train)
        return Federated(Dataset("linear-regression", x[:n], y[:n], x[n:], y[n:]), np.arange(n), _starts(sizes))


@dataclass(frozen=True)
class Quadratic:
    """Power-of-Choice's quadratics (86) as a regression: F_k(w) = h_k/2 |w - c_k|^2, h_k ~ U(1, 20), c_k ~ N(1, I).

    Client k has one example per dimension, x = sqrt(v h_k / 2) e_j and y = sqrt(v h_k / 2) c_kj, so that the mean
    squared error of the linear model w'x without intercept is F_k(w). Its size, by the power law P(x) = 3 x^2, is the
    number of times it holds them: sizes change p_k, and neither F_k nor its gradient. The numbers are those that the
    study `power-of-choice/quadratic`, which needs no data, draws from the same stream.

    Args:
        v: dimensions.
        copies: how often a client holds each of its examples, on average; with more, sizes follow the law more closely.

    >>> split = Quadratic(v=2, copies=20)(4, np.random.default_rng(0))
    >>> split.dataset.x.shape, split.sizes
    ((8, 2), array([40, 42, 38, 40]))
    """

    v: int = 5
    copies: int = 100

    def __post_init__(self) -> None:
        check_whole("Quadratic: v", self.v, 1)
        check_whole("Quadratic: copies", self.copies, 1)

    def __call__(self, num_clients: int, rng: np.random.Generator) -> Federated:
        """Make the problem of this many clients."""
        check_whole("Quadratic: num_clients", num_clients, 1)
        h, size = rng.uniform(1.0, 20.0, num_clients), rng.random(num_clients) ** (1 / 3)
        centres = 1.0 + rng.standard_normal((num_clients, self.v))
        scale = np.sqrt(self.v * h / 2)
        x = (scale[:, None, None] * np.eye(self.v)).reshape(-1, self.v).astype(np.float32)
        y = (scale[:, None] * centres).ravel().astype(np.float32)
        times = np.maximum(np.rint(self.copies * size / size.mean()), 1).astype(np.int64)
        each = np.arange(num_clients * self.v).reshape(num_clients, self.v)
        examples = np.repeat(each, times, axis=0).ravel()
        return Federated(Dataset("quadratic", x, y), examples, _starts(times * self.v))


GENERATORS: Makers = {
    "synthetic": Synthetic,
    "fedgs-synthetic": FedGSSynthetic,
    "linear-regression": LinearRegression,
    "quadratic": Quadratic,
}


def generate(text: str, num_clients: int, rng: np.random.Generator) -> Federated:
    """Make data from a text.

    Args:
        text: "synthetic(0.5, 0.5)", "linear-regression(size=log-normal(mean=100), shift=1)", "quadratic".
        num_clients: for how many.
        rng: such as fedpick.core.rng.stream(seed, 0, "data").

    >>> generate("synthetic(0.5, 0.5)", 30, np.random.default_rng(0)).dataset.name
    'synthetic(0.5, 0.5)'
    """
    how = make(text, "generator", GENERATORS, values=SIZES, example="synthetic(1, 1) or quadratic")
    made: Federated = how(num_clients, rng)
    return made
