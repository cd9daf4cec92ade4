"""BSFL, Fig. 10: cifar10, non-iid."""

from fedpick.studies.bsfl._images import study

__all__ = ["STUDY"]

STUDY = study(10, "cifar10", "non-iid")
