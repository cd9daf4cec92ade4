"""A plugin for pytest: a failure is enough, so Hypothesis need not look for the smallest example."""

import pytest
from hypothesis import Phase, settings


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("fedpick"), phases=phases)
    settings.load_profile("mutants")
