"""A session: any policy behind any server. See docs/session.md.

    session = fp.Session(fp.E3CS(20, quota=0.5), state="state/", records="runs/http")
    with session.round(available=names) as r:
        send(r.chosen)                                  # then, for each answer that arrives, from any thread:
        r.done(name, loss=0.7, seconds=3.1)             # or r.failed(name)

`session` runs the rounds: enrol clients, choose, collect answers, let the policy learn, save. `round` is one round;
`roster` the enrolled clients; `reading`, `reports` and `updates` validate what clients send; `late` weighs updates of
closed rounds; `keeping` saves the rounds: `memory` and `journal` the state, `recording` the records. Adapters for
frameworks also use `gathering`, `presence`, `polling`, `averaging`, `aggregating`, `moves` and `valuing`.

`state=` and `records=` need `pip install "fedpick[server]"`; the modules are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpick.server.gathering import NotEnoughClientsError
    from fedpick.server.masks import masked
    from fedpick.server.round import Round
    from fedpick.server.session import Session

__all__ = ["NotEnoughClientsError", "Round", "Session", "masked"]

_HOME = {"NotEnoughClientsError": "gathering", "Round": "round", "Session": "session", "masked": "masks"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"fedpick.server.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedpick.server' has no attribute {name!r}")
