"""Parquet files that say what they are, with a sum over every byte: damage shows, and so does a file in a wrong place.

The sum stands in a gap before the footer, where readers of Parquet do not look: the file is one for every tool.

    PAR1 | pages | mark (16 bytes) | BLAKE2b of all other bytes (16) | footer | length | PAR1

The footer's "fedpick" says which table it is, of which run, and which rounds it covers.
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
from fedpick.core.errors import StoreError
from fedpick.store.arrow import pa, pq

__all__ = ["Label", "Sealed", "peek", "read_sealed", "write_sealed"]

KEY = b"fedpick"
REACHED = b"fedpick.reached"  # until 0.1, in joined files: the last round they hold
_MARK, _SUM, _END = b"fedpick:blake2b:", 16, b"PAR1"
GROUP = 2**12  # rows of a Parquet row group; larger tables are written, and merged, without being whole in memory
_FIX = "restore it from a backup, or remove the run's folder"


@dataclass(frozen=True)
class Label:
    """What a file says of itself.

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
class Sealed:
    """A file that was read, and its sum compared."""

    path: Path
    file: Any  # a ParquetFile
    label: Label | None  # None: written before there were any

    @property
    def reached(self) -> int:
        """The last round that it covers, as it says."""
        return _reached(self.file.schema_arrow.metadata)

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """Its rows; of these columns, if given, those that there are."""
        try:
            # A thread of Arrow's may hold our bytes longest; freeing them while Python exits would abort the process.
            return self.file.read(columns, use_threads=False)
        except (OSError, pa.ArrowException, MemoryError, ValueError) as error:
            raise self._unreadable(error) from None

    def pieces(self) -> Iterator[pa.Table]:
        """Its rows, a few at a time."""
        try:
            for batch in self.file.iter_batches(GROUP, use_threads=False):  # each thread would keep memory
                yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, MemoryError, ValueError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> StoreError:
        return StoreError(f"{self.path}: cannot be read ({str(error)[:200]}); {_FIX}")


def write_sealed(path: Path, table: pa.Table | Iterable[pa.Table], label: Label) -> None:
    """Replace a file, with its label and its sum.

    Args:
        path: of the file.
        table: all rows, or pieces of one schema, at least one. The bytes do not depend on how the rows are cut.
        label: what the file says of itself.
    """
    groups = _groups([table] if isinstance(table, pa.Table) else table)
    first = next(groups)
    schema = first.schema.with_metadata({KEY: json.dumps(asdict(label))})
    sink, check = io.BytesIO(), hashlib.blake2b(digest_size=_SUM)

    def written() -> bytes:
        """What the writer has written since the last call."""
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


def _is_sealed(content: memoryview, path: Path) -> bool:
    """Whether there is a sum; raises where it is not that of the bytes."""
    at = _footer(content) if len(content) >= 8 else -1
    begin = at - len(_MARK) - _SUM
    if begin < 0 or content[begin : begin + len(_MARK)] != _MARK:
        return False
    found = hashlib.blake2b(content[:begin], digest_size=_SUM)
    found.update(content[at:])
    if found.digest() != content[at - _SUM : at]:
        raise StoreError(f"{path}: is damaged, its bytes do not have the sum that they were written with; {_FIX}")
    return True


def read_sealed(path: Path) -> Sealed:
    """Open a file and compare its sum; a file from before there were sums is taken as it is."""
    try:
        content = path.read_bytes()
        sealed = _is_sealed(memoryview(content), path)
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if file.metadata.num_rows > max(2**27, 10_000 * len(content)):
            raise ValueError(f"it says that {len(content)} bytes hold {file.metadata.num_rows} rows")
        said = (file.schema_arrow.metadata or {}).get(KEY)
        if (said is None) == sealed:
            raise ValueError("it was written or changed by something else than fedpick")
        label = None if said is None else Label(**json.loads(said))
        _reached(file.schema_arrow.metadata)
    except StoreError:
        raise
    except (OSError, pa.ArrowException, ValueError, TypeError, MemoryError) as error:
        raise StoreError(f"{path}: cannot be read ({str(error)[:200]}); {_FIX}") from None
    return Sealed(path, file, label)


def _reached(said: dict[bytes, bytes] | None) -> int:
    found = said or {}
    return int(json.loads(found[KEY])["last"] if KEY in found else found.get(REACHED, 0))


def peek(path: Path) -> int:
    """The last round that a file says it covers, without a look at its rows or its sum; 0 if there is no file."""
    try:
        return _reached(pq.read_schema(path).metadata) if path.is_file() else 0
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: cannot be read ({str(error)[:200]}); {_FIX}") from None
