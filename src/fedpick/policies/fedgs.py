"""FedGS: cohorts of clients with different data, with all clients chosen equally often.

A graph joins clients with similar data (`fedpick.graph`); the cohort maximises  alpha/N s'Hs - z's  (16), where H are
the shortest paths on that graph and z the centred numbers of times that clients were chosen. `fedpick.solvers.disperse`
searches for the maximum.

Trusts: features and embeddings, for distances only. A client can falsely look different from all others, but its count
limits its gain: with the default scale it is chosen at most about alpha (N-1)/M times more than the others.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick import graph as graphs
from fedpick import solvers
from fedpick.core.errors import ContractError, MissingError, SettingError
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.state import pairwise_field
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places
from fedpick.policies.about import About, Paper

__all__ = ["FedGS", "FedGSState"]

PAPER = Paper(
    "wang2023fedgs",
    "Wang, Zheng and Fan, Xiaoliang and Qi, Jianzhong and Jin, Haibing and Yang, Peizhen and Shen, Siqi and "
    "Wang, Cheng",
    "{FedGS}: Federated Graph-Based Sampling with Arbitrary Client Availability",
    2023,
    "booktitle = {AAAI Conference on Artificial Intelligence}",
    "https://arxiv.org/abs/2211.13975",
)

log = logging.getLogger(__name__)

SCALES = ("cohort", "paper")
DENSE_UP_TO = 1_000  # clients; with more, the graph keeps only each client's nearest neighbours
MOST_CLIENTS = 30_000  # H is K x K: 3.6 GB in float32 at this size


@dataclass
class FedGSState:
    """Counts, a vector per client (NaN: not known yet), and H (NaN on the diagonal: not in the graph yet)."""

    counts: Ints
    vectors: Floats
    distance: NDArray[np.floating] = pairwise_field()


def _known(vectors: Floats) -> Bools:
    """Mask of the clients whose vector has a direction: not zero, NaN or infinite."""
    mask: Bools = np.isfinite(vectors).all(axis=1) & (vectors != 0.0).any(axis=1)
    return mask


@dataclass(frozen=True, eq=False)
class FedGS(ByValue):
    """Cohorts with different data and equal participation, for any availability.

    Without rounds (`fp.Buffered`) every task counts as soon as it has ended, also one that failed or timed out, and who
    works cannot be chosen: with alpha = 0, nobody is asked who was asked more often than somebody idle. A client that
    needs longer than a turn of the others takes part less often.

    Args:
        cohort_size: M.
        alpha: weight of diversity against equal counts; 0 takes the clients chosen least often.
        graph: source of the distances: "features" (`Clients.features`), the name of a report such as "embedding" or
            "update" (the graph then grows as clients report; until two have reported, alpha counts as 0), a (K, K)
            array of distances, or a function of fp.Clients that returns one. "auto" is "features" if there are any,
            else "embedding".
        sigma2: sigma^2 of the graph's edges exp(-V/sigma^2). The paper's .01 makes distances differ by many orders
            of magnitude, and cohorts were less balanced (L2 distance to the label mix .170 against .051 at .3).
        epsilon: smallest similarity of two clients that are joined by an edge.
        neighbours: edges kept per client; None keeps all edges up to 1,000 clients, and 10 per client beyond.
        scale: "cohort" divides s'Hs by M(M-1), the pairs of the cohort, as in the text on (13) and the authors' code;
            "paper" by N(N-1) as (13) is printed, with which alpha <= 5 only decides between equal counts.
        rebuild_every: rounds between rebuilds of a graph that grows from reports; a rebuild takes about a second for
            1,000 clients.
        restarts: random starts of the search.
        time_limit: seconds for the search, which makes the choice depend on the machine's speed; None: no limit.
    """

    cohort_size: int
    alpha: float = 1.0
    graph: str | ArrayLike | Callable[[Clients], ArrayLike] = "auto"
    sigma2: float = 0.3
    epsilon: float = 0.1
    neighbours: int | None = None
    scale: str = "cohort"
    rebuild_every: int = 1
    restarts: int = 16
    time_limit: float | None = None

    about = About(("fedgs",), PAPER, forms=({"graph": "embedding"},), measured_up_to=10_000)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "alpha", low=0.0)
        check.number(self, "sigma2", "time_limit", low=0.0, open=True)
        check.number(self, "epsilon", low=0.0, high=1.0, open=True)
        check.number(self, "neighbours", "rebuild_every", "restarts", low=1)
        check.one_of(self, "scale", SCALES)

    @property
    def needs(self) -> tuple[str, ...]:
        """Features or a report, if `graph` names it."""
        return (self.graph,) if isinstance(self.graph, str) and self.graph != "auto" else ()

    @property
    def wants(self) -> tuple[str | ReportSpec, ...]:
        """Features, or else embeddings, if `graph` is "auto"."""
        auto = isinstance(self.graph, str) and self.graph == "auto"
        blind = "only how often each client was chosen, without a graph"
        return ("features", ReportSpec("embedding", unless="features", instead=blind)) if auto else ()

    def init(self, clients: Clients) -> FedGSState:
        """Return the state before the first round, with the graph if it can be built already."""
        counts = np.zeros(len(clients), dtype=np.int64)
        if not isinstance(self.graph, str):
            return FedGSState(counts, np.empty((len(clients), 0)), self._given(clients))
        vectors = np.empty((len(clients), 0))
        if self.graph in ("auto", "features"):
            if clients.features is not None:
                vectors = clients.features.copy()
            elif self.graph == "features":
                raise MissingError(
                    "FedGS: graph='features', but Clients.features is None; give features of shape (K, F), such as "
                    "label histograms, or graph='embedding' to build the graph from reports"
                )
        return FedGSState(counts, vectors, self._distances(vectors))

    def _given(self, clients: Clients) -> NDArray[np.floating]:
        given = self.graph(clients) if callable(self.graph) else self.graph
        distance = np.asarray(given, dtype=np.float64)
        count = len(clients)
        if distance.shape != (count, count):
            raise ContractError(
                f"FedGS: graph has shape {distance.shape}, but distances between {count} clients need ({count}, "
                f"{count}); to enrol clients later, give a function of fp.Clients instead of an array"
            )
        if not np.isfinite(distance).all() or (distance < 0).any():
            raise SettingError("FedGS: graph holds a distance that is negative, NaN or infinite")
        largest = distance.max(initial=0.0)
        return distance / largest if largest > 0 else distance

    def _distances(self, vectors: Floats) -> NDArray[np.floating]:
        """H of the clients with a vector, in [0, 1]; of shape (0, 0) while fewer than two have one."""
        known = np.flatnonzero(_known(vectors))
        if len(known) < 2 or self.alpha == 0.0:
            return np.empty((0, 0), dtype=np.float32)
        instead = f"their distances would take {len(vectors) ** 2 * 4 / 2**30:.0f} GiB; use alpha=0, which needs none"
        check.few(self, "clients", len(vectors), MOST_CLIENTS, instead)
        neighbours = self.neighbours
        if neighbours is None and len(known) > DENSE_UP_TO:
            neighbours = 10
        log.info("FedGS: building the graph of %d clients", len(known))
        edges = graphs.three_dg_from_vectors(
            vectors[known], neighbours=neighbours, epsilon=self.epsilon, sigma2=self.sigma2
        )
        paths = graphs.shortest_paths(edges, dtype=np.float32 if len(known) > DENSE_UP_TO else np.float64)
        if len(known) == len(vectors):
            return paths
        whole = np.full((len(vectors), len(vectors)), np.nan, dtype=paths.dtype)
        whole[np.ix_(known, known)] = paths
        return whole

    def select(self, state: FedGSState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort by (16)."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        total = len(view.clients)
        counts = state.counts
        if view.ended is not None:  # without rounds: whose tasks have ended; who still works cannot be chosen anyway
            counts = counts + np.bincount(view.ended, minlength=total)
        z = 2.0 * (counts - counts.mean() - m / total) + 1.0
        distance = state.distance
        unplaced = np.isnan(distance.diagonal())
        if self.alpha == 0.0 or m == 1 or unplaced.all():  # no graph yet counts as all unplaced
            ids = ids[solvers.top(-z[ids], m, rng)]
        else:
            pair = self.alpha / total if self.scale == "paper" else self.alpha * (total - 1) / (m * (m - 1))
            if unplaced.any():  # clients not in the graph yet get the mean distance to all others
                distance = np.nan_to_num(distance, nan=float(np.nanmean(distance)))
                np.fill_diagonal(distance, 0.0)
            ids = solvers.disperse(
                distance,
                z,
                m,
                pair * total,
                mask=view.available,
                rng=rng,
                restarts=self.restarts,
                time_limit=self.time_limit,
            )
        sizes = view.clients.sizes[ids]
        return Choice(ids, weights=sizes / sizes.sum())  # (18)

    def observe(self, state: FedGSState, view: View, choice: Choice, outcome: Outcome) -> FedGSState:
        """Count the chosen clients; update the graph from their reports."""
        check_outcome(view, choice, outcome)
        vectors, fresh = state.vectors, False
        report = self._report(view, outcome)
        if report is not None and len(choice):
            usable = outcome.succeeded & _known(report)
            if usable.any():
                if vectors.shape[1] == 0:
                    vectors = np.full((len(vectors), report.shape[1]), np.nan)
                if report.shape[1] != vectors.shape[1]:
                    raise ContractError(
                        f"FedGS: a report has {report.shape[1]} columns, but earlier ones had {vectors.shape[1]}"
                    )
                vectors[choice.ids[usable]] = report[usable]
                fresh = view.round % self.rebuild_every == 0
        state.counts[choice.ids] += 1
        distance = state.distance
        if isinstance(self.graph, str):
            placed = len(distance) == len(vectors)
            waiting = placed and bool((np.isnan(distance.diagonal()) & _known(vectors)).any())
            if fresh or (waiting and report is None):
                distance = self._distances(vectors)
        return FedGSState(state.counts, vectors, distance)

    def _report(self, view: View, outcome: Outcome) -> Floats | None:
        """The report that the graph is built from, if there is one."""
        if not isinstance(self.graph, str) or self.graph == "features":
            return None
        if self.graph == "auto" and view.clients.features is not None:
            return None
        name = "embedding" if self.graph == "auto" else self.graph
        if name not in outcome.reports or len(outcome) == 0:
            return None
        report = np.asarray(outcome.reports[name], dtype=np.float64)
        return report.reshape(len(report), -1)
