"""How much each client's answers have counted for so far: the correction of the bias towards fast clients.

Of clients that are idle alike, a fast one answers more often: by d = (1, 1, 4) seconds and two at work, shares of the
answers are 5/12, 5/12 and 1/6. With `Buffered(correct=True)` client i's answer counts b_i, in proportion to p_i / S_i:
p_i is what it should count for in all (its size, or the same for each), and S_i the sum of s(staleness) of its answers.
All clients are counted over the same time, so sums stand for rates. The mean of b over all answers is 1, and no b is
above `MOST`.
"""

from dataclasses import dataclass, field

import numpy as np

from fedpick.core.types import Floats
from fedpick.engine.flight import Client

__all__ = ["MOST", "Rates"]

MOST = 10.0  # what an answer counts for at most: a client that answers very rarely would make the model jump


@dataclass
class Rates:
    """What each client's answers have counted for, by client; in time that does not depend on their number.

    >>> rates = Rates()
    >>> [rates.weigh(client, 1.0, 1.0) for client in (0, 0, 1)]
    [1.0, 1.0, 1.5]
    """

    sums: dict[Client, float] = field(default_factory=dict)  # S: of s(staleness)
    counts: dict[Client, int] = field(default_factory=dict)  # answers
    shares: dict[Client, float] = field(default_factory=dict)  # p, as it last was
    answers: int = 0
    total: float = 0.0  # of counts * shares / sums

    def weigh(self, client: Client, share: float, damping: float) -> float:
        """b of this answer, which is counted.

        Args:
            client: that answers.
            share: p, what it should count for.
            damping: s(staleness) of the answer, > 0.
        """
        if client in self.sums:
            self.total -= self.counts[client] * self.shares[client] / self.sums[client]
        summed = self.sums[client] = self.sums.get(client, 0.0) + damping
        count = self.counts[client] = self.counts.get(client, 0) + 1
        self.shares[client] = share
        self.answers += 1
        self.total += count * share / summed
        if self.total <= 0.0:  # no client has a share
            return 0.0
        return min(share / summed * self.answers / self.total, MOST)

    def pack(self) -> dict[str, Floats]:
        """Everything as arrays, for a checkpoint; clients are numbers."""
        clients = np.array(list(self.sums), dtype=np.float64)
        rows = [np.fromiter(each.values(), np.float64) for each in (self.sums, self.counts, self.shares)]
        return {"rates": np.stack([clients, *rows]), "rates_total": np.array([self.answers, self.total])}

    @classmethod
    def unpack(cls, arrays: dict[str, Floats]) -> "Rates":
        """What `pack` gave; of a checkpoint without, nothing was counted."""
        if "rates" not in arrays:
            return cls()
        clients, sums, counts, shares = np.asarray(arrays["rates"]).tolist()
        answers, total = np.asarray(arrays["rates_total"]).tolist()
        ids: list[Client] = [int(client) for client in clients]
        whole = [int(count) for count in counts]
        kept = dict(zip(ids, sums, strict=True)), dict(zip(ids, whole, strict=True))
        return cls(*kept, dict(zip(ids, shares, strict=True)), int(answers), total)
