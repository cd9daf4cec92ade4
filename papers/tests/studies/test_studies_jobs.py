"""Jobs of studies: addressed by what they are, kept as they are done, never done twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedpick.core.errors import MissingError, SettingError, UnknownNameError
from fedpick.experiment import executors
from fedpick.simulate import run as simulate
from fedpick_papers import studies
from fedpick_papers.studies import _storage, _study
from fedpick_papers.studies._jobs import conduct, folder_of, key
from fedpick_papers.studies._progress import Estimate, Progress
from fedpick_papers.studies._runs import chosen_in, play_scheme
from fedpick_papers.studies._study import Finding, Found, Study, canonical, seeds_of

SMALL = {"rounds": 20, "seeds": 2}


def log_and_square(item, folder):
    """A job that says when it is done: a line in a file."""
    if item.get("seconds"):
        time.sleep(item["seconds"])
    with open(item["log"], "a") as log:
        log.write(f"{item['seed']}\n")
    return {"square": item["seed"] ** 2, "curve": np.arange(item["seed"] + 1) / 3}


def log_and_cube(item, folder):
    return {"square": item["seed"] ** 3, "curve": np.zeros(item["seed"] + 1)}


def _item(settings, seed):
    return {"log": settings["log"], "seconds": settings["seconds"], "seed": seed}


def toy(log, id="toy/squares", job=log_and_square, seconds=0.0, **more):
    return Study(
        id=id,
        title="Squares",
        paper="none",
        settings={"log": str(log), "seconds": seconds, "seeds": 6},
        quick={"seeds": 2},
        items=lambda settings: [_item(settings, seed) for seed in seeds_of(settings)],
        job=job,
        gather=lambda settings, found: {
            "squares": {str(seed): found[_item(settings, seed)]["square"] for seed in seeds_of(settings)},
            "ends": [found[_item(settings, seed)]["curve"][-1] for seed in seeds_of(settings)],
        },
        score=lambda result: [Finding("squares", "none", str(result["squares"]), "reproduced")],
        plot=lambda result: None,
        **more,
    )


def lines(log):
    return [int(line) for line in Path(log).read_text().split()] if Path(log).exists() else []


# ---- what a key is made of


def test_keys_go_by_what_a_job_is_and_not_by_order(tmp_path):
    study = toy(tmp_path / "log")
    item = {"seed": 1, "policy": "uniform", "nested": {"a": 1, "b": [1, 2]}}
    turned = {"nested": {"b": [1, 2], "a": 1}, "policy": "uniform", "seed": 1}
    assert key(study, item) == key(study, turned)
    assert folder_of(study, item, tmp_path).name == f"uniform-seed-1-{key(study, item)}"
    long = {**item, "policy": 50 * "very "}
    assert folder_of(study, long, tmp_path).name.endswith(f"very-seed-1-{key(study, long)}")
    others = [
        key(study, {**item, "seed": 2}),
        key(study, {**item, "nested": {"a": 1, "b": [2, 1]}}),
        key(replace(study, id="toy/cubes"), item),
        key(replace(study, version=2), item),
        key(replace(study, trains=True), item, "cpu"),
        key(replace(study, trains=True), item, "gpu"),
    ]
    assert len({key(study, item), *others}) == 7


def test_keys_change_with_the_numbers_and_not_with_releases(monkeypatch, tmp_path):
    study, item = toy(tmp_path / "log"), {"seed": 1}
    now = key(study, item)
    monkeypatch.setattr(_study, "NUMBERS", "0.9")
    later = key(study, item)
    monkeypatch.setattr(_study, "SAME_SINCE_0_1", (study.id,))
    assert key(study, item) == "c0512a2cab1187bf"  # as stored by 0.1
    assert len({now, later, key(study, item)}) == 3


def test_results_do_not_go_by_the_order_of_items(tmp_path):
    study = studies.STUDIES["rbcs-f/fig4"]
    settings = study.choose(longer=30, **SMALL)
    forth = conduct(study, settings, workers=1).result
    back = conduct(replace(study, items=lambda s: study.items(s)[::-1]), settings, workers=1).result
    assert forth == back


def test_studies_with_equal_items_share_nothing(tmp_path):
    squares, cubes = toy(tmp_path / "log"), toy(tmp_path / "log", "toy/cubes", log_and_cube)
    settings = squares.choose()
    assert [canonical(i) for i in squares.items(settings)] == [canonical(i) for i in cubes.items(settings)]
    for _ in range(2):  # the second time from what is kept
        assert conduct(squares, settings, workers=1, out=tmp_path).result["squares"]["3"] == 9
        assert conduct(cubes, settings, workers=1, out=tmp_path).result["squares"]["3"] == 27


def test_what_was_measured_is_found_by_item_alone():
    found = Found([({"a": 1, "b": 2}, {"x": 1})])
    assert found[{"b": 2, "a": 1}] == {"x": 1}
    with pytest.raises(KeyError):
        found[{"a": 1}]


# ---- kept, found again, continued


def test_a_stopped_study_goes_on_and_does_no_finished_job_twice(tmp_path):
    study = toy(tmp_path / "log")
    undisturbed = conduct(study, study.choose(), workers=1)
    (tmp_path / "log").unlink()

    def stop(now):
        if now.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(study, study.choose(), workers=1, out=tmp_path, tell=stop)
    assert lines(tmp_path / "log") == [0, 1, 2, 3]
    told = []
    outcome = conduct(study, study.choose(), workers=1, out=tmp_path, tell=told.append)
    assert lines(tmp_path / "log") == [0, 1, 2, 3, 4, 5]
    assert outcome.result == undisturbed.result
    assert [(now.done, now.kept, now.total) for now in told] == [(4, 4, 6), (5, 4, 6), (6, 4, 6)]
    assert conduct(study, study.choose(), workers=1, out=tmp_path).result == undisturbed.result
    assert len(lines(tmp_path / "log")) == 6


def test_more_seeds_do_only_what_is_missing(tmp_path):
    study = toy(tmp_path / "log")
    conduct(study, study.choose(seeds=3), workers=1, out=tmp_path)
    outcome = conduct(study, study.choose(seeds=4, seed0=2), workers=1, out=tmp_path)
    assert lines(tmp_path / "log") == [0, 1, 2, 3, 4, 5]
    assert list(outcome.result["squares"]) == ["2", "3", "4", "5"]
    conduct(study, study.choose(seeds=2), workers=1, out=tmp_path)  # fewer: a narrower view
    assert len(lines(tmp_path / "log")) == 6


def test_nothing_is_storage_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = toy(tmp_path / "log")
    for _ in range(2):
        conduct(study, study.choose(), workers=1)
    assert len(lines(tmp_path / "log")) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("damage", ["cut", "turned", "empty", "another"])
def test_a_damaged_measurement_is_made_anew_with_a_warning(damage, tmp_path, caplog):
    study = toy(tmp_path / "log")
    expected = conduct(study, study.choose(), workers=1, out=tmp_path).result
    jobs = tmp_path / studies.JOBS
    file, other = (folder_of(study, item, jobs) / "measured.npz" for item in study.items(study.choose())[2:4])
    raw = file.read_bytes()
    at = raw.rindex(b"\x93NUMPY") + 130  # in the numbers of the array
    damaged = {
        "cut": raw[: len(raw) // 2],
        "turned": raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :],
        "empty": b"",
        "another": other.read_bytes(),
    }
    file.write_bytes(damaged[damage])
    assert conduct(study, study.choose(), workers=1, out=tmp_path).result == expected
    assert lines(tmp_path / "log") == [0, 1, 2, 3, 4, 5, 2]
    assert "it is measured again" in caplog.text
    assert str(file) in caplog.text
    assert conduct(study, study.choose(), workers=1, out=tmp_path).result == expected  # whole again
    assert len(lines(tmp_path / "log")) == 7


def test_a_measurement_comes_back_as_it_was(tmp_path):
    measurement = {
        "whole": np.arange(3),
        "nested": {"a name, with 1/3": np.array([[1 / 3, np.nan]]), "flags": np.array([True])},
        "plain": [1, 2.5, None, "text", True, float("inf")],
        "number": np.float64(0.1),
    }
    _storage.write(tmp_path / "m.npz", measurement, {"item": "one"})
    found = _storage.read(tmp_path / "m.npz", {"item": "one"})
    assert list(found) == list(measurement)
    for ours, theirs in (
        (found["whole"], measurement["whole"]),
        (found["nested"]["a name, with 1/3"], measurement["nested"]["a name, with 1/3"]),
        (found["nested"]["flags"], measurement["nested"]["flags"]),
    ):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert found["plain"] == measurement["plain"]
    assert found["number"] == 0.1


# ---- runs in the store


@pytest.fixture(scope="module")
def fig3(tmp_path_factory):
    """A small study with everything that it keeps."""
    folder = tmp_path_factory.mktemp("fig3")
    return folder, studies.reproduce("rbcs-f/fig3", workers=1, out=folder, longer=30, **SMALL)


def test_a_run_is_a_folder_of_the_store(fig3):
    study, (tmp_path, outcome) = studies.STUDIES["rbcs-f/fig3"], fig3
    folders = [folder_of(study, item, tmp_path / studies.JOBS) for item in study.items(outcome.settings)]
    assert len(folders) == study.jobs(outcome.settings) == 12
    for folder in folders:
        assert {"manifest.json", "rounds.parquet", "selections.parquet", "measured.npz"} <= set(os.listdir(folder))
    assert (tmp_path / "rbcs-f" / "fig3" / "result.json").is_file()
    assert (tmp_path / studies.JOBS / ".gitignore").read_text() == "*\n"


def test_a_run_that_was_begun_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    study = studies.STUDIES["rbcs-f/fig3"]
    item = study.items(study.choose(longer=20, **SMALL))[3]
    whole = study.job(item, tmp_path / "whole")
    executors.execute(replace(play_scheme.config(item), rounds=15), tmp_path / "begun")
    played, play = [], simulate.play
    monkeypatch.setattr(simulate, "play", lambda *rest: played.append(1) or play(*rest))
    begun = study.job(item, tmp_path / "begun")
    assert len(played) == 5
    for name, values in whole.items():
        np.testing.assert_array_equal(begun[name], values)


def test_tables_tell_what_records_tell(tmp_path):
    study = studies.STUDIES["e3cs/fig4"]
    item = study.items(study.choose(**SMALL))[5]
    found = study.job(item, tmp_path)
    records = list(play_scheme.config(item).build().rounds(item["rounds"]))
    assert [ids.tolist() for ids in chosen_in(tmp_path, item["rounds"])] == [r.ids.tolist() for r in records]
    assert found["seconds"].tolist() == [record.seconds for record in records]
    assert found["chosen"].tolist() == [len(record.ids) for record in records]
    counts = np.bincount(np.concatenate([record.ids for record in records]), minlength=100)
    assert found["counts"].tolist() == counts.tolist()


def test_queues_are_the_policy_s(tmp_path):
    study = studies.STUDIES["rbcs-f/fig2"]
    item = study.items(study.choose(rounds=40, early=30, seeds=1))[1]
    found = study.job(item, tmp_path)["queue"]
    run = play_scheme.config(item).build()
    assert found.tolist() == [run.state.policy.queue.mean() for _ in run.rounds(40)]


# ---- every study


@pytest.mark.parametrize("id", studies.STUDIES)
@pytest.mark.parametrize("quick", [False, True])
def test_items_are_plain_distinct_and_go_by_the_seeds(id, quick, tmp_path):
    study = studies.STUDIES[id]
    assert study.id == id
    first = study.items(study.choose(quick))
    assert [json.loads(canonical(item)) for item in first] == [dict(item) for item in first]
    assert len({folder_of(study, item, tmp_path) for item in first}) == len(first) == study.jobs(study.choose(quick))
    assert {item["seed"] for item in first} == set(range(study.choose(quick)["seeds"]))
    later = study.items(study.choose(quick, seed0=1000))
    assert {item["seed"] for item in later} == {1000 + item["seed"] for item in first}
    assert all(study.cost(item) > 0 for item in first)


def test_another_base_seed_gives_other_figures_of_the_same_form(fig3):
    one = fig3[1].result
    two = studies.reproduce("rbcs-f/fig3", workers=1, longer=30, seed0=7, **SMALL).result
    assert list(one) == list(two)
    assert one["seconds"] != two["seconds"]
    assert len(two["seconds"]["Random"]) == 2


def test_seeds_are_checked():
    with pytest.raises(SettingError, match=r"rbcs-f/fig3: seeds = 0, but must be a whole number >= 1"):
        studies.reproduce("rbcs-f/fig3", seeds=0)
    with pytest.raises(SettingError, match=r"rbcs-f/fig3: seed0 = -1, but must be a whole number >= 0"):
        studies.reproduce("rbcs-f/fig3", seed0=-1)


def test_devices_are_checked():
    with pytest.raises(UnknownNameError, match="unknown device 'gpus'; did you mean 'gpu'"):
        studies.reproduce("rbcs-f/fig3", device="gpus")
    import jax

    if jax.default_backend() == "cpu":
        with pytest.raises(MissingError, match=r"--device cpu"):
            studies.reproduce("bsfl/fig5", device="gpu", **SMALL)
        with pytest.raises(MissingError, match=r"on the gpu, but JAX uses the cpu here; use --device cpu"):
            studies.reproduce("fedgs/table2-synthetic", device="gpu", **SMALL)


def test_listing_studies_imports_no_more_than_it_must():
    code = (
        "import sys; from fedpick_papers import studies; assert len(list(studies.STUDIES)) > 17; "
        "print([name for name in ('jax', 'matplotlib', 'fedpick_papers.studies.e3cs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- the time left


def test_no_estimate_until_a_job_is_done():
    now = [0.0]
    estimate = Estimate(dict.fromkeys(range(10), 1.0), width=1, clock=lambda: now[0])
    now[0] = 100.0
    assert estimate.left() is None
    estimate.done(0, 100.0)
    assert estimate.left() == 900.0
    for job in range(1, 10):
        now[0] += 100.0
        estimate.done(job, 100.0)
    assert estimate.left() == 0.0


def test_estimates_weigh_jobs_by_their_cost_and_share_them_among_processes():
    now = [10.0]
    estimate = Estimate({0: 1.0, 1: 1.0, 2: 6.0, 3: 6.0}, width=2, clock=lambda: now[0])
    now[0] = 20.0
    estimate.done(0, 10.0)
    estimate.done(1, 10.0)
    assert estimate.left() == 60.0
    now[0] = 40.0  # both of the others are a third done
    assert estimate.left() == 40.0
    now[0] = 500.0  # longer than thought, never negative
    assert estimate.left() == 0.0


def test_runs_that_say_how_far_they_are_are_counted_as_far():
    now = [0.0]
    estimate = Estimate({0: 100.0, 1: 100.0, 2: 200.0}, width=2, clock=lambda: now[0])
    now[0] = 10.0
    estimate.reach(1, 0.5)
    assert estimate.left() is None  # none is over
    estimate.done(0)
    assert estimate.left() == pytest.approx(10.0 * 250 / 150)


def test_progress_in_words():
    def words(**how):
        return str(Progress("toy", **({"done": 1, "total": 9, "kept": 0} | how)))

    assert words(left=None) == "1 of 9 jobs"
    assert words(left=20.0) == "1 of 9 jobs, less than a minute left"
    assert words(left=720.0, kept=1) == "1 of 9 jobs, 1 of them from before, about 12 min left"
    assert words(left=9000.0) == "1 of 9 jobs, about 2.5 h left"
    assert words(left=0.0, done=9) == "9 of 9 jobs"


def test_the_command_has_all_that_was_said():
    how = {"quick": True, "seeds": 3, "seed0": 5, "workers": 2, "executor": "ray", "device": "gpu"}
    assert studies.command("e3cs/fig3", "a b", **how) == (
        "fedpick reproduce e3cs/fig3 --quick --seeds 3 --seed0 5 --workers 2 --executor ray --device gpu --out 'a b'"
    )
    assert studies.command(None, "out") == "fedpick reproduce --out out"


# ---- killed


def kept_files(out):
    """What is done, with when it was written: measurements, and the tables of runs that are over."""
    names = ("measured.npz", "rounds.parquet", "selections.parquet")
    return {path: path.stat().st_mtime_ns for name in names for path in Path(out).glob(f"{studies.JOBS}/**/{name}")}


def measured(files):
    return [path for path in files if path.name == "measured.npz"]


def wait_for(count, out, process, seconds=120.0):
    until = time.monotonic() + seconds
    while len(measured(kept_files(out))) < count:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


TOY = (
    "from studies import test_studies_jobs as t; from pathlib import Path; "
    "study = t.toy('{out}/log', seconds=0.15); t.conduct(study, study.choose(), workers=1, out=Path('{out}'))"
)


@pytest.mark.slow
def test_a_killed_study_plays_no_finished_job_twice(tmp_path):
    code = [sys.executable, "-c", TOY.format(out=tmp_path)]
    tests = Path(__file__).parents[1]  # `python -c` imports from the folder it starts in
    for finished in (2, 4):
        with subprocess.Popen(code, cwd=tests) as process:
            wait_for(finished, tmp_path, process)
            process.send_signal(signal.SIGKILL)
    before = kept_files(tmp_path)
    subprocess.run(code, cwd=tests, check=True)
    assert {path: time for path, time in kept_files(tmp_path).items() if path in before} == before
    done = lines(tmp_path / "log")
    assert set(done) == set(range(6))
    # A job that was killed between its end and its keeping is done again; no job that was kept is.
    assert len(done) <= 6 + 2
    study = toy(tmp_path / "log", seconds=0.15)
    assert conduct(study, study.choose(), workers=1, out=tmp_path).result["squares"]["5"] == 25
    assert lines(tmp_path / "log") == done


@pytest.mark.slow
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 2)])
def test_told_to_stop_it_prints_the_command_that_goes_on(number, workers, tmp_path):
    program = [sys.executable, "-c", "from fedpick.cli import main; main()"]
    options = ["rbcs-f/fig3", "--quick", "--seeds", "1", "--seed0", "2", "--workers", str(workers)]
    options += ["--out", str(tmp_path / "o")]
    with subprocess.Popen([*program, "reproduce", *options], stderr=subprocess.PIPE, text=True) as process:
        wait_for(2, tmp_path / "o", process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    (command,) = re.findall(r"^fedpick reproduce .*$", said, re.MULTILINE)
    before = kept_files(tmp_path / "o")
    assert 2 <= len(measured(before)) < 6
    done = subprocess.run([*program, *command.split()[1:]], capture_output=True, text=True, check=True)
    assert "written to" in done.stdout
    after = kept_files(tmp_path / "o")
    assert len(measured(after)) == 6
    assert {path: time for path, time in after.items() if path in before} == before
    result = json.loads((tmp_path / "o" / "rbcs-f" / "fig3" / "result.json").read_text())
    assert result == studies.reproduce("rbcs-f/fig3", quick=True, seeds=1, seed0=2, workers=1).result


@pytest.mark.slow
def test_processes_and_ray_measure_the_same(tmp_path):
    pytest.importorskip("ray")
    for executor in ("processes", "ray"):
        how = f"workers=2, executor={executor!r}, out={str(tmp_path / executor)!r}, rounds=20, longer=30, seeds=2"
        code = f"from fedpick_papers import studies\nif __name__ == '__main__': studies.reproduce('rbcs-f/fig3', {how})"
        subprocess.run([sys.executable, "-c", code], check=True)  # Ray leaves files open
    places = [
        {path.relative_to(tmp_path / name) for path in kept_files(tmp_path / name)} for name in ("processes", "ray")
    ]
    assert places[0] == places[1]
    one, two = ((tmp_path / name / "rbcs-f" / "fig3" / "result.json").read_bytes() for name in ("processes", "ray"))
    assert one == two
