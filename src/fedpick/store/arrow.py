"""Apache Arrow, which comes with an extra: whoever lacks it is told which."""

from fedpick.core.errors import MissingError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise MissingError(
        "keeping runs and reading them needs pyarrow: pip install 'fedpick[cli]', or for a server 'fedpick[server]'"
    ) from None

__all__ = ["pa", "pq"]
