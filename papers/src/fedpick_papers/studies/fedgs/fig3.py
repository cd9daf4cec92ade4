"""FedGS, Fig. 3 and Theorem 1: the oracle graph, and how far apart on it a cohort with balanced labels is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from fedpick import graph, solvers
from fedpick.core import rng as rngs
from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._trained import split
from fedpick_papers.studies._verdicts import above, judge, within
from fedpick_papers.studies.fedgs._common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

PRINTED = "0.01"  # sigma^2 of the paper's oracle graph
GROUPS = 10  # of random cohorts, by their distance
REPEATS = 8  # searches for the farthest cohort, of which there are several


def _item(settings: Settings, seed: int) -> dict[str, Any]:
    shared = {name: value for name, value in settings.items() if name not in ("seeds", "seed0")}
    return {**shared, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, seed) for seed in seeds_of(settings)]


def _apart(labels: Floats, cohorts: Any) -> Floats:
    """Euclidean distance of each cohort's label shares to those of all clients."""
    sums = labels[cohorts].sum(axis=1)
    off = sums / sums.sum(axis=1, keepdims=True) - labels.sum(axis=0) / labels.sum()
    length: Floats = np.sqrt((off**2).sum(axis=1))
    return length


def _job(item: Item, _: Path) -> Measurement:
    """The graph of one division of the data, and random and far cohorts on it."""
    federated = split(item["data"], item["partition"], item["clients"], item["seed"])
    assert federated.labels is not None
    labels, m = federated.labels.astype(np.float64), item["cohort_size"]
    similarity = graph.from_features(labels)
    pairs = np.triu_indices(len(labels), 1)
    common = ((labels > 0).astype(int) @ (labels > 0).T.astype(int) > 0)[pairs]
    draw = rngs.stream(item["seed"], 0, "cohorts")
    cohorts = np.argsort(draw.random((item["draws"], len(labels))), axis=1)[:, :m]
    apart = _apart(labels, cohorts)
    found: Measurement = {
        "shares": labels / labels.sum(axis=1, keepdims=True),
        "joined": float(np.mean((similarity[pairs] >= item["epsilon"]) == common)),
        "random": float(apart.mean()),
        "by_sigma2": {},
    }
    for sigma2 in item["sigma2"]:
        paths = graph.shortest_paths(graph.three_dg(similarity, item["epsilon"], sigma2))
        far = np.array([paths[np.ix_(ids, ids)].sum() / (m * (m - 1)) for ids in cohorts])
        order = np.argsort(far, kind="stable")
        chosen = [solvers.disperse(paths, np.zeros(len(labels)), m, 1.0, rng=draw) for _ in range(REPEATS)]
        found["by_sigma2"][f"{sigma2:g}"] = {
            "correlation": float(spearmanr(far, apart).statistic),
            "farthest": float(_apart(labels, np.array(chosen)).mean()),
            "distance": np.array([far[part].mean() for part in np.array_split(order, GROUPS)]),
            "apart": np.array([apart[part].mean() for part in np.array_split(order, GROUPS)]),
        }
    return found


def _gather(settings: Settings, found: Found) -> Result:
    runs = [found[_item(settings, seed)] for seed in seeds_of(settings)]
    result: Result = {name: settings[name] for name in ("clients", "cohort_size", "draws", "epsilon")}
    result |= {"shares": rounded(runs[0]["shares"], 3), "joined": rounded([run["joined"] for run in runs])}
    result |= {"random": rounded([run["random"] for run in runs]), "by_sigma2": {}}
    for name in runs[0]["by_sigma2"]:
        part = [run["by_sigma2"][name] for run in runs]
        mean, half = band([one["apart"] for one in part])
        result["by_sigma2"][name] = {
            "correlation": rounded([one["correlation"] for one in part]),
            "farthest": rounded([one["farthest"] for one in part]),
            "distance": rounded(np.mean([one["distance"] for one in part], axis=0)),
            "mean": rounded(mean),
            "half": rounded(half),
        }
    return result


def _score(result: Result) -> list[Finding]:
    findings = []
    for sigma2, one in result["by_sigma2"].items():
        gap = np.subtract(result["random"], one["farthest"])
        ours = {} if sigma2 == PRINTED else {"extension": True}
        findings += [
            Finding(
                f"The farther apart a cohort on the graph, the closer its labels to those of all (sigma^2 = {sigma2})",
                "Theorem 1, for a complete graph and one local step: 'a more approximate full model update'",
                f"rank correlation of distance and closeness: {show(-np.asarray(one['correlation']), 2)}",
                judge([above(-np.asarray(one["correlation"]), "closer if farther")]),
                "with one local step, a cohort's update differs from that of all clients by its labels; mean distance "
                f"of {result['draws']:,} random cohorts of {result['cohort_size']} clients, Euclidean distance of "
                "label shares",
                **ours,
            ),
            Finding(
                f"The cohort that is farthest apart is closer to all labels than a random one (sigma^2 = {sigma2})",
                "Theorem 1; no figure",
                f"distance of label shares: farthest {show(one['farthest'], 3)}, random {show(result['random'], 3)}",
                judge([above(gap, "random > farthest", digits=3)]),
                "a sum of distances is also large for two groups that are far from each other, each with labels in "
                "common, so that the farthest cohort of some divisions is not balanced",
                **ours,
            ),
        ]
    findings.append(
        Finding(
            "The graph joins two clients if they share a label, and no others",
            "a picture (Fig. 3)",
            f"pairs of which this is true: {show(100 * np.asarray(result['joined']), 1, '%')}",
            judge([within(100 * np.asarray(result["joined"]), "joined by labels", low=100.0, high=100.0)]),
            f"an edge needs a similarity of {result['epsilon']}",
            extension=True,
        )
    )
    return findings


def _places(similarity: Floats, sigma2: float, epsilon: float) -> Floats:
    """Clients in the plane: classical scaling of the distances on the graph, then pushed apart a little."""
    paths = graph.shortest_paths(graph.three_dg(similarity, epsilon, sigma2))
    centred = -0.5 * (paths**2 - (paths**2).mean(axis=0) - (paths**2).mean(axis=1)[:, None] + (paths**2).mean())
    weight, vectors = np.linalg.eigh(centred)
    at: Floats = vectors[:, -2:] * np.sqrt(np.maximum(weight[-2:], 1e-12))
    at /= np.abs(at).max()
    for _ in range(200):  # discs that overlap move away from each other
        gap = at[:, None] - at
        length = np.sqrt((gap**2).sum(axis=2)) + 1e-9
        push = np.maximum(0.28 - length, 0.0) * (1 - np.eye(len(at)))
        at += 0.1 * (gap / length[..., None] * push[..., None]).sum(axis=1)
    return at


def _plot(result: Result) -> "Figure":
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch, Wedge

    figure, axes = _plots.figure(10, 4.6, columns=2, width_ratios=(1.2, 1.0))
    shares = np.asarray(result["shares"])
    similarity = graph.from_features(shares)
    at = _places(similarity, max(map(float, result["by_sigma2"])), result["epsilon"])
    colours = [*_plots.COLOURS, "#999999", "#F0E442", "#8c510a"]
    left, right = axes[0]
    edges = [(i, j) for i in range(len(at)) for j in range(i) if similarity[i, j] >= result["epsilon"]]
    left.add_collection(LineCollection([at[list(pair)] for pair in edges], colors="0.7", linewidths=0.7, zorder=1))
    for place, share in zip(at, shares, strict=True):
        turn = 0.0
        for label in np.flatnonzero(share):
            end = turn + 360.0 * share[label]
            left.add_patch(Wedge(tuple(place), 0.11, turn, end, facecolor=colours[label % len(colours)], zorder=2))
            turn = end
    left.autoscale_view()
    left.set_aspect("equal")
    left.set_axis_off()
    labels = range(shares.shape[1])
    left.legend(handles=[Patch(color=colours[label], label=str(label)) for label in labels], title="label", ncols=2,
                loc="center left", bbox_to_anchor=(1.0, 0.5))  # fmt: skip
    left.set_title(f"oracle graph of {len(at)} clients (first seed)", fontsize=10)
    for i, (sigma2, one) in enumerate(result["by_sigma2"].items()):
        mean, half, look = np.asarray(one["mean"]), np.asarray(one["half"]), _plots.line(i)
        right.plot(one["distance"], mean, marker=_plots.MARKERS[i], markersize=4, label=f"sigma^2 = {sigma2}", **look)
        right.fill_between(one["distance"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
    right.set_xlabel("mean distance within the cohort (tenths of all cohorts)")
    right.set_ylabel("distance of its label shares to all clients'")
    right.legend()
    return figure


STUDY = Study(
    id="fedgs/fig3",
    title="The oracle graph, and what distance on it means for a cohort's labels",
    paper=f"{PAPER}, Fig. 3 and Theorem 1",
    settings={
        "data": "cifar10",
        "partition": "labels-per-client(labels=2)",
        "clients": 20,
        "cohort_size": 5,
        "draws": 2000,
        "epsilon": 0.1,
        "sigma2": [0.01, 0.3],
        "seeds": 40,
    },
    quick={"seeds": 2},
    items=_items,
    job=_job,
    gather=_gather,
    score=_score,
    plot=_plot,
    about="CIFAR-10 among 20 clients with two labels each, as in the paper's picture; each seed divides it anew. "
    "Similarity is the normalised product of label counts, an edge needs at least 0.1, and sigma^2 is the paper's 0.01 "
    "and our default 0.3. Without training: Theorem 1 is judged by the labels of cohorts of 5, our choice",
)
