"""Any policy as an NVFlare workflow: `Selected` is NVFlare's FedAvg with the clients chosen by a policy.

    job.to_server(fedpick.nvflare.Selected(policy=fp.E3CS(cohort_size=20), num_rounds=100, state="/var/fedpick"))

The server needs `pip install "fedpick[nvflare]"`; clients need no change. See docs/nvflare.md.
"""

from fedpick.adapters.nvflare import Selected

__all__ = ["Selected"]
