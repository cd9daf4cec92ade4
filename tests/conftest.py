"""What holds for all tests: Hypothesis draws the same examples every time, and no machine is too slow for it."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fedpick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("fedpick")
