"""What the data sizes that clients declare count for: no more than a multiple of a quantile of everybody's.

Sizes at enrolment are compared with those of all enrolled clients, whenever these change; sizes that come with answers
(which may be in other units, such as steps) with those of the last answers of other clients, when updates are weighed.
So it does not matter who joins or answers first.
"""

import numpy as np

from fedpick.core.bounds import largest, limited
from fedpick.core.types import Clients
from fedpick.server.settings import Limits

__all__ = ["Sizes"]

MOST = 1_000  # clients whose last answer's size is remembered
FEW = 3  # sizes; among fewer, one that is false can be the median


class Sizes:
    """The rule of `Limits.size_factor`, and the sizes of the last answers of up to 1,000 clients.

    >>> sizes = Sizes(Limits())
    >>> sizes.of_clients(Clients([600, 1e15, 500])).sizes.tolist()
    [600.0, 18000.0, 500.0]
    """

    def __init__(self, limits: Limits) -> None:
        self.factor, self.quantile = limits.size_factor, limits.size_quantile
        self._heard: dict[str, float] = {}  # by name, the last one at the end
        self._usual: dict[float, float] = {}  # quantiles of those heard

    def of_clients(self, clients: Clients) -> Clients:
        """The enrolled clients with the sizes that count; the very same object if none is too large."""
        if self.factor is None:
            return clients
        sizes = limited(clients.sizes, self.factor, self.quantile)
        return clients if sizes is clients.sizes else Clients(sizes, clients.labels, clients.features)

    def hear(self, name: str, size: float) -> None:
        """Note the size that came with a client's answer."""
        self._heard.pop(name, None)
        self._heard[name] = size
        if len(self._heard) > MOST:
            del self._heard[next(iter(self._heard))]
        self._usual.clear()

    def last(self, name: str, known: float) -> float:
        """The size that came with a client's last answer, or `known` if none did."""
        return self._heard.get(name, known)

    @property
    def few(self) -> bool:
        """Whether so few clients have answered with a size that one more could change what those count for."""
        return self.factor is not None and len(self._heard) < FEW

    def _of_heard(self, quantile: float) -> float:
        if quantile not in self._usual:
            self._usual[quantile] = largest(list(self._heard.values()), 1.0, quantile)
        return self._usual[quantile]

    def largest(self, known: float) -> float:
        """The most that a size with an answer counts for, of a client that counted as `known` before."""
        return np.inf if self.factor is None else max(known, self.factor * self._of_heard(self.quantile))

    def of_answer(self, size: float, known: float) -> float:
        """What a size that came with an answer counts for, of a client that counted as `known` before."""
        return min(size, self.largest(known))

    def beside(self, size: float, known: float, most: float) -> float:
        """A size that came with an answer, over the mean of those that came with the last answers of all clients.

        Args:
            size: that was heard.
            known: what the client counted as before.
            most: as a multiple of the median of those heard; infinite: no limit but that of `of_answer`.
        """
        heard = np.minimum(list(self._heard.values()), self.largest(0.0))
        limit = most * self._of_heard(0.5) if np.isfinite(most) else np.inf
        return float(min(self.of_answer(size, known), limit) / heard.mean())
