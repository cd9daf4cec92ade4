"""The tournament on Synthetic(1, 1), with logistic regression."""

from fedpick_papers.studies._study import Study
from fedpick_papers.studies.tournament._play import ABOUT, BASE, OFTEN, gather, items, played
from fedpick_papers.studies.tournament.table import body, plot

__all__ = ["STUDY"]

STUDY = Study(
    id="tournament/synthetic",
    title="Every policy in nine worlds, on Synthetic(1, 1)",
    paper="",
    settings={
        **BASE,
        "data": {"name": "synthetic(1, 1)"},
        "train": {"evaluate_every": 2, "spread_every": 10},
        "clients": 50,
        "cohort_size": 5,
        "rounds": 100,
        "most": 2,
        "seeds": 8,
    },
    quick={"rounds": 2, "seeds": 1, "train": OFTEN},
    items=items,
    job=played,
    gather=gather,
    score=lambda result: [],
    plot=plot,
    about=ABOUT.format(
        what="Each seed draws a federation of its own with Synthetic(1, 1), 50 clients whose sizes differ a "
        "hundredfold, and trains logistic regression (30 local steps, batches of 50, learning rate 0.05)",
        rounds=100,
        twice=200,
    ),
    body=body,
    trains=True,
)
