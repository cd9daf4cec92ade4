"""Solvers for the optimisation problems by which the papers choose a cohort; each can be used alone.

`bottleneck` is exact and serves BSFL (13) and RBCS-F (21); `anneal` is BSFL's ALSA and classic annealing;
`disperse` serves FedGS (16); `facility_location` serves DivFL (4); `shapley` values updates for GreedyFed and
S-FedAvg; `top` takes the m largest with ties at random.
"""

from fedpick.solvers.annealing import NEIGHBOURS, anneal
from fedpick.solvers.bottleneck import bottleneck, top
from fedpick.solvers.dispersion import disperse
from fedpick.solvers.facility import facility_location
from fedpick.solvers.shapley import shapley

__all__ = ["NEIGHBOURS", "anneal", "bottleneck", "disperse", "facility_location", "shapley", "top"]
