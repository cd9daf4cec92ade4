import pytest
from fake_flower import Clock
from flwr.supercore.task_identity import TaskIdentity

from fedpick.flower import grids, presence, strategy


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that only moves when the server sleeps."""
    fake = Clock()
    for module in (grids, presence):
        monkeypatch.setattr(module, "monotonic", fake.monotonic)
        monkeypatch.setattr(module, "sleep", fake.sleep)
    monkeypatch.setattr(strategy, "monotonic", fake.monotonic)
    for name in ("run_id", "task_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    return fake
