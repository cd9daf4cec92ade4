"""How the driver speaks with an engine: one JSON object a line, over stdin and stdout.

The engine says {"ready": ..., "versions": ...} once it is loaded, then answers
    {"do": "run", "rounds": n}      with {"seconds": s}: what rounds 0 to n-1 took, from the first weights on
    {"do": "save", "to": path}      with {}: the parameters after that are in the .npz file, as p0, p1, ...
until its stdin closes. Whatever a library prints goes to stderr.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Protocol

import numpy as np

Params = list[np.ndarray]


def private_stdout() -> int:
    """Keep stdout for the answers: prints of libraries and of child processes go to stderr from now on."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


class Engine(Protocol):
    """What trains."""

    def reset(self) -> None:
        """Back to the first weights and round 0."""

    def run(self, rounds: int) -> None:
        """Return when the parameters after so many more rounds are there."""

    def params(self) -> Params:
        """The present ones, in the common layout."""


def serve(out: int, engine: Engine, packages: list[str]) -> None:
    """Answer until stdin closes."""

    def say(**answer: object) -> None:
        os.write(out, (json.dumps(answer) + "\n").encode())

    say(ready=True, versions={name: version(name) for name in packages})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "run":
            engine.reset()
            started = time.perf_counter()
            engine.run(asked["rounds"])
            say(seconds=time.perf_counter() - started)
        else:
            np.savez(asked["to"], **{f"p{i}": np.asarray(p) for i, p in enumerate(engine.params())})
            say()
