"""A run's folder: whatever happens, what is written is whole, and goes on to the tables of an uninterrupted run."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick._support import atomic
from fedpick.core.errors import ContractError, SettingError, StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.simulate.census import census
from fedpick.simulate.round import Record, Updates
from fedpick.simulate.run import Run
from fedpick.store import Folder, machine, read_census, read_presence, read_rounds, read_selections
from fedpick.store import folder as stores
from fedpick.store.audit import verify
from fedpick.store.records import presence

ROUNDS, EVERY = 23, 5


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A process that ends loses nothing that the system has; only real processes, in the slow tests, wait for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def config(policy: str = "e3cs(quota=0.5)", rounds: int = ROUNDS, every: int = EVERY, **world: Any) -> Config:
    return Config(policy, 4, rounds, 7, {"name": "volatile", "num_clients": 20} | world, every)


def begin(path: Path, what: Config) -> tuple[Folder, Run]:
    folder, run = Folder(path, what.as_dict(), what.checkpoint_every), what.build()
    run.state = folder.restore(run.state, run.world.clients)
    return folder, run


def play_to(path: Path, what: Config, last: int) -> None:
    """Play to a round, and leave without a word, as a killed process does."""
    folder, run = begin(path, what)
    for record in run.rounds(last):
        folder.append(record, run.state)
    folder.close()


def contents(path: Path) -> tuple[bytes, bytes]:
    return (path / "rounds.parquet").read_bytes(), (path / "selections.parquet").read_bytes()


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


_whole: dict[str, tuple[bytes, bytes]] = {}


def whole(what: Config) -> tuple[bytes, bytes]:
    """The finished files of a run that nobody interrupted."""
    key = repr(what)
    if key not in _whole:
        with tempfile.TemporaryDirectory() as folder:
            _whole[key] = contents(execute(what, folder))
    return _whole[key]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it, and nothing is tidied up after it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """End the process at its n-th change of the disk: just before it, or just after (odd and even moments)."""
    done: list[str] = []
    real_replace, real_unlink = os.replace, Path.unlink

    def stop(what: str, act: Callable[[], Any]) -> Any:
        if len(done) == moment:
            raise Killed
        done.append(f"before {what}")
        result = act()
        if len(done) == moment:
            raise Killed
        done.append(f"after {what}")
        return result

    def replace(source: Any, target: Any) -> None:
        stop(f"replace {Path(target).name}", lambda: real_replace(source, target))

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".parquet":  # the parts, after they were joined
            stop(f"unlink {path.name}", lambda: real_unlink(path, missing_ok))
        # a killed process leaves its temporary files where they are

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    return done


# --- what a folder holds ---


def test_the_manifest_says_config_versions_commit_and_machine(tmp_path: Path) -> None:
    execute(config(), tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"] == config().as_dict()
    assert manifest["config"]["seed"] == 7
    assert manifest["fedpick"] == fp.__version__
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["versions"]["pyarrow"] == pa.__version__
    assert manifest["python"] == ".".join(map(str, sys.version_info[:3]))
    assert manifest["machine"]["cores"] == os.cpu_count()
    assert "commit" in manifest


def test_the_commit_is_that_of_where_one_works_and_none_outside_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert machine()["commit"] is None
    if shutil.which("git"):
        who = {"AUTHOR": "a", "COMMITTER": "a"}
        for role in who:
            monkeypatch.setenv(f"GIT_{role}_NAME", "a")
            monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
        for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(["git", *command], check=True, timeout=30)
        commit = machine()["commit"]
        head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, timeout=30, capture_output=True, text=True)
        assert len(commit) >= 7
        assert head.stdout.startswith(commit)


def test_a_folder_cannot_make_us_run_what_its_git_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git/packed-refs").write_text("# pack-refs\n" + 40 * "a" + " refs/heads/main\n")
    (tmp_path / ".git/config").write_text("[core]\n\tfsmonitor = touch pwned; false\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing may be started
    assert machine()["commit"] == 40 * "a"
    assert not (tmp_path / "pwned").exists()


def test_the_manifest_knows_the_source_that_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch("[0-9a-f]{16}", machine()["source"])


def test_rounds_go_to_parts_while_it_runs_and_are_joined_at_the_end(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == [
        "rounds-000000005.parquet",
        "rounds-000000010.parquet",
        "selections-000000005.parquet",
        "selections-000000010.parquet",
    ]
    assert (tmp_path / "checkpoint.npz").is_file()
    assert not (tmp_path / "rounds.parquet").exists()
    execute(config(), tmp_path)
    assert list((tmp_path / "parts").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix in (".parquet", ".npz", ".json", ".tmp")) == [
        "checkpoint.npz",
        "clients.parquet",
        "manifest.json",
        "rounds.parquet",
        "selections.parquet",
    ]


def test_slow_rounds_are_written_before_the_next_checkpoint_is_due(tmp_path: Path, monkeypatch) -> None:
    """`fedpick watch` shows what is written; the tables at the end are the same."""
    clock = [0.0]
    monkeypatch.setattr(stores, "monotonic", lambda: clock[0])
    what, seen = config("uniform", rounds=9, every=100), []
    folder, run = begin(tmp_path / "slow", what)
    with folder:
        for record in run.rounds(what.rounds):
            clock[0] += 4.0
            folder.append(record, run.state)
            seen.append(folder.saved)
        folder.finish(run.state)
    assert seen == [0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert contents(tmp_path / "slow") == whole(what)


def test_the_tables_hold_what_the_records_say(tmp_path: Path) -> None:
    execute(config(), tmp_path)
    records = list(config().build().rounds(ROUNDS))
    rounds, selections = read_rounds(tmp_path).to_pylist(), read_selections(tmp_path)
    assert list(rounds[0]) == [
        *("round", "clock", "seconds", "available", "chosen", "done", "late", "failed", "surplus", "messages"),
        *("megabytes", "version", "sent_at", "present", "client_seconds"),
    ]
    for row, record in zip(rounds, records, strict=True):
        assert (row["round"], row["clock"], row["seconds"]) == (record.round, record.clock, record.seconds)
        assert (row["available"], row["messages"], row["megabytes"]) == (
            record.available,
            record.messages,
            record.megabytes,
        )
        assert row["chosen"] == len(record.ids)
        for status in fp.Status:
            assert row[status.name.lower()] == np.count_nonzero(record.status == status)
    assert selections.column_names == ["round", "client", "inclusion", "status", "duration", "loss"]
    for name, values in {
        "round": [np.full(len(r.ids), r.round) for r in records],
        "client": [r.ids for r in records],
        "inclusion": [r.inclusion for r in records],
        "duration": [r.duration for r in records],
        "loss": [r.loss for r in records],
    }.items():
        np.testing.assert_array_equal(selections[name].to_numpy(), np.concatenate(values))
    names = [fp.Status(code).name for r in records for code in r.status]
    assert selections["status"].to_pylist() == names


def test_a_run_that_is_not_finished_can_be_read(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    assert read_rounds(tmp_path)["round"].to_pylist() == list(range(1, 11))
    assert max(read_selections(tmp_path)["round"].to_pylist()) == 10
    (tmp_path / "parts" / "selections-000000010.parquet").unlink()  # killed between the two
    assert read_rounds(tmp_path)["round"].to_pylist() == list(range(1, 6))
    assert max(read_selections(tmp_path)["round"].to_pylist()) == 5


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    execute(config(), tmp_path / "seed=7")
    assert "seed" not in read_rounds(tmp_path / "seed=7").column_names


def test_a_folder_without_rounds_is_said(tmp_path: Path) -> None:
    text = f"{tmp_path}: has no rounds yet; give the folder of a run that has begun"
    for read in (read_rounds, read_selections):
        with pytest.raises(StoreError, match=re.escape(text)):
            read(tmp_path)


# --- going on ---

MEMORIES = {
    "e3cs, independent": config(),
    "e3cs, bursts": config(volatility="bursts(spell=3)", availability="markov(on=3, off=4)"),
    "bsfl, gamma": config("bsfl", name="bsfl", availability="markov(on=2, off=3)"),
    "rbcs-f, linear": config("rbcs-f", name="rbcs-f"),
    "rbcs-f, phones": config("rbcs-f", name="phones"),
    "fedgs, cycle": config("fedgs", name="fedgs-yc"),
    "rpow-d": config("rpow-d", volatility="bursts"),
    "cs-ucb-q": config("cs-ucb-q"),
    "over-select": config("over-select(e3cs(quota='inc', horizon=20), 1.5)"),
    "with replacement": config("size-weighted"),
}


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("k", [10, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 22))])
def test_a_run_left_at_any_round_ends_with_the_files_of_one_that_was_not(name: str, k: int, tmp_path: Path) -> None:
    play_to(tmp_path, MEMORIES[name], k)
    assert contents(execute(MEMORIES[name], tmp_path)) == whole(MEMORIES[name])


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(0, ROUNDS), max_size=5), every=st.integers(1, 9), name=st.sampled_from([*MEMORIES]))
def test_a_run_left_many_times_ends_with_the_files_of_one_that_was_not(stops: list[int], every: int, name: str) -> None:
    what = Config(**{**MEMORIES[name].as_dict(), "checkpoint_every": every})
    with tempfile.TemporaryDirectory() as folder:
        for stop in stops:  # in any order: a later stop may lie before the last checkpoint
            play_to(Path(folder), what, stop)
        assert contents(execute(what, folder)) == whole(MEMORIES[name])  # which was written every 5 rounds


def moments() -> list[str]:
    """Every change of the disk in the life of the run below."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        done = kill_at(patch, 10_000)
        execute(config("uniform", rounds=7, every=3), folder)
        return list(done)


MOMENTS = moments()


def test_the_moments_cover_manifest_parts_checkpoint_joining_and_deleting() -> None:
    named = " ".join(MOMENTS)
    for what in ("manifest.json", "rounds-000000003", "checkpoint.npz", "replace rounds.parquet", "unlink selections-"):
        assert what in named


@pytest.mark.parametrize("moment", range(len(MOMENTS)), ids=[m.replace(" ", "-") for m in MOMENTS])
def test_a_process_that_ends_at_any_change_of_the_disk_loses_nothing(moment: int, tmp_path: Path) -> None:
    what = config("uniform", rounds=7, every=3)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, moment)
        with pytest.raises(Killed):
            execute(what, tmp_path)
    assert contents(execute(what, tmp_path)) == whole(what)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list((tmp_path / "parts").iterdir())


@pytest.mark.parametrize("moment", range(0, len(MOMENTS), 3))
def test_a_process_that_ends_twice_loses_nothing(moment: int, tmp_path: Path) -> None:
    what = config("uniform", rounds=7, every=3)
    for when in (moment, moment % 5):
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, when)
            with suppress(Killed):  # the second may find nothing left to change
                execute(what, tmp_path)
    assert contents(execute(what, tmp_path)) == whole(what)


def test_leftover_temporary_files_are_removed_and_others_are_not(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    leftovers = [
        "checkpoint.npz.0123abcd.tmp",
        "rounds.parquet.89ef0000.tmp",
        "parts/rounds-000000015.parquet.00000000.tmp",
    ]
    for name in [*leftovers, "notes.tmp", "notes.txt"]:
        (tmp_path / name).write_bytes(b"half of it")
    assert contents(execute(config(), tmp_path)) == whole(config())
    assert [name for name in leftovers if (tmp_path / name).exists()] == []
    assert (tmp_path / "notes.tmp").exists()
    assert (tmp_path / "notes.txt").exists()


def test_parts_that_came_after_the_checkpoint_are_dropped_even_if_damaged(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    (tmp_path / "parts" / "rounds-000000015.parquet").write_bytes(b"half of it")
    assert contents(execute(config(), tmp_path)) == whole(config())


def test_parts_that_came_after_the_checkpoint_do_not_count_when_it_goes_on_in_other_steps(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "write_archive", die)
        with pytest.raises(Killed):
            execute(config(), tmp_path)
    assert (tmp_path / "parts" / "selections-000000015.parquet").is_file()
    assert contents(execute(config(every=4), tmp_path)) == whole(config())


def test_a_finished_run_that_is_run_again_is_not_touched(tmp_path: Path) -> None:
    execute(config(), tmp_path)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir() if p.suffix != ".lock"}
    execute(config(), tmp_path)
    after = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir() if p.suffix != ".lock"}
    assert before == after


@pytest.mark.parametrize(
    "name",
    ["e3cs, bursts", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rbcs-f, linear", "fedgs, cycle"))],
)
def test_a_run_goes_on_past_its_horizon_as_if_it_had_been_longer(name: str, tmp_path: Path) -> None:
    plain = MEMORIES[name].as_dict()
    short, long = (Config(**{**plain, "rounds": rounds, "checkpoint_every": 100}) for rounds in (250, 400))
    execute(short, tmp_path)
    assert read_rounds(tmp_path).num_rows == 250
    play_to(tmp_path, long, 333)  # and is killed on the way
    assert read_rounds(tmp_path).num_rows == 300
    assert contents(execute(long, tmp_path)) == whole(long)


def test_a_longer_horizon_is_kept_in_the_manifest_for_who_resumes(tmp_path: Path) -> None:
    execute(config(rounds=10), tmp_path)
    before = json.loads((tmp_path / "manifest.json").read_text())
    play_to(tmp_path, config(rounds=30), 12)
    after = json.loads((tmp_path / "manifest.json").read_text())
    assert after["config"]["rounds"] == 30
    assert {**after, "config": 0, "sum": 0} == {**before, "config": 0, "sum": 0}
    with Folder(tmp_path) as folder:
        resumed = Config(**folder.config)
    assert contents(execute(resumed, tmp_path)) == whole(config(rounds=30))


def test_fewer_rounds_than_it_holds_are_refused(tmp_path: Path) -> None:
    execute(config(), tmp_path)
    before = files(tmp_path)
    text = f"{tmp_path}: holds 23 rounds already, but rounds = 20; ask for 23 or more, or choose another folder"
    with pytest.raises(StoreError, match=re.escape(text)):
        execute(config(rounds=20), tmp_path)
    assert files(tmp_path) == before


def test_another_number_of_rounds_between_checkpoints_is_the_same_run(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    assert contents(execute(config(every=2), tmp_path)) == whole(config())


def test_rounds_in_which_nobody_is_there_survive_at_the_end_too(tmp_path: Path) -> None:
    trace = tmp_path / "spells.csv"
    trace.write_text("client,start,end\n0,1,4\n1,2,6\n2,9,12\n")
    what = config("uniform", name="ideal", num_clients=4, availability=f"trace({str(trace)!r}, unit='rounds')")
    for k in (5, 8, 12, 17, 22):
        play_to(tmp_path / str(k), what, k)
        assert contents(execute(what, tmp_path / str(k))) == whole(what)
    rounds = read_rounds(tmp_path / "5")
    assert rounds["round"].to_pylist() == list(range(1, ROUNDS + 1))
    assert rounds["chosen"].to_pylist()[12:] == [0] * (ROUNDS - 12)
    longer = Config(**{**what.as_dict(), "rounds": 40})
    assert contents(execute(longer, tmp_path / "5")) == whole(longer)


def test_a_run_without_anybody_ever_has_tables_of_the_same_columns(tmp_path: Path) -> None:
    trace = tmp_path / "spells.csv"
    trace.write_text("client,start,end\n0,1000,1001\n")
    what = config("uniform", name="ideal", num_clients=4, availability=f"trace({str(trace)!r}, unit='rounds')")
    execute(what, tmp_path / "run")
    execute(config(), tmp_path / "other")
    empty = read_selections(tmp_path / "run")
    assert empty.num_rows == 0
    assert empty.schema.equals(read_selections(tmp_path / "other").schema)


# --- a model ---


class Pair(NamedTuple):
    mean: Any
    count: Any


class Nested:
    """A trainer whose model is nested, and whose metrics come late and not in every round."""

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def init(self, seed: int) -> Any:
        if self.model is not None:
            return self.model
        moments = Pair(np.zeros(3, dtype=np.float32), 0)
        return {"layer/w": np.ones((2, 2)), "head": {"b": np.zeros(()), "none": None}, "adam": [moments, (1.5,)]}

    def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
        return rng.random(len(ids)) + model["head"]["b"]

    def train(self, model: Any, ids: Any, used: Any, epochs: Any, round: int, rng: np.random.Generator) -> Updates:
        noise = rng.standard_normal(len(ids))
        return Updates(np.where(noise > 1.5, np.nan, noise + model["layer/w"].mean()), payload=noise)

    def aggregate(self, model: Any, choice: Any, outcome: Any, updates: Updates) -> Any:
        step = updates.payload[outcome.status == fp.Status.DONE].sum()
        moments, (rate,) = model["adam"]
        return {
            "layer/w": model["layer/w"] * 0.9 + step,
            "head": {"b": model["head"]["b"] + step, "none": None},
            "adam": [Pair(moments.mean + np.float32(step), moments.count + 1), (rate * 0.99,)],
        }

    def evaluate(self, model: Any, round: int) -> dict[str, Any]:
        late = {"rate": np.float32(model["adam"][1][0])} if round > 8 else {}
        return {"accuracy": model["layer/w"].mean()} | late if round % 2 else {}


def train_in(path: Path, last: int, until: int, finish: bool, trainer: Any = None) -> Run:
    settings = {"policy": "pow-d", "rounds": until}
    world = fp.worlds.named("volatile", 15)
    with Folder(path, settings, 4) as folder:
        run = Run(fp.PowerOfChoice(3, 6), world, 2, trainer or Nested())
        run.state = folder.restore(run.state, world.clients)
        for record in run.rounds(last):
            folder.append(record, run.state)
        if finish:
            folder.finish(run.state)
    return run


@pytest.mark.parametrize("k", [0, 4, 9, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 7, 13, 16))])
def test_a_model_of_nested_arrays_survives_with_its_metrics(k: int, tmp_path: Path) -> None:
    straight = train_in(tmp_path / "straight", 17, 17, True)
    train_in(tmp_path / "cut", k, 17, False)
    resumed = train_in(tmp_path / "cut", 17, 17, True)
    assert contents(tmp_path / "cut") == contents(tmp_path / "straight")
    one, other = straight.state.model, resumed.state.model
    np.testing.assert_array_equal(one["layer/w"], other["layer/w"])
    assert one["adam"][0].mean.tolist() == other["adam"][0].mean.tolist()
    assert other["adam"][0].mean.dtype == np.float32
    assert (one["adam"][0].count, one["adam"][1]) == (other["adam"][0].count, other["adam"][1])
    assert isinstance(other["adam"][0], Pair)
    rows = read_rounds(tmp_path / "cut").to_pylist()
    assert [row["accuracy"] is None for row in rows] == [row["round"] % 2 == 0 for row in rows]
    assert [row["rate"] is None for row in rows] == [row["round"] % 2 == 0 or row["round"] <= 8 for row in rows]


def test_a_model_that_cannot_be_kept_is_refused_with_what_it_is_made_of(tmp_path: Path) -> None:
    class Still(Nested):
        def aggregate(self, model: Any, *_: Any) -> Any:
            return model

        def evaluate(self, model: Any, round: int) -> dict[str, Any]:
            return {}

        def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
            return np.zeros(len(ids))

        def train(self, model: Any, ids: Any, used: Any, epochs: Any, round: int, rng: np.random.Generator) -> Updates:
            return Updates(np.zeros(len(ids)))

    text = "model/net is object (object), which cannot be stored; a model must consist of arrays of numbers in"
    with pytest.raises(ContractError, match=re.escape(text)):
        train_in(tmp_path / "a", 4, 4, True, Still({"net": object()}))
    with pytest.raises(ContractError, match=re.escape("two parts of the model are both called 'model/a/b'; rename")):
        train_in(tmp_path / "b", 4, 4, True, Still({"a/b": np.ones(1), "a": {"b": np.ones(1)}}))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    train_in(tmp_path, 4, 8, False)
    other = Nested().init(0) | {"layer/w": np.ones((3, 2))}
    with pytest.raises(StoreError, match=re.escape("has shape (2, 2) for model/layer/w, but the trainer's model has")):
        train_in(tmp_path, 8, 8, True, Nested(other))
    more = Nested().init(0) | {"extra": np.ones(1)}
    with pytest.raises(StoreError, match=re.escape("has nothing for model/extra, but the trainer's model has shape")):
        train_in(tmp_path, 8, 8, True, Nested(more))


def test_a_metric_with_the_name_of_a_column_is_refused(tmp_path: Path) -> None:
    class Clash(Nested):
        def evaluate(self, model: Any, round: int) -> dict[str, Any]:
            return {"clock": 1.0}

    text = "the metric 'clock' has the name of a column of rounds.parquet; rename the metric"
    with pytest.raises(ContractError, match=re.escape(text)):
        train_in(tmp_path, 4, 4, True, Clash())


# --- what is refused ---


def refused(act: Callable[[], Any], text: str, path: Path) -> None:
    before = files(path)
    with pytest.raises(StoreError, match=re.escape(text)):
        act()
    assert files(path) == before


def test_a_second_process_on_a_folder_is_told_that_another_works_there(tmp_path: Path) -> None:
    with Folder(tmp_path, config().as_dict()):
        text = f"{tmp_path}: another process is working in this folder; wait for it, or choose another folder"
        refused(lambda: execute(config(), tmp_path), text, tmp_path)
        refused(lambda: Folder(tmp_path), text, tmp_path)
    execute(config(), tmp_path)


def test_a_folder_that_was_refused_is_not_left_locked(tmp_path: Path) -> None:
    execute(config(), tmp_path)
    with pytest.raises(StoreError, match="another configuration"):
        execute(config("uniform"), tmp_path)
    with Folder(tmp_path):
        pass


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        (config("uniform"), ""),
        (config(deadline=3.0), "; world was {was} and is {now}"),
        (Config(**{**config().as_dict(), "seed": 8}), ""),
    ],
)
def test_a_folder_of_another_configuration_is_refused(other: Config, changed: str, tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    changed = changed.format(was=f"{config().world!r:.60}", now=f"{other.world!r:.60}")
    text = (
        f"{tmp_path}: holds a run of another configuration (e3cs(quota=0.5), seed 7{changed}); choose another folder, "
        "or remove this one"
    )
    refused(lambda: execute(other, tmp_path), text, tmp_path)


@pytest.mark.parametrize("name", ["checkpoint.npz", "rounds.parquet", "selections.parquet"])
def test_files_of_a_run_without_a_manifest_are_not_taken_over(name: str, tmp_path: Path) -> None:
    execute(config(), tmp_path)
    kept = (tmp_path / name).read_bytes()
    for file in ("manifest.json", *({"checkpoint.npz", "rounds.parquet", "selections.parquet"} - {name})):
        (tmp_path / file).unlink()
    text = f"{tmp_path}: has {name}, but no manifest.json that describes the run; restore the manifest, or choose"
    refused(lambda: execute(config(), tmp_path), text, tmp_path)
    assert (tmp_path / name).read_bytes() == kept


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"config": 3}', b"{}", b"\xff\xfe", b'"text"'])
def test_a_damaged_manifest_is_refused(damage: bytes, tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    (tmp_path / "manifest.json").write_bytes(damage)
    text = f"{tmp_path / 'manifest.json'}: cannot be read ("
    refused(lambda: execute(config(), tmp_path), text, tmp_path)
    refused(lambda: Folder(tmp_path), "; restore it from a backup, or choose another folder", tmp_path)


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    checkpoint = tmp_path / "checkpoint.npz"
    content = checkpoint.read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        checkpoint.write_bytes(content[:size])
        text = (
            f"{tmp_path}: its checkpoint cannot be used; no file was changed. Restore the checkpoint from a backup, "
            "or remove the folder to start anew (StateError"
        )
        refused(lambda: execute(config(), tmp_path), text, tmp_path)
    checkpoint.write_bytes(content)
    assert contents(execute(config(), tmp_path)) == whole(config())


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half")
    play_to(path, config(), 12)
    return path


@settings(max_examples=40, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_checkpoint_with_a_wrong_byte_is_refused_or_goes_on_to_the_same_files(
    half: Path, where: float, flip: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        shutil.copytree(half, path)
        content = bytearray((path / "checkpoint.npz").read_bytes())
        content[int(where * len(content))] ^= flip
        (path / "checkpoint.npz").write_bytes(content)
        before = files(path)
        try:
            execute(config(), path)
            message = None
        except StoreError as error:
            message = str(error)
        if message is None:
            assert contents(path) == whole(config())
        else:
            assert "its checkpoint cannot be used" in message
            assert files(path) == before


def test_a_state_file_that_is_no_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    policy = fp.E3CS(4)
    fp.save_state(policy, policy.init(fp.Clients(np.ones(20))), tmp_path / "checkpoint.npz")
    refused(lambda: execute(config(), tmp_path), "its checkpoint cannot be used; no file was changed", tmp_path)


@pytest.mark.parametrize("missing", ["rounds-000000005", "selections-000000005", "selections-000000010"])
def test_a_part_that_was_removed_is_noticed_before_anything_is_played(missing: str, tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    (tmp_path / "parts" / f"{missing}.parquet").unlink()
    text = "; files were removed or changed. Restore them, or remove the folder to start anew"
    refused(lambda: execute(config(), tmp_path), text, tmp_path)


def test_a_checkpoint_that_was_removed_from_a_finished_run_is_noticed(tmp_path: Path) -> None:
    execute(config(), tmp_path)
    (tmp_path / "checkpoint.npz").unlink()
    text = f"{tmp_path}: its checkpoint is of round 0, but its tables hold 23 rounds"
    refused(lambda: execute(config(), tmp_path), text, tmp_path)


@pytest.mark.parametrize("name", ["parts/rounds-000000010.parquet", "parts/selections-000000005.parquet"])
def test_a_damaged_table_is_refused_with_its_name(name: str, tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    (tmp_path / name).write_bytes(b"PAR1 and then nothing")
    refused(lambda: execute(config(), tmp_path), f"{tmp_path / name}: cannot be read (", tmp_path)
    refused(lambda: read_rounds(tmp_path) and read_selections(tmp_path), "; restore it from a backup", tmp_path)


def test_a_folder_that_is_not_restored_takes_no_rounds_from_the_start(tmp_path: Path) -> None:
    play_to(tmp_path, config(), 12)
    run = config().build()
    record = next(run.rounds(1))
    with Folder(tmp_path, config().as_dict(), EVERY) as folder:
        text = f"{tmp_path}: got round 1, which is not the next; call restore first, and continue from the state"
        with pytest.raises(StoreError, match=re.escape(text)):
            folder.append(record, run.state)


def test_a_round_left_out_is_refused(tmp_path: Path) -> None:
    run = config().build()
    records: list[Record] = list(run.rounds(2))
    with Folder(tmp_path, config().as_dict(), EVERY) as folder, pytest.raises(StoreError, match="got round 2"):
        folder.append(records[1], run.state)


def test_checkpoints_every_zero_rounds_are_refused(tmp_path: Path) -> None:
    text = "Folder: every = 0, but must be a number of rounds >= 1"
    with pytest.raises(SettingError, match=re.escape(text)):
        Folder(tmp_path, {}, 0)


# --- a disk that is full, a folder that may not be written ---


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


SAFE = (
    "(No space left on device); files written before are intact. Free space or choose a folder you may write to, then"
)


@pytest.mark.parametrize(
    ("owner", "name", "what"),
    [
        (atomic, "opened", "rounds 11 to 15"),
        (os, "replace", "rounds 11 to 15"),
        (os, "fsync", "rounds 11 to 15"),
        (stores, "write_archive", "the checkpoint"),
    ],
)
def test_a_full_disk_is_said_and_what_was_written_before_is_whole(
    owner: Any, name: str, what: str, tmp_path: Path
) -> None:
    play_to(tmp_path, config(), 12)
    with Folder(tmp_path, None) as store:  # as `execute` does
        store.note(config().about(config().build()) | {"device": "cpu", "played": "alone"})
        store.describe_clients(census(config().build().world, config().seed))
    before = files(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, full)
        text = f"{tmp_path}: cannot write {what} {SAFE} continue with: fedpick resume {tmp_path}"
        with pytest.raises(StoreError, match=re.escape(text)):
            execute(config(), tmp_path)
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert not list(tmp_path.rglob("*.tmp"))
    assert read_rounds(tmp_path)["round"].to_pylist()[:10] == list(range(1, 11))
    assert contents(execute(config(), tmp_path)) == whole(config())


def test_a_disk_that_is_full_when_the_parts_are_joined_loses_nothing(tmp_path: Path) -> None:
    real = atomic.opened

    def opened(path: Path, mode: str) -> Any:
        if path.name.startswith("selections.parquet."):
            full()
        return real(path, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "opened", opened)
        with pytest.raises(StoreError, match=re.escape(f"{tmp_path}: cannot write the joined files {SAFE}")):
            execute(config(), tmp_path)
    assert read_rounds(tmp_path).num_rows == ROUNDS
    assert max(read_selections(tmp_path)["round"].to_pylist()) == ROUNDS
    assert contents(execute(config(), tmp_path)) == whole(config())


def test_a_disk_that_is_full_from_the_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path}: cannot write the manifest {SAFE}")):
        execute(config(), tmp_path)


def test_a_folder_under_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    path = tmp_path / "file" / "run"
    with pytest.raises(StoreError, match=re.escape(f"{path}: cannot write the folder (Not a directory); files")):
        execute(config(), path)
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path / 'file'}: cannot write the folder")):
        execute(config(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "here"


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", forbidden)
    with pytest.raises(StoreError, match=re.escape("run: cannot write the folder (Permission denied); files")):
        execute(config(), tmp_path / "run")


# --- real processes ---

CHILD = """
import json, sys
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.experiment.files import config_of
print("ready", flush=True)
execute(Config(**json.loads(sys.argv[1])), sys.argv[2])
print("finished", flush=True)
"""


def start(what: Config, path: Path, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, json.dumps(what.as_dict()), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait(timeout=30)


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, process.communicate(timeout=10)
        assert time.monotonic() < until, "it never came"
        time.sleep(0.001)


LONG = config(rounds=2_000, every=3, volatility="bursts(spell=4)", availability="markov(on=5, off=3)")


@pytest.mark.slow
def test_a_run_killed_at_twenty_random_moments_ends_with_the_files_of_one_that_was_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    path, landed, reached = tmp_path / "run", [], []
    checkpoint = path / "checkpoint.npz"
    for i in range(20):
        before = checkpoint.stat().st_ino if checkpoint.exists() else None
        process = start(LONG, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if i % 4:  # most are killed while they play and write, some while they begin or go on
            wait_until(lambda old=before: checkpoint.exists() and checkpoint.stat().st_ino != old, process)
        time.sleep(float(rng.uniform(0.0, 0.06)))
        process.send_signal(signal.SIGKILL)
        out, _ = end(process)
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed: make the run longer"
        assert "finished" not in out
        landed += [p.name for p in path.rglob("*.tmp")]
        reached.append(len(list(path.glob("parts/rounds-*.parquet"))))
    assert landed, "no kill landed in the middle of writing"
    assert len(set(reached)) > 5, "the kills landed where nothing happens"
    out, err = end(start(LONG, path))
    assert "finished" in out, err
    assert contents(path) == whole(Config(**{**LONG.as_dict(), "checkpoint_every": 1_000}))
    assert not list(path.rglob("*.tmp"))


@pytest.mark.slow
def test_a_second_process_gets_an_error_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    long = Config(**{**LONG.as_dict(), "rounds": 1_000_000})
    process = start(long, path)
    try:
        wait_until((path / "checkpoint.npz").exists, process)
        _, err = end(start(long, path))
        assert f"{path}: another process is working in this folder; wait for it, or choose another folder" in err
        assert process.poll() is None
    finally:
        process.kill()
        end(process)
    with Folder(path) as folder:
        assert folder.config["rounds"] == 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_told_to_stop_writes_a_checkpoint_of_the_round_it_is_in(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    what = Config(**{**LONG.as_dict(), "rounds": 1_000_000, "checkpoint_every": 50})
    process = start(what, path)
    try:
        wait_until((path / "parts" / "rounds-000000050.parquet").exists, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(timeout=30)
    assert "finished" not in out
    assert process.returncode == 1, err  # nobody catches it; the command line exits with 128 and the signal's number
    by = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert f"Stopped: stopped by {by}; everything until then is kept: run the same script again to continue" in err
    rounds = read_rounds(path).num_rows
    short = Config(**{**what.as_dict(), "rounds": rounds})
    assert contents(execute(short, path)) == whole(short)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [700, 3_000, 6_000])
def test_a_disk_that_takes_no_more_is_said_by_a_real_process(limit: int, tmp_path: Path) -> None:
    """No file may grow past the limit: the system refuses the write, as it does when a disk is full."""
    path = tmp_path / "run"
    what = config("e3cs", rounds=400, every=7, num_clients=20 if limit < 6_000 else 300)
    play_to(path, what, 8)
    before = files(path)
    process = start(what, path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    _, err = end(process)
    assert process.returncode == 1
    last = err.strip().splitlines()[-1]
    assert re.search(
        r"StoreError: .*/run: cannot write .* \(.*File too large.*\); files written before are intact", last
    )
    after = files(path)
    assert {name: after[name] for name in before if name.startswith("parts/")} == {
        name: content for name, content in before.items() if name.startswith("parts/")
    }
    assert contents(execute(what, path)) == whole(what)


# --- who was there ---


def test_who_was_there_is_recorded(tmp_path: Path) -> None:
    what = config(rounds=8, availability="markov")
    execute(what, tmp_path)
    run = what.build()
    world, state = run.world, run.world.init(what.seed)
    found = read_presence(tmp_path)
    assert found is not None
    for round, there in zip(found["round"].to_pylist(), found["there"].to_pylist(), strict=True):
        mask = world.view(state, world.draw(state, what.seed, round)).available
        assert (mask if there is None else np.frombuffer(there, np.uint8) == 255).tolist() == mask.tolist()
    assert "there" not in read_rounds(tmp_path).column_names  # as bytes, it is no number of a round


def test_the_table_of_clients_is_the_same_after_a_stop_and_its_damage_is_found(tmp_path: Path) -> None:
    play_to(tmp_path / "stopped", config(), 12)
    files = [execute(config(), tmp_path / each) / "clients.parquet" for each in ("stopped", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()
    found, run = read_census(tmp_path / "whole"), config().build()
    assert found["size"].tolist() == run.world.clients.sizes.tolist()
    assert len(found["seconds"]) == 20
    assert all(each.whole for each in verify(tmp_path, str))
    content = bytearray(files[0].read_bytes())
    content[60] ^= 1
    files[0].write_bytes(content)
    assert [each.path for each in verify(tmp_path, str) if not each.whole] == [files[0]]


@pytest.mark.parametrize("count", [1, 100, 101, 250, 12_345])
def test_who_was_there_is_kept_in_at_most_a_hundred_bins(count: int) -> None:
    mask = fp.rng.stream(1, count, "there").random(count) < 0.4
    mask[0] = False
    found = np.frombuffer(presence(mask) or b"", np.uint8)
    bins = np.arange(count) * min(count, 100) // count  # as the maps of the page count
    assert found.tolist() == np.rint(255 * np.bincount(bins, mask) / np.bincount(bins)).tolist()
    assert presence(np.ones(count, dtype=bool)) is None
