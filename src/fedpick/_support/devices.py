"""The devices that JAX computes on: a GPU, or one CPU device per core of this machine.

A cohort is divided by clients: one single-threaded XLA device per core trains whole clients in parallel, whereas one
device with many threads would divide each small matrix product (1.5-2x slower on the models of the papers).

Only one process should use a GPU: asking JAX for its devices reserves most of the GPU's memory. `gpu_there` therefore
looks without JAX, and `environment` keeps processes that share the cores off the GPU.
"""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["DEVICES", "cores", "describe", "environment", "flags", "gpu_there", "memory", "reserve"]

DEVICES = ("auto", "cpu", "gpu")
_COUNT = "--xla_force_host_platform_device_count"
_THREADS = "--xla_cpu_multi_thread_eigen"
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin", "jax_rocm7_plugin")  # jaxlib alone has none
_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")  # NVIDIA, any GPU under WSL, AMD


def flags(count: int) -> str:
    """XLA_FLAGS for this many host devices of one thread each; other flags are kept.

    >>> flags(2).split()[-2:]
    ['--xla_force_host_platform_device_count=2', '--xla_cpu_multi_thread_eigen=false']
    """
    kept = re.sub(rf"({_COUNT}|{_THREADS})=\S*", "", os.environ.get("XLA_FLAGS", "")).split()
    return " ".join([*kept, f"{_COUNT}={count}", f"{_THREADS}=false"])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reserve(count: int | None = None) -> None:
    """Give JAX this many host devices; None: one per core, unless XLA_FLAGS already sets a number.

    No effect after JAX was imported. Processes that share a machine (`fedpick.experiment.executors`) get one each.
    """
    if "jax" in sys.modules or (count is None and _COUNT in os.environ.get("XLA_FLAGS", "")):
        return
    os.environ["XLA_FLAGS"] = flags(count or cores())


def environment() -> dict[str, str]:
    """Environment variables of a process that shares the cores with others: one host device of one thread, and no GPU.

    Otherwise XLA would split every gather of a mini-batch over as many threads as there are cores.

    >>> environment()["JAX_PLATFORMS"]
    'cpu'
    """
    return {"XLA_FLAGS": flags(1), "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1"}


def memory() -> int:
    """Bytes that this process can have at most: what the machine has, or less where it is limited (ulimit -v)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ImportError, ValueError, OSError, AttributeError):  # not on this system
        return sys.maxsize
    return pages if limit == resource.RLIM_INFINITY else min(pages, limit)


def stay_on_cpu() -> None:
    """Make JAX use the CPU in this process, so that others can use the GPU. No effect after JAX was imported."""
    if "jax" in sys.modules or not gpu_there():
        return
    before = os.environ.get("JAX_PLATFORMS")
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax  # noqa: F401  (reads the variable now)
    finally:
        if before is None:
            del os.environ["JAX_PLATFORMS"]  # processes that are started later decide for themselves
        else:
            os.environ["JAX_PLATFORMS"] = before


def gpu_there() -> bool:
    """Whether JAX would find a GPU; does not ask JAX, which would reserve its memory."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not re.search("cuda|rocm|gpu", platforms):
        return False
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return False
    return any(map(find_spec, _PLUGINS)) and any(Path(node).exists() for node in _NODES)


def describe() -> str:
    """The device that JAX computes on in this process: "cpu", or "gpu: NVIDIA H200"."""
    try:
        import jax  # here, because most processes do not need it
    except ImportError:  # a trainer of the user's own, without JAX
        return "cpu"
    if jax.default_backend() == "cpu":
        return "cpu"
    return f"{jax.default_backend()}: {jax.local_devices()[0].device_kind}"
