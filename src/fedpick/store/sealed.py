"""Parquet files that say what they are, with a sum over every byte: damage shows, and so does a file in a wrong place.

The sum stands in a gap before the footer, where readers of Parquet do not look: the file is one for every tool.

    PAR1 | pages | mark (16 bytes) | BLAKE2b of all other bytes (16) | footer | length | PAR1

The footer's "fedpick" says which table it is, of which run, and which rounds it covers.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedpick import atomic
from fedpick.errors import StoreError

__all__ = ["Label", "Sealed", "peek", "read_sealed", "write_sealed"]

KEY = b"fedpick"
REACHED = b"fedpick.reached"  # until 0.1, in joined files: the last round they hold
_MARK, _SUM, _END = b"fedpick:blake2b:", 16, b"PAR1"
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
            return self.file.read(columns)
        except (OSError, pa.ArrowException, MemoryError, ValueError) as error:
            raise StoreError(f"{self.path}: cannot be read ({str(error)[:200]}); {_FIX}") from None


def write_sealed(path: Path, table: pa.Table, label: Label) -> None:
    """Replace a file, with its label and its sum."""
    sink = pa.BufferOutputStream()
    marked = table.replace_schema_metadata({KEY: json.dumps(asdict(label))})
    pq.write_table(marked, sink, write_page_checksum=True)
    content = memoryview(sink.getvalue())
    at = _footer(content)
    check = hashlib.blake2b(content, digest_size=_SUM).digest()
    with atomic.creating(path) as file:
        for piece in (content[:at], _MARK + check, content[at:]):
            file.write(piece)


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
