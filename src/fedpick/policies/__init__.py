"""The policies: one paper, one file."""

from fedpick.policies.active_fl import ActiveFL
from fedpick.policies.baselines import FixedProbabilities, SizeWeighted, Uniform
from fedpick.policies.bsfl import BSFL, Genie
from fedpick.policies.clustered import Clustered
from fedpick.policies.csucb import CSUCB
from fedpick.policies.divfl import DivFL
from fedpick.policies.e3cs import E3CS
from fedpick.policies.f3ast import F3AST
from fedpick.policies.fedcor import FedCor
from fedpick.policies.fedcs import FedCS
from fedpick.policies.fedgs import FedGS
from fedpick.policies.greedyfed import GreedyFed
from fedpick.policies.guard import Guard
from fedpick.policies.hics import HiCS
from fedpick.policies.min_separation import MinSeparation
from fedpick.policies.oort import Oort
from fedpick.policies.optimal_sampling import OptimalSampling
from fedpick.policies.overselect import OverSelect
from fedpick.policies.power_of_choice import PowerOfChoice
from fedpick.policies.rbcsf import RBCSF
from fedpick.policies.refl import REFL
from fedpick.policies.s_fedavg import SFedAvg
from fedpick.policies.tifl import TiFL

__all__ = [
    "BSFL",
    "CSUCB",
    "E3CS",
    "F3AST",
    "RBCSF",
    "REFL",
    "ActiveFL",
    "Clustered",
    "DivFL",
    "FedCS",
    "FedCor",
    "FedGS",
    "FixedProbabilities",
    "Genie",
    "GreedyFed",
    "Guard",
    "HiCS",
    "MinSeparation",
    "Oort",
    "OptimalSampling",
    "OverSelect",
    "PowerOfChoice",
    "SFedAvg",
    "SizeWeighted",
    "TiFL",
    "Uniform",
]
