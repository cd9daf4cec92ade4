"""Shared by the figures of RBCS-F: section 6.1, 500 rounds without training."""

from collections.abc import Callable, Sequence
from typing import Any

from fedpick.studies._runs import play_scheme, scheme_items, scheme_runs
from fedpick.studies._study import Found, Item, Job, Measurement, Settings, Study

__all__ = ["BASE", "PAPER", "QUEUED", "QUICK", "SCHEMES", "SILENT", "by_name", "items", "study"]

PAPER = (
    "Huang, Lin, Wu, He, Li & Zomaya (2021), An Efficiency-Boosting Client Selection Scheme for Federated Learning "
    "with Fairness Guarantee, IEEE Transactions on Parallel and Distributed Systems"
)
SILENT = "the paper gives no V and no base of the logarithm in eta: we took V = 1, 10, 50, 100 and base 2 (Shannon)"


def _ours(penalty: int) -> str:
    return f"rbcs-f(penalty={penalty}, guarantee=0.15, ridge=1.0, exploration=0.1)"


QUEUED = {f"RBCS-F({v})": _ours(v) for v in (1, 10, 50, 100)}
SCHEMES = {"Random": "uniform", **QUEUED, "FedCS(3)": "fedcs(cohort_size=None, deadline=3.0)"}
BASE = {"clients": 40, "cohort_size": 8, "rounds": 500, "seeds": 20, "world": "rbcs-f"}
QUICK = {"seeds": 5}


def items(settings: Settings) -> Sequence[Item]:
    """An item for each scheme and seed."""
    return scheme_items(settings, [settings["world"]])


def by_name(settings: Settings, found: Found) -> dict[str, list[Measurement]]:
    """The measurements of each scheme, for each seed."""
    return {n: scheme_runs(settings, found, settings["world"], policy) for n, policy in settings["schemes"].items()}


def study(
    figure: str,
    title: str,
    schemes: dict[str, str],
    more: Settings,
    items: Callable[[Settings], Sequence[Item]] = items,
    job: Job = play_scheme,
    quick: Settings = QUICK,
    **functions: Any,
) -> Study:
    """One of the paper's figures."""
    return Study(
        id=f"rbcs-f/fig{figure}",
        title=title,
        paper=f"{PAPER}, Fig. {figure}",
        settings={**BASE, "schemes": schemes, **more},
        quick=quick,
        items=items,
        job=job,
        **functions,
    )
