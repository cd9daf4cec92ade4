"""Parquet files with a label and a checksum of every byte: damage is noticed, and so is a file in a wrong place.

The checksum stands in a gap before the footer, which readers of Parquet skip: every tool can read the file.

    PAR1 | pages | mark (16 bytes) | BLAKE2b of all other bytes (16) | footer | length | PAR1

The footer's entry "fedpick" is the label: which table it is, of which run, and which rounds it covers.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from fedpick._support import atomic
from fedpick.core.errors import MissingError, StoreError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise MissingError(
        "keeping runs and reading them needs pyarrow: pip install 'fedpick[cli]', or for a server 'fedpick[server]'"
    ) from None

__all__ = ["Label", "TableFile", "covers", "pa", "read_sealed", "write_sealed"]

KEY = b"fedpick"
_MARK, _SUM = b"fedpick:blake2b:", 16
GROUP = 2**12  # rows of a Parquet row group; larger tables are written, and merged, without being whole in memory
_FIX = "restore it from a backup, or remove the run's folder"


@dataclass(frozen=True)
class Label:
    """What a file contains.

    Args:
        table: "rounds", "selections" or "clients".
        run: hash of the configuration.
        first: the first round that it covers; a round without rows is covered too.
        last: the last one.
    """

    table: str
    run: str
    first: int
    last: int


@dataclass(frozen=True)
class TableFile:
    """An open file whose checksum is right."""

    path: Path
    file: Any  # a ParquetFile
    label: Label

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """All rows; with `columns`, only those of them that the file has."""
        try:
            # A thread of Arrow's may hold our bytes longest; freeing them while Python exits would abort the process.
            return self.file.read(columns, use_threads=False)
        except (OSError, pa.ArrowException, MemoryError, ValueError) as error:
            raise _unreadable(self.path, error) from None

    def pieces(self) -> Iterator[pa.Table]:
        """All rows, at most GROUP at a time."""
        try:
            for batch in self.file.iter_batches(GROUP, use_threads=False):  # each thread would keep memory
                yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, MemoryError, ValueError) as error:
            raise _unreadable(self.path, error) from None


def write_sealed(path: Path, table: pa.Table | Iterable[pa.Table], label: Label) -> None:
    """Replace a file, with its label and its checksum.

    Args:
        path: of the file.
        table: all rows, or pieces of one schema, at least one. The bytes do not depend on how the rows are cut.
        label: what the file contains.
    """
    groups = _groups([table] if isinstance(table, pa.Table) else table)
    first = next(groups)
    schema = first.schema.with_metadata({KEY: json.dumps(asdict(label))})
    sink, check = io.BytesIO(), hashlib.blake2b(digest_size=_SUM)

    def written() -> bytes:
        """The bytes written since the last call."""
        content = sink.getvalue()
        check.update(content)
        sink.seek(0)
        sink.truncate()
        return content

    with atomic.creating(path) as file, pq.ParquetWriter(sink, schema, write_page_checksum=True) as writer:
        for group in chain([first], groups):
            writer.write_table(group.replace_schema_metadata(schema.metadata))
            file.write(written())
        writer.close()
        end = written()
        at = _footer(memoryview(end))
        file.write(end[:at])
        file.write(_MARK + check.digest() + end[at:])


def _groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables of one schema in tables of `GROUP` rows; only the last has fewer."""
    held, rows = list[pa.Table](), 0
    for piece in pieces:
        held.append(piece)
        rows += len(piece)
        while rows > GROUP:
            whole = pa.concat_tables(held)
            yield whole.slice(0, GROUP).combine_chunks()
            held, rows = [whole.slice(GROUP)], rows - GROUP
    yield pa.concat_tables(held).combine_chunks()


def _footer(content: memoryview) -> int:
    """Where the footer begins."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def _check_sum(content: memoryview) -> None:
    """Raise a ValueError unless the bytes have a checksum, and the right one."""
    at = _footer(content) if len(content) >= 8 else -1
    begin = at - len(_MARK) - _SUM
    if begin < 0 or content[begin : begin + len(_MARK)] != _MARK:
        raise ValueError("it has no checksum: it was not written by fedpick, or changed by another program")
    found = hashlib.blake2b(content[:begin], digest_size=_SUM)
    found.update(content[at:])
    if found.digest() != content[at - _SUM : at]:
        raise ValueError("it is damaged: its bytes do not have the checksum that they were written with")


def read_sealed(path: Path) -> TableFile:
    """Open a file, and compare its checksum."""
    try:
        content = path.read_bytes()
        _check_sum(memoryview(content))
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if (most := _longest(file.metadata)) > max(2**27, 10_000 * len(content)):
            raise ValueError(f"it claims {most} values of a column in {len(content)} bytes")
        return TableFile(path, file, _label(file.schema_arrow))
    except (OSError, pa.ArrowException, ValueError, TypeError, MemoryError) as error:
        raise _unreadable(path, error) from None


def _longest(metadata: Any) -> int:
    """The number of values of the column that has most: a row may hold a list of any length."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    values = (sum(group.column(at).num_values for group in groups) for at in range(metadata.num_columns))
    return int(max(metadata.num_rows, *values, 0))


def _label(schema: pa.Schema) -> Label:
    found = (schema.metadata or {}).get(KEY)
    if found is None:
        raise ValueError("it has no label: it was written or changed by another program")
    return Label(**json.loads(found))


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path}: cannot be read ({str(error)[:200]}); {_FIX}")


def covers(path: Path) -> int:
    """The last round that a file covers by its label; 0 if there is no file. Neither rows nor checksum are read."""
    try:
        return _label(pq.read_schema(path)).last if path.is_file() else 0
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise _unreadable(path, error) from None
