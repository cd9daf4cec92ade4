"""The columns of the tables of rounds and selections, from records."""

from typing import Any

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.types import Status
from fedpick.store.parquet import pa
from fedpick.store.records import ROUND_COLUMNS, Record

__all__ = ["rounds_table", "selections_table"]

_NAMES = [status.name for status in Status]


def rounds_table(records: list[Record], metrics: list[str]) -> pa.Table:
    """A row per record, with a column for each of these metrics."""
    counts = np.array([np.bincount(r.status, minlength=len(_NAMES)) for r in records]).reshape(-1, len(_NAMES))
    columns: dict[str, Any] = {
        "round": pa.array([r.round for r in records], pa.int64()),
        "clock": pa.array([r.clock for r in records], pa.float64()),
        "seconds": pa.array([r.seconds for r in records], pa.float64()),
        "available": pa.array([r.available for r in records], pa.int64()),
        "chosen": pa.array([len(r.ids) for r in records], pa.int64()),
    }
    for i, name in enumerate(_NAMES):
        columns[name.lower()] = pa.array(counts[:, i], pa.int64())
    columns["messages"] = pa.array([r.messages for r in records], pa.int64())
    if any(r.unusable for r in records):
        columns["unusable"] = pa.array([r.unusable for r in records], pa.int64())
    columns["megabytes"] = pa.array([r.megabytes for r in records], pa.float64())
    columns["there"] = pa.array([r.there for r in records], pa.binary())
    if any(r.joined is not None for r in records):
        columns["joined"] = pa.array([r.joined for r in records], pa.int64())
    columns["version"] = pa.array([r.version for r in records], pa.int64())
    columns["sent_at"] = pa.array([r.sent_at for r in records], pa.float64())
    columns["present"] = pa.array([r.present for r in records], pa.int64())
    columns["mask"] = pa.array([r.mask for r in records], pa.binary())
    columns["chances"] = pa.array([r.chances for r in records], pa.binary())
    if any(r.client_seconds is not None for r in records):
        columns["client_seconds"] = pa.array([r.client_seconds for r in records], pa.float64())
    if any(len(r.late_ids) for r in records):
        columns |= _late_columns(records)
    if any(r.tasks is not None for r in records):
        columns |= _stream_columns(records)
    for name in metrics:
        if name in ROUND_COLUMNS:
            raise ContractError(f"the metric {name!r} has the name of a column of rounds.parquet; rename the metric")
        values = [r.metrics.get(name) for r in records]
        columns[name] = pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.table(columns)


def _late_columns(records: list[Record]) -> dict[str, Any]:
    """Late updates used in each round: how many, by how many rounds late, whose, and in which round they were sent."""
    stale = [r.round - r.late_rounds for r in records]
    return {
        "late_used": pa.array([len(each) for each in stale], pa.int64()),
        "staleness_mean": pa.array([float(each.mean()) if len(each) else None for each in stale], pa.float64()),
        "staleness_max": pa.array([int(each.max()) if len(each) else None for each in stale], pa.int64()),
        "late_clients": pa.array([r.late_ids.tolist() for r in records], pa.list_(pa.int64())),
        "late_sent": pa.array([r.late_rounds.tolist() for r in records], pa.list_(pa.int64())),
    }


def _stream_columns(records: list[Record]) -> dict[str, Any]:
    """Of each move of the model under `fp.Buffered`: clients asked, at work, and how stale the answers used were."""
    stale = [[each.staleness for each in r.tasks or () if each.status == Status.DONE] for r in records]
    return {
        "asked": pa.array([r.asked for r in records], pa.int64()),
        "flying": pa.array([r.flying for r in records], pa.int64()),
        "staleness_mean": pa.array([float(np.mean(each)) if each else None for each in stale], pa.float64()),
        "staleness_max": pa.array([int(max(each)) if each else None for each in stale], pa.int64()),
    }


def selections_table(records: list[Record]) -> pa.Table:
    """A row per chosen client of each record."""

    def joined(name: str, dtype: Any) -> Any:
        parts = [getattr(r, name) for r in records]
        return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)

    rounds = np.repeat([r.round for r in records], [len(r.ids) for r in records]).astype(np.int64)
    status = pa.DictionaryArray.from_arrays(pa.array(joined("status", np.int8)), pa.array(_NAMES))
    ended = [each for r in records for each in r.tasks or ()]
    tasks: dict[str, Any] = {}
    if ended:
        tasks = {
            "task": pa.array([each.task.id for each in ended], pa.int64()),
            "sent": pa.array([each.task.version for each in ended], pa.int64()),
            "staleness": pa.array([each.staleness for each in ended], pa.int64()),
            "weight": pa.array([each.weight for each in ended], pa.float64()),
        }
    return pa.table(
        {
            "round": rounds,
            "client": joined("ids", np.int64),
            "inclusion": joined("inclusion", np.float64),
            "status": status,
            "duration": joined("duration", np.float64),
            "loss": joined("loss", np.float64),
            **tasks,
        }
    )
