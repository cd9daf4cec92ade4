"""Any policy as a Flower strategy: in `Selected` the policy chooses the clients, the base strategy does the rest.

    policy = fp.Guard(fp.E3CS(cohort_size=20))
    strategy = fedpick.flower.Selected(FedAvg(), policy, state="fedpick-state/", model="fedpick-model/")

Needs `pip install "fedpick[flower]"`. See docs/flower.md.
"""

from fedpick.adapters.flower.messages import PROBE, describe, probe
from fedpick.adapters.flower.strategy import Selected
from fedpick.server import NotEnoughClientsError, masked
from fedpick.server.client import reports

__all__ = ["PROBE", "NotEnoughClientsError", "Selected", "describe", "masked", "probe", "reports"]
