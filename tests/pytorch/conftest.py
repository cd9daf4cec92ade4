"""Tests with PyTorch, which the environment for development lacks: `make test-torch` makes one that has it.

Elsewhere they are skipped. With CI=true a skip in that environment is a failure.
"""

import importlib.util
import os
from collections.abc import Iterator

import pytest

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "HF_HUB_OFFLINE": "1"}  # nothing leaves this machine

NEEDED = os.environ.get("FEDPICK_TORCH_TESTS") == "needed" and os.environ.get("CI") == "true"

if NEEDED and importlib.util.find_spec("torch") is None:
    raise ImportError("PyTorch is not in the environment that `make test-torch` made")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if NEEDED and report.skipped:
        report.outcome, report.longrepr = "failed", f"skipped, but CI=true: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    if NEEDED and report.skipped:
        report.outcome, report.longrepr = "failed", f"skipped, but CI=true: {report.longrepr}"
    return report
