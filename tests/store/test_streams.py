"""The records of runs without rounds, and folders whose names are those of fedpick's own."""

from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from fedpick.core.errors import StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.store import Tables, read_rounds, read_selections, read_uses
from fedpick.store.audit import verify

PACE = "buffered(concurrency=6, size=3)"


def config(pace: str = PACE, rounds: int = 20) -> Config:
    return Config("uniform", 4, rounds, 7, {"name": "volatile", "num_clients": 20}, 5, pace=pace)


@pytest.mark.parametrize("finish", [True, False], ids=["joined", "in parts"])
def test_a_run_whose_folder_is_called_parts_is_read_like_any_other(tmp_path: Path, finish: bool) -> None:
    """Its joined tables lie in a folder of the name of the folder in which a run keeps its parts."""
    tables = {}
    for name in ("parts", "other"):
        folder = tmp_path / name
        execute(config("rounds"), folder)
        if not finish:
            whole = read_rounds(folder)
            for file in ("rounds.parquet", "selections.parquet"):
                last = whole["round"][-1].as_py()
                (folder / file).rename(folder / "parts" / f"{file.removesuffix('.parquet')}-{last:09d}.parquet")
        assert all(found.whole for found in verify(folder, str))
        tables[name] = [table.to_pandas() for table in (read_rounds(folder), read_selections(folder))]  # NaN is NaN
    assert all(one.equals(other) for one, other in zip(tables["parts"], tables["other"], strict=True))
    assert len(fp.load(tmp_path / "parts").runs) == 1


def test_a_part_of_another_name_is_still_refused_in_a_folder_called_parts(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    execute(config("rounds"), folder)
    for name in ("rounds", "selections"):
        (folder / f"{name}.parquet").rename(folder / "parts" / f"{name}-000000019.parquet")
    with pytest.raises(StoreError, match="not what its name says"):
        read_rounds(folder)


def test_uses_of_updates_without_rounds_say_which_version_each_was_of(tmp_path: Path) -> None:
    """An answer to version v that moves the model to version r was used in r, and could have been in v + 1."""
    execute(config(), tmp_path)
    uses, chosen = read_uses(tmp_path), read_selections(tmp_path).to_pylist()
    done = sorted((row["round"], row["client"], row["sent"] + 1) for row in chosen if row["status"] == "DONE")
    assert sorted(zip(*(uses[name].to_pylist() for name in ("round", "client", "sent")), strict=True)) == done
    assert max(used - sent for used, _, sent in done) > 0  # some were stale
    assert all(row["round"] - 1 - row["sent"] == row["staleness"] for row in chosen if row["status"] == "DONE")


def test_rows_of_rounds_are_there_beside_those_without(tmp_path: Path) -> None:
    """A server may go from one to the other: the columns of one are null in the rows of the other."""
    rounds, stream = tmp_path / "a", tmp_path / "b"
    execute(config("rounds", rounds=5), rounds)
    execute(config(rounds=5), stream)
    one = read_rounds(rounds)
    assert "flying" not in one.column_names
    assert read_rounds(stream)["flying"].null_count == 0
    with Tables(stream) as tables:
        record = fp.Record(6, 1e3, 1.0, 20, 2, 0.0, np.array([3]), *_one())
        tables.write([record], [])
    both = read_rounds(stream).to_pylist()
    assert [row["flying"] is None for row in both] == [False] * 5 + [True]
    assert read_uses(stream).to_pylist()[-1] == {"round": 6, "client": 3, "sent": 6}


def _one() -> tuple[np.ndarray, ...]:
    return np.array([0.2]), np.array([0], dtype=np.int8), np.array([1.0]), np.array([0.5])
