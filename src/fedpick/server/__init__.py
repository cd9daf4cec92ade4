"""A session: any policy behind any server. See docs/session.md.

    session = fp.Session(fp.E3CS(20, quota=0.5), state="state/", records="runs/http")
    with session.round(available=names) as r:
        send(r.chosen)                                  # then, for each answer that arrives, from any thread:
        r.done(name, loss=0.7, seconds=3.1)             # or r.failed(name)

`session` runs the rounds: enrol clients, choose, collect answers, let the policy learn, save. `round` is one round.
Without rounds, `asking` asks and takes answers, `stream` keeps them, `commit` is a move of the model for the user,
`move` what the policy learns of it, `ledger` what is on disk of the work in flight. `roster` has the enrolled clients,
`enrolment` changes them; `view` is what the policy sees; `validation` and `reports` check what clients send;
`late_updates` weighs updates of closed rounds; `storage` saves the rounds: `memory`, `journal` and `models` the state,
`records` the records. `client` is for the clients. Adapters for frameworks are in `fedpick.adapters`.

`state=` and `records=` need `pip install "fedpick[server]"`; the modules are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpick.server.client import masked
    from fedpick.server.commit import Commit, Work
    from fedpick.server.round import Round
    from fedpick.server.session import Session
    from fedpick.server.settings import Host, Lateness, Limits
    from fedpick.server.view import NotEnoughClientsError

_NAMES = {
    "client": ("masked",),
    "commit": ("Commit", "Work"),
    "round": ("Round",),
    "session": ("Session",),
    "settings": ("Host", "Lateness", "Limits"),
    "view": ("NotEnoughClientsError",),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["Commit", "Host", "Lateness", "Limits", "NotEnoughClientsError", "Round", "Session", "Work", "masked"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"fedpick.server.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'fedpick.server' has no attribute {name!r}")
