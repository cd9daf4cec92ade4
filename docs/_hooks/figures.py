"""Writes the two figures of the front page, and the sentences under them: the scenes of `fedpick demo`, more seeds.

    python docs/_hooks/figures.py [FOLDER OF THE RUNS]

The runs are made if they are missing (about two minutes on two cores). The sentences are those of the demo, between
markers in docs/index.md and README.md.
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fedpick.cli.demo import SCENES, Scene
from fedpick.report.comparison import make_results
from fedpick.report.intervals import band
from fedpick.report.plots import COLOURS
from fedpick.report.results import Results

__all__ = ["between"]

ROOT = Path(__file__).parent.parent.parent
PAGES = {"README.md": ("biased",), "docs/index.md": ("biased", "slow")}
SEEDS = 20  # with the demo's 5, the interval of a number on the front page was as wide as the number is large
STYLE = {"svg.hashsalt": "fedpick", "svg.fonttype": "path", "font.size": 10, "axes.spines.top": False}


def between(text: str, name: str, new: str) -> str:
    """The text with what is between the markers of this name replaced.

    >>> between("a <!-- x:begin --> old <!-- x:end --> b", "x", "new")
    'a <!-- x:begin -->\\n\\nnew\\n\\n<!-- x:end --> b'
    """
    pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->).*?(<!-- {name}:end -->)", re.S)
    if not pattern.search(text):
        raise ValueError(f"no markers {name}:begin and {name}:end in this page")
    return pattern.sub(lambda found: f"{found[1]}\n\n{new}\n\n{found[2]}", text)


def _draw(scene: Scene, results: Results) -> Figure:
    over_time = scene.name == "slow"
    rounds = results.rounds()
    figure = Figure(figsize=(6.4, 3.1), layout="constrained")
    place = figure.subplots()
    place.set_title(scene.title, loc="left", fontsize=10, fontweight="bold")
    for number, name in enumerate(scene.experiment.policy):
        mine: Any = rounds[rounds["policy"] == name].dropna(subset=["accuracy"])
        curves = mine.pivot(index="seed", columns="round", values="accuracy")
        x = curves.columns.to_numpy()
        if over_time:
            x = mine.pivot(index="seed", columns="round", values="clock").mean().to_numpy() / 60.0
        mean, half = band(curves.to_numpy())
        colour = COLOURS[number]
        oracle = " (knows all speeds)" if name == "fedcs" else ""
        place.plot(x, mean, color=colour, linewidth=1.8, linestyle=("-", "--", ":", "-.")[number], label=name + oracle)
        place.fill_between(x, mean - half, mean + half, color=colour, alpha=0.13, linewidth=0)
    place.axhline(scene.target, color="#888", linewidth=0.8)
    place.set_xlabel("simulated minutes" if over_time else "round")
    place.set_ylabel("test accuracy")
    place.set_ylim(bottom=0.3, top=1.0)
    place.spines["right"].set_visible(False)
    place.legend(frameon=False, fontsize=9)
    return figure


def main() -> None:
    """Make the runs, draw, write."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fedpick-runs" / "figures")
    said = {}
    for scene in SCENES:
        plan = scene.experiment.only(seeds=range(SEEDS))
        results = make_results(plan, folder / scene.name, target=scene.target)
        said[scene.name] = textwrap.fill(
            f"{scene.title}. {scene.about} {scene.answer(results.data())}", 120, break_on_hyphens=False
        )
        with rc_context(STYLE):
            _draw(scene, results).savefig(ROOT / "docs" / "figures" / f"{scene.name}.svg", metadata={"Date": None})
    for page, scenes in PAGES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        for name in scenes:
            text = between(text, name, said[name])
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
