"""Simulate runs: one round (`round`), many rounds (`run`), several runs in one compiled call (`together`)."""

from fedpick.simulate.run import Run, check_fit, policy_for

__all__ = ["Run", "check_fit", "policy_for"]
