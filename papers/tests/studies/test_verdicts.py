"""The rules of the verdicts, against made-up data and against a plain twin."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpick.core.errors import ContractError
from fedpick_papers import studies
from fedpick_papers.studies._verdicts import (
    FEWEST,
    VERDICTS,
    Check,
    above,
    judge,
    most,
    not_testable,
    order,
    vacuous,
    within,
)

NUMBERS = st.floats(-100.0, 100.0).map(lambda x: round(x, 3))
SEEDS = st.lists(NUMBERS, min_size=1, max_size=12)
SIZES = st.none() | st.floats(0.1, 50.0)


def exactly(mean, spread, n):
    """n numbers with exactly this mean and this standard deviation."""
    z = np.linspace(-1.0, 1.0, n)
    return mean + spread * (z - z.mean()) / z.std(ddof=1)


def ends(values, level=0.95):
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    return low, high, (high - low) / 2


def plain_above(values, size, margin=None, parts=1):
    """The rule as the words say it."""
    alike = len(set(values)) == 1
    if len(values) < 3 or (alike and 2 * 0.5 ** len(values) >= 0.05):
        return "undecided"
    low, high, half = ends(values) if not alike else (values[0], values[0], 0.0)
    joint_low, joint_high, _ = ends(values, 1 - 0.05 / parts) if not alike else (low, high, half)
    if alike and 2 * 0.5 ** len(values) >= 0.05 / parts:  # too few seeds to speak against one of so many parts
        joint_low, joint_high = -np.inf, np.inf
    if low > 0:
        if size is None or low > size:
            return "reproduced"
        return "reproduced" if joint_high >= size and half <= size / 2 else "direction only"
    if size is None and margin is not None and max(-joint_low, joint_high) < margin:
        return "no difference"
    if joint_high <= 0:
        return "contradicted"
    return "contradicted" if size is not None and joint_high < size / 2 else "undecided"


@given(SEEDS, SIZES, st.none() | st.floats(0.1, 50.0), st.integers(1, 20))
def test_above_is_the_plain_rule(values, size, margin, parts):
    found = above(values, "A > B", size=size, margin=margin)
    assert found.verdict == plain_above(values, size, margin)
    assert found.part.check(parts).verdict == plain_above(values, size, margin, parts)
    assert judge([found] * parts).verdict in (plain_above(values, size, margin, parts), "too few seeds")


@given(st.lists(SEEDS.filter(lambda x: len(x) > 2), min_size=1, max_size=6))
def test_more_parts_make_no_claim_worse_than_its_worst_part_alone(parts):
    def verdicts(checks):
        return [check.verdict for check in checks]

    alone = [above(values, "A", margin=1.0) for values in parts]
    together = judge(alone).checks
    for one, other in zip(verdicts(alone), verdicts(together), strict=True):
        assert other in (one, "undecided")  # what was decided stays so, or needs more seeds


def test_what_speaks_against_one_of_many_parts_is_rarely_chance():
    rng = np.random.default_rng(0)
    wrong, uncorrected = 0, 0
    for _ in range(250):
        parts = [above(rng.normal(0.0, 1.0, 8), "A > B") for _ in range(12)]
        wrong += judge(parts).verdict == "contradicted"
        uncorrected += any(part.verdict == "contradicted" for part in parts)
    # All differences are 0: a part is contradicted by chance in 2.5% of the cases, one of 12 in 26%.
    assert wrong / 250 < 0.025 + 3 * np.sqrt(0.025 * 0.975 / 250)
    assert uncorrected / 250 > 0.15


def test_no_difference_is_told_from_too_few_seeds():
    rng = np.random.default_rng(1)
    noise = rng.normal(0.0, 1.0, 60)
    noise -= noise.mean()
    assert above(noise, "A > B", margin=1.0).verdict == "no difference"
    assert above(noise, "A > B").verdict == "undecided"  # without a margin nobody can ever say so
    assert above(noise[:3], "A > B", margin=1.0).verdict == "undecided"
    assert above(noise + 0.5, "A > B", margin=1.0).verdict == "reproduced"
    assert above(noise - 0.5, "A > B", margin=1.0).verdict == "no difference"
    assert above(noise - 2.0, "A > B", margin=1.0).verdict == "contradicted"
    assert above(noise, "A > B", margin=1.0, size=3.0).verdict == "contradicted"  # a printed size is not there
    assert above(noise / 100, "A > B", ratio=True).seen == (
        "A > B: no difference, less than 1.05 times: ratio 1.00 (95% 1.00 to 1.00)"
    )


@given(st.floats(-0.9, 0.9), st.floats(0.2, 3.0))
def test_with_a_margin_some_number_of_seeds_always_decides(mean, spread):
    few = above(exactly(mean, spread, 3), "A", margin=1.0)
    if few.verdict == "undecided":
        assert few.seeds <= 1000
        assert above(exactly(mean, spread, few.seeds), "A", margin=1.0).verdict != "undecided"


def test_a_claim_with_one_part_beyond_its_margin_is_no_difference():
    no, yes = Check("no difference", "A"), Check("reproduced", "B")
    assert judge([no, yes]).verdict == "no difference"
    assert judge([no, Check("undecided", "C", 5)]).verdict == "no difference"
    assert judge([no, Check("contradicted", "C")]).verdict == "contradicted"
    assert judge([no, yes]).seeds is None
    assert most([no, no, yes], "A").verdict == "no difference"
    assert most([no, yes, yes], "A").verdict == "reproduced"


def test_a_part_as_data_has_all_that_its_verdict_depends_on():
    part = above([1.0, 2.0, 4.0], "A > B", size=0.5, ratio=True).part
    assert part.data() == {
        "what": "A > B",
        "rule": "above",
        "values": (1.0, 2.0, 4.0),
        "size": 0.5,
        "margin": np.log(1.05),
        "ratio": True,
    }
    assert within([1.0], "A", low=0.0).part.data() == {"what": "A", "rule": "within", "values": (1.0,), "low": 0.0}


@given(NUMBERS, SIZES, st.floats(0.0, 100.0))
def test_one_seed_decides_nothing(value, size, width):
    for check in (above([value], "A", size=size), within([value], "A", low=-width, high=width)):
        assert check.verdict == "undecided"
        assert check.seeds == FEWEST
        assert "one seed" in check.seen


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=2), min_size=1, max_size=4))
def test_too_few_seeds_are_told_apart_by_their_means_alone(parts):
    found = judge([above(values, f"part {i}") for i, values in enumerate(parts)])
    short = [i for i, values in enumerate(parts) if not np.mean(values) > 0]
    assert (found.verdict, found.seeds, found.as_claimed) == ("too few seeds", None, not short)
    assert [i for i in range(4) if f"part {i}:" in found.reasons[0]] == short
    assert f"At least {FEWEST} seeds are needed" in found.reasons[0]


def test_one_part_with_enough_seeds_makes_the_claim_as_usual():
    found = judge([above([1.0], "A"), above([1.0, 1.1, 1.2], "B")])
    assert found.as_claimed is None
    assert (found.parts, found.reasons) == ("1 of 2 parts is reproduced", ("A is undecided: +1.00 (one seed)",))


def test_the_worst_part_comes_first():
    checks = [above([-1.0, 1.1, 1.2], "A"), above([-1.0, -1.1, -1.2], "B"), above([1.0, 1.1, 1.2], "C")]
    assert [reason[:1] for reason in judge(checks).reasons] == ["B", "A"]


@given(st.floats(-5.0, 5.0), st.floats(0.01, 5.0), st.floats(1.0, 20.0), st.integers(3, 12))
def test_no_rule_passes_because_an_interval_is_wide(mean, spread, wider, n):
    narrow, wide = exactly(mean, spread, n), exactly(mean, spread * wider, n)
    if above(wide, "A").verdict == "reproduced":
        assert above(narrow, "A").verdict == "reproduced"
    if within(wide, "A", low=-2, high=2).verdict == "reproduced":
        assert within(narrow, "A", low=-2, high=2).verdict == "reproduced"
    if above(wide, "A", size=1.0).verdict == "reproduced":
        assert ends(wide)[2] <= 0.5 or ends(wide)[0] > 1.0
        assert above(narrow, "A", size=mean).verdict == "reproduced"


@pytest.mark.parametrize(
    ("mean", "half", "size", "verdict"),
    [
        (2.0, 1.0, None, "reproduced"),
        (2.0, 1.0, 2.5, "reproduced"),  # contains it
        (9.0, 1.0, 2.5, "reproduced"),  # lies beyond it
        (2.0, 1.0, 3.5, "direction only"),  # lies below it
        (2.0, 1.5, 2.5, "direction only"),  # contains it, but is wider than half of it
        (9.0, 5.0, 2.5, "reproduced"),  # wholly beyond it, however wide
        (2.0, 2.5, 3.0, "undecided"),
        (2.0, 50.0, 3.0, "undecided"),  # as wide as you like
        (-2.0, 2.5, None, "undecided"),
        (0.3, 0.7, 10.0, "contradicted"),  # 0 is within, but not even half of what is claimed
        (-2.0, 1.0, None, "contradicted"),
        (-2.0, 1.0, 3.0, "contradicted"),
    ],
)
def test_rules_at_both_sides_of_their_borders(mean, half, size, verdict):
    n = 8
    values = exactly(mean, half / stats.t.ppf(0.975, n - 1) * np.sqrt(n), n)
    assert above(values, "A", size=size).verdict == verdict


def test_a_sharper_half_width_may_be_asked_for():
    values = exactly(46.0, 3.0, 20)
    assert above(values, "A", size=46.3).verdict == "reproduced"
    assert above(values, "A", size=46.3, half=1.0).verdict == "direction only"
    with pytest.raises(ContractError, match=r"the printed size of 'A' is 0\.0"):
        above(values, "A", size=0.0)


@given(SEEDS, NUMBERS, st.floats(0.0, 50.0))
def test_within_takes_the_whole_interval(values, middle, width):
    low, high = middle - width, middle + width
    verdict = within(values, "A", low=low, high=high).verdict
    if len(values) < 3 or len(set(values)) == 1:
        return
    left, right, _ = ends(values)
    slack = 1e-9
    if verdict == "reproduced":
        assert low - slack <= left
        assert right <= high + slack
    elif verdict == "contradicted":
        assert right < low + slack or left > high - slack
    else:
        assert verdict == "undecided"
        assert left < low + slack or right > high - slack


def test_within_may_have_one_bound():
    assert within([0.1, 0.2, 0.15], "A", high=0.5).verdict == "reproduced"
    assert within([0.1, 0.2, 0.15], "A", low=0.5).verdict == "contradicted"
    assert within([0.1, 0.2, 0.15], "A", low=0.5).seen == "A is contradicted: 0.15 ± 0.12, to be at least 0.50"


def test_seeds_that_are_all_alike_have_no_width_and_must_be_six():
    assert above([2.0] * 5, "A").verdict == "undecided"
    assert above([2.0] * 5, "A").seeds == 6
    assert above([2.0] * 6, "A").verdict == "reproduced"
    assert above([0.0] * 6, "A").verdict == "contradicted"  # not above 0: as in two policies that are one
    assert within([25.0] * 6, "A", low=24.5, high=25.5).verdict == "reproduced"


@given(st.floats(0.05, 3.0), st.booleans())
def test_the_number_of_seeds_that_is_told_would_decide(mean, bounded):
    def check(n):
        x = exactly(mean, 1.0, n)
        return within(x, "A", high=0.0) if bounded else above(x, "A")

    few = check(3)
    if few.verdict != "undecided":
        return
    if few.seeds > 1000:
        assert check(1000).verdict == "undecided"
        return
    assert check(few.seeds).verdict != "undecided"
    assert few.seeds == 3 or check(few.seeds - 1).verdict == "undecided"


def test_orders_are_judged_by_differences_in_pairs():
    noise = np.array([0.0, 50.0, -30.0, 20.0])  # common to both: the worlds of the seeds
    values = {"A": noise + np.array([1.0, 1.1, 0.9, 1.0]), "B": noise, "C": noise + np.array([0.1, -0.1, 0.1, -0.1])}

    def verdicts(claim, **how):
        return [check.verdict for check in order(values, claim, **how).checks]

    assert verdicts("A > B") == ["reproduced"]
    assert verdicts("B > A") == ["contradicted"]
    assert verdicts("B > C") == ["undecided"]
    assert verdicts("A > B = C", same=0.3) == ["reproduced"] * 3
    assert verdicts("A > B = C", same=0.05) == ["undecided", "reproduced", "reproduced"]
    assert verdicts("A > B", sizes={"A > B": 3.0}) == ["direction only"]
    assert order(values, "B > A", digits=1).checks[0].seen == "B > A is contradicted: -1.0 ± 0.1"
    double = {"A": [10.0, 1000.0, 100.0], "B": [5.0, 499.0, 50.1]}
    assert order(double, "A > B", ratio=True, sizes={"A > B": np.log(2)}).checks[0].verdict == "reproduced"
    assert "ratio 0.50" in order(double, "B > A", ratio=True).checks[0].seen


def test_a_claim_is_as_good_as_its_worst_part():
    decided = ("reproduced", "direction only", "undecided", "no difference", "contradicted")
    for three in product(decided, repeat=3):
        found = judge([Check(verdict, verdict, 9 if verdict == "undecided" else None) for verdict in three])
        assert found.verdict == max(three, key=decided.index)
        assert (found.seeds == 9) == (found.verdict == "undecided")
        assert all(verdict in " ".join(found.reasons) for verdict in three if verdict != "reproduced")
    found = judge([Check("reproduced", "yes"), Check("contradicted", "no")])
    assert (found.parts, found.reasons) == ("1 of 2 parts is reproduced", ("no",))
    with pytest.raises(ContractError, match="a claim has no checks"):
        judge([])


def test_five_of_six_cells_outside_are_a_contradiction():
    cells = [exactly(80.0, 1.0, 3), *(exactly(66.0, 1.0, 3) for _ in range(5))]
    found = judge([within(x, "cell", low=77, high=83) for x in cells])
    assert found.verdict == "contradicted"
    assert found.parts == "1 of 6 parts is reproduced"


def test_most_needs_more_than_half():
    yes, no = Check("reproduced", ""), Check("contradicted", "")
    few, many = Check("undecided", "", 10), Check("undecided", "", 500)
    assert most([yes, yes, yes, no, no], "A").verdict == "reproduced"
    assert most([yes, yes, no, no], "A").verdict == "contradicted"
    assert most([yes, yes, few, many, no], "A") == Check(
        "undecided", "A is undecided: 2 of 5 hold, 1 are contradicted", 10
    )
    assert most([yes, few, many, many, no], "A").seeds == 500


def test_most_of_one_seed_tells_what_it_points_to():
    so, other = above([1.0], "A > B"), above([-1.0], "A > B")
    assert judge([most([so, so, other], "in most")]).as_claimed is True
    against = judge([most([so, other, other], "in most")])
    assert (against.verdict, against.as_claimed) == ("too few seeds", False)
    assert against.reasons == ("At least 3 seeds are needed; so far not so: in most: 1 of 3",)


def test_two_verdicts_are_the_study_s_own_statement():
    assert vacuous("so large").verdict == "vacuous"
    assert not_testable("no data").reasons == ("no data",)
    assert {"vacuous", "not testable here"} < set(VERDICTS)


# ---- bootstrap resamples of the seeds

NO_SEEDS = {"at", "share", "curves", "counts", "profile", "pulls", "levels", "success_rates", "paper", "parts", "data"}
NO_SEEDS |= {
    "rounds",
    "check",
    "tried",
    "silent",
    "of_mean",
    "regret",
    "curve",
    "hours",
    "halves",
    "alphas",
    "betas",
    "qualities",
    "target",
    "rates",
    "printed",
    "shares",
    "distance",
    "mean",
    "half",
    "C",
    "sigma",
    "policies",
    "paces",
}  # what is not a number per seed
STORED = Path(__file__).parents[3] / "docs" / "studies"
OPPOSITE = {"reproduced": "contradicted", "contradicted": "reproduced"}


def resampled(part, rows):
    """The result with these seeds in the place of its own; rows gives them by the number of seeds."""
    if isinstance(part, dict):
        return {name: each if name in NO_SEEDS else resampled(each, rows) for name, each in part.items()}
    if isinstance(part, list) and part and isinstance(part[0], list):
        return [resampled(each, rows) for each in part]
    return [part[i] for i in rows[len(part)]] if isinstance(part, list) else part


def current(id):
    """Whether a result with the study's settings is stored."""
    at = STORED / id / "manifest.json"
    return at.is_file() and studies._lasting(json.loads(at.read_text())["settings"]) == studies._lasting(
        studies.STUDIES[id].settings
    )


@pytest.mark.slow
@pytest.mark.parametrize("id", list(studies.STUDIES))
def test_no_stored_verdict_turns_into_its_opposite_in_200_resamples(id):
    study = studies.STUDIES[id]
    if id.startswith("tournament/") or not current(id):
        pytest.skip("no verdicts are stored")
    result = json.loads((STORED / id / "result.json").read_text())
    numbers = {json.loads((STORED / id / "manifest.json").read_text())["settings"]["seeds"]} | (
        {3} if id == "e3cs/letters-quick" else set()
    )  # its CNN has fewer
    first = study.score(result)
    same = {n: range(n) for n in numbers}
    assert study.score(resampled(result, same)) == first
    rng = np.random.default_rng(0)
    for _ in range(200):
        again = study.score(resampled(result, {n: rng.integers(0, n, n) for n in numbers}))
        turned = [
            f.claim
            for f, g in zip(first, again, strict=True)
            if f.verdict in OPPOSITE and g.verdict == OPPOSITE[f.verdict]
        ]
        assert not turned


@pytest.mark.parametrize("n", [3, 8])
def test_no_verdict_on_made_up_seeds_turns_into_its_opposite(n):
    rng = np.random.default_rng(n)
    found = set()
    for effect in (-3.0, -1.0, 0.0, 1.0, 3.0):
        gaps = rng.normal(effect, 1.0, (3, n))

        def claim(rows, gaps=gaps):
            return judge([above(gap[rows], "A > B", size=2.0) for gap in gaps]).verdict

        first = claim(np.arange(n))
        found.add(first)
        again = {claim(rng.integers(0, n, n)) for _ in range(200)}
        assert OPPOSITE.get(first) not in again
    assert {"undecided", "contradicted"} <= found


def test_stored_pages_and_numbers_are_what_the_command_writes(tmp_path):
    folder = tmp_path / "studies"
    for id in studies.STUDIES:
        for name in ("result.json", "manifest.json"):
            if (STORED / id / name).is_file():
                (folder / id).mkdir(parents=True, exist_ok=True)
                (folder / id / name).write_text((STORED / id / name).read_text())
    outcomes = [outcome for id in studies.STUDIES if (outcome := studies.judge(id, folder))]
    assert outcomes
    for outcome in outcomes:
        id = outcome.study.id
        assert (folder / id / "findings.md").read_text() == (STORED / id / "findings.md").read_text()
    assert studies.save_index(outcomes, folder).read_text() == (STORED / "index.md").read_text()
    readme = STORED.parents[1] / "README.md"
    (tmp_path / "README.md").write_text(readme.read_text())
    assert studies.save_summary(outcomes, tmp_path / "README.md").read_text() == readme.read_text()
    advice = studies.save_guide(outcomes, folder, tmp_path / "which-policy.md")
    if advice is not None:
        assert advice.read_text() == (STORED.parent / "which-policy.md").read_text()
