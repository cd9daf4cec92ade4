"""BSFL, Fig. 7: cifar10, iid."""

from fedpick.studies.bsfl._images import study

__all__ = ["STUDY"]

STUDY = study(7, "cifar10", "iid")
