"""Runs and processes that the tests of the executors share."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, environment, patient, processes


def configs(rounds: int = 40) -> list[Config]:
    return [
        Config(policy, 4, rounds, seed, {"name": name, "num_clients": 20}, 15)
        for policy, name in [("e3cs(quota=0.5)", "volatile"), ("rbcs-f", "rbcs-f"), ("fedgs", "fedgs-sln")]
        for seed in (0, 1)
    ]


def folders(path: Path, count: int = 6) -> list[Path]:
    return [path / str(i) for i in range(count)]


def contents(paths: list[Path]) -> list[bytes]:
    return [
        (path / name).read_bytes()
        for path in paths
        for name in ("rounds.parquet", "selections.parquet", "clients.parquet")
    ]


def jobs(configs: list[Config], path: Path) -> list[Job]:
    return [Job(config, path / str(i)) for i, config in enumerate(configs)]


def ended(pid: int, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


def called(function: Callable[[Any], Any], item: Any, tell: Callable[[Any], None]) -> Any:
    return function(item)


def in_two(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    on_result: Callable[[int, Any], None] = lambda index, result: None,
    variables: Mapping[str, str] | None = None,
) -> list[Any]:
    """The results of function(item) in order, computed in two processes; the first error is raised."""
    results: dict[int, Any] = {}
    with patient() as stop:
        around = environment() | dict(variables or {})
        call = partial(called, function)
        for i, result in processes.in_processes(call, items, 2, stop, lambda index, value: None, around):
            if isinstance(result, processes.Failure):
                raise result.error or ProcessLookupError("killed")
            results[i] = result
            on_result(i, result)
    return [results[i] for i in range(len(items))]
