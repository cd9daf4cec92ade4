"""What every policy chooses with a fixed seed: cohorts, probabilities and weights are those that were written down.

The twins in the other files say what is right; this one says that nothing changed unseen: a constant, a bound, the
order of random draws, a case that comes up once in a hundred rounds. After a change that is meant to change choices,
`PYTHONPATH=tests python tests/policies/test_pinned_choices.py` writes the file anew, and CHANGELOG says so to users.
"""

import json
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import fedpick as fp
from fedpick import sampling
from fedpick.core.state import state_fields
from fedpick.policies import _labels, divfl, e3cs, fedcbs, fedcor, fedgs
from fedpick.policies.text import label
from fedpick.solvers import facility
from zoo import zoo

bottleneck = import_module("fedpick.solvers.bottleneck")  # the name in the package is that of its function

FILE = Path(__file__).with_suffix(".json")
M, CLIENTS, ROUNDS = 5, 13, 15
DONE, LATE, FAILED, SURPLUS = (int(status) for status in fp.Status)


def fleet(count: int, first: int = 0) -> fp.Clients:
    """Clients with sizes of which some are equal, features, and labels of which some are missing."""
    ids = np.arange(first, first + count)
    labels = np.stack([(7 * ids) % 11, (3 * ids + 2) % 5, np.where(ids % 4 == 1, 0, ids % 7)], axis=1)
    return fp.Clients(10.0 + np.sqrt((ids * 5) % 8), labels, np.stack([np.sqrt(ids + 1.0), np.cos(ids)], axis=1))


def there(round: int, count: int) -> np.ndarray:
    """Everyone at first, then most; nobody in round 5, fewer than a cohort in round 9, one in round 13."""
    ids = np.arange(count)
    if round == 5:
        return np.zeros(count, dtype=bool)
    if round == 9:
        return ids < M - 1
    if round == 13:
        return ids == 3
    return (round <= 2) | ((ids * 3 + round * 5) % 7 > 1)


def losses(round: int, ids: np.ndarray) -> np.ndarray:
    """Of every client in a round; some are equal."""
    return 2.0 + np.sin(1.7 * (ids % 9) + 0.3 * round)


def ended(choice: fp.Choice, round: int, policy: Any) -> fp.Outcome:
    """All kinds of ends; in round 7 no client answers, in round 11 all do."""
    ids, kind = choice.ids, (choice.ids * 2 + round) % 9
    status = np.select([kind == 3, kind == 5, kind == 7], [LATE, FAILED, SURPLUS], DONE)
    status = np.full(len(ids), {7: FAILED, 11: DONE}.get(round, 0)) if round in (7, 11) else status
    unheard = (status == SURPLUS) & (ids % 2 == 0)
    duration = np.where(unheard, np.nan, 0.25 * (1 + (ids * 5 + round) % 6))
    loss = np.where(unheard | (status == FAILED), np.nan, losses(round, ids))
    odd = (ids + 2 * round) % 8
    loss = np.where(odd == 1, np.nan, np.where((odd == 3) & ~unheard, [1e13, 0.0, -1.0][round % 3], loss))
    reports = {}
    for at, (name, columns) in enumerate(sorted(fp.traits(policy).collect(fleet(CLIENTS)).items())):
        shape = (len(ids), columns or 6) if columns != 0 else (len(ids),)
        grid = np.arange(max(1, int(np.prod(shape[1:]))))
        values = np.sin(1.0 + np.outer(0.9 * ids + 0.2 * round, grid + 1.0) + at)
        values = np.abs(values) if columns == 0 else values
        values[(status != DONE) & ~((status == SURPLUS) & ~unheard)] = np.nan
        values[(odd == 4) & (round % 4 == 0)] = np.inf
        reports[name] = values.reshape(shape)
    return fp.Outcome(status, duration, loss, reports)


def checked(values: list[Any]) -> list[float]:
    """Numbers that change if any of these arrays does: their lengths, NaN and infinities, and two sums of the rest."""
    found = np.zeros(4)
    for at, value in enumerate(values, 1):
        array = np.array([]) if value is None else np.asarray(value, dtype=np.float64).ravel()
        finite, weight = np.isfinite(array), np.cos(at + np.arange(len(array)) / 7)
        known = np.where(finite, array, 0.0)
        found += [at * (len(array) + (value is not None)), finite @ weight, known @ weight, np.abs(known).sum()]
    return [float(f"{each:.11g}") for each in found]


def seen(clients: fp.Clients, round: int, policy: Any) -> fp.View:
    ids, count = np.arange(len(clients)), len(clients)
    width = fp.traits(policy).context or 3
    context = np.stack([0.5 + (ids * (column + 2)) % 5 for column in range(width)], axis=1) / 4.0

    def asked(ids: np.ndarray, batch: int | None = None) -> np.ndarray:
        return losses(round, ids) + (0.0 if batch is None else 1.0 / batch)

    now = there(round, count)
    return fp.View(round, now, clients, context=context, probe=asked, norms=lambda ids: asked(ids), there=now)


@patch.object(sampling, "pivotal", sampling.systematic)
@patch.dict(e3cs.SAMPLERS, pivotal=e3cs.SAMPLERS["systematic"])
def played(policy: Any) -> dict[str, Any]:
    """The cohorts of some rounds, what is said of them, and what is remembered at the end.

    Not by the pivotal design: its last duel, of probabilities that sum to 1, depends on the last bit of exp().
    """
    clients, choices = fleet(CLIENTS), list[fp.Choice]()
    state = policy.init(clients)
    for t in range(1, ROUNDS + 1):
        view = seen(clients, t, policy)
        choice = policy.select(state, view, fp.rng.stream(20, t, "policy"))
        choices.append(choice)
        state = policy.observe(state, view, choice, ended(choice, t, policy))
        if t == 6:
            keep = np.delete(np.arange(CLIENTS), [1, 8])
            state, clients = fp.retire(policy, state, keep), clients.take(keep)
        if t == 8:
            state, clients = fp.admit(policy, state, fleet(4, 40)), clients.join(fleet(4, 40))
    said = {
        "inclusion": [each.inclusion for each in choices],
        "weights": [each.weights if each.normalise else [each.weights, each.weights] for each in choices],
        "chances": [each.chances() if callable(each.chances) else each.chances for each in choices],
        "probed": [each.probed for each in choices],
        **{name: [value] for name, _, value in state_fields(state) if not isinstance(value, str)},
    }
    cohorts = [" ".join(map(str, choice.ids)) for choice in choices]
    return {"cohorts": cohorts, **{name: checked(values) for name, values in said.items()}}


LIMITS = {  # beyond which policies take other ways, which 13 clients would never see
    (_labels, "LEARNED_FROM"): 8,
    (_labels, "BLOCK"): 3,
    (divfl, "ALL_UP_TO"): 4,
    (fedcbs, "ALL_UP_TO"): 6,
    (fedcbs, "CANDIDATES"): 3,
    (fedcor, "FEW"): 5,
    (fedcor, "BLOCK"): 4,
    (fedgs, "DENSE_UP_TO"): 6,
    (facility, "BLOCK"): 2,
    (bottleneck, "_PRUNE_FROM"): 6,
}
TOUCHED = (fp.FLIPS, fp.FedLECC, fp.DivFL, fp.FedCBS, fp.FedCor, fp.FedGS, fp.BSFL, fp.RBCSF)


def limited(policy: Any) -> dict[str, Any]:
    """As `played`, as if the fleet were large."""
    with ExitStack() as stack:
        for (module, name), limit in LIMITS.items():
            stack.enter_context(patch.object(module, name, limit))
        return played(policy)


def named() -> dict[str, Any]:
    """The policies by their settings; a number tells those apart that differ in arrays or functions."""
    found = dict[str, Any]()
    for policy in zoo(M).values():
        name, nth = label(policy), 1
        while name in found:
            nth += 1
            name = f"{label(policy)} {nth}"
        found[name] = policy
    return found


POLICIES = named()
LARGE = {f"{name}, large fleet": policy for name, policy in POLICIES.items() if isinstance(policy, TOUCHED)}
REPORTED = [name for name, policy in POLICIES.items() if fp.traits(policy).collect(fleet(CLIENTS))]
PINNED = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def test_every_policy_is_in_the_file() -> None:
    assert {**POLICIES, **LARGE}.keys() == PINNED.keys(), (
        "PYTHONPATH=tests python tests/policies/test_pinned_choices.py writes it"
    )


def compare(found: dict[str, Any], pinned: dict[str, Any]) -> None:
    assert found["cohorts"] == pinned["cohorts"]
    assert found.keys() == pinned.keys()
    for key in found.keys() - {"cohorts"}:
        assert found[key] == pytest.approx(pinned[key], rel=1e-9, abs=1e-9 * max(1.0, pinned[key][-1])), key


@pytest.mark.parametrize("name", POLICIES)
def test_choices_stay(name: str) -> None:
    compare(played(POLICIES[name]), PINNED[name])


@pytest.mark.parametrize("name", LARGE)
def test_choices_of_large_fleets_stay(name: str) -> None:
    compare(limited(LARGE[name]), PINNED[name])


@pytest.mark.parametrize("name", REPORTED)
def test_numbers_of_python_tell_the_same_as_arrays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ended

    def objects(choice: fp.Choice, round: int, policy: Any) -> fp.Outcome:
        told = usual(choice, round, policy)
        reports = {key: values.astype(object) for key, values in told.reports.items()}
        return fp.Outcome(told.status, told.duration, told.loss, reports)

    monkeypatch.setitem(globals(), "ended", objects)
    compare(played(POLICIES[name]), PINNED[name])


if __name__ == "__main__":
    plays = [(name, played(policy)) for name, policy in POLICIES.items()]
    plays += [(name, limited(policy)) for name, policy in LARGE.items()]
    lines = (f"{json.dumps(name)}: {json.dumps(play)}" for name, play in plays)
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
