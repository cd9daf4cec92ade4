"""Certificates: what they say is what a slow twin finds in the log, and a log with holes has none."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import store
from fedpick.store import Certificate, Record

DONE, LATE, FAILED = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED


def record(round, chosen, late=(), **rest):
    """A record: statuses of the chosen by number, and pairs (number, round in which it was chosen) of late updates."""
    ids, status = np.array(list(chosen), dtype=np.int64), np.array([int(each) for each in chosen.values()], np.int8)
    unknown = np.full(len(ids), np.nan)
    pairs = np.array(late, dtype=np.int64).reshape(-1, 2)
    rest = {"present": 5, "late_ids": pairs[:, 0], "late_rounds": pairs[:, 1]} | rest
    return Record(round, float(round), 1.0, 5, 0, 0.0, ids, unknown, status, unknown, unknown, **rest)


def folder_of(path, records, names=None, states=("1f3a9c02",)):
    with store.Tables(path, {"policy": "uniform", "seed": 0}) as tables:
        for state in states:
            tables.note({"state": state})
        for each in records:
            tables.write([each], [])
        if names is not None:
            tables.name_clients(names, np.ones(len(names)))
    return path


NAMES = ["ada", "bob", "cyd", "dan"]
LOG = [
    record(1, {0: DONE, 1: LATE, 2: FAILED}),
    record(2, {3: DONE}),
    record(3, {2: DONE}, late=[(1, 1)]),
    record(4, {0: DONE, 3: FAILED}),
    record(5, {}),
    record(6, {1: DONE, 3: DONE}),
]


def test_what_counts_is_when_an_update_was_used(tmp_path) -> None:
    made = Certificate.of(folder_of(tmp_path, LOG, NAMES))
    assert (made.rounds, made.separation, made.most) == (6, 3, 2)  # dan 2 and 6, bob 3 (of round 1) and 6, ada 1 and 4
    assert made.holds(3, 2)
    assert not made.holds(4)
    assert not made.holds(3, 1)
    with pytest.raises(fp.CheckError, match=r"updates of '(ada|bob)' were used in rounds . and ., but must be 4 apart"):
        made.check(tmp_path, made.salt, separation=4)
    with pytest.raises(fp.CheckError, match="updates of a client were used 2 times, but at most 1 are allowed"):
        made.check(tmp_path, made.salt, at_most=1)


def test_two_uses_in_one_round_are_no_distance(tmp_path) -> None:
    log = [record(1, {0: LATE}), record(2, {1: DONE}), record(3, {0: DONE}, late=[(0, 1)])]
    made = Certificate.of(folder_of(tmp_path, log, NAMES))
    assert (made.separation, made.most) == (0, 2)
    assert not made.holds(1)
    with pytest.raises(fp.CheckError, match="updates of 'ada' were used in rounds 3 and 3, but must be 1 apart"):
        made.check(tmp_path, made.salt)


uses = st.dictionaries(st.integers(0, 5), st.sampled_from([DONE, LATE, FAILED]), max_size=4)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(uses, min_size=1, max_size=8), data=st.data())
def test_it_is_what_a_twin_finds(tmp_path_factory, chosen, data) -> None:
    by_client, late = {}, {}
    for round, cohort in enumerate(chosen, 1):
        for client, status in cohort.items():
            used = round if status == DONE else None
            if status == LATE and data.draw(st.booleans()):
                used = data.draw(st.integers(round, len(chosen)))
                late.setdefault(used, []).append((client, round))
            if used is not None:
                by_client.setdefault(client, []).append(used)
    log = [record(round, cohort, late.get(round, ())) for round, cohort in enumerate(chosen, 1)]
    made = Certificate.of(folder_of(tmp_path_factory.mktemp("run"), log, [f"c{k}" for k in range(6)]))
    gaps = [b - a for rounds in by_client.values() for a, b in itertools.pairwise(sorted(rounds))]
    assert made.separation == min(gaps, default=None)
    assert made.most == max(map(len, by_client.values()), default=0)


def refused(folder, why) -> None:
    with pytest.raises(fp.CheckError, match=f"no guarantee: .*{why}"):
        Certificate.of(folder)


def test_a_name_with_two_numbers_is_no_guarantee(tmp_path) -> None:
    """It was forgotten in between, and its history with it; if nobody of that name took part, it does not matter."""
    again = folder_of(tmp_path / "again", LOG, ["ada", "bob", "cyd", "ada"])
    refused(again, r"'ada' has the numbers 0 and 3: it was forgotten, .* limits=Limits\(forget_after=None\)")
    idle = folder_of(tmp_path / "idle", LOG, [*NAMES, "eve", "eve"])
    assert Certificate.of(idle).separation == 3


@pytest.mark.parametrize("missing", range(len(LOG) - 1))
def test_a_gap_in_the_log_is_no_guarantee(tmp_path, missing) -> None:
    kept = LOG[:missing] + LOG[missing + 1 :]
    with store.Tables(tmp_path, {"policy": "uniform", "seed": 0}) as tables:
        after = 0
        for each in kept:
            tables.write([each], [], after)
            after = each.round
        tables.name_clients(NAMES, np.ones(4))
    refused(tmp_path, f"the log has a gap or a repetition at round {missing + 1}")


def test_a_state_that_was_replaced_is_no_guarantee(tmp_path) -> None:
    refused(
        folder_of(tmp_path, LOG, NAMES, ["1f3a9c02", "77aa0b1c"]), r"state was lost or replaced \(1f3a9c02, then 77"
    )


def test_what_is_not_known_is_no_guarantee(tmp_path) -> None:
    refused(folder_of(tmp_path / "nameless", LOG, ["ada", "bob", "", "dan"]), "client number 2 took part, and its name")
    refused(folder_of(tmp_path / "short", LOG, NAMES[:3]), "client number 3 took part, and its name is not known")
    old = [record(1, {0: DONE}, present=None), *LOG[1:]]
    refused(
        folder_of(tmp_path / "old", old, NAMES), "recorded by a version before 0.3, which did not record which late"
    )


def test_a_certificate_is_of_one_log_and_one_salt(tmp_path) -> None:
    made = Certificate.of(folder_of(tmp_path / "run", LOG, NAMES))
    made.save(tmp_path / "certificate.json")
    read = Certificate.load(tmp_path / "certificate.json")
    assert read == made
    assert read.salt == ""
    read.check(tmp_path / "run", made.salt, separation=3, at_most=2)
    with pytest.raises(fp.CheckError, match="one of them was changed, or the salt is another"):
        read.check(tmp_path / "run", made.salt[::-1])
    changed = {
        "a round less": (LOG[:-1], NAMES),
        "another name": (LOG, ["ada", "bob", "cyd", "eve"]),
        "another client": ([*LOG[:-1], record(6, {1: DONE, 2: DONE})], NAMES),
        "a use less": ([*LOG[:1], record(2, {3: LATE}), *LOG[2:]], NAMES),
        "another late one": ([*LOG[:2], record(3, {2: DONE}, late=[(1, 2)]), *LOG[3:]], NAMES),
    }
    for what, (log, names) in changed.items():
        with pytest.raises(fp.CheckError, match="one of them was changed"):
            read.check(folder_of(tmp_path / what, log, names), made.salt, separation=3)


def test_who_knows_all_other_rows_cannot_test_one_client(tmp_path) -> None:
    """Two certificates of one log differ, and nothing that is saved can be computed again without the salt."""
    folder_of(tmp_path / "run", LOG, NAMES)
    one, other = Certificate.of(tmp_path / "run"), Certificate.of(tmp_path / "run")
    assert one.digest != other.digest
    one.save(tmp_path / "one.json")
    stored = json.loads((tmp_path / "one.json").read_text())
    assert stored.keys() == {"rounds", "separation", "most", "digest"}
    assert len(one.salt) == 64
    assert one.salt not in (tmp_path / "one.json").read_text()
    assert one.salt not in repr(one)


def test_a_file_that_is_no_certificate_is_said(tmp_path) -> None:
    for text in ("{}", "[1]", '{"rounds": 1, "clients": 2}', "[" * 100_000, "\0"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(fp.CheckError, match="not a certificate"):
            Certificate.load(tmp_path / "x")


def test_a_simulated_run_has_one_too(tmp_path) -> None:
    from fedpick.experiment.config import Config
    from fedpick.experiment.executors import execute

    what = Config("min-separation(uniform, 3)", 2, 12, 1, {"name": "volatile", "num_clients": 9}, 4)
    made = Certificate.of(execute(what, tmp_path / "run"))
    assert made.rounds == 12
    assert made.separation is not None
    assert made.holds(3)
