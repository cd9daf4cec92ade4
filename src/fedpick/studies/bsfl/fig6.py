"""BSFL, Fig. 6: fashion-mnist, iid."""

from fedpick.studies.bsfl._images import study

__all__ = ["STUDY"]

STUDY = study(6, "fashion-mnist", "iid")
