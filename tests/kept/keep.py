"""Write small files of each kind that fedpick writes, which all later versions must open: tests/kept/keep.py 0.2

Do this once for each release, before it is tagged, and commit the folder; test_kept.py opens all of them.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import fedpick as fp
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.server import records
from fedpick.store import Folder, read_rounds, read_selections

HERE = Path(__file__).parent
WHAT = Config("e3cs(quota=0.5)", 3, 12, 7, {"name": "volatile", "num_clients": 10}, 4)
NAMES = [f"phone-{k}" for k in range(6)]


def policy() -> fp.E3CS:
    """The session's."""
    return fp.E3CS(2, quota=0.3)


def session(folder: Path) -> fp.Session:
    """A session with its state and records in a folder."""
    limits = fp.server.Limits(checkpoint_every=4)
    return fp.Session(policy(), state=folder / "state", records=folder / "records", limits=limits)


def play(served: fp.Session, rounds: int) -> None:
    """Rounds in which the first chosen client fails."""
    for _ in range(rounds):
        with served.round(available=NAMES[: 3 + served.round_number % 4]) as r:
            for at, name in enumerate(r.chosen):
                _ = r.done(name, loss=at / 3, seconds=2.0, arrived=2.0) if at else r.failed(name)


def told(folder: Path) -> dict[str, Any]:
    """What the tables of a run say."""
    return {
        "rounds": read_rounds(folder, ["round", "chosen", "available"]).to_pydict(),
        "selections": read_selections(folder, ["round", "client", "status"]).to_pydict(),
    }


def main() -> None:
    """A finished run, one that was left, a server's records, and its state with a journal, as a kill leaves them."""
    out = HERE / sys.argv[1]
    shutil.rmtree(out, ignore_errors=True)
    execute(WHAT, out / "finished")
    with Folder(out / "left", WHAT.as_dict(), WHAT.checkpoint_every) as folder:
        run = WHAT.build()
        run.state = folder.restore(run.state, run.world.clients)
        for record in run.rounds(10):
            folder.append(record, run.state)
    records.WRITE_EVERY, records.MERGE_EVERY = 0.0, 3
    served = session(out / "served")
    play(served, 4)
    served.close()  # joined tables, then parts
    served = session(out / "served")
    play(served, 6)
    shutil.copytree(out / "served", out / "killed")
    weights = served.roster.state.log_weights.tolist()
    served.close()
    shutil.rmtree(out / "served")
    (out / "killed").rename(out / "served")
    for lock in [*out.rglob("*.lock"), *out.rglob("lock")]:
        lock.unlink()
    expected = {
        **{name: told(out / name) for name in ("finished", "left")},
        "records": told(out / "served" / "records"),
        "session": {"round": 10, "names": served.names, "log_weights": weights},
    }
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
