"""FedCS, an oracle: knows how reliable or how fast the clients are, and takes the best.

In the two forms that later papers use as a baseline: E3CS's (the k highest success rates, always the same clients) and
RBCS-F's (all clients whose expected time c'theta* is below the deadline).

Trusts: nothing that clients report; it does not learn.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.errors import ContractError, MissingError, SettingError
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, Truth, nobody, present, truth
from fedpick.policies.about import About, Paper

__all__ = ["FedCS", "FedCSState"]

PAPER = Paper(
    "nishio2019client",
    "Nishio, Takayuki and Yonetani, Ryo",
    "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
    2019,
    "booktitle = {IEEE International Conference on Communications (ICC)}",
    "https://arxiv.org/abs/1804.08333",
)


@dataclass
class FedCSState:
    """What is known about each client (success rate, time, or coefficients), and how often each was chosen."""

    known: Floats
    counts: Ints


@dataclass(frozen=True, eq=False)
class FedCS(ByValue):
    """The most reliable clients; or, with a deadline, all that are fast enough.

    It is an oracle: give it `success`, or with a `deadline`, `times` or `theta`. It may be given more than it uses; if
    both are given, `theta` is used instead of `times`.

    Args:
        cohort_size: number of clients; with a deadline it may be None: all that are fast enough.
        success: success rate of each client, or a function of fp.Clients. Ties go to the lower index, so the same
            clients are always chosen, as described by E3CS.
        deadline: seconds; clients with an expected time below it are chosen, so the number varies.
        times: expected time of each client, or a function of fp.Clients.
        theta: (K, d) coefficients, or a function of fp.Clients: the expected time is context . theta.

    >>> import fedpick as fp
    >>> fp.FedCS(deadline=3.0, times=[1.0, 2.0, 5.0]).fixed_size
    False
    """

    cohort_size: int | None = None
    success: Truth | None = None
    deadline: float | None = None
    times: Truth | None = None
    theta: Truth | None = None

    about = About(("fedcs",), PAPER, kind="oracle", given="success")
    truths = ("success", "times", "theta")

    def __post_init__(self) -> None:
        if self.success is None and self.deadline is None:
            raise SettingError("FedCS: give either success=rates, or deadline=seconds with times= or theta=")
        if self.cohort_size is not None or self.deadline is None:
            check.cohort_size(self)
        check.number(self, "deadline", low=0.0, open=True)
        if self.deadline is not None and self.times is None and self.theta is None:
            raise SettingError("FedCS: deadline needs the clients' times: give either times= or theta=")

    @property
    def needs(self) -> tuple[str, ...]:
        """A context, if times are computed from coefficients."""
        return ("context",) if self._linear else ()

    @property
    def rounds_only(self) -> str:
        """With a deadline, which is that of a round."""
        return "" if self.deadline is None else "its deadline is that of a round, and without rounds there is none"

    @property
    def context(self) -> int | None:
        """Number of columns of that context, if known."""
        if not self._linear or callable(self.theta):
            return None
        return int(np.asarray(self.theta).shape[-1])

    @property
    def _linear(self) -> bool:
        return self.deadline is not None and self.theta is not None

    @property
    def fixed_size(self) -> bool:
        """Whether it always chooses cohort_size clients if so many are available."""
        return self.deadline is None

    def init(self, clients: Clients) -> FedCSState:
        """Return the state before the first round."""
        name = "success" if self.deadline is None else "theta" if self._linear else "times"
        known = truth(self, name, getattr(self, name), clients, ndim=2 if self._linear else 1)
        return FedCSState(known, np.zeros(len(clients), dtype=np.int64))

    def select(self, state: FedCSState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort, without random numbers."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        if self.deadline is None:
            assert self.cohort_size is not None
            chosen = ids[solvers.top(state.known[ids], self.cohort_size)]
        else:
            times = self._times(state, view, ids)
            fast = times < self.deadline
            ids, times = ids[fast], times[fast]
            chosen = ids if self.cohort_size is None else ids[solvers.top(-times, self.cohort_size)]
        return Choice(chosen, inclusion=np.ones(len(chosen)))

    def _times(self, state: FedCSState, view: View, ids: Ints) -> Floats:
        if not self._linear:
            return state.known[ids]
        if view.context is None:
            raise MissingError("FedCS: theta= computes times from view.context, but that is None")
        if view.context.shape != state.known.shape:
            raise ContractError(f"FedCS: context has shape {view.context.shape}, but theta {state.known.shape}")
        times: Floats = np.einsum("kd,kd->k", view.context[ids], state.known[ids])
        return np.nan_to_num(times, nan=np.inf)  # a client without a usable context counts as slow

    def observe(self, state: FedCSState, view: View, choice: Choice, outcome: Outcome) -> FedCSState:
        """Count the chosen clients."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        return FedCSState(state.known, state.counts)
