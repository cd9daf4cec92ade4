'''What a policy is: any object with `init`, `select` and `observe`. No base class, no registration.

A complete policy. It chooses the clients that were chosen least often so far, ties at random:

>>> from dataclasses import dataclass
>>> import numpy as np
>>> import fedpick as fp
>>>
>>> @dataclass
... class LeastUsedState:
...     counts: np.ndarray  # one entry per client, as in every field that is not declared otherwise
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

- Settings are in the policy, which never changes; what it learns is in the state: a dataclass of arrays, or None if it
  learns nothing.
- `select` only reads the state.
- `observe` returns the next state. **It need not be pure**: unlike a function in JAX it may write into the arrays of
  the old state and return them, which makes it fast for a million clients. So do not use a state after it was given to
  `observe`: continue with the returned one, keep no reference to the old one, and copy it before (`copy.deepcopy`) if
  you need both. With the environment variable FEDPICK_DEBUG=1, runs overwrite every old state with NaN and extreme
  integers (`fedpick.core.state.observe`), so that a mistake shows at once.
- Every random number comes from the `rng` given to `select`.
- Choose `min(cohort_size, available)` clients, only available ones, none twice; an empty Choice if none is available.
- Outcomes contain what clients reported: expect NaN, infinities and false values.
- A client that was not waited for is no news, and a pause is no absence: see below.

What a policy is told, which is what a server can know:

- `view.available`: who may be chosen now. `view.there`: who is there, also those who may not be chosen, as they are
  busy or because a wrapper lets them pause; a policy that learns how often clients are there reads this one.
  `view.busy`: who still works on an earlier task; a client that is there and not busy can be probed. `view.held`: whose
  update has come and is not used yet. `view.wanted`: how many are to be asked now, None for as many as the policy
  chooses. `view.version`: how often the model has changed. In plain rounds nobody is held, and `there` and `available`
  differ only by pauses and late work.
- `view.ended`: without rounds, the clients of the tasks that have ended since the model moved, of which the policy
  learns when it moves next; in `observe` those of which it learns, in several calls if a client is among them twice.
  None in rounds.
- `outcome.status`: DONE; LATE, no answer by the deadline, because the client is slow or gone; FAILED, an error or
  something unusable; SURPLUS, not used although it did not fail, because enough others had answered.
  `outcome.succeeded` is True for DONE and SURPLUS.
- `outcome.known`: False for SURPLUS clients that had not answered when the round was closed. Their duration, loss and
  reports are NaN, which says nothing: neither a success nor a failure, and not "reported no loss". Keep what you knew
  about them, and count at most that they were chosen. A duration or loss that a SURPLUS client did send is news.
- `choice` in `observe` has each client once: of one that was drawn more than once, the weights are added up. With
  over-selection its `inclusion` is the probability of being chosen and used.

A policy may declare more about itself with class attributes, properties or settings of these names; `traits` reads
them, also through a wrapper, which is any policy with the wrapped one in its attribute `policy`:

- `needs`: what it requires: "probe", "norms", "context", "features", "labels" (the clients' label counts), or reports:
  `fp.ReportSpec(name, width)`, or just a name for a report of any shape.
- `wants`: the same, for what it uses if available.
- `context`: number of columns of `view.context` that it reads; leave it out for any number.
- `truths`: on the class: names of settings that only an oracle can know. If a run makes the policy from text, the
  world fills in those that the text does not set and the world knows (`World.truth`).
- `oracle`: whether it knows what no server knows; if not declared, whether it has `truths`.
- `fixed_size`: False if the number of chosen clients may differ from `cohort_size`.
- `replace`: True if it draws with replacement, so that a client can be in a Choice more than once.
- `asks`: number of clients that it chooses, if not `cohort_size` (OverSelect).
- `remembers`: for how many rounds after it was there a client must not be forgotten, infinite for ever; a session then
  refuses newcomers where it would forget others (MinSeparation). Of wrapped policies, the largest counts.
- `before_admit(state) -> state`: prepares the state for newcomers, whose values come from `init` (E3CS).
'''

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, Updates, View

__all__ = [
    *("Policy", "ReportSpec", "Trainer", "Traits"),
    *("check_asked", "check_choice", "check_methods", "check_outcome", "check_reports", "fault", "traits"),
]

S = TypeVar("S")


class Policy(Protocol[S]):
    """Decides which clients train; see this module's docstring for a complete example."""

    def init(self, clients: Clients) -> S:
        """Return the state before the first round."""
        ...

    def select(self, state: S, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort; reads the state, never writes it."""
        ...

    def observe(self, state: S, view: View, choice: Choice, outcome: Outcome) -> S:
        """Learn from the outcome; may write into the arrays of the old state, which must not be used afterwards."""
        ...


class Trainer(Protocol):
    """What trains the model: `fedpick.learn.Trainer`, or a class of yours. A run without one simulates only selection.

    Everything that a trainer keeps from round to round is in the model (also optimiser states): arrays in nested dicts,
    lists or tuples. These are saved in a run's checkpoints.

    It may have more, which a run uses if it is there (`fedpick.simulate.abilities` has the types):

    - `directions`: which way is better, of metrics whose names do not tell: {"quality": "larger", "regret": "smaller"}.
      Names such as macro_f1, auroc, val_loss or perplexity do (`fedpick.core.metrics.direction`).
    - `client_scores(model, round)`: an array with a score for each client, NaN for one without; or None. Larger is
      better, as for an accuracy on the client's data. A run calls it after an evaluation that gave metrics, for the
      columns worst_decile and spread, and at its end, for the clients' accuracies on the page.
    - `megabytes`: size of a message with the model, in units of 1e6 bytes. Without it, that of all arrays of the model.
    - `reports`: names of the reports that it gives; a policy that needs another is then refused before the first round.
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
        """Train those of the chosen clients whose update is used (mask `used`), which may be none."""
        ...

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates) -> Any:
        """The next model, from the clients whose status is DONE; not called if there are none."""
        ...

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """Metrics of the model after this round, by any names; empty in rounds without evaluation."""
        ...


@dataclass(frozen=True)
class ReportSpec:
    """A report of clients, besides duration and loss, and its shape for one client.

    Args:
        name: its key in `Outcome.reports`.
        width: 0 for one number, n for a vector of n numbers, None for a vector (or number) of any width.
        unless: "features": the report is not requested if the clients have features.
        server: whether the server computes it from the updates: nothing more is sent, and no client can fake it.
        instead: what the policy uses in place of a report in `wants` that is not given; results mention it.
    """

    name: str
    width: int | None = None
    unless: str | None = None
    server: bool = False
    instead: str = ""


@dataclass(frozen=True)
class Traits:
    """What a policy declares about itself."""

    cohort_size: int | None
    asks: int | None  # number of clients that it chooses: cohort_size, or more with OverSelect
    needs: frozenset[str]  # names, including those of reports
    wants: frozenset[str]
    reports: tuple[ReportSpec, ...]  # in needs and wants, sorted by name
    context: int | None  # columns of view.context; None for any
    truths: tuple[str, ...]
    oracle: bool
    fixed_size: bool
    replace: bool
    remembers: float = 0.0  # rounds after it was there for which a client must not be forgotten
    rounds_only: str = ""  # why it cannot do without rounds (`fp.Buffered`); "": it can

    @property
    def keeps(self) -> int | None:
        """Number of answers that are used, later ones being SURPLUS; None: all, if the size of cohorts is random."""
        more = self.asks is not None and self.cohort_size is not None and self.asks > self.cohort_size
        return self.cohort_size if self.fixed_size or more else None

    @property
    def valued(self) -> frozenset[str]:
        """Names of the reports that the server computes."""
        return frozenset(each.name for each in self.reports if each.server)

    def collect(self, clients: Clients | None = None) -> dict[str, int | None]:
        """Widths by name of the reports to request, without those that these clients make unnecessary."""
        known = {"features"} if clients is not None and clients.features is not None else set()
        return {each.name: each.width for each in self.reports if each.name in self.needs or each.unless not in known}


_NO_REPORTS = frozenset({"probe", "context", "features", "labels", "norms"})


def _declared(policy: object, name: str, default: Any) -> Any:
    """The policy's attribute of this name, else that of the policy that it wraps, else the default."""
    while policy is not None:
        if hasattr(policy, name):
            return getattr(policy, name)
        policy = getattr(policy, "policy", None)
    return default


def _longest(policy: object) -> float:
    """The largest `remembers` of the policy and those that it wraps."""
    found = 0.0
    while policy is not None:
        found = max(found, float(getattr(policy, "remembers", 0.0)))
        policy = getattr(policy, "policy", None)
    return found


def _reports(entries: Iterable[str | ReportSpec]) -> dict[str, ReportSpec]:
    given = [entry if isinstance(entry, ReportSpec) else ReportSpec(entry) for entry in entries]
    return {entry.name: entry for entry in given}


def traits(policy: object) -> Traits:
    """What a policy declares about itself, with defaults for the rest.

    >>> import fedpick as fp
    >>> found = traits(fp.OverSelect(fp.E3CS(cohort_size=10, reward="gain"), 1.3))
    >>> found.cohort_size, found.asks, found.reports
    (10, 13, (ReportSpec(name='gain', width=0, unless=None, server=False, instead=''),))
    >>> traits(fp.FedCS(2, success=[0.1, 0.9, 0.5])).oracle
    True
    """
    size = _declared(policy, "cohort_size", None)
    needs, wants = _reports(_declared(policy, "needs", ())), _reports(_declared(policy, "wants", ()))
    context, truths = _declared(policy, "context", None), tuple(_declared(policy, "truths", ()))
    both = {**wants, **needs}
    return Traits(
        cohort_size=size,
        asks=_declared(policy, "asks", size),
        needs=frozenset(needs),
        wants=frozenset(wants),
        reports=tuple(both[name] for name in sorted(both) if name not in _NO_REPORTS),
        context=context if isinstance(context, int) and not isinstance(context, bool) else None,
        truths=truths,
        oracle=bool(_declared(policy, "oracle", bool(truths))),
        fixed_size=bool(_declared(policy, "fixed_size", True)),
        replace=bool(_declared(policy, "replace", False)),
        remembers=_longest(policy),
        rounds_only=str(_declared(policy, "rounds_only", "")),
    )


def check_methods(policy: object) -> None:
    """Raise a ContractError unless it is an object with a policy's methods."""
    if isinstance(policy, type):
        raise ContractError(
            f"the policy is the class {policy.__name__}, but must be an object: {policy.__name__}(cohort_size=...)"
        )
    missing = [name for name in ("init", "select", "observe") if not callable(getattr(policy, name, None))]
    if missing:
        plain = isinstance(policy, str | int | float | None)
        shown = f"the policy is {policy!r:.80}" if plain else type(policy).__name__
        raise ContractError(
            f"{shown}: it has no method {missing[0]}; a policy needs init, select and observe, see "
            "fedpick.core.protocol for a complete example"
        )


def fault(view: View, choice: object, *, replace: bool) -> str | None:
    """What is wrong with a policy's choice, and the fix, as a clause ("it chose ..."); None if it is right.

    Takes O(m log m) for m clients.

    Args:
        view: given to the policy.
        choice: returned by the policy.
        replace: whether it may choose a client more than once.
    """
    if not isinstance(choice, Choice):
        return f"select returned {type(choice).__name__}, but must return fp.Choice: write return fp.Choice(ids)"
    wrong, client = _wrong(view.available, choice.ids, replace)
    if wrong == "unknown":
        return f"it chose client {client}, but clients are numbered 0 to {len(view.clients) - 1}"
    if wrong == "away":
        return f"it chose client {client}, which was not available: choose only where view.available is True"
    if wrong == "twice":
        return f"it chose a client twice, client {client}; if this is intended, declare replace = True"
    return None


def _wrong(available: Bools, ids: Ints, replace: bool) -> tuple[str, int]:
    """The fault of a cohort, "unknown", "away" or "twice", and the first such client; ("", -1) if there is none."""
    if not len(ids):
        return "", -1
    if ids.min() < 0 or ids.max() >= len(available):
        return "unknown", int(ids[(ids < 0) | (ids >= len(available))][0])
    there = available[ids]
    if not there.all():
        return "away", int(ids[~there][0])
    if not replace:
        ordered = np.sort(ids)
        same = ordered[1:] == ordered[:-1]
        if same.any():
            return "twice", int(ordered[1:][same][0])
    return "", -1


def check_choice(policy: object, view: View, choice: object, *, replace: bool) -> None:
    """Raise a ContractError if the policy's choice breaks the rules."""
    wrong = fault(view, choice, replace=replace)
    if wrong is not None:
        raise ContractError(
            f"{type(policy).__name__}, round {view.round}: {wrong}. fedpick check FILE.py:NAME finds such mistakes"
        )


def check_asked(available: Bools, ids: Ints, what: str) -> None:
    """Raise a ContractError if a policy asks a client that is not available, which could not answer.

    Args:
        available: mask of the available clients.
        ids: of the clients asked.
        what: function that asks them, for the error.
    """
    wrong, client = _wrong(available, np.asarray(ids).astype(np.int64, copy=False), replace=True)
    if wrong == "unknown":
        raise ContractError(f"{what} was given client {client}, but clients are numbered 0 to {len(available) - 1}")
    if wrong == "away":
        raise ContractError(
            f"{what} was given client {client}, which was not available: ask only where view.available is True"
        )


def check_reports(policy: object, outcome: Outcome) -> None:
    """Raise a ContractError if a report has another width than the policy declares."""
    if not outcome.reports:
        return
    for name, width in traits(policy).collect().items():
        if width is None or name not in outcome.reports:
            continue
        shape = outcome.reports[name].shape[1:]
        if shape != ((width,) if width else ()):
            due = f"a vector of {width} numbers" if width else "one number"
            raise ContractError(
                f"the report {name!r} has shape {shape} for each client, but {type(policy).__name__} declares that it "
                f"needs {due}: change what clients report, or the width in the policy's fp.ReportSpec"
            )


def check_outcome(view: View, choice: Choice, outcome: Outcome, *, replace: bool = False) -> None:
    """Raise a ContractError if choice and outcome cannot belong to this view, which is a mistake in the program."""
    if len(outcome) != len(choice):
        raise ContractError(
            f"the outcome has {len(outcome)} entries, but {len(choice)} clients were chosen: give one entry per chosen "
            "client, Status.FAILED for those that never answered"
        )
    wrong, client = _wrong(view.available, choice.ids, replace)
    if wrong == "unknown":
        raise ContractError(f"the choice holds client {client}, but clients are numbered 0 to {len(view.clients) - 1}")
    if wrong == "away":
        raise ContractError(f"client {client} was chosen, but was not available: give observe the same view as select")
    if wrong == "twice":
        raise ContractError(
            f"client {client} reports twice in one outcome, but this policy chooses each client at most once"
        )
