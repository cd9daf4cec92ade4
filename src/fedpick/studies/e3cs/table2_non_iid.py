"""E3CS, Table II and Fig. 5: OCR letters in the place of EMNIST-Letters, non-iid, FedAvg."""

from fedpick.studies.e3cs._images import LETTERS, study

__all__ = ["STUDY"]

STUDY = study(LETTERS, "non-iid")
