"""The tournament: policies and worlds as data, the runs, and what each used and reached within its budget."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fedpick import store
from fedpick.core.types import Floats, Ints
from fedpick.experiment import Config
from fedpick.report import scores
from fedpick_papers.studies._runs import Played
from fedpick_papers.studies._stats import rounded
from fedpick_papers.studies._study import Found, Item, Measurement, Result, Settings, seeds_of

__all__ = ["ABOUT", "BASE", "METRICS", "OFTEN", "ORACLES", "POLICIES", "WORLDS", "gather", "items", "played"]

# About 1.6 s for everyone. Times waver by 5%: else those with the most data would always come last, by microseconds,
# and a policy that uses the first to return would never use them.
EQUAL = "device(examples_per_second=1e9, spread=0, waver=0.05, cold_start=0, model_megabytes=1)"
MIXED = "device(examples_per_second=100, spread=0.7, waver=0.25, cold_start=1, model_megabytes=1)"
WORLDS: dict[str, dict[str, Any]] = {
    "ideal": {},
    "volatile": {"volatility": "rates"},
    "volatile with memory": {"volatility": "bursts"},
    "stragglers": {"latency": MIXED, "deadline": 8.0},
    "LN": {"availability": "log-normal(0.5)"},
    "SLN": {"availability": "sin-log-normal(0.5)"},
    "YC": {"availability": "y-cycle(0.9)"},
    "halves": {"availability": "halves(0.1)"},
    "all troubles": {
        "availability": "sin-log-normal(0.5)",
        "volatility": "bursts",
        "latency": MIXED,
        "deadline": 8.0,
    },
}
# {m}: the cohort; {2m}, {5m}: that many times; {rounds}: of the run.
POLICIES = {
    "uniform": "uniform",
    "size-weighted": "size-weighted",
    "over-select": "over-select(uniform, 1.4)",
    "min-separation": "min-separation(uniform, 5)",
    "fedcs": "fedcs",
    "pow-d": "pow-d(candidates={2m})",
    "cpow-d": "cpow-d(candidates={2m})",
    "rpow-d": "rpow-d(candidates={5m})",
    "active-fl": "active-fl",
    "e3cs-0": "e3cs(quota=0.0)",
    "e3cs-0.5": "e3cs(quota=0.5)",
    "e3cs-inc": "e3cs(quota='inc', horizon={rounds})",
    "cs-ucb": "cs-ucb",
    "cs-ucb-q": "cs-ucb-q",
    "bsfl": "bsfl",
    "rbcs-f": "rbcs-f",
    "fedgs": "fedgs",
    "oort": "oort",
    "clustered": "clustered",
    "divfl": "divfl",
    "tifl": "tifl",
    "f3ast": "f3ast",
    "refl": "refl",
    "optimal": "optimal",
    "hics": "hics",
    "fedcor": "fedcor",
    "greedyfed": "greedyfed",
    "s-fedavg": "s-fedavg",
}
ORACLES = ("fedcs",)  # oracles, which know what no server knows: shown, never recommended
TWO_PHASES = ("optimal",)  # all who are asked train, and most of that work is not sent
BASE: dict[str, Any] = {
    "worlds": WORLDS,
    "equal": EQUAL,
    "policies": POLICIES,
    "reference": "uniform",
    "share": 0.95,
    "over": 3,
}
OFTEN = {"evaluate_every": 2, "spread_every": 4}  # of quick runs, which have four rounds

ABOUT = (
    "{what}. Five clients are asked a round. All policies have the same budget: as many messages as uniform needs for"
    " {rounds} rounds in the ideal world, which are two for each client asked (the model there and back; a failed "
    "client sends none back), and two more for each client that is asked for its loss or the length of its update "
    "before the choice. What comes after the budget is spent, or after {twice} rounds, is not counted. The level is "
    "95% of the accuracy that uniform ends with in the same world at the same seed. Nine worlds: ideal; volatile "
    "(clients return with probability 0.1, 0.3, 0.6 or 0.9); volatile with memory (the same, but crashes last 10 "
    "rounds); stragglers (mixed devices and a deadline of 8 s); LN, SLN and YC, FedGS's modes of availability; "
    "halves, which take turns; and all troubles (SLN, crashes with memory, mixed devices, the deadline). A client "
    "takes about 1.6 s where devices are not mixed, and up to some 10% more or less by chance. All worlds, settings "
    "and the budget are our choice; policies have their default settings. Left out: genie, which needs speeds that "
    "these worlds do not tell; guard, since nobody lies here; fixed-probabilities, which is uniform without a vector; "
    "ucb-cs, delta, flips, fed-cbs, fl-dp3s, fedlecc, critical, pisces, balanced, which are newer than these runs"
)

# name: (in words, whether more is better, decimals)
METRICS: dict[str, tuple[str, bool, int]] = {
    "hours": ("simulated hours to the level", False, 3),
    "accuracy": ("final test accuracy, %", True, 1),
    "worst": ("accuracy of the worst tenth of the clients, %", True, 1),
    "jain": ("fairness: Jain's index of how often clients were chosen", True, 2),
    "wasted": ("work that was not used, %", False, 1),
}


def _item(settings: Settings, world: str, policy: str, seed: int) -> dict[str, Any]:
    m, rounds = settings["cohort_size"], settings["most"] * settings["rounds"]
    text = settings["policies"][policy]
    for mark, value in {"{2m}": 2 * m, "{5m}": 5 * m, "{rounds}": rounds}.items():
        text = text.replace(mark, str(value))
    return {
        "world": world,
        "parts": {"latency": settings["equal"], **settings["worlds"][world]},
        "policy": text,
        "data": settings["data"],
        "train": settings["train"],
        "clients": settings["clients"],
        "cohort_size": m,
        "rounds": rounds,
        "budget": 2 * m * settings["rounds"],
        "over": settings["over"],
        "seed": seed,
    }


def items(settings: Settings) -> Sequence[Item]:
    """An item for each world, policy and seed."""
    return [
        _item(settings, world, policy, seed)
        for seed in seeds_of(settings)
        for world in settings["worlds"]
        for policy in settings["policies"]
    ]


def _config(item: Item) -> Config:
    data = {key: value for key, value in item["data"].items() if value}
    return Config(
        policy=item["policy"],
        cohort_size=item["cohort_size"],
        rounds=item["rounds"],
        seed=item["seed"],
        world={"name": "ideal", "num_clients": item["clients"], **item["parts"]},
        checkpoint_every=1000,
        data={**data, "seed": item["seed"]},
        train=dict(item["train"]),
    )


def _evaluated(values: Floats, end: int) -> Ints:
    """Places of the values up to this round; the first one, if the budget ends before it."""
    there: Ints = np.flatnonzero(~np.isnan(values))
    return there[there < end] if (there < end).any() else there[:1]


def _read(item: Item, folder: Path) -> Measurement:
    """What the run used and reached until its messages were spent."""
    table = store.read_rounds(folder)
    measured = ("accuracy", "worst_decile")  # not in every round, and in a short run perhaps in none
    column: dict[str, Floats] = {
        name: np.asarray(table[name].to_numpy(), dtype=np.float64)
        if name in table.column_names
        else np.full(len(table), np.nan)
        for name in ("clock", "messages", "megabytes", "chosen", "done", "surplus", "late", *measured)
    }
    end = max(int(np.searchsorted(column["messages"].cumsum(), item["budget"], side="right")), 1)
    picked = store.read_selections(folder, ["round", "client"])
    counts = scores.counts(picked.filter(pc.less_equal(picked["round"], end)), item["clients"])
    cut = {name: values[:end] for name, values in column.items()}
    chosen, done, sent = cut["chosen"].sum(), cut["done"].sum(), cut["messages"].sum()
    answered = (cut["done"] + cut["surplus"] + cut["late"]).sum()
    trained = (sent - chosen - answered) / 2 if item["policy"].split("(")[0] in TWO_PHASES else chosen
    at, worst = (_evaluated(column[name], end) for name in ("accuracy", "worst_decile"))
    half = np.flatnonzero(~np.isnan(column["accuracy"][: item["rounds"] // 2]))[-item["over"] :]
    return {
        "rounds": end,
        "at": at + 1,
        "clock": column["clock"][at] / 3600.0,
        "accuracy": column["accuracy"][at],
        "worst": column["worst_decile"][worst],
        "jain": scores.jain(counts),
        "never": float(np.mean(counts == 0)),
        "wasted": float(1.0 - done / trained) if trained else 0.0,
        "messages": float(sent / end),
        "megabytes": float(cut["megabytes"].sum() / end),
        "by_rounds": float(column["accuracy"][half].mean()),
        "hours_used": float(cut["clock"][-1] / 3600.0),
    }


played = Played(_config, _read)


def _last(values: Floats, over: int) -> float:
    return float(values[-over:].mean()) if len(values) else 0.0


def _hours(run: Mapping[str, Any], level: float) -> float | None:
    """Hours until the accuracy first reached the level; None if it did not within the budget."""
    hit = np.flatnonzero(np.asarray(run["accuracy"]) >= level)
    return float(run["clock"][hit[0]]) if len(hit) else None


def gather(settings: Settings, found: Found) -> Result:
    """For each world, policy and seed: the metrics, and what it cost."""
    over, first = settings["over"], settings["reference"]
    kept = ("rounds", "most", "clients", "cohort_size", "seeds", "share", "reference", "about")
    result: Result = {name: settings[name] for name in kept if name in settings}
    result |= {"budget": 2 * settings["cohort_size"] * settings["rounds"], "policies": dict(settings["policies"])}
    result |= {"worlds": {}, "curves": {}}
    for world in settings["worlds"]:
        runs = {
            name: [found[_item(settings, world, name, seed)] for seed in seeds_of(settings)]
            for name in settings["policies"]
        }
        levels = [settings["share"] * _last(run["accuracy"], over) for run in runs[first]]
        cell: dict[str, Any] = {}
        for name, part in runs.items():
            hours = [_hours(run, level) for run, level in zip(part, levels, strict=True)]
            cell[name] = {
                "hours": [None if h is None else rounded(h) for h in hours],
                "accuracy": rounded([100 * _last(run["accuracy"], over) for run in part]),
                "worst": rounded([100 * _last(run["worst"], over) for run in part]),
                "jain": rounded([run["jain"] for run in part]),
                "wasted": rounded([100 * run["wasted"] for run in part]),
                "by_rounds": rounded([100 * run["by_rounds"] for run in part]),
                "messages": rounded([run["messages"] for run in part]),
                "rounds": rounded([run["rounds"] for run in part]),
                "hours_used": rounded([run["hours_used"] for run in part]),
            }
        result["worlds"][world] = {"level": rounded([100 * level for level in levels]), "policies": cell}
    return result
