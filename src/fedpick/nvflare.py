"""Any policy as an NVFlare workflow: `Selected` is NVFlare's own FedAvg with the clients chosen by a policy.

    job.to_server(fedpick.nvflare.Selected(policy=fp.E3CS(cohort_size=20), num_rounds=100, state="/var/fedpick"))

The server needs `pip install "fedpick[nvflare]"`; clients need no change. See docs/nvflare.md.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import ParamsType
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedpick.errors import MissingError, require
from fedpick.protocol import Policy, traits
from fedpick.server.round import Round
from fedpick.server.session import DURATIONS, Session
from fedpick.server.settings import Options
from fedpick.server.updates import Update, array_fault
from fedpick.types import Clients, Status

__all__ = ["Selected"]


class Selected(FedAvg):  # type: ignore[misc]
    """FedAvg with clients chosen by a policy; FedAvg's `num_clients` is ignored.

    Args:
        policy: any that needs no probe, context or features.
        state, records, metrics, durations, seed: as in `fp.Session`; folders are absolute paths on the server.
        deadline: whole seconds for a round; sites that have not answered by then are LATE.
        sizes: number of examples by site name; 1 for sites not listed.
        args, kwargs: FedAvg's; `ignore_result_error` is True by default, so that one failure does not end the job.
    """

    def __init__(
        self,
        *args: Any,
        policy: Policy[Any],
        state: str | os.PathLike[str] | None = None,
        records: str | os.PathLike[str] | None = None,
        metrics: str | int | None = None,
        deadline: int = 3600,
        durations: str = "arrival",
        seed: int = 0,
        sizes: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **{"ignore_result_error": True} | kwargs)
        require(deadline >= 1, "Selected: deadline", deadline, "a whole number of seconds >= 1")
        require(durations in DURATIONS, "Selected: durations", durations, f"one of {', '.join(DURATIONS)}")
        about = traits(policy)
        if needs := ", ".join(sorted(about.needs & ({"probe", "context", "features"} | about.valued))):
            raise MissingError(
                f"Selected: {type(policy).__name__} needs {needs}, which NVFlare cannot provide; choose another policy"
            )
        # NVFlare writes the arguments into the job from attributes with the same names.
        self.policy, self.deadline, self.durations, self.seed, self.sizes = policy, deadline, durations, seed, sizes
        self.metrics = metrics
        self.state = None if state is None else os.fspath(state)
        self.records = None if records is None else os.fspath(records)
        self._session: Session  # while the job runs
        self._round: Round

    def _described(self, names: Sequence[str]) -> Clients:
        return Clients([float((self.sizes or {}).get(name, 1)) for name in names])

    def run(self) -> None:
        """Load the state, then run FedAvg."""
        options = Options(
            state=self.state, records=self.records, metrics=self.metrics, deadline=self.deadline, seed=self.seed
        )
        options["durations"] = self.durations
        about = {"engine": "nvflare", "base": "FedAvg"}
        session = Session(
            self.policy, **options, describe=self._described, about=about, log=self.logger, owner="Selected"
        )
        with session as self._session:
            super().run()

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """The policy's choice among the connected sites; new ones are enrolled."""
        there = [c.name for c in self.engine.get_clients() if not self.get_client_disconnect_time(c.name)]
        self._round = self._session.round(sorted(there))
        if not self._round.chosen:  # NVFlare would send to all sites
            number = self._round.number
            raise MissingError(f"round {number}: none of {len(there)} connected sites was chosen; connect more")
        return list(self._round.chosen)

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        """As FedAvg, with a deadline and a check of each answer."""
        use, sent = kwargs["callback"], kwargs["data"].params
        self._round.megabytes = sum(np.asarray(values).nbytes for values in sent.values()) / 1e6
        kwargs |= {"timeout": self.deadline, "callback": lambda result: self._hear(result, use, sent)}
        super().send_model(*args, **kwargs)

    def _hear(self, result: Any, use: Callable[[Any], Any], sent: Any) -> bool:
        """Pass the answer to FedAvg unless it is invalid or surplus (OverSelect); returns whether it was used."""
        name, update, params = result.meta["client_name"], Update(), result.params
        update.say(result.metrics or {}, self._session.reports)
        for key, value in params.items() if isinstance(params, dict) else ():
            if isinstance(value, np.ndarray | float):  # others, such as encrypted ones, are left to FedAvg
                model = np.asarray(sent[key]) if key in sent else None
                update.why = update.why or array_fault(key, np.asarray(value), model)
        share = self._share(name)
        if share is not None:  # FedAvg averages by this; a weight of 0 is no update
            result.meta[FLMetaKey.NUM_STEPS_CURRENT_ROUND] = share
        if update.why:
            self._round.failed(name, update.why)
        elif share == 0.0:
            self._round.done(name, loss=update.loss, seconds=update.seconds, reports=update.reports)
        elif self._round.full or use(result) is not False:
            status = self._round.done(name, loss=update.loss, seconds=update.seconds, reports=update.reports)
            return status == Status.DONE
        return False

    def _share(self, name: str) -> float | None:
        """The policy's own weight of a site, copies added up; None leaves it to FedAvg."""
        choice, names = self._round.choice, self._session.roster.names
        if choice.weights is None:
            return None
        return sum(float(w) for k, w in zip(choice.ids, choice.weights, strict=True) if names[k] == name)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Record a failure if a site answered with an error code or an update that FedAvg cannot add."""
        if event_type == AppEventType.AFTER_CONTRIBUTION_ACCEPT:
            name = fl_ctx.get_peer_context().get_identity_name()
            if name in self._round.waiting:
                self._round.failed(name, "an error code, or an update that FedAvg cannot add")
        super().handle_event(event_type, fl_ctx)

    def update_model(self, model: Any, aggr_result: Any) -> Any:
        """Close the round, so that the policy learns; without a usable update the model does not change."""
        for name in self._round.waiting:
            if self.get_client_disconnect_time(name):
                self._round.failed(name, "disconnected", answered=False)
        self._round.close()
        if not aggr_result.params:
            return model
        self._session.measure(aggr_result.metrics or {}, training=True)
        weights = self._round.weights
        if weights is not None and not self._round.choice.normalise:  # FedAvg has divided by their sum
            total = sum(weights.values())
            for key, mean in aggr_result.params.items():
                old = 0.0 if aggr_result.params_type == ParamsType.DIFF else np.asarray(model.params[key])
                aggr_result.params[key] = old + total * (mean - old)
        return super().update_model(model, aggr_result)
