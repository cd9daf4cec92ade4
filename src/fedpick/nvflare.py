"""Any policy as an NVFlare workflow: `Selected` is NVFlare's own FedAvg, in which the policy decides who trains.

    job.to_server(fedpick.nvflare.Selected(policy=fp.E3CS(cohort_size=20), num_rounds=100, state="/var/fedpick"))

Needs nvflare and fedpick at the server; clients stay as they are, and of their metrics `train_loss` (else `loss`) and
`seconds` are read. NVFlare refuses a job without code of its own unless the server's resources.json names the classes
of `Selected` and of the policy in `class_allow_list`.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedpick import rng
from fedpick.errors import MissingError, StateError, require
from fedpick.protocol import Policy, traits
from fedpick.state import admit, load_state, read_archive, save_state
from fedpick.types import Choice, Clients, Outcome, Status, View

__all__ = ["Selected"]

FAILED = (Status.FAILED, math.nan, math.nan)  # status, seconds, loss


class Selected(FedAvg):  # type: ignore[misc]
    """FedAvg with clients chosen by a policy; `num_clients` has no say, everything else is NVFlare's.

    Args:
        policy: any that needs no probe, context, features or reports.
        state: folder at the server, as a full path, that keeps what the policy learned for a later job; None: nothing.
        deadline: whole seconds for a round; who has not answered by then is LATE.
        seed: of the policy's random numbers.
        sizes: examples by site name; 1 where it is not said.
        args, kwargs: FedAvg's; `ignore_result_error` is True unless said, so that one failure does not end the job.
    """

    def __init__(
        self,
        *args: Any,
        policy: Policy[Any],
        state: str | os.PathLike[str] | None = None,
        deadline: int = 3600,
        seed: int = 0,
        sizes: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **{"ignore_result_error": True} | kwargs)
        require(deadline >= 1, "Selected: deadline", deadline, "a whole number of seconds >= 1")
        if needs := ", ".join(sorted(traits(policy).needs)):
            raise MissingError(f"Selected: {type(policy).__name__} needs {needs}, which NVFlare does not give it")
        # NVFlare writes the arguments into the job from attributes of these names.
        self.policy, self.deadline, self.seed, self.sizes = policy, deadline, seed, sizes
        self.state = None if state is None else os.fspath(state)
        self.names, self.played = list[str](), 0  # sites in the order of their indices, rounds
        self._clients, self._learned = Clients([]), None
        self._asked: tuple[View, Choice, float]  # with the time when the round began
        self._heard: dict[str, tuple[Status, float, float]] = {}  # status, seconds and loss by site

    def _described(self, names: list[str]) -> Clients:
        return Clients([float((self.sizes or {}).get(name, 1)) for name in names])

    def run(self) -> None:
        """Go on from the state's folder, then as FedAvg."""
        if self.state is not None and (path := Path(self.state, "state.npz")).exists():
            notes = read_archive(path)[1]["notes"].get("nvflare")
            if notes is None:
                raise StateError(f"{path}: not the state of an NVFlare server; it is left as it is, use another folder")
            self.names, self.played, self._clients = notes["roster"], notes["round"], self._described(notes["roster"])
            self._learned, _ = load_state(self.policy, path, self._clients)
        super().run()

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """The policy's choice among the sites that are connected now; new ones are enrolled."""
        there = [c.name for c in self.engine.get_clients() if not self.get_client_disconnect_time(c.name)]
        if new := sorted(set(there) - set(self.names)):
            add = self._described(new)
            self._learned = admit(self.policy, self._learned, add) if self.names else self.policy.init(add)
            self._clients, self.names = self._clients.join(add), self.names + new
        view = View(self.played + 1, np.isin(self.names, there), self._clients)
        choice = self.policy.select(self._learned, view, rng.stream(self.seed, view.round, "policy"))
        if not len(choice):  # NVFlare takes "no targets" for "all"
            raise MissingError(f"round {view.round}: nobody was chosen of {len(there)} connected sites; connect more")
        self._asked, self._heard = (view, choice, monotonic()), {}
        return list(dict.fromkeys(self.names[k] for k in choice.ids))  # drawn twice: trains once

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        """As FedAvg, with a deadline and a look at each answer."""
        use, sent = kwargs["callback"], kwargs["data"].params
        kwargs |= {"timeout": self.deadline, "callback": lambda result: self._hear(result, use, sent)}
        super().send_model(*args, **kwargs)

    def _hear(self, result: Any, use: Callable[[Any], Any], sent: Any) -> bool:
        """Hand the answer to FedAvg, unless it is unsound or one too many (OverSelect); whether it was used."""
        name, metrics, kind = result.meta["client_name"], result.metrics or {}, traits(self.policy)
        loss, said = metrics.get("train_loss", metrics.get("loss")), _number(metrics.get("seconds"))
        if why := _unsound(result.params, sent, loss):
            self.warning(f"{name} failed: {why}")
            return False
        seconds = said if 0 < said <= self.deadline else monotonic() - self._asked[2]
        done = sum(status == Status.DONE for status, *_ in self._heard.values())
        full = kind.asks != kind.cohort_size and done == kind.cohort_size
        used = not full and use(result) is not False
        if used or full:
            self._heard[name] = (Status.DONE if used else Status.SURPLUS, seconds, _number(loss))
        return used

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Note who answered with nothing usable: an error code, an unsound update, one that FedAvg cannot add."""
        if event_type == AppEventType.AFTER_CONTRIBUTION_ACCEPT:
            self._heard.setdefault(fl_ctx.get_peer_context().get_identity_name(), FAILED)
        super().handle_event(event_type, fl_ctx)

    def update_model(self, model: Any, aggr_result: Any) -> Any:
        """Close the round: the policy learns; the model stays as it is if nobody's update could be used."""
        view, choice, _ = self._asked
        names, late = [self.names[k] for k in choice.ids], (Status.LATE, float(self.deadline), math.nan)
        heard = [self._heard.get(n, FAILED if self.get_client_disconnect_time(n) else late) for n in names]
        status, seconds, loss = map(list, zip(*heard, strict=True))
        self._learned = self.policy.observe(self._learned, view, choice, Outcome(status, seconds, loss))
        self.played = view.round
        if self.state is not None:
            notes = {"round": self.played, "roster": self.names}
            save_state(self.policy, self._learned, Path(self.state, "state.npz"), nvflare=notes)
        self.info(f"round {self.played}: " + ", ".join(f"{n} {e[0].name}" for n, e in zip(names, heard, strict=True)))
        return super().update_model(model, aggr_result) if aggr_result.params else model


def _number(value: Any) -> float:
    return float(value) if isinstance(value, float | np.number) or type(value) is int else math.nan


def _unsound(params: Any, sent: Any, loss: Any) -> str:
    """What makes an update unusable, "" if nothing."""
    if loss is not None and not math.isfinite(_number(loss)):
        return f"loss = {loss!r:.40}, but must be finite"
    for key, value in params.items() if isinstance(params, dict) else ():
        if isinstance(value, np.ndarray | float):  # others, such as encrypted ones, are FedAvg's business
            if not np.isfinite(value).all():
                return f"{key} holds NaN or infinity"
            if key in sent and np.shape(value) != np.shape(sent[key]):
                return f"{key} has shape {np.shape(value)}, but the model has {np.shape(sent[key])}"
    return ""
