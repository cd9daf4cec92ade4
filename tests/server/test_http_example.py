"""examples/http-server: real HTTP on loopback, clients that join, leave and fail, a server that is killed."""

import collections
import contextlib
import importlib.util
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from fedpick import store
from fedpick.core.state import pack

EXAMPLE = Path(__file__).parents[2] / "examples" / "http-server"
POLICY, COHORT = "rpow-d(candidates=40)", 10
CLIENTS, KILLS, LAST = 200, 10, 10  # LAST: rounds after the kills, so that some fail on a busy machine, too


def load(name):
    spec = importlib.util.spec_from_file_location(f"http_{name}", EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


client = load("client")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Crowd:
    """Clients that are moved by a few threads: they join, leave, fail, and note which of their answers were used."""

    def __init__(self, url: str, count: int, threads: int = 8) -> None:
        self.used: set[tuple[int, str]] = set()
        self.over = threading.Event()
        self.clients = [self.one(url, f"phone {k}", 1 + k % 7, 0.2 * (k % 3)) for k in range(count)]
        self.threads = [threading.Thread(target=self.move, args=(self.clients[k::threads],)) for k in range(threads)]

    def one(self, url, name, size, fails):
        used = self.used

        class Noted(client.Client):
            def call(self, path, **said):
                found = super().call(path, **said)
                if path == "done" and found["used"]:
                    used.add((said["round"], self.name))
                return found

        return Noted(url, name, size, fails)

    def move(self, mine) -> None:
        chance = random.Random(mine[0].name)
        away: set[str] = set()
        while not self.over.is_set():
            for each in mine:
                try:
                    if each.name in away or chance.random() < 0.2:  # in a while, or back
                        away ^= {each.name}
                        each.call("leave") if each.name in away else each.join()
                    else:
                        each.join()
                        each.step()
                except client.AWAY:
                    time.sleep(0.05)
                if self.over.is_set():
                    return


def serve(folder: Path, port: int, rounds: int, log) -> subprocess.Popen:
    command = [sys.executable, str(EXAMPLE / "server.py"), "--port", str(port), "--folder", str(folder)]
    command += ["--rounds", str(rounds), "--policy", POLICY, "--cohort", str(COHORT), "--deadline", "1.0"]
    return subprocess.Popen([*command, "--wait-for", "20"], stdout=log, stderr=log)


def look(folder: Path) -> fp.Session:
    return fp.Session(fp.policy(POLICY, cohort_size=COHORT), state=folder / "state")


def replayed(folder: Path, names: list[str], sizes, until: int):
    """What a policy that was never interrupted learned from the records of these rounds."""
    policy = fp.policy(POLICY, cohort_size=COHORT)
    told = store.read_selections(folder / "records").to_pandas()
    at = {name: k for k, name in enumerate(names)}
    listed = store.read_clients(folder / "records")
    clients = fp.Clients(sizes)
    state = policy.init(clients)
    for number in range(1, until + 1):
        rows = told[told["round"] == number]
        ids = [at[listed[k]] for k in rows["client"]]
        status = [fp.Status[s] for s in rows["status"]]
        view = fp.View(number, np.ones(len(names), dtype=bool), clients)
        state = policy.observe(state, view, fp.Choice(ids), fp.Outcome(status, rows["duration"], rows["loss"]))
    return state


def same(state, other) -> None:
    for name, value in pack(other).items():
        np.testing.assert_array_equal(pack(state)[name], value, err_msg=name)


def test_a_few_rounds_over_http(tmp_path) -> None:
    server = load("server")
    federation = server.Federation(tmp_path, fp.E3CS(3), 30.0, dimension=10)
    with server.Server(("127.0.0.1", 0), server.handler(federation)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http.server_address[1]}"
        crowd = Crowd(url, 6, threads=2)
        for each in crowd.clients:
            each.fails = 0.0
            each.join()
        request = urllib.request.Request(f"{url}/done", data=b'{"name": "phone 1", "round": "x"}')
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=10)
        for thread in crowd.threads:
            thread.start()
        for _ in range(6):
            while len(federation.available()) < 3:
                time.sleep(0.01)
            federation.play()
        crowd.over.set()
        for thread in crowd.threads:
            thread.join()
        http.shutdown()
    federation.session.close()
    told = store.read_selections(tmp_path / "records").to_pandas()
    names = store.read_clients(tmp_path / "records")
    done = {(r, names[k]) for r, k, s in told[["round", "client", "status"]].itertuples(index=False) if s == "DONE"}
    assert done == crowd.used
    again = server.Federation(tmp_path, fp.E3CS(3), 30.0, dimension=10)  # after a restart
    np.testing.assert_array_equal(again.model, federation.model)
    assert np.linalg.norm(federation.model - 1.0) < 1.0


def test_an_interrupted_server_ends_without_a_traceback(tmp_path, monkeypatch) -> None:
    server, bound = load("server"), []

    class Noted(server.Server):
        def server_bind(self) -> None:
            super().server_bind()
            bound.append(self.server_address[0])

    def interrupted(self):
        assert (tmp_path / "records" / "manifest.json").exists()  # the session is open
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "Server", Noted)
    monkeypatch.setattr(server.Federation, "available", interrupted)
    monkeypatch.setattr(sys, "argv", ["server.py", "--host", "127.0.0.2", "--port", "0", "--folder", str(tmp_path)])
    server.main()
    assert bound == ["127.0.0.2"]
    with look(tmp_path):  # the folders are not locked any more
        pass


DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE = {  # path and body of a request that no client sends
    "a number as a name": ("join", b'{"name": 5}'),
    "an empty name": ("join", b'{"name": ""}'),
    "a long name": ("join", b'{"name": "' + b"x" * 501 + b'"}'),
    "a list as a name": ("join", b'{"name": [1]}'),
    "no name": ("join", b"{}"),
    "a lone surrogate": ("done", b'{"name": "\\ud800", "round": 1, "update": "\\udcff"}'),
    "nested lists": ("join", DEEP),
    "a nested size": ("join", b'{"name": "", "size": ' + b"[" * 800 + b"]" * 800 + b"}"),
    "a large number as a name": ("join", b'{"name": 1' + b"0" * 400 + b"}"),
    "a number of 400 digits": ("done", b'{"name": "ada", "round": 1, "update": [1' + b"0" * 400 + b"]}"),
    "a number of 5,000 digits": ("done", b'{"name": "ada", "round": 1, "update": [1' + b"0" * 5000 + b"]}"),
    "a round of 400 digits": ("failed", b'{"name": "ada", "round": 1' + b"0" * 400 + b"}"),
    "no object": ("done", b"3"),
    "no JSON": ("leave", b"\xff"),
    "another path": ("__init__", b'{"name": "ada"}'),
}


@pytest.fixture
def running(tmp_path, monkeypatch):
    """The example's main(), in a thread, in which two rounds are to be played; its address, its thread, its class."""
    server, bound = load("server"), []

    class Noted(server.Server):
        def server_bind(self) -> None:
            super().server_bind()
            bound.append(self.server_address[1])

        def handle_error(self, request, client_address) -> None:
            bound.append(sys.exc_info()[1])

    monkeypatch.setattr(server, "Server", Noted)
    options = ["--port", "0", "--rounds", "2", "--policy", "uniform", "--deadline", "5", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["server.py", *options])
    monkeypatch.setattr(server.time, "sleep", lambda seconds, real=time.sleep: real(min(seconds, 0.05)))
    thread = threading.Thread(target=server.main, daemon=True)
    thread.start()
    while not bound:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound[0]}", thread, bound
    thread.join(timeout=20)
    assert not thread.is_alive()


def send(url: str, path: str, body: bytes, **headers: str) -> int:
    try:
        request = urllib.request.Request(f"{url}/{path}", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_no_message_ends_the_server_or_is_a_traceback(running, tmp_path) -> None:
    url, thread, seen = running
    statuses = {what: send(url, *request) for what, request in HOSTILE.items()}
    assert set(statuses.values()) == {200, 400}, statuses
    assert statuses["nested lists"] == statuses["no name"] == statuses["another path"] == 400
    for length in ("-1", "x", "1" + "0" * 9):
        assert send(url, "join", b"{}", **{"Content-Length": length}) == 400
    for path in ("work", "work?name=", "work?name=stranger"):
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/{path}", timeout=10)
    time.sleep(0.3)  # the names that the session ignores are all that are there
    assert thread.is_alive()
    assert len(seen) == 1, seen  # no handler failed
    ada = client.Client(url, "ada")
    while thread.is_alive():
        with contextlib.suppress(client.AWAY):
            ada.join()
            ada.step()
    told = store.read_rounds(tmp_path / "records")
    assert told["done"].to_pylist() == [1, 1]


@pytest.mark.parametrize("update", [[10**400] * 10, [[[[1.0]]]], "x", None, [math.nan] * 10, {"w": 1}, [1.0]])
def test_an_update_that_does_not_fit_the_model_is_a_failure(tmp_path, update) -> None:
    federation = load("server").Federation(tmp_path, fp.E3CS(1), 30.0, dimension=10)
    with federation.session.round(["ada"]) as federation.round:
        assert federation.done("ada", 1, update) == {"used": False}
    assert federation.session.last.status.tolist() == [fp.Status.FAILED]
    federation.session.close()


def test_clients_that_are_silent_are_dropped(tmp_path, monkeypatch) -> None:
    server = load("server")
    federation = server.Federation(tmp_path, fp.E3CS(3), 30.0, dimension=10)
    for k in range(50):
        federation.join(f"phone {k}", k)
    monkeypatch.setattr(server, "SILENT", 0.05)
    time.sleep(0.1)
    federation.join("phone 7", 3)
    assert federation.available() == {"phone 7": 3}
    assert list(federation.there) == ["phone 7"]


def test_after_a_disk_that_was_full_the_server_goes_on_with_the_model_of_the_saved_round(tmp_path, monkeypatch) -> None:
    server = load("server")
    federation = server.Federation(tmp_path, fp.E3CS(2), 0.01, dimension=10)
    federation.join("ada")
    federation.join("bob")

    def play() -> None:
        monkeypatch.setattr(server.Round, "wait", lambda r: [r.done(n, update=np.ones(10)) for n in r.chosen])
        federation.play()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    play()
    play()
    with monkeypatch.context() as patch:
        patch.setattr(federation.session.memory, "_checkpoint", full)
        patch.setattr(federation.session.memory.journal, "append", full)
        for _ in range(5):
            play()
        assert (federation.session.round_number, federation.session.rounds_saved) == (7, 2)
        federation.session.memory.unlock()  # as if it were killed
    again = server.Federation(tmp_path, fp.E3CS(2), 0.01, dimension=10)
    assert (again.session.round_number, again.session.rounds_saved) == (2, 2)
    np.testing.assert_array_equal(again.model, np.full(10, 2.0))


@pytest.mark.slow
def test_two_hundred_clients_and_a_server_killed_ten_times(tmp_path) -> None:
    port = free_port()
    crowd = Crowd(f"http://127.0.0.1:{port}", CLIENTS)
    chance, seen = random.Random(0), []
    process = None
    try:
        for thread in crowd.threads:
            thread.start()
        with (tmp_path / "log").open("wb") as log:
            for _ in range(KILLS):
                before = seen[-1][0] if seen else 0
                process = serve(tmp_path, port, 10**9, log)
                end = time.monotonic() + 40.0
                while not list(tmp_path.glob(f"model/model-{before + 1:06d}-*.npz")) and time.monotonic() < end:
                    time.sleep(0.01)  # it has played, or is about to close, one more round
                time.sleep(chance.uniform(0.0, 0.5))
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                session = look(tmp_path)
                roster = session.roster
                seen.append((session.round_number, list(roster.names), roster.clients.sizes, roster.state))
                assert session.round_number >= before, "a round that was learned from is lost"
            process = serve(tmp_path, port, seen[-1][0] + LAST, log)
            assert process.wait(timeout=60) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        crowd.over.set()
        for thread in crowd.threads:
            thread.join(timeout=20)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    session = look(tmp_path)
    last = session.round_number
    assert last == seen[-1][0] + LAST
    assert last > KILLS
    assert len(session.names) == len(set(session.names)) > 0.8 * CLIENTS

    # Every round once, every client at most once in it, and only those whose answers the server took are DONE.
    rounds, told = store.read_rounds(tmp_path / "records"), store.read_selections(tmp_path / "records").to_pandas()
    assert rounds["round"].to_pylist() == list(range(1, last + 1))
    assert not told.duplicated(["round", "client"]).any()
    names = store.read_clients(tmp_path / "records")
    assert names == session.names
    status = collections.Counter(told["status"])
    assert status["DONE"] > status["FAILED"] > 0
    done = {(r, names[k]) for r, k, s in told[["round", "client", "status"]].itertuples(index=False) if s == "DONE"}
    # A server that dies after it counted an answer takes its reply with it: at most one cohort at each kill.
    assert len(done - crowd.used) <= KILLS * COHORT
    assert len(done & crowd.used) > 0.5 * len(done)

    # What was learned at each kill, and at the end, is what the records say, to the last bit.
    for number, known, sizes, state in [
        *seen,
        (last, session.names, session.roster.clients.sizes, session.roster.state),
    ]:
        same(state, replayed(tmp_path, known, sizes, number))
    assert json.loads((tmp_path / "records" / "manifest.json").read_text())["config"]["engine"] == "session"
    kept = fp.Session(fp.policy(POLICY, cohort_size=COHORT), state=tmp_path / "state", model=tmp_path / "model").model
    assert kept["w"].shape == (10,)
    assert len(list(tmp_path.glob("model/*"))) == 3
