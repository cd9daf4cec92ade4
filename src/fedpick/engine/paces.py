"""Paces: when clients are asked, and when the model moves."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import SettingError, require
from fedpick.core.types import Floats

__all__ = ["MIXINGS", "Buffered", "Pace", "Rounds"]


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


MIXINGS = ("constant", "polynomial", "hinge")
TIMEOUT = 600.0  # seconds


@dataclass(frozen=True)
class Buffered:
    """Asynchronous training: a client is asked whenever another has ended, and the model moves after `size` answers.

    This is FedBuff (Nguyen et al. 2022, https://arxiv.org/abs/2106.06639). An answer's staleness is the number of times
    that the model has moved since it was sent; a fresh answer has 0. The model moves by the sum of weight times update,
    and the weight is b/(sqrt(1 + staleness) n), where n is the number of answers, and b is 1, a client's size over the
    mean size, or the policy's weight. It is n and not the sum of the weights, so stale answers move the model less.

    With `size=1` and a `mixing` it is FedAsync (Xie et al. 2019, https://arxiv.org/abs/1903.03934): the model becomes
    (1 - a) model + a (the client's model), where a is `alpha` times 1 ("constant"), (1 + staleness)^-power
    ("polynomial"), or 1 up to a staleness of `hinge` and 1/(slope (staleness - hinge) + 1) beyond ("hinge"). The paper
    counts a fresh answer as 1; here it is 0.

    Args:
        concurrency: clients that work at the same time.
        size: answers after which the model moves; None: it moves by `every` or `bound` alone.
        timeout: seconds after which a client that has not answered is given up; None: the deadline of the world or of
            the session, 600 without one.
        oldest: the largest staleness of an answer that is used; None: any.
        refill: places that must be free before clients are asked; more saves time if there are very many clients.
        every: seconds after which the model moves at the latest, with the answers that there are; None: no limit.
        bound: the model also moves, with the answers that there are, when the time since it last moved is the longest
            that clients at work took the last time, over `bound` + 1, so that few answers are staler than `bound`
            (Pisces, Jiang et al. 2022, https://arxiv.org/abs/2206.09264). Who has not answered yet is taken for as slow
            as the slowest so far. None: not so.
        mixing: None (FedBuff), "constant", "polynomial" or "hinge" (FedAsync).
        alpha: of FedAsync, in (0, 1].
        power: of "polynomial", > 0.
        slope: of "hinge", > 0.
        hinge: of "hinge", >= 0.
        correct: whether each client counts as much as it should in the long run, although fast ones answer more often:
            its answer counts b, in proportion to its size (or 1) over the sum of 1/sqrt(1 + staleness) of its answers
            so far, on average 1 and at most 10. The policy's weights are not used then.
        wait: seconds until the server looks again if nobody can be asked; an answer ends the wait.

    >>> Buffered(concurrency=30, size=10).damping(np.array([0.0, 3.0])).tolist()
    [1.0, 0.5]
    >>> Buffered(concurrency=30, size=1, mixing="polynomial", alpha=0.6).damping(np.array([0.0, 3.0])).tolist()
    [0.6, 0.3]
    """

    concurrency: int
    size: int | None = 10
    timeout: float | None = None
    oldest: int | None = None
    refill: int = 1
    every: float | None = None
    bound: int | None = None
    mixing: str | None = None
    alpha: float = 0.6
    power: float = 0.5
    slope: float = 10.0
    hinge: float = 4.0
    correct: bool = False
    wait: float = 60.0

    def __post_init__(self) -> None:
        for name in ("concurrency", "size", "oldest", "refill", "bound"):
            value, least = getattr(self, name), 0 if name in ("oldest", "bound") else 1
            if value is None and name in ("size", "oldest", "bound"):
                continue
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            require(whole, f"Buffered: {name}", value, f"a whole number >= {least}")
        fits = self.refill <= self.concurrency
        require(fits, "Buffered: refill", self.refill, f"at most concurrency = {self.concurrency}")
        for name in ("timeout", "wait", "power", "slope"):
            value = getattr(self, name)
            if value is not None or name != "timeout":
                require(0 < value < np.inf, f"Buffered: {name}", value, "> 0 and finite")
        every = self.every
        require(every is None or 0 < every < np.inf, "Buffered: every", every, "a number of seconds > 0")
        if self.size is None and self.every is None and self.bound is None:
            raise SettingError("Buffered: size, every and bound are all None, so the model would never move; give one")
        require(0 < self.alpha <= 1, "Buffered: alpha", self.alpha, "in (0, 1]")
        require(0 <= self.hinge < np.inf, "Buffered: hinge", self.hinge, "a staleness >= 0")
        known = self.mixing is None or self.mixing in MIXINGS
        require(known, "Buffered: mixing", self.mixing, f"None (FedBuff) or one of {', '.join(MIXINGS)} (FedAsync)")
        fits = self.mixing is None or (self.size == 1 and self.every is None and self.bound is None)
        alone = "1, without every and bound, with a mixing: FedAsync moves at each answer"
        require(fits, "Buffered: size", self.size, alone)
        require(isinstance(self.correct, bool), "Buffered: correct", self.correct, "True or False")
        if self.correct and self.mixing is not None:
            raise SettingError(
                f"Buffered: correct = True has no place beside mixing = {self.mixing!r}: FedAsync moves to a client's "
                "model by its staleness alone, so there is no weight to correct; use one or the other"
            )

    def within(self, deadline: float | None) -> "Buffered":
        """With a timeout: its own, else this deadline, else 600 seconds."""
        return self if self.timeout is not None else replace(self, timeout=TIMEOUT if deadline is None else deadline)

    def damping(self, staleness: ArrayLike) -> Floats:
        """What answers of this staleness count for, beside 1 (FedAsync: alpha) for fresh ones."""
        tau = np.asarray(staleness, dtype=np.float64)
        if self.mixing is None:
            return 1.0 / np.sqrt(1.0 + tau)
        if self.mixing == "polynomial":
            return self.alpha * (1.0 + tau) ** -self.power
        if self.mixing == "hinge":
            return self.alpha / (np.maximum(tau - self.hinge, 0.0) * self.slope + 1.0)
        return np.full(tau.shape, self.alpha)


Pace = Rounds | Buffered
