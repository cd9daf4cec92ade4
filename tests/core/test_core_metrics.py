"""Names of metrics: which way is better, which one decides, and targets as users write them."""

import math

import pytest

import fedpick as fp
from fedpick.core import metrics
from fedpick.core.metrics import Target, direction, main_metric, read_target

LARGER = ["accuracy", "macro_f1", "balanced_accuracy", "auroc", "f1", "r2", "val_acc", "roc_auc", "F1_score", "top5"]
SMALLER = ["loss", "test_loss", "perplexity", "mae", "rmse", "mse", "val_loss", "error_rate", "cross-entropy", "spread"]


def test_common_names_tell_what_is_better():
    assert {direction(name) for name in LARGER} == {"larger"}
    assert {direction(name) for name in SMALLER} == {"smaller"}
    assert direction("quality") is None
    assert direction("loss", {"loss": "larger"}) == "larger"  # who declares it knows better
    assert all(direction(name) for name in metrics.MEASURED)


@pytest.mark.parametrize(
    ("names", "main"),
    [
        (["train_loss", "test_loss", "accuracy", "spread", "worst_decile"], "accuracy"),
        (["loss", "quality", "auroc"], "quality"),
        (["train_f1", "test_loss"], "test_loss"),
        (["train_loss", "worst_decile"], None),
        ([], None),
    ],
)
def test_what_decides(names, main):
    assert main_metric(names) == main


def test_a_loss_of_training_decides_where_nothing_else_is_given():
    assert main_metric(["train_loss"], training=True) == "train_loss"


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (None, None),
        (0.85, Target(None, 0.85)),
        ("0.85", Target(None, 0.85)),
        ("macro_f1=0.8", Target("macro_f1", 0.8)),
        (" perplexity = 20 ", Target("perplexity", 20.0)),
        ({"perplexity": 20}, Target("perplexity", 20.0)),
        (Target("mae", 3.0), Target("mae", 3.0)),
    ],
)
def test_targets(given, target):
    assert read_target(given) == target


def test_a_number_alone_is_of_the_main_metric():
    assert read_target(20, "perplexity") == read_target("20", "perplexity") == Target("perplexity", 20.0)


@pytest.mark.parametrize("wrong", [0, 1.5, 85, "85", True, math.nan, {"accuracy": 85}, "accuracy=85"])
def test_an_accuracy_is_a_share(wrong):
    with pytest.raises(fp.SettingError, match=r"must be a test accuracy in \(0, 1\]; write 0.85 for 85%"):
        read_target(wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("macro_f1=much", "target = 'macro_f1=much', but must be a number, or a text such as 'macro_f1=0.8'"),
        ({"mae": 1, "rmse": 2}, "but must be one metric and its value; write {'macro_f1': 0.8}"),
        ({"mae": math.inf}, "but must be a finite number"),
        ({"mae": "low"}, "but must be a number, or a text such as"),
        (85, "name another metric: 'perplexity=20'"),
    ],
)
def test_a_wrong_target_says_how_to_write_it(wrong, says):
    with pytest.raises(fp.SettingError) as caught:
        read_target(wrong)
    assert says in str(caught.value)


def test_how_a_target_is_shown():
    assert [str(Target("accuracy", 0.85)), str(Target("perplexity", 20.0))] == ["85%", "perplexity 20"]


@pytest.mark.parametrize("given", ["macro_f1, auroc", ["macro_f1", "auroc"], ("macro_f1", "auroc", "auroc")])
def test_metrics_are_one_text_however_they_are_given(given):
    assert metrics.metrics_text({"lr": 0.1, "metrics": given}) == {"lr": 0.1, "metrics": "macro_f1, auroc"}
    assert metrics.metrics_text({"metrics": None}) == {}


@pytest.mark.parametrize("wrong", [3, [max], {"macro_f1": 1}])
def test_metrics_that_are_no_names_are_refused(wrong):
    with pytest.raises(fp.ConfigError, match=r"but must be names such as \['macro_f1', 'my.py:score'\]"):
        metrics.metrics_text({"metrics": wrong})


def test_directions_that_are_none_are_refused():
    assert metrics.check_directions(None, "loop.py:X") == {}
    with pytest.raises(fp.ConfigError, match=r"loop.py:X: directions = 'up', but must be such as"):
        metrics.check_directions("up", "loop.py:X")
    with pytest.raises(fp.ConfigError, match="directions has 'dice': 'up', but must be 'larger' or 'smaller'"):
        metrics.check_directions({"dice": "up"}, "loop.py:X")
