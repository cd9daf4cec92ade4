"""FedGS: the oracle graph, graphs built from models, and the paper's own data; small runs and made-up results."""

from itertools import combinations

import numpy as np
import pytest

from fedpick import graph
from fedpick_papers import studies
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._trained import split
from fedpick_papers.studies.fedgs import _table2, built, fig3, table2_authors, table2_synthetic, table3

SEEDS = np.tile([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0], 2)  # twelve, since some differences are alike


def verdicts(study, result):
    return [finding.verdict for finding in study.score(result)]


# ---- Fig. 3


@pytest.fixture(scope="module")
def oracle():
    return studies.reproduce("fedgs/fig3", workers=1, data="digits", seeds=3, draws=200)


def test_far_cohorts_have_balanced_labels(oracle, tmp_path):
    result = oracle.result
    assert result["joined"] == [1.0, 1.0, 1.0]
    assert np.shape(result["shares"]) == (20, 10)
    assert ((np.asarray(result["shares"]) > 0).sum(axis=1) == 2).all()
    for one in result["by_sigma2"].values():
        assert one["distance"] == sorted(one["distance"])
    assert [finding.extension for finding in oracle.findings] == [
        False,
        False,
        True,
        True,
        True,
    ]  # sigma^2 of the paper
    names = {path.name for path in studies.save(oracle, tmp_path)}
    assert {"findings.md", "figure.png", "figure.svg", "result.json"} <= names


def test_the_farthest_cohorts_are_those_of_all_cohorts(oracle):
    labels = split("digits", "labels-per-client(labels=2)", 20, 0).labels.astype(float)
    every = np.array(list(combinations(range(20), 5)))
    for sigma2, one in oracle.result["by_sigma2"].items():
        paths = graph.shortest_paths(graph.three_dg(graph.from_features(labels), 0.1, float(sigma2)))
        far = sum(paths[every[:, i], every[:, j]] for i in range(5) for j in range(i))
        apart = fig3._apart(labels, every[far >= far.max() - 1e-9])
        assert apart.min() - 1e-4 <= one["farthest"][0] <= apart.max() + 1e-4


def test_the_distance_of_labels_is_that_of_a_plain_loop():
    labels = np.random.default_rng(0).integers(0, 9, (7, 4)).astype(float)
    cohorts = [[0, 3, 5], [6, 1, 2]]
    whole = labels.sum(axis=0) / labels.sum()
    for found, ids in zip(fig3._apart(labels, np.array(cohorts)), cohorts, strict=True):
        mix = sum(labels[k] for k in ids)
        assert found == pytest.approx(np.linalg.norm(mix / mix.sum() - whole))


def test_fig3_claims():
    def made(sign, farthest):
        one = {"correlation": (sign * 0.5 + 0.1 * SEEDS).tolist(), "farthest": (farthest + 0.01 * SEEDS).tolist()}
        result = {"clients": 20, "cohort_size": 5, "draws": 2000, "epsilon": 0.1, "joined": [1.0] * 12}
        return result | {"random": (0.3 + 0.02 * SEEDS).tolist(), "by_sigma2": {"0.01": one, "0.3": one}}

    assert verdicts(fig3.STUDY, made(-1, 0.1)) == ["reproduced"] * 5
    assert verdicts(fig3.STUDY, made(1, 0.5))[:4] == ["contradicted"] * 4
    one_seed = made(-1, 0.1)
    one_seed |= {"random": [0.3], "joined": [1.0]}
    one_seed["by_sigma2"] = {"0.01": {"correlation": [-0.5], "farthest": [0.1]}}
    assert verdicts(fig3.STUDY, one_seed) == ["too few seeds"] * 3


# ---- Table 3


def test_loops_count_as_edges_as_in_the_authors_program():
    rng = np.random.default_rng(1)
    oracle, mine = (np.clip(x @ x.T, 0, 1) for x in rng.random((2, 12, 3)) ** 3)
    edges = {
        epsilon: {(i, j) for i in range(12) for j in range(i, 12) if i == j or mine[i, j] > epsilon}
        for epsilon in (0.0, 0.1, 0.5)
    }
    true = {(i, j) for i in range(12) for j in range(i, 12) if i == j or oracle[i, j] > 0.1}
    f1 = {e: 2 / (len(found) / len(found & true) + len(true) / len(found & true)) for e, found in edges.items()}
    epsilon, precision, recall, best = table3.counted(mine, oracle, list(edges), 0.1)
    assert best == pytest.approx(max(f1.values()))
    found = edges[epsilon]
    assert (precision, recall) == (len(found & true) / len(found), len(found & true) / len(true))
    # Without an edge in common, loops alone still give a score: Table 3 is not comparable with one without them.
    assert table3.counted(np.zeros((4, 4)), np.ones((4, 4)), [0.5], 0.1)[1:3] == (1.0, 0.4)


def test_the_best_threshold_is_the_first_with_the_highest_f1():
    oracle = np.array([[1.0, 0.11, 0.1], [0.11, 1.0, 0.5], [0.1, 0.5, 1.0]])  # above 0.1: two edges
    found = np.array([[1.0, 0.06, 0.049], [0.06, 1.0, 0.7], [0.049, 0.7, 1.0]])  # only 0.05 parts them
    epsilons = (0.0, 0.01, 0.05, 0.055, 0.1, 0.5)
    assert table3.best_edges(found, oracle, epsilons, 0.1) == (0.05, graph.EdgeScores(1.0, 1.0, 1.0))
    assert table3.best_edges(np.eye(20), np.ones((20, 20)), epsilons, 0.1) == (0.0, graph.EdgeScores(0.0, 0.0, 0.0))
    rng = np.random.default_rng(3)
    for _ in range(20):
        both = [np.maximum(x, x.T) for x in rng.integers(0, 11, (2, 6, 6)) / 10]
        scores = [graph.edge_scores(*both, epsilon, 0.3) for epsilon in epsilons]
        best = int(np.argmax([score.f1 for score in scores]))
        assert table3.best_edges(*both, epsilons, 0.3) == (epsilons[best], scores[best])


def test_cosines_in_groups_are_those_of_all():
    rows = np.random.default_rng(2).standard_normal((7, 30)).astype(np.float32)
    np.testing.assert_allclose(table3._cosines([rows[:3], rows[3:]]), graph.from_updates(rows), atol=1e-5)


def scores(change=lambda data, name, value: value):
    result = {"scores": {}, "plain": {}, "epsilon": {}, "edges": {}, "steps": 10}
    for data, rows in table3.PRINTED.items():
        result["scores"][data] = {
            name: {
                score: (change(data, name, value) + 0.01 * SEEDS).tolist()
                for score, value in zip(table3.SCORES, row, strict=True)
            }
            for name, row in rows.items()
        }
        result["plain"][data] = result["scores"][data]
        result["epsilon"][data] = {name: [0.0] * 12 for name in rows}
        result["edges"][data] = [0.2] * 12
    return result


def test_the_printed_table_3_scores_as_the_paper_says():
    found = table3.STUDY.score(scores())
    assert [finding.verdict for finding in found] == ["reproduced"] * 6
    assert [finding.extension for finding in found] == [False, False, True] * 2
    turned = scores(lambda data, name, value: 0.2 if name == "func-sim" else 0.9)
    assert verdicts(table3.STUDY, turned) == ["contradicted"] * 6
    few = scores(lambda data, name, value: 0.7 if name == "func-sim" else 0.6)
    assert verdicts(table3.STUDY, few)[:2] == ["direction only", "contradicted"]  # not by so much


@pytest.mark.slow
def test_graphs_of_models_that_were_trained(tmp_path):
    task = {"partition": "labels-per-client(labels=2)", "lr": 0.1}
    small = {"tasks": dict.fromkeys(table3.PRINTED, task), "model": dict.fromkeys(table3.PRINTED, "mlp(hidden=(8,))")}
    outcome = studies.reproduce("fedgs/table3", workers=1, stand_in="digits", clients=30, seeds=1, **small)
    plain = outcome.result["plain"]["fashion-mnist"]
    assert 0.3 < outcome.result["edges"]["fashion-mnist"][0] < 0.45  # of 45 pairs of labels, 17 share one
    assert plain["func-sim"]["F1"][0] > 0.6
    assert {finding.verdict for finding in outcome.findings} <= {"undecided", "too few seeds"}
    assert "figure.png" in {path.name for path in studies.save(outcome, tmp_path)}


# ---- FedGS on built graphs


BUILT = ("fedgs/built-synthetic", "fedgs/built-cifar10", "fedgs/built-fashion-mnist")


@pytest.mark.parametrize("id", BUILT)
def test_every_graph_is_built_from_what_its_policy_is_told(id):
    study = studies.STUDIES[id]
    assert study.job is play_training
    changes = {"data": "digits", "partition": "dirichlet(alpha=0.5, at_least=2)"}
    if "synthetic" in id:
        changes = {"data": "synthetic(0.5, 0.5, size=30)"}
    settings = study.choose(rounds=2, seeds=1, model="logistic", **changes)
    items = study.items(settings)
    assert len(items) == study.jobs(settings) == 5 * len(settings["modes"])
    wanted = {"embedding", "update" if "synthetic" in id else "sketch_1024", "features"}
    built = [item["policy"] for item in items if "graph" in item["policy"]]
    assert {text.split("graph='")[1].split("'")[0] for text in built} == wanted
    run = study.job.config(items[-1]).build()
    assert set(run.trainer.reports) & wanted


def built_result(func, cos, uniform):
    def loss(factor):
        return (0.5 * factor * np.exp(0.01 * SEEDS)).tolist()

    names = ("UniformSample", "FedGS(0)", built.ORACLE, *built.BUILT)
    noise = dict(zip(names, map(loss, (uniform, 1.0, 1.0, func, cos)), strict=True))
    noise[built.ORACLE] = (0.5 * np.exp(-0.01 * SEEDS)).tolist()
    return {"data": "cifar10", "loss": {"LN": noise}}


def test_claims_of_built_graphs():
    study = studies.STUDIES["fedgs/built-cifar10"]
    assert verdicts(study, built_result(1.0, 1.02, 1.2)) == ["reproduced"] * 3
    assert verdicts(study, built_result(1.3, 1.2, 1.0)) == ["contradicted"] * 3
    assert all(finding.extension for finding in study.score(built_result(1.0, 1.0, 1.2)))  # the appendix is not at hand


@pytest.mark.slow
def test_fedgs_on_graphs_that_grow(tmp_path):
    tiny = {"data": "synthetic(0.5, 0.5, size=30)", "clients": 8, "cohort_size": 3, "rounds": 10, "seeds": 1}
    outcome = studies.reproduce("fedgs/built-synthetic", workers=1, modes={"IDL": 0.0}, **tiny)
    losses = outcome.result["loss"]["IDL"]
    assert len({values[0] for values in losses.values()}) == len(losses)  # five ways to choose
    assert "figure.png" in {path.name for path in studies.save(outcome, tmp_path)}


# ---- Table 2 on the paper's data


MODES = ("LN", "SLN", "LDF")  # in which FedGS is said to be the best


def table2(change=lambda mode, name, value: value):
    noise = 0.002 * SEEDS
    loss = {}
    for mode in _table2.PARTS:
        loss[mode] = {
            name: (change(mode, name, value) + noise).tolist() for name, value in _table2.printed(mode).items()
        }
        loss[mode]["FedGS(1), printed"] = loss[mode]["FedGS(1)"]
        loss[mode][table2_authors.ORACLE] = (np.asarray(loss[mode]["FedGS(1)"]) - 0.02 - 0.3 * noise).tolist()
    return {"rounds": 300, "clients": 30, "cohort_size": 6, "loss": loss, "present": {m: [9.0] * 12 for m in loss}}


def test_on_the_paper_s_data_its_levels_are_judged():
    found = table2_authors.STUDY.score(table2())
    counted, (*ours, helped, graphs) = [f for f in found if not f.extension], [f for f in found if f.extension]
    levels, claims = counted[:5], counted[5:]
    assert [f.claim for f in levels] == [f"The printed losses under {mode}" for mode in _table2.PARTS]
    assert {f.verdict for f in levels} == {"reproduced"}
    assert [f.verdict for f in claims] == ["reproduced"] * 7
    assert [f.claim for f in ours] == [f"FedGS(1) has a lower loss under {m} than every other method" for m in MODES]
    # By the print itself, alpha > 0 helps in two modes of five on this data, which the sentence is not about.
    assert helped.verdict == "no difference"
    assert graphs.verdict == "reproduced"
    high = table2(lambda mode, name, value: 1.5 * value if name == "FedProx" else value)
    assert {f.verdict for f in table2_authors.STUDY.score(high)[:5]} == {"contradicted"}


def test_the_paper_s_claims_are_counted_on_its_data_and_not_again_on_new_draws():
    ours, new = (study.score(table2()) for study in (table2_authors.STUDY, table2_synthetic.STUDY))
    assert [f.claim for f in ours][5:-1] == [f.claim for f in new]
    assert all(f.extension for f in new)


def test_a_wide_interval_leaves_the_orders_undecided():
    result = table2()
    for of in result["loss"].values():
        for i, name in enumerate(of):
            of[name] = (np.asarray(of[name]) * np.exp(0.3 * np.roll(SEEDS if i < 6 else -SEEDS, i))).tolist()
    assert {f.verdict for f in table2_authors.STUDY.score(result)[6:12]} == {"undecided"}


def test_the_authors_oracle_graph_is_of_the_true_models():
    from fedpick.data import FedGSSynthetic
    from fedpick.policies.text import policy
    from fedpick_papers.studies.fedgs._common import true_models

    distances = true_models(policy("fedgs", cohort_size=2), 5)
    models = FedGSSynthetic().models(5)
    cosine = models @ models.T / np.outer(*2 * [np.linalg.norm(models, axis=1)])
    pairs = np.triu_indices(5, 1)
    near, far = pairs[0][cosine[pairs].argmax()], pairs[1][cosine[pairs].argmax()]
    assert distances[near, far] == distances[pairs].min()


@pytest.mark.slow
def test_the_job_plays_on_the_authors_oracle_graph_if_told(tmp_path):
    study = table2_authors.STUDY
    item = study.items(study.choose(clients=12, cohort_size=3, rounds=6, seeds=1))[0]
    names = ("FedGS(1)", table2_authors.ORACLE)
    loss = study.job({**item, "methods": {name: item["methods"][name] for name in names}}, tmp_path)["loss"]
    assert np.isfinite([loss[name] for name in names]).all()
    assert not np.array_equal(loss[names[0]], loss[names[1]])
