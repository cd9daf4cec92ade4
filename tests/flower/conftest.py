from types import SimpleNamespace

import pytest
from fake_flower import Clock
from flwr.app.message import arrayrecord
from flwr.supercore.task_identity import TaskIdentity

from fedpick.adapters import arrivals, quorum
from fedpick.adapters.flower import asynchronous
from fedpick.server import round, session, stream


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that only moves when the server sleeps."""
    fake = Clock()
    for module in (arrivals, asynchronous, quorum, round, session, stream):
        monkeypatch.setattr(module, "monotonic", fake.monotonic)
    for module in (arrivals, asynchronous, quorum):
        monkeypatch.setattr(module, "sleep", fake.sleep)
    for name in ("run_id", "task_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    return fake


@pytest.fixture(autouse=True)
def uncollected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower collects garbage after each array that it reads, which takes long in a large process."""
    monkeypatch.setattr(arrayrecord, "gc", SimpleNamespace(collect=lambda: 0))
