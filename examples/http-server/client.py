"""A client of server.py: joins, asks for work, trains, answers; waits if the server is down for a while.

python client.py --name ada --size 120
"""

import argparse
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np

AWAY = (urllib.error.URLError, http.client.HTTPException, OSError)  # the server cannot be reached: try again


class Client:
    """One client; all requests go through `call`."""

    def __init__(self, url: str, name: str, size: int = 1, fails: float = 0.0) -> None:
        self.url, self.name, self.size, self.fails = url, name, size, fails
        self.random = random.Random(name)
        # In place of data: the model that is optimal for this client.
        self.target = 1.0 + 0.1 * np.random.default_rng(len(name)).normal(size=10)

    def call(self, path: str, **message: object) -> dict:
        """POST the message, or GET without one."""
        data = json.dumps({"name": self.name, **message}).encode() if message or path != "work" else None
        query = "" if data else "?" + urllib.parse.urlencode({"name": self.name})
        with urllib.request.urlopen(f"{self.url}/{path}{query}", data=data, timeout=10) as reply:
            found: dict = json.loads(reply.read())
            return found

    def join(self) -> None:
        """Tell the server that this client is available."""
        self.call("join", size=self.size)

    def step(self) -> bool:
        """Ask for work and do it; returns whether there was any."""
        work = self.call("work")
        if not work:
            return False
        if self.random.random() < self.fails:
            self.call("failed", round=work["round"])
            return True
        begun = time.perf_counter()
        model = np.array(work["model"])
        update = 0.5 * (self.target - model)  # a step of gradient descent
        loss = float(np.mean((self.target - model) ** 2))
        seconds = time.perf_counter() - begun
        self.call("done", round=work["round"], update=update.tolist(), loss=loss, seconds=seconds)
        return True


def main() -> None:
    """Work until the server has been down for a minute."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8765")
    parser.add_argument("--name", required=True)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--fails", type=float, default=0.0, help="share of the rounds in which it fails")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without a server")
    options = parser.parse_args()
    client = Client(options.url, options.name, options.size, options.fails)
    heard = time.monotonic()
    while time.monotonic() - heard < options.patience:
        try:
            client.join()
            if not client.step():
                time.sleep(0.1)
            heard = time.monotonic()
        except AWAY:
            time.sleep(0.2)


if __name__ == "__main__":
    main()
