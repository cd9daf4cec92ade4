"""Rows, main metrics and targets of runs with any metrics."""

import pytest
from made_runs import make

import fedpick as fp
from fedpick.report.notes import legend
from fedpick.report.page.verdict import verdict

DATA = {"name": "digits"}


def folder_of(path, curves, seeds=5, **more):
    """Runs whose metrics are functions of the policy, the seed and the round."""
    for policy in ("uniform", "fedgs"):
        for seed in range(seeds):
            found = [
                {name: curve(policy, seed, t + 1) for name, curve in curves.items()} if t % 2 else {} for t in range(6)
            ]
            make(path / f"{policy}-{seed}", policy, seed, metrics=found, data=DATA, **more)
    return path


def falling(policy, seed, t):
    """Below that of uniform with fedgs, which is better if smaller is."""
    return 40.0 / t - (4.0 if policy == "fedgs" else 0.0) + 0.01 * seed * (1 + (policy == "fedgs"))


def test_a_sentence_knows_that_less_is_better(tmp_path):
    results = fp.load(folder_of(tmp_path, {"perplexity": falling}), reference="uniform", target="perplexity=7")
    said = " ".join(verdict(results._rows))
    assert said.startswith("fedgs is better than uniform: perplexity")
    lower = fp.load(tmp_path, reference="uniform", target="perplexity=5")
    assert "uniform reaches perplexity 5 with 0 of 5 seeds." in verdict(lower._rows)
    frame = results.frame().set_index(["policy", "seed"])
    assert frame.loc[("uniform", 0), "rounds_to"] == 6.0
    assert frame.loc[("fedgs", 0), "rounds_to"] == 4.0


@pytest.mark.parametrize(("way", "better"), [("larger", "uniform"), ("smaller", "fedgs"), (None, None)])
def test_what_is_declared_decides(tmp_path, way, better):
    about = {"directions": {"quality": way}} if way else None
    results = fp.load(folder_of(tmp_path, {"quality": falling}, about=about), reference="uniform")
    said = " ".join(verdict(results._rows))
    assert ("fedgs is better than uniform: quality" in said) == (better == "fedgs")
    assert ("Clearly worse than uniform in quality: fedgs" in said) == (better == "uniform")
    assert (results.target is None) == (way is None)
    assert "quality" in results.table("text")
    if way is None:
        assert "quality" not in said


def test_the_main_metric_can_be_chosen(tmp_path):
    curves = {"accuracy": lambda p, s, t: t / 10, "auroc": lambda p, s, t: t / 20 + s / 100, "loss": falling}
    folder = folder_of(tmp_path, curves)
    usual = fp.load(folder)
    assert usual.table("markdown").splitlines()[2].startswith("| policy | test accuracy | auroc | rounds to 57% |")
    chosen = fp.load(folder, metric="auroc", target=0.2)
    assert (
        chosen.table("markdown").splitlines()[2].startswith("| policy | auroc | test accuracy | rounds to auroc 0.2 |")
    )
    assert chosen.frame()["rounds_to"].tolist() == [4.0] * 10
    assert chosen.plot().axes[0].get_ylabel() == "auroc"
    loss = fp.load(folder, metric="loss")
    assert loss.table("markdown").splitlines()[2].startswith("| policy | loss | test accuracy | auroc |")


def test_a_table_of_many_metrics_says_where_the_others_are(tmp_path):
    curves = {f"f1_{i}": lambda p, s, t: t / 10 for i in range(9)}
    results = fp.load(folder_of(tmp_path, curves))
    text = " ".join(results.table("text").split())
    assert "not shown here, but in CSV and JSON: f1_6, f1_7, f1_8" in text
    assert "f1_8" in results.table("csv")


STEADY, BARE = "all seeds give the same number", "± is a 95% interval over seeds"
CASES = {  # of the reference and of the other, at the end: a part of each line below a table of this score alone
    "wide": (lambda s: 0.5 + s / 64, lambda s: 0.5 + s * s / 64, [BARE + "; differences are to uniform"]),
    "steady": (lambda s: 0.5, lambda s: 0.5, [BARE + "; differences", STEADY]),
    "one is steady": (lambda s: 0.5 + s / 64, lambda s: 0.5, [BARE + "; differences", STEADY]),
    "steady gap": (lambda s: 0.5 + s / 64, lambda s: 0.75 + s / 64, [BARE + "; differences", STEADY]),
    "no gap": (lambda s: 0.5 + s / 64, lambda s: 0.5 + s / 64, [BARE + "; differences"]),
}


@pytest.mark.parametrize("case", CASES)
def test_footnotes_say_how_to_read_the_intervals_that_are_there(tmp_path, case):
    mine, other, lines = CASES[case]
    curves = {"accuracy": lambda p, s, t: mine(s) if p == "uniform" else other(s)}
    rows = fp.load(folder_of(tmp_path, curves), reference="uniform")._rows
    said = legend(rows, ["accuracy"], "uniform", given=True)
    assert [wanted in line for wanted, line in zip(lines, said, strict=True)] == [True] * len(lines)


def test_footnotes_without_a_reference_or_with_one_seed(tmp_path):
    """Intervals but no differences; and neither."""
    made = folder_of(tmp_path / "many", {"accuracy": lambda p, s, t: 0.5 + s / 64})
    alone = fp.load(*sorted(made.glob("uniform-*")))._rows
    assert legend(alone, ["accuracy"], "uniform", given=True) == [BARE]
    one = fp.load(folder_of(tmp_path / "one", {"accuracy": lambda p, s, t: 0.5}, seeds=1))._rows
    assert legend(one, ["accuracy"], "uniform", given=True) == []


def test_footnotes_on_targets(tmp_path):
    """How often there was an evaluation, and for how many seeds a mean is: of the first row that has some."""
    ends = {"uniform": [0.4] * 5, "fedgs": [0.4, 0.4, 0.6, 0.6, 0.6]}
    folder = folder_of(tmp_path, {"accuracy": lambda p, s, t: ends[p][s] * t / 6})
    rows = {target: fp.load(folder, reference="uniform", target=target)._rows for target in (0.3, 0.5, 0.9)}
    every = "models are evaluated every 2 rounds: rounds to the target are multiples of 2"
    for target, few in ((0.3, None), (0.5, "(3 of 5): number of seeds"), (0.9, "(0 of 5): number of seeds")):
        said = legend(rows[target], ["rounds_to"], "uniform", given=True)
        assert every in said
        assert [line[:25] for line in said if line.startswith("(")] == ([] if few is None else [few])
        assert not any("95% of the" in line for line in said)
    usual = legend(fp.load(folder, reference="uniform")._rows, ["rounds_to"], "uniform", given=False)
    assert "38%: 95% of the test accuracy that uniform has at the end, rounded down to a whole percent" in usual
    assert all("multiples" not in line for line in legend(rows[0.3], ["accuracy"], "uniform", given=True))


def test_footnotes_on_other_metrics_and_on_oracles(tmp_path):
    curves = {"accuracy": lambda p, s, t: t / 10, "auroc": lambda p, s, t: t / 20}
    rows = fp.load(folder_of(tmp_path, curves), reference="uniform")._rows
    more = "not shown here, but in CSV and JSON: auroc"
    assert more in legend(rows, ["accuracy"], "uniform", given=True)
    assert not any("not shown" in line for line in legend(rows, ["accuracy", "auroc"], "uniform", given=True))
    assert not any("not shown" in line for line in legend(rows, ["hours"], "uniform", given=True))
    assert not any("(oracle)" in line for line in legend(rows, ["accuracy"], "uniform", given=True))
    for seed in range(2):
        make(tmp_path / f"fedcs-{seed}", "fedcs", seed, metrics=[{"accuracy": 0.5}] * 6, data=DATA)
    rows = fp.load(tmp_path, reference="uniform")._rows
    known = "(oracle): knows the truth about the clients, which no server knows; a bound, not a competitor"
    assert legend(rows, ["accuracy"], "uniform", given=True)[-1] == known


def test_a_metric_with_the_name_of_a_score_hides_neither(tmp_path):
    curves = {"success": lambda p, s, t: 0.125 * t, "seed": lambda p, s, t: 7.0}
    frame = fp.load(folder_of(tmp_path, curves, seeds=1), target="metric_success=0.5").frame()
    assert frame["metric_success"].tolist() == [0.75, 0.75]
    assert frame["seed"].tolist() == [0, 0]
    assert set(frame["metric_seed"]) == {7.0}
    assert frame["success"].between(0, 1).all()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123456, "0.123"), (12.3456, "12.35"), (123.456, "123.5"), (5432.1, "5,432"), (0.00123, "0.00123")],
)
def test_digits_fit_the_size(tmp_path, value, shown):
    results = fp.load(folder_of(tmp_path, {"psnr": lambda p, s, t: value}, seeds=1))
    assert f"| {shown} |" in results.table("markdown")


def test_no_target_of_what_is_0_or_less(tmp_path):
    results = fp.load(folder_of(tmp_path, {"r2": lambda p, s, t: -1.0 / t}))
    assert results.target is None
    assert "r2" in results.table("text")


def test_runs_of_earlier_versions_are_known_by_their_names(tmp_path):
    """Their manifests declare nothing."""
    make(tmp_path / "run", accuracy=[0.1 * (t + 1) for t in range(6)])
    run = fp.load(tmp_path).runs[0]
    assert (run.directions, run.lacking, run.name) == ({}, {}, "uniform")


def test_the_heading_names_the_target_where_there_is_one_and_else_says_that_there_is(tmp_path):
    """Each data set has a target of its own; they are in the rows."""
    for name, top in (("digits", 0.9), ("synthetic(1, 1)", 0.6)):
        for seed in range(2):
            make(tmp_path / f"{name[:3]}-{seed}", "uniform", seed, metrics=[{"accuracy": top}] * 6, data={"name": name})
    heads = fp.load(tmp_path, reference="uniform")._sheet.heads
    assert "rounds to target" in heads
    alone = fp.load(*tmp_path.glob("dig-*"), reference="uniform")._sheet.heads
    assert "rounds to 85%" in alone
