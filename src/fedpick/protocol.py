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

- Settings live in the policy, which never changes; what it learns lives in the state.
- `select` only reads the state.
- `observe` returns the next state. **It looks pure and need not be**: unlike a function of JAX it may write into the
  arrays of the old state and hand them on, which is what makes a million clients fast. So a state is used up once it
  was given to `observe`: go on with the one that came back, keep no reference to the old one, and copy it before
  (`copy.deepcopy`) if you want to go two ways from it. Under the environment variable FEDPICK_DEBUG=1 runs overwrite
  every used-up state with NaN and extreme integers (`fedpick.state.observe`), so that a mistake shows at once.
- Every random number comes from the `rng` that `select` is handed.
- Choose `min(cohort_size, available)` clients, only available ones, none twice; nobody there gives an empty Choice.
- Outcomes hold what clients reported: expect NaN, infinities and lies.

A policy may say more about itself with class attributes, properties or settings of these names; `traits` reads them,
also through a wrapper, which is any policy with the wrapped one in its attribute `policy`:

- `needs`: what it cannot do without: "probe", "norms", "context", "features", or reports: `fp.ReportSpec(name, width)`,
  or a bare name for a report of any shape.
- `wants`: likewise, what it uses where there is some.
- `context`: the number of columns of `view.context` that it reads; leave out for any.
- `truths`: on the class: settings that only an oracle can know. Where a run makes the policy from text, the world
  tells it those that the text leaves open and the world knows (`World.truth`).
- `oracle`: whether it was told what no server knows; without it, whether it has `truths`.
- `fixed_size`: False if it may choose another number of clients than `cohort_size`.
- `replace`: True if it draws with replacement, so that a client can stand in a Choice more than once.
- `asks`: how many clients it chooses, if not `cohort_size` (OverSelect).
- `before_admit(state) -> state`: makes the state ready for newcomers, who get what `init` gives them (E3CS).
'''

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedpick.errors import ContractError
from fedpick.types import Bools, Choice, Clients, Floats, Ints, Outcome, Updates, View

__all__ = ["Policy", "ReportSpec", "TrainerLike", "Traits", "check_outcome", "check_reports", "traits"]

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
        """Learn from how the round ended; may write into the arrays of the old state, which is used up then."""
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
class ReportSpec:
    """Something that clients report beside duration and loss, and what it looks like for one client.

    Args:
        name: its key in `Outcome.reports`.
        width: 0 for one number, n for a vector of n numbers, None for a vector (or number) of any width.
        unless: a report that is not asked for where this is there: "features".
    """

    name: str
    width: int | None = None
    unless: str | None = None


@dataclass(frozen=True)
class Traits:
    """What a policy says about itself."""

    cohort_size: int | None
    asks: int | None  # how many it chooses: cohort_size, or more in OverSelect
    needs: frozenset[str]  # names; reports are those that `reports` has
    wants: frozenset[str]
    reports: tuple[ReportSpec, ...]  # of needs and wants, in order of their names
    context: int | None  # columns of view.context; None for any
    truths: tuple[str, ...]
    oracle: bool
    fixed_size: bool
    replace: bool

    @property
    def keeps(self) -> int | None:
        """How many answers are used, later ones being SURPLUS; None: all, where the number chosen is left to chance."""
        more = self.asks is not None and self.cohort_size is not None and self.asks > self.cohort_size
        return self.cohort_size if self.fixed_size or more else None

    def collect(self, clients: Clients | None = None) -> dict[str, int | None]:
        """Width by name of the reports to ask clients for, without those that these clients make superfluous."""
        there = {"features"} if clients is not None and clients.features is not None else set()
        return {each.name: each.width for each in self.reports if each.name in self.needs or each.unless not in there}


_NO_REPORTS = frozenset({"probe", "context", "features", "norms"})


def _say(policy: object, name: str, default: Any) -> Any:
    """What a policy says under this name, or if it is silent, the policy that it wraps."""
    while policy is not None:
        if hasattr(policy, name):
            return getattr(policy, name)
        policy = getattr(policy, "policy", None)
    return default


def _reports(entries: Iterable[str | ReportSpec]) -> dict[str, ReportSpec]:
    given = [entry if isinstance(entry, ReportSpec) else ReportSpec(entry) for entry in entries]
    return {entry.name: entry for entry in given}


def traits(policy: object) -> Traits:
    """What a policy says about itself, with the defaults for what it leaves unsaid.

    >>> import fedpick as fp
    >>> said = traits(fp.OverSelect(fp.E3CS(cohort_size=10, reward="gain"), 1.3))
    >>> said.cohort_size, said.asks, said.reports
    (10, 13, (ReportSpec(name='gain', width=0, unless=None),))
    >>> traits(fp.FedCS(2, success=[0.1, 0.9, 0.5])).oracle
    True
    """
    size = _say(policy, "cohort_size", None)
    needs, wants = _reports(_say(policy, "needs", ())), _reports(_say(policy, "wants", ()))
    context, truths = _say(policy, "context", None), tuple(_say(policy, "truths", ()))
    both = {**wants, **needs}
    return Traits(
        cohort_size=size,
        asks=_say(policy, "asks", size),
        needs=frozenset(needs),
        wants=frozenset(wants),
        reports=tuple(both[name] for name in sorted(both) if name not in _NO_REPORTS),
        context=context if isinstance(context, int) and not isinstance(context, bool) else None,
        truths=truths,
        oracle=bool(_say(policy, "oracle", bool(truths))),
        fixed_size=bool(_say(policy, "fixed_size", True)),
        replace=bool(_say(policy, "replace", False)),
    )


def check_reports(policy: object, outcome: Outcome) -> None:
    """Raise a ContractError if a report has another width than the policy says it has."""
    if not outcome.reports:
        return
    for name, width in traits(policy).collect().items():
        if width is None or name not in outcome.reports:
            continue
        shape = outcome.reports[name].shape[1:]
        if shape != ((width,) if width else ()):
            due = f"a vector of {width} numbers" if width else "one number"
            raise ContractError(
                f"the report {name!r} has shape {shape} for each client, but {type(policy).__name__} says that it "
                f"needs {due}: change what clients report, or the width in the policy's fp.ReportSpec"
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
