"""E3CS, Table III and Fig. 6: CIFAR-10, iid, FedProx."""

from fedpick.studies.e3cs._images import CIFAR10, study

__all__ = ["STUDY"]

STUDY = study(CIFAR10, "iid", prox=0.5)
