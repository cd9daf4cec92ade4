"""Oort: time to an accuracy in a fleet with slow devices."""

import numpy as np

from fedpick_papers.studies._study import Finding, Result
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.baselines._levels import study, texts

__all__ = ["STUDY"]

MIXED = "device(examples_per_second=100, spread=0.7, waver=0.25, cold_start=1, model_megabytes=1)"


def _score(result: Result) -> list[Finding]:
    hours = result["hours_to"]

    def sooner(rival: str, size: float | None = None) -> Finding:
        ratio = np.log(hours[rival]) - np.log(hours["oort"])
        printed = None if size is None else float(np.log(size))
        return Finding(
            f"Oort reaches the level sooner than {rival}",
            "1.2 to 14.1 times sooner than random" if rival == "uniform" else "not compared",
            f"simulated hours: {texts({name: hours[name] for name in ('oort', rival)}, 3)}",
            judge([above(ratio, f"{rival} > Oort", size=printed, ratio=True)]),
            f"reached by {result['reached']['oort']} and {result['reached'][rival]} of {result['seeds']} seeds",
            extension=True,
        )

    final = result["final"]
    better = Finding(
        "Oort ends with a higher accuracy than uniform",
        "1.3% to 9.8% higher",
        texts({name: 100 * np.asarray(final[name]) for name in ("oort", "uniform")}, 1, "%"),
        judge(
            [above(100 * (np.asarray(final["oort"]) - final["uniform"]), "Oort > uniform", size=1.3, digits=1)],
        ),
        "after as many rounds, not after as much time",
        extension=True,
    )
    return [sooner("uniform", 1.2), better, sooner("pow-d"), sooner("bsfl")]


STUDY = study(
    "oort/time",
    "Time to an accuracy with slow devices",
    "Lai, Zhu, Madhyastha & Chowdhury (2021), Oort, section 7.2, Table 2",
    {"oort": "oort", "uniform": "uniform", "pow-d": "pow-d(candidates=10)", "bsfl": "bsfl"},
    _score,
    about="Devices differ in speed and links (log-normal, sigma 0.7), and the server waits for the slowest",
    time=True,
    world_settings={"latency": MIXED, "deadline": "slowest"},
)
