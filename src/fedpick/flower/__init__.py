"""Any policy as a Flower strategy: `Selected` decides who trains, the base strategy does the rest.

    strategy = fedpick.flower.Selected(FedAvg(), fp.E3CS(cohort_size=20), state="fedpick-state/")

Needs the extra: `pip install "fedpick[flower]"`. See docs/flower.md.
"""

from fedpick.flower.describing import describe, masked
from fedpick.flower.probing import PROBE, probe
from fedpick.flower.strategy import NotEnoughClientsError, Selected

__all__ = ["PROBE", "NotEnoughClientsError", "Selected", "describe", "masked", "probe"]
