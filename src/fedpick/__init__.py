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
from typing import Any

from fedpick import checks, errors, graph, rng, sampling, schedules, solvers, state, theory, worlds
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
from fedpick.simulate.run import Run
from fedpick.state import admit, load_state, retire, save_state
from fedpick.store.records import Record
from fedpick.types import Choice, Clients, Outcome, Status, View
from fedpick.worlds import World


def __getattr__(name: str) -> Any:
    """Rooms that need an extra are imported when they are used; old names warn."""
    if name in ("data", "experiment", "flower", "learn", "nvflare", "report", "store", "studies"):
        return importlib.import_module(f"fedpick.{name}")
    if name == "load":
        return importlib.import_module("fedpick.report.results").load
    if name in _RENAMED:
        new, value = _RENAMED[name]
        warnings.warn(
            f"fp.{name} is now fp.{new}; the old name goes with the next minor release",
            DeprecationWarning,
            stacklevel=2,
        )
        return value
    raise AttributeError(f"module 'fedpick' has no attribute {name!r}")


_RENAMED = {
    "pairs": ("state.pairwise_field", state.pairwise_field),
    "shared": ("state.shared_field", state.shared_field),
    "world": ("worlds", worlds),
}

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
    "traits",
    "worlds",
]
