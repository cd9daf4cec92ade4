"""An asynchronous session over HTTP that is killed 20 times, with clients that go on."""

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import fedpick as fp
from fedpick import store

KILLS, CLIENTS = 20, 16
SERVER = Path(__file__).with_name("asynchronous_server.py")


class Crowd:
    """Clients that ask for work, work a moment and answer, some of them twice; a server that is down is tried again."""

    def __init__(self, port: int) -> None:
        self.port, self.over = port, threading.Event()
        self.sent: dict[int, int] = {}  # version by task
        self.told: dict[int, list[str | None]] = {}  # what the server said to each answer
        self.threads = [threading.Thread(target=self.work, args=(f"phone {k}",)) for k in range(CLIENTS)]

    def call(self, path: str, **message: object) -> dict | None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("POST", path, json.dumps(message).encode())
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def work(self, name: str) -> None:
        chance = random.Random(name)
        while not self.over.is_set():
            time.sleep(0.01 + 0.05 * chance.random())
            task = self.call("/work", name=name)
            if not task:
                continue
            assert self.sent.setdefault(task["id"], task["version"]) == task["version"]
            time.sleep(0.02 * chance.random())
            for _ in range(1 + (chance.random() < 0.2)):
                if found := self.call("/done", name=name, id=task["id"]):
                    self.told.setdefault(task["id"], []).append(found["status"])


@pytest.mark.slow
def test_killed_twenty_times_over_http(tmp_path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    crowd, chance = Crowd(port), random.Random(0)
    for thread in crowd.threads:
        thread.start()
    kills, by_itself, survived = 0, 0, set()
    try:
        while kills < KILLS:
            seed = kills if kills % 2 else -1  # each second one at a write
            server = subprocess.Popen([sys.executable, str(SERVER), str(tmp_path), str(port), "100000", str(seed)])
            try:
                if seed < 0:
                    before = len(crowd.told)
                    while len(crowd.told) < before + 5 and server.poll() is None:
                        time.sleep(0.01)
                    time.sleep(0.3 * chance.random())
                    server.send_signal(signal.SIGKILL)
                assert server.wait(timeout=120) == -signal.SIGKILL
            finally:
                server.kill()
            kills, by_itself = kills + 1, by_itself + (seed >= 0)
            survived |= {task.id for task in look(tmp_path).tasks}  # in flight when it was killed
        version = look(tmp_path).version
        last = [sys.executable, str(SERVER), str(tmp_path), str(port), str(version + 10), "-1"]
        assert subprocess.run(last, timeout=120, check=False).returncode == 0
    finally:
        crowd.over.set()
        for thread in crowd.threads:
            thread.join()
    done = check(tmp_path, crowd, version + 10)
    assert len(survived & done) > KILLS
    assert by_itself == KILLS // 2


def look(folder: Path) -> fp.Session:
    pace = fp.Buffered(concurrency=8, size=3, timeout=600)
    return fp.Session(fp.Guard(fp.E3CS(4)), pace=pace, state=folder / "state", model=folder / "model")


def check(folder: Path, crowd: Crowd, commits: int) -> set[int]:
    """Returns the tasks whose answers are used."""
    session = look(folder)
    rounds = store.read_rounds(folder / "records").to_pandas()
    rows = store.read_selections(folder / "records").to_pandas()
    assert session.version == commits
    assert rounds["round"].tolist() == list(range(1, commits + 1))  # no commit is lost, none is there twice
    assert max(Counter(rows["task"]).values()) == 1
    done = rows[rows["status"] == "DONE"]
    assert session.model["tasks"].tolist() == done["task"].tolist()
    assert (done.groupby("round").size() == 3).all()
    assert (done["staleness"] == done["round"] - 1 - done["sent"]).all()
    sent = {id: version for id, version in zip(rows["task"], rows["sent"], strict=True) if id in crowd.sent}
    assert sent == {id: crowd.sent[id] for id in sent}  # the staleness is that of the model that the client had
    waiting = {each.task.id for each in session.stream.stream.ended}
    accepted = {id for id, told in crowd.told.items() if "DONE" in told}
    assert accepted <= set(rows["task"]) | waiting  # each is used once, or LATE once
    return set(done["task"])
