"""RBCS-F, Fig. 6 (a, b, c): Fashion-MNIST."""

from fedpick.studies.rbcsf._images import study

__all__ = ["STUDY"]

STUDY = study(
    "fashion-mnist",
    "cnn(channels=(20, 50), hidden=(500,))",
    "convolutions of 20 and 50 channels, then a layer of 500 units",
)
