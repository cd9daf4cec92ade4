"""NVFlare's own simulator runs jobs in which a policy chooses; sites fail in every way, and a second job goes on."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import numpy as np
import pytest

if os.name == "nt":
    pytest.skip("NVFlare's simulator needs POSIX", allow_module_level=True)

from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.fuel.utils import fobs
from nvflare.job_config.api import FedJob

import fedpick as fp
from fedpick import store
from fedpick.nvflare import Selected

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
        w = {"nan": one * math.nan, "shape": np.ones(3)}.get(fault, np.asarray(model.params["w"]) + one)
        metrics = {"loss": math.inf if fault == "loss" else loss, "seconds": 1.5}
        return FLModelUtils.to_shareable(FLModel(params={"w": w}, params_type=ParamsType.FULL, metrics=metrics))


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


def play(tmp_path, sites, faults, **settings):
    """Run one job in the simulator; return the last model's `w` and the names in the diary."""
    job, diary = FedJob(name="job", min_clients=sites), tmp_path / "diary"
    job.set_app_packages(["fedpick"])  # installed at the server: not copied into the job
    diary.mkdir(exist_ok=True)
    settings = {"persistor_id": "", "model": {"w": [0.0, 0.0]}, "task_check_period": 0.1} | settings
    job.to_server(Selected(**settings))
    job.to_clients(Site(str(diary), faults))
    job.export_job(str(tmp_path / "jobs"))
    command = [sys.executable, "-m", "nvflare.cli", "simulator", str(tmp_path / "jobs" / "job")]
    command += ["-w", str(tmp_path / "workspace"), "-n", str(sites), "-t", str(sites)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
        try:
            code = process.wait(timeout=150)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert code == 0, (tmp_path / "log").read_text()[-5000:]
    model = fobs.loadf(str(tmp_path / "workspace" / "server" / "simulate_job" / "FL_global_model.pt"))
    return model.params["w"], sorted(path.name for path in diary.iterdir())


@pytest.mark.slow
def test_each_fault_is_the_right_site_s(tmp_path):
    faults = {"site-3": "raises", "site-4": "nan", "site-5": "shape", "site-6": "loss", "site-7": "sleeps"}
    policy = fp.OverSelect(Witness(cohort_size=1), factor=7.0)
    w, diary = play(tmp_path, 7, faults, policy=policy, num_rounds=1, deadline=30, state=tmp_path / "state")
    assert diary == [f"000 site-{k}" for k in range(1, 8)]
    assert w.tolist() == [1.0, 1.0]  # of one site: no NaN, no surplus
    session = fp.Session(policy, state=tmp_path / "state")
    assert (session.round_number, session.names) == (1, [f"site-{k}" for k in range(1, 8)])
    memory = session.roster.state
    assert Counter(memory.status[:2]) == {DONE: 1, SURPLUS: 1}
    assert memory.status[2:].tolist() == [FAILED] * 4 + [LATE]
    assert (memory.duration[:2] >= 1.5).all()  # what they reported, or when the answers came
    np.testing.assert_equal(memory.duration[2:], [*[math.nan] * 4, 30.0])
    np.testing.assert_equal(memory.loss, [1.0, 2.0, *[math.nan] * 5])


@pytest.mark.slow
def test_a_second_job_goes_on_with_what_the_policy_learned(tmp_path):
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
    w, diary = play(tmp_path, 3, {"site-3": "raises"}, **settings)
    assert diary == expected[:4]
    assert w.tolist() == [4.0 - sum(fails[:4])] * 2
    _, diary = play(tmp_path, 3, {"site-3": "raises"}, start_round=4, model={"w": w.tolist()}, **settings)
    assert diary == expected
    session = fp.Session(policy, state=tmp_path / "state")
    assert (session.round_number, session.names) == (8, ["site-1", "site-2", "site-3"])
    np.testing.assert_array_equal(session.roster.state.log_weights, state.log_weights)

    told = store.read_selections(tmp_path / "run")
    sites = [session.names[k] for k in told["client"].to_pylist()]
    assert [f"{round - 1:03d} {site}" for round, site in zip(told["round"].to_pylist(), sites, strict=True)] == expected
    assert told["status"].to_pylist() == ["FAILED" if fails_ else "DONE" for fails_ in fails]
    np.testing.assert_equal(told["duration"].to_pylist(), [math.nan if fails_ else 1.5 for fails_ in fails])
    assert store.read_manifest(tmp_path / "run")["config"]["engine"] == "nvflare"


def test_what_nvflare_cannot_give_is_said_when_the_job_is_made():
    with pytest.raises(fp.errors.MissingError, match="PowerOfChoice needs probe"):
        Selected(policy=fp.PowerOfChoice(cohort_size=2, candidates=4))
    with pytest.raises(fp.errors.SettingError, match="deadline = 0"):
        Selected(policy=fp.Uniform(cohort_size=2), deadline=0)
    with pytest.raises(fp.errors.SettingError, match="durations = 'mine', but must be one of arrival, reported"):
        Selected(policy=fp.Uniform(cohort_size=2), durations="mine")


@pytest.mark.parametrize(("durations", "least", "most"), [("arrival", 0.05, 5.0), ("reported", 0.001, 0.001)])
def test_a_false_short_duration_counts_only_where_it_is_asked_for(monkeypatch, durations, least, most):
    job = Selected(policy=Witness(cohort_size=1), **({} if durations == "arrival" else {"durations": durations}))
    monkeypatch.setattr(job, "get_client_disconnect_time", lambda name: None)

    def answer(self):
        self._round = self._session.round(["site-1"])
        sleep(0.06)
        model = FLModel(params={"w": np.ones(1)}, metrics={"seconds": 0.001}, meta={"client_name": "site-1"})
        self._hear(model, lambda result: True, {"w": np.ones(1)})
        self._round.close()

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


def test_a_state_of_before_the_session_goes_on(tmp_path):
    """`old/nvflare` was written by version 0.1, which kept names and rounds as notes."""
    old = Path(__file__).parent / "server" / "old"
    shutil.copytree(old / "nvflare", tmp_path / "state")
    expected = json.loads((old / "expected.json").read_text())["nvflare"]
    job = Selected(policy=fp.E3CS(cohort_size=3, quota=0.3), state=tmp_path / "state", sizes={"site-2": 2.0})
    with fp.Session(job.policy, state=job.state, describe=job._described) as session:
        assert (session.round_number, session.names) == (expected["round"], expected["names"])
        assert session.roster.clients.sizes.tolist() == [1.0, 2.0, 1.0]
        np.testing.assert_array_equal(session.roster.state.log_weights, expected["log_weights"])
        with session.round(session.names) as r:
            assert r.number == 2
    assert fp.Session(job.policy, state=job.state).round_number == 2


@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_policys_weights_are_honoured(monkeypatch, kind, normalise):
    """FedAvg's own aggregation, without its engine: three sites, the second drawn twice."""
    job = Selected(policy=Witness(cohort_size=3))
    choice = fp.Choice([0, 1, 1, 2], weights=[0.5, 0.25, 0.5, 0.0], normalise=normalise)
    monkeypatch.setattr(Witness, "select", lambda *_: choice)
    monkeypatch.setattr(FedAvg, "update_model", lambda self, model, new: FLModelUtils.update_model(model, new))
    job._aggr_helper, job._aggr_metrics_helper = WeightedAggregationHelper(), WeightedAggregationHelper()
    job._all_metrics, job._received_count, job._expected_count, job._params_type = True, 0, 3, None
    job._site_metric_weights, job.current_round = {}, 0
    monkeypatch.setattr(job, "get_client_disconnect_time", lambda name: None)
    sent = {"w": np.array([1.0])}
    with fp.Session(job.policy, describe=job._described) as job._session:
        job._round = job._session.round(["site-1", "site-2", "site-3"])
        for name, value in (("site-1", 2.0), ("site-2", 5.0), ("site-3", 9.0)):
            params = {"w": np.array([value if kind == ParamsType.FULL else value - 1.0])}
            meta = {"client_name": name, "NUM_STEPS_CURRENT_ROUND": 7}
            job._hear(FLModel(params=params, params_type=kind, meta=meta), job._aggregate_one_result, sent)
        after = job.update_model(FLModel(params=sent, params_type=ParamsType.FULL), job._get_aggregated_result())
        assert job._session.last.status.tolist() == [DONE] * 4
    total = 1.0 if not normalise else 1.25
    assert after.params["w"].tolist() == pytest.approx([1.0 + (0.5 * 1.0 + 0.75 * 4.0) / total])
