"""FedGS on graphs built from models: Fashion-MNIST."""

from fedpick.studies.fedgs._built import study

__all__ = ["STUDY"]

STUDY = study(
    "fashion-mnist",
    "labels-per-client(labels=2)",
    "cnn(channels=(32, 64), hidden=(512,))",
    "mlp(hidden=(16,))",
    {"YMF": 0.9},
    {"lr": "decay(0.1, 0.998)", "batch": 32},
)
