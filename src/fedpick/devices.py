"""One JAX device per core of this machine, set before JAX is imported.

A cohort splits by clients. One single-threaded XLA device per core trains whole clients side by side, where one device
with many threads would split each small matrix product (1.5-2x slower on the models of the papers).
"""

import os
import re
import sys

__all__ = ["flags", "reserve"]

_COUNT = "--xla_force_host_platform_device_count"
_THREADS = "--xla_cpu_multi_thread_eigen"


def flags(count: int) -> str:
    """XLA_FLAGS for this many host devices of one thread each; other flags stay.

    >>> flags(2).split()[-2:]
    ['--xla_force_host_platform_device_count=2', '--xla_cpu_multi_thread_eigen=false']
    """
    kept = re.sub(rf"({_COUNT}|{_THREADS})=\S*", "", os.environ.get("XLA_FLAGS", "")).split()
    return " ".join([*kept, f"{_COUNT}={count}", f"{_THREADS}=false"])


def reserve(count: int | None = None) -> None:
    """Give JAX this many host devices; None: one per core, unless XLA_FLAGS already sets a number.

    Without effect once JAX is imported. Processes that share a machine (`fedpick.experiment.executors`) take one each.
    """
    if "jax" in sys.modules or (count is None and _COUNT in os.environ.get("XLA_FLAGS", "")):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ["XLA_FLAGS"] = flags(count or cores)
