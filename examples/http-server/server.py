"""Federated learning over plain HTTP: the standard library's web server, and a fedpick session that chooses clients.

    python server.py --rounds 20            then, in other terminals: python client.py --name ada

    POST /join     {"name": "ada", "size": 120}                  the client is available, until it leaves or is silent
    POST /leave    {"name": "ada"}                               the client is away
    GET  /work?name=ada                                          {"round": 3, "model": [...]} if it was chosen, else {}
    POST /done     {"name": "ada", "round": 3, "update": [...], "loss": 0.7, "seconds": 1.2}
    POST /failed   {"name": "ada", "round": 3}

If it is killed and started again, it continues with what was learned, and with the model of the same round.
"""

import argparse
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

import fedpick as fp
from fedpick.server import NotEnoughClientsError, Round

SILENT = 10.0  # seconds without a request after which a client counts as away
LONGEST = 10_000_000  # bytes of a request


class Federation:
    """The model, the connected clients, and the session."""

    def __init__(self, folder: Path, policy: fp.Policy, deadline: float, dimension: int) -> None:
        self.session = fp.Session(
            policy, state=folder / "state", model=folder / "model", records=folder / "records", deadline=deadline
        )
        self.there: dict[str, tuple[float, object]] = {}  # name -> time of its last request, its size
        self.round: Round | None = None  # the round that began last
        kept = self.session.model  # it belongs to the round of the saved state, at whatever moment the server died
        self.model = np.zeros(dimension) if kept is None else kept["w"]

    def play(self) -> None:
        """One round: choose, wait for the answers, aggregate."""
        with self.session.round(available=self.available()) as r:
            self.round = r
            r.wait()  # until all have answered, or the deadline
            if r.updates:
                self.model = self.model + np.mean(list(r.updates.values()), axis=0)
            r.model = {"w": self.model}
        self.session.measure({"distance": float(np.linalg.norm(self.model - 1.0))})

    def available(self) -> dict[str, object]:
        """The clients that called recently, with their sizes."""
        since = time.monotonic() - SILENT
        for name, (heard, _) in list(self.there.items()):
            if heard < since:
                self.there.pop(name, None)
        return {name: size for name, (_, size) in list(self.there.items())}

    # -- requests of clients; called from many threads ---------------------------------------------------------------

    def join(self, name: str, size: object = None) -> dict[str, object]:
        """A client is available."""
        self.there[name] = (time.monotonic(), size)
        return {}

    def leave(self, name: str) -> dict[str, object]:
        """A client is away."""
        self.there.pop(name, None)
        return {}

    def work(self, name: str) -> dict[str, object]:
        """The model, if the client was chosen in this round and has not answered yet."""
        if known := self.there.get(name):
            self.join(name, known[1])
        r = self.round
        if r is None or name not in r.waiting:
            return {}
        return {"round": r.number, "model": self.model.tolist()}

    def done(self, name: str, round: int, update: object, loss: object = None, seconds: object = None) -> dict:
        """A client has trained; an update that does not fit the model counts as a failure."""
        r = self.round
        if r is None or r.number != round:
            return {"used": False}
        try:
            array = np.asarray(update, dtype=np.float64)
            fine = array.shape == self.model.shape and bool(np.isfinite(array).all())
        except (TypeError, ValueError, OverflowError):
            fine = False
        if not fine:
            r.failed(name, "the update does not have the shape of the model, or is not finite")
            return {"used": False}
        return {"used": r.done(name, loss=loss, seconds=seconds, update=array) == fp.Status.DONE}

    def failed(self, name: str, round: int) -> dict[str, object]:
        """A client could not train."""
        r = self.round
        if r is not None and r.number == round:
            r.failed(name, "the client reported a failure")
        return {}


def handler(federation: Federation) -> type[BaseHTTPRequestHandler]:
    """A request handler that calls the federation's methods; an invalid request gets status 400."""
    posts = {name: getattr(federation, name) for name in ("join", "leave", "done", "failed")}

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            """Join, leave, done, failed."""
            self.respond(self.posted)

        def do_GET(self) -> None:
            """Work."""
            self.respond(lambda: federation.work(parse_qs(urlsplit(self.path).query)["name"][0]))

        def posted(self) -> dict:
            """Do what the message says."""
            length = int(self.headers.get("Content-Length", 0))
            if not 0 <= length <= LONGEST:
                raise ValueError(f"Content-Length is {length}, but must be 0 to {LONGEST}")
            return posts[self.path.strip("/")](**json.loads(self.rfile.read(length)))

        def respond(self, act: Callable[[], dict]) -> None:
            """Send what `act` returns; whatever a client sent, the server goes on."""
            try:
                found = act()
            except (KeyError, TypeError, ValueError, RecursionError) as error:  # deeply nested JSON is the last
                self.answer(400, {"error": f"{type(error).__name__}: {str(error)[:200]}"})
            else:
                self.answer(200, found)

        def answer(self, code: int, content: dict) -> None:
            """Send JSON."""
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Requests are not logged."""

    return Handler


class Server(ThreadingHTTPServer):
    """Many clients may call at once."""

    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    """Serve until the rounds are played."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; anyone who reaches it is believed")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--folder", type=Path, default=Path("fedpick-runs/http"))
    parser.add_argument("--rounds", type=int, default=20, help="in all, those before a restart included")
    parser.add_argument("--policy", default="guard(e3cs(quota=0.5))")
    parser.add_argument("--cohort", type=int, default=5)
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds for a round")
    parser.add_argument("--wait-for", type=int, default=1, help="clients, before the first round")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options.folder.mkdir(parents=True, exist_ok=True)
    policy = fp.policy(options.policy, cohort_size=options.cohort)
    federation = Federation(options.folder, policy, options.deadline, dimension=10)
    with Server((options.host, options.port), handler(federation)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Ctrl-C closes the session; the round that was open is played again after the next start.
        with suppress(KeyboardInterrupt), federation.session:
            while federation.session.round_number < options.rounds:
                if len(federation.available()) < options.wait_for:
                    time.sleep(0.05)
                    continue
                try:
                    federation.play()
                except NotEnoughClientsError as error:  # all have names that the session ignores
                    logging.info("waiting: %s", error)
                    time.sleep(1.0)
        server.shutdown()
    if federation.session.rounds_saved < federation.session.round_number:
        sys.exit(f"only {federation.session.rounds_saved} rounds are on the disk: free space, and start again")


if __name__ == "__main__":
    main()
