'''What a policy is: any object with `init`, `select` and `observe`. No base class, no registration.

A whole policy, ready to use. It picks the clients that were chosen least often so far, ties at random:

>>> from dataclasses import dataclass
>>> import numpy as np
>>> import fedpick as fp
>>>
>>> @dataclass
... class LeastUsedState:
...     counts: np.ndarray  # one entry per client, as every field is unless it says otherwise
>>>
>>> @dataclass(frozen=True)
... class LeastUsed:
...     """The clients chosen least often so far, ties at random."""
...
...     cohort_size: int
...
...     def init(self, clients):
...         return LeastUsedState(counts=np.zeros(len(clients), dtype=np.int64))
...
...     def select(self, state, view, rng):
...         there = np.flatnonzero(view.available)
...         order = np.lexsort((rng.random(len(there)), state.counts[there]))
...         return fp.Choice(there[order[: self.cohort_size]])
...
...     def observe(self, state, view, choice, outcome):
...         counts = state.counts.copy()
...         counts[choice.ids] += 1
...         return LeastUsedState(counts)
>>>
>>> clients = fp.Clients(sizes=np.ones(6))
>>> policy = LeastUsed(cohort_size=3)
>>> state = policy.init(clients)
>>> for round in 1, 2:
...     view = fp.View(round, available=np.ones(6, bool), clients=clients)
...     choice = policy.select(state, view, fp.rng.stream(0, round, "policy"))
...     outcome = fp.Outcome(status=[fp.Status.DONE] * 3, duration=[1.0, 2.0, 3.0], loss=[0.7, 0.9, 0.8])
...     state = policy.observe(state, view, choice, outcome)
>>> state.counts.tolist()
[1, 1, 1, 1, 1, 1]
>>> "clients can be enrolled while it runs" in fp.checks.check_policy(policy)
True

Rules, which `fp.checks.check_policy` tests:

- Settings live in the policy, which never changes; what it learns lives in the state. `select` only reads the state;
  `observe` returns the next one and may reuse the old one's arrays, so keep no reference to a state you passed in.
- Every random number comes from the `rng` that `select` is handed.
- Choose `min(cohort_size, available)` clients, only available ones, none twice; nobody there gives an empty Choice.
- Outcomes hold what clients reported: expect NaN, infinities and lies.

A policy may say more about itself with class attributes or settings of these names; `traits` reads them:

- `needs`: names of what it cannot do without: "probe", "context", "features", or a report such as "embedding".
- `fixed_size`: False if it may choose another number of clients than `cohort_size`.
- `replace`: True if it draws with replacement, so that a client can stand in a Choice more than once.
- `asks`: how many clients it chooses, if not `cohort_size` (OverSelect).
- `before_admit(state) -> state`: makes the state ready for newcomers, who get what `init` gives them (E3CS).
'''

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedpick.errors import ContractError
from fedpick.types import Bools, Choice, Clients, Floats, Ints, Outcome, Updates, View

__all__ = ["Policy", "TrainerLike", "Traits", "check_outcome", "traits"]

S = TypeVar("S")


class Policy(Protocol[S]):
    """Decides which clients train; see this module's docstring for a whole example."""

    def init(self, clients: Clients) -> S:
        """Return the state before the first round."""
        ...

    def select(self, state: S, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort; reads the state, never writes it."""
        ...

    def observe(self, state: S, view: View, choice: Choice, outcome: Outcome) -> S:
        """Learn from how the round ended; may reuse the arrays of the old state."""
        ...


class TrainerLike(Protocol):
    """Trains the model: `fedpick.learn.Trainer`, or one of your own; a run without one is a numerical experiment.

    All that a trainer carries from round to round is in the model (optimiser states too): arrays, in dicts, lists or
    tuples, as deep as it likes. That is what a run's folder keeps.
    """

    def init(self, seed: int) -> Any:
        """The model before the first round."""
        ...

    def probe(self, model: Any, ids: Ints, batch: int | None, rng: np.random.Generator) -> Floats:
        """Loss of the model on these clients' data."""
        ...

    def train(
        self, model: Any, ids: Ints, used: Bools, epochs: Floats, round: int, rng: np.random.Generator
    ) -> Updates:
        """Train on those of the chosen clients whose work is used; that may be nobody."""
        ...

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates) -> Any:
        """The next model, from the clients whose status is DONE; not called where there is none."""
        ...

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """What is measured after this round; empty in rounds without evaluation."""
        ...


@dataclass(frozen=True)
class Traits:
    """What a policy says about itself."""

    cohort_size: int | None
    asks: int | None
    needs: frozenset[str]
    fixed_size: bool
    replace: bool


def traits(policy: object) -> Traits:
    """What a policy says about itself, with the defaults for what it leaves unsaid."""
    size = getattr(policy, "cohort_size", None)
    return Traits(
        cohort_size=size,
        asks=getattr(policy, "asks", size),
        needs=frozenset(getattr(policy, "needs", ())),
        fixed_size=bool(getattr(policy, "fixed_size", True)),
        replace=bool(getattr(policy, "replace", False)),
    )


def check_outcome(view: View, choice: Choice, outcome: Outcome, *, replace: bool = False) -> None:
    """Raise a ContractError if choice and outcome cannot belong to this view: a mistake of the program."""
    if len(outcome) != len(choice):
        raise ContractError(
            f"the outcome has {len(outcome)} entries, but {len(choice)} clients were chosen: give one entry per chosen "
            "client, Status.FAILED for those that never answered"
        )
    ids, enrolled = choice.ids, len(view.clients)
    if len(ids) and (ids.min() < 0 or ids.max() >= enrolled):
        worst = ids.max() if ids.max() >= enrolled else ids.min()
        raise ContractError(f"the choice holds client {worst}, but clients are numbered 0 to {enrolled - 1}")
    away = ids[~view.available[ids]]
    if len(away):
        raise ContractError(f"client {away[0]} was chosen, but was not available: hand observe the view of select")
    if not replace and len(ids) > 1:
        ordered = np.sort(ids)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise ContractError(
                f"client {twice[0]} reports twice in one outcome, but this policy chooses each client at most once"
            )
