"""The files of a run: manifest, records, checkpoint; `fedpick.store.folder` lists them.

`Record` and `RunState` need only NumPy; code that reads and writes Parquet is imported on first use (extra `cli`).
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedpick.store.checkpoint import RunState
from fedpick.store.manifest import machine, read_manifest
from fedpick.store.records import ROUND_COLUMNS, Record

if TYPE_CHECKING:
    from fedpick.store.folder import Folder
    from fedpick.store.tables import read_census, read_clients, read_presence, read_rounds, read_selections
    from fedpick.store.writer import Tables

__all__ = ["ROUND_COLUMNS", "Folder", "Record", "RunState", "Tables", "machine", "read_manifest"]
__all__ += ["read_census", "read_clients", "read_presence", "read_rounds", "read_selections"]

_PARQUET = {"Folder": "folder", "Tables": "writer"} | dict.fromkeys(
    ("read_census", "read_clients", "read_presence", "read_rounds", "read_selections"), "tables"
)


def __getattr__(name: str) -> Any:
    if name in _PARQUET:
        return getattr(importlib.import_module(f"fedpick.store.{_PARQUET[name]}"), name)
    raise AttributeError(f"module 'fedpick.store' has no attribute {name!r}")
