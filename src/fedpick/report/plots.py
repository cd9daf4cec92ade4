"""Plots of runs, in colours that colour-blind readers can distinguish."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.core import metrics
from fedpick.core.types import Floats, Ints
from fedpick.report._extras import needed
from fedpick.report.intervals import band

__all__ = ["COLOURS", "LABELS", "Panel", "draw", "ranked"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_DASHES = ("-", "--", ":", "-.")
LABELS = metrics.LABELS | {"cep": "models returned so far"}
SHARES = ("accuracy", "worst_decile")  # metrics that are at most 1
_STYLE = {"svg.hashsalt": "fedpick", "savefig.dpi": 130, "pdf.fonttype": 42}  # the same figure, the same file

Curve = Mapping[str, Any]  # of one seed: arrays by round ("clock", "cep", metrics) and "counts" by client


@dataclass(frozen=True)
class Panel:
    """A row of the figure: the policies of one block, each with a curve per seed."""

    title: str
    curves: Mapping[str, Sequence[Curve]]

    @property
    def seeds(self) -> list[Curve]:
        """The curves of all policies and seeds."""
        return [seed for seeds in self.curves.values() for seed in seeds]

    @property
    def takes_time(self) -> bool:
        """Whether rounds take time, so that curves over time can be drawn."""
        return any(seed["clock"][-1] > 0 for seed in self.seeds)


def _figure(width: float, height: float) -> Any:
    """A figure made without pyplot, which would keep it open globally."""
    matplotlib = needed("matplotlib", "a plot", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Plot(Figure):
        """A figure that gives the same file when saved again, and that a notebook shows without pyplot."""

        def savefig(self, fname: Any, **how: Any) -> None:
            kind = how.get("format") or str(fname).rsplit(".", 1)[-1].lower()
            if kind == "pgf":
                from fedpick.report.figures import write_pgf

                with open(fname, "w", encoding="utf-8") as out:
                    write_pgf(self, out)
                return
            if kind in ("svg", "pdf"):
                date = "Date" if kind == "svg" else "CreationDate"
                how["metadata"] = {date: None, **how.get("metadata", {})}
            with matplotlib.rc_context(_STYLE):
                super().savefig(fname, **how)

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    made = Plot(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def _unit(seconds: float) -> tuple[float, str]:
    """The unit for a time axis of this length: (seconds per unit, name)."""
    if seconds < 300.0:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600.0 else (3600.0, "hours")


def _plain(text: str) -> str:
    """Escape text so that matplotlib shows it literally ("$" begins a formula, a leading "_" hides a legend entry)."""
    return text.replace("$", r"\$").replace("_", " _", int(text.startswith("_")))


def is_share(metric: str, values: Any) -> bool:
    """Whether a metric is at most 1; a deployment may give its accuracy in percent."""
    return metric in SHARES and bool(np.max(values, initial=0.0) <= 1.0)


def _line(place: Any, x: Any, curves: Any, look: Mapping[str, Any], metric: str) -> None:
    """The mean over seeds, with its 95% t-interval as a band if there are several.

    Few seeds give wide intervals: a band ends where no value can be, at 0 and for shares at 1.
    """
    mean, half = band(curves)
    place.plot(x, mean, **look, marker="." if len(mean) == 1 else None)
    if len(curves) > 1:
        least = 0.0 if np.min(curves, initial=0.0) >= 0 else -np.inf
        most = 1.0 if is_share(metric, curves) else np.inf
        low, high = np.maximum(mean - half, least), np.minimum(mean + half, most)
        place.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def ranked(counts: Sequence[Ints]) -> Ints:
    """Each seed's counts in rising order, (seeds, clients); some deployments saw more clients than others."""
    width = max(map(len, counts))
    return np.array([np.pad(np.sort(each), (width - len(each), 0)) for each in counts])


def _draw_panel(axes: Sequence[Any], panel: Panel, metric: str, looks: Mapping[str, dict[str, Any]]) -> None:
    over_rounds, *over_time, fairness = axes
    unit, called = _unit(max(float(seed["clock"][-1]) for seed in panel.seeds))
    for name, seeds in panel.curves.items():
        curves: Floats = np.array([seed[metric] for seed in seeds], dtype=np.float64)
        at = np.flatnonzero(np.isfinite(curves).all(axis=0))
        rounds = np.asarray(seeds[0].get("round", np.arange(1, curves.shape[1] + 1)))
        _line(over_rounds, rounds[at], curves[:, at], looks[name], metric)
        for place in over_time:
            time = np.array([seed["clock"] for seed in seeds]).mean(axis=0) / unit
            _line(place, time[at], curves[:, at], looks[name], metric)
        counts = ranked([seed["counts"] for seed in seeds])
        _line(fairness, np.linspace(0, 100, counts.shape[1]), counts, looks[name], "counts")
    over_rounds.set(xlabel="round", ylabel=LABELS.get(metric, _plain(metric)), title=_plain(panel.title))
    over_rounds.xaxis.get_major_locator().set_params(integer=True)
    for place in over_time:
        place.set(xlabel=called, title="the same over time")
        place.set_visible(panel.takes_time)
    fairness.set(xlabel="clients, least chosen first (%)", ylabel="times chosen", title="who was chosen")
    for each in axes:
        each.grid(alpha=0.3)


def draw(panels: Sequence[Panel], title: str, metric: str = "cep") -> Any:
    """Draw a metric over rounds and over time, and how often each client was chosen; bands are 95% t-intervals.

    Args:
        panels: the rows of the figure.
        title: of the figure.
        metric: to draw, one that all runs have.
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    looks = {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i // len(COLOURS) % 4], "label": _plain(name)}
        for i, name in enumerate(names)
    }
    most = max(len(seeds) for panel in panels for seeds in panel.curves.values())
    said = "bands: 95% t-intervals of the mean over seeds" if most > 1 else "one seed: no intervals"
    timed = any(panel.takes_time for panel in panels)
    figure = _figure(14 if timed else 9.5, 0.8 + 3.9 * len(panels))
    rows = figure.subplots(len(panels), 3 if timed else 2, squeeze=False)
    for axes, panel in zip(rows, panels, strict=True):
        _draw_panel(axes, panel, metric, looks)
    entries: dict[str, Any] = {}  # one legend below the axes, with each policy once
    for axes in rows[:, 0]:
        entries |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = max(1, min(len(entries), 150 // (max(map(len, entries)) + 8)))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    figure.suptitle(f"{_plain(title)} ({said})" if title else said)
    return figure
