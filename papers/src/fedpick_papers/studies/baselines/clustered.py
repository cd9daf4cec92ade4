"""Clustered sampling and DivFL: fewer rounds, and a steadier way."""

import numpy as np

from fedpick_papers.studies._study import Finding, Result
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.baselines._levels import study, texts

__all__ = ["STUDY"]


def _score(result: Result) -> list[Finding]:
    rounds, unsteady = result["rounds_to"], result["unsteady"]

    def claim(name: str, rival: str, words: str) -> list[Finding]:
        return [
            Finding(
                f"{name} needs fewer rounds than {rival}",
                words,
                f"rounds: {texts({each: rounds[each] for each in (name, rival)}, 0)}",
                judge([above(np.log(rounds[rival]) - np.log(rounds[name]), f"{rival} > {name}", ratio=True)]),
                extension=True,
            ),
            Finding(
                f"with {name} accuracy varies less from round to round than with {rival}",
                words,
                f"change, %: {texts({each: 100 * np.asarray(unsteady[each]) for each in (name, rival)}, 2)}",
                judge([above(np.log(unsteady[rival]) - np.log(unsteady[name]), f"{rival} > {name}", ratio=True)]),
                "mean absolute difference of successive evaluations in the second half of the run",
                extension=True,
            ),
        ]

    drawn = "curves only: 'better training convergence and variability than MD sampling'"
    diverse = "curves only: 'faster convergence' than random sampling"
    return [
        *claim("clustered by size", "size-weighted", drawn),
        *claim("clustered by updates", "size-weighted", drawn),
        *claim("divfl", "uniform", diverse),
    ]


STUDY = study(
    "clustered/rounds",
    "Rounds to an accuracy, and how steady they are",
    "Fraboni et al. (2021), Clustered Sampling, Fig. 2; Balakrishnan et al. (2022), DivFL, Fig. 2",
    {
        "clustered by size": "clustered",
        "clustered by updates": "clustered(by='updates')",
        "divfl": "divfl",
        "size-weighted": "size-weighted",
        "uniform": "uniform",
    },
    _score,
    about="size-weighted is the paper's MD sampling: m draws with replacement by size, averaged equally",
)
