"""Every file of a run says what it is and has a sum: damage, a wrong place and another run are seen."""

import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import fedpick as fp
from fedpick._support import atomic
from fedpick.cli.app import app
from fedpick.core.errors import StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.experiment.files import config_of
from fedpick.store import Folder, parquet, read_rounds, read_selections
from fedpick.store.manifest import identity, summed_json
from fedpick.store.parquet import Label, read_sealed, write_sealed


def config(seed: int = 1, policy: str = "e3cs(quota=0.5)", rounds: int = 12) -> Config:
    return Config(policy, 3, rounds, seed, {"name": "volatile", "num_clients": 10}, 5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and two that were left at round 10 of 12."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        execute(config(), root / "whole")
        for seed in (1, 2):
            what = config(seed)
            with Folder(root / f"half-{seed}", what.as_dict(), 5) as folder:
                run = what.build()
                run.state = folder.restore(run.state, run.world.clients)
                for record in run.rounds(10):
                    folder.append(record, run.state)
    return root


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs"


def refused(folder: Path, text: str) -> None:
    """Neither read nor gone on with."""
    for act in (lambda: (read_rounds(folder), read_selections(folder)), lambda: execute(config_of(folder), folder)):
        with pytest.raises(StoreError, match=re.escape(text)):
            act()


def test_other_tools_read_the_tables(runs: Path) -> None:
    assert pq.read_table(runs / "whole" / "rounds.parquet")["round"].to_pylist() == list(range(1, 13))
    assert read_sealed(runs / "whole" / "rounds.parquet").label == Label(
        "rounds", json.loads((runs / "whole" / "manifest.json").read_text())["run"], 1, 12
    )


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 16, 50])
def test_the_bytes_do_not_depend_on_how_the_rows_are_cut(rows: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(parquet, "GROUP", 8)
    status = pa.DictionaryArray.from_arrays(pa.array([k % 3 for k in range(rows)], pa.int8()), ["a", "b", "c"])
    table, label = pa.table({"round": pa.array(range(rows), pa.int64()), "status": status}), Label("x", "y", 1, 50)
    write_sealed(tmp_path / "whole", table, label)
    found = read_sealed(tmp_path / "whole")
    assert found.table().to_pylist() == table.to_pylist()
    groups = [found.file.metadata.row_group(k).num_rows for k in range(found.file.num_row_groups)]
    assert groups == [8] * ((rows - 1) // 8) + [(rows - 1) % 8 + 1] if rows else groups == [0]
    for size in (1, 3, 8, 20):
        write_sealed(tmp_path / "cut", (table.slice(at, size) for at in range(0, max(rows, 1), size)), label)
        assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
        assert pa.concat_tables(found.pieces()).to_pylist() == table.to_pylist() if rows else not list(found.pieces())


def test_a_disk_that_is_full_in_the_middle_of_a_table_leaves_the_old_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(parquet, "GROUP", 8)
    path, label = tmp_path / "t.parquet", Label("x", "y", 1, 50)
    write_sealed(path, pa.table({"round": range(3)}), label)
    before, opened = path.read_bytes(), atomic.opened

    class Full:
        """A file that takes so many writes."""

        def __init__(self, file, left: int) -> None:
            self.file, self.left = file, left

        def write(self, content: bytes) -> None:
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left -= 1
            self.file.write(content)

        def __enter__(self):
            return self

        def __exit__(self, *exception: object) -> None:
            self.file.close()

    for left in range(5):  # groups of 8, 8 and 4 rows, then the sum and the footer
        monkeypatch.setattr(atomic, "opened", lambda path, mode, left=left: Full(opened(path, mode), left))
        with pytest.raises(OSError, match="No space left"):
            write_sealed(path, pa.table({"round": range(20)}), label)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(atomic, "opened", opened)
    write_sealed(path, pa.table({"round": range(20)}), label)
    assert read_sealed(path).table()["round"].to_pylist() == list(range(20))


def test_a_flipped_bit_anywhere_is_seen(runs: Path, tmp_path: Path) -> None:
    good = (runs / "whole" / "selections.parquet").read_bytes()
    expected = pq.read_table(runs / "whole" / "selections.parquet")
    rng, unseen = random.Random(1), 0
    for _ in range(60):
        data, bit = bytearray(good), rng.randrange(8 * len(good))
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / "t.parquet").write_bytes(data)
        try:
            unseen += not read_sealed(tmp_path / "t.parquet").table().equals(expected)
        except StoreError:
            continue
    assert unseen == 0


def test_a_part_over_another_is_seen(copy: Path) -> None:
    parts = copy / "half-1" / "parts"
    shutil.copy(parts / "rounds-000000005.parquet", parts / "rounds-000000010.parquet")
    refused(copy / "half-1", "rounds-000000010.parquet: holds rounds 1 to 5, which is not what its name says")


def test_a_part_of_another_table_or_run_is_seen(copy: Path) -> None:
    mine, other = copy / "half-1" / "parts", copy / "half-2" / "parts"
    keep = (mine / "rounds-000000010.parquet").read_bytes()
    shutil.copy(mine / "selections-000000010.parquet", mine / "rounds-000000010.parquet")
    refused(copy / "half-1", "is a table of selections of another run, or of another place")
    (mine / "rounds-000000010.parquet").write_bytes(keep)
    shutil.copy(other / "selections-000000010.parquet", mine / "selections-000000010.parquet")
    refused(copy / "half-1", "is a table of selections of another run, or of another place")


def test_a_part_that_is_missing_in_between_is_seen(copy: Path) -> None:
    for name in ("rounds", "selections"):
        (copy / "half-1" / "parts" / f"{name}-000000005.parquet").unlink()
    refused(copy / "half-1", "its rounds of rounds 1 to 5 are not there; files were removed or changed")


def test_an_older_copy_of_one_table_is_seen(copy: Path, tmp_path: Path) -> None:
    shorter = execute(config(rounds=6), tmp_path / "shorter")
    shutil.copy(shorter / "selections.parquet", copy / "whole" / "selections.parquet")
    with pytest.raises(StoreError, match="its selections of rounds 7 to 12 are not there"):
        read_rounds(copy / "whole")


def test_a_table_without_a_sum_is_refused(copy: Path) -> None:
    path = copy / "whole" / "rounds.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(StoreError, match="it has no checksum: it was not written by fedpick"):
        read_rounds(copy / "whole")


def test_columns_under_other_names_are_one_line(copy: Path) -> None:
    path = copy / "whole" / "selections.parquet"
    table, label = pq.read_table(path), read_sealed(path).label
    assert label is not None
    write_sealed(path, table.rename_columns([f"my {name}" for name in table.column_names]), label)
    with pytest.raises(StoreError, match="has no column"):
        fp.load(copy / "whole").table()


@pytest.mark.parametrize(("name", "column"), [("rounds", "round"), ("rounds", "chosen"), ("selections", "round")])
def test_a_table_without_a_whole_number_in_each_row_is_not_gone_on_with(copy: Path, name: str, column: str) -> None:
    """A null, fractions, or no such column at all."""
    path = sorted((copy / "half-1" / "parts").glob(f"{name}-*.parquet"))[0]
    table, label = read_sealed(path).table(), read_sealed(path).label
    at, whole = table.column_names.index(column), table[column].to_pylist()
    assert label is not None
    for values in (pa.array([None, *whole[1:]], pa.int64()), pa.array(whole, pa.float64()), None):
        changed = table.drop_columns([column]) if values is None else table.set_column(at, column, values)
        write_sealed(path, changed, label)
        text = rf"{path.name}: has no column '{column}' of whole numbers; restore it from a backup"
        with pytest.raises(StoreError, match=text):
            execute(config_of(copy / "half-1"), copy / "half-1")


# --- a checkpoint belongs to its configuration


@pytest.mark.parametrize("change", [{"seed": 2}, {"policy": "e3cs(quota=0.9)"}, {"cohort_size": 4}])
def test_settings_changed_in_the_manifest_are_refused(change: dict[str, object], copy: Path) -> None:
    file = copy / "half-1" / "manifest.json"
    content = json.loads(file.read_text())
    content["config"] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="it was changed after it was written, its sum is another"):
        execute(config_of(copy / "half-1"), copy / "half-1")
    del content["sum"]  # whoever makes a new sum, and a new hash, meets the old one in every other file
    file.write_text(summed_json({**content, "run": identity(content["config"])}))
    with pytest.raises(StoreError, match="another run"):
        execute(config_of(copy / "half-1"), copy / "half-1")


def test_a_checkpoint_of_another_run_is_refused(copy: Path) -> None:
    shutil.copy(copy / "half-2" / "checkpoint.npz", copy / "half-1" / "checkpoint.npz")
    with pytest.raises(StoreError, match="is of another run; a run's settings cannot be changed later"):
        execute(config(), copy / "half-1")


def test_more_rounds_and_other_steps_are_the_same_run(copy: Path) -> None:
    execute(Config(**{**config().as_dict(), "checkpoint_every": 3, "rounds": 14}), copy / "half-1")
    assert read_rounds(copy / "half-1").num_rows == 14


def test_a_run_of_a_version_to_come_is_refused(copy: Path) -> None:
    file = copy / "whole" / "manifest.json"
    content = json.loads(file.read_text())
    del content["sum"]
    file.write_text(summed_json({**content, "fedpick": "99.1.0"}))
    with pytest.raises(StoreError, match=r"was written by fedpick 99\.1\.0, but this is fedpick .*; upgrade"):
        read_rounds(copy / "whole")


# --- fedpick verify


def test_verify_says_what_is_whole_and_what_is_not(copy: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(copy)])
    assert found.exit_code == 0, found.output
    assert "NOT" not in found.output
    path = copy / "half-1" / "parts" / "rounds-000000005.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    found = CliRunner().invoke(app, ["verify", str(copy)])
    assert found.exit_code == 1
    assert found.output.count("NOT") == 1


def test_verify_lists_of_several_runs_those_with_problems(copy: Path) -> None:
    study = copy / "e3cs" / "fig4"
    study.mkdir(parents=True)
    (study / "manifest.json").write_text('{"study": "e3cs/fig4"}')
    (study / "result.json").write_text("{}")
    found = CliRunner().invoke(app, ["verify", str(copy)])
    assert found.exit_code == 0, found.output
    number, of = re.fullmatch(r"(\d+) of (\d+) are whole, in \d+ folders\n", found.output).groups()
    assert number == of
    (study / "result.json").write_text("{")
    for name in ("checkpoint.npz", "clients.parquet"):
        (copy / "whole" / name).write_bytes(b"")
    found = CliRunner().invoke(app, ["verify", str(copy)])
    assert found.exit_code == 1
    assert found.output.count("NOT") == 2  # one line a folder
    said = " ".join(found.output.replace("│", " ").split())
    assert "checkpoint.npz: " in said
    assert "and 1 more" in said
    assert f"{int(of) - 3} of {of} are whole" in said


def test_verify_reads_a_server_s_state_and_its_journal(tmp_path: Path) -> None:
    session = fp.Session(fp.Uniform(2), state=tmp_path / "state")
    with session.round(available=["a", "b", "c"]) as r:
        for name in r.chosen:
            r.done(name, loss=1.0, seconds=1.0)
    session.close()
    found = CliRunner().invoke(app, ["verify", str(tmp_path / "state")])
    assert found.exit_code == 0, found.output
    assert "1 rounds" in found.output
    content = bytearray((tmp_path / "state" / "state.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "state" / "state.npz").write_bytes(content)
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "state")]).exit_code == 1


def test_verify_of_nothing_is_one_line(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert "holds neither runs nor a server's state" in str(found.exception)


@pytest.mark.parametrize(("old", "new"), [('"seed": 1', '"seed": 2'), ("quota=0.5", "quota=0.9")])
def test_a_manifest_that_was_edited_and_made_to_look_whole_is_refused(copy: Path, old: str, new: str) -> None:
    path = copy / "half-1" / "manifest.json"
    text = path.read_text()
    assert old in text
    content = json.loads(text.replace(old, new))
    del content["sum"]
    path.write_text(summed_json(content))
    refused(copy / "half-1", "its configuration is not that of the run")
    path.write_text(json.dumps(content, indent=1))  # as one from before there were sums, but for its "run"
    refused(copy / "half-1", "it was changed after it was written, its sum is gone")


THREADS = """
import os, sys
from pathlib import Path
from fedpick.store.parquet import read_sealed

def threads():
    names = (Path(f"/proc/self/task/{each}/comm").read_text() for each in os.listdir("/proc/self/task"))
    return sum("jemalloc" not in name for name in names)

before = threads()
rows = len(read_sealed(Path(sys.argv[1])).table())
print(rows, threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_no_thread_of_arrow_s_is_left_to_free_our_bytes_while_python_exits(tmp_path: Path) -> None:
    """One in some hundred processes was aborted at its end, after its work was done."""
    table = pa.table({"round": list(range(1, 1001)), "seconds": [0.5] * 1000})
    write_sealed(tmp_path / "rounds.parquet", table, Label("rounds", "run", 1, 1000))
    command = [sys.executable, "-c", THREADS, str(tmp_path / "rounds.parquet")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["1000", "0"]


def test_a_row_that_holds_a_list_of_millions_is_refused_unread(tmp_path):
    values = pa.array(np.zeros(2**27 + 1, np.int8))
    column = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    file = tmp_path / "rounds.parquet"
    write_sealed(file, pa.table({"round": [1], "late_clients": column}), Label("rounds", "x", 1, 1))
    assert file.stat().st_size < 100_000
    with pytest.raises(fp.StoreError, match="claims 134217729 values of a column in"):
        read_sealed(file)
