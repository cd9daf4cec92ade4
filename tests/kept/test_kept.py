"""Files of earlier releases still open: runs, records, states and journals that `keep.py` wrote at each."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick._version import NUMBERS
from fedpick.cli.app import app
from fedpick.experiment.executors import execute
from fedpick.experiment.files import config_of
from fedpick.server import records
from fedpick.store import read_rounds
from fedpick.store.manifest import numbers_of, read_manifest

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").is_file())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    shutil.copytree(HERE / request.param, tmp_path / "kept")
    return tmp_path / "kept", json.loads((tmp_path / "kept" / "expected.json").read_text())


def test_there_are_some() -> None:
    assert "0.2" in VERSIONS


def test_they_are_whole(kept) -> None:
    from keep import told

    folder, expected = kept
    for name, where in (("finished", "finished"), ("left", "left"), ("records", "served/records")):
        assert told(folder / where) == expected[name]
    for where in ("finished", "left", "served/records", "served/state"):
        done = CliRunner().invoke(app, ["verify", str(folder / where)])
        assert done.exit_code == 0, done.output


def test_a_run_goes_on(kept) -> None:
    from keep import told

    folder, expected = kept
    older = numbers_of(read_manifest(folder / "left")) != NUMBERS
    with pytest.warns(UserWarning, match="seeds give other durations and failures") if older else nullcontext():
        execute(config_of(folder / "left"), folder / "left")
    after = told(folder / "left")
    reached = len(expected["left"]["rounds"]["round"])
    assert after["rounds"]["round"] == list(range(1, 13))
    assert {name: values[:reached] for name, values in after["rounds"].items()} == expected["left"]["rounds"]
    done = CliRunner().invoke(app, ["resume", str(folder / "finished")])
    assert done.exit_code == 0, done.output


def test_a_session_goes_on(kept, monkeypatch: pytest.MonkeyPatch) -> None:
    from keep import play, session

    folder, expected = kept
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)
    served = session(folder / "served")
    assert (served.round_number, served.names) == (expected["session"]["round"], expected["session"]["names"])
    np.testing.assert_allclose(served.roster.state.log_weights, expected["session"]["log_weights"], rtol=1e-12)
    play(served, 3)
    served.close()
    assert read_rounds(folder / "served" / "records")["round"].to_pylist() == list(range(1, 14))
