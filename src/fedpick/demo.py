"""Two short comparisons that show when selection matters, and what it costs; `fedpick demo` runs them.

Each scene ends in a sentence that is made from its numbers, whatever they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpick.experiment.plan import Experiment

__all__ = ["SCENES", "Scene"]

_DIGITS = {"name": "digits", "partition": "labels-per-client(2)"}


@dataclass(frozen=True)
class Scene:
    """A question, the comparison that answers it, and the answer in words.

    Args:
        name: of its folder.
        question: what is asked, in words.
        about: what a reader should know about the setting.
        experiment: the runs.
        target: test accuracy of the columns "rounds to" and "hours to".
        answer: results (`Results.data`) -> sentences.
    """

    name: str
    question: str
    about: str
    experiment: Experiment
    target: float
    answer: Callable[[Mapping[str, Any]], str]


def _row(data: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    rows: Sequence[Mapping[str, Any]] = data["rows"]
    return next(row for row in rows if row["policy"] == policy)


def _pair(data: Mapping[str, Any], policy: str, score: str, digits: int, unit: str = "", times: float = 1.0) -> str:
    """The means of a policy and of the reference, and what the seeds say about the difference; `times` as much."""
    mine, theirs = (_row(data, name)["scores"].get(score) for name in (policy, data["reference"]))
    if not mine or not theirs or mine["mean"] is None or theirs["mean"] is None:
        return "not known"  # for instance a target that was not reached
    means = f"{times * mine['mean']:.{digits}f} against {times * theirs['mean']:.{digits}f}{unit}"
    gap = mine.get("difference")
    if not gap or gap["half"] is None:
        return means
    shown = f"{times * gap['mean']:+.{digits}f} ±{times * gap['half']:.{digits}f}"
    return f"{means} ({shown})" if gap["clear"] else f"{means} ({shown}: these seeds show no difference)"


def _biased(data: Mapping[str, Any]) -> str:
    accuracy, rounds = _pair(data, "fedgs", "accuracy", 3), _pair(data, "fedgs", "rounds_to", 0, " rounds")
    worst = _pair(data, "e3cs(quota=0.5)", "worst_decile", 3)
    return (
        f"With fedgs instead of uniform, the test accuracy is {accuracy}, and {data['target']:.0%} takes {rounds}. "
        "With e3cs(quota=0.5), which prefers clients that are often available, the accuracy of the worst tenth of "
        f"clients is {worst}."
    )


def _slow(data: Mapping[str, Any]) -> str:
    smart, blunt = (
        _pair(data, name, "hours_to", 1, " simulated minutes", 60.0) for name in ("rbcs-f", "over-select(uniform, 1.3)")
    )
    return (
        f"With rbcs-f instead of uniform, {data['target']:.0%} test accuracy takes {smart}; with "
        f"over-select(uniform, 1.3), {blunt}. Who pays: fedcs always takes the fastest clients, and the accuracy of "
        f"the worst tenth of clients is {_pair(data, 'fedcs', 'worst_decile', 3)}."
    )


SCENES = (
    Scene(
        "biased",
        "Clients with some labels are away more often. Does it matter which of the others train?",
        "50 clients with two digits each, 10 per round; clients with small digits are available less often. This is "
        "one of FedGS's own worlds: elsewhere its gain is smaller.",
        Experiment(
            policy=["uniform", "fedgs", "pow-d", "e3cs(quota=0.5)"],
            world="fedgs-ymf(num_clients=50)",
            cohort_size=10,
            data=_DIGITS,
            rounds=100,
            seeds=5,
        ),
        0.8,
        _biased,
    ),
    Scene(
        "slow",
        "Some devices are slow, and a round waits for its slowest. How much time does selection save, and who pays?",
        "40 clients in four classes of speed (RBCS-F's world) with two digits each, 8 per round.",
        Experiment(
            policy=["uniform", "rbcs-f", "over-select(uniform, 1.3)", "fedcs"],
            world="rbcs-f",
            cohort_size=8,
            data=_DIGITS,
            rounds=100,
            seeds=5,
        ),
        0.9,
        _slow,
    ),
)
