"""E3CS, Table III and Fig. 6: CIFAR-10, iid, FedAvg."""

from fedpick.studies.e3cs._cifar import study

__all__ = ["STUDY"]

STUDY = study("iid")
