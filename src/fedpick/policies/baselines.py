"""Baselines: draws that are uniform, proportional to data size, or with fixed probabilities.

Proportional to size with replacement is pi_rand of Power-of-Choice and MDSample of FedGS; fixed probabilities are from
Fig. 5 of RBCS-F.

Trusts: no report; where data sizes are the probabilities (`SizeWeighted`) these, which clients declare as well.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedpick import sampling
from fedpick.core.errors import SettingError
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, CountingPolicy, CountState, Truth, at_places, nobody, present, truth
from fedpick.policies.about import About, Paper
from fedpick.policies.rbcsf import PAPER as HUANG

__all__ = ["CountState", "FixedProbabilities", "FixedProbabilitiesState", "SizeWeighted", "Uniform"]

MCMAHAN = Paper(
    "mcmahan2017communication",
    'McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and {Ag{\\"u}era y Arcas}, Blaise',
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    2017,
    "booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)}",
    "https://arxiv.org/abs/1602.05629",
)

LI = Paper(
    "li2020federated",
    "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet and Smith, Virginia",
    "Federated Optimization in Heterogeneous Networks",
    2020,
    "booktitle = {Machine Learning and Systems (MLSys)}",
    "https://arxiv.org/abs/1812.06127",
)


@dataclass(frozen=True, eq=False)
class Uniform(CountingPolicy):
    """Every available client with the same probability, without replacement.

    >>> import fedpick as fp
    >>> fp.Uniform(cohort_size=10)
    Uniform(cohort_size=10)
    """

    cohort_size: int

    about = About(("uniform", "random"), MCMAHAN, kind="baseline")

    def __post_init__(self) -> None:
        check.cohort_size(self)

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort."""
        count = int(np.count_nonzero(view.available))
        m = min(self.cohort_size, count)
        if m == 0:
            return nobody()
        chosen = np.sort(at_places(view, rng.choice(count, m, replace=False, shuffle=False), count))
        return Choice(chosen, inclusion=np.full(m, m / count), chances=m / count)


@dataclass(frozen=True, eq=False)
class SizeWeighted(CountingPolicy):
    """Clients with probability proportional to their data size.

    Args:
        cohort_size: number of clients to draw.
        replace: True draws with replacement (as in the papers; a client drawn twice counts twice in the average, and
            `inclusion` is the expected count); False draws each client at most once, with inclusion probabilities
            exactly proportional to size, capped at 1.

    The Choice has equal weights (but for clients of inclusion 1, by size): weights by size would count the size twice.
    """

    cohort_size: int
    replace: bool = True

    about = About(("size-weighted",), LI, kind="baseline", forms=({"replace": False},))

    def __post_init__(self) -> None:
        check.cohort_size(self)

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        sizes = view.clients.sizes if len(ids) == len(view.clients) else view.clients.sizes[ids]
        if self.replace:
            drawn = sampling.with_replacement(sizes, self.cohort_size, rng)
            inclusion = self.cohort_size * sizes[drawn] / sizes.sum()

            every = partial(np.multiply, sizes, self.cohort_size / sizes.sum())
            return Choice(ids[drawn], inclusion, weights=np.ones(len(drawn)), chances=every)
        p = sampling.proportional(sizes, min(self.cohort_size, len(ids)))
        drawn = sampling.pivotal(p, rng)
        weights = sizes[drawn] / p[drawn]  # equal, except for clients so large that they are always in
        return Choice(ids[drawn], p[drawn], weights / weights.min(), chances=p)


def _spread(p: Floats, ids: Ints, view: View) -> Floats:
    """These clients' probabilities among those of all available clients; the others' are 0."""
    found = np.zeros(len(view.available))
    found[ids] = p
    return found[view.available]


@dataclass
class FixedProbabilitiesState:
    """The probabilities, and how often each client was chosen."""

    p: Floats
    counts: Ints


@dataclass(frozen=True, eq=False)
class FixedProbabilities(ByValue):
    """Clients drawn with a fixed vector of probabilities.

    Args:
        cohort_size: number of clients to draw, without replacement.
        p: one number >= 0 per client (they need not sum to 1), or a function of fp.Clients; in the paper from a
            Dirichlet distribution. A client with 0 is never drawn; if too few others are there, the cohort is smaller.
        sampler: "sequential" draws one after the other with probability proportional to p (as in the paper; inclusion
            is then not known); "pivotal" and "systematic" make inclusion proportional to p, capped at 1.
    """

    cohort_size: int
    p: Truth
    sampler: str = "sequential"

    about = About(("fixed-probabilities",), HUANG, kind="baseline", given="p")

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.one_of(self, "sampler", ("sequential", "pivotal", "systematic"))

    @property
    def fixed_size(self) -> bool:
        """Whether all p are known to be > 0; for a function this is not known, so False."""
        return not callable(self.p) and bool(np.all(np.asarray(self.p) > 0))

    def init(self, clients: Clients) -> FixedProbabilitiesState:
        """Return the state before the first round."""
        p = truth(self, "p", self.p, clients)
        if not (p >= 0).all():
            raise SettingError(f"FixedProbabilities: p holds {p.min()}, but must be >= 0 for every client")
        if not callable(self.p) and not p.any():
            raise SettingError("FixedProbabilities: p is 0 for every client, but must be > 0 for at least one")
        return FixedProbabilitiesState(p, np.zeros(len(clients), dtype=np.int64))

    def select(self, state: FixedProbabilitiesState, view: View, rng: np.random.Generator) -> Choice:
        """Choose the cohort."""
        ids = np.flatnonzero(view.available & (state.p > 0.0))
        m = min(self.cohort_size, len(ids))
        if m == 0:
            return nobody()
        if self.sampler == "sequential":
            return Choice(ids[sampling.weighted(state.p[ids], m, rng)])
        p = sampling.proportional(state.p[ids], m)
        drawn = (sampling.pivotal if self.sampler == "pivotal" else sampling.systematic)(p, rng)
        return Choice(ids[drawn], inclusion=p[drawn], chances=lambda: _spread(p, ids, view))

    def observe(
        self, state: FixedProbabilitiesState, view: View, choice: Choice, outcome: Outcome
    ) -> FixedProbabilitiesState:
        """Count the chosen clients."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        return FixedProbabilitiesState(state.p, state.counts)
