"""What a server's log says as a WARNING, with the remedy."""

import logging

import numpy as np
import pytest

import fedpick as fp
from fedpick.server import Lateness
from fedpick.store import read_rounds

NAMES = [f"site-{k}" for k in range(4)]


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def play(session: fp.Session, names=NAMES, fails=(), late=()) -> None:
    with session.round(names) as r:
        for name in r.chosen:
            if name in fails:
                r.failed(name, "broken")
            elif name not in late:
                r.done(name, loss=0.5)


def test_a_round_that_yields_nothing_is_a_warning_with_the_remedy(caplog) -> None:
    session = fp.Session(fp.Uniform(4), deadline=60.0)
    play(session)
    assert warnings(caplog) == []
    play(session, fails=NAMES[:3], late=NAMES[3:])
    assert warnings(caplog)[-1] == (
        "round 2: no update can be used, so that the model does not change; 3 failed: the lines before this one say "
        "why, mend that first; 1 did not answer in time: see that they run, or raise the deadline, which is 60 s"
    )
    caplog.clear()
    play(session, late=NAMES[:3])
    assert warnings(caplog) == []  # one update can be used
    with session.round(NAMES) as r:
        r.skip(NAMES)
    assert warnings(caplog)[-1].endswith("nobody was asked: see that the policy and your server ask someone")


def test_a_round_with_a_late_update_of_an_earlier_one_yields_something(caplog) -> None:
    session = fp.Session(fp.Uniform(2), late=Lateness(2, beta=0.0))
    with session.round(["ada", "bob"]) as r:
        r.done("ada", loss=0.5, update=[1.0])
    session.keep("bob", [2.0], round=1)
    with session.round(["ada"]) as r:
        assert [part.name for part in r.parts()] == ["bob"]
    assert warnings(caplog) == []


def test_a_restart_in_which_no_known_client_returns_is_a_warning(tmp_path, caplog) -> None:
    with fp.Session(fp.E3CS(2), state=tmp_path) as session:
        play(session)
    with fp.Session(fp.E3CS(2), state=tmp_path) as session:
        play(session, NAMES[3:])
        play(session, ["new"])  # not the first round
    assert warnings(caplog) == []
    with fp.Session(fp.E3CS(2), state=tmp_path) as session:
        play(session, ["phone-1", "phone-2"])
        play(session, ["phone-3"])
    assert len(warnings(caplog)) == 1
    assert warnings(caplog)[0] == (
        "round 4: none of the 5 clients known before the restart has returned: then 'site-0', now 'phone-1'. All 2 "
        "that are there are enrolled as new, and what was learned before is not used. If they are the same clients: "
        "give each client a name that stays the same when it, or the server, is restarted"
    )


def test_guard_is_suggested_once_for_a_client_that_keeps_failing(caplog) -> None:
    session = fp.Session(fp.Uniform(4))
    for _ in range(4):
        play(session, fails=["site-2"])
    assert not any("Guard" in each for each in warnings(caplog))
    play(session, fails=["site-2"])
    assert warnings(caplog)[-1].startswith(
        "round 5: site-2 failed or was late in each of the last 5 rounds in which it was asked, and will be asked "
        "again: fp.Guard asks such clients less often. Write fp.Guard(fp.Uniform(cohort_size=4)) in place of the policy"
    )
    for _ in range(6):
        play(session, fails=["site-2"], late=["site-3"])
    assert sum("Guard" in each for each in warnings(caplog)) == 1


@pytest.mark.parametrize(
    "policy",
    [fp.Guard(fp.Uniform(4)), fp.OverSelect(fp.Guard(fp.Uniform(4)), 1.0), fp.Guard(fp.OverSelect(fp.Uniform(3)))],
)
def test_guard_is_not_suggested_where_it_is(policy, caplog) -> None:
    session = fp.Session(policy)
    for _ in range(12):
        play(session, fails=["site-2"])
    assert not any("Write fp.Guard" in each for each in warnings(caplog))


def test_guard_is_not_suggested_for_interrupted_failures_nor_if_all_fail(caplog) -> None:
    session = fp.Session(fp.Uniform(4))
    for number in range(20):
        play(session, fails=["site-2"] if number % 5 else [])
    for _ in range(8):
        play(session, fails=NAMES)
    assert not any("Guard" in each for each in warnings(caplog))


def test_a_model_that_began_again_is_in_the_records_even_if_only_the_journal_has_them(tmp_path, caplog) -> None:
    def serve(records, **options) -> fp.Session:
        return fp.Session(fp.E3CS(2), state=tmp_path / "state", records=tmp_path / records, **options)

    model = {"w": np.ones(2)}
    with serve("run") as session, session.round(NAMES) as r:
        r.model = model
    with serve("run") as session:
        session.continuity.check_start({"w": np.ones(2)})
        assert warnings(caplog) == ["round 1: no update can be used, so that the model does not change; 2 did not "
                                    "answer in time: see that they run, or raise the deadline"]  # fmt: skip
        play(session)
    session = serve("run")
    session.continuity.check_start({"w": np.zeros(2)})
    assert warnings(caplog)[-1] == (
        "the state continues after round 2, but not with the model of that round: the server starts with another one. "
        "The policy goes on with what it learned about the clients while the model begins again, and curves in the "
        "records are of two trainings. To avoid this, give model='folder', to keep it, or start with the model of "
        "round 2"
    )
    play(session)
    session.storage.writer.close()  # killed before the record was written
    session.memory.unlock()
    with serve("run") as session:
        play(session)
    assert read_rounds(tmp_path / "run")["fresh_model"].to_pylist() == [None, None, 1.0, None]
