"""The reports that a policy learns from: which, how they are read, and as which arrays it gets them."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.protocol import traits
from fedpick.server import reading
from fedpick.types import Floats

__all__ = ["Reports", "Told", "wanted"]

Told = dict[str, float | list[float] | None]  # one client's reports by name


def wanted(policy: Any) -> dict[str, int | None]:
    """Names of the reports that a policy learns from, with their widths where it knows them (0: a number)."""
    # The two settings that it looks at will be traits of the policy.
    inner = getattr(policy, "policy", policy)
    found: dict[str, int | None] = dict.fromkeys(sorted(traits(policy).needs - {"probe", "context", "features"}))
    if getattr(inner, "graph", None) == "auto":  # FedGS takes embeddings where there are some
        found.setdefault("embedding", None)
    reward = getattr(inner, "reward", None)  # E3CS's is a number, also in a round in which nobody reports it
    return {name: 0 if name == reward else width for name, width in found.items()}


class Reports:
    """Reads what clients report; iterating gives the names that count.

    Args:
        policy: that learns from them.
        embed: update -> vector, which is the report "embedding"; None: the client's own.
        log: is told where it fails.
    """

    def __init__(self, policy: Any, embed: Callable[[Any], ArrayLike] | None, log: logging.Logger) -> None:
        self._widths, self._embed, self._log = wanted(policy), embed, log

    def __iter__(self) -> Iterator[str]:
        return iter(self._widths)

    def read(self, name: str, update: Any, said: Any) -> Told:
        """The reports of one client that count; nonsense is None."""
        found: Told = {}
        if isinstance(said, Mapping):
            found = {each: reading.report(said[each]) for each in self if each in said}
        if self._embed is not None and update is not None and "embedding" in self._widths:
            try:
                found["embedding"] = np.asarray(self._embed(update), dtype=np.float64).ravel().tolist()
            except Exception as error:  # a client's update is its own, and must not end the training of the others
                why = reading.printable(f"{type(error).__name__}: {error}")
                self._log.warning("embed() failed on the update of %s: %s", reading.printable(name), why)
                found["embedding"] = None
        return found

    def tables(self, told: Sequence[Told], widths: dict[str, int]) -> dict[str, Floats]:
        """All reports of a round as arrays; `widths` are those of earlier rounds, and get those that are new."""
        found: dict[str, Floats] = {}
        for name, known in self._widths.items():
            array, width = reading.table([each.get(name) for each in told], widths.get(name, known))
            if array is not None and width is not None:
                found[name], widths[name] = array, width
        return found
