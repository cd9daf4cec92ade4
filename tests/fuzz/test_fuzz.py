"""A few steps of every attack of `make fuzz`, all crafted files, and whatever was ever found."""

from pathlib import Path

import numpy as np
import pytest
import servers
from campaigns import CAMPAIGNS, Finding, attacked

import fedpick as fp
from fedpick._support import git, web
from fedpick.server import journal, roster, storage
from fedpick.server import sizes as rule

STEPS = {"bits": 12, "resume": 5, "summary": 2, "session": 5, "state": 12, "texts": 12, "toml": 12, "separation": 1}
STEPS |= {"forged": 12, "told": 6}
STEPS |= {"sizes": 6, "crowd": 2, "heads": 20, "messages": 2, "rotten": 6, "forks": 3, "slow": 1}
KEPT = [line.split("#")[0].split() for line in (Path(__file__).parent / "found.txt").read_text().splitlines()]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.mark.parametrize("name", STEPS)
def test_an_attack_ends_with_the_right_result_or_a_clear_error(name):
    for number in range(STEPS[name]):
        CAMPAIGNS[name](number)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hostile", "data", "sources"])
def test_files_made_to_harm_are_refused(name):
    for number in range(70):
        CAMPAIGNS[name](number)


@pytest.mark.parametrize(("name", "number"), [(case[0], int(case[1])) for case in KEPT if case])
def test_what_was_found_once_is_not_found_again(name, number):
    CAMPAIGNS[name](number)


def test_a_traceback_is_a_finding_and_a_clear_error_is_none():
    with attacked("this"):
        raise __import__("fedpick").StateError("clear")
    with pytest.raises(Finding, match="this: ZeroDivisionError"), attacked("this"):
        _ = 1 / 0


def test_a_policy_that_keeps_no_distance_is_a_finding(monkeypatch):
    monkeypatch.setattr(fp, "policy", lambda text, cohort_size: fp.Uniform(cohort_size))
    with pytest.raises(Finding, match=r"Uniform\(cohort_size=.*: client \d+ took part in rounds"):
        CAMPAIGNS["separation"](1)


def followed():
    """The commit, as it was once read: from wherever HEAD points to."""
    head = Path(".git/HEAD").read_text() if Path(".git/HEAD").is_file() else ""
    file = Path(".git", head.removeprefix("ref:").strip()) if "\0" not in head and len(head) < 200 else Path("none")
    return file.read_text(errors="replace").strip() if file.is_file() else None


def joined(self, name, size=None):
    """Join, by a program that takes every name for a text."""
    if not hasattr(name, "strip"):
        raise AttributeError(f"{type(name).__name__} object has no attribute 'strip'")
    self.there[name] = (servers.time.monotonic(), size)
    return {}


@pytest.mark.parametrize(
    ("name", "owner", "part", "broken", "says"),
    [
        ("sizes", rule.Sizes, "of_clients", lambda self, clients: clients, "sizes count as"),
        ("sizes", rule.Sizes, "largest", lambda self, known: np.inf, "the liar has the weight"),
        ("crowd", roster.Roster, "_remembered", lambda self: np.zeros(len(self.seen), bool), "took part in rounds"),
        ("heads", git, "commit", followed, "the commit is said to be '0123456789"),
        ("rotten", journal, "_torn", lambda data, at: True, "bit .* it goes on after round"),
        ("forks", storage.Storage, "_forked", False, "a fork was answered b''"),
        ("slow", web._Listener, "service_actions", lambda self: None, "keep everybody out"),
    ],
)
def test_a_server_without_this_protection_is_a_finding(name, owner, part, broken, says, monkeypatch):
    monkeypatch.setattr(owner, part, broken)
    with pytest.raises(Finding, match=says):
        _ = [CAMPAIGNS[name](number) for number in range(60)]


def test_a_handler_of_messages_that_fails_is_a_finding(monkeypatch):
    monkeypatch.setattr(servers._example().Federation, "join", joined)
    with pytest.raises(Finding, match=r"a handler failed: .*AttributeError"):
        _ = [CAMPAIGNS["messages"](number) for number in range(10)]
