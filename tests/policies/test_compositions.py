"""Two wrappers around every policy, with all that can happen to clients, under monitors; see harness.py.

The harness refuses a choice of a client that is away or busy, a probe of such a client, and a client twice in observe.
"""

import itertools
from functools import partial

import numpy as np
import pytest
from harness import DONE, FAILED, LATE, SURPLUS, Setting, jain, people, play

import fedpick as fp
from fedpick.core.state import state_fields
from fedpick.policies import TABLE
from fedpick.policies.text import example
from zoo import sizes

M, CLIENTS = 5, 30
WRAPPERS = {
    "over": partial(fp.OverSelect, factor=1.4),
    "apart": partial(fp.MinSeparation, rounds=2),
    "guard": partial(fp.Guard, window=3),
}
PAIRS = list(itertools.product(WRAPPERS, WRAPPERS))
EVENTS = Setting(there=0.8, stays=0.5, crash=0.05, error=0.05, deadline=4.0, late=True, grace=0.3)
ALIKE = Setting(grace=0.3)  # all are there, nobody fails
POLICIES = {
    f"{name}{'-' + '-'.join(map(str, form.values())) if form else ''}": example(listed, M, sizes, **form)
    for name, listed in TABLE.items()
    if listed.about.kind != "wrapper"
    for form in ({}, *listed.about.forms)
}
FAIR = {
    "uniform": fp.Uniform(M),
    "e3cs": fp.E3CS(M, quota=1.0),
    "e3cs-some": fp.E3CS(M, quota=0.8),
    "fedgs": fp.FedGS(M),
    "refl": fp.REFL(M),
    "f3ast": fp.F3AST(M),
    "size": fp.SizeWeighted(M, replace=False),
}


def refusal(pair, policy):
    """Why this composition is none, or None."""
    if "apart" in pair and fp.traits(policy).replace:
        return "draws with replacement"
    if pair in (("over", "over"), ("apart", "apart")):
        return "contains one already"
    if "over" in pair and fp.traits(policy).cohort_size is None:
        return "has no cohort_size to raise"
    return None


def composed(pair, policy):
    outer, inner = pair
    return WRAPPERS[outer](WRAPPERS[inner](policy))


def counts_in(state):
    """Names of the fields that count choices."""
    return [name for name, _, _ in state_fields(state) if name.split(".")[-1] == "counts"]


def check_counts(log):
    """Each count of choices in the state is that of the log."""
    fields = {name: value for name, _, value in state_fields(log.state)}
    for name in counts_in(log.state):
        beside = name.removesuffix("counts")
        if f"{beside}changes" in fields:
            continue  # FedCor counts since it last learned
        excused = fields.get(f"{beside}excused", 0)  # GreedyFed counts these apart
        np.testing.assert_array_equal(fields[name] + excused, log.counts[log.names])


def play_all(pair, name, rounds):
    policy = POLICIES[name]
    if refusal(pair, policy):
        with pytest.raises(fp.SettingError, match=refusal(pair, policy)):
            composed(pair, policy)
        return
    whole = composed(pair, policy)
    seconds = np.random.default_rng(1).uniform(1.0, 5.0, CLIENTS)
    changes = {rounds // 3: (4, 6), 2 * rounds // 3: (5, 3)}
    log = play(whole, people(CLIENTS, equal=False), seconds, rounds, EVENTS, seed=2, changes=changes)
    assert len(log.rounds) == rounds
    assert min(log.ended(status) for status in (DONE, LATE)) > 0
    assert log.ended(FAILED) > 0 or rounds < 100
    assert (log.ended(SURPLUS) > 0) or "over" not in pair
    check_counts(log)
    if "apart" in pair:
        for (before, _), (ids, _) in itertools.pairwise(log.rounds):
            assert not np.intersect1d(before, ids).size


CASES = list(itertools.product(PAIRS, POLICIES))


@pytest.mark.parametrize(
    ("pair", "name"), CASES, ids=lambda value: "-".join(value) if isinstance(value, tuple) else value
)
def test_two_wrappers_around_every_policy_for_25_rounds(pair, name):
    play_all(pair, name, 25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "name"), CASES, ids=lambda value: "-".join(value) if isinstance(value, tuple) else value
)
def test_two_wrappers_around_every_policy_for_300_rounds(pair, name):
    play_all(pair, name, 300)


def stays_fair(pair, name, rounds):
    """Jain's index of a policy that is fair alone: at least that of counts with twice the variance of a uniform draw.

    If each of K clients is chosen with probability p in T rounds, the index is about 1/(1 + (1 - p)/(T p)).
    """
    policy = composed(pair, FAIR[name])
    seconds = np.where(np.arange(CLIENTS) < CLIENTS // 2, 1.0, 5.0)
    log = play(policy, people(CLIENTS), seconds, rounds, ALIKE, seed=3)
    p = log.counts.sum() / (CLIENTS * rounds)
    assert jain(log.counts) >= 1.0 / (1.0 + 2.0 * (1.0 - p) / (rounds * p))


FAIR_CASES = [(pair, name) for pair, name in itertools.product(PAIRS, FAIR) if not refusal(pair, FAIR[name])]


@pytest.mark.parametrize(("pair", "name"), FAIR_CASES, ids=str)
def test_who_is_fair_alone_stays_fair_for_25_rounds(pair, name):
    stays_fair(pair, name, 25)


@pytest.mark.slow
@pytest.mark.parametrize(("pair", "name"), FAIR_CASES, ids=str)
def test_who_is_fair_alone_stays_fair_for_300_rounds(pair, name):
    stays_fair(pair, name, 300)


def test_every_policy_that_counts_its_choices_is_compared_with_the_log():
    counting = {name for name, policy in POLICIES.items() if counts_in(policy.init(people(8)))}
    assert {"Uniform", "REFL", "Oort", "BSFL", "TiFL", "F3AST", "GreedyFed"} <= counting
