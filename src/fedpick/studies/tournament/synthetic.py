"""The tournament on Synthetic(1, 1), with logistic regression."""

from fedpick.studies._study import Study
from fedpick.studies.tournament._play import BASE, gather, items, played
from fedpick.studies.tournament._table import body, plot

__all__ = ["STUDY"]

STUDY = Study(
    id="tournament/synthetic",
    title="Every policy in nine worlds, on Synthetic(1, 1)",
    paper="",
    settings={
        **BASE,
        "data": {"name": "synthetic(1, 1)"},
        "train": {"evaluate_every": 2, "spread_every": 2},
        "clients": 50,
        "cohort_size": 5,
        "rounds": 100,
        "most": 2,
        "seeds": 8,
    },
    quick={"rounds": 5, "seeds": 1},
    items=items,
    job=played,
    gather=gather,
    score=lambda result: [],
    plot=plot,
    body=body,
    trains=True,
)
