"""What liars can win is bounded: the thresholds of the capture table, which `make bench-capture` has in full."""

import json
import sys
from pathlib import Path

import pytest

import fedpick as fp
from fedpick.server.settings import Limits

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
QUICK = {"rpow-d(100)": "loud", "ActiveFL": "loud", "CSUCB": "fast"}  # the lie that wins most of the bare policy
MOST = {10: (0.20, 0.25), 1: (0.03, 0.03)}  # of the places and of the weight, guarded, after each of the rounds AT


@pytest.fixture(scope="module")
def arena():
    sys.path.insert(0, str(BENCHMARKS))
    import arena

    yield arena
    sys.path.remove(str(BENCHMARKS))
    sys.modules.pop("arena", None)


def over(arena, policy, lie, liars, at):
    """Where liars have more than MOST, by round, of places and of weight: a guard and a session's limits hold."""
    found = arena.capture(fp.Guard(policy), arena.LIES[lie], liars, at=at, limits=Limits())
    return {at: got for at, got in found.items() if got.places > MOST[liars][0] or got.weight > MOST[liars][1]}


@pytest.mark.parametrize(("name", "lie"), QUICK.items())
def test_a_guard_limits_what_liars_take_from_the_first_rounds_on(arena, name, lie) -> None:
    """Whatever a client did not take before counts from when it joined: there is nothing in advance."""
    bare, at = arena.POLICIES[name](arena.COHORT), (30, 50, 100)
    free, guarded = (arena.capture(p, arena.LIES[lie], 10, at=at) for p in (bare, fp.Guard(bare)))
    there = (1 - arena.AWAY) * arena.CLIENTS
    for rounds in at:
        most = 10 * (1.5 * rounds * arena.COHORT / there + 1) / (rounds * arena.COHORT)
        assert guarded[rounds].places <= most + 0.01  # how many are there varies by round
    assert free[100].places > guarded[100].places + 0.01
    assert {liars: over(arena, bare, lie, liars, at) for liars in MOST} == {10: {}, 1: {}}


@pytest.mark.parametrize("name", ["SizeWeighted", "Clustered", "ActiveFL", "F3AST", "Uniform"])
def test_one_client_that_declares_any_size_gets_little(arena, name) -> None:
    """At the beginning and in the long run; without the limits it has the model to itself."""
    policy, lie = arena.POLICIES[name](arena.COHORT), arena.LIES["big"]
    free, held = (arena.capture(policy, lie, 1, at=(30, 100), limits=limits) for limits in (None, Limits()))
    assert all(held[at].weight < 0.8 * free[at].weight for at in free)
    if name in ("SizeWeighted", "Clustered"):
        assert min(got.places for got in free.values()) > 0.9
        assert max(got.places for got in held.values()) < 0.3
    assert {liars: over(arena, policy, "big", liars, (30, 100)) for liars in MOST} == {10: {}, 1: {}}


def test_liars_win_nothing_by_what_cannot_be_true(arena) -> None:
    for name in ("rpow-d(50)", "ActiveFL", "E3CS(quota=0.5, reward='gain')"):
        for lie in ("nan", "1e300"):
            found = arena.capture(arena.POLICIES[name](arena.COHORT), arena.LIES[lie], 10, at=(50,))
            assert found[50].places <= 0.10, (name, lie)


def worst_lies(name: str) -> set[str]:
    """The lies that take the most places and weight of the bare policy in the stored table, and "pulse"."""
    rows = json.loads((BENCHMARKS / "results/capture/capture.json").read_text())["rows"]
    bare = [row for row in rows if row["policy"] == name and row["liars"] == 10 and row["defence"] == "none"]
    worst = {max(bare, key=lambda row: row[what][-1])["lie"] for what in ("places", "weight") if bare}
    return (worst or {"loud", "fast", "big"}) | {"pulse"}


@pytest.mark.slow
def test_guarded_ten_liars_get_at_most_a_fifth_and_one_at_most_3_percent(arena) -> None:
    """After 30, 50, 100 and 500 rounds, of every policy of the arena; `make bench-capture` plays all lies."""
    found = {
        (name, lie, liars): over(arena, make(arena.COHORT), lie, liars, arena.AT)
        for name, make in arena.POLICIES.items()
        for lie in sorted(worst_lies(name))
        for liars in MOST
    }
    assert {case: rounds for case, rounds in found.items() if rounds} == {}


def test_the_stored_table_is_within_the_thresholds_everywhere() -> None:
    """Every policy and lie of the page."""
    rows = json.loads((BENCHMARKS / "results/capture/capture.json").read_text())["rows"]
    guarded = [row for row in rows if row["defence"] == "guard"]
    assert {tuple(row["at"]) for row in guarded} == {(30, 50, 100, 500)}
    assert len(guarded) > 600
    for row in guarded:
        for what, most in zip(("places", "weight"), MOST[row["liars"]], strict=True):
            assert max(row[what]) <= most, row


@pytest.mark.slow
def test_what_the_bare_policies_lose_is_still_what_the_page_says(arena) -> None:
    """The table would be worth nothing if the lies of the arena were harmless."""
    worst = {
        "rpow-d(100)": ("loud", 0.8),
        "ActiveFL": ("loud", 0.8),
        "E3CS(quota=0.5, reward='gain')": ("useful", 0.3),
        "RBCSF": ("fast", 0.3),
        "CSUCB": ("fast", 0.3),
        "BSFL": ("fast", 0.2),
        "pow-d(50)": ("dead", 0.3),
        "Clustered": ("big", 0.9),
        "REFL": ("pulse", 0.3),
    }
    for name, (lie, least) in worst.items():
        share = arena.capture(arena.POLICIES[name](arena.COHORT), arena.LIES[lie], 10)[500].places
        assert share >= least, (name, share)
