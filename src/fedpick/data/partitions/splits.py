"""The partitions of the papers: which client gets which examples."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from fedpick.core.errors import SettingError, require
from fedpick.core.types import Ints
from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions.sizes import Size, SizeLaw, check_size, check_whole, share_out

__all__ = ["IID", "Dirichlet", "DirichletLabels", "LabelsPerClient", "PrimaryLabel"]


class _Split:
    """What partitions share: the number of examples of each client, and giving the examples out."""

    size: Size = None
    overlap: bool | None = None  # None: the partition has no such setting, and gives no example twice

    def _name(self, what: str) -> str:
        return f"{type(self).__name__}: {what}"

    def _check_clients(self, dataset: Dataset, num_clients: int) -> None:
        """Raise unless there is at least one client, and an example for each."""
        what = self._name("num_clients")
        check_whole(what, num_clients, 1)
        fits = num_clients <= len(dataset) or (self.overlap and self.size is not None)
        bound = f"<= {len(dataset)}, the number of examples of {dataset.name}"
        require(bool(fits), what, num_clients, bound, "every client needs at least one example")

    def _supply(self, dataset: Dataset, num_clients: int) -> Ints:
        """How many examples of each label the data set has."""
        self._check_clients(dataset, num_clients)
        if not dataset.classes:
            raise SettingError(
                f"{type(self).__name__} divides by label, but {dataset.name} is a regression (classes = 0); use iid"
            )
        if dataset.targets:
            raise SettingError(
                f"{type(self).__name__} divides by label, but {dataset.name} has {dataset.says}; use iid"
            )
        return np.bincount(dataset.y, minlength=dataset.classes)

    def _sizes(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Ints:
        """How many examples each client gets."""
        size, there = self.size, len(dataset)
        if isinstance(size, SizeLaw):
            sizes = size(num_clients, rng, there if size.mean is None else round(size.mean * num_clients))
        else:
            sizes = np.full(num_clients, there // num_clients if size is None else int(size))
        if self.overlap:
            most, bound = int(sizes.max()), f"<= {there}, the examples of {dataset.name}"
            require(most <= there, self._name("largest client"), most, bound, "take a smaller size")
            return sizes
        fix = f"take at most {there // max(int(sizes.mean()), 1)} clients, or a size of at most {there // num_clients}"
        require(
            int(sizes.sum()) <= there,
            self._name(f"examples for {num_clients} clients"),
            int(sizes.sum()),
            f"<= {there}: {dataset.name} has no more, and no example is given twice",
            fix + ("" if self.overlap is None else ", or overlap=True"),
        )
        return sizes

    def _deal(self, dataset: Dataset, group: Ints, wanted: Ints, rng: np.random.Generator) -> Federated:
        """Give client k wanted[k, g] examples of group g, chosen uniformly, in random order.

        Args:
            dataset: whose examples.
            group: (N) the group of each example: its label, or 0 for all.
            wanted: (K, G) examples of each group for each client.
            rng: draws the examples.
        """
        chosen, owner = [], []
        for g in range(wanted.shape[1]):
            members, takes = np.flatnonzero(group == g), wanted[:, g]
            demand = int(takes.max()) if self.overlap else int(takes.sum())
            if demand > len(members):
                self._refuse(dataset, g, demand, len(members))
            if self.overlap:  # one draw without replacement per client and group: ten microseconds each
                few = np.flatnonzero(takes)
                draws = [rng.choice(len(members), takes[k], replace=False, shuffle=False) for k in few]
                chosen.append(members[np.concatenate(draws)] if draws else members[:0])
            else:
                chosen.append(rng.permutation(members)[:demand])
            owner.append(np.repeat(np.arange(len(wanted)), takes))
        flat, whose = np.concatenate(chosen), np.concatenate(owner)
        shuffled = rng.permutation(len(flat))  # so that a client's labels are mixed
        order = shuffled[np.argsort(whose[shuffled], kind="stable")]
        return Federated(dataset, flat[order], np.concatenate([[0], np.cumsum(wanted.sum(axis=1))]))

    def _refuse(self, dataset: Dataset, label: int, demand: int, there: int) -> None:
        """Raise, because more examples of a label are wanted than the data set has."""
        who, twice = ("one client", "") if self.overlap else ("all clients", ", and no example is given twice")
        fix = f"take a size smaller by {100 - 100 * there // demand}%" + ("" if self.overlap else ", or fewer clients")
        fix += ", or overlap=True" if self.overlap is False else ""
        what = self._name(f"examples of label {label} wanted by {who}")
        require(False, what, demand, f"<= {there}: {dataset.name} has no more{twice}", fix)


@dataclass(frozen=True)
class IID(_Split):
    """Every client's examples are drawn from the same distribution.

    Args:
        size: examples per client: a number, a law of sizes, or None for all the data in equal parts (N // K each).
        overlap: clients draw independently and may share examples (E3CS); otherwise no example is given twice.

    >>> data = Dataset("toy", np.zeros((7, 2), np.float32), np.array([0, 1, 0, 1, 0, 1, 0], np.int32), classes=2)
    >>> IID()(data, 3, np.random.default_rng(0)).sizes
    array([2, 2, 2])
    """

    size: Size = None
    overlap: bool = False

    def __post_init__(self) -> None:
        check_size(self, self.size)

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        self._check_clients(dataset, num_clients)
        sizes = self._sizes(dataset, num_clients, rng)
        return self._deal(dataset, np.zeros(len(dataset), np.int64), sizes[:, None], rng)


@dataclass(frozen=True)
class PrimaryLabel(_Split):
    """One primary label per client, drawn uniformly, and the rest uniformly from all other labels (E3CS, non-iid).

    A label that has too few examples for a client is not drawn as its primary label.

    Args:
        share: fraction of a client's examples that have its primary label.
        size: examples per client: a number, a law of sizes, or None for N // K.
        overlap: clients draw independently and may share examples, as in the paper; otherwise no example is given
            twice, which fails when too many clients have the same primary label.

    >>> data = Dataset("toy", np.zeros((150, 2), np.float32), np.arange(150, dtype=np.int32) % 3, classes=3)
    >>> split = PrimaryLabel(size=20)(data, 2, np.random.default_rng(0))
    >>> split.labels.max(axis=1), split.sizes
    (array([16, 16]), array([20, 20]))
    """

    share: float = 0.8
    size: Size = 500
    overlap: bool = True

    def __post_init__(self) -> None:
        require(0.0 <= self.share <= 1.0, "PrimaryLabel: share", self.share, "in [0, 1]", "the paper has 0.8")
        check_size(self, self.size)

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = self._supply(dataset, num_clients)
        sizes = self._sizes(dataset, num_clients, rng)
        main = np.rint(self.share * sizes).astype(np.int64)  # examples with the primary label
        left = sizes - main
        enough = (main[:, None] <= supply) & (left[:, None] <= len(dataset) - supply) & (supply > 0)
        poor = int(np.argmin(enough.any(axis=1)))
        if not enough[poor].any():
            raise SettingError(
                f"PrimaryLabel: client {poor} wants {main[poor]} examples of one label and {left[poor]} of the others, "
                f"but no label of {dataset.name} has so many ({supply.max()} of {len(dataset)} at most); "
                "take a smaller size"
            )
        # Uniform among the labels with enough examples.
        primary = np.argmax(enough * (1.0 - rng.random(enough.shape)), axis=1)
        pool = len(dataset) - supply[primary]
        wanted = np.zeros((num_clients, len(supply)), np.int64)
        # A uniform draw from the other labels, counted by label: hypergeometric, one label after the other.
        for label, there in enumerate(supply):
            others = np.where(primary == label, 0, there)
            pool = pool - others
            wanted[:, label] = rng.hypergeometric(others, pool, left)
            left = left - wanted[:, label]
        wanted[np.arange(num_clients), primary] = main
        return self._deal(dataset, dataset.y, wanted, rng)


def _check_alpha(part: object, alpha: float) -> None:
    what = f"{type(part).__name__}: alpha"
    require(1e-3 <= alpha <= 1e6, what, alpha, "in [0.001, 1e6]", "a larger alpha makes clients more alike; or use iid")


@dataclass(frozen=True)
class DirichletLabels(_Split):
    """Each client's label mix is drawn from Dirichlet(alpha, ..., alpha), its size is given (RBCS-F).

    A client's counts are its mix times its size, rounded so that the size is exact. Hsu et al. and FedGS write
    Dirichlet(alpha p) with p the labels' shares: with L balanced labels that is `alpha / L` here.

    Args:
        alpha: concentration; near 0 each client has one label, with a large one all clients have the same mix.
        size: examples per client: a number, a law of sizes, or None for N // K.
        overlap: clients draw independently and may share examples; otherwise no example is given twice, which fails
            when more examples of a label are wanted than there are (`Dirichlet` always gives out all the data).

    >>> data = Dataset("toy", np.zeros((150, 2), np.float32), np.arange(150, dtype=np.int32) % 3, classes=3)
    >>> DirichletLabels(0.3, size=20)(data, 3, np.random.default_rng(0)).labels
    array([[ 6,  0, 14], [ 4,  2, 14], [ 6, 14,  0]])
    """

    alpha: float = 0.5
    size: Size = 500
    overlap: bool = True

    def __post_init__(self) -> None:
        _check_alpha(self, self.alpha)
        check_size(self, self.size)

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = self._supply(dataset, num_clients)
        sizes = self._sizes(dataset, num_clients, rng)
        there = np.flatnonzero(supply)
        wanted = np.zeros((num_clients, len(supply)), np.int64)
        wanted[:, there] = share_out(sizes, rng.dirichlet(np.full(len(there), self.alpha), num_clients))
        return self._deal(dataset, dataset.y, wanted, rng)


@dataclass(frozen=True)
class Dirichlet(_Split):
    """Each label is divided among the clients by a draw from Dirichlet(alpha, ..., alpha): Power-of-Choice's split.

    Labels and sizes are both skewed, and every example is given to exactly one client. A client that holds N/K
    examples or more takes no further label. The draw is repeated until every client has at least `at_least`.

    Args:
        alpha: concentration; a smaller one is more skewed.
        at_least: examples that every client must have.
        tries: draws before giving up.

    >>> data = Dataset("toy", np.zeros((150, 2), np.float32), np.arange(150, dtype=np.int32) % 3, classes=3)
    >>> Dirichlet(0.5)(data, 3, np.random.default_rng(0)).labels
    array([[15, 11, 33], [ 0,  9, 17], [35, 30,  0]])
    """

    alpha: float = 0.3
    at_least: int = 10
    tries: int = 1_000

    def __post_init__(self) -> None:
        _check_alpha(self, self.alpha)
        check_whole("Dirichlet: at_least", self.at_least, 1)
        check_whole("Dirichlet: tries", self.tries, 1)

    def _draw(self, supply: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """How many of each label each client gets, whether or not that is enough for everyone."""
        wanted = np.zeros((num_clients, len(supply)), np.int64)
        held = np.zeros(num_clients, np.int64)
        for label in np.flatnonzero(supply):
            # Setting the shares of full clients to 0 and scaling the others up is a Dirichlet draw of the others.
            takers = np.flatnonzero(held * num_clients < supply.sum())
            shares = rng.dirichlet(np.full(len(takers), self.alpha))
            cuts = np.floor(np.cumsum(shares)[:-1] * supply[label]).astype(np.int64)
            wanted[takers, label] = np.diff(cuts, prepend=0, append=supply[label])
            held += wanted[:, label]
        return wanted

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = self._supply(dataset, num_clients)
        least, bound = self.at_least * num_clients, f"<= {len(dataset)}, the examples of {dataset.name}"
        fix = "take fewer clients or a lower at_least"
        require(least <= len(dataset), "Dirichlet: at_least * num_clients", least, bound, fix)
        best = 0
        for _ in range(self.tries):
            wanted = self._draw(supply, num_clients, rng)
            best = max(best, int(wanted.sum(axis=1).min()))
            if best >= self.at_least:
                return self._deal(dataset, dataset.y, wanted, rng)
        raise SettingError(
            f"Dirichlet: in {self.tries} tries the poorest of {num_clients} clients held at most {best} examples, but "
            f"at_least = {self.at_least}; raise alpha = {self.alpha}, lower at_least or take fewer clients"
        )


@dataclass(frozen=True)
class LabelsPerClient(_Split):
    """Every client has examples of exactly this many labels (FedGS's Fashion-MNIST: two).

    The number of clients that hold a label is about proportional to its examples, which are divided among them; no
    example is given twice.

    Args:
        labels: per client.
        size: examples per client, in equal parts of its labels; or None for all the data, each label in equal parts
            to those who hold it; or a law of sizes, each label in parts that are in proportion to their sizes.

    >>> data = Dataset("toy", np.zeros((120, 2), np.float32), np.arange(120, dtype=np.int32) % 4, classes=4)
    >>> LabelsPerClient(2)(data, 4, np.random.default_rng(0)).labels
    array([[ 0,  0, 15, 15], [15, 15,  0,  0], [15,  0,  0, 15], [ 0, 15, 15,  0]])
    """

    labels: int = 2
    size: Size = None

    def __post_init__(self) -> None:
        check_whole("LabelsPerClient: labels", self.labels, 1)
        check_size(self, self.size)
        if isinstance(self.size, Integral):
            fix = "every label needs an example"
            require(self.size >= self.labels, "LabelsPerClient: size", self.size, f">= labels = {self.labels}", fix)

    def _holders(self, supply: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """(K, L): 1 where the client holds the label. Each client takes the labels least in demand per example."""
        holds = np.zeros((num_clients, len(supply)), np.int64)
        ties, demand = rng.random(holds.shape), np.zeros(len(supply))
        with np.errstate(divide="ignore"):
            per_holder = 1.0 / supply  # infinite for a label without examples: no client takes it
        for k in range(num_clients):  # each choice depends on the ones before
            taken = np.argsort((demand + ties[k]) * per_holder)[: self.labels]
            demand[taken] += 1.0
            holds[k, taken] = 1
        return holds

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = self._supply(dataset, num_clients)
        there = int(np.count_nonzero(supply))
        bound = f"<= {there}, the labels that {dataset.name} has examples of"
        require(self.labels <= there, "LabelsPerClient: labels", self.labels, bound, "or use iid")
        sizes = self._sizes(dataset, num_clients, rng)
        holds = self._holders(supply, num_clients, rng)
        if isinstance(self.size, Integral):
            wanted = share_out(sizes, holds.astype(np.float64))
        else:
            weights = np.ones(num_clients) if self.size is None else sizes.astype(np.float64)
            given = supply if self.size is None else supply * int(sizes.sum()) // len(dataset)
            holders = holds.sum(axis=0)
            scarce = int(np.argmin(given - holders))
            require(
                bool(given[scarce] >= holders[scarce]),
                f"LabelsPerClient: clients that hold label {scarce}",
                int(holders[scarce]),
                f"<= {given[scarce]}, its examples",
                "take fewer clients or labels per client, or a larger mean",
            )
            wanted, held = holds.copy(), np.flatnonzero(holders)  # one example each, and the rest by weight
            wanted[:, held] += share_out((given - holders)[held], (holds[:, held] * weights[:, None]).T).T
        return self._deal(dataset, dataset.y, wanted, rng)
