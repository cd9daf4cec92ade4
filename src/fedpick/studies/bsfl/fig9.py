"""BSFL, Fig. 9: fashion-mnist, non-iid."""

from fedpick.studies.bsfl._images import study

__all__ = ["STUDY"]

STUDY = study(9, "fashion-mnist", "non-iid")
