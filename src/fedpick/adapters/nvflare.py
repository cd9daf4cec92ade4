"""`Selected` for NVFlare: its FedAvg with the clients chosen by a policy. Users import it from `fedpick.nvflare`."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedpick._support.user_code import is_reference, load
from fedpick.adapters.quorum import Quorum
from fedpick.adapters.round import FrameworkRound
from fedpick.adapters.updates import Arrays, Update, moves, onto
from fedpick.core.errors import ContractError, MissingError, SettingError, require
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Clients, Status
from fedpick.server.late_updates import LateUpdate
from fedpick.server.round import Round
from fedpick.server.session import Session
from fedpick.server.settings import Host, Lateness, Limits, Options, check_needs
from fedpick.server.validation import size_or
from fedpick.server.view import Eligible, permitted

__all__ = ["Selected"]


@dataclass(eq=False, kw_only=True)
class _Round(FrameworkRound):
    """A round, and FedAvg's callback for answers."""

    sent: Arrays
    use: Callable[[Any], Any]
    weight: str | None = FLMetaKey.NUM_STEPS_CURRENT_ROUND
    kind: Any = None  # FULL or DIFF, as in the answers in time
    held: list[tuple[str, Any, float]] = field(default_factory=list)  # names, answers and sizes to be handed to FedAvg

    def hand(self, name: str, result: Any, size: float) -> bool:
        """Give FedAvg an answer, which it adds to its mean at once; returns whether it was used.

        The first answers of all wait until there are some to compare their sizes with; under a policy that limits what
        sizes count for in its round, all wait until it ends.
        """
        if self.weighted:
            result.meta[self.weight] = self.round.base(name)
            return self.use(result) is not False
        self.session.sizes.hear(name, size)
        self.held.append((name, result, size))
        waits = self.session.sizes.few or self.round.cohort.choice.most is not None
        return waits or self.hand_held()

    def hand_held(self) -> bool:
        """Give FedAvg the answers that wait; returns whether it used all."""
        held, self.held, used = self.held, [], True
        for name, result, size in held:
            if (counted := self.round.size(name, size)) < size:
                result.meta[self.weight] = counted
            used = self.use(result) is not False and used
        return used

    def use_late(self, late: LateUpdate, base: float) -> bool:
        """Give FedAvg a late update as if its site had been sent this round's model; returns whether it was used."""
        result = late.update.source
        result.params_type = self.kind or result.params_type
        result.params = onto(self.sent, late.update.moves, whole=_whole(result))
        result.meta[self.weight] = base
        return self.use(result) is not False


class Selected(FedAvg):  # type: ignore[misc]
    """FedAvg with clients chosen by a policy; FedAvg's `num_clients` is ignored.

    Args:
        policy: any that needs no probe, context, features or labels.
        state, records, metrics, durations, limits, seed: as in `fp.Session`; folders are absolute paths on the server.
        deadline: whole seconds for a round; sites that have not answered by then are LATE.
        late: as in `fp.Session`; sites may answer until (1 + late) deadlines have passed.
        sizes: number of examples by site name; 1 for sites not listed.
        model_folder: `model` of `fp.Session` (FedAvg's `model` is the first one): a later job with the same folders
            begins with the model of the last round, in place of the one that it is given or loads.
        eligible: as in `Session.round`; or, because a job is stored as JSON, a text "FILE.py:function" or
            "package.module:function", which is imported at the server. No other site is sent a task.
        args, kwargs: FedAvg's; `ignore_result_error` is True by default, so that one failure does not end the job.
    """

    __module__ = "fedpick.nvflare"  # the path that NVFlare writes into jobs, and that servers have on their lists

    def __init__(
        self,
        *args: Any,
        policy: Policy[Any],
        state: str | os.PathLike[str] | None = None,
        records: str | os.PathLike[str] | None = None,
        metrics: str | int | None = None,
        deadline: int = 3600,
        durations: str = "arrival",
        late: int | Lateness = 0,
        limits: Limits | None = None,
        seed: int = 0,
        sizes: dict[str, float] | None = None,
        model_folder: str | os.PathLike[str] | None = None,
        eligible: str | Eligible | None = None,
        **kwargs: Any,
    ) -> None:
        if "pace" in kwargs:
            raise SettingError(
                "Selected: there is no pace here, because NVFlare's FedAvg works in rounds: write the settings of "
                "fp.Rounds as deadline= and late=; fp.Buffered works in fp.Session and with Flower"
            )
        super().__init__(*args, **{"ignore_result_error": True} | kwargs)
        require(deadline >= 1, "Selected: deadline", deadline, "a whole number of seconds >= 1")
        lacks = dict.fromkeys(
            ("probe", "context", "features", "labels", *traits(policy).valued),
            ", which NVFlare cannot provide; choose another policy",
        )
        check_needs(policy, lacks, "Selected")
        # NVFlare writes the arguments into the job from attributes with the same names.
        self.policy, self.deadline, self.durations, self.seed, self.sizes = policy, deadline, durations, seed, sizes
        self.metrics, self.late, self.limits = metrics, late, limits
        self.state = None if state is None else os.fspath(state)
        self.records = None if records is None else os.fspath(records)
        self.model_folder = None if model_folder is None else os.fspath(model_folder)
        where = "None without state=, because a model is kept with the state of its round"
        require(model_folder is None or state is not None, "Selected: model_folder", model_folder, where)
        good = eligible is None or callable(eligible) or is_reference(eligible)
        require(good, "Selected: eligible", eligible, "a function, or a text such as 'FILE.py:function'")
        self.eligible = eligible
        self._may: Eligible | None = None  # the function, while the job runs
        self._options = Options(deadline=deadline, durations=durations, late=late, limits=limits, seed=seed)
        Session(policy, **self._options, host=Host("Selected"))  # a wrong setting is an error now, not in the job
        self._session: Session  # while the job runs
        self._round: Round  # the last one
        self._rounds: dict[int, _Round] = {}  # the last ones, by FedAvg's number

    def _described(self, names: Sequence[str]) -> Clients:
        return Clients([float((self.sizes or {}).get(name, 1)) for name in names])

    def run(self) -> None:
        """Load the state, then run FedAvg."""
        folders = Options(state=self.state, model=self.model_folder, records=self.records, metrics=self.metrics)
        self._may = load(self.eligible) if isinstance(self.eligible, str) else self.eligible
        host = Host("Selected", self.logger, {"engine": "nvflare", "base": "FedAvg"})
        session = Session(self.policy, **self._options | folders, describe=self._described, host=host)
        with session as self._session:
            kept = session.continuity.kept()
            if kept is not None:
                self.model = FLModel(params=kept)
                self.logger.info(f"the model of round {session.round_number}, kept in {self.model_folder}, is used")
            elif self.model is not None:  # else it is loaded later
                params = self.model.params if isinstance(self.model, FLModel) else self.model
                session.continuity.check_start({name: np.asarray(values) for name, values in params.items()})
            super().run()

    def load_model(self) -> Any:
        """As FedAvg; a model that is not that of the last round is noticed."""
        model = super().load_model()
        self._session.continuity.check_start(_arrays(model))
        return model

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """The policy's choice among the connected sites; new ones are enrolled."""
        there = [c.name for c in self.engine.get_clients() if not self.get_client_disconnect_time(c.name)]
        may = sorted(there if self._may is None else permitted(there, self._may, "Selected"))
        if there and not may:  # NVFlare would send to all sites
            raise MissingError(
                f"none of {len(there)} connected sites is eligible, so that none is sent a task; approve some, or see "
                f"that eligible() knows sites by their names, such as {there[0]!r}"
            )
        while True:
            self._round = self._session.round(may)
            if self._round.chosen:
                return list(self._round.chosen)
            number = self._round.number
            if not self._round.view.busy.any():  # NVFlare would send to all sites
                raise MissingError(f"round {number}: none of {len(there)} connected sites was chosen; connect more")
            # As when everyone still works on an earlier round: a round in which nobody is asked passes.
            self.logger.info(f"round {number}: of {len(may)} sites, some of which are busy, nobody is asked")
            Quorum(self._session, "smaller", "").wait_for_late(bool(self._round.view.available.any()))
            self._round.close()

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        """As FedAvg, with a check of each answer; late ones are taken until they are of no use any more."""
        asked = self._ask(kwargs["data"].params, kwargs["callback"])
        lifetime = self._session.rounds.lifetime(self.deadline)
        timeout = None if lifetime is None else math.ceil(lifetime)  # NVFlare wants a whole number
        kwargs |= {"timeout": timeout, "callback": lambda result: self._receive(result, asked)}
        super().send_model(*args, **kwargs)

    def _ask(self, params: dict[str, Any], use: Callable[[Any], Any]) -> _Round:
        sent = {name: np.asarray(values) for name, values in params.items()}
        self._round.megabytes = sum(values.nbytes for values in sent.values()) / 1e6
        now, asked = self.current_round, _Round(session=self._session, round=self._round, sent=sent, use=use)
        late = self._session.late.rounds
        self._rounds = {t: each for t, each in self._rounds.items() if now - t <= late} | {now: asked}
        return asked

    def get_num_standing_tasks(self) -> int:
        """FedAvg's loop waits until this is 0: all have answered or are gone, or the deadline has passed."""
        there = [name for name in self._round.waiting if not self.get_client_disconnect_time(name)]
        return len(there) if self._round.seconds < self.deadline and not self._round.cohort.complete else 0

    def _receive(self, result: Any, asked: _Round) -> bool:
        """Pass the answer to FedAvg unless it is invalid, surplus (OverSelect) or late; returns whether it was used."""
        name, answer = result.meta["client_name"], self._read(result, asked)
        with self._session.lock:  # a late answer may come while a later round ends
            if asked.over:
                answer.source = result
                self.set_fl_context(FLModel(params={}, current_round=self.current_round))  # not that of the answer
            elif not answer.why and asked.counts(name):
                if not asked.round.full and not asked.hand(name, result, answer.size):
                    return False
                asked.kind = result.params_type
            return asked.take(name, answer) == Status.DONE and asked.counts(name)

    def _read(self, result: Any, asked: _Round) -> Update:
        """Read and check an answer; encrypted and other values that are not NumPy's are left to FedAvg."""
        answer, metrics = Update(size=size_or(result.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND))), result.metrics or {}
        answer.check({"params": _arrays(result)}, {"metrics": metrics}, asked.sent, None, "shapes")
        answer.read_metrics(metrics, self._session.reports)
        asked.note(answer, lambda: moves(_arrays(result), asked.sent, _whole(result)))
        return answer

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Record sites that answered with an error code or an update that FedAvg cannot add; close the round."""
        if event_type == AppEventType.AFTER_CONTRIBUTION_ACCEPT:
            asked = self._rounds.get(fl_ctx.get_prop(AppConstants.CURRENT_ROUND))
            if asked is not None:  # a site that has answered stays as it is
                fault = Update(why="an error code, or an update that FedAvg cannot add")
                asked.take(fl_ctx.get_peer_context().get_identity_name(), fault)
        elif event_type == AppEventType.BEFORE_AGGREGATION:
            self._settle(self._rounds[self.current_round])
        super().handle_event(event_type, fl_ctx)

    def _settle(self, asked: _Round) -> None:
        """Take no more answers; sites that are gone have failed. `update_model` ends the round."""
        for name in asked.round.waiting:
            if self.get_client_disconnect_time(name):
                asked.round.failed(name, "disconnected", answered=False)
        with self._session.lock:
            asked.hand_held()
            asked.settle()

    def update_model(self, model: Any, aggr_result: Any) -> Any:
        """As FedAvg, and end the round with the new model; without a usable update the model does not change."""
        asked = self._rounds[self.current_round]
        model = self._updated(model, aggr_result, asked) if aggr_result.params else model
        arrays = _arrays(model)
        if self.model_folder is not None and len(arrays) < len(model.params):
            strange = next(name for name in model.params if name not in arrays)
            raise ContractError(
                f"Selected: model_folder, but {strange!r:.80} of the model is a "
                f"{type(model.params[strange]).__name__}, and only NumPy arrays are kept; leave model_folder out "
                "and let the job's persistor keep the model"
            )
        asked.close(arrays)
        self._session.measure(aggr_result.metrics or {}, training=True)
        return model

    def _updated(self, model: Any, aggr_result: Any, asked: _Round) -> Any:
        if (times := asked.times) != 1.0:  # FedAvg has divided by the sum of the weights
            whole = _whole(aggr_result)
            moved = moves(_arrays(aggr_result), asked.sent, whole)
            aggr_result.params |= onto(asked.sent, moved, times, whole)
        return super().update_model(model, aggr_result)


def _arrays(model: Any) -> Arrays:
    """The model's NumPy arrays and numbers."""
    params = model.params if isinstance(model.params, dict) else {}
    return {name: np.asarray(value) for name, value in params.items() if isinstance(value, np.ndarray | float)}


def _whole(model: Any) -> bool:
    """Whether the parameters are a model (FULL) and not what is added to it (DIFF)."""
    return bool(model.params_type != ParamsType.DIFF)
