"""A partition as a figure and in words: which labels each client has, and how many examples."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick._support.extras import needed
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Federated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["describe", "draw"]

# Ten colours chosen for colour-blind readers (Paul Tol's "muted").
_COLOURS = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#999933", "#882255", "#BBBBBB",
)  # fmt: skip
_BLUE = "#0072B2"
_MOST_BARS = 60
_RULES: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "fedpick",
}


def _mixes(labels: Ints) -> Floats:
    """Each client's share of each label; 0 for a client without examples."""
    mixes: Floats = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    return mixes


def _distance(labels: Ints) -> float:
    """Mean total variation distance of the clients' mixes from the mix of all that they hold."""
    whole = labels.sum(axis=0) / max(labels.sum(), 1)
    return float(np.abs(_mixes(labels) - whole).sum(axis=1).mean() / 2)


def describe(federated: Federated) -> str:
    """The split in a few lines.

    >>> from fedpick.data.federated import Dataset
    >>> data = Dataset("toy", np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), classes=2)
    >>> print(describe(Federated(data, examples=np.array([2, 0, 1]), starts=np.array([0, 2, 3]))))
    toy: 2 clients, 2 labels
    examples: 3 to train on, 0 held out by clients, 0 to test for everyone
    examples per client: 1 least, 1.5 median, 2 most
    labels per client: 1.0 on average; label mixes are 0.50 from the whole (0 alike, 1 nothing in common)
    """
    data, sizes, labels = federated.dataset, federated.sizes, federated.labels
    kind = f"{data.classes} labels" if data.classes else "a regression"
    lines = [
        f"{data.name}: {len(federated):,} clients, {kind}",
        f"examples: {len(federated.examples):,} to train on, {len(federated.held):,} held out by clients, "
        f"{len(data.test_x):,} to test for everyone",
        f"examples per client: {sizes.min():,} least, {np.median(sizes):,g} median, {sizes.max():,} most",
    ]
    twice = len(federated.examples) - len(np.unique(federated.examples))
    if twice:
        lines[1] += f"; {twice / len(federated.examples):.0%} of the training examples are copies of others"
    if labels is not None:
        lines.append(
            f"labels per client: {np.count_nonzero(labels, axis=1).mean():.1f} on average; label mixes are "
            f"{_distance(labels):.2f} from the whole (0 alike, 1 nothing in common)"
        )
    return "\n".join(lines)


def _bars(axes: Any, side: Any, mixes: Floats) -> None:
    """Stacked bars; the legend stands in the panel beside them."""
    floor = np.zeros(len(mixes))
    for label, share in enumerate(mixes.T):
        axes.bar(np.arange(len(mixes)), share, bottom=floor, width=0.85, color=_COLOURS[label], label=str(label))
        floor = floor + share
    axes.set(ylim=(0, 1), ylabel="share of the client's examples")
    handles, names = axes.get_legend_handles_labels()  # from the top down, as they are stacked
    side.legend(handles[::-1], names[::-1], title="label", loc="center left", borderaxespad=0)


def _heat(figure: Any, axes: Any, side: Any, mixes: Floats) -> None:
    """One column per client; the scale of colours stands in the panel beside it."""
    edges = np.arange(len(mixes) + 1) - 0.5, np.arange(mixes.shape[1] + 1) - 0.5
    mesh = axes.pcolormesh(*edges, mixes.T, cmap="viridis", vmin=0.0, rasterized=True)
    axes.grid(False)
    axes.set_ylabel("label")
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=13)
    scale = side.inset_axes((0.0, 0.05, 0.1, 0.9))
    scale.grid(False)
    figure.colorbar(mesh, cax=scale, label="share of the client's examples")


def _sizes(axes: Any, side: Any, sizes: Ints, few: bool) -> None:
    """A bar for each client, and the histogram of sizes on the same scale."""
    low, high = max(int(sizes.min()), 1), max(int(sizes.max()), 1)
    log = high > 20 * low
    floor, top = (low / 1.5, high * 1.3) if log else (0.0, high * 1.08)
    bins = np.geomspace(floor, top, 21) if log else np.linspace(floor, top, 21)
    if few:
        axes.bar(np.arange(len(sizes)), sizes, width=0.85, color=_BLUE)
    else:  # one outline: ten thousand bars take seconds
        axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=_BLUE)
    axes.set_yscale("log" if log else "linear")
    axes.set(ylim=(floor, top), ylabel="examples" + (" (log scale)" if log else ""))
    side.hist(sizes, bins=bins, orientation="horizontal", color=_BLUE)
    side.set(xlabel="number of clients", title=f"median {np.median(sizes):,g}")
    side.xaxis.get_major_locator().set_params(integer=True)
    side.tick_params(labelleft=False)


def draw(federated: Federated, title: str) -> "Figure":
    """The label mix and the size of every client, and how sizes are distributed.

    Up to 60 clients and 10 labels: bars, clients in their order. Beyond: a heat map, clients sorted by the label that
    they hold most of. A regression shows sizes only, the largest client first beyond 60.

    >>> from fedpick.data.federated import Dataset
    >>> data = Dataset("toy", np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), classes=2)
    >>> figure = draw(Federated(data, examples=np.array([2, 0, 1]), starts=np.array([0, 2, 3])), "two clients")
    >>> len(figure.axes)
    4
    """
    matplotlib = needed("matplotlib", "drawing a split", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    sizes, labels = federated.sizes, federated.labels
    few = len(federated) <= _MOST_BARS
    bars = few and federated.dataset.classes <= len(_COLOURS)
    order, sorting = np.arange(len(federated)), ""
    if labels is not None and not bars:
        mixes = _mixes(labels)
        order = np.lexsort((-mixes.max(axis=1), mixes.argmax(axis=1)))
        sorting = "s, sorted by the label that they hold most of"
    elif not few:
        order, sorting = np.argsort(-sizes, kind="stable"), "s, the largest first"
    with matplotlib.rc_context(_RULES):
        figure = Figure(figsize=(10, 3.4 if labels is None else 6), layout="constrained")
        FigureCanvasAgg(figure)  # no pyplot, so that nothing global stays open
        rows = [1] if labels is None else [2, 1]
        panels = figure.subplots(
            len(rows), 2, squeeze=False, sharex="col", gridspec_kw={"width_ratios": [5, 1], "height_ratios": rows}
        )
        amount, spread = panels[-1]
        spread.sharey(amount)
        _sizes(amount, spread, sizes[order], few=few)
        if labels is not None:
            mix, side = panels[0]
            side.set_axis_off()
            if bars:
                _bars(mix, side, _mixes(labels))
            else:
                _heat(figure, mix, side, _mixes(labels)[order])
        amount.set(xlabel="client" + sorting, xlim=(-0.6, len(sizes) - 0.4))
        amount.xaxis.set_major_locator(MaxNLocator(20 if few else 10, integer=True))
        figure.suptitle(title)
    return figure
