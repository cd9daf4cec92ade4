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
from typing import Any

from fedpick import checks, errors, graph, rng, sampling, schedules, solvers, theory, world
from fedpick._version import __version__
from fedpick.errors import (
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
from fedpick.policies import (
    BSFL,
    CSUCB,
    E3CS,
    RBCSF,
    ActiveFL,
    FedCS,
    FedGS,
    FixedProbabilities,
    Genie,
    OverSelect,
    PowerOfChoice,
    SizeWeighted,
    Uniform,
)
from fedpick.policies.text import policy, policy_names
from fedpick.protocol import Policy, traits
from fedpick.round import Record
from fedpick.run import Run
from fedpick.state import admit, load_state, pairs, retire, save_state, shared
from fedpick.types import Choice, Clients, Outcome, Status, View
from fedpick.world import World


def __getattr__(name: str) -> Any:
    """`fp.data` and `fp.learn`, imported when they are used: training needs more than choosing."""
    if name in ("data", "learn"):
        return importlib.import_module(f"fedpick.{name}")
    raise AttributeError(f"module 'fedpick' has no attribute {name!r}")


logging.getLogger("fedpick").addHandler(logging.NullHandler())  # the application decides what is shown

__all__ = [
    "BSFL",
    "CSUCB",
    "E3CS",
    "RBCSF",
    "ActiveFL",
    "CheckError",
    "Choice",
    "Clients",
    "ConfigError",
    "ContractError",
    "FedCS",
    "FedGS",
    "FedpickError",
    "FixedProbabilities",
    "Genie",
    "MissingError",
    "Outcome",
    "OverSelect",
    "Policy",
    "PowerOfChoice",
    "Record",
    "Run",
    "SettingError",
    "SizeWeighted",
    "StateError",
    "Status",
    "StoreError",
    "Uniform",
    "UnknownNameError",
    "View",
    "World",
    "__version__",
    "admit",
    "checks",
    "errors",
    "graph",
    "load_state",
    "pairs",
    "policy",
    "policy_names",
    "retire",
    "rng",
    "sampling",
    "save_state",
    "schedules",
    "shared",
    "solvers",
    "theory",
    "traits",
    "world",
]
