"""CriticalFL: larger cohorts while training is in a critical period, around any policy.

Every two rounds the mean length of the cohort's updates is noted. A period is critical if the mean of the last ten of
these exceeds that of the ten before the last one by more than 1%, and in the first five checks. In a critical period
the cohort doubles, up to three quarters of all clients, until it was that large once; otherwise it halves, down to what
the policy inside asks for. These are the rules of the authors' code. There the list of means begins with twelve
zeros, so that lengths that never change look critical for ten checks; here windows hold only what was noted. There the
first check comes after the first round; so it does here.

The paper compares accuracy at equal bytes: compare this with a policy that uploads as much in all.

Cohorts of a size that changes cannot be combined with over-selection, which fixes how many answers are used. Without
rounds, the concurrency says how many clients work.

Trusts: the lengths of updates that clients report. A client that claims a huge one makes a period critical, at most
until the cohort was at its largest once.

The server learns the length of each update that it gets anyway, and under secure aggregation one number more for each
client of a cohort.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fedpick.core.errors import SettingError
from fedpick.core.protocol import Policy, ReportSpec, check_outcome, traits
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Outcome, View
from fedpick.policies._common import Wrapper, valid_losses
from fedpick.policies.about import About, Paper
from fedpick.policies.sizes import with_cohort_size

__all__ = ["CriticalFL", "CriticalFLState"]

PAPER = Paper(
    "yan2023criticalfl",
    "Yan, Gang and Wang, Hao and Yuan, Xu and Li, Jian",
    "{CriticalFL}: A Critical Learning Periods Augmented Client Selection Framework for Efficient Federated Learning",
    2023,
    "booktitle = {ACM SIGKDD Conference on Knowledge Discovery and Data Mining (KDD)}",
    "https://doi.org/10.1145/3580305.3599293",
)

S = TypeVar("S")
EVERY = 2  # rounds from one check to the next
WINDOW = 10  # checks
SURE = 5  # the first checks, which are critical
RISE = 0.01
LARGEST = 0.75  # of all clients


@dataclass
class CriticalFLState(Generic[S]):
    """The state of the policy inside, the size of cohorts, and the mean lengths noted."""

    inner: S
    size: int = shared_field()
    lengths: Floats = shared_field()  # the last eleven, the newest last; 0 before the first
    checks: int = shared_field()
    reached: int = shared_field()  # 1 once cohorts were as large as they may be


@dataclass(frozen=True, eq=False)
class CriticalFL(Wrapper, Generic[S]):
    """Any policy, with larger cohorts while the updates grow.

    Args:
        policy: chooses the clients; it must have a cohort size that can be changed.

    >>> import fedpick as fp
    >>> fp.policy("critical(uniform)", cohort_size=5).needs
    (ReportSpec(name='update_norm', width=0, unless=None, server=False, instead=''),)
    """

    policy: Policy[S]

    about = About(("critical",), PAPER, kind="wrapper")
    fixed_size = False
    grows = True  # see OverSelect
    rounds_only = "it changes the size of cohorts, but without rounds the concurrency says how many work"

    def __post_init__(self) -> None:
        about = traits(self.policy)
        if about.cohort_size is None or about.asks != about.cohort_size:
            raise SettingError(
                f"CriticalFL: {type(self.policy).__name__} has no cohort size that can be doubled, or asks more "
                "clients than are used; give a policy with a cohort_size, and no over-selection"
            )
        with_cohort_size(self.policy, 2 * about.cohort_size)  # raises here, not in round 3, if it has none to change

    @property
    def needs(self) -> tuple[str | ReportSpec, ...]:
        """What the policy inside needs, and the lengths of updates."""
        inside = traits(self.policy)
        reports = [each for each in inside.reports if each.name in inside.needs and each.name != "update_norm"]
        plain = sorted(inside.needs - {each.name for each in inside.reports})
        return (*plain, *reports, ReportSpec("update_norm", 0))

    def init(self, clients: Clients) -> CriticalFLState[S]:
        """Return the state before the first round."""
        with_cohort_size(self.policy, self._most(len(clients)))  # some settings bound it
        return CriticalFLState(self.policy.init(clients), self._least, np.zeros(WINDOW + 1), 0, 0)

    @property
    def _least(self) -> int:
        size = traits(self.policy).cohort_size
        assert size is not None
        return size

    def _most(self, clients: int) -> int:
        return max(int(LARGEST * clients), self._least)

    def _sized(self, state: CriticalFLState[S]) -> Any:
        return with_cohort_size(self.policy, int(state.size))

    def select(self, state: CriticalFLState[S], view: View, rng: np.random.Generator) -> Choice:
        """Let the policy inside choose a cohort of today's size."""
        choice: Choice = self._sized(state).select(state.inner, view, rng)
        return choice

    def observe(self, state: CriticalFLState[S], view: View, choice: Choice, outcome: Outcome) -> CriticalFLState[S]:
        """Let the policy inside learn; every two rounds, see whether the period is critical."""
        check_outcome(view, choice, outcome, replace=traits(self.policy).replace)
        inner = self._sized(state).observe(state.inner, view, choice, outcome)
        size, lengths, checks, reached = int(state.size), state.lengths, int(state.checks), int(state.reached)
        told = _lengths(outcome)
        if (view.round + 1) % EVERY == 0 and len(told):
            lengths, checks = np.append(lengths[1:], told.mean()), checks + 1
            most = self._most(len(view.clients))
            reached = max(reached, int(size >= most))
            if not _critical(lengths, checks):
                size = max(self._least, size - max(size // 2, 1))
            elif not reached:
                size = min(most, 2 * size)
        return CriticalFLState(inner, size, lengths, checks, reached)


def _lengths(outcome: Outcome) -> Floats:
    """The usable lengths that were reported."""
    said = np.asarray(outcome.reports.get("update_norm", np.zeros(0)), dtype=np.float64)
    if said.shape != outcome.loss.shape:
        return np.zeros(0)
    found: Floats = said[outcome.succeeded & valid_losses(said) & (said >= 0.0)]
    return found


def _critical(lengths: Floats, checks: int) -> bool:
    """Whether the newest ten means are above those one check earlier; what was not noted yet is left out."""
    if checks <= SURE:
        return True
    noted = lengths[-min(checks, len(lengths)) :]
    new, old = float(noted[-WINDOW:].mean()), float(noted[-WINDOW - 1 : -1].mean())
    return new > (1.0 + RISE) * old
