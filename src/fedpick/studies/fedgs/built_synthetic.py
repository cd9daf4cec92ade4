"""FedGS on graphs built from models: Synthetic(0.5, 0.5)."""

from fedpick.studies.fedgs._built import study

__all__ = ["STUDY"]

STUDY = study(
    "synthetic(0.5, 0.5)",
    "",
    "logistic",
    "logistic",
    {"IDL": 0.0, "LN": 0.5, "MDF": 0.5},
    {"lr": "decay(0.1, 0.998)", "batch": 10},
    update="update",
    clients=30,
    cohort_size=6,
    rounds=300,
    seeds=8,
)
