"""The base strategy: its own hooks while ours are in their place, and what it says of itself."""

import contextlib
from collections.abc import Iterator
from typing import Any

from flwr.serverapp.strategy import Strategy

__all__ = ["HOOKS", "Base"]

HOOKS = ("summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


class Base:
    """A strategy (or a wrapper of one) whose loop, which users override, is to call our hooks, and those its own."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._own: dict[str, Any] = {}  # its methods while ours are in their place

    def own(self, hook: str) -> Any:
        """The base's own method of this name."""
        return self._own.get(hook) or getattr(self.strategy, hook)

    @contextlib.contextmanager
    def calling(self, ours: Any) -> Iterator[None]:
        """Put our hooks in the place of the base's for as long as its loop runs."""
        self._own = {hook: getattr(self.strategy, hook) for hook in HOOKS}
        kept = {hook: vars(self.strategy)[hook] for hook in HOOKS if hook in vars(self.strategy)}
        try:
            for hook in HOOKS:
                setattr(self.strategy, hook, getattr(ours, hook))
            yield
        finally:
            for hook in HOOKS:
                vars(self.strategy).pop(hook, None)
            vars(self.strategy).update(kept)
            self._own = {}

    def _chain(self) -> Iterator[Any]:
        """The base and the strategies that it wraps."""
        seen: Any = self.strategy
        while isinstance(seen, Strategy):
            yield seen
            seen = getattr(seen, "strategy", None)

    @contextlib.contextmanager
    def at_most(self, nodes: int, **fixed: float) -> Iterator[None]:
        """Let the base ask for no more nodes than there are, for as long as it is called; else it waits for ever."""
        before: list[tuple[Any, str, Any]] = []
        for strategy in self._chain():
            limits = dict.fromkeys(("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"), nodes)
            for name, value in [*limits.items(), *fixed.items()]:
                if hasattr(strategy, name):
                    old = getattr(strategy, name)
                    before.append((strategy, name, old))
                    setattr(strategy, name, value if name in fixed else min(old, value))
        try:
            yield
        finally:
            for strategy, name, old in before:
                setattr(strategy, name, old)

    @property
    def weight(self) -> str | None:
        """The metric by which the base averages, if it says so."""
        return next((each.weighted_by_key for each in self._chain() if hasattr(each, "weighted_by_key")), None)
