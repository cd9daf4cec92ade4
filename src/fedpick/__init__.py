"""fedpick chooses which clients train in each round of federated learning.

>>> import numpy as np
>>> import fedpick as fp
>>> clients = fp.Clients(sizes=np.full(100, 600))
>>> policy = fp.E3CS(cohort_size=20, quota=0.5)
>>> state = policy.init(clients)
>>> view = fp.View(round=1, available=np.ones(100, dtype=bool), clients=clients)
>>> choice = policy.select(state, view, fp.rng.stream(seed=0, round=1, name="policy"))
>>> len(choice)
20
"""

import importlib
import logging
import warnings
from typing import TYPE_CHECKING, Any

from fedpick._version import __version__

if TYPE_CHECKING:  # for type checkers and editors; at run time each name is imported when first used
    from fedpick import graph, sampling, solvers, theory, worlds
    from fedpick.core import checks, errors, rng, schedules, state
    from fedpick.core.errors import (
        CheckError,
        ConfigError,
        ContractError,
        FedpickError,
        MissingError,
        SettingError,
        StateError,
        StoreError,
        UnknownNameError,
    )
    from fedpick.core.protocol import Policy, ReportSpec, traits
    from fedpick.core.state import admit, load_state, retire, save_state
    from fedpick.core.types import Choice, Clients, Outcome, Status, View
    from fedpick.experiment import Experiment
    from fedpick.policies import (
        BSFL,
        CSUCB,
        E3CS,
        F3AST,
        RBCSF,
        REFL,
        ActiveFL,
        Clustered,
        DivFL,
        FedCor,
        FedCS,
        FedGS,
        FixedProbabilities,
        Genie,
        GreedyFed,
        Guard,
        HiCS,
        MinSeparation,
        Oort,
        OptimalSampling,
        OverSelect,
        PowerOfChoice,
        SFedAvg,
        SizeWeighted,
        TiFL,
        Uniform,
    )
    from fedpick.policies.text import policy, policy_names
    from fedpick.report.comparison import compare
    from fedpick.report.results import Results, load
    from fedpick.report.trackers import track
    from fedpick.server import Session
    from fedpick.simulate.run import Run
    from fedpick.store.records import Record
    from fedpick.worlds import World

_ROOMS = (
    *("checks", "data", "errors", "experiment", "flower", "graph", "learn", "nvflare", "report", "rng", "sampling"),
    *("schedules", "server", "solvers", "state", "store", "studies", "theory", "worlds"),
)
_NAMES = {
    "errors": "CheckError ConfigError ContractError FedpickError MissingError SettingError StateError StoreError "
    "UnknownNameError",
    "policies": "BSFL CSUCB E3CS F3AST RBCSF REFL ActiveFL Clustered DivFL FedCS FedCor FedGS FixedProbabilities Genie "
    "GreedyFed Guard HiCS MinSeparation Oort OptimalSampling OverSelect PowerOfChoice SFedAvg SizeWeighted TiFL "
    "Uniform",
    "policies.text": "policy policy_names",
    "report.comparison": "compare",
    "experiment": "Experiment",
    "protocol": "Policy ReportSpec traits",
    "report.results": "Results load",
    "report.trackers": "track",
    "server": "Session",
    "simulate.run": "Run",
    "state": "admit load_state retire save_state",
    "store.records": "Record",
    "types": "Choice Clients Outcome Status View",
    "worlds": "World",
}
_WHERE = {name: room for room, names in _NAMES.items() for name in names.split()}
_RENAMED = {"pairs": "state.pairwise_field", "shared": "state.shared_field", "world": "worlds"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (`import fedpick` alone loads neither NumPy nor Numba); old names warn."""
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(
            f"fp.{name} is now fp.{new}; the old name will be removed in the next minor release",
            DeprecationWarning,
            stacklevel=2,
        )
        room, _, name = new.rpartition(".")
        return getattr(importlib.import_module(f"fedpick.{room}"), name) if room else __getattr__(name)
    if name in _ROOMS:
        return importlib.import_module(f"fedpick.{name}")
    if name in _WHERE:
        found = globals()[name] = getattr(importlib.import_module(f"fedpick.{_WHERE[name]}"), name)
        return found
    raise AttributeError(f"module 'fedpick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("fedpick").addHandler(logging.NullHandler())  # the application decides what is shown

__all__ = [
    "BSFL",
    "CSUCB",
    "E3CS",
    "F3AST",
    "RBCSF",
    "REFL",
    "ActiveFL",
    "CheckError",
    "Choice",
    "Clients",
    "Clustered",
    "ConfigError",
    "ContractError",
    "DivFL",
    "Experiment",
    "FedCS",
    "FedCor",
    "FedGS",
    "FedpickError",
    "FixedProbabilities",
    "Genie",
    "GreedyFed",
    "Guard",
    "HiCS",
    "MinSeparation",
    "MissingError",
    "Oort",
    "OptimalSampling",
    "Outcome",
    "OverSelect",
    "Policy",
    "PowerOfChoice",
    "Record",
    "ReportSpec",
    "Results",
    "Run",
    "SFedAvg",
    "Session",
    "SettingError",
    "SizeWeighted",
    "StateError",
    "Status",
    "StoreError",
    "TiFL",
    "Uniform",
    "UnknownNameError",
    "View",
    "World",
    "__version__",
    "admit",
    "checks",
    "compare",
    "errors",
    "graph",
    "load",
    "load_state",
    "policy",
    "policy_names",
    "retire",
    "rng",
    "sampling",
    "save_state",
    "schedules",
    "solvers",
    "state",
    "theory",
    "track",
    "traits",
    "worlds",
]
