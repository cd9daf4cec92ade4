"""Who may be asked at all: a function of the user's own says so for each client, such as a list of approved sites."""

from collections.abc import Callable, Iterable

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.server.reading import printable

__all__ = ["Eligible", "permitted"]

Eligible = Callable[[str], bool]  # a client's name, as it is enrolled -> whether it may be sent messages


def permitted(names: Iterable[str], eligible: Eligible, owner: str) -> list[str]:
    """Those of these clients that may be asked.

    Args:
        names: of clients.
        eligible: the user's function.
        owner: the name that error messages begin with.
    """
    found = []
    for name in names:
        try:
            answer = eligible(name)
        except Exception as error:
            raise ContractError(
                f"{owner}: eligible({printable(name)!r:.80}) raised {type(error).__name__}: {printable(error)[:200]}; "
                "it must return True or False for every name, and nobody is asked until it does"
            ) from error
        if not isinstance(answer, bool | np.bool_):
            raise ContractError(
                f"{owner}: eligible({printable(name)!r:.80}) returned {printable(repr(answer))[:80]}, but must return "
                "True or False; nobody is asked until it does"
            )
        if answer:
            found.append(name)
    return found
