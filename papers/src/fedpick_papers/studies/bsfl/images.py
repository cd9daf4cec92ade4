"""BSFL, Fig. 6, 7, 9 and 10: a CNN, 25 of 500 clients, over simulated time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick_papers.studies._trained import NAMES
from fedpick_papers.studies._verdicts import POINT, above, judge
from fedpick_papers.studies.bsfl._common import LOOKS, PAPER, over_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES"]

MOMENTS = {"a tenth": 0.1, "a third": 1 / 3, "all": 1.0}  # of the time that the fastest scheme needs for its rounds
WHEN = "within a tenth, a third and all of the time compared"
MODELS = {"cifar10": "cnn(channels=(64, 64), hidden=(384, 192), dropout=0.5)"}
MODELS["fashion-mnist"] = "cnn(channels=(32, 64), hidden=(512,), dropout=0.5)"
NETWORKS = {  # in words
    "cifar10": "two convolutions of 64 channels, layers of 384 and 192 units, dropout of a half",
    "fashion-mnist": "convolutions of 32 and 64 channels, a layer of 512 units, dropout of a half",
}
BEST = {"loss": np.fmin, "accuracy": np.fmax}  # of what was measured so far


def _item(settings: Settings, scheme: str, seed: int) -> dict[str, Any]:
    left_out = ("schemes", "seeds", "seed0", "model", "kind")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    how = dict(settings["schemes"][scheme])
    shared["policy"] = how.pop("policy")
    shared["train"] = {**settings["train"], **how, "model": settings["model"]}
    return {**shared, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, scheme, seed) for seed in seeds_of(settings) for scheme in settings["schemes"]]


def _at(run: Mapping[str, Any], what: str, times: Floats) -> Floats:
    """The last measurement before each of these times; NaN before the first one."""
    values = np.concatenate([[np.nan], np.asarray(run[what])])
    found: Floats = values[np.searchsorted(run["clock"], times, side="right")]
    return found


def _so_far(run: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The run with each measurement replaced by the best one until then."""
    return {**run, what: BEST[what].accumulate(np.asarray(run[what], dtype=np.float64))}


def _gather(settings: Settings, found: Found) -> Result:
    share = np.linspace(0.02, 1.0, 50)
    result: Result = {name: settings[name] for name in ("data", "kind", "rounds", "clients", "cohort_size", "seeds")}
    result |= {"model": settings["model"], "share": rounded(share), "loss": {}, "accuracy": {}, "curves": {}}
    result |= {"best": {}, "seconds": {}, "spread": {}}
    runs = {
        scheme: [found[_item(settings, scheme, seed)] for seed in seeds_of(settings)] for scheme in settings["schemes"]
    }
    # The same time for all schemes: for each seed, that of the scheme with the shortest rounds.
    ends = np.min([[run["clock"][-1] for run in part] for part in runs.values()], axis=0)
    result["time"] = rounded(ends)
    for what in ("loss", "accuracy"):
        result[what], result["best"][what] = (
            {
                moment: {
                    name: rounded(
                        [_at(way(run, what), what, np.array([f * end]))[0] for run, end in zip(part, ends, strict=True)]
                    )
                    for name, part in runs.items()
                }
                for moment, f in MOMENTS.items()
            }
            for way in (lambda run, what: run, _so_far)
        )
        result["curves"][what] = {}
        for name, part in runs.items():
            mean, half = band(np.array([_at(run, what, share * end) for run, end in zip(part, ends, strict=True)]))
            result["curves"][what][name] = {"mean": rounded(mean), "half": rounded(half)}
    rounds = settings["rounds"]
    result["seconds"] = {name: rounded([run["clock"][-1] / rounds for run in part]) for name, part in runs.items()}
    result["spread"] = {name: rounded([run["counts"].std() for run in part]) for name, part in runs.items()}
    return result


def _named(result: Result, name: str) -> str:
    """The scheme for readers: with data of different sizes, "Random" draws by size."""
    return "Random by size" if name == "Random" and result["kind"] != "iid" else name


def _score(result: Result) -> list[Finding]:
    rivals = [name for name in result["seconds"] if name != "BSFL"]
    pace = ", ".join(f"{_named(result, name)} {show(values, 1)} s" for name, values in result["seconds"].items())
    loss, accuracy = (result["best"][what] for what in ("loss", "accuracy"))
    since = (
        "until 2026-11-16, this was judged by what a scheme has at these times, which our choice of the end "
        "decides once the network overfits"
    )
    ended = (
        f"the time compared is what the fastest scheme needs for its {result['rounds']:,} rounds "
        f"({show(result['time'])} s); a round takes {pace}"
    )
    lower = [
        above(np.log(row[name]) - np.log(row["BSFL"]), f"within {moment}: {_named(result, name)} > BSFL", ratio=True)
        for moment, row in loss.items()
        for name in rivals
    ]
    better = [
        above(
            100 * np.subtract(row["BSFL"], row[name]),
            f"within {moment}: BSFL > {_named(result, name)}",
            margin=POINT,
            digits=1,
        )
        for moment, row in accuracy.items()
        for name in rivals
    ]
    quote = "curves only: " + (
        "'significantly outperforms the other algorithms in terms of both loss and accuracy percentage'"
        if result["kind"] == "iid"
        else "'faster convergence in terms of both loss and accuracy'"
    )
    return [
        Finding(
            f"BSFL reaches the lowest test loss {WHEN}",
            quote,
            "within all of the time: " + ", ".join(f"{_named(result, n)} {show(v, 3)}" for n, v in loss["all"].items()),
            judge(lower),
            f"{ended}; {since}",
        ),
        Finding(
            f"BSFL reaches the highest test accuracy {WHEN}",
            quote,
            "within all of the time: "
            + ", ".join(f"{_named(result, n)} {show(100 * np.asarray(v), 1, '%')}" for n, v in accuracy["all"].items()),
            judge(better),
            "standard deviation of how often clients were chosen: "
            + ", ".join(f"{_named(result, name)} {show(v, 1)}" for name, v in result["spread"].items())
            + f"; {since}",
        ),
    ]


def _body(result: Result) -> str:
    parts = []
    for of, words in ((result["best"], "Best {} so far"), (result, "{}")):
        for what, shown in (
            ("loss", lambda values: show(values, 3)),
            ("accuracy", lambda values: show(100 * np.asarray(values), 1, "%")),
        ):
            named = {m: {_named(result, name): v for name, v in row.items()} for m, row in of[what].items()}
            title = words.format(f"test {what}")
            parts.append(over_time(title[0].upper() + title[1:], {"": named}, shown))
    return "\n".join(parts)


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(9, 3.8, columns=2)
    for axis, what in zip(axes[0], ("loss", "accuracy"), strict=True):
        for name, curve in result["curves"][what].items():
            _plots.banded(
                axis, result["share"], curve["mean"], curve["half"], LOOKS[name], _named(result, name), result["seeds"]
            )
        axis.set_xlabel("latency, share of the time compared")
        axis.set_ylabel(f"test {what}")
        _plots.closer(axis)
    axes[0][0].legend(title=_plots.seeds_label(result["seeds"]))
    return figure


def _study(figure: int, data: str, kind: str) -> Study:
    """A figure of the paper: "iid", or "non-iid" with clients of different size and labels."""
    bsfl = "bsfl(alpha=1.0, beta=1.0, tau_min=1.0, tau_max=20.0)"
    schemes = {
        "iid": {
            "BSFL": {"policy": bsfl, "aggregation": "mean"},
            "CS-UCB": {"policy": "cs-ucb(tau_min=1.0, tau_max=20.0)", "aggregation": "mean"},
            "Random": {"policy": "uniform", "aggregation": "mean"},
        },
        "non-iid": {
            "BSFL": {"policy": bsfl[:-1] + ", quality=1.0)", "aggregation": "mean"},
            "CS-UCB-Q": {"policy": "cs-ucb-q(tau_min=1.0, tau_max=20.0)", "aggregation": "mean"},
            "Random": {"policy": "size-weighted", "aggregation": "mean"},
        },
    }
    train = {"lr": 0.05, "momentum": 0.0, "batch": 20, "steps": 5, "evaluate_every": 10}
    partition = "iid" if kind == "iid" else "dirichlet(alpha=0.5, at_least=2)"
    return Study(
        id=f"bsfl/fig{figure}",
        title=f"{NAMES[data]}, {kind}: test loss and accuracy over simulated time",
        paper=f"{PAPER}, Fig. {figure}",
        settings={
            "kind": kind,
            "data": data,
            "partition": partition,
            "world": "bsfl",
            "clients": 500,
            "cohort_size": 25,
            "rounds": 1500,
            "seeds": 3,
            "model": MODELS[data],
            "train": train,
            "schemes": schemes[kind],
        },
        quick={"rounds": 20, "seeds": 1, "model": "mlp(hidden=(16,))", "train": {**train, "evaluate_every": 1}},
        items=_items,
        job=play_training,
        gather=_gather,
        score=_score,
        plot=_plot,
        body=_body,
        about=f"{NAMES[data]} among 500 clients, "
        + ("divided evenly" if kind == "iid" else "labels and sizes by Dirichlet(0.5)")
        + f", 25 of which train a round: {NETWORKS[data]}; five steps with batches of 20 and learning rate 0.05. Times "
        "are shifted gamma with unknown means and a deadline of 20 s. "
        + ("" if kind == "iid" else "Random by size draws clients with probabilities by the size of their data. ")
        + "Schemes are compared by the best that they had reached at the same simulated time, not at the same round, "
        "and only as long as the fastest of them needs for its rounds. The paper does not say when its curves end: "
        "this end is our choice. Nor does it give a law of times, alpha, beta, network, batch or learning rate: these, "
        "and alpha = beta = 1, are our choice",
        trains=True,
    )


STUDIES = (
    _study(6, "fashion-mnist", "iid"),
    _study(7, "cifar10", "iid"),
    _study(9, "fashion-mnist", "non-iid"),
    _study(10, "cifar10", "non-iid"),
)
