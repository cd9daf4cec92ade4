"""The workloads that every engine trains, in NumPy alone: data, first weights, who trains on what, and the loss.

All engines read one file, so that they do the same arithmetic on the same numbers. Parameters are lists
[weight, bias, weight, bias, ...] in one layout: dense weights (in, out), convolutions (height, width, in, out), images
(height, width, channel). An engine that wants another layout turns them on the way in and out.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS = 100  # enrolled
PLANS = 40  # rounds drawn beforehand; round r follows plan r mod PLANS
TESTS = 1000  # examples that nobody trains on

Params = list[np.ndarray]


@dataclass(frozen=True)
class Workload:
    """A model, its data and one round's work."""

    name: str
    title: str
    inputs: tuple[int, ...]  # shape of one example
    filters: tuple[int, ...]  # 5x5 convolutions, each followed by ReLU and 2x2 max-pooling
    hidden: tuple[int, ...]  # dense layers, each followed by ReLU
    cohort: int
    steps: int
    batch: int
    held: int  # examples of each client
    lr: float
    noise: float  # of the examples around their class's prototype
    classes: int = 10
    epochs: tuple[int, ...] = (1,)  # of a client in a round, drawn evenly; an epoch is `steps` long
    used: float = 1.0  # share of the cohort whose work is used: the others are late, or fail, and train nothing
    least: int = 0  # examples of the smallest client; others have up to `held`, and an epoch is one pass; 0: all `held`
    source: str = ""  # a data set of fedpick's, with labels of each client from Dirichlet(0.3); "": made here

    @property
    def sizes(self) -> np.ndarray:
        """Examples of each client."""
        return np.geomspace(self.least or self.held, self.held, CLIENTS).round().astype(np.int32)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the weights, biases left out."""
        shapes: list[tuple[int, ...]] = []
        if self.filters:
            side, channels = self.inputs[0], self.inputs[2]
            for filters in self.filters:
                shapes.append((5, 5, channels, filters))
                side, channels = (side - 4) // 2, filters
            width = side * side * channels
        else:
            width = int(np.prod(self.inputs))
        for out in (*self.hidden, self.classes):
            shapes.append((width, out))
            width = out
        return shapes

    @property
    def products(self) -> list[tuple[int, int, int]]:
        """The matrix products of one forward pass over a batch, as (rows, inner, columns); convolutions as im2col."""
        products, side = [], self.inputs[0]
        for shape in self.shapes:
            if len(shape) == 4:
                side -= 4
                products.append((self.batch * side * side, int(np.prod(shape[:3])), shape[3]))
                side //= 2
            else:
                products.append((self.batch, *shape))
        return products

    @property
    def gflop(self) -> float:
        """Of one round's matrix products: forward, the weights' gradient, the inputs' in all layers but the first."""
        each = [2 * a * b * c for a, b, c in self.products]
        batches = self.client_steps
        if self.least:  # the last batch of a pass is smaller
            batches = self.cohort * self.used * float(np.mean(self.sizes) * np.mean(self.epochs)) / self.batch
        return (3 * sum(each) - each[0]) * batches / 1e9

    @property
    def client_steps(self) -> float:
        """Steps of all clients in one round, on average."""
        steps = float(np.mean(-(-self.sizes // self.batch))) if self.least else self.steps
        return steps * self.cohort * self.used * float(np.mean(self.epochs))


WORKLOADS = {
    w.name: w
    for w in (
        Workload("A", "MLP 784-200-200-10", (784,), (), (200, 200), 10, 30, 64, 600, lr=0.05, noise=8.0),
        Workload("B", "CNN conv20-conv50-500-10", (28, 28, 1), (20, 50), (500,), 20, 24, 40, 500, lr=0.05, noise=3.0),
        Workload("C", "logistic 60-10", (60,), (), (), 3, 30, 50, 200, lr=0.05, noise=3.0),
        # The demo's own round (`make demo`): 1 to 4 epochs, half of the cohort late or failed.
        Workload(
            "D",
            "logistic 60-10, unequal work",
            (60,),
            (),
            (),
            20,
            30,
            50,
            200,
            lr=0.05,
            noise=3.0,
            epochs=(1, 2, 3, 4),
            used=0.5,
        ),
        Workload(
            "E",
            "Fashion-MNIST, MLP 784-64-30-10, sizes 1:20",
            (784,),
            (),
            (64, 30),
            10,
            0,
            32,
            400,
            lr=0.05,
            noise=0.0,
            least=20,
            source="fashion-mnist",
        ),
    )
}


def _source(work: Workload, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Examples of each client (zeros beyond its size), and those that nobody trains on, of a data set of fedpick's."""
    from fedpick import data  # only where the files are made

    whole = data.load(work.source)

    def ready(x: np.ndarray) -> np.ndarray:
        scaled = (x.astype(np.float32) / 255.0 - np.float32(whole.mean)) / np.float32(whole.std)
        return scaled.reshape(len(x), *work.inputs)

    x = np.zeros((CLIENTS, work.held, *work.inputs), np.float32)
    y = np.zeros((CLIENTS, work.held), np.int32)
    pools = [np.flatnonzero(whole.y == label) for label in range(work.classes)]
    for client, size in enumerate(work.sizes):
        counts = rng.multinomial(size, rng.dirichlet(np.full(work.classes, 0.3)))
        own = np.concatenate([rng.choice(pool, n, replace=False) for pool, n in zip(pools, counts, strict=True)])
        x[client, :size], y[client, :size] = ready(whole.x[own]), whole.y[own]
    return x, y, ready(whole.test_x[:TESTS]), whole.test_y[:TESTS].astype(np.int32)


def make(work: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    """Data of all clients, first weights and plans; examples are class prototypes in noise, evenly mixed.

    Returns x (CLIENTS, held, ...), y, test_x, test_y, the weights as p0, p1, ..., ids (PLANS, cohort), their numbers of
    steps (0: not used) and batches (PLANS, cohort, most steps, batch): indices into the client's own examples,
    reshuffled whenever all have been used.
    """
    rng = np.random.default_rng([seed, ord(work.name)])
    prototypes = rng.normal(size=(work.classes, *work.inputs)).astype(np.float32)
    if work.filters:  # images are smooth: patches of 4x4 equal pixels
        coarse = rng.normal(size=(work.classes, 7, 7, 1)).astype(np.float32)
        prototypes = coarse.repeat(4, axis=1).repeat(4, axis=2)

    def draw(*count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(work.classes, size=count).astype(np.int32)
        noise = rng.standard_normal((*count, *work.inputs), dtype=np.float32)
        return (prototypes[y] + np.float32(work.noise) * noise) / np.float32(np.hypot(1.0, work.noise)), y

    x, y, test_x, test_y = _source(work, rng) if work.source else (*draw(CLIENTS, work.held), *draw(TESTS))
    made = {"x": x, "y": y, "test_x": test_x, "test_y": test_y}
    for i, shape in enumerate(work.shapes):
        scale = np.sqrt(1.0 / np.prod(shape[:-1]))
        made[f"p{2 * i}"] = rng.uniform(-scale, scale, shape).astype(np.float32)
        made[f"p{2 * i + 1}"] = rng.uniform(-scale, scale, shape[-1]).astype(np.float32)
    made["ids"] = np.stack([rng.permutation(CLIENTS)[: work.cohort] for _ in range(PLANS)]).astype(np.int32)
    chosen = rng.random((PLANS, work.cohort)) < work.used if work.used < 1.0 else np.ones((PLANS, work.cohort), bool)
    times = rng.choice(work.epochs, (PLANS, work.cohort)) if len(work.epochs) > 1 else np.array(work.epochs)
    each = -(-work.sizes // work.batch)[made["ids"]] if work.least else work.steps
    made["steps"] = np.where(chosen, times * each, 0).astype(np.int32)
    if work.least:
        made["batches"] = _passes(work, made["ids"], made["steps"], rng)
        return made
    most = max(work.epochs) * work.steps
    need = most * work.batch
    orders = rng.permuted(
        np.broadcast_to(np.arange(work.held, dtype=np.int32), (PLANS, work.cohort, -(-need // work.held), work.held)),
        axis=-1,
    )
    made["batches"] = np.ascontiguousarray(
        orders.reshape(PLANS, work.cohort, -1)[..., :need].reshape(PLANS, work.cohort, most, work.batch)
    )
    return made


def _passes(work: Workload, ids: np.ndarray, steps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Batches of passes over what each client holds; -1 where there is no example."""
    batches = np.full((*ids.shape, max(steps.max(), 1), work.batch), -1, np.int32)
    for at in np.ndindex(ids.shape):
        size = int(work.sizes[ids[at]])
        each = -(-size // work.batch)
        for first in range(0, int(steps[at]), each):
            order = np.full(each * work.batch, -1, np.int32)
            order[:size] = rng.permutation(size)
            batches[at][first : first + each] = order.reshape(each, work.batch)
    return batches


def write(work: Workload, folder: Path) -> Path:
    """Make the workload's files, one .npy each, unless they are there."""
    target, recipe = folder / work.name, f"{work} {CLIENTS} {PLANS} {TESTS} numpy {np.__version__}"
    done = target / "done"
    if not done.exists() or done.read_text() != recipe:
        target.mkdir(parents=True, exist_ok=True)
        done.unlink(missing_ok=True)
        for name, array in make(work).items():
            np.save(target / f"{name}.npy", array)
        done.write_text(recipe)
    return target


@dataclass
class Task:
    """A workload as an engine reads it."""

    work: Workload
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    ids: np.ndarray
    steps: np.ndarray
    batches: np.ndarray
    params: Params

    def cohort(self, round: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All that are chosen in this round, their steps, 0 for those not used, and their batches."""
        return self.ids[round % PLANS], self.steps[round % PLANS], self.batches[round % PLANS]

    def plan(self, round: int) -> tuple[np.ndarray, list[Any]]:
        """Who trains in this round, and on what: (steps, batch) for each, or a list where batches differ in length."""
        ids, steps, batches = self.cohort(round)
        at = np.flatnonzero(steps)
        own = [batches[c, : steps[c]] for c in at]
        return ids[at], [[row[row >= 0] for row in rows] for rows in own] if self.work.least else own

    def shares(self, round: int) -> np.ndarray:
        """Each client's weight in the mean: its part of the examples of those who train."""
        sizes = self.work.sizes[self.plan(round)[0]]
        return sizes / sizes.sum()


def read(folder: str | Path) -> Task:
    """What `write` wrote."""
    folder = Path(folder)
    work = WORKLOADS[folder.name]
    arrays: dict[str, Any] = {
        n: np.load(folder / f"{n}.npy") for n in ("x", "y", "test_x", "test_y", "ids", "steps", "batches")
    }
    return Task(work, **arrays, params=[np.load(folder / f"p{i}.npy") for i in range(2 * len(work.shapes))])


def logits(work: Workload, params: Params, x: np.ndarray) -> np.ndarray:
    """The forward pass, written plainly."""
    layers = list(zip(params[::2], params[1::2], strict=True))
    for weight, bias in layers[: len(work.filters)]:
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))  # (N, H, W, channel, 5, 5)
        x = np.maximum(np.tensordot(windows, weight, axes=[(4, 5, 3), (0, 1, 2)]) + bias, 0)
        n, height, width, channels = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
    x = x.reshape(len(x), -1)
    for i, (weight, bias) in enumerate(layers[len(work.filters) :], start=1):
        x = x @ weight + bias
        if i <= len(work.hidden):
            x = np.maximum(x, 0)
    return x


def score(task: Task, params: Params) -> tuple[float, float]:
    """Cross-entropy and accuracy on the examples that nobody trains on."""
    z = logits(task.work, params, task.test_x).astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    right = z[np.arange(len(z)), task.test_y]
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - right)), float(np.mean(z.argmax(axis=1) == task.test_y))
