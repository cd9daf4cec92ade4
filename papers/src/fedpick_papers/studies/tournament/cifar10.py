"""The tournament on CIFAR-10, with a small network: six policies in three worlds."""

from fedpick_papers.studies._study import Study
from fedpick_papers.studies.tournament._play import BASE, OFTEN, POLICIES, WORLDS, gather, items, played
from fedpick_papers.studies.tournament.table import body, plot

__all__ = ["STUDY"]

NAMES = ("uniform", "pow-d", "e3cs-0.5", "fedgs", "oort", "divfl")
TRAIN = {
    "model": "cnn(channels=(32, 32), hidden=(128,))",
    "lr": 0.05,
    "momentum": 0.0,
    "batch": 32,
    "steps": 10,
    "evaluate_every": 10,
    "spread_every": 50,
}

STUDY = Study(
    id="tournament/cifar10",
    title="Six policies in three worlds, on CIFAR-10",
    paper="",
    settings={
        **BASE,
        "worlds": {name: WORLDS[name] for name in ("ideal", "stragglers", "all troubles")},
        "policies": {name: POLICIES[name] for name in NAMES},
        "data": {"name": "cifar10", "partition": "dirichlet(alpha=0.3)"},
        "train": TRAIN,
        "clients": 100,
        "cohort_size": 10,
        "rounds": 250,
        "most": 2,
        "seeds": 3,
    },
    quick={"rounds": 2, "seeds": 1, "train": {**TRAIN, "model": "mlp(hidden=(8,))", **OFTEN}},
    items=items,
    job=played,
    gather=gather,
    score=lambda result: [],
    plot=plot,
    about="Each seed divides CIFAR-10 among 100 clients by Dirichlet(0.3) and trains a network with two convolutions "
    "of 32 channels and a hidden layer of 128 (10 local steps, batches of 32, learning rate 0.05). Ten clients are "
    "asked a round. Worlds, budget and level are those of [the tournament on Fashion-MNIST]"
    "(../fashion-mnist/findings.md), with as many messages as uniform needs for 250 rounds in the ideal world, and at "
    "most 500 rounds. Six policies in three of the nine worlds: uniform, and five that differ in what they choose by "
    "(loss, success, data, usefulness for time, updates)",
    body=body,
    trains=True,
)
