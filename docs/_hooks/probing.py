"""Finds out what a policy reads, by changing one thing at a time and looking whether it chooses others."""

from typing import Any

import numpy as np

import fedpick as fp

__all__ = ["CHANNELS", "play", "reads"]

K, M, ROUNDS = 24, 4, 40
CHANNELS = ("status", "duration", "loss", "report", "probe", "norms", "context", "features", "labels", "sizes")


def _numbers(channel: str, changed: str | None, round: int, shape: Any) -> np.ndarray:
    """Random numbers in (0, 1] of a channel in a round; others if that channel is the one changed."""
    return 1.0 - fp.rng.stream(int(channel == changed), round, channel).random(shape)


def _width(spec: fp.ReportSpec) -> tuple[int, ...]:
    return () if spec.width == 0 else (spec.width or 6,)


def play(policy: Any, changed: str | None = None) -> list[fp.Choice]:
    """Play rounds among 24 clients and return the choices; the numbers of one channel can be changed."""
    sizes = 10 + 90 * _numbers("sizes", changed, 0, K)
    labels = 30 * _numbers("labels", changed, 0, (K, 5)) ** 3
    clients = fp.Clients(sizes, labels, _numbers("features", changed, 0, (K, 5)))
    state, choices = policy.init(clients), []
    for round in range(1, ROUNDS + 1):

        def told(name: str, ids: Any, round: int = round) -> np.ndarray:
            return _numbers(name, changed, round, K)[np.asarray(ids)]

        view = fp.View(
            round,
            _numbers("available", None, round, K) < 0.7,
            clients,
            context=_numbers("context", changed, round, (K, 3)),
            probe=lambda ids, batch=None, told=told: told("probe", ids),
            norms=lambda ids, told=told: told("norms", ids),
        )
        choice = policy.select(state, view, fp.rng.stream(0, round, "policy"))
        choices.append(choice)
        ids = choice.ids
        failed = _numbers("status", changed, round, K)[ids] < 0.3
        outcome = fp.Outcome(
            np.where(failed, fp.Status.FAILED, fp.Status.DONE),
            np.where(failed, np.nan, 1 + 9 * told("duration", ids)),
            np.where(failed, np.nan, told("loss", ids)),
            {
                each.name: _numbers("report", changed, round, (K, *_width(each)))[ids]
                for each in fp.traits(policy).reports
            },
        )
        state = policy.observe(state, view, choice, outcome)
    return choices


def _same(one: list[fp.Choice], other: list[fp.Choice]) -> bool:
    return all(np.array_equal(a.ids, b.ids) for a, b in zip(one, other, strict=True))


def reads(policy: Any) -> list[str]:
    """The channels on which the policy's choices depend.

    >>> reads(fp.Uniform(4)), reads(fp.Oort(4))
    ([], ['status', 'duration', 'report', 'sizes'])
    """
    plain = play(policy)
    return [channel for channel in CHANNELS if not _same(plain, play(policy, channel))]
