"""The manifest and the lock of a run's folder; its tables are tested where rounds are played into them."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedpick.core.errors import StoreError
from fedpick.store import Tables, read_manifest
from fedpick.store.manifest import last_entry


def test_a_configuration_with_tuples_paths_and_numpy_numbers_is_its_own(tmp_path: Path) -> None:
    odd = {"world": {"epochs": (1, 2), "deadline": np.float32(3.0), "where": Path("x")}, "rounds": 4}
    Tables(tmp_path, odd).close()
    Tables(tmp_path, odd).close()
    with Tables(tmp_path) as folder:
        assert folder.config == {"world": {"epochs": [1, 2], "deadline": 3.0, "where": "x"}, "rounds": 4}


def test_a_folder_that_is_no_runs_folder_is_refused(tmp_path: Path) -> None:
    text = f"{tmp_path}: is not a run's folder: it has no manifest.json; start a run with fedpick run"
    with pytest.raises(StoreError, match=re.escape(text)):
        Tables(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_about_a_run_is_added_to_and_what_changed_is_kept_in_order(tmp_path: Path) -> None:
    with Tables(tmp_path, {"seed": 1}) as store:
        store.note({"device": "cpu", "more": [1, 2]})
        written = (tmp_path / "manifest.json").stat().st_mtime_ns
        store.note({"device": "cpu"})
        assert (tmp_path / "manifest.json").stat().st_mtime_ns == written  # nothing new
        store.note({"device": "gpu: A", "more": [3], "played": "stacked"})
        store.note({"device": "gpu: A"})
    manifest = read_manifest(tmp_path)
    assert manifest["about"] == {"device": "cpu, then gpu: A", "more": [3], "played": "stacked"}
    assert manifest["config"] == {"seed": 1}
    assert last_entry(manifest["about"]["device"]) == "gpu: A"


def test_a_folder_is_locked_while_it_is_open_and_free_after_a_refusal(tmp_path: Path) -> None:
    with Tables(tmp_path, {"seed": 1}), pytest.raises(StoreError, match="another process is working in this folder"):
        Tables(tmp_path)
    with pytest.raises(StoreError, match=r"holds a run of another configuration \(None, seed 1\)"):
        Tables(tmp_path, {"seed": 2})
    Tables(tmp_path).close()
