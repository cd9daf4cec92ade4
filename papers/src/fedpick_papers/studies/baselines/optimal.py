"""Optimal client sampling: megabytes uploaded until an accuracy."""

from pathlib import Path

import numpy as np

from fedpick import store
from fedpick_papers.studies._runs import Played, play_training
from fedpick_papers.studies._study import Finding, Item, Measurement, Result
from fedpick_papers.studies._trained import reached
from fedpick_papers.studies._verdicts import Limit, above, judge, within
from fedpick_papers.studies.baselines._levels import study, texts

__all__ = ["STUDY"]

CLOSE = "points of accuracy below full participation that are still close to it"
LIMITS = {CLOSE: Limit(2.0, "our choice, before the run")}


def _read(item: Item, folder: Path) -> Measurement:
    found = play_training.read(item, folder)
    table = store.read_rounds(folder, ["available", "done", "surplus", "late"])
    models = sum(table[name].to_numpy() for name in ("done", "surplus", "late"))
    sent = item["world_settings"]["model_megabytes"] * np.asarray(models, dtype=np.float64)
    if item["policy"].startswith("optimal"):
        sent += 4e-6 * table["available"].to_numpy()  # each tells the length of its update
    return {**found, "uploaded": sent.cumsum()[found["at"] - 1]}


def _uploaded(run: Measurement, level: float) -> float:
    """Megabytes until the level; of the whole run if it is not reached."""
    hit = reached(run["uploaded"], run["accuracy"], level)
    return hit if np.isfinite(hit) else float(run["uploaded"][-1])


def _score(result: Result) -> list[Finding]:
    sent, final = result["uploaded_to"], result["final"]

    def less(name: str, rival: str) -> Finding:
        return Finding(
            f"with {name} fewer megabytes are uploaded until the level than with {rival}",
            "curves only: 'superior to the baseline where participating clients are sampled uniformly'",
            f"megabytes: {texts({each: sent[each] for each in (name, rival)}, 0)}",
            judge([above(np.log(sent[rival]) - np.log(sent[name]), f"{rival} > {name}", ratio=True)]),
            f"reached by {result['reached'][name]} and {result['reached'][rival]} of {result['seeds']} seeds",
            extension=True,
        )

    gap = 100 * (np.asarray(final["optimal"]) - final["all"])
    close = Finding(
        "with optimal sampling the final accuracy is close to that of full participation",
        "'close to full participation'",
        texts({name: 100 * np.asarray(final[name]) for name in ("optimal", "all")}, 1, "%"),
        judge([within(gap, "optimal - all (points)", low=-LIMITS[CLOSE].value, digits=1)]),
        "after as many rounds, with a tenth of the uploads",
        extension=True,
    )
    return [less("optimal", "uniform, unbiased"), less("optimal", "uniform"), less("aocs", "uniform, unbiased"), close]


STUDY = study(
    "optimal/bits",
    "Megabytes uploaded until an accuracy",
    "Chen, Horváth & Richtárik (2022), Optimal Client Sampling, section 5",
    {
        "optimal": "optimal",
        "aocs": "optimal(steps=4)",
        "uniform": "uniform",
        "uniform, unbiased": {"policy": "uniform", "train": {"aggregation": "horvitz-thompson"}},
        "all": {"policy": "uniform", "cohort_size": 50},
    },
    _score,
    about="Uploads are the models that clients send, 1 MB each, and 4 bytes for each length of an update. 'Unbiased' "
    "divides by the probability to be chosen, as the paper's uniform sampling does; 'all' is full participation",
    job=Played(play_training.config, _read),
    more={"uploaded_to": _uploaded},
    limits=LIMITS,
    seeds=8,
    world_settings={"model_megabytes": 1.0},
)
