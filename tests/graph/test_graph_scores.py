"""Precision, recall and F1 of edges against a loop over pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpick.core.errors import ContractError, SettingError
from fedpick.graph import EdgeScores, edge_scores

TENTHS = st.integers(0, 10).map(lambda n: n / 10)


def slow_scores(similarity, oracle, epsilon, oracle_epsilon):
    right = wrong = missed = 0
    for i in range(len(oracle)):
        for j in range(i + 1, len(oracle)):
            found, there = similarity[i][j] > epsilon, oracle[i][j] > oracle_epsilon
            right += found and there
            wrong += found and not there
            missed += there and not found
    if right == wrong == missed == 0:
        return (1.0, 1.0, 1.0)
    if right == 0:
        return (0.0, 0.0, 0.0)
    precision, recall = right / (right + wrong), right / (right + missed)
    return (precision, recall, 2 * precision * recall / (precision + recall))


def two_matrices():
    matrix = st.integers(1, 7).flatmap(lambda k: st.tuples(*[arrays(np.float64, (k, k), elements=TENTHS)] * 2))
    return matrix.map(lambda both: [np.maximum(v, v.T) for v in both])


@given(both=two_matrices(), epsilon=TENTHS, oracle_epsilon=TENTHS)
@settings(max_examples=100, deadline=None)
def test_scores_equal_the_loop(both, epsilon, oracle_epsilon):
    expected = slow_scores(both[0].tolist(), both[1].tolist(), epsilon, oracle_epsilon)
    assert edge_scores(*both, epsilon, oracle_epsilon) == pytest.approx(expected)


def test_the_empty_cases():
    none, all_edges = np.eye(3), np.ones((3, 3))
    assert edge_scores(none, none, 0.1) == EdgeScores(1.0, 1.0, 1.0)  # they agree
    assert edge_scores(none, all_edges, 0.1) == EdgeScores(0.0, 0.0, 0.0)
    assert edge_scores(all_edges, none, 0.1) == EdgeScores(0.0, 0.0, 0.0)
    assert edge_scores(np.eye(1), np.eye(1), 0.1) == EdgeScores(1.0, 1.0, 1.0)  # one client: no pairs


def test_the_oracles_threshold_is_the_papers():
    oracle = np.array([[1.0, 0.11, 0.1], [0.11, 1.0, 0.5], [0.1, 0.5, 1.0]])  # above 0.1: two edges
    found = np.array([[1.0, 0.06, 0.049], [0.06, 1.0, 0.7], [0.049, 0.7, 1.0]])
    assert edge_scores(found, oracle, 0.05) == EdgeScores(1.0, 1.0, 1.0)


def test_refusals():
    v = np.eye(2)
    with pytest.raises(SettingError, match=r"the epsilon of similarity = 1.5, but must be between 0 and 1"):
        edge_scores(v, v, 1.5)
    with pytest.raises(SettingError, match=r"the epsilon of oracle = -1, but must be between 0 and 1"):
        edge_scores(v, v, 0.5, -1)
    with pytest.raises(ContractError, match=r"similarity has shape \(2, 2\) and oracle \(3, 3\), but .* same clients"):
        edge_scores(v, np.eye(3), 0.1)
    with pytest.raises(ContractError, match=r"oracle has shape \(2, 3\), but must be square"):
        edge_scores(v, np.ones((2, 3)), 0.1)
