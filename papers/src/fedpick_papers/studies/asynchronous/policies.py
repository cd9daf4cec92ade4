"""Every policy that `fp.Buffered` accepts, in rounds and without, in two worlds."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick import store
from fedpick.core.types import Floats
from fedpick.experiment import Config
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, column
from fedpick_papers.studies._stats import rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of, table
from fedpick_papers.studies._trained import reached
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.asynchronous._play import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["POLICIES", "ROUNDS", "STREAM", "STUDY", "faster"]

MIXED = "device(examples_per_second=100, spread=0.7, waver=0.25, cold_start=1, model_megabytes=1)"
WORLDS: dict[str, dict[str, Any]] = {  # two of the tournament's
    "stragglers": {"latency": MIXED, "deadline": 8.0},
    "all troubles": {
        "availability": "sin-log-normal(0.5)",
        "volatility": "bursts",
        "latency": MIXED,
        "deadline": 8.0,
    },
}
POLICIES = {
    "uniform": "uniform",
    "size-weighted": "size-weighted(replace=False)",
    "min-separation": "min-separation(uniform, 2)",
    "guard": "guard(oort)",
    "fedcs": "fedcs",
    "rpow-d": "rpow-d(candidates=25)",
    "active-fl": "active-fl",
    "e3cs-0": "e3cs(quota=0.0)",
    "e3cs-0.5": "e3cs(quota=0.5)",
    "fedgs": "fedgs",
    "oort": "oort",
    "f3ast": "f3ast",
    "refl": "refl",
    "hics": "hics",
    "ucb-cs": "ucb-cs",
    "pisces": "pisces",
}
ROUNDS, STREAM = "rounds", "asynchronous"
SHARE = 0.95  # of the accuracy that uniform in rounds ends with: the level


def _item(settings: Settings, world: str, policy: str, pace: str, seed: int) -> dict[str, Any]:
    how = settings["how"][pace]
    return {
        **{name: settings[name] for name in ("data", "clients", "cohort_size")},
        "world": world,
        "parts": settings["worlds"][world],
        "policy": settings["policies"][policy],
        "seed": seed,
        **how,
    }


def _items(settings: Settings) -> Sequence[Item]:
    every = product(settings["worlds"], settings["policies"], settings["how"], seeds_of(settings))
    return [_item(settings, *one) for one in every]


def _config(item: Item) -> Config:
    return Config(
        policy=item["policy"],
        cohort_size=item["cohort_size"],
        rounds=item["rounds"],
        seed=item["seed"],
        world={"name": "ideal", "num_clients": item["clients"], **item["parts"]},
        checkpoint_every=1000,
        data={**item["data"], "seed": item["seed"]},
        train={"evaluate_every": item["evaluate_every"], "spread_every": 0},
        pace=item["pace"],
    )


def _read(item: Item, folder: Path) -> Measurement:
    clock, accuracy = column(folder, "clock"), column(folder, "accuracy")
    there = np.isfinite(accuracy)
    status = store.read_selections(folder, ["status"])["status"].to_numpy()
    return {
        "clock": clock[there],
        "accuracy": accuracy[there],
        "end": float(clock[-1]),
        "tasks": len(status),
        "used": float(np.mean(status == "DONE")),
    }


def _after(run: Measurement, seconds: float) -> float:
    """The mean of the last three accuracies at that time."""
    there = np.asarray(run["accuracy"])[np.asarray(run["clock"]) <= seconds]
    return float(there[-3:].mean()) if len(there) else 0.0


def _to(run: Measurement, level: float) -> float | None:
    hit = reached(run["clock"], run["accuracy"], level)
    return rounded(hit) if np.isfinite(hit) else None


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {name: settings[name] for name in ("seeds", "clients", "cohort_size")}
    result |= {"policies": list(settings["policies"]), "worlds": {}}
    for world in settings["worlds"]:
        runs = {
            (policy, pace): [found[_item(settings, world, policy, pace, seed)] for seed in seeds_of(settings)]
            for policy, pace in product(settings["policies"], settings["how"])
        }
        # All are compared at the time at which the first of the uniform runs ends, so that none is cut short.
        ends = [
            min(a["end"], b["end"]) for a, b in zip(*(runs["uniform", pace] for pace in (ROUNDS, STREAM)), strict=True)
        ]
        levels = [SHARE * _after(run, end) for run, end in zip(runs["uniform", ROUNDS], ends, strict=True)]
        result["worlds"][world] = {
            policy: {
                pace: {
                    "seconds": [_to(run, level) for run, level in zip(runs[policy, pace], levels, strict=True)],
                    "accuracy": rounded([_after(run, end) for run, end in zip(runs[policy, pace], ends, strict=True)]),
                    "used": rounded([run["used"] for run in runs[policy, pace]]),
                    "tasks": [run["tasks"] for run in runs[policy, pace]],
                }
                for pace in settings["how"]
            }
            for policy in settings["policies"]
        }
    return result


def _seconds(cell: Mapping[str, Any], pace: str) -> Floats:
    return np.array([np.nan if x is None else x for x in cell[pace]["seconds"]], dtype=np.float64)


def faster(cell: Mapping[str, Any]) -> Floats | None:
    """Logarithm of the time in rounds over that without, for each seed; None if one of them missed the level."""
    slow, fast = (_seconds(cell, pace) for pace in (ROUNDS, STREAM))
    return np.log(slow) - np.log(fast) if np.isfinite([*slow, *fast]).all() else None


def _score(result: Result) -> list[Finding]:
    found = []
    for world, cells in result["worlds"].items():
        gain = faster(cells["uniform"])
        if gain is None:
            continue
        found.append(
            Finding(
                f"in the world {world}, uniform reaches the level sooner without rounds",
                "no paper's",
                f"{shown(gain)} times as fast",
                judge([above(gain, "rounds > asynchronous", ratio=True)]),
                extension=True,
            )
        )
    return found


def _median(values: Floats) -> str:
    there = values[np.isfinite(values)]
    few = f" ({len(there)} of {len(values)})" if 0 < len(there) < len(values) else ""
    return f"{np.median(there):.0f}{few}" if len(there) else "never"


def _body(result: Result) -> str:
    parts = []
    head = ["policy", "rounds: s to the level", "asynchronous: s", "times as fast", "rounds: accuracy, %"]
    head += ["asynchronous: accuracy, %", "tasks used, %: rounds", "asynchronous"]
    for world, cells in result["worlds"].items():
        rows = [head, ["---", *["---:"] * (len(head) - 1)]]
        for policy, cell in cells.items():
            slow, fast = (_seconds(cell, pace) for pace in (ROUNDS, STREAM))
            sooner = faster(cell)
            accuracies = [show(100 * np.asarray(cell[pace]["accuracy"]), 1) for pace in (ROUNDS, STREAM)]
            used = [f"{100 * np.mean(cell[pace]['used']):.0f}" for pace in (ROUNDS, STREAM)]
            name = f"{policy} (an oracle)" if policy == "fedcs" else policy
            gain = "not all reached it" if sooner is None else shown(sooner)
            rows.append([name, _median(slow), _median(fast), gain, *accuracies, *used])
        parts.append(f"## {world}\n\n{table(rows)}")
    return "\n".join(parts)


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(9, 3.8, columns=len(result["worlds"]), sharey=True)
    for axis, (world, cells) in zip(axes[0], result["worlds"].items(), strict=True):
        for i, pace in enumerate((ROUNDS, STREAM)):
            for x, cell in enumerate(cells.values()):
                _plots.spread(axis, x + 0.2 * i, 100 * np.asarray(cell[pace]["accuracy"]), i)
            axis.plot([], [], color=_plots.COLOURS[i], marker=_plots.MARKERS[i], linestyle="none", label=pace)
        axis.set_xticks(range(len(cells)), list(cells), rotation=60, ha="right")
        axis.set_title(world)
    axes[0][0].set_ylabel("accuracy after the same time, %")
    axes[0][0].legend()
    return figure


def _how(rounds: int, moves: int, evaluate: int) -> dict[str, dict[str, Any]]:
    stream = {"pace": "buffered(concurrency=10, size=5)", "rounds": moves, "evaluate_every": 2 * evaluate}
    return {ROUNDS: {"pace": "rounds", "rounds": rounds, "evaluate_every": evaluate}, STREAM: stream}


STUDY = Study(
    id="asynchrony/policies",
    title="Every policy that runs without rounds, under both paces",
    paper="",
    settings={
        "data": {"name": "digits", "partition": "dirichlet(alpha=0.3)"},
        "clients": 50,
        "cohort_size": 10,
        "worlds": WORLDS,
        "policies": POLICIES,
        "how": _how(40, 260, 2),
        "seeds": 3,
    },
    quick={"how": _how(3, 8, 1), "seeds": 1, "policies": {name: POLICIES[name] for name in ("uniform", "e3cs-0.5")}},
    items=_items,
    job=Played(_config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    about="The 8x8 digits, divided among 50 clients by Dirichlet(0.3), with the default network. Ten clients are at "
    "work at the same time: 40 rounds of ten, or 260 moves of the model by five answers each. Two of the "
    "tournament's worlds: stragglers (mixed devices, and a deadline of 8 s, after which an answer is not used) and "
    "all troubles (clients that are away, crashes that last, mixed devices, the deadline). The level is 95% of the "
    "accuracy that uniform in rounds ends with at the same seed; accuracies are compared after the same time, and "
    "nothing is tuned for either pace. The other policies are refused by `fp.Buffered`, which says why; "
    "fixed-probabilities is uniform without a vector, and left out. "
    "A first run, with Synthetic(1, 1), told nothing: its accuracies of 20 to 35% had intervals as wide",
    body=_body,
    trains=True,
)
