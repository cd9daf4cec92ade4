"""E3CS, Table III and Fig. 6: CIFAR-10, non-iid, FedProx."""

from fedpick.studies.e3cs._cifar import study

__all__ = ["STUDY"]

STUDY = study("non-iid", prox=0.5)
