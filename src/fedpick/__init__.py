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
from typing import TYPE_CHECKING, Any

from fedpick._version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers and editors; at run time each name is imported when first used
    from fedpick import data as data
    from fedpick import graph as graph
    from fedpick import learn as learn
    from fedpick import sampling as sampling
    from fedpick import solvers as solvers
    from fedpick import worlds as worlds
    from fedpick.core import checks as checks
    from fedpick.core import errors as errors
    from fedpick.core import rng as rng
    from fedpick.core import schedules as schedules
    from fedpick.core import state as state
    from fedpick.core.checks import check_policy as check_policy
    from fedpick.core.errors import CheckError as CheckError
    from fedpick.core.errors import ConfigError as ConfigError
    from fedpick.core.errors import ContractError as ContractError
    from fedpick.core.errors import DataError as DataError
    from fedpick.core.errors import FedpickError as FedpickError
    from fedpick.core.errors import MissingError as MissingError
    from fedpick.core.errors import SettingError as SettingError
    from fedpick.core.errors import StateError as StateError
    from fedpick.core.errors import StoreError as StoreError
    from fedpick.core.errors import UnknownNameError as UnknownNameError
    from fedpick.core.protocol import Policy as Policy
    from fedpick.core.protocol import ReportSpec as ReportSpec
    from fedpick.core.protocol import Trainer as Trainer
    from fedpick.core.protocol import traits as traits
    from fedpick.core.state import admit as admit
    from fedpick.core.state import load_state as load_state
    from fedpick.core.state import retire as retire
    from fedpick.core.state import save_state as save_state
    from fedpick.core.types import Choice as Choice
    from fedpick.core.types import Clients as Clients
    from fedpick.core.types import Outcome as Outcome
    from fedpick.core.types import Status as Status
    from fedpick.core.types import Updates as Updates
    from fedpick.core.types import View as View
    from fedpick.engine.paces import Buffered as Buffered
    from fedpick.engine.paces import Rounds as Rounds
    from fedpick.experiment import Experiment as Experiment
    from fedpick.policies import *  # noqa: F403  # all policies; see policies/__init__.pyi
    from fedpick.policies.text import policy as policy
    from fedpick.policies.text import policy_names as policy_names
    from fedpick.report.comparison import compare as compare
    from fedpick.report.results import Results as Results
    from fedpick.report.results import load as load
    from fedpick.report.trackers import track as track
    from fedpick.server import Session as Session
    from fedpick.simulate.run import Run as Run
    from fedpick.store.records import Record as Record
    from fedpick.worlds import World as World

_SHOWN = (
    *("checks", "data", "errors", "graph", "learn", "rng", "sampling", "schedules", "solvers", "state", "worlds"),
)
_ROOMS = (*_SHOWN, "experiment", "flower", "nvflare", "report", "server", "store")
_CORE = ("checks", "errors", "rng", "schedules", "state")
_NAMES = {
    "core.checks": "check_policy",
    "core.errors": "CheckError ConfigError ContractError DataError FedpickError MissingError SettingError StateError "
    "StoreError UnknownNameError",
    "engine.paces": "Buffered Rounds",
    "experiment": "Experiment",
    "policies.text": "policy policy_names",
    "core.protocol": "Policy ReportSpec Trainer traits",
    "report.comparison": "compare",
    "report.results": "Results load",
    "report.trackers": "track",
    "server": "Session",
    "simulate.run": "Run",
    "core.state": "admit load_state retire save_state",
    "store.records": "Record",
    "core.types": "Choice Clients Outcome Status Updates View",
    "worlds": "World",
}
_WHERE = {name: room for room, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: `import fedpick` alone loads neither NumPy nor Numba.

    A name that is not in the tables above is a policy's, or unknown; policies are found when one is used.
    """
    if name in _ROOMS:
        return importlib.import_module(f"fedpick.core.{name}" if name in _CORE else f"fedpick.{name}")
    if name == "__all__":
        return sorted({"__version__", *_SHOWN, *_WHERE, *importlib.import_module("fedpick.policies").__all__})
    found = None
    if name in _WHERE:
        found = getattr(importlib.import_module(f"fedpick.{_WHERE[name]}"), name)
    elif name[:1].isupper():
        found = importlib.import_module("fedpick.policies").TABLE.get(name)
    if found is None:
        raise AttributeError(f"module 'fedpick' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


logging.getLogger("fedpick").addHandler(logging.NullHandler())  # the application decides what is shown
