"""Paces: when clients are asked, and when the model moves."""

from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import require

__all__ = ["Rounds"]


@dataclass(frozen=True)
class Rounds:
    """Rounds: a cohort is asked, and the model moves when enough of it have answered, or at the deadline.

    Enough is all of them; with `fp.OverSelect`, the cohort size of the policy inside: then the round is closed with the
    last answer that is needed.

    Args:
        deadline: seconds that a round may last; None: until all have answered or failed.
        late: how many rounds late an update may come and still be used, with a smaller weight (REFL). Its client works
            on, and is not asked, until it has come or is too late. 0: late updates are dropped.
        beta: of the weight of late updates, in [0, 1]; with 0 they are not compared with those in time.
        wait: seconds until the server looks again if nobody can be asked; an update that comes ends the wait.

    >>> Rounds(deadline=30.0, late=2).lifetime(30.0)
    150.0
    """

    deadline: float | None = None
    late: int = 0
    beta: float = 0.35
    wait: float = 60.0

    def __post_init__(self) -> None:
        self.check("Rounds")

    def check(self, owner: str) -> None:
        """Raise where a value is impossible; the message begins with `owner`."""
        deadline, late = self.deadline, self.late
        require(deadline is None or 0 < deadline < np.inf, f"{owner}: deadline", deadline, "a number of seconds > 0")
        whole = isinstance(late, int | np.integer) and not isinstance(late, bool) and late >= 0
        require(whole, f"{owner}: late", late, "a whole number of rounds >= 0")
        require(0.0 <= self.beta <= 1.0, f"{owner}: late.beta", self.beta, "in [0, 1]")
        require(0 < self.wait < np.inf, f"{owner}: wait", self.wait, "a number of seconds > 0")

    def lifetime(self, limit: float | None) -> float | None:
        """Seconds for which an answer to a round that lasts up to `limit` can be of use; None: no limit.

        Each of the `late` rounds after it can last as long, and as long again if clients are probed, or for `wait`.
        """
        return None if limit is None else limit + self.late * max(2.0 * limit, self.wait)

    def empty(self, free: bool, first: float | None) -> float:
        """Seconds that a round without a cohort lasts.

        Args:
            free: whether some clients could have been asked: then the policy wanted none, and no time passes.
            first: seconds until the first late update comes; None: none does.
        """
        if free:
            return 0.0
        return self.wait if first is None else min(max(first, 0.0), self.wait)
