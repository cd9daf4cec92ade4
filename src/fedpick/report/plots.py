"""Plots of runs for a screen, and figures for papers, in colours that colour-blind readers can distinguish.

Figures for papers have the width of a column or of the text, small type, and lines that differ without colour.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from fedpick._support.extras import needed
from fedpick.core import metrics
from fedpick.core.errors import unknown_name
from fedpick.core.types import Floats, Ints
from fedpick.report.formats import latex_text
from fedpick.report.intervals import band
from fedpick.report.layout import short

__all__ = ["COLOURS", "LABELS", "OVER", "SIZES", "Curve", "Panel", "draw", "draw_figure", "is_share", "ranked"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
LABELS = metrics.LABELS | {"cep": "models returned so far"}
SHARES = ("accuracy", "worst_decile")  # metrics that are at most 1
SIZES = {"column": 3.35, "text": 6.9}  # widths of figures for papers, in inches
OVER = ("rounds", "time", "bytes")  # horizontal axes of figures for papers
_SAVING = {"svg.hashsalt": "fedpick", "savefig.dpi": 130, "pdf.fonttype": 42}  # the same figure, the same file
_DASHES = ("-", "--", ":", "-.")
_PAPER_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))  # all differ from each other in print
_PAPER_STYLE = {
    **{"font.size": 8, "axes.labelsize": 8, "axes.titlesize": 8, "legend.fontsize": 7},
    **{"xtick.labelsize": 7, "ytick.labelsize": 7, "xtick.major.width": 0.6, "ytick.major.width": 0.6},
    **{"axes.linewidth": 0.6, "lines.linewidth": 1.2, "axes.spines.top": False, "axes.spines.right": False},
}

Curve = Mapping[str, Any]  # of one seed: arrays by round ("clock", "cep", metrics) and "counts" by client
Looks = Mapping[str, dict[str, Any]]  # policy -> settings of its lines


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
    def seconds(self) -> float:
        """The time that the longest run took."""
        return max(float(seed["clock"][-1]) for seed in self.seeds)

    def points(self, metric: str) -> Iterator[tuple[str, Sequence[Curve], Ints, Floats]]:
        """For each policy: name, curves, positions where all seeds have the metric, and values (seeds, positions)."""
        for name, seeds in self.curves.items():
            curves: Floats = np.array([seed[metric] for seed in seeds], dtype=np.float64)
            at = np.flatnonzero(np.isfinite(curves).all(axis=0))
            yield name, seeds, at, curves[:, at]


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
                with open(fname, "w", encoding="utf-8") as out:
                    _write_pgf(self, out)
                return
            if kind in ("svg", "pdf"):
                date = "Date" if kind == "svg" else "CreationDate"
                how["metadata"] = {date: None, **how.get("metadata", {})}
            with matplotlib.rc_context(_SAVING):
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


def _line(axes: Any, x: Any, curves: Any, look: Mapping[str, Any], metric: str) -> None:
    """The mean over seeds, with its 95% t-interval as a band if there are several.

    Few seeds give wide intervals: a band ends where no value can be, at 0 and for shares at 1.
    """
    mean, half = band(curves)
    axes.plot(x, mean, **look, marker="." if len(mean) == 1 else None)
    if len(curves) > 1:
        least = 0.0 if np.min(curves, initial=0.0) >= 0 else -np.inf
        most = 1.0 if is_share(metric, curves) else np.inf
        low, high = np.maximum(mean - half, least), np.minimum(mean + half, most)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def ranked(counts: Sequence[Ints]) -> Ints:
    """Each seed's counts in rising order, (seeds, clients); some deployments saw more clients than others."""
    width = max(map(len, counts))
    return np.array([np.pad(np.sort(each), (width - len(each), 0)) for each in counts])


def _names(panels: Sequence[Panel]) -> list[str]:
    return list(dict.fromkeys(name for panel in panels for name in panel.curves))


def _add_legend(figure: Any, axes: Iterable[Any], columns: int, **how: Any) -> None:
    """One legend below the axes, with each policy once."""
    entries: dict[str, Any] = {}
    for each in axes:
        entries |= {label: handle for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    columns = min(columns, len(entries))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, frameon=False, **how)


# ---- for a screen


def draw(panels: Sequence[Panel], title: str, metric: str = "cep") -> Any:
    """Draw a metric of all runs over rounds and time, and how often each client was chosen; a row for each panel."""
    looks = {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i // len(COLOURS) % 4], "label": _plain(name)}
        for i, name in enumerate(_names(panels))
    }
    most = max(len(seeds) for panel in panels for seeds in panel.curves.values())
    bands = "bands: 95% t-intervals of the mean over seeds" if most > 1 else "one seed: no intervals"
    timed = any(panel.seconds > 0 for panel in panels)
    figure = _figure(14 if timed else 9.5, 0.8 + 3.9 * len(panels))
    rows = figure.subplots(len(panels), 3 if timed else 2, squeeze=False)
    for axes, panel in zip(rows, panels, strict=True):
        _draw_panel(axes, panel, metric, looks)
    columns = max(1, 150 // (max(len(look["label"]) for look in looks.values()) + 8))
    _add_legend(figure, rows[:, 0], columns, fontsize=9)
    figure.suptitle(f"{_plain(title)} ({bands})" if title else bands)
    return figure


def _draw_panel(axes: Sequence[Any], panel: Panel, metric: str, looks: Looks) -> None:
    over_rounds, *over_time, fairness = axes
    unit, time_label = _unit(panel.seconds)
    for name, seeds, at, curves in panel.points(metric):
        rounds = np.asarray(seeds[0].get("round", np.arange(1, len(seeds[0][metric]) + 1)))
        _line(over_rounds, rounds[at], curves, looks[name], metric)
        for each in over_time:
            time = np.array([seed["clock"] for seed in seeds]).mean(axis=0) / unit
            _line(each, time[at], curves, looks[name], metric)
        counts = ranked([seed["counts"] for seed in seeds])
        _line(fairness, np.linspace(0, 100, counts.shape[1]), counts, looks[name], "counts")
    over_rounds.set(xlabel="round", ylabel=LABELS.get(metric, _plain(metric)), title=_plain(panel.title))
    over_rounds.xaxis.get_major_locator().set_params(integer=True)
    for each in over_time:
        each.set(xlabel=time_label, title="the same over time")
        each.set_visible(panel.seconds > 0)
    fairness.set(xlabel="clients, least chosen first (%)", ylabel="times chosen", title="who was chosen")
    for each in axes:
        each.grid(alpha=0.3)


# ---- for a paper


def draw_figure(panels: Sequence[Panel], size: str, metric: str, over: str = "rounds") -> Any:
    """Draw a metric of all runs, mean over seeds and 95% t-intervals; axes for each panel, no title.

    Args:
        panels: of the blocks.
        size: "column" or "text".
        metric: to draw.
        over: "rounds", "time" or "bytes".
    """
    if size not in SIZES:
        raise unknown_name("size", size, list(SIZES))
    if over not in OVER:
        raise unknown_name("axis", over, list(OVER))
    matplotlib = needed("matplotlib", "a figure", "report")
    names = _names(panels)
    looks = {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": _PAPER_DASHES[i % 4], "label": _plain(short(name, 50))}
        for i, name in enumerate(names)
    }
    wide = SIZES[size]
    across = 1 if size == "column" else min(len(panels), 3)
    down = -(-len(panels) // across)
    columns = max(1, int(wide / 0.062) // (max(len(look["label"]) for look in looks.values()) + 6))
    legend = 0.16 * -(-len(names) // columns)
    with matplotlib.rc_context(_PAPER_STYLE):
        figure = _figure(wide, down * min(2.1, 0.62 * wide / across + 0.3) + legend)
        grid = figure.subplots(down, across, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_metric(axes, panel, metric, over, looks)
            if len(panels) > 1:
                axes.set_title(_plain(short(panel.title, 40 if across > 1 else 60)))
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        _add_legend(figure, grid.flat, columns)
    return figure


def _draw_metric(axes: Any, panel: Panel, metric: str, over: str, looks: Looks) -> None:
    unit, time_label = _unit(panel.seconds)
    sent = max(float(np.sum(seed["megabytes"])) for seed in panel.seeds)
    volume, volume_label = (1.0, "MB sent") if sent < 1e3 else (1e3, "GB sent") if sent < 1e6 else (1e6, "TB sent")
    means: list[float] = []
    for name, seeds, at, curves in panel.points(metric):
        x = {
            "rounds": np.asarray(seeds[0]["round"], dtype=np.float64),
            "time": np.mean([seed["clock"] for seed in seeds], axis=0) / unit,
            "bytes": np.mean([np.cumsum(seed["megabytes"]) for seed in seeds], axis=0) / volume,
        }
        _line(axes, x[over][at], curves, looks[name], metric)
        means += curves.mean(axis=0).tolist()
    if means:  # wide bands of a few seeds may leave the picture, the means never
        (low, high), room = axes.get_ylim(), 0.6 * (max(means) - min(means)) or 0.5
        axes.set_ylim(max(low, min(means) - room), min(high, max(means) + room))
    labels = {"rounds": "round", "time": time_label, "bytes": volume_label}
    axes.set(xlabel=labels[over], ylabel=LABELS.get(metric, _plain(short(metric, 50))))
    if over == "rounds":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3, linewidth=0.4)


def _write_pgf(figure: Any, out: IO[str]) -> None:
    """Write a figure as PGF commands for LaTeX.

    matplotlib's own writer starts LaTeX to measure texts. Here they are measured in matplotlib's font, so that no LaTeX
    is needed; and names are escaped, so that an underscore in one is no error.
    """
    agg, mixed, pgf = (
        needed(f"matplotlib.backends.backend_{each}", "PGF", "report") for each in ("agg", "mixed", "pgf")
    )
    renderer = pgf.RendererPgf(figure, out)
    draw_text = renderer.draw_text

    def draw_escaped(gc: Any, x: float, y: float, s: str, *rest: Any, **more: Any) -> None:
        draw_text(gc, x, y, latex_text(s), *rest, **more)

    renderer.draw_text = draw_escaped
    renderer.get_text_width_height_descent = agg.RendererAgg(1, 1, figure.dpi).get_text_width_height_descent
    width, height = figure.get_size_inches()
    lines = [
        "% Made by fedpick. In the document: \\usepackage{pgf}, then \\input{THIS FILE}",
        "\\begingroup",
        "\\makeatletter",
        "\\begin{pgfpicture}",
        f"\\pgfpathrectangle{{\\pgfpointorigin}}{{\\pgfqpoint{{{width:f}in}}{{{height:f}in}}}}",
        "\\pgfusepath{use as bounding box, clip}",
    ]
    out.write("%\n".join(lines) + "%\n")
    figure.draw(mixed.MixedModeRenderer(figure, width, height, figure.dpi, renderer))
    out.write("\\end{pgfpicture}%\n\\makeatother%\n\\endgroup%\n")
