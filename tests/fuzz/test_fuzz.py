"""A few steps of every attack of `make fuzz`, all crafted files, and whatever was ever found."""

from pathlib import Path

import pytest
from campaigns import CAMPAIGNS, Finding, attacked

import fedpick as fp

STEPS = {"bits": 12, "resume": 5, "summary": 2, "session": 5, "state": 12, "texts": 12, "toml": 12, "separation": 1}
STEPS |= {"forged": 12, "told": 6}
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
