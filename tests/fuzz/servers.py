"""Attacks on a server that runs: by sizes, names, messages and slow connections, by a crowd, by a disk and by forks."""

import contextlib
import http.client
import importlib.util
import itertools
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
from findings import Finding, attacked

import fedpick as fp
from fedpick._support import git, web
from fedpick.server import Limits, journal

ODD = (  # in place of a number
    *(1e15, 1e300, 10**400, 2**63, 1.5, 1e-300, 0, -1, -1e15, float("nan"), float("inf"), float("-inf")),
    *("600", "x", "", None, True, [600], {"size": 1e15}, (1e15, None), np.float32(1e30), b"1", 1j),
)


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        yield Path(place)


def sizes(number: int) -> None:
    """A client that declares any size, when it joins, with answers and late, among honest ones of 100 to 1,000 examples.

    By the rule it counts as 30 times their median at most.
    """
    rng, others = random.Random(f"sizes {number}"), random.Random(number).randint(5, 30)
    honest = {f"c{k}": rng.randint(100, 1000) for k in range(others)}
    most = 30.0 * max(honest.values())
    policy = fp.policy(rng.choice(["uniform", "guard(uniform)"]), cohort_size=rng.randint(4, others + 1))
    late = rng.choice([0, 2])
    with attacked(f"sizes with {policy}"):
        session = fp.Session(policy, late=fp.server.Lateness(late, beta=0.0), deadline=1.0)
        for t in range(1, 9):
            there = {**honest, "liar": rng.choice(ODD)} if rng.random() < 0.8 else dict(honest)
            if rng.random() < 0.5:  # it may be the first one
                there = dict(sorted(there.items(), reverse=True))
            with session.round(there) as r:
                for name in sorted(r.chosen, key=lambda _: rng.random()):
                    if name == "liar" and rng.random() < 0.3:
                        continue
                    size = rng.choice(ODD) if name == "liar" else honest[name]
                    r.done(name, loss=1.0, update=np.zeros(1), size=size)
                weights = {part.name: part.weight for part in r.parts()}
            if late:
                session.keep("liar", np.zeros(1), round=t, size=rng.choice(ODD))
            counted = session.roster.counted.sizes
            if not (np.isfinite(counted).all() and counted.min() >= 0.0 and counted.max() <= most):
                raise Finding(f"in round {t} sizes count as {counted.max()}, but {most} is the most")
            smallest = min((weight / honest[name] for name, weight in weights.items() if name != "liar"), default=1.0)
            if not all(np.isfinite(weight) and weight >= 0.0 for weight in weights.values()):
                raise Finding(f"in round {t} the weights are {weights}")
            if len(weights) > 3 and weights.get("liar", 0.0) > most * smallest * (1.0 + 1e-9):
                raise Finding(f"in round {t} the liar has the weight {weights['liar']} of {weights}")


def crowd(number: int) -> None:
    """More newcomers than may be enrolled, absences, restarts: what MinSeparation promises holds for each name."""
    rng = random.Random(f"crowd {number}")
    apart, at_most = rng.randint(1, 12), rng.choice([None, None, 1, 3])
    inside = rng.choice(["uniform", "e3cs(quota=0.5)", "oort", "guard(tifl)", "rpow-d(candidates=4)"])
    limits = Limits(rng.choice([None, 1, 3, 40]), rng.randint(2, 14), checkpoint_every=3)
    used: dict[str, list[int]] = {}
    with _place() as place, attacked(f"a crowd before {inside}, {apart} rounds apart, {limits}"):

        def server() -> fp.Session:
            policy = fp.policy(f"min-separation({inside}, {apart}, {at_most})", cohort_size=2)
            return fp.Session(policy, state=place / "state", limits=limits)

        session = server()
        for t in range(1, 61):
            known, new = rng.sample(range(12), rng.randint(1, 6)), range(rng.choice([0, 0, 1, 6]))
            try:
                with session.round([*(f"c{k}" for k in known), *(f"n{t}-{k}" for k in new)]) as r:
                    for name in r.chosen:
                        _ = r.done(name, loss=0.5, seconds=1.0) if rng.random() < 0.8 else r.failed(name)
                    for name in r.chosen:
                        used.setdefault(name, []).append(session.round_number)
            except fp.server.NotEnoughClientsError:
                pass
            if rng.random() < 0.1:
                session.memory.unlock()  # as at the end of the process
                session = server()
        session.close()
    for name, rounds in used.items():
        if any(b - a < apart for a, b in itertools.pairwise(rounds)) or len(rounds) > (at_most or len(rounds)):
            raise Finding(f"{inside}, {apart} apart, {at_most} at most, {limits}: {name} took part in rounds {rounds}")


SECRET, ID = "0123456789abcdef0123456789abcdef01234567", "a" * 40
_PIECES = (
    *("ref: ", "ref:", "refs", "heads", "main", "/", "/", "..", ".", "//", "\n", " ", "\0", "HEAD", "config", "x" * 5000),
    *("../../secret/creds", "{secret}", ID, ID[:39], "\x1b[2J", "ä", "packed", "gitdir: ", "commondir"),
)  # fmt: skip


def heads(number: int) -> None:
    """A git directory of which any file says anything or is none; what is beside it is a secret."""
    rng, before = random.Random(f"heads {number}"), Path.cwd()
    with _place() as place:
        secret, inside = place / "secret" / "creds", place / "checkout" / ".git"
        (inside / "refs" / "heads").mkdir(parents=True)
        secret.parent.mkdir()
        secret.write_text(SECRET + "\n")
        files = {
            "HEAD": "ref: refs/heads/main\n",
            "refs/heads/main": f"{ID}\n",
            "packed-refs": f"{ID} refs/heads/packed\n",
        }
        for name, text in files.items():
            (inside / name).write_text(text)
        for _ in range(rng.randint(1, 3)):
            target = inside / rng.choice([*files, "HEAD", "commondir", "refs", "."])
            if not target.parent.is_dir() or not target.parent.resolve().is_relative_to(inside.parent.resolve()):
                continue
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
            text = "".join(rng.choice(_PIECES) for _ in range(rng.randint(0, 6))).replace("{secret}", str(secret))
            kind = rng.randrange(8)
            if kind == 0:
                os.mkfifo(target)
            elif kind == 1:
                goals = (secret, secret.parent, place, "/dev/zero", "/dev/tty", "HEAD", "refs/heads/main", "..", target)
                target.symlink_to(rng.choice(goals))
            elif kind == 2:
                target.mkdir()
            else:
                target.write_text(rng.choice(["ref: ", "ref: refs/", ""]) + text, errors="replace")
        try:
            os.chdir(place / "checkout")
            with attacked("a git directory"):
                start, found = time.monotonic(), git.commit()
                if found not in (None, ID):
                    raise Finding(f"the commit is said to be {found!r}")
                if time.monotonic() - start > 60.0:
                    raise Finding("it waited")
        finally:
            os.chdir(before)


@cache
def _example() -> ModuleType:
    """The server of examples/http-server, whose handlers may not fail."""
    file = Path(__file__).parents[2] / "examples" / "http-server" / "server.py"
    spec = importlib.util.spec_from_file_location("http_example", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _json(rng: random.Random, deep: int = 0) -> str:
    """A value as anybody may write it."""
    kind = rng.randrange(9)
    if kind == 0 and deep < 3:
        return "{" + ", ".join(f"{_json(rng, 9)}: {_json(rng, deep + 1)}" for _ in range(rng.randrange(3))) + "}"
    if kind == 1 and deep < 3:
        return "[" + ", ".join(_json(rng, deep + 1) for _ in range(rng.randrange(12))) + "]"
    if kind == 2:
        return rng.choice(["[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 5000, "1" + "0" * 400])
    words = ("", "ada", "bob", "x" * 501, "\\ud800", "\\u0000", "\\u001b[2J", "__class__", "../../x")
    return rng.choice([f'"{rng.choice(words)}"', *("5", "-1", "1e400", "NaN", "null", "true", "0.5", "1", "[0,0,0]")])


def messages(number: int) -> None:
    """Messages to the HTTP example that no client sends; then a client that does as it should is still served."""
    rng, server, failed = random.Random(f"messages {number}"), _example(), list[BaseException | None]()

    class Noted(server.Server):  # type: ignore[misc, name-defined]
        def handle_error(self, request: object, client_address: object) -> None:
            if not isinstance(sys.exc_info()[1], OSError):  # of a connection that was closed
                failed.append(sys.exc_info()[1])

    with _place() as place, attacked("messages"):
        federation = server.Federation(place, fp.Uniform(2), 0.2, dimension=3)
        with Noted(("127.0.0.1", 0), server.handler(federation)) as running:
            threading.Thread(target=running.serve_forever, daemon=True).start()
            for at in range(12):
                fields = ", ".join(
                    f'"{name}": {_json(rng)}'
                    for name in ("name", "size", "round", "update", "loss")
                    if rng.random() < 0.5
                )
                body = ("{" + fields + "}" if rng.random() < 0.8 else _json(rng)).encode()
                path = rng.choice(
                    ["join", "join", "leave", "done", "failed", "work?name=", "__init__", "x/../join", ""]
                )
                length = rng.choice([len(body)] * 8 + [0, -1, 10**9, "x", len(body) // 2])
                head = f"{'GET' if 'work' in path else 'POST'} /{path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
                with socket.create_connection(running.server_address, timeout=30) as one, contextlib.suppress(OSError):
                    one.sendall(head.encode() + body)
                    one.shutdown(socket.SHUT_WR)
                    said = one.recv(100)
                    if said and said.split()[1] not in (b"200", b"400"):
                        raise Finding(f"{path} {body[:100]!r} was answered by {said!r}")
                if at % 4 == 3:
                    with contextlib.suppress(fp.server.NotEnoughClientsError):
                        federation.play()
            for name in list(federation.there):
                federation.leave(name)
            federation.session.deadline = 30.0
            federation.join("eve", 10)
            player = threading.Thread(target=federation.play)
            player.start()
            used = False
            while player.is_alive() and not used:
                work = federation.work("eve")
                if work:
                    used = federation.done("eve", work["round"], [0.5, 0.5, 0.5], 0.5, 1.0)["used"]
                time.sleep(0.005)
            player.join()
            running.shutdown()
        federation.session.close()
        if failed or not used:
            raise Finding(f"a handler failed: {failed[:1]!r}" if failed else "the honest client was not served")


NAMES = [f"phone-{letter}" for letter in "abcdefgh"]


def _play(session: fp.Session) -> None:
    with session.round(NAMES) as r:
        for name in r.chosen:
            r.done(name, loss=ord(name[-1]) / 100, seconds=1.0)


@cache
def _journal() -> tuple[Path, bytes, list[int]]:
    """The folder of a server that was killed after five rounds, its journal, and where each entry begins."""
    folder = Path(tempfile.mkdtemp(prefix="fedpick-fuzz-")) / "state"
    session = fp.Session(fp.E3CS(3), state=folder, limits=Limits(checkpoint_every=50))
    for _ in range(5):
        _play(session)
    session.memory.unlock()
    data, starts = (folder / "journal").read_bytes(), [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + journal.HEAD.size + journal.HEAD.unpack_from(data, starts[-1])[1])
    return folder, data, starts


def rotten(number: int) -> None:
    """A bit of a journal is flipped, most often of its last entry, or its end is cut: no round that had ended is lost."""
    rng, (source, good, starts) = random.Random(f"rotten {number}"), _journal()
    with _place() as place:
        shutil.copytree(source, place / "state")
        if rng.random() < 0.8:
            bit = rng.randrange(8 * rng.choice([0, *[starts[-2]] * 3]), 8 * len(good))
            what, expected = f"bit {bit} of the journal", None
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
        else:
            cut = rng.randrange(len(good))
            what, expected = f"the journal cut at {cut}", sum(start <= cut for start in starts[1:])
            bad = bytearray(good[:cut])
        (place / "state" / "journal").write_bytes(bad)
        with attacked(what):
            reached = fp.Session(fp.E3CS(3), state=place / "state").round_number
            if reached != expected:
                raise Finding(f"{what}: it goes on after round {reached}")


def _forked(act: Callable[[], object]) -> bytes:
    """What a fork of this process answers: nothing, or the error."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            signal.alarm(60)
            act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


def forks(number: int) -> None:
    """A session that its process and forks of it use in turn: forks are refused, and nothing is lost."""
    rng, played = random.Random(f"forks {number}"), 0
    with _place() as place, attacked("forks"):
        session = fp.Session(fp.E3CS(3), state=place / "s", limits=Limits(checkpoint_every=rng.randint(1, 9)))
        if rng.random() < 0.7:
            session.open()
        for _ in range(6):
            if rng.random() < 0.5 and played:
                answer = _forked(lambda: _play(session))
                if not answer.startswith(b"StateError: "):
                    raise Finding(f"a fork was answered {answer!r}")
            else:
                _play(session)
                played += 1
        session.memory.unlock()
        again = fp.Session(fp.E3CS(3), state=place / "s").round_number
        if again != played or (place / "s" / "journal.torn").exists():
            raise Finding(f"{played} rounds were played, {again} are kept: {sorted(os.listdir(place / 's'))}")


def slow(number: int) -> None:
    """Connections to the page that send any bytes one by one, as many as it takes at once; then somebody looks."""
    rng, over, patience = random.Random(f"slow {number}"), threading.Event(), web.PATIENCE
    starts = (
        b"",
        b"GET / HTTP/1.1\r\nX: ",
        b"GET /" + b"x" * 50,
        b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        b"\xff",
    )
    with attacked("slow connections"), web.Server("127.0.0.1", 0, lambda path: web.Answer(b"hello")) as page:
        web.PATIENCE = 0.3
        places = rng.randint(1, 6)
        page._server._free = threading.BoundedSemaphore(places)
        connections = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(places)]
        for each in connections:
            with contextlib.suppress(OSError):
                each.sendall(rng.choice(starts))
        drops = [bytes([rng.randrange(256)]) for _ in connections]

        def drip() -> None:
            while not over.wait(0.05):
                for each, drop in zip(connections, drops, strict=True):
                    with contextlib.suppress(OSError):
                        each.sendall(drop)

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for _ in range(100):  # five seconds at least
                with contextlib.suppress(OSError, http.client.HTTPException):
                    asked = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
                    with contextlib.closing(asked):
                        asked.request("GET", "/", headers={"Host": f"127.0.0.1:{page.port}"})
                        if asked.getresponse().read() == b"hello":
                            return
                time.sleep(0.05)
            raise Finding(f"{places} slow connections keep everybody out")
        finally:
            over.set()
            thread.join()
            for each in connections:
                each.close()
            web.PATIENCE = patience
