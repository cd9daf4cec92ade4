"""FedGS on graphs built from models: CIFAR-10."""

from fedpick.studies.fedgs._built import study

__all__ = ["STUDY"]

STUDY = study(
    "cifar10",
    "dirichlet(alpha=0.5)",
    "cifar-cnn",
    "mlp(hidden=(16,))",
    {"LN": 0.5},
    {"lr": "decay(0.03, 0.998)", "batch": 32},
)
