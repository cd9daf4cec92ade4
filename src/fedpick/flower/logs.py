"""Flower's log, with what our wrapper makes untrue put right."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["FRACTIONS", "ROUND", "SAMPLED", "Retold", "retold"]

Retold = Callable[..., tuple[Any, ...]]  # a message's arguments -> the text and its arguments, as it should read

ROUND = "[ROUND %s/%s]"
SAMPLED = "configure_train: Sampled %s nodes (out of %s)"
# What FedAvg's summary says of settings that have no effect on whom a policy chooses.
FRACTIONS: Mapping[str, Retold] = {
    "\t│\t├──Fraction: train (%.2f) | evaluate ( %.2f)": lambda train, evaluate: (
        "\t│\t├──Fraction: train (chosen by the policy) | evaluate ( %.2f)",
        evaluate,
    ),
    "\t│\t├──Minimum nodes: train (%d) | evaluate (%d)": lambda train, evaluate: (
        "\t│\t├──Minimum nodes: train (chosen by the policy) | evaluate (%d, or as many as are connected)",
        evaluate,
    ),
    "\t│\t└──Minimum available nodes: %d": lambda count: ("\t│\t└──Minimum available nodes: not waited for",),
}


@contextmanager
def retold(changes: Mapping[str, Retold]) -> Iterator[None]:
    """Change these messages of this thread while the block lasts; a message that Flower words otherwise stays."""
    thread, flower = threading.get_ident(), logging.getLogger("flwr")

    def put_right(record: logging.LogRecord) -> bool:
        change = changes.get(record.msg) if record.thread == thread else None
        if change is not None and isinstance(record.args, tuple):
            record.msg, *arguments = change(*record.args)
            record.args = tuple(arguments)
        return True

    flower.addFilter(put_right)
    try:
        yield
    finally:
        flower.removeFilter(put_right)
