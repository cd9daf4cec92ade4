"""RBCS-F, Fig. 6 (d, e, f): CIFAR-10."""

from fedpick.studies.rbcsf._images import study

__all__ = ["STUDY"]

STUDY = study("cifar10", "cifar-cnn", "two convolutions of 64 channels, then layers of 384 and 192 units")
