"""Write a policy of your own: one file, without changes to fedpick.

`RoundRobin` chooses the clients that have waited longest. Three methods make it a policy; `check_policy` checks whether
it follows the rules; then it can be used like a built-in one. Run it: python examples/my_policy.py
"""

from dataclasses import dataclass

import numpy as np

import fedpick as fp


@dataclass
class RoundRobinState:
    """The round in which each client was last chosen (0: never). One entry per client, so it grows with them."""

    last: np.ndarray


@dataclass(frozen=True)
class RoundRobin:
    """The clients that have waited longest, ties at random."""

    cohort_size: int

    def init(self, clients: fp.Clients) -> RoundRobinState:
        """No client was chosen yet."""
        return RoundRobinState(np.zeros(len(clients), dtype=np.int64))

    def select(self, state: RoundRobinState, view: fp.View, rng: np.random.Generator) -> fp.Choice:
        """The available clients that were chosen longest ago."""
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids[fp.solvers.top(-state.last[ids], self.cohort_size, rng)])

    def observe(self, state: RoundRobinState, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> RoundRobinState:
        """Store the round."""
        last = state.last.copy()
        last[choice.ids] = view.round
        return RoundRobinState(last)


if __name__ == "__main__":
    policy = RoundRobin(cohort_size=5)
    for rule in fp.checks.check_policy(policy):
        print("keeps the rule:", rule)

    clients = fp.Clients(sizes=np.full(30, 100))
    state = policy.init(clients)
    chosen = np.zeros(30, dtype=int)
    for round in range(1, 61):
        away = fp.rng.stream(0, round, "away").random(30) < 0.2
        view = fp.View(round, ~away, clients)
        choice = policy.select(state, view, fp.rng.stream(0, round, "policy"))
        outcome = fp.Outcome(np.zeros(len(choice), dtype=int), np.ones(len(choice)), np.ones(len(choice)))
        state = policy.observe(state, view, choice, outcome)
        chosen[choice.ids] += 1
    print(f"after 60 rounds each client trained {chosen.min()} to {chosen.max()} times")

    # It can be wrapped, and its state can be saved and extended like any other.
    wide = fp.OverSelect(policy, 1.4)
    print(f"OverSelect asks {wide.asks} and keeps {wide.cohort_size}")
    state = fp.admit(policy, state, fp.Clients(sizes=[100, 100]))
    print(f"two clients enrolled: the state now holds {len(state.last)}")
