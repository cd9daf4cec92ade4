"""The live page: it follows folders as they are written, whatever is in them, and a browser shows it (slow)."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from made_runs import make, study
from typer.testing import CliRunner

import fedpick as fp
from browsers import axe, opened
from fedpick.cli.app import app
from fedpick.report import live
from fedpick.report import states as run_states
from fedpick.report.live import LivePage, serve

HOSTILE = "<script>alert(1)</script>'\"&{{7*7}}</style><!--\u202e\u2028" + "x" * 10_000


def news(watch):
    watch._next = 0.0
    return json.loads(watch.answer("/news.json").body)


def quiet(folder, seconds=1000.0):
    """As if the files had been written some time ago."""
    for file in [folder, *folder.rglob("*")]:
        os.utime(file, (time.time() - seconds,) * 2)


def states(found):
    return {(run["policy"], run["seed"]): run["state"] for run in found["runs"]}


@pytest.fixture(params=["linux", "elsewhere"])
def system(request, monkeypatch, tmp_path_factory):
    """Linux tells which files are locked; other systems do not."""
    if request.param == "elsewhere":
        monkeypatch.setattr(run_states, "LOCKS", tmp_path_factory.mktemp("none") / "locks")
    elif not run_states.LOCKS.exists():
        pytest.skip("no /proc/locks")
    return request.param


def test_an_empty_folder_waits_and_then_shows_the_first_round(tmp_path):
    watch = LivePage(tmp_path / "later")
    assert news(watch)["state"] == "waiting"
    assert b"No run has rounds yet" in watch.answer("/").body
    make(tmp_path / "later" / "runs" / "a", rounds=6)
    found = news(watch)
    assert found["state"] == "finished"
    assert found["data"]["settings"][0]["policies"] == ["uniform"]
    assert "6 of 6" in found["sections"]["runs"]


def test_it_is_read_again_only_when_something_changed(tmp_path, monkeypatch):
    root = study(tmp_path, policies=("uniform",), seeds=2)
    watch = LivePage(root)
    first = watch.answer("/news.json")
    watch._next = 0.0
    with monkeypatch.context() as patch:
        patch.setattr(live, "Results", None)  # not needed
        assert watch.answer("/news.json") is first
    make(root / "runs" / "new", "e3cs", seed=0)
    watch._next = 0.0
    second = watch.answer("/news.json")
    assert second.tag != first.tag
    assert watch.answer("/news.json") is second  # not before the folder's turn
    assert watch.answer("/other") is None


def test_the_state_of_runs(tmp_path, system):
    done, part = make(tmp_path / "runs" / "a", seed=0), make(tmp_path / "runs" / "b", seed=1, finish=False)
    going = make(tmp_path / "runs" / "c", seed=2)
    for folder, rounds in ((part, 12), (going, 12)):
        lengthen(folder, rounds)
    for folder in (done, part, going):
        quiet(folder)
    with open(going / "run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        quiet(going)
        found = news(LivePage(tmp_path))
    seen = [run["state"] for run in found["runs"]]
    if system == "linux":
        assert seen == ["finished", "stopped", "running"]
        assert found["state"] == "running"
    else:
        assert seen == ["finished", "silent", "silent"]
        assert "may have stopped" in found["sections"]["runs"]
    (part / "parts" / "rounds-000000006.parquet").touch()
    assert states(news(LivePage(tmp_path)))["uniform", 1] == "running"


def lengthen(folder, rounds):
    """As if more rounds had been asked for."""
    manifest = fp.store.manifest.read_manifest(folder)
    manifest["config"]["rounds"] = rounds
    fp.store.manifest.write_manifest(folder, manifest)


def test_a_stopped_comparison_says_how_it_goes_on(tmp_path):
    root = study(tmp_path / "cmp", policies=("uniform",), seeds=2)
    lengthen(root / "runs" / "uniform-1", 50)
    for each in ("uniform-0", "uniform-1"):
        quiet(root / "runs" / each)
    found = news(LivePage(root))
    assert found["state"] == "stopped" if run_states.LOCKS.exists() else "silent"
    if run_states.LOCKS.exists():
        assert f"fedpick resume {root}" in found["sections"]["runs"]


def test_between_two_runs_a_comparison_is_running_and_stopped_only_after_a_while(tmp_path):
    root = study(tmp_path / "cmp", policies=("uniform",), seeds=1)
    (root / "plans").mkdir()
    (root / "plans" / "p.json").write_text(json.dumps({"runs": ["a", "b"]}))
    watch = LivePage(root)
    found = news(watch)
    assert "2 runs: 1 finished, 1 not begun." in found["sections"]["runs"]
    assert (found["state"], "fedpick resume" in found["sections"]["runs"]) == ("running", False)
    quiet(root / "runs" / "uniform-0")
    found = news(watch)
    assert (found["state"], "fedpick resume" in found["sections"]["runs"]) == ("stopped", True)


def test_a_server_s_records_are_followed_and_its_end_is_said(tmp_path):
    host = fp.server.Host(about={"engine": "flower"})
    with fp.Session(fp.Uniform(cohort_size=2), records=tmp_path / "served", host=host) as session:
        watch = LivePage(tmp_path / "served")
        for played in range(1, 4):
            with session.round(["ada", "bob", "<b>cyd"]) as r:
                for name in r.chosen:
                    r.failed(name, "lost")
            session.storage.settle()
            session.storage.write()
            found = news(watch)
            assert found["runs"][0]["reached"] == played
            assert found["state"] == "running"
            assert found["runs"][0]["rounds"] is None
    assert "&lt;b&gt;cyd" in found["sections"]["trouble"]
    quiet(tmp_path / "served")
    if run_states.LOCKS.exists():
        assert news(watch)["state"] == "ended"


def test_a_curve_never_shrinks_when_the_next_run_begins(tmp_path):
    """Seeds that are behind wait; policies are drawn to their own end, but compared over the rounds that all have."""
    make(tmp_path / "runs" / "a", "uniform", 0, rounds=6, accuracy=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    make(tmp_path / "runs" / "b", "uniform", 1, rounds=2, accuracy=[0.1, 0.2])
    make(tmp_path / "runs" / "c", "e3cs", 0, rounds=4, accuracy=[0.1, 0.2, 0.3, 0.4])
    found = news(LivePage(tmp_path))
    chart = found["data"]["settings"][0]
    lines = next(each for each in chart["metrics"] if each["name"] == "accuracy")["lines"]
    assert [line["round"][-1] for line in lines] == [6, 4]
    assert [run["reached"] for run in found["runs"]] == [6, 2, 4]
    assert "1 run is not in the table and charts until as far as" in found["sections"]["runs"]
    assert "first 4 rounds" in found["sections"]["table"]
    assert sum(chart["maps"][0][0]["cells"]) == 6 * 4
    assert sum(chart["maps"][1][0]["cells"]) == 4 * 4


def test_damaged_and_half_written_folders_are_left_out_with_the_reason(tmp_path):
    root = study(tmp_path, policies=("uniform", "e3cs"), seeds=2)
    watch = LivePage(root)
    for i, (name, content) in enumerate(
        [("manifest.json", "{"), ("rounds.parquet", "PAR1"), ("selections.parquet", ""), ("manifest.json", "[]")]
    ):
        folder = root / "runs" / f"broken-{i}"
        shutil.copytree(root / "runs" / "uniform-0", folder)
        (folder / name).write_text(content)
    (root / "runs" / "odd").mkdir()
    (root / "runs" / "odd" / "manifest.json").mkdir()
    shutil.rmtree(root / "runs" / "broken-1" / "parts")
    found = news(watch)
    seen = [run for run in found["runs"] if run["state"] == "unreadable"]
    assert len(seen) >= 3
    assert all(run["why"] for run in seen)
    assert sorted(found["data"]["settings"][0]["policies"]) == ["e3cs", "uniform"]
    for folder in sorted(root.glob("runs/*")):
        if (folder / "rounds.parquet").exists():
            (folder / "rounds.parquet").write_bytes(b"")
    assert news(watch)["data"]["settings"] == []
    shutil.rmtree(root / "runs")
    assert news(watch)["state"] == "waiting"


def test_hostile_names_are_text(tmp_path):
    make(tmp_path / "runs" / "a", HOSTILE, about={"policy": HOSTILE})
    watch = LivePage(tmp_path)
    found = news(watch)
    for text in (watch.answer("/").body.decode(), *found["sections"].values()):
        assert "<script>alert" not in text
        assert "\u202e" not in text
    assert "&lt;script&gt;alert(1)" in found["sections"]["runs"]
    assert found["runs"][0]["policy"].startswith("<script>")  # in JSON it is text


def test_many_runs_are_listed_in_part_the_unfinished_first(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "LISTED", 2)
    root = study(tmp_path, policies=("uniform",), seeds=3)
    lengthen(root / "runs" / "uniform-2", 50)
    found = news(LivePage(root))
    assert len(found["runs"]) == 2
    assert found["runs"][0]["seed"] == 2
    assert "1 more runs are not listed" in found["sections"]["runs"]


def test_the_page_may_ask_its_own_server_and_no_other(tmp_path):
    text = LivePage(study(tmp_path, seeds=2)).answer("/").body.decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "connect-src" not in fp.load(tmp_path).page()


def test_beyond_this_machine_only_with_a_token(tmp_path):
    root = study(tmp_path, policies=("uniform",), seeds=1)
    result = CliRunner().invoke(app, ["watch", str(root), "--host", "0.0.0.0", "--port", "0"])
    assert isinstance(result.exception, fp.ConfigError)
    assert "a token is needed: set FEDPICK_TOKEN" in str(result.exception)
    result = CliRunner().invoke(app, ["watch", str(root / "none")])
    assert "there is no such folder" in str(result.exception)
    with serve(LivePage(root), "127.0.0.1", None, None) as one, serve(LivePage(root), "127.0.0.1", None, None) as two:
        assert one.port != two.port  # the usual one is taken


def test_an_open_page_gets_the_end(tmp_path):
    watch = LivePage(study(tmp_path, policies=("uniform",), seeds=1))
    begun = time.monotonic()
    watch.settle(60.0)  # no page is open: it does not wait
    assert time.monotonic() - begun < 30


def test_an_open_page_gets_the_end_even_if_reading_takes_long(tmp_path, monkeypatch):
    """The end comes while the folder is read for an earlier question: the next answer has it, and is waited for."""
    looks, reading, over, look = [], threading.Event(), threading.Event(), LivePage._look

    def slow(self):
        began = time.monotonic()
        reading.set()
        time.sleep(0.2)
        look(self)
        looks.append((began, time.monotonic()))

    monkeypatch.setattr(LivePage, "_look", slow)
    monkeypatch.setattr(live, "PAUSE", 1000.0)  # as on a busy machine: the next look would be put off for long
    watch = LivePage(study(tmp_path, policies=("uniform",), seeds=1))

    def page():
        while not over.wait(0.02):
            watch.answer("/news.json")

    asking = threading.Thread(target=page)
    asking.start()
    try:
        reading.wait()
        end = time.monotonic()
        watch.settle(60.0)
        assert any(began >= end for began, _ in looks)
    finally:
        over.set()
        asking.join()


# ---- as people use it


@contextmanager
def fedpick(*words):
    command = [sys.executable, "-m", "fedpick", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def address_in(process):
    for line in process.stdout:
        if found := re.search(r"http://\S+", line):
            return found.group(0)
    raise AssertionError(f"it ended with {process.wait()}")


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(tmp_path):
    root = study(tmp_path, policies=("uniform",), seeds=1)
    before = {file: file.stat().st_mtime_ns for file in root.rglob("*")}
    with fedpick("watch", str(root), "--port", "0") as process:
        with urllib.request.urlopen(address_in(process) + "news.json", timeout=30) as reply:
            assert json.load(reply)["state"] == "finished"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        said = process.stdout.read()
        assert "Traceback" not in said
        assert "ended; the runs go on" in said
    assert before == {file: file.stat().st_mtime_ns for file in root.rglob("*")}


@pytest.mark.slow
def test_a_browser_follows_a_running_comparison(tmp_path):
    compared = (
        "compare", "-p", "uniform", "-p", "e3cs(quota=0.5)", "--data", "none", "--rounds", "6000", "--seeds", "1",
        "--num-clients", "100", "--executor", "serial", "--out", str(tmp_path / "cmp"), "--watch",
    )  # fmt: skip
    with fedpick(*compared) as process:
        with opened(address_in(process), width=390) as page:
            page.wait_for_selector("#f-curves .curve", timeout=120_000)
            reached = "() => [...document.querySelectorAll('#runs td:nth-child(3)')].map((e) => e.textContent)"
            seen = {tuple(page.evaluate(reached))}
            page.select_option("#f-curves select", index=1)
            chosen = page.evaluate("() => document.querySelector('#f-curves figcaption').textContent")
            while page.inner_text("#state span") == "running" and len(seen) < 200:
                page.wait_for_timeout(250)
                seen.add(tuple(page.evaluate(reached)))
            assert len(seen) > 2, seen  # rounds came while it was open
            assert page.inner_text("#state span") == "finished"
            assert "2 runs: 2 finished." in page.inner_text("#runs")
            assert page.evaluate("() => document.querySelector('#f-curves figcaption').textContent") == chosen
            assert page.locator("#f-curves .curve").count() == 2
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            assert axe(page) == []
            said = list(page.said)
            process.wait(timeout=60)
            page.wait_for_function("() => document.querySelector('#state').textContent.includes('no contact')")
            assert said == []
            assert {urlsplit(each).hostname for each in page.asked} == {"127.0.0.1"}
        assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious_and_hostile_names_run_nothing(tmp_path, dark):
    make(tmp_path / "runs" / "a", HOSTILE, about={"policy": HOSTILE})
    make(tmp_path / "runs" / "b", "uniform")
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "manifest.json").write_text("<script>alert(2)</script>")
    watch = LivePage(tmp_path)
    with serve(watch, "127.0.0.1", 0, None) as server, opened(server.url, width=390, dark=dark) as page:
        page.wait_for_selector("#f-curves .curve")
        make(tmp_path / "runs" / "d", "e3cs")
        page.wait_for_function("() => document.querySelectorAll('.chip').length === 3")
        assert page.said == []
        assert page.evaluate("() => document.querySelectorAll('script').length") == 2
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert axe(page) == []
