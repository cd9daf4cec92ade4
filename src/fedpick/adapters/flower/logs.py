"""The adapter's logger; corrections of Flower's log messages that are wrong when a policy chooses the clients."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["FRACTIONS", "ROUND", "SAMPLED", "corrected", "log"]

log = logging.getLogger("flwr.fedpick")  # a child of Flower's logger, so that messages are shown with Flower's

Correction = Callable[..., tuple[Any, ...]]  # a message's arguments -> the corrected text and its arguments

ROUND = "[ROUND %s/%s]"
SAMPLED = "configure_train: Sampled %s nodes (out of %s)"
# Lines of FedAvg's summary about settings that have no effect on the policy's choice.
FRACTIONS: Mapping[str, Correction] = {
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
def corrected(changes: Mapping[str, Correction]) -> Iterator[None]:
    """Replace these messages of this thread during the block; messages with other texts are not changed."""
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
