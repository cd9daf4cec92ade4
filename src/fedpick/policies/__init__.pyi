"""Written by `make policies`: what `fedpick.policies` finds when it is imported."""

from typing import Any

from fedpick.policies.active_fl import ActiveFL as ActiveFL
from fedpick.policies.balanced import Balanced as Balanced
from fedpick.policies.baselines import FixedProbabilities as FixedProbabilities
from fedpick.policies.baselines import SizeWeighted as SizeWeighted
from fedpick.policies.baselines import Uniform as Uniform
from fedpick.policies.bsfl import BSFL as BSFL
from fedpick.policies.bsfl import Genie as Genie
from fedpick.policies.clustered import Clustered as Clustered
from fedpick.policies.critical import CriticalFL as CriticalFL
from fedpick.policies.csucb import CSUCB as CSUCB
from fedpick.policies.delta import DELTA as DELTA
from fedpick.policies.divfl import DivFL as DivFL
from fedpick.policies.e3cs import E3CS as E3CS
from fedpick.policies.f3ast import F3AST as F3AST
from fedpick.policies.fedcbs import FedCBS as FedCBS
from fedpick.policies.fedcor import FedCor as FedCor
from fedpick.policies.fedcs import FedCS as FedCS
from fedpick.policies.fedgs import FedGS as FedGS
from fedpick.policies.fedlecc import FedLECC as FedLECC
from fedpick.policies.fldp3s import FLDP3S as FLDP3S
from fedpick.policies.flips import FLIPS as FLIPS
from fedpick.policies.greedyfed import GreedyFed as GreedyFed
from fedpick.policies.guard import Guard as Guard
from fedpick.policies.hics import HiCS as HiCS
from fedpick.policies.min_separation import MinSeparation as MinSeparation
from fedpick.policies.oort import Oort as Oort
from fedpick.policies.optimal_sampling import OptimalSampling as OptimalSampling
from fedpick.policies.overselect import OverSelect as OverSelect
from fedpick.policies.pisces import Pisces as Pisces
from fedpick.policies.power_of_choice import PowerOfChoice as PowerOfChoice
from fedpick.policies.rbcsf import RBCSF as RBCSF
from fedpick.policies.refl import REFL as REFL
from fedpick.policies.s_fedavg import SFedAvg as SFedAvg
from fedpick.policies.tifl import TiFL as TiFL
from fedpick.policies.ucbcs import UCBCS as UCBCS

TABLE: dict[str, type[Any]]
__all__ = [
    "BSFL",
    "CSUCB",
    "DELTA",
    "E3CS",
    "F3AST",
    "FLDP3S",
    "FLIPS",
    "RBCSF",
    "REFL",
    "UCBCS",
    "ActiveFL",
    "Balanced",
    "Clustered",
    "CriticalFL",
    "DivFL",
    "FedCBS",
    "FedCS",
    "FedCor",
    "FedGS",
    "FedLECC",
    "FixedProbabilities",
    "Genie",
    "GreedyFed",
    "Guard",
    "HiCS",
    "MinSeparation",
    "Oort",
    "OptimalSampling",
    "OverSelect",
    "Pisces",
    "PowerOfChoice",
    "SFedAvg",
    "SizeWeighted",
    "TiFL",
    "Uniform",
]
