"""Power-of-Choice, quadratic simulation on a problem of ours: an extension, not a claim of the paper."""

from fedpick.studies.power_of_choice.quadratic import CENTRED as STUDY

__all__ = ["STUDY"]
