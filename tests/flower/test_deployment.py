"""A real deployment on loopback: one SuperLink, six SuperNodes, five kinds of fault in one round."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedpick as fp

pytestmark = pytest.mark.slow
DONE, LATE, FAILED, SURPLUS = fp.Status
RAISES, POISONS, STRAGGLES, KILLED, ENDED = range(1, 6)


class Deployment:
    """Processes that are all ended in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, {}
        self.home = folder / "home"
        self.home.mkdir()
        self.port = self.free()
        self.env = os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        address = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{address}')

    @staticmethod
    def free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=self.env, start_new_session=True
            )

    def send(self, name: str, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, what)

    def end(self) -> None:
        for name in reversed(self.running):
            self.send(name, signal.SIGTERM)
        time.sleep(2.0)
        for name, process in self.running.items():
            self.send(name, signal.SIGKILL)
            process.wait(timeout=10)

    def logs(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in self.folder.glob("*.log"))


def wait_for(what, seconds: float, deployment: Deployment):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := what()) is not None:
            return found
        gone = [name for name, process in deployment.running.items() if process.poll()]
        if set(gone) - {f"node{KILLED}", f"node{ENDED}"}:
            raise AssertionError(f"{gone} ended\n{deployment.logs()}")
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s\n{deployment.logs()}")


def test_each_fault_is_the_right_status_of_the_right_client(tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(Path(__file__).with_name("deployed"), app)
    deployment = Deployment(tmp_path)
    no_install = "--disable-runtime-dependency-installation"

    def told(rounds: int):
        file = tmp_path / "told.json"
        found = json.loads(file.read_text()) if file.exists() else []
        return found if len(found) >= rounds else None

    def connects() -> bool | None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", deployment.port), timeout=1):
            return True
        return None

    try:
        where = ("--host", "127.0.0.1", "--port")
        deployment.start("superlink", "flower-superlink", "--insecure", no_install, *where, str(deployment.port))
        wait_for(connects, 40, deployment)
        for node in range(6):
            deployment.start(
                f"node{node}",
                *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{deployment.port}"),
                *(*where, str(deployment.free()), "--node-config", f"partition-id={node}"),
            )
        deployment.start("run", "flwr", "run", str(app), "here", "--stream", "--run-config", f'out="{tmp_path}"')
        wait_for(lambda: told(1), 120, deployment)
        time.sleep(15.0)  # round 2 has begun, and its messages have been fetched
        deployment.send(f"node{KILLED}", signal.SIGKILL)
        deployment.send(f"node{ENDED}", signal.SIGTERM)
        rounds = wait_for(lambda: told(3), 200, deployment)
    finally:
        deployment.end()

    first, second, third = rounds
    assert sorted(first["loss"]) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    partition = dict(zip(first["names"], map(int, first["loss"]), strict=True))
    assert first["status"] == [DONE] * 6
    faults = {partition[name]: status for name, status in zip(second["names"], second["status"], strict=True)}
    assert faults == {0: DONE, RAISES: FAILED, POISONS: FAILED, STRAGGLES: LATE, KILLED: FAILED, ENDED: FAILED}
    assert second["seconds"] == pytest.approx(90.0, abs=5.0)
    assert second["w"] == [1.0, 1.0, 1.0]
    after = {partition[name]: status for name, status in zip(third["names"], third["status"], strict=True)}
    assert after == {0: DONE, RAISES: DONE, POISONS: DONE, STRAGGLES: DONE}
