"""Metrics by name: each as a slow twin computes it, and what must hold for any outputs."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.learn import measures


def twin_f1(outputs, targets):
    predicted, found = outputs.argmax(axis=1), []
    for k in range(outputs.shape[1]):
        right = sum(p == k and t == k for p, t in zip(predicted, targets, strict=True))
        claimed, true = list(predicted).count(k), list(targets).count(k)
        if claimed + true == 0:
            continue
        precision, recall = right / claimed if claimed else 0.0, right / true if true else 0.0
        found.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return sum(found) / len(found)


def twin_balanced(outputs, targets):
    predicted = outputs.argmax(axis=1)
    shares = [np.mean([p == k for p, t in zip(predicted, targets, strict=True) if t == k]) for k in set(targets)]
    return sum(shares) / len(shares)


def shares_of(row):
    odds = [math.exp(value - max(row)) for value in row]
    return [each / sum(odds) for each in odds]


def twin_auroc(outputs, targets):
    shares = [shares_of(row) for row in outputs.tolist()]
    found = []
    for k in [1] if outputs.shape[1] == 2 else range(outputs.shape[1]):
        ours = [s[k] for s, t in zip(shares, targets, strict=True) if t == k]
        others = [s[k] for s, t in zip(shares, targets, strict=True) if t != k]
        if ours and others:
            found.append(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(ours, others)]))
    return sum(found) / len(found) if found else math.nan


def twin_perplexity(outputs, targets):
    logs = [math.log(shares_of(row)[t]) for row, t in zip(outputs.tolist(), targets, strict=True)]
    return math.exp(-sum(logs) / len(logs))


@st.composite
def answers(draw):
    """Outputs of few different values, so that there are ties, and labels, of which some may be missing."""
    classes, count = draw(st.integers(2, 4)), draw(st.integers(1, 12))
    value = st.integers(-3, 3).map(float)
    outputs = draw(st.lists(st.lists(value, min_size=classes, max_size=classes), min_size=count, max_size=count))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))
    return np.array(outputs), np.array(labels)


@given(answers())
def test_they_are_what_the_twins_compute(example):
    outputs, targets = example
    assert measures.macro_f1(outputs, targets) == pytest.approx(twin_f1(outputs, targets))
    assert measures.balanced_accuracy(outputs, targets) == pytest.approx(twin_balanced(outputs, targets))
    assert measures.perplexity(outputs, targets) == pytest.approx(twin_perplexity(outputs, targets))


@given(answers(), st.integers(0, 2**32 - 1))
def test_auroc_is_what_the_twin_computes(example, seed):
    outputs, targets = example
    if outputs.shape[1] > 2:  # no ties, which would be broken by the rounding of probabilities
        outputs = outputs + np.random.default_rng(seed).normal(size=outputs.shape)
    assert measures.auroc(outputs, targets) == pytest.approx(twin_auroc(outputs, targets), nan_ok=True)


@given(answers(), st.randoms(use_true_random=False))
def test_the_order_of_examples_and_a_common_shift_do_not_matter(example, random):
    outputs, targets = example
    order = list(range(len(targets)))
    random.shuffle(order)
    for name in ("macro_f1", "balanced_accuracy", "auroc", "perplexity"):
        measure = measures.MEASURES[name]
        there = measure(outputs, targets)
        assert measure(outputs[order], targets[order]) == pytest.approx(there, nan_ok=True)
        assert measure(outputs + 8.0, targets) == pytest.approx(there, nan_ok=True)
        assert math.isnan(there) or (there >= 1.0 if name == "perplexity" else 0.0 <= there <= 1.0)


@given(answers())
def test_auroc_of_two_classes_sees_only_the_order_of_scores(example):
    outputs, targets = example[0][:, :2], example[1] % 2
    there = measures.auroc(outputs, targets)
    swapped = measures.auroc(outputs[:, ::-1], 1 - targets)
    assert swapped == pytest.approx(there, nan_ok=True)  # the other class, seen from the other side
    scores = outputs[:, 1] - outputs[:, 0]
    cubes = np.stack([np.zeros(len(scores)), scores**3], axis=1)
    assert measures.auroc(cubes, targets) == pytest.approx(there, nan_ok=True)


def test_sure_answers_are_no_ties():
    outputs = np.array([[0.0, 800.0], [0.0, 900.0]])  # both have probability 1 in floating point
    assert measures.auroc(outputs, np.array([0, 1])) == 1.0


def test_outputs_that_are_not_finite_give_no_auroc():
    assert math.isnan(measures.auroc(np.array([[0.0, math.nan], [0.0, 1.0]]), np.array([0, 1])))


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=9))
def test_errors_of_numbers(pairs):
    outputs, targets = np.array([[a] for a, _ in pairs]), np.array([b for _, b in pairs])
    gaps = [abs(a - b) for a, b in pairs]
    assert measures.mae(outputs, targets) == pytest.approx(sum(gaps) / len(gaps))
    assert measures.rmse(outputs, targets) == pytest.approx(math.sqrt(sum(g * g for g in gaps) / len(gaps)))
    assert measures.mae(outputs, targets) <= measures.rmse(outputs, targets) * (1 + 1e-12) + 1e-12


LABELS, NUMBERS = SimpleNamespace(name="digits", classes=10), SimpleNamespace(name="lines", classes=0)


@pytest.mark.parametrize(
    ("metrics", "data", "says"),
    [
        ("macro_f1", LABELS, r"metrics = 'macro_f1', but must be several: metrics=\('macro_f1',\)"),
        ((3,), LABELS, "metrics has 3, but must have names and functions"),
        (("macrof1",), LABELS, "macrof1.*macro_f1"),
        (("mae",), LABELS, "'mae' is of numbers, but digits has labels; use macro_f1, balanced_accuracy, auroc"),
        (("auroc",), NUMBERS, "'auroc' is of labels, but lines has numbers; use mae, rmse"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(metrics, data, says):
    with pytest.raises(fp.FedpickError, match=says):
        measures.check_metrics(metrics, data)


def test_functions_of_the_users_own():
    def score(outputs, targets):
        return (outputs.argmax(axis=1) == targets).sum()

    def several(outputs, targets):
        return {"low": outputs.min(), "high": outputs.max()}

    several.directions = {"low": "smaller", "high": "larger"}
    metrics = ("accuracy", "loss", score, several)
    found = measures.measure(metrics, np.array([[0.0, 2.0], [1.0, 0.0]], np.float32), np.array([1, 1]))
    assert found == {"score": 1.0, "low": 0.0, "high": 2.0}
    assert measures.declared(metrics) == {"low": "smaller", "high": "larger"}
    several.directions = {"low": "down"}
    with pytest.raises(
        fp.ConfigError, match=r"several: directions has 'low': 'down', but must be 'larger' or 'smaller'"
    ):
        measures.check_metrics(metrics, LABELS)
    with pytest.raises(
        fp.ContractError, match="the metric wrong returned 'good' for 'wrong', but must return a number"
    ):
        measures.measure((type("wrong", (), {"__call__": lambda *_: "good", "__name__": "wrong"})(),), [[1.0]], [0])
