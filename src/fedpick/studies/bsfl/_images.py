"""BSFL, Fig. 6, 7, 9 and 10: a CNN, 25 of 500 clients, over simulated time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._runs import play_training
from fedpick.studies._stats import band, rounded, show
from fedpick.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick.studies._trained import NAMES
from fedpick.studies._verdicts import above, judge
from fedpick.studies.bsfl._common import LOOKS, PAPER, over_time
from fedpick.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["study"]

MOMENTS = {"a tenth": 0.1, "a third": 1 / 3, "all": 1.0}  # of the time that the fastest scheme needs for its rounds
WHEN = "after a tenth, a third and all of the time compared"
MODELS = {"cifar10": "cnn(channels=(64, 64), hidden=(384, 192), dropout=0.5)"}
MODELS["fashion-mnist"] = "cnn(channels=(32, 64), hidden=(512,), dropout=0.5)"


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


def _gather(settings: Settings, found: Found) -> Result:
    share = np.linspace(0.02, 1.0, 50)
    result: Result = {name: settings[name] for name in ("data", "kind", "rounds", "clients", "cohort_size", "seeds")}
    result |= {"model": settings["model"], "share": rounded(share), "loss": {}, "accuracy": {}, "curves": {}}
    result |= {"seconds": {}, "spread": {}}
    runs = {
        scheme: [found[_item(settings, scheme, seed)] for seed in seeds_of(settings)] for scheme in settings["schemes"]
    }
    # The same time for all schemes: for each seed, that of the scheme with the shortest rounds.
    ends = np.min([[run["clock"][-1] for run in part] for part in runs.values()], axis=0)
    result["time"] = rounded(ends)
    for what in ("loss", "accuracy"):
        result[what] = {
            moment: {
                name: rounded([_at(run, what, np.array([f * end]))[0] for run, end in zip(part, ends, strict=True)])
                for name, part in runs.items()
            }
            for moment, f in MOMENTS.items()
        }
        result["curves"][what] = {}
        for name, part in runs.items():
            mean, half = band(np.array([_at(run, what, share * end) for run, end in zip(part, ends, strict=True)]))
            result["curves"][what][name] = {"mean": rounded(mean), "half": rounded(half)}
    rounds = settings["rounds"]
    result["seconds"] = {name: rounded([run["clock"][-1] / rounds for run in part]) for name, part in runs.items()}
    result["spread"] = {name: rounded([run["counts"].std() for run in part]) for name, part in runs.items()}
    return result


def _lowest(result: Result, name: str) -> str:
    """The lowest point of a scheme's loss curve: after it, the network overfits."""
    curve = np.array(result["curves"]["loss"][name]["mean"], dtype=np.float64)
    at = int(np.nanargmin(curve))
    return f"{name} {curve[at]:.3f} after {result['share'][at]:.0%} of the time"


def _score(result: Result) -> list[Finding]:
    rivals = [name for name in result["seconds"] if name != "BSFL"]
    pace = ", ".join(f"{name} {show(values, 1)} s" for name, values in result["seconds"].items())
    ended = (
        f"the time compared is what the fastest scheme needs for its {result['rounds']:,} rounds "
        f"({show(result['time'])} s); a round takes {pace}. Lowest loss on the way, mean over seeds: "
        + ", ".join(_lowest(result, name) for name in result["seconds"])
    )
    lower = [
        above(np.subtract(row[name], row["BSFL"]), f"after {moment}: {name} > BSFL", digits=3)
        for moment, row in result["loss"].items()
        for name in rivals
    ]
    better = [
        above(100 * np.subtract(row["BSFL"], row[name]), f"after {moment}: BSFL > {name}", digits=1)
        for moment, row in result["accuracy"].items()
        for name in rivals
    ]
    said = "curves only: " + (
        "'significantly outperforms the other algorithms in terms of both loss and accuracy percentage'"
        if result["kind"] == "iid"
        else "'faster convergence in terms of both loss and accuracy'"
    )
    return [
        Finding(
            f"BSFL has the smallest test loss {WHEN}",
            said,
            "after all of the time: " + ", ".join(f"{name} {show(v, 3)}" for name, v in result["loss"]["all"].items()),
            judge(lower),
            ended,
        ),
        Finding(
            f"BSFL has the highest test accuracy {WHEN}",
            said,
            "after all of the time: "
            + ", ".join(f"{name} {show(100 * np.asarray(v), 1, '%')}" for name, v in result["accuracy"]["all"].items()),
            judge(better),
            "standard deviation of how often clients were chosen: "
            + ", ".join(f"{name} {show(v, 1)}" for name, v in result["spread"].items()),
        ),
    ]


def _body(result: Result) -> str:
    return "\n".join(
        [
            over_time("Test loss", {"": result["loss"]}, lambda values: show(values, 3)),
            over_time("Test accuracy", {"": result["accuracy"]}, lambda values: show(100 * np.asarray(values), 1, "%")),
        ]
    )


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(9, 3.8, columns=2)
    for axis, what in zip(axes[0], ("loss", "accuracy"), strict=True):
        for name, curve in result["curves"][what].items():
            _plots.banded(axis, result["share"], curve["mean"], curve["half"], LOOKS[name], name, result["seeds"])
        axis.set_xlabel("latency, share of the time compared")
        axis.set_ylabel(f"test {what}")
        _plots.closer(axis)
    axes[0][0].legend(title=_plots.told(result["seeds"]))
    return figure


def study(figure: int, data: str, kind: str) -> Study:
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
        + f", 25 of which train a round: {MODELS[data]}, five steps with batches of 20 and learning rate 0.05. Times "
        "are shifted gamma with unknown means and a deadline of 20 s. Schemes are compared at the same simulated time, "
        "not at the same round, and only as long as the fastest of them needs for its rounds. The paper does not say "
        "when its curves end: this end is our choice, and a loss that rises again before it (the network overfits) "
        "counts as it is. Nor does it give a law of times, alpha, beta, network, batch or learning rate: these, and "
        "alpha = beta = 1, are our choice",
        trains=True,
    )
