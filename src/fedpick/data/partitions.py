"""Who holds which example: the splits of the papers.

Each partition is a frozen dataclass of its settings; called with a data set, a number of clients and a generator it
gives a `Federated`. All but `IID` first decide how many examples of each label a client gets, a (K, L) table; one
function deals the examples then. The same generator state gives the same split.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from fedpick.data.federated import Dataset, Federated
from fedpick.errors import ContractError, SettingError, require
from fedpick.text import Makers, make
from fedpick.types import Floats, Ints

__all__ = [
    "IID",
    "PARTITIONS",
    "SIZES",
    "Dirichlet",
    "DirichletLabels",
    "LabelsPerClient",
    "LogNormalSizes",
    "Partition",
    "PowerLawSizes",
    "PrimaryLabel",
    "hold_out",
    "partition",
]

Partition = Callable[[Dataset, int, np.random.Generator], Federated]


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def check_whole(what: str, value: Any, low: int) -> None:
    """Raise unless the value is a whole number that is large enough."""
    require(_whole(value, low), what, value, f"an integer >= {low}")


def share_out(totals: Ints, weights: Floats) -> Ints:
    """Whole numbers in proportion to each row of weights, each row summing to its total exactly (largest remainders).

    >>> share_out(np.array([10, 4]), np.array([[1.0, 1.0, 1.0], [0.0, 3.0, 1.0]]))
    array([[4, 3, 3], [0, 3, 1]])
    """
    exact = totals[:, None] * (weights / weights.sum(axis=1, keepdims=True))
    whole = np.floor(exact)
    missing = totals - whole.sum(axis=1)
    rank = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    shares: Ints = (whole + (rank < missing[:, None])).astype(np.int64)
    return shares


def _check_law(law: "PowerLawSizes | LogNormalSizes") -> None:
    name = type(law).__name__
    check_whole(f"{name}: at_least", law.at_least, 1)
    if law.mean is not None:
        bound = f"finite and >= at_least = {law.at_least}"
        require(law.at_least <= law.mean < np.inf, f"{name}: mean", law.mean, bound)


def _in_proportion(law: "PowerLawSizes | LogNormalSizes", weights: Floats, total: int) -> Ints:
    least = law.at_least * len(weights)
    what = f"{type(law).__name__}: at_least * num_clients"
    require(least <= total, what, least, f"<= {total}, the examples to give", "take fewer clients or a lower at_least")
    sizes: Ints = law.at_least + share_out(np.array([total - least]), weights[None])[0]
    return sizes


@dataclass(frozen=True)
class PowerLawSizes:
    """Sizes in proportion to draws from P(x) = a x^(a-1) on [0, 1] (Power-of-Choice: a = 3).

    Args:
        a: the exponent; the smaller, the more clients have little.
        mean: examples per client; None: all the data is given away.
        at_least: everyone gets these first; only the rest is skewed.

    >>> PowerLawSizes(at_least=1)(4, np.random.default_rng(0), total=20)
    array([7, 6, 4, 3])
    """

    a: float = 3.0
    mean: float | None = None
    at_least: int = 10

    def __post_init__(self) -> None:
        require(0.01 <= self.a <= 1e6, "PowerLawSizes: a", self.a, "in [0.01, 1e6]", "the paper has 3")
        _check_law(self)

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return _in_proportion(self, rng.random(num_clients) ** (1.0 / self.a), total)


@dataclass(frozen=True)
class LogNormalSizes:
    """Sizes in proportion to draws from LogNormal(0, sigma): a few clients have most of the data (FedProx: sigma = 2).

    Args:
        sigma: standard deviation of the logarithm; 0 gives equal sizes.
        mean: examples per client; None: all the data is given away.
        at_least: everyone gets these first; only the rest is skewed.

    >>> LogNormalSizes(at_least=1)(4, np.random.default_rng(0), total=40)
    array([ 8,  5, 20,  7])
    """

    sigma: float = 2.0
    mean: float | None = None
    at_least: int = 10

    def __post_init__(self) -> None:
        require(0.0 <= self.sigma <= 10.0, "LogNormalSizes: sigma", self.sigma, "in [0, 10]", "FedProx has 2")
        _check_law(self)

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return _in_proportion(self, rng.lognormal(0.0, self.sigma, num_clients), total)


SizeLaw = PowerLawSizes | LogNormalSizes
Size = int | SizeLaw | None  # examples per client: a number, a law, or None for all the data in equal parts

SIZES: Makers = {"power-law": PowerLawSizes, "log-normal": LogNormalSizes}


def check_size(part: object, size: Size) -> None:
    """Raise unless this can say how much each client has."""
    holds = size is None or isinstance(size, SizeLaw) or _whole(size, 1)
    bound = "an integer >= 1, a law of sizes, or None for all the data"
    require(holds, f"{type(part).__name__}: size", size, bound, "laws are power-law and log-normal")


def _sizes(
    part: object, size: Size, dataset: Dataset, num_clients: int, rng: np.random.Generator, overlap: bool
) -> Ints:
    """How many examples each client gets."""
    name, there = type(part).__name__, len(dataset)
    if isinstance(size, SizeLaw):
        sizes = size(num_clients, rng, there if size.mean is None else round(size.mean * num_clients))
    else:
        sizes = np.full(num_clients, there // num_clients if size is None else int(size))
    if overlap:
        bound = f"<= {there}, the examples of {dataset.name}"
        require(int(sizes.max()) <= there, f"{name}: largest client", int(sizes.max()), bound, "take a smaller size")
    else:
        fix = f"take at most {there // max(int(sizes.mean()), 1)} clients, or a size of at most {there // num_clients}"
        require(
            int(sizes.sum()) <= there,
            f"{name}: examples for {num_clients} clients",
            int(sizes.sum()),
            f"<= {there}, for {dataset.name} has no more and nothing is given twice",
            fix + (", or overlap=True" if hasattr(part, "overlap") else ""),
        )
    return sizes


def _check_clients(part: object, dataset: Dataset, num_clients: int) -> None:
    what = f"{type(part).__name__}: num_clients"
    check_whole(what, num_clients, 1)
    shared = getattr(part, "overlap", False) and getattr(part, "size", None) is not None
    bound = f"<= {len(dataset)}, the number of examples of {dataset.name}"
    require(shared or num_clients <= len(dataset), what, num_clients, bound, "every client needs at least one")


def _supply(part: object, dataset: Dataset, num_clients: int) -> Ints:
    """How many examples of each label there are."""
    _check_clients(part, dataset, num_clients)
    if not dataset.classes:
        raise SettingError(
            f"{type(part).__name__} goes by label, but {dataset.name} is a regression (classes = 0); use iid"
        )
    return np.bincount(dataset.y, minlength=dataset.classes)


def _deal(
    part: object, dataset: Dataset, group: Ints, wanted: Ints, rng: np.random.Generator, overlap: bool
) -> Federated:
    """Give client k wanted[k, g] examples of group g, chosen uniformly, in random order.

    Args:
        part: the partition, for errors.
        dataset: what is dealt.
        group: (N) the group of each example: its label, or 0 for all.
        wanted: (K, G).
        rng: draws which.
        overlap: clients draw independently of each other; else nothing is given twice.
    """
    chosen, owner = [], []
    for g in range(wanted.shape[1]):
        members, takes = np.flatnonzero(group == g), wanted[:, g]
        demand = int(takes.max()) if overlap else int(takes.sum())
        if demand > len(members):
            who, twice = ("one client", "") if overlap else ("all clients", " and nothing is given twice")
            less = 100 - 100 * len(members) // demand
            fix = f"take a size smaller by {less}%" + ("" if overlap else ", or fewer clients")
            fix += ", or overlap=True" if not overlap and hasattr(part, "overlap") else ""
            what = f"{type(part).__name__}: examples of label {g} wanted by {who}"
            require(False, what, demand, f"<= {len(members)}, for {dataset.name} has no more{twice}", fix)
        if overlap:  # one draw without replacement per client and group: ten microseconds each
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


@dataclass(frozen=True)
class IID:
    """Everyone's examples are drawn alike.

    Args:
        size: examples per client: a number, a law of sizes, or None for all the data in equal parts (N // K each).
        overlap: clients draw independently and may share examples (E3CS); else nothing is given twice.

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
        _check_clients(self, dataset, num_clients)
        sizes = _sizes(self, self.size, dataset, num_clients, rng, self.overlap)
        return _deal(self, dataset, np.zeros(len(dataset), np.int64), sizes[:, None], rng, self.overlap)


@dataclass(frozen=True)
class PrimaryLabel:
    """One primary label per client, drawn uniformly, and the rest uniformly from all other labels (E3CS, non-iid).

    A label that has too few examples for a client is not drawn as its primary label.

    Args:
        share: of a client's examples that have its primary label.
        size: examples per client: a number, a law of sizes, or None for N // K.
        overlap: clients draw independently and may share examples, as the paper's do; else nothing is given twice,
            which fails as soon as too many clients have the same primary label.

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
        supply = _supply(self, dataset, num_clients)
        sizes = _sizes(self, self.size, dataset, num_clients, rng, self.overlap)
        own = np.rint(self.share * sizes).astype(np.int64)
        left = sizes - own
        enough = (own[:, None] <= supply) & (left[:, None] <= len(dataset) - supply) & (supply > 0)
        poor = int(np.argmin(enough.any(axis=1)))
        if not enough[poor].any():
            raise SettingError(
                f"PrimaryLabel: client {poor} wants {own[poor]} examples of one label and {left[poor]} of the others, "
                f"but no label of {dataset.name} has so many ({supply.max()} of {len(dataset)} at most); "
                "take a smaller size"
            )
        primary = np.argmax(enough * (1.0 - rng.random(enough.shape)), axis=1)  # uniform among those that will do
        pool = len(dataset) - supply[primary]
        wanted = np.zeros((num_clients, len(supply)), np.int64)
        # A uniform draw from the other labels, counted by label: hypergeometric, one label after the other.
        for label, there in enumerate(supply):
            others = np.where(primary == label, 0, there)
            pool = pool - others
            wanted[:, label] = rng.hypergeometric(others, pool, left)
            left = left - wanted[:, label]
        wanted[np.arange(num_clients), primary] = own
        return _deal(self, dataset, dataset.y, wanted, rng, self.overlap)


def _check_alpha(part: object, alpha: float) -> None:
    what = f"{type(part).__name__}: alpha"
    require(1e-3 <= alpha <= 1e6, what, alpha, "in [0.001, 1e6]", "the larger, the more alike clients are; or use iid")


@dataclass(frozen=True)
class DirichletLabels:
    """Each client's label mix is drawn from Dirichlet(alpha, ..., alpha), its size is given (RBCS-F).

    A client's counts are its mix times its size, rounded so that the size is exact. Hsu et al. and FedGS write
    Dirichlet(alpha p) with p the labels' shares: with L balanced labels that is `alpha / L` here.

    Args:
        alpha: concentration; near 0 clients have one label each, large ones all have the same mix.
        size: examples per client: a number, a law of sizes, or None for N // K.
        overlap: clients draw independently and may share examples; else nothing is given twice, which fails when more
            of a label is wanted than there is (`Dirichlet` always gives all the data away).

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
        supply = _supply(self, dataset, num_clients)
        sizes = _sizes(self, self.size, dataset, num_clients, rng, self.overlap)
        there = np.flatnonzero(supply)
        wanted = np.zeros((num_clients, len(supply)), np.int64)
        wanted[:, there] = share_out(sizes, rng.dirichlet(np.full(len(there), self.alpha), num_clients))
        return _deal(self, dataset, dataset.y, wanted, rng, self.overlap)


@dataclass(frozen=True)
class Dirichlet:
    """Each label is divided among the clients by a draw from Dirichlet(alpha, ..., alpha): Power-of-Choice's split.

    Labels and sizes are both skewed, and all the data is given away, once. A client that holds N/K examples or more
    takes no further label. Drawn again until everyone holds enough.

    Args:
        alpha: concentration; the smaller, the more skewed.
        at_least: examples that everyone must hold.
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
            # Shares of those who are full set to 0 and the others scaled up are a Dirichlet of the others alone.
            takers = np.flatnonzero(held * num_clients < supply.sum())
            shares = rng.dirichlet(np.full(len(takers), self.alpha))
            cuts = np.floor(np.cumsum(shares)[:-1] * supply[label]).astype(np.int64)
            wanted[takers, label] = np.diff(cuts, prepend=0, append=supply[label])
            held += wanted[:, label]
        return wanted

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = _supply(self, dataset, num_clients)
        least, bound = self.at_least * num_clients, f"<= {len(dataset)}, the examples of {dataset.name}"
        fix = "take fewer clients or a lower at_least"
        require(least <= len(dataset), "Dirichlet: at_least * num_clients", least, bound, fix)
        best = 0
        for _ in range(self.tries):
            wanted = self._draw(supply, num_clients, rng)
            best = max(best, int(wanted.sum(axis=1).min()))
            if best >= self.at_least:
                return _deal(self, dataset, dataset.y, wanted, rng, overlap=False)
        raise SettingError(
            f"Dirichlet: in {self.tries} tries the poorest of {num_clients} clients held at most {best} examples, but "
            f"at_least = {self.at_least}; raise alpha = {self.alpha}, lower at_least or take fewer clients"
        )


@dataclass(frozen=True)
class LabelsPerClient:
    """Every client holds this many labels and no other (FedGS's Fashion-MNIST: two).

    Labels go to about as many clients as they have examples for, and a label's examples are divided among the clients
    that hold it; nothing is given twice.

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
        """(K, L): 1 where the client holds the label. Each takes those whose examples are least in demand."""
        holds = np.zeros((num_clients, len(supply)), np.int64)
        ties, demand = rng.random(holds.shape), np.zeros(len(supply))
        with np.errstate(divide="ignore"):
            per_holder = 1.0 / supply  # infinite for a label without examples: nobody takes it
        for k in range(num_clients):  # each choice depends on the ones before
            taken = np.argsort((demand + ties[k]) * per_holder)[: self.labels]
            demand[taken] += 1.0
            holds[k, taken] = 1
        return holds

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        supply = _supply(self, dataset, num_clients)
        there = int(np.count_nonzero(supply))
        bound = f"<= {there}, the labels that {dataset.name} has examples of"
        require(self.labels <= there, "LabelsPerClient: labels", self.labels, bound, "or use iid")
        sizes = _sizes(self, self.size, dataset, num_clients, rng, overlap=False)
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
        return _deal(self, dataset, dataset.y, wanted, rng, overlap=False)


PARTITIONS: Makers = {
    "iid": IID,
    "primary-label": PrimaryLabel,
    "dirichlet-labels": DirichletLabels,
    "dirichlet": Dirichlet,
    "labels-per-client": LabelsPerClient,
}


def partition(text: str, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
    """Split a data set as the text says.

    Args:
        text: "iid", "primary-label(0.8, size=500)", "dirichlet(alpha=0.3)", "labels-per-client(2, size=power-law)".
        dataset: what is split.
        num_clients: among how many.
        rng: such as fedpick.rng.stream(seed, 0, "partition").

    >>> data = Dataset("toy", np.zeros((60, 2), np.float32), np.arange(60, dtype=np.int32) % 3, classes=3)
    >>> partition("iid(size=log-normal(sigma=1, at_least=5))", data, 4, np.random.default_rng(0)).sizes
    array([14, 12, 20, 14])
    """
    how = make(text, "partition", PARTITIONS, values=SIZES, example="dirichlet(alpha=0.3) or iid")
    split: Federated = how(dataset, num_clients, rng)
    return split


def hold_out(federated: Federated, share: float, rng: np.random.Generator) -> Federated:
    """Each client sets this share of its examples aside for testing, at random; at least one stays for training.

    Where clients share examples, what anyone holds out leaves every training set, so that no test is seen in training.

    Args:
        federated: a split that holds nothing out yet.
        share: of each client's examples, rounded.
        rng: draws which.

    >>> data = Dataset("toy", np.zeros((60, 2), np.float32), np.arange(60, dtype=np.int32) % 3, classes=3)
    >>> split = hold_out(IID()(data, 3, np.random.default_rng(0)), 0.1, np.random.default_rng(1))
    >>> split.sizes, np.diff(split.held_starts)
    (array([18, 18, 18]), array([2, 2, 2]))
    """
    require(0.0 <= share < 1.0, "hold_out: share", share, "in [0, 1)", "something must stay for training")
    if len(federated.held):
        raise ContractError(
            f"hold_out: {len(federated.held)} examples are held out already; give the split before that"
        )
    sizes, num_clients = federated.sizes, len(federated)
    count = np.minimum(np.rint(share * sizes).astype(np.int64), np.maximum(sizes - 1, 0))
    owner = np.repeat(np.arange(num_clients), sizes)
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]  # within each client, at random
    first = order[np.arange(len(owner)) - federated.starts[owner] < count[owner]]
    held = federated.examples[np.sort(first)]
    tested = np.zeros(len(federated.dataset), bool)
    tested[held] = True
    stays = ~tested[federated.examples]
    left = np.bincount(owner[stays], minlength=num_clients)
    poorest = int(np.argmin(left))
    require(
        bool(left[poorest] >= 1),
        f"hold_out: examples left for training of client {poorest}",
        0,
        ">= 1",
        "the others hold its examples out: take a smaller share, larger clients or a split without overlap",
    )
    return replace(
        federated,
        examples=federated.examples[stays],
        starts=np.concatenate([[0], np.cumsum(left)]),
        held=held,
        held_starts=np.concatenate([[0], np.cumsum(count)]),
    )
