"""What the records of a run show about participation: how often and how far apart the updates of a client were used.

The guarantee of DP-FTRL rests on these two numbers. Clients are told apart by name, and what counts is in which round
an update was used, which for a late one is not the round in which its client was chosen. A log that cannot show this
has no certificate. Rounds that are not in the log, such as those of another folder, are not covered.
"""

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support import atomic
from fedpick.core.errors import CheckError, printable
from fedpick.store.manifest import last_entry, read_manifest
from fedpick.store.tables import read_clients, read_rounds, read_selections, read_uses

__all__ = ["Certificate"]

Use = tuple[str, int, int]  # name of the client, round in which its update was used, round in which it was chosen


def _no_guarantee(folder: str | os.PathLike[str], why: str) -> CheckError:
    return CheckError(f"{folder}: no guarantee: {why}")


def _names(folder: str | os.PathLike[str], numbers: set[int]) -> dict[int, str]:
    """The names of clients by number; an error if a name has two numbers, or one of these numbers no name."""
    names = read_clients(folder)
    if names is None:  # of a simulated run, where a client has its number for ever
        return {number: str(number) for number in numbers}
    known = {number: name for number, name in enumerate(names) if name}
    if unknown := sorted(numbers - known.keys()):
        raise _no_guarantee(folder, f"client number {unknown[0]} took part, and its name is not known")
    by_name: dict[str, list[int]] = {}
    for number, name in known.items():
        by_name.setdefault(name, []).append(number)
    for name, given in by_name.items():
        if len(given) > 1 and numbers.intersection(given):
            raise _no_guarantee(
                folder,
                f"{printable(name)!r:.80} has the numbers {given[0]} and {given[1]}: it was forgotten, and could take "
                "part again too soon or too often. Let the server forget nobody: limits=Limits(forget_after=None)",
            )
    return known


def _uses(folder: str | os.PathLike[str]) -> tuple[int, list[Use]]:
    """The number of rounds of a run and all uses of updates, in order; an error if the log may lack some."""
    rounds = read_rounds(folder, ["round", "present"])
    numbers = np.sort(rounds["round"].to_numpy())
    expected = np.arange(1, len(numbers) + 1)
    if not np.array_equal(numbers, expected):
        first = int(expected[numbers != expected][0])
        raise _no_guarantee(folder, f"the log has a gap or a repetition at round {first}, so that uses may be missing")
    if "present" not in rounds.column_names or rounds["present"].null_count:
        raise _no_guarantee(
            folder, "rounds were recorded by a version before 0.3, which did not record which late updates were used"
        )
    state = str((read_manifest(folder).get("about") or {}).get("state", ""))
    if last_entry(state) != state:
        raise _no_guarantee(folder, f"the server's state was lost or replaced ({state[:80]}), and so who took part")
    uses, chosen = read_uses(folder), set(read_selections(folder, ["client"])["client"].to_pylist())
    columns = [uses[name].to_pylist() for name in ("client", "round", "sent")]
    names = _names(folder, chosen.union(columns[0]))
    return len(numbers), sorted((names[client], used, sent) for client, used, sent in zip(*columns, strict=True))


def _distances(uses: list[Use]) -> list[tuple[int, Use, Use]]:
    """Rounds between two uses of a client, one after the other, and these."""
    return [(later[1] - use[1], use, later) for use, later in pairwise(uses) if use[0] == later[0]]


def _counts(uses: list[Use]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, *_ in uses:
        found[name] = found.get(name, 0) + 1
    return found


@dataclass(frozen=True)
class Certificate:
    """What a run's records show about participation; made from them with `of`, and checked against them with `check`.

    Args:
        rounds: of the log.
        separation: the smallest distance in rounds between two uses of updates of a client, 0 if they were used in one
            round; None: no client had two.
        most: the largest number of uses of updates of one client.
        digest: HMAC-SHA256 of the log under the salt. Without the salt it says nothing, not even to who knows all of
            the log but one client's rounds.
        salt: 64 hexadecimal digits, which `save` does not write: for those who may see the log.
    """

    rounds: int
    separation: int | None
    most: int
    digest: str
    salt: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> "Certificate":
        """From the folder of a run; a CheckError if its log cannot show how often and how far apart clients took part.

        That is so if a client that took part has two numbers, because the server forgot it in between, if rounds are
        missing, or if the server's state was replaced.
        """
        return cls._of(*_uses(folder), secrets.token_hex(32))

    @classmethod
    def _of(cls, rounds: int, uses: list[Use], salt: str) -> "Certificate":
        digest = hmac.new(salt.encode(), json.dumps([rounds, uses]).encode(), hashlib.sha256).hexdigest()
        least = min((rounds for rounds, *_ in _distances(uses)), default=None)
        return cls(rounds, least, max(_counts(uses).values(), default=0), digest, salt)

    def holds(self, separation: int, at_most: int | None = None) -> bool:
        """Whether the log keeps these bounds."""
        apart = self.separation is None or self.separation >= separation
        return apart and (at_most is None or self.most <= at_most)

    def check(
        self, folder: str | os.PathLike[str], salt: str, *, separation: int = 1, at_most: int | None = None
    ) -> None:
        """Raise a CheckError unless it is the certificate of this log under this salt, and it keeps these bounds."""
        rounds, uses = _uses(folder)
        found = Certificate._of(rounds, uses, salt)
        for name in ("rounds", "separation", "most", "digest"):
            if getattr(found, name) != getattr(self, name):
                raise CheckError(
                    f"the certificate says {name} = {getattr(self, name)}, but the log has {getattr(found, name)}: one "
                    "of them was changed, or the salt is another; make the certificate anew from a log that you trust"
                )
        for apart, (client, before, _), (_, after, _) in _distances(uses):
            if apart < separation:
                raise CheckError(
                    f"updates of {printable(client)!r:.80} were used in rounds {before} and {after}, but must be "
                    f"{separation} apart"
                )
        if at_most is not None and self.most > at_most:
            raise CheckError(f"updates of a client were used {self.most} times, but at most {at_most} are allowed")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON without the salt, atomically."""
        content = {name: value for name, value in asdict(self).items() if name != "salt"}
        atomic.write_text(Path(path), json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Certificate":
        """Read what `save` wrote."""
        try:
            stored: dict[str, Any] = json.loads(Path(path).read_text())
            return cls(**stored)
        except (ValueError, TypeError, RecursionError) as error:
            raise CheckError(f"{path}: not a certificate ({error}); make it anew with Certificate.of") from None
