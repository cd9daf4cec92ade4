"""What holds for all tests.

Hypothesis draws the same examples every time, and no machine is too slow for it; runs overwrite every state that was
given to `observe`, so that whoever goes on using one is found out.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fedpick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("fedpick")

os.environ.setdefault("FEDPICK_DEBUG", "1")
