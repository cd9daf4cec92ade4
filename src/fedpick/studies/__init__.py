"""The papers' experiments as data, each with one score function that compares claims with what we saw.

    outcome = fedpick.studies.reproduce("e3cs/fig4", quick=True)
    outcome.findings                       # claim, what the paper prints, our figure with its interval, verdict
    fedpick.studies.save(outcome, "out")   # result.json, findings.md, figure.png, figure.svg, manifest.json

>>> "e3cs/fig4" in STUDIES
True
"""

from collections.abc import Callable
from typing import Any

from fedpick.errors import unknown_name
from fedpick.studies import (
    bsfl,
    bsfl_trained,
    e3cs,
    e3cs_trained,
    fedgs,
    fedgs_trained,
    power_of_choice,
    power_of_choice_trained,
    rbcsf,
)
from fedpick.studies._study import Finding, Reproduction, Study, conduct, save, save_index

__all__ = ["STUDIES", "Finding", "Reproduction", "Study", "reproduce", "save", "save_index"]

STUDIES: dict[str, Study] = {
    study.id: study
    for study in (
        e3cs.FIG3,
        e3cs.FIG4,
        rbcsf.FIG2,
        rbcsf.FIG3,
        rbcsf.FIG4,
        bsfl.FIG4,
        bsfl.REGRET,
        fedgs.COUNTS,
        power_of_choice.QUADRATIC,
        power_of_choice_trained.FIG4,
        power_of_choice_trained.TABLE1,
        power_of_choice_trained.TABLE2,
        power_of_choice_trained.FIG8,
        fedgs_trained.TABLE2,
        bsfl_trained.FIG5,
        bsfl_trained.FIG8,
        e3cs_trained.LETTERS,
    )
}


def reproduce(
    id: str,
    quick: bool = False,
    workers: int | None = None,
    executor: str = "local",
    on_done: Callable[[int], None] | None = None,
    **changes: Any,
) -> Reproduction:
    """Run a study by its id and compare it with its paper.

    Args:
        id: one of `STUDIES`.
        quick: fewer rounds and seeds.
        workers: processes; None is one per core, 1 stays in this process.
        executor: "local" or "ray".
        on_done: called with the index of each job that is done, of `study.jobs(settings)` in all.
        changes: settings of the study to change, such as rounds=100.

    >>> reproduce("e3cs/fig5")
    Traceback (most recent call last):
    fedpick.errors.UnknownNameError: unknown study 'e3cs/fig5'; did you mean 'e3cs/fig4'? There are: ...
    """
    if id not in STUDIES:
        raise unknown_name("study", id, list(STUDIES))
    study = STUDIES[id]
    return conduct(study, study.choose(quick, **changes), workers, executor, on_done)
