"""E3CS, Table II and Fig. 5: OCR letters in the place of EMNIST-Letters, iid, FedProx."""

from fedpick.studies.e3cs._images import LETTERS, study

__all__ = ["STUDY"]

STUDY = study(LETTERS, "iid", prox=0.5)
