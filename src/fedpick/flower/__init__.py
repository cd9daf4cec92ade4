"""Any policy as a Flower strategy: in `Selected` the policy chooses the clients, the base strategy does the rest.

    policy = fp.Guard(fp.E3CS(cohort_size=20))
    strategy = fedpick.flower.Selected(FedAvg(), policy, state="fedpick-state/", model="fedpick-model/")

Needs `pip install "fedpick[flower]"`. See docs/flower.md.
"""

from fedpick.flower.asking import PROBE, describe, probe
from fedpick.flower.strategy import Selected
from fedpick.server import NotEnoughClientsError, masked
from fedpick.server.telling import reports

__all__ = ["PROBE", "NotEnoughClientsError", "Selected", "describe", "masked", "probe", "reports"]
