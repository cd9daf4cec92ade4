"""The policies: one paper, one file."""

from fedpick.policies.active_fl import ActiveFL
from fedpick.policies.baselines import FixedProbabilities, SizeWeighted, Uniform
from fedpick.policies.bsfl import BSFL, Genie
from fedpick.policies.csucb import CSUCB
from fedpick.policies.e3cs import E3CS
from fedpick.policies.fedcs import FedCS
from fedpick.policies.fedgs import FedGS
from fedpick.policies.guard import Guard
from fedpick.policies.overselect import OverSelect
from fedpick.policies.power_of_choice import PowerOfChoice
from fedpick.policies.rbcsf import RBCSF

__all__ = [
    "BSFL",
    "CSUCB",
    "E3CS",
    "RBCSF",
    "ActiveFL",
    "FedCS",
    "FedGS",
    "FixedProbabilities",
    "Genie",
    "Guard",
    "OverSelect",
    "PowerOfChoice",
    "SizeWeighted",
    "Uniform",
]
