"""The tournament on Fashion-MNIST, with a small network."""

from fedpick_papers.studies._study import Study
from fedpick_papers.studies.tournament._play import ABOUT, BASE, OFTEN, gather, items, played
from fedpick_papers.studies.tournament.table import body, plot

__all__ = ["STUDY"]

TRAIN = {"model": "mlp(hidden=(64, 30))", "lr": 0.01, "steps": 20, "evaluate_every": 5, "spread_every": 20}

STUDY = Study(
    id="tournament/fashion-mnist",
    title="Every policy in nine worlds, on Fashion-MNIST",
    paper="",
    settings={
        **BASE,
        "data": {"name": "fashion-mnist", "partition": "dirichlet(alpha=0.3)"},
        "train": TRAIN,
        "clients": 50,
        "cohort_size": 5,
        "rounds": 60,
        "most": 2,
        "seeds": 5,
    },
    quick={"rounds": 2, "seeds": 1, "train": {**TRAIN, "model": "mlp(hidden=(8,))", **OFTEN}},
    items=items,
    job=played,
    gather=gather,
    score=lambda result: [],
    plot=plot,
    about=ABOUT.format(
        what="Each seed divides Fashion-MNIST among 50 clients by Dirichlet(0.3) and trains a network with hidden "
        "layers of 64 and 30 (20 local steps, batches of 64, learning rate 0.01)",
        rounds=60,
        twice=120,
    ),
    body=body,
    trains=True,
)
