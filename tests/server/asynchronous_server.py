"""An asynchronous session behind HTTP, for tests that kill it: python asynchronous_server.py FOLDER PORT COMMITS SEED

The clients' updates are the ids of their tasks, and the model is the tasks that it is made of. With a SEED >= 0, the
process kills itself at a random write of the journal: before it, when a part of it is written, or after it.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import fedpick as fp
from fedpick.server import journal


def kill_at_a_write(seed: int) -> None:
    """End the process, as if the power of its machine failed, in one of the next writes."""
    chance, append = random.Random(seed), journal.Journal.append
    left, when = [chance.randint(0, 60)], chance.choice(["before", "within", "after"])

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write(this: journal.Journal, body: bytes) -> None:
        left[0] -= 1
        if left[0] < 0 and when == "before":
            die()
        append(this, body)
        if left[0] < 0 and when == "within":
            os.truncate(this.path, this.path.stat().st_size - chance.randint(1, len(body)))
        if left[0] < 0:
            die()

    journal.Journal.append = write  # type: ignore[method-assign]


def main(folder: Path, port: int, commits: int) -> None:
    """Serve until so many commits are made."""
    session = fp.Session(
        fp.Guard(fp.E3CS(4)),
        pace=fp.Buffered(concurrency=8, size=3, timeout=600),
        state=folder / "state",
        model=folder / "model",
        records=folder / "records",
        limits=fp.server.Limits(checkpoint_every=5),
    )
    names: set[str] = set()
    work: dict[str, dict[str, int]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/work":
                names.add(said["name"])
                found = work.get(said["name"], {})
            else:
                status = session.done(said["id"], update=np.array([said["id"]]), loss=0.5, seconds=0.01)
                work.pop(said["name"], None)
                found = {"status": None if status is None else status.name}
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64

    with session, Server(("127.0.0.1", port), Handler) as http:
        kept = session.model
        model = {"tasks": np.zeros(0, dtype=np.int64)} if kept is None else kept
        work |= {task.name: {"id": task.id, "version": task.version} for task in session.tasks}
        threading.Thread(target=http.serve_forever, daemon=True).start()
        while session.version < commits:
            for task in session.ask(sorted(names)):
                work[task.name] = {"id": task.id, "version": task.version}
            if commit := session.commit():
                ids = [int(update[0]) for _, update, _ in commit.parts()]
                model = {"tasks": np.append(model["tasks"], ids)}
                commit.model = model
                commit.close()
            time.sleep(0.002)
        http.shutdown()


if __name__ == "__main__":
    place, at, wanted, seed = sys.argv[1:]
    if int(seed) >= 0:
        kill_at_a_write(int(seed))
    main(Path(place), int(at), int(wanted))
