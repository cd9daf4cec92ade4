"""The base strategy: replace its hooks while its loop runs, and read its settings."""

import contextlib
from collections.abc import Iterator
from typing import Any

from flwr.serverapp.strategy import Strategy

from fedpick.core.errors import SettingError

__all__ = ["HOOKS", "Base"]

HOOKS = ("summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


class Base:
    """The base strategy, or a wrapper of one. Its loop (a user's, perhaps) calls our hooks, which call the base's."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._originals: dict[str, Any] = {}  # its methods while ours replace them

    def original(self, hook: str) -> Any:
        """The base's method of this name, also while ours replaces it."""
        return self._originals.get(hook) or getattr(self.strategy, hook)

    @contextlib.contextmanager
    def calling(self, ours: Any) -> Iterator[None]:
        """Replace the base's hooks by ours while its loop runs."""
        self._originals = {hook: getattr(self.strategy, hook) for hook in HOOKS}
        kept = {hook: vars(self.strategy)[hook] for hook in HOOKS if hook in vars(self.strategy)}
        try:
            for hook in HOOKS:
                setattr(self.strategy, hook, getattr(ours, hook))
            yield
        finally:
            for hook in HOOKS:
                vars(self.strategy).pop(hook, None)
            vars(self.strategy).update(kept)
            self._originals = {}

    def _chain(self) -> Iterator[Any]:
        """The base strategy and the strategies that it wraps."""
        seen: Any = self.strategy
        while isinstance(seen, Strategy):
            yield seen
            seen = getattr(seen, "strategy", None)

    @contextlib.contextmanager
    def at_most(self, nodes: int, **fixed: float) -> Iterator[None]:
        """Lower the base's minimum numbers of nodes to `nodes` during a call; otherwise it would wait for ever."""
        lower = dict.fromkeys(("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"), nodes)
        names = [*lower, *fixed]
        before = [(each, name, getattr(each, name)) for each in self._chain() for name in names if hasattr(each, name)]
        try:
            for strategy, name, old in before:
                setattr(strategy, name, fixed[name] if name in fixed else min(old, lower[name]))
            yield
        finally:
            for strategy, name, old in before:
                setattr(strategy, name, old)

    @property
    def weight(self) -> str | None:
        """Name of the metric that weights the base's average; None if the base has no `weighted_by_key`."""
        return next((each.weighted_by_key for each in self._chain() if hasattr(each, "weighted_by_key")), None)

    @property
    def _private(self) -> str | None:
        """Name of the wrapper for differential privacy; None: there is none."""
        return next((type(each).__name__ for each in self._chain() if "Privacy" in type(each).__name__), None)

    def check_buffered(self) -> None:
        """Raise if this base cannot do without rounds (`fp.Buffered`)."""
        name, why = type(self.strategy).__name__, ""
        if self._private is not None:
            name, why = self._private, "its noise is that of a round, in which each client that is asked answers once"
        elif self.weight is None:
            why = "it averages by no metric, so that stale answers cannot count for less"
        elif type(self.strategy).start is not Strategy.start:
            why = "its start() is a loop over rounds of its own"
        if why:
            raise SettingError(f"Selected: {name} needs rounds: {why}; use FedAvg, FedAdam or FedYogi, or pace=None")

    def check_late(self, late: int) -> None:
        """Raise if this base has no place for late replies, and some are to be used."""
        private = self._private
        why = ""
        if private is not None:
            why = f"{private} counts on one reply of each client that was asked in this round"
        elif self.weight is None:
            why = f"{type(self.strategy).__name__} averages by no metric, so that late updates cannot count for less"
        if late and why:
            raise SettingError(f"Selected: late = {late}, but {why}; use FedAvg or one of its descendants, or late=0")
