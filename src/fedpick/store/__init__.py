"""The files of a run: manifest, records, checkpoint; `fedpick.store.folder` lists them.

`Record` and `RunState` need only NumPy; code that reads and writes Parquet is imported on first use (extra `cli`). For
other files there are `replacing`, which changes one whole or not at all, and `write_archive`, arrays with a JSON text.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedpick._support.archive import read_archive, write_archive
from fedpick._support.atomic import replacing
from fedpick.store.checkpoint import RunState
from fedpick.store.manifest import MANIFEST, machine, read_manifest
from fedpick.store.records import ROUND_COLUMNS, Record

if TYPE_CHECKING:
    from fedpick.store.certificate import Certificate
    from fedpick.store.folder import Folder
    from fedpick.store.tables import (
        is_over,
        reached,
        read_census,
        read_chances,
        read_clients,
        read_presence,
        read_rounds,
        read_selections,
        read_uses,
    )
    from fedpick.store.writer import Tables

__all__ = [
    "MANIFEST",
    "ROUND_COLUMNS",
    "Certificate",
    "Folder",
    "Record",
    "RunState",
    "Tables",
    "is_over",
    "machine",
    "reached",
    "read_archive",
    "read_census",
    "read_chances",
    "read_clients",
    "read_manifest",
    "read_presence",
    "read_rounds",
    "read_selections",
    "read_uses",
    "replacing",
    "write_archive",
]

_PARQUET = {"Certificate": "certificate", "Folder": "folder", "Tables": "writer"} | dict.fromkeys(
    (
        *("is_over", "reached", "read_census", "read_chances", "read_clients", "read_presence", "read_rounds"),
        *("read_selections", "read_uses"),
    ),
    "tables",
)


def __getattr__(name: str) -> Any:
    if name in _PARQUET:
        return getattr(importlib.import_module(f"fedpick.store.{_PARQUET[name]}"), name)
    raise AttributeError(f"module 'fedpick.store' has no attribute {name!r}")
