"""FedCor: rounds to an accuracy."""

import numpy as np

from fedpick_papers.studies._study import Finding, Result
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.baselines._levels import study, texts

__all__ = ["STUDY"]


def _score(result: Result) -> list[Finding]:
    rounds = result["rounds_to"]

    def fewer(rival: str, paper: str, size: float) -> Finding:
        ratio = np.log(rounds[rival]) - np.log(rounds["fedcor"])
        return Finding(
            f"FedCor needs fewer rounds than {rival}",
            paper,
            f"rounds: {texts({name: rounds[name] for name in ('fedcor', rival)}, 0)}",
            judge([above(ratio, f"{rival} > FedCor", size=float(np.log(size)), ratio=True)]),
            "its first 15 rounds, and one in ten later, are uniform",
            extension=True,
        )

    best = "34% to 99% faster than the best of the others on Fashion-MNIST, 26% to 51% on CIFAR-10"
    return [fewer("uniform", best, 1.34), fewer("pow-d", best, 1.34)]


STUDY = study(
    "fedcor/rounds",
    "Rounds to an accuracy",
    "Tang et al. (2022), FedCor, section 5.2, Table 1",
    {"fedcor": "fedcor", "uniform": "uniform", "pow-d": "pow-d(candidates=10)"},
    _score,
)
