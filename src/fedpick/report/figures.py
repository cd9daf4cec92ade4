"""Figures for papers: the width of a column or of the text, small type, bands, and lines that differ without colour."""

from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from fedpick.core.errors import unknown_name
from fedpick.core.types import Floats
from fedpick.report._extras import needed
from fedpick.report.formats import latex_text
from fedpick.report.plots import COLOURS, LABELS, Panel, _figure, _line, _plain, _unit

__all__ = ["OVER", "SIZES", "draw_figure", "write_pgf"]

SIZES = {"column": 3.35, "text": 6.9}  # inches
OVER = ("rounds", "time", "bytes")
BACKENDS = ("agg", "mixed", "pgf")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))  # all differ from each other in print
_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_figure(panels: Sequence[Panel], size: str, metric: str, over: str = "rounds") -> Any:
    """A metric, its mean over seeds and 95% t-intervals as bands; a panel per block, no title.

    Args:
        panels: of the blocks.
        size: "column" or "text".
        metric: to draw, one that all runs have.
        over: "rounds", "time" or "bytes".
    """
    if size not in SIZES:
        raise unknown_name("size", size, list(SIZES))
    if over not in OVER:
        raise unknown_name("axis", over, list(OVER))
    matplotlib = needed("matplotlib", "a figure", "report")
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    looks = {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i % 4], "label": _plain(_short(name))}
        for i, name in enumerate(names)
    }
    wide = SIZES[size]
    across = 1 if size == "column" else min(len(panels), 3)
    down = -(-len(panels) // across)
    columns = max(1, int(wide / 0.062) // (max(len(look["label"]) for look in looks.values()) + 6))
    legend = 0.16 * -(-len(names) // columns)
    with matplotlib.rc_context(_STYLE):
        figure = _figure(wide, down * min(2.1, 0.62 * wide / across + 0.3) + legend)
        grid = figure.subplots(down, across, squeeze=False)
        for place, panel in zip(grid.flat, panels, strict=False):
            _draw(place, panel, metric, over, looks)
            if len(panels) > 1:
                place.set_title(_plain(_short(panel.title, 40 if across > 1 else 60)))
        for place in grid.flat[len(panels) :]:
            place.set_visible(False)
        handles = {label: handle for place in grid.flat for handle, label in zip(*_entries(place), strict=True)}
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _entries(place: Any) -> Any:
    return place.get_legend_handles_labels()


def _short(text: str, most: int = 50) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _draw(place: Any, panel: Panel, metric: str, over: str, looks: Mapping[str, dict[str, Any]]) -> None:
    unit, called = _unit(max(float(seed["clock"][-1]) for seed in panel.seeds))
    sent = max(float(np.sum(seed["megabytes"])) for seed in panel.seeds)
    volume, bulk = (1.0, "MB sent") if sent < 1e3 else (1e3, "GB sent") if sent < 1e6 else (1e6, "TB sent")
    means: list[float] = []
    for name, seeds in panel.curves.items():
        curves: Floats = np.array([seed[metric] for seed in seeds], dtype=np.float64)
        at = np.flatnonzero(np.isfinite(curves).all(axis=0))
        ways = {
            "rounds": np.asarray(seeds[0]["round"], dtype=np.float64),
            "time": np.mean([seed["clock"] for seed in seeds], axis=0) / unit,
            "bytes": np.mean([np.cumsum(seed["megabytes"]) for seed in seeds], axis=0) / volume,
        }
        _line(place, ways[over][at], curves[:, at], looks[name], metric)
        means += curves[:, at].mean(axis=0).tolist()
    if means:  # wide bands of a few seeds may leave the picture, the means never
        (low, high), room = place.get_ylim(), 0.6 * (max(means) - min(means)) or 0.5
        place.set_ylim(max(low, min(means) - room), min(high, max(means) + room))
    labels = {"rounds": "round", "time": called, "bytes": bulk}
    place.set(xlabel=labels[over], ylabel=LABELS.get(metric, _plain(_short(metric))))
    if over == "rounds":
        place.xaxis.get_major_locator().set_params(integer=True)
    place.grid(alpha=0.3, linewidth=0.4)


def write_pgf(figure: Any, out: IO[str]) -> None:
    """Write a figure as PGF commands for LaTeX.

    matplotlib's own writer starts LaTeX to measure texts. Here they are measured in matplotlib's font, so that no LaTeX
    is needed; and names are escaped, so that an underscore in one is no error.

    Args:
        figure: to write.
        out: file of text.
    """
    agg, mixed, pgf = (needed(f"matplotlib.backends.backend_{each}", "PGF", "report") for each in BACKENDS)
    parent: Any = pgf.RendererPgf

    class Pgf(parent):  # type: ignore[misc]
        measured = agg.RendererAgg(1, 1, figure.dpi)

        def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
            return self.measured.get_text_width_height_descent(s, prop, ismath)

        def draw_text(self, gc: Any, x: float, y: float, s: str, *rest: Any, **more: Any) -> None:
            super().draw_text(gc, x, y, latex_text(s), *rest, **more)

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
    figure.draw(mixed.MixedModeRenderer(figure, width, height, figure.dpi, Pgf(figure, out)))
    out.write("\\end{pgfpicture}%\n\\makeatother%\n\\endgroup%\n")
