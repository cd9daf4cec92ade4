"""Arrays by name: read from the files of runs and servers, and compared bit for bit."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Found = dict[str, NDArray[Any]]
_LETTERS = re.compile(r"-[0-9a-f]{8}$")  # at the end of a kept model's name, drawn anew by each server


def column_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as an array: numbers as they are, everything else as texts."""
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
    if plain and not column.null_count:
        return column.to_numpy()
    return np.array([repr(value) for value in column.to_pylist()], dtype=str)


def files_of(folder: Path) -> Found:
    """All arrays of a folder's Parquet and .npz files, by the file's name and the array's."""
    found: Found = {}
    for path in sorted(folder.rglob("*.parquet")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        table = pq.read_table(path)
        found |= {f"{name}/{column}": column_of(table[column]) for column in table.column_names}
    for path in sorted(folder.rglob("*.npz")):
        name = _LETTERS.sub("", path.relative_to(folder).with_suffix("").as_posix())
        with np.load(path) as arrays:  # its member fedpick.json, with versions, is no array
            found |= {f"{name}/{each}": arrays[each] for each in arrays.files if not each.endswith(".json")}
    return found


def runs_of(out: Path) -> Found:
    """The files of all runs of a comparison, by policy and seed: the names of folders hold fedpick's version."""
    found: Found = {}
    for manifest in sorted(out.rglob("manifest.json")):
        config = json.loads(manifest.read_text(encoding="utf-8"))["config"]
        name = f"{config['policy']} {config['seed']}"
        found |= {f"{name}/{each}": array for each, array in files_of(manifest.parent).items()}
    return found


def differences(old: Found, new: Found) -> list[str]:
    """Which arrays differ, in the order of the old ones; types, shapes and all bits must agree."""
    lines = []
    for name in [*old, *(each for each in new if each not in old)]:
        if name not in old or name not in new:
            lines.append(f"{name} is only in the {'old' if name in old else 'new'} one")
            continue
        a, b = old[name], new[name]
        texts = a.dtype.kind == b.dtype.kind == "U"  # their width is that of the longest
        if a.shape != b.shape or (a.dtype != b.dtype and not texts):
            lines.append(f"{name} is {a.dtype}{list(a.shape)}, now {b.dtype}{list(b.shape)}")
        elif texts:
            if at := np.flatnonzero(a != b).tolist():
                lines.append(f"{name}: {len(at)} of {a.size} texts differ, first {a.flat[at[0]]}, now {b.flat[at[0]]}")
        elif a.tobytes() != b.tobytes():
            with np.errstate(invalid="ignore"):  # infinity minus infinity
                apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
            count = np.count_nonzero((a != b) & ~((a != a) & (b != b)))
            lines.append(f"{name}: {count} of {a.size} numbers differ, by at most {np.nanmax(apart, initial=0.0):.3g}")
    return lines
