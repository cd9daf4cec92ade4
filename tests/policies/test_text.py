"""Policies from text: what it understands, and what it says to what it does not."""

import pytest

import fedpick as fp
from fedpick.policies import TABLE


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("uniform", fp.Uniform(20)),
        (" Uniform() ", fp.Uniform(20)),
        ("uniform(5)", fp.Uniform(5)),
        ("uniform(cohort_size=5)", fp.Uniform(5)),
        ("e3cs(quota=0.5, sampler='systematic')", fp.E3CS(20, quota=0.5, sampler="systematic")),
        ("e3cs(quota='inc', horizon=2500)", fp.E3CS(20, quota="inc", horizon=2500)),
        ("e3cs(quota=cosine(0, 1, horizon=50))", fp.E3CS(20, quota=fp.schedules.Cosine(0, 1, 50))),
        ("pow-d(candidates=50)", fp.PowerOfChoice(20, 50)),
        ("RPOW_D(50, schedule=halving(100, every=5))", None),
        ("rpow-d(candidates=50)", fp.PowerOfChoice(20, 50, variant="rpow-d")),
        ("size-weighted(replace=False)", fp.SizeWeighted(20, replace=False)),
        ("cs-ucb-q(floor=0.2)", fp.CSUCB(20, variant="cs-ucb-q", floor=0.2)),
        ("active-fl", fp.ActiveFL(20)),
    ],
)
def test_text_makes_the_policy_it_names(text, policy):
    made = fp.policy(text, cohort_size=20)
    if policy is None:
        assert made.schedule(6) == 50
        assert made.cohort_size == 50
    else:
        assert made == policy


def test_wrappers_hand_the_cohort_size_on():
    made = fp.policy("over-select(e3cs(quota=0.5), 1.5)", cohort_size=20)
    assert (made.policy, made.factor, made.asks) == (fp.E3CS(20, quota=0.5), 1.5, 30)
    assert fp.policy("over-select(uniform)", cohort_size=10).asks == 13


def test_every_listed_name_makes_its_policy():
    for listed in TABLE.values():
        about = listed.about
        given = {} if about.given is None else {about.given: [0.1, 0.9]}
        inside = {"policy": fp.Uniform(3)} if about.kind == "wrapper" else {}
        for name in (*about.names, *about.variants):
            made = fp.policy(name, cohort_size=3, **given, **inside)
            assert (type(made), made.cohort_size) == (listed, 3)
            assert name not in about.variants or made.variant == name


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("e3sc(quota=0.5)", fp.UnknownNameError, "unknown policy 'e3sc'; did you mean 'e3cs'\\? There are: active-fl"),
        ("xyzzy", fp.UnknownNameError, "unknown policy 'xyzzy'. There are: "),
        ("e3cs(qouta=0.5)", fp.UnknownNameError, "unknown setting of e3cs 'qouta'; did you mean 'quota'\\?"),
        ("e3cs(quota=2)", fp.SettingError, "quota = 2, but must be in \\[0, 1\\]"),
        ("e3cs(quota=inc)", fp.SettingError, "inc is neither a number nor a text; did you mean 'inc' in quotes\\?"),
        ("e3cs(quota=hal(1))", fp.UnknownNameError, "unknown value in e3cs 'hal'; did you mean 'halving'\\?"),
        ("e3cs(", fp.SettingError, "cannot read the policy 'e3cs\\(';"),
        ("e3cs(quota=1)(2)", fp.SettingError, "cannot read the policy"),
        ("3", fp.SettingError, "cannot read the policy '3'"),
        ("", fp.SettingError, "cannot read the policy ''"),
        ("e3cs(**{})", fp.SettingError, "write each setting as name=value"),
        ("e3cs(quota=1+1)", fp.SettingError, "cannot read '1 \\+ 1'; settings are numbers, texts or lists"),
        ("e3cs(5, 0.5, quota=0.5)", fp.SettingError, "multiple values for argument 'quota'"),
        (
            "fixed-probabilities",
            fp.SettingError,
            "missing 1 required positional argument: 'p'; its settings are cohort",
        ),
        ("__import__('os').system('true')", fp.SettingError, "cannot read the policy"),
    ],
)
def test_what_it_cannot_read_it_explains(text, error, says):
    with pytest.raises(error, match=says):
        fp.policy(text, cohort_size=5)


def test_an_unknown_further_setting_is_named():
    with pytest.raises(fp.UnknownNameError, match="unknown setting of a policy 'qouta'; did you mean 'quota'"):
        fp.policy("e3cs", cohort_size=5, qouta=0.5)


def test_a_missing_cohort_size_is_named():
    with pytest.raises(fp.SettingError, match=r"^uniform: missing 1 required positional argument: 'cohort_size'"):
        fp.policy("uniform")
