"""A real deployment on loopback, for tests: one SuperLink and its SuperNodes as processes that are all ended."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fedpick as fp
from fedpick.store import read_clients, read_selections

HERE = "127.0.0.1"
FLOWER = tuple(map(int, version("flwr").split(".")[:2]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


class Deployment:
    """Processes, their logs, and what the app in `deployed/` tells: see told().

    Args:
        folder: an empty one.
        connection: what the SuperLink connection of `flwr run` holds besides the address.
    """

    def __init__(self, folder: Path, connection: str = "insecure = true") -> None:
        self.folder, self.port = folder, free_port()
        self.fleet = self.port if FLOWER >= (1, 40) else free_port()  # where SuperNodes connect
        self.ports = [self.port, self.fleet]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.may_end: set[str] = set()  # names of processes whose end is no reason to stop the test
        self.app = folder / "app"
        shutil.copytree(Path(__file__).with_name("deployed"), self.app, ignore=shutil.ignore_patterns("__pycache__"))
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{HERE}:{self.port}"\n{connection}\n'
        )
        self.env = os.environ | {
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=self.env, start_new_session=True
            )

    def superlink(self, *options: str) -> None:
        """Start the SuperLink, and wait until it listens."""
        no_install = "--disable-runtime-dependency-installation"
        fleet = () if self.fleet == self.port else ("--fleet-api-address", f"{HERE}:{self.fleet}")
        address = ("--host", HERE, "--port", str(self.port), *fleet)
        self.start("superlink", "flower-superlink", no_install, *address, *options)

        def listens() -> bool | None:
            with contextlib.suppress(OSError), socket.create_connection((HERE, self.port), timeout=1):
                return True
            return None

        self.wait(listens, 60, "the SuperLink to listen")

    def supernode(self, node: int, *options: str) -> None:
        """Start SuperNode `node{node}`, which holds this partition."""
        self.ports.append(free_port())
        self.start(
            f"node{node}",
            *("flower-supernode", "--superlink", f"{HERE}:{self.fleet}", "--host", HERE, "--port", str(self.ports[-1])),
            *("--node-config", f"partition-id={node}", *options),
        )

    def run(self, name: str, **config: object) -> None:
        """Start `flwr run` with this configuration of the app; its log is the ServerApp's."""
        pairs = {"out": str(self.folder)} | config
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in pairs.items())
        self.may_end.add(name)
        self.start(name, "flwr", "run", str(self.app), "here", "--stream", "--run-config", text)

    def flwr(self, *command: str) -> str:
        """The output of a short command of flwr's."""
        done = subprocess.run(
            ("flwr", *command), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"flwr {' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def told(self) -> list[dict[str, Any]]:
        """What the ServerApps have told so far: an entry when a policy begins, after each round, and when it ends."""
        file = self.folder / "told.json"
        return json.loads(file.read_text()) if file.exists() else []

    def trained(self) -> list[dict[str, Any]]:
        """Who has begun to train: round, partition and run of each."""
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("began-*.json"))]

    @contextlib.contextmanager
    def held(self, what: str) -> Iterator[None]:
        """As long as it lasts, the app waits: "after-2" after round 2, "train-3" in round 3, "node-1" at node 1."""
        file = self.folder / f"hold-{what}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def wait(self, what: Callable[[], Any], seconds: float, until: str) -> Any:
        """What `what` returns once it is not None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (found := what()) is not None:
                return found
            gone = {name for name, process in self.running.items() if process.poll() is not None} - self.may_end
            assert not gone, f"{sorted(gone)} ended while waiting for {until}\n{self.logs()}"
            time.sleep(0.25)
        raise AssertionError(f"{seconds:g} s were too short for {until}\n{self.logs()}")

    def rounds(self, many: int, seconds: float) -> list[dict[str, Any]]:
        """The rounds told so far, once there are so many."""

        def enough() -> list[dict[str, Any]] | None:
            rounds = [entry for entry in self.told() if entry["what"] == "round"]
            return rounds if len(rounds) >= many else None

        return self.wait(enough, seconds, f"{many} rounds")

    def ended(self, policy: str, seconds: float) -> None:
        """Wait until the ServerApp is through with this policy."""

        def last() -> bool | None:
            entry = self.told()[-1]
            return True if (entry["what"], entry["policy"]) == ("ends", policy) else None

        self.wait(last, seconds, f"the end of {policy}")

    def check_records(self, policy: str) -> None:
        """The records hold each round that was told, once, as it was told."""
        folder = self.folder / f"records-{policy}"
        names, rows = read_clients(folder), read_selections(folder).to_pylist()
        assert names is not None
        written = [(row["round"], names[row["client"]], row["status"]) for row in rows]
        rounds = [entry for entry in self.told() if entry["what"] == "round" and entry["policy"] == policy]
        assert written == [
            (entry["round"], name, fp.Status(status).name)
            for entry in rounds
            for name, status in zip(entry["chosen"], entry["status"], strict=True)
        ]

    def send(self, name: str, what: signal.Signals) -> None:
        """Signal a process and its children; it may end now."""
        self.may_end.add(name)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.running[name].pid, what)

    def stop(self, name: str) -> None:
        """End a process gently, and wait for it."""
        self.send(name, signal.SIGTERM)
        self.running[name].wait(timeout=30)

    def _ours(self) -> list[int]:
        """Processes with our addresses in their commands: also what Flower started, some in sessions of their own."""
        ps = ("ps", "-A", "-ww", "-o", "pid=,command=")
        lines = subprocess.run(ps, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
        found = ({f"{HERE}:{port}" for port in self.ports}.intersection(line.split()) for line in lines)
        return [int(line.split()[0]) for line, ours in zip(lines, found, strict=True) if ours]

    def _all_gone(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self._ours() or any(process.poll() is None for process in self.running.values()):
            if time.monotonic() > end:
                return False
            time.sleep(0.25)
        return True

    def end(self) -> None:
        """End all processes, gently first."""
        for name in reversed(self.running):
            self.send(name, signal.SIGTERM)
        if not self._all_gone(10):
            for name in self.running:
                self.send(name, signal.SIGKILL)
            for pid in self._ours():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert self._all_gone(20), f"processes {self._ours()} are left, in spite of SIGKILL"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"== {p.stem}\n{self.log(p.stem)[-1500:]}" for p in sorted(self.folder.glob("*.log")))
