"""A plugin for pytest: plays only the tests named in a file, and says how each of them ended.

FEDPICK_MUTANTS_ONLY: a JSON file of `wanted` tests and of all that are `known`; one that is not known is played, too.
FEDPICK_MUTANTS_ENDED: where each test's outcome and its seconds are written.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

ended: dict[str, float | None] = {}  # seconds of a test that passed


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A failure is enough: Hypothesis need not look for the smallest example."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("fedpick"), phases=phases)
    settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (file := os.environ.get("FEDPICK_MUTANTS_ONLY")) is not None:
        only = json.loads(Path(file).read_text())
        wanted, known = set(only["wanted"]), set(only["known"])
        items[:] = [item for item in items if item.nodeid in wanted or item.nodeid not in known]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or ended.get(report.nodeid, 0.0) is None:
        ended[report.nodeid] = None
    elif not report.skipped:
        ended[report.nodeid] = (ended.get(report.nodeid) or 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and (file := os.environ.get("FEDPICK_MUTANTS_ENDED")) is not None:
        Path(file).write_text(json.dumps(ended))
