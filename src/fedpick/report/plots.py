"""Plots of runs, told apart by the colour-blind, too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.types import Floats

__all__ = ["COLOURS", "comparison", "save"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_DASHES = ("-", "--", ":", "-.")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "fedpick"  # so that the same figure is the same file
    return plt


def _measure(runs: Sequence[Mapping[str, Floats]]) -> tuple[str, str, str]:
    """What all runs have to be drawn, its label, and a heading."""
    if all("accuracy" in run for run in runs):
        return "accuracy", "test accuracy", "learning"
    if all("test_loss" in run for run in runs):
        return "test_loss", "test loss", "learning"
    return "cep", "models returned so far", "effective participation"


def _unit(seconds: float) -> tuple[float, str]:
    """In what to draw so much time: (seconds in one, name)."""
    if seconds < 300.0:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600.0 else (3600.0, "hours")


def comparison(runs: Mapping[str, Sequence[Mapping[str, Floats]]], title: str) -> Any:
    """What was reached over rounds and over simulated time, and how often each client was chosen.

    Args:
        runs: for each policy, one mapping per seed with "cep", "clock" (per round) and "counts" (per client); where a
            model was trained also "accuracy" or "test_loss" (NaN in rounds without evaluation), drawn in place of cep.
        title: of the figure.
    """
    plt = _pyplot()
    shown, label, heading = _measure([seed for seeds in runs.values() for seed in seeds])
    figure, (over_rounds, over_time, fairness) = plt.subplots(1, 3, figsize=(14, 4.5), layout="constrained")
    unit, called = _unit(max(float(seed["clock"][-1]) for seeds in runs.values() for seed in seeds))
    for i, (name, seeds) in enumerate(runs.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i // len(COLOURS) % 4], "label": name}
        curves = np.array([seed[shown] for seed in seeds])
        at = np.flatnonzero(np.isfinite(curves).all(axis=0))
        curves, rounds = curves[:, at], at + 1
        over_rounds.plot(rounds, curves.mean(axis=0), **style)
        if len(curves) > 1:
            over_rounds.fill_between(rounds, curves.min(axis=0), curves.max(axis=0), color=style["color"], alpha=0.15)
        time = np.array([seed["clock"] for seed in seeds]).mean(axis=0)[at] / unit
        over_time.plot(time, curves.mean(axis=0), **style)
        ranked = np.sort(np.array([seed["counts"] for seed in seeds]), axis=1).mean(axis=0)
        fairness.plot(np.linspace(0, 100, len(ranked)), ranked, **style)
    over_rounds.set(xlabel="round", ylabel=label, title=heading)
    over_rounds.xaxis.get_major_locator().set_params(integer=True)
    over_time.set(xlabel=called, title="the same over time")
    over_time.set_visible(any(seed["clock"][-1] > 0 for seeds in runs.values() for seed in seeds))
    fairness.set(xlabel="clients, least chosen first (%)", ylabel="times chosen", title="who was chosen")
    for axes in (over_rounds, over_time, fairness):
        axes.grid(alpha=0.3)
    over_rounds.legend(fontsize=8)
    figure.suptitle(title.replace("$", r"\$"))  # no formula
    return figure


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    figure.savefig(png, dpi=130)
    figure.savefig(svg, metadata={"Date": None})
    _pyplot().close(figure)
    return [png, svg]
