"""Traces: spells of presence from CSV and Parquet, and what is wrong with those that cannot be used."""

import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.worlds import PerClient, Reliable, Trace, World
from fedpick.worlds.trace import read_trace

SPELLS = [(0, 0.0, 10.0), (0, 10.0, 20.0), (2, 5.0, 6.5), (1, 15.0, math.inf)]


def write(path, spells, columns=("client", "start", "end")):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [s[i] for s in spells] for i, name in enumerate(columns)}), path)
    else:
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, spell)) for spell in spells)]) + "\n")
    return path


def there(part, round=1, clock=0.0, count=4):
    clients, rng = fp.Clients(np.ones(count)), np.random.default_rng(0)
    memory = part.init(clients, rng)
    mask = part.mask(memory, part.draw(memory, clients, round, rng), clients, round, clock)
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("name", ["trace.csv", "trace.parquet"])
def test_start_is_in_and_end_is_out(tmp_path, name):
    part = Trace(write(tmp_path / name, SPELLS))
    assert there(part, clock=0.0) == [0]
    assert there(part, clock=4.999) == [0]
    assert there(part, clock=5.0) == [0, 2]
    assert there(part, clock=6.5) == [0]
    assert there(part, clock=10.0) == [0]  # one spell ends, the next begins
    assert there(part, clock=15.0) == [0, 1]
    assert there(part, clock=20.0) == [1]
    assert there(part, clock=1e9) == [1]  # and client 3, without spells, never


@pytest.mark.parametrize("name", ["trace.csv", "trace.parquet"])
def test_rounds_are_the_unit_if_asked(tmp_path, name):
    part = Trace(write(tmp_path / name, [(0, 1, 3), (1, 3, 4)]), unit="rounds")
    assert [there(part, round=t, clock=77.0) for t in range(1, 6)] == [[0], [0], [1], [], []]


def test_seconds_repeat_from_zero(tmp_path):
    part = Trace(write(tmp_path / "t.csv", [(0, 0, 4), (1, 6, 10)]), repeat=10.0)
    for day in range(3):
        assert [there(part, clock=10.0 * day + s) for s in (0.0, 3.9, 4.0, 6.0, 9.9)] == [[0], [0], [], [1], [1]]


def test_rounds_repeat_from_one_so_that_the_last_is_played(tmp_path):
    part = Trace(write(tmp_path / "t.csv", [(0, 1, 2), (1, 2, 3), (2, 3, 4)]), unit="rounds", repeat=3)
    assert [there(part, round=t) for t in range(1, 8)] == [[0], [1], [2], [0], [1], [2], [0]]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_any_trace_says_what_a_loop_over_its_spells_says(tmp_path, data):
    spells = []
    for client in range(data.draw(st.integers(1, 4))):
        cuts = sorted(data.draw(st.sets(st.integers(0, 40), min_size=2, max_size=8)))
        spells += [(client, a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    spells = data.draw(st.permutations(spells))
    repeat = data.draw(st.sampled_from([None, 7.0, 40.0]))
    part = Trace(write(tmp_path / data.draw(st.sampled_from(["t.csv", "t.parquet"])), spells), repeat=repeat)
    clock = data.draw(st.floats(0, 100))
    now = clock if repeat is None else math.fmod(clock, repeat)
    assert there(part, clock=clock, count=5) == sorted({who for who, a, b in spells if a <= now < b})


def test_a_mark_at_the_start_spaces_and_more_columns_do_no_harm(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfclient, start, end, note\n1, 0, 5, hello\n\n")
    assert there(Trace(tmp_path / "t.csv")) == [1]


def test_whole_numbers_kept_as_floats_in_parquet_are_clients(tmp_path):
    assert there(Trace(write(tmp_path / "t.parquet", [(2.0, 0.0, 1.0)]))) == [2]


def test_the_server_waits_until_the_trace_has_someone(tmp_path):
    path = write(tmp_path / "t.csv", [(0, 100, 150)])
    world = World(
        fp.Clients([1.0, 1.0]),
        availability=Trace(path),
        volatility=Reliable(),
        latency=PerClient(20.0),
        deadline=None,
        epochs=(1,),
        wait=30.0,
    )
    records = list(fp.Run(fp.Uniform(1), world).rounds(8))
    assert [r.available for r in records] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [r.clock for r in records] == [30.0, 60.0, 90.0, 120.0, 140.0, 160.0, 190.0, 220.0]


def refused(path, count=3):
    with pytest.raises(fp.errors.ContractError) as caught:
        read_trace(path, count)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "no.csv"
    assert refused(path) == f"{path}: there is no such trace; give a CSV or Parquet file with client, start, end"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_column_that_is_missing(tmp_path, name):
    path = write(tmp_path / name, [(0, 1, 2)], ("client", "start", "stop"))
    assert refused(path) == (
        f"{path}: has no column 'end', its columns are ['client', 'start', 'stop']; a trace has the columns client, "
        "start, end"
    )


def test_an_empty_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("")
    assert "has no column 'client', its columns are []" in refused(path)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_trace_without_spells(tmp_path, name):
    path = write(tmp_path / name, [])
    assert refused(path) == f"{path}: has no intervals, so no client would ever be available; write one per line"


@pytest.mark.parametrize(
    ("name", "spell", "shown"),
    [
        ("t.csv", ("x", 1, 2), "('x', '1', '2')"),
        ("t.csv", (1.5, 1, 2), "('1.5', '1', '2')"),
        ("t.csv", (1, "soon", 2), "('1', 'soon', '2')"),
        ("t.csv", (1, 2), "('1', '2', None)"),
        ("t.parquet", (1.5, 1.0, 2.0), "(1.5, 1.0, 2.0)"),
        ("t.parquet", (math.inf, 1.0, 2.0), "(inf, 1.0, 2.0)"),
        ("t.parquet", (math.nan, 1.0, 2.0), "(nan, 1.0, 2.0)"),
        ("t.parquet", (None, 1.0, 2.0), "(None, 1.0, 2.0)"),
    ],
)
def test_a_number_that_cannot_be_read(tmp_path, name, spell, shown):
    path = write(tmp_path / name, [spell])
    assert refused(path) == f"{path}, interval 1: cannot read {shown}; write a client's number and two times"


@pytest.mark.parametrize("who", [3, -1, 10**30])
def test_a_client_out_of_range(tmp_path, who):
    path = write(tmp_path / "t.csv", [(0, 1, 2), (who, 1, 2)])
    assert refused(path) == f"{path}, interval 2: client {who}, but clients are numbered 0 to 2"


@pytest.mark.parametrize(("start", "end"), [(2, 1), (2, 2), ("nan", 3), (1, "nan")])
def test_a_spell_that_does_not_end_after_it_starts(tmp_path, start, end):
    path = write(tmp_path / "t.csv", [(0, 0, 1), (0, start, end)])
    assert refused(path) == f"{path}, interval 2: starts at {start} and ends at {end}, but must end after it starts"


@pytest.mark.parametrize(
    "spells",
    [
        [(1, 1700000001, 1700000009), (0, 0, 1), (1, 1700000003, 1700000004)],
        [(1, 1700000003, 1700000004), (1, 1700000001, 1700000009), (1, 1700000009, 1700000011)],
    ],
)
def test_spells_that_overlap(tmp_path, spells):
    path = write(tmp_path / "t.csv", spells)
    assert refused(path) == (
        f"{path}: client 1 has overlapping intervals [1700000001, 1700000009) and [1700000003, 1700000004); "
        "join them into one"
    )


def test_a_parquet_file_that_is_none(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("client,start,end\n")
    message = refused(path)
    assert message.startswith(f"{path}: is not a Parquet file (")
    assert message.endswith("); write it again")


def test_a_parquet_file_under_another_name(tmp_path):
    write(tmp_path / "t.parquet", SPELLS).rename(tmp_path / "t.csv")
    message = refused(tmp_path / "t.csv")
    assert message.startswith(f"{tmp_path / 't.csv'}: ")
    assert "a Parquet file's name must end in .parquet" in message or "has no column 'client'" in message


def test_a_wrong_trace_stops_the_world_at_its_start(tmp_path):
    with pytest.raises(fp.errors.ContractError, match="there is no such trace"):
        World(availability=Trace(tmp_path / "no.csv")).init(0)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", SPELLS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        fp.errors.MissingError, match=r"reading Parquet needs pyarrow: pip install 'fedpick\[cli\]', or"
    ):
        read_trace(path, 3)
