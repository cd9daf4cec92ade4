"""What liars can win is bounded: the thresholds of the capture table, which `make bench-capture` has in full."""

import json
import sys
from pathlib import Path

import pytest

import fedpick as fp

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
QUICK = {"rpow-d(100)": "loud", "ActiveFL": "loud", "CSUCB": "fast"}  # the lie that wins most of the bare policy
MOST = {10: 0.20, 1: 0.03}  # of the places, guarded


@pytest.fixture(scope="module")
def arena():
    sys.path.insert(0, str(BENCHMARKS))
    import arena

    yield arena
    sys.path.remove(str(BENCHMARKS))
    sys.modules.pop("arena", None)


@pytest.mark.parametrize(("name", "lie"), QUICK.items())
def test_a_guard_halves_what_ten_liars_take_at_once(arena, name, lie) -> None:
    """A short run, in which liars can still take the window's share in advance: cap (t + window) m/n and one each."""
    rounds, there = 60, (1 - arena.AWAY) * arena.CLIENTS
    bare = arena.POLICIES[name](arena.COHORT)
    free, guarded = (arena.capture(p, arena.LIES[lie], 10, rounds=rounds) for p in (bare, fp.Guard(bare, window=10)))
    most = 10 * (1.5 * (rounds + 10) * arena.COHORT / there + 1) / (rounds * arena.COHORT)
    assert free > 1.1 * guarded
    assert guarded <= most + 0.02  # how many are there varies by round


def test_liars_win_nothing_by_what_cannot_be_true(arena) -> None:
    for name in ("rpow-d(50)", "ActiveFL", "E3CS(quota=0.5, reward='gain')"):
        for lie in ("nan", "1e300"):
            assert arena.capture(arena.POLICIES[name](arena.COHORT), arena.LIES[lie], 10, rounds=50) <= 0.10, (
                name,
                lie,
            )


def worst_lies(name: str) -> list[str]:
    """The lie that takes the most places of the bare policy in the stored table; two for a policy that is not in it."""
    rows = json.loads((BENCHMARKS / "results/capture/capture.json").read_text())["rows"]
    bare = [row for row in rows if row["policy"] == name and row["liars"] == 10 and not row["guarded"]]
    return [max(bare, key=lambda row: row["share"])["lie"]] if bare else ["loud", "fast"]


@pytest.mark.slow
def test_guarded_ten_liars_take_at_most_a_fifth_and_one_at_most_3_percent(arena) -> None:
    """Of every policy of the arena; `make bench-capture` plays all lies."""
    shares = {
        (name, lie, liars): arena.capture(fp.Guard(make(arena.COHORT)), arena.LIES[lie], liars)
        for name, make in arena.POLICIES.items()
        for lie in worst_lies(name)
        for liars in MOST
    }
    assert {case: share for case, share in shares.items() if share > MOST[case[2]]} == {}


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
    }
    for name, (lie, least) in worst.items():
        share = arena.capture(arena.POLICIES[name](arena.COHORT), arena.LIES[lie], 10)
        assert share >= least, (name, share)
