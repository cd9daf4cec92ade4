"""NVFlare's own simulator runs jobs in which a policy chooses; sites fail in every way, and a second job goes on."""

import itertools
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest

if os.name == "nt":
    pytest.skip("NVFlare's simulator needs POSIX", allow_module_level=True)

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.fuel.utils import fobs
from nvflare.job_config.api import FedJob

import fedpick as fp
from fedpick import store
from fedpick.engine.weights import late_weights
from fedpick.nvflare import Selected
from fedpick.server import Host, Lateness

DONE, LATE, FAILED, SURPLUS = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS


class Site(Executor):
    """A client: adds 1 to the model, writes down that it did; what it does wrong depends on its name."""

    def __init__(self, diary, faults=None):
        super().__init__()
        self.diary, self.faults = diary, faults or {}

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        name, model = fl_ctx.get_identity_name(), FLModelUtils.from_shareable(shareable)
        Path(self.diary, f"{model.current_round:03d} {name}").touch()
        fault, one, loss = self.faults.get(name), np.ones(2), float(name.split("-")[1])
        if fault == "raises":
            raise RuntimeError("a fault of the test")
        if fault == "sleeps":
            for _ in range(600):
                sleep(0 if abort_signal.triggered else 0.1)
        if fault == "late" and model.current_round == 0:  # until the second round has begun
            one = self.wait_for("001 site-1") * 4.0 * one
        if "late" in self.faults.values() and model.current_round == 1:
            self.wait_for("000 site-3 answers")
            sleep(5.0)  # the answer is on its way
        w = {"nan": one * math.nan, "shape": np.ones(3)}.get(fault, np.asarray(model.params["w"]) + one)
        metrics = {"loss": math.inf if fault == "loss" else loss, "seconds": 1.5}
        if fault == "late":
            Path(self.diary, f"{model.current_round:03d} {name} answers").touch()
        return FLModelUtils.to_shareable(FLModel(params={"w": w}, params_type=ParamsType.FULL, metrics=metrics))

    def wait_for(self, entry):
        end = monotonic() + 90.0
        while not Path(self.diary, entry).exists() and monotonic() < end:
            sleep(0.1)
        return monotonic() < end


@dataclass
class Memory:
    status: np.ndarray
    duration: np.ndarray
    loss: np.ndarray


@dataclass(frozen=True)
class Witness:
    """Chooses everyone, remembers how the last round ended."""

    cohort_size: int

    def init(self, clients):
        return Memory(*(np.full(len(clients), math.nan) for _ in range(3)))

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        new = self.init(view.clients)
        for name in ("status", "duration", "loss"):
            getattr(new, name)[choice.ids] = getattr(outcome, name)
        return new


LOST = "Communication error with client"


def play(tmp_path, sites, faults, **settings):
    """Run one job in the simulator; return the last model's `w` and the names in the diary.

    The simulator gives its clients ports without holding them: now and then two get the same, and lose their connection
    before they begin. Then all is put back and played again.
    """
    job, diary = FedJob(name="job", min_clients=sites), tmp_path / "diary"
    job.set_app_packages(["fedpick"])  # installed at the server: not copied into the job
    diary.mkdir(exist_ok=True)
    settings = {"persistor_id": "", "model": {"w": [0.0, 0.0]}, "task_check_period": 0.1} | settings
    job.to_server(Selected(**settings))
    job.to_clients(Site(str(diary), faults))
    job.export_job(str(tmp_path / "jobs"))
    before = tmp_path.with_name(f"{tmp_path.name}-before")
    shutil.copytree(tmp_path, before)
    for _ in range(5):
        code = simulated(tmp_path, sites)
        said = (tmp_path / "log").read_text()
        if LOST not in said:
            break
        shutil.rmtree(tmp_path)
        shutil.copytree(before, tmp_path)
    shutil.rmtree(before)
    assert code == 0, said[-5000:]
    model = fobs.loadf(str(tmp_path / "workspace" / "server" / "simulate_job" / "FL_global_model.pt"))
    return model.params["w"], sorted(path.name for path in diary.iterdir())


def simulated(tmp_path, sites):
    """Run the job in the folder; return the exit code, or None if it was ended because clients were lost."""
    command = [sys.executable, "-m", "nvflare.cli", "simulator", str(tmp_path / "jobs" / "job")]
    command += ["-w", str(tmp_path / "workspace"), "-n", str(sites), "-t", str(sites)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
        end = monotonic() + 150.0
        try:
            while process.poll() is None and LOST not in (tmp_path / "log").read_text():
                assert monotonic() < end, (tmp_path / "log").read_text()[-5000:]
                sleep(0.2)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return None if process.returncode < 0 else process.returncode


@pytest.mark.slow
def test_each_fault_is_the_right_site_s(tmp_path):
    faults = {"site-3": "raises", "site-4": "nan", "site-5": "shape", "site-6": "loss", "site-7": "sleeps"}
    policy = Witness(cohort_size=7)
    w, diary = play(tmp_path, 7, faults, policy=policy, num_rounds=1, deadline=30, state=tmp_path / "state")
    assert diary == [f"000 site-{k}" for k in range(1, 8)]
    assert w.tolist() == [1.0, 1.0]  # of two sites: no NaN
    session = fp.Session(policy, state=tmp_path / "state")
    assert (session.round_number, session.names) == (1, [f"site-{k}" for k in range(1, 8)])
    memory = session.roster.state
    assert memory.status[:2].tolist() == [DONE, DONE]
    assert memory.status[2:].tolist() == [FAILED] * 4 + [LATE]
    assert (memory.duration[:2] >= 1.5).all()  # what they reported, or when the answers came
    np.testing.assert_equal(memory.duration[2:], [*[math.nan] * 4, 30.0])
    np.testing.assert_equal(memory.loss, [1.0, 2.0, *[math.nan] * 5])


@pytest.mark.slow
def test_a_second_job_goes_on_with_its_model_and_asks_no_site_that_is_not_approved(tmp_path):
    """There are four sites; the fourth is not approved, by a function at the server."""
    policy, clients = fp.E3CS(cohort_size=1, quota=0.2), fp.Clients([1.0, 2.0, 3.0])
    expected, state = [], policy.init(clients)
    for number in range(1, 9):
        view = fp.View(number, np.ones(3, dtype=bool), clients)
        choice = policy.select(state, view, fp.rng.stream(5, number, "policy"))
        outcome = fp.Outcome([FAILED if k == 2 else DONE for k in choice.ids], [1.5], [math.nan])
        state = policy.observe(state, view, choice, outcome)
        expected.append(f"{number - 1:03d} site-{choice.ids[0] + 1}")
    fails = [name.endswith("site-3") for name in expected]
    assert 0 < sum(fails[:4]) < 4  # in such a round nobody's update can be used

    settings = {"policy": policy, "num_rounds": 4, "seed": 5, "state": tmp_path / "state", "records": tmp_path / "run"}
    settings |= {"sizes": {"site-1": 1.0, "site-2": 2.0, "site-3": 3.0}, "durations": "reported"}
    (tmp_path / "approved.py").write_text("def may(name):\n    return name in ('site-1', 'site-2', 'site-3')\n")
    settings |= {"model_folder": tmp_path / "model", "eligible": f"{tmp_path / 'approved.py'}:may"}
    w, diary = play(tmp_path, 4, {"site-3": "raises"}, **settings)
    assert diary == expected[:4]
    assert w.tolist() == [4.0 - sum(fails[:4])] * 2
    w, diary = play(tmp_path, 4, {"site-3": "raises"}, start_round=4, **settings)
    assert diary == expected
    assert w.tolist() == [8.0 - sum(fails)] * 2  # it began with zeros, and got the model of the first job
    session = fp.Session(policy, state=tmp_path / "state")
    assert (session.round_number, session.names) == (8, ["site-1", "site-2", "site-3"])
    np.testing.assert_array_equal(session.roster.state.log_weights, state.log_weights)

    told = store.read_selections(tmp_path / "run")
    sites = [session.names[k] for k in told["client"].to_pylist()]
    assert [f"{round - 1:03d} {site}" for round, site in zip(told["round"].to_pylist(), sites, strict=True)] == expected
    assert told["status"].to_pylist() == ["FAILED" if fails_ else "DONE" for fails_ in fails]
    np.testing.assert_equal(told["duration"].to_pylist(), [math.nan if fails_ else 1.5 for fails_ in fails])
    assert store.read_manifest(tmp_path / "run")["config"]["engine"] == "nvflare"


@pytest.mark.slow
def test_a_late_answer_of_a_real_site_is_used_in_the_next_round(tmp_path):
    settings = {"deadline": 15, "late": Lateness(2, beta=0.0), "state": tmp_path / "state"}
    w, diary = play(tmp_path, 3, {"site-3": "late"}, policy=Witness(cohort_size=3), num_rounds=2, **settings)
    assert diary == ["000 site-1", "000 site-2", "000 site-3", "000 site-3 answers", "001 site-1", "001 site-2"]
    # Round 1: two add 1. Round 2: two add 1, and the third's 4 counts half, being a round late.
    assert w.tolist() == pytest.approx([1.0 + (1.0 + 1.0 + 0.5 * 4.0) / 2.5] * 2)
    session = fp.Session(Witness(cohort_size=3), state=tmp_path / "state")
    assert session.roster.state.status[:2].tolist() == [DONE, DONE]


@pytest.mark.parametrize(("late", "expected"), [(0, 15), (2, 135)])
def test_messages_live_a_whole_number_of_seconds(monkeypatch, late, expected):
    """NVFlare refuses any other number."""
    rounds, sent = Rounds(monkeypatch, Witness(cohort_size=3), deadline=15, late=late), []
    monkeypatch.setattr(FedAvg, "send_model", lambda self, **kwargs: sent.append(kwargs["timeout"]))
    monkeypatch.setattr(rounds.job, "_ask", lambda params, use: None)
    rounds.job.send_model(data=SimpleNamespace(params={}), callback=None)
    assert sent == [expected]
    assert type(sent[0]) is int


def test_what_nvflare_cannot_give_is_said_when_the_job_is_made():
    with pytest.raises(fp.errors.MissingError, match="PowerOfChoice needs probe"):
        Selected(policy=fp.PowerOfChoice(cohort_size=2, candidates=4))
    with pytest.raises(fp.errors.SettingError, match=r"NVFlare's FedAvg works in rounds: .*; fp\.Buffered works in"):
        Selected(policy=fp.Uniform(2), pace=fp.Buffered(concurrency=2, size=1))
    with pytest.raises(fp.errors.SettingError, match="deadline = 0"):
        Selected(policy=fp.Uniform(cohort_size=2), deadline=0)
    with pytest.raises(fp.errors.SettingError, match="durations = 'mine', but must be one of arrival, reported"):
        Selected(policy=fp.Uniform(cohort_size=2), durations="mine")
    with pytest.raises(fp.errors.SettingError, match="Selected: late = -1"):
        Selected(policy=fp.Uniform(cohort_size=2), late=-1)


@pytest.mark.parametrize(("durations", "least", "most"), [("arrival", 0.05, 5.0), ("reported", 0.001, 0.001)])
def test_a_false_short_duration_counts_only_where_it_is_asked_for(monkeypatch, durations, least, most):
    job = Selected(policy=Witness(cohort_size=1), **({} if durations == "arrival" else {"durations": durations}))
    monkeypatch.setattr(job, "get_client_disconnect_time", lambda name: None)

    def answer(self):
        self._round = self._session.round(["site-1"])
        self.current_round = 0
        asked = self._ask({"w": np.ones(1)}, lambda result: True)
        sleep(0.06)
        model = FLModel(params={"w": np.ones(1)}, metrics={"seconds": 0.001}, meta={"client_name": "site-1"})
        self._receive(model, asked)
        self._settle(asked)
        asked.close()

    monkeypatch.setattr(FedAvg, "run", answer)
    job.run()
    assert least <= job._session.last.duration[0] <= most


def test_a_foreign_state_is_refused_and_kept(tmp_path):
    policy, path = fp.E3CS(cohort_size=2), tmp_path / "state.npz"
    fp.save_state(policy, policy.init(fp.Clients(np.ones(3))), path)
    before = path.read_bytes()
    with pytest.raises(fp.errors.StateError, match="not the state of a server"):
        Selected(policy=policy, state=tmp_path).run()
    assert path.read_bytes() == before
    path.write_bytes(b"nonsense")
    with pytest.raises(fp.errors.StateError, match="not a complete fedpick state"):
        Selected(policy=policy, state=tmp_path).run()
    assert path.read_bytes() == b"nonsense"


def test_two_jobs_do_not_share_a_state(tmp_path):
    policy = fp.E3CS(cohort_size=2)
    with fp.Session(policy, state=tmp_path), pytest.raises(fp.StateError, match="another server is working with"):
        Selected(policy=policy, state=tmp_path).run()


class Rounds:
    """Rounds of a job with FedAvg's own aggregation, without its engine; the model is one number, 1 at first."""

    def __init__(self, monkeypatch, policy, **settings):
        self.job = job = Selected(policy=policy, **settings)
        monkeypatch.setattr(FedAvg, "update_model", lambda self, model, new: FLModelUtils.update_model(model, new))
        monkeypatch.setattr(FedAvg, "handle_event", lambda *_: None)
        monkeypatch.setattr(job, "get_client_disconnect_time", lambda name: None)
        job.engine = SimpleNamespace(get_clients=lambda: [SimpleNamespace(name=f"site-{k}") for k in (1, 2, 3)])
        job.fl_ctx, job.current_round = FLContext(), -1
        job._session = fp.Session(policy, **job._options, describe=job._described, host=Host("Selected"))
        self.model = FLModel(params={"w": np.array([1.0])}, params_type=ParamsType.FULL)

    def begin(self):
        """Choose; returns the names, and a function that hears an answer: name, what it adds, kind of parameters."""
        job, sent = self.job, self.model.params["w"]
        job.current_round += 1
        job._aggr_helper, job._aggr_metrics_helper = WeightedAggregationHelper(), WeightedAggregationHelper()
        job._all_metrics, job._received_count, job._expected_count, job._params_type = True, 0, 3, None
        job._site_metric_weights = {}
        chosen = job.sample_clients()
        asked = job._ask(self.model.params, job._aggregate_one_result)

        def answer(name, adds, kind=ParamsType.FULL, steps=7):
            params = {"w": sent + adds if kind == ParamsType.FULL else np.zeros(1) + adds}
            meta = {"client_name": name, "NUM_STEPS_CURRENT_ROUND": steps}
            return job._receive(FLModel(params=params, params_type=kind, meta=meta), asked)

        return chosen, answer

    def end(self):
        """Aggregate; returns the model's number."""
        self.job.handle_event(AppEventType.BEFORE_AGGREGATION, self.job.fl_ctx)
        self.model = self.job.update_model(self.model, self.job._get_aggregated_result())
        return float(self.model.params["w"][0])


@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_policys_weights_are_honoured(monkeypatch, kind, normalise):
    """Three sites, the second drawn twice."""
    choice = fp.Choice([0, 1, 1, 2], weights=[0.5, 0.25, 0.5, 0.0], normalise=normalise)
    monkeypatch.setattr(Witness, "select", lambda *_: choice)
    monkeypatch.setattr(Witness, "replace", True, raising=False)  # it declares that it draws so
    rounds = Rounds(monkeypatch, Witness(cohort_size=4))
    _, answer = rounds.begin()
    assert [answer(f"site-{k}", adds, kind) for k, adds in ((1, 1.0), (2, 4.0), (3, 8.0))] == [True, True, False]
    total = 1.0 if not normalise else 1.25
    assert rounds.end() == pytest.approx(1.0 + (0.5 * 1.0 + 0.75 * 4.0) / total)
    assert rounds.job._session.last.status.tolist() == [DONE] * 3


@pytest.mark.parametrize("kinds", list(itertools.product([ParamsType.FULL, ParamsType.DIFF], repeat=2)))
def test_a_late_answer_counts_in_a_later_round_with_refls_weight(monkeypatch, kinds):
    """Steps are the weights; what the site added to its old model is added to the present one."""
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), late=2)
    chosen, first = rounds.begin()
    assert chosen == ["site-1", "site-2", "site-3"]
    first("site-1", 1.0, steps=10)
    first("site-2", 2.0, steps=30)
    assert rounds.end() == pytest.approx(1.0 + 1.75)
    assert rounds.job._session.last.status.tolist() == [DONE, DONE, LATE]
    chosen, second = rounds.begin()
    assert chosen == ["site-1", "site-2"]  # the third still works
    assert first("site-3", 4.0, kinds[0], steps=20) is False
    second("site-1", 1.0, kinds[1], steps=10)
    second("site-2", 3.0, kinds[1], steps=30)
    factor = late_weights(np.array([1]), np.array([(4.0 - 2.5) ** 2]), 0.35)[0]
    moved = (10 * 1.0 + 30 * 3.0 + 20 * factor * 4.0) / (40 + 20 * factor)
    assert rounds.end() == pytest.approx(2.75 + moved)
    chosen, third = rounds.begin()
    assert len(chosen) == 3
    third("site-1", 1.0)
    assert rounds.end() == pytest.approx(2.75 + moved + 1.0)  # it was used once


def test_a_loss_that_is_not_finite_is_a_failure_and_another_metric_may_be(monkeypatch):
    """FedAvg averages the metrics; the record has what it found."""
    rounds = Rounds(monkeypatch, Witness(cohort_size=3))
    rounds.begin()
    asked = rounds.job._rounds[0]
    for name, adds, metrics in (
        ("site-1", 1.0, {"loss": 0.5, "auroc": math.nan}),
        ("site-2", 8.0, {"loss": math.nan, "auroc": 0.5}),
        ("site-3", 2.0, {"loss": 0.25, "auroc": 0.5}),
    ):
        meta = {"client_name": name, "NUM_STEPS_CURRENT_ROUND": 7}
        params = {"w": rounds.model.params["w"] + adds}
        answer = FLModel(params=params, params_type=ParamsType.FULL, metrics=metrics, meta=meta)
        assert rounds.job._receive(answer, asked) == (name != "site-2")
    assert rounds.end() == pytest.approx(1.0 + 1.5)
    last = rounds.job._session.last
    assert last.status.tolist() == [DONE, FAILED, DONE]
    np.testing.assert_array_equal(last.loss, [0.5, math.nan, 0.25])
    assert last.metrics["train_loss"] == pytest.approx(0.375)
    assert math.isnan(last.metrics["auroc"])


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"w": b"encrypted"}, ""),
        ({"w": [1.0]}, ""),
        ({"n": 1.0}, ""),
        ({"n": math.nan}, "NaN or infinity in array 'n'"),
        ({"w": np.array([math.inf])}, "NaN or infinity in array 'w'"),
        ({"w": np.ones(2)}, "array 'w' of shape (2,) instead of (1,)"),
        ("none", ""),
    ],
)
def test_parameters_that_are_not_numpys_are_left_to_fedavg(monkeypatch, params, why):
    rounds = Rounds(monkeypatch, Witness(cohort_size=3))
    rounds.begin()
    rounds.job._rounds[0].sent["n"] = np.array(1.0)
    answer = SimpleNamespace(params=params, params_type=ParamsType.FULL, metrics=None, meta={})
    assert rounds.job._read(answer, rounds.job._rounds[0]).why == why
    answer.metrics = {f"metric {k}": 1.0 for k in range(1001)}  # FedAvg would take the mean of each
    assert rounds.job._read(answer, rounds.job._rounds[0]).why == (why or "1001 metrics, but at most 1000 are read")


@pytest.mark.parametrize(("guarded", "most"), [(False, 30.0), (True, 1.5)])
@pytest.mark.parametrize("order", [("site-1", "site-2", "site-3"), ("site-2", "site-3", "site-1")])
def test_a_number_of_steps_is_limited_whoever_answers_first(monkeypatch, order, guarded, most):
    """FedAvg adds answers as they come; the first round is that in which no others are known."""
    policy = fp.Guard(Witness(cohort_size=3), cap=9.0) if guarded else Witness(cohort_size=3)
    rounds = Rounds(monkeypatch, policy, late=1)
    moved, model = (7 * most * 8.0 + 2 * 7 * 1.0) / (7 * most + 2 * 7), 1.0
    for _ in range(2):
        _, answer = rounds.begin()
        for name in order:
            assert answer(name, 8.0 if name == "site-1" else 1.0, steps=10**15 if name == "site-1" else 7)
        model += moved
        assert rounds.end() == pytest.approx(model)
        assert rounds.job._session.last.status.tolist() == [DONE] * 3
    _, answer = rounds.begin()
    answer("site-2", 1.0)
    answer("site-3", 1.0)
    rounds.end()
    _, now = rounds.begin()
    answer("site-1", 8.0, steps=10**15)  # late
    now("site-2", 1.0)
    before = float(rounds.model.params["w"][0])
    late = 7 * most * late_weights(np.array([1]), np.array([(8.0 - 1.0) ** 2]), 0.35)[0]
    assert rounds.end() == pytest.approx(before + (late * 8.0 + 7.0) / (late + 7.0))


def test_two_sites_alone_are_compared_when_the_round_ends(monkeypatch):
    rounds = Rounds(monkeypatch, Witness(cohort_size=2))
    _, answer = rounds.begin()
    assert answer("site-1", 8.0, steps=10**15)
    assert answer("site-2", 1.0, steps=7)
    assert rounds.job._received_count == 0  # FedAvg has none of them yet
    assert rounds.end() == pytest.approx(1.0 + (30 * 8.0 + 1.0) / 31)


@pytest.mark.parametrize("normalise", [True, False])
def test_the_policys_weights_are_the_base_of_late_ones(monkeypatch, normalise):
    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids, weights=np.array([0.2, 0.3, 0.5])[ids], normalise=normalise)

    monkeypatch.setattr(Witness, "select", select)
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), late=Lateness(1, beta=0.0))
    _, first = rounds.begin()
    first("site-1", 1.0)
    rounds.end()
    before = float(rounds.model.params["w"][0])
    _, second = rounds.begin()
    first("site-3", 8.0)
    second("site-1", 1.0)
    total = 0.2 + 0.25 if normalise else 1.0
    assert rounds.end() == pytest.approx(before + (0.2 * 1.0 + 0.25 * 8.0) / total)


@pytest.mark.parametrize("late", [0, 2])
def test_a_late_answer_that_cannot_be_used_changes_nothing_and_frees_its_site(monkeypatch, late, caplog):
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), late=late)
    _, first = rounds.begin()
    first("site-1", 1.0)
    rounds.end()
    with caplog.at_level(logging.INFO):
        first("site-2", 5.0 if late == 0 else math.nan)
    assert ("late update of site-2 for round 1 dropped" in caplog.text) == (late > 0)
    if late:  # an error code of the third
        peer = FLContext()
        peer.set_prop("__identity_name__", "site-3", private=False, sticky=False)
        context = FLContext()
        context.set_peer_context(peer)
        context.set_prop(AppConstants.CURRENT_ROUND, 0, private=True, sticky=False)
        rounds.job.handle_event(AppEventType.AFTER_CONTRIBUTION_ACCEPT, context)
    chosen, second = rounds.begin()
    assert chosen == ["site-1", "site-2", "site-3"]
    second("site-1", 1.0)
    assert rounds.end() == pytest.approx(3.0)


def test_a_round_ends_when_all_have_answered_or_are_gone_or_at_the_deadline(monkeypatch):
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), late=2, deadline=10)
    job, (_, answer) = rounds.job, rounds.begin()
    assert job.get_num_standing_tasks() == 3
    job._round._asked -= 10.0
    assert job.get_num_standing_tasks() == 0
    job._round._asked += 10.0
    answer("site-1", 1.0)
    answer("site-2", math.nan)
    assert job.get_num_standing_tasks() == 1
    monkeypatch.setattr(job, "get_client_disconnect_time", lambda name: 5.0 if name == "site-3" else None)
    assert job.get_num_standing_tasks() == 0
    rounds.end()
    assert job._session.last.status.tolist() == [DONE, FAILED, FAILED]


def test_only_eligible_sites_are_sent_the_model(monkeypatch, tmp_path):
    approved = {"site-1", "site-3"}
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), eligible=approved.__contains__)
    rounds.job._may = rounds.job.eligible
    chosen, answer = rounds.begin()
    assert chosen == ["site-1", "site-3"]
    answer("site-1", 1.0)
    rounds.end()
    assert rounds.job._session.names == ["site-1", "site-3"]
    approved.discard("site-1")
    chosen, answer = rounds.begin()
    assert chosen == ["site-3"]
    answer("site-3", 1.0)
    rounds.end()
    approved.clear()
    with pytest.raises(
        fp.errors.MissingError, match="none of 3 connected sites is eligible, so that none is sent a task"
    ):
        rounds.begin()
    (tmp_path / "sites.py").write_text("def may(name):\n    return name == 'site-2'\n")
    job = Selected(policy=Witness(cohort_size=3), eligible=f"{tmp_path / 'sites.py'}:may")
    monkeypatch.setattr(FedAvg, "run", lambda self: None)
    job.run()
    assert [job._may(f"site-{k}") for k in (1, 2)] == [False, True]
    with pytest.raises(fp.errors.SettingError, match="eligible = 'site-1', but must be a function, or a text such as"):
        Selected(policy=Witness(cohort_size=3), eligible="site-1")


def test_an_answer_that_comes_while_fedavg_aggregates_is_a_late_one(monkeypatch):
    rounds = Rounds(monkeypatch, Witness(cohort_size=3), late=Lateness(2, beta=0.0))
    _, first = rounds.begin()
    first("site-1", 1.0)
    first("site-2", 1.0)
    rounds.job.handle_event(AppEventType.BEFORE_AGGREGATION, rounds.job.fl_ctx)
    assert first("site-3", 4.0) is False  # not a part of what is being aggregated
    rounds.model = rounds.job.update_model(rounds.model, rounds.job._get_aggregated_result())
    assert float(rounds.model.params["w"][0]) == pytest.approx(2.0)
    assert rounds.job._session.late.waiting == ["site-3"]


def test_a_later_job_begins_with_the_kept_model(monkeypatch, tmp_path, caplog):
    """FedAvg's loop is played by hand: what it begins with, and what its rounds end with."""
    begun, folders = [], {"state": tmp_path / "state", "model_folder": tmp_path / "model"}

    def run(self):
        model = (
            self.model if isinstance(self.model, FLModel) else FLModel(params=self.model or self.load_model().params)
        )
        begun.append(np.asarray(model.params["w"]).tolist())
        self._round = self._session.round(["site-1"])
        self.current_round = 0
        asked = self._ask(model.params, lambda result: True)
        new = FLModel(params={"w": np.asarray(model.params["w"]) + 1.0}, params_type=ParamsType.FULL)
        self._receive(FLModel(params=new.params, params_type=ParamsType.FULL, meta={"client_name": "site-1"}), asked)
        self._settle(asked)
        self.update_model(model, new)

    monkeypatch.setattr(FedAvg, "run", run)
    monkeypatch.setattr(FedAvg, "update_model", lambda self, model, new: FLModelUtils.update_model(model, new))
    monkeypatch.setattr(FedAvg, "load_model", lambda self: FLModel(params={"w": np.array([9.0])}))
    monkeypatch.setattr(Selected, "get_client_disconnect_time", lambda self, name: None)
    for _ in range(3):
        Selected(policy=Witness(cohort_size=1), model={"w": [5.0]}, **folders).run()
    assert begun == [[5.0], [6.0], [7.0]]
    assert "begins again" not in caplog.text
    for model in ({"w": [5.0]}, None):  # the job's own, or its persistor's
        caplog.clear()
        Selected(policy=Witness(cohort_size=1), model=model, state=tmp_path / "state").run()
        assert "but not with the model of that round: the server starts with another one" in caplog.text
    assert begun[3:] == [[5.0], [9.0]]
    with pytest.raises(fp.errors.SettingError, match="model_folder = 'm', but must be None without state="):
        Selected(policy=Witness(cohort_size=1), model_folder="m")
    monkeypatch.setattr(FedAvg, "update_model", lambda self, model, new: FLModel(params={"w": {"own": 1}}))
    with pytest.raises(fp.ContractError, match="'w' of the model is a dict, and only NumPy arrays are kept"):
        Selected(
            policy=Witness(cohort_size=1), model={"w": [5.0]}, state=tmp_path / "s", model_folder=tmp_path / "m"
        ).run()
