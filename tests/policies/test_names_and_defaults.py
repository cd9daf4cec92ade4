"""The names and defaults of policies, which files and papers rely on: none changes by a slip of the hand.

New policies and settings need no entry here.
"""

import importlib
import math
import re
from dataclasses import fields

import pytest

import fedpick as fp
from fedpick.policies import TABLE
from fedpick.policies.text import example
from fedpick.report import citations

KEPT = {  # names in text, variants' included; the year of the paper; defaults
    "Uniform": (["uniform", "random"], 2017, {}),
    "SizeWeighted": (["size-weighted"], 2020, {"replace": True}),
    "FixedProbabilities": (["fixed-probabilities"], 2021, {"sampler": "sequential"}),
    "ActiveFL": (["active-fl"], 2019, {"alpha1": 0.75, "alpha2": 0.01, "alpha3": 0.1, "clip": None}),
    "CSUCB": (
        ["cs-ucb", "cs-ucb-q"],
        2020,
        {"variant": "cs-ucb", "floor": 0.5, "queue_weight": 1.0, "tau_min": None, "tau_max": None},
    ),
    "PowerOfChoice": (
        ["power-of-choice", "pow-d", "cpow-d", "rpow-d"],
        2020,
        {"candidates": None, "variant": "pow-d", "schedule": None, "batch": 64, "clip": None},
    ),
    "TiFL": (["tifl"], 2020, {"tiers": 5, "interval": 10, "credits": None, "times": None}),
    "Clustered": (["clustered"], 2021, {"by": "size", "width": 32}),
    "Oort": (
        ["oort"],
        2021,
        {
            "alpha": 2.0,
            "explore": 0.9,
            "decay": 0.98,
            "explore_least": 0.2,
            "cutoff": 0.95,
            "clip": 0.95,
            "window": 20,
            "step": None,
            "fairness": 0.0,
            "at_most": None,
            "speed": None,
        },
    ),
    "RBCSF": (
        ["rbcs-f"],
        2021,
        {
            "penalty": 10.0,
            "guarantee": None,
            "ridge": 1.0,
            "exploration": 0.1,
            "context": 3,
            "absent": "grow",
            "queue_cap": None,
            "deadline": None,
            "theta": None,
        },
    ),
    "SFedAvg": (["s-fedavg"], 2021, {"memory": 0.75}),
    "DivFL": (["divfl"], 2022, {"width": 32, "candidates": None, "weights": "represented"}),
    "E3CS": (
        ["e3cs"],
        2022,
        {"quota": 0.0, "learning_rate": 0.5, "sampler": "pivotal", "max_step": None, "horizon": None, "reward": None},
    ),
    "FedCor": (
        ["fedcor"],
        2022,
        {"warmup": 15, "interval": 10, "beta": 0.95, "gamma": 0.95, "samples": 25, "dimension": 15, "noise": 0.01},
    ),
    "OptimalSampling": (["optimal"], 2022, {"steps": None}),
    "BSFL": (
        ["bsfl"],
        2023,
        {
            "alpha": 1.0,
            "beta": 1.0,
            "solver": "exact",
            "quality": None,
            "g": None,
            "tau_min": None,
            "tau_max": None,
            "steps": 5000,
        },
    ),
    "F3AST": (["f3ast"], 2023, {"beta": 0.01, "most": None}),
    "FedGS": (
        ["fedgs"],
        2023,
        {
            "alpha": 1.0,
            "graph": "auto",
            "sigma2": 0.3,
            "epsilon": 0.1,
            "neighbours": None,
            "scale": "cohort",
            "rebuild_every": 1,
            "restarts": 16,
            "time_limit": None,
        },
    ),
    "REFL": (["refl"], 2023, {"window": 1}),
    "GreedyFed": (["greedyfed"], 2024, {"memory": None}),
    "HiCS": (["hics"], 2024, {"clusters": None, "gamma": 4.0, "horizon": None, "temperature": 0.0025, "balance": 10.0}),
    "OverSelect": (["over-select"], 2019, {"factor": 1.3}),
    "MinSeparation": (["min-separation"], 2021, {"rounds": 1, "at_most": None}),
    "Guard": (["guard"], None, {"cap": 1.5, "window": 50, "probation": 2.0, "weight": 1.5}),
    "FedCS": (["fedcs"], 2019, {"cohort_size": None, "success": None, "deadline": None, "times": None, "theta": None}),
    "Genie": (["genie"], 2023, {"alpha": 1.0, "beta": 1.0, "quality": None, "g": None}),
}


@pytest.mark.parametrize("policy", KEPT)
def test_names_the_paper_s_year_and_defaults_stay(policy):
    names, year, defaults = KEPT[policy]
    about = TABLE[policy].about
    assert [*about.names, *about.variants] == names
    assert (about.paper and about.paper.year) == year
    assert set(names) <= set(fp.policy_names())
    found = {each.name: each.default for each in fields(TABLE[policy])}
    assert {name: found[name] for name in defaults} == defaults


@pytest.mark.parametrize(
    ("module", "most"), [("clustered", 10_000), ("divfl", 30_000), ("fedgs", 30_000), ("hics", 10_000)]
)
def test_the_most_clients_that_fit_into_memory_stay(module, most):
    assert most == importlib.import_module(f"fedpick.policies.{module}").MOST_CLIENTS


def test_a_paper_s_key_is_its_first_author_its_year_and_a_word():
    for key, paper in citations.papers().items():
        surname = re.sub(r"[{} ]", "", re.split(r"[,-]", paper.authors)[0]).lower()
        assert key == "fedpick" or re.fullmatch(rf"{surname}{paper.year}[a-z]+", key)
    named = {key for table in (citations.WORLDS, citations.DATA) for keys in table.values() for key in keys}
    assert named <= citations.papers().keys()


KINDS = {  # but for policies and baselines that can be made from `cohort_size` alone
    **dict.fromkeys(("Uniform", "SizeWeighted"), ("baseline", None)),
    "FixedProbabilities": ("baseline", "p"),
    **dict.fromkeys(("OverSelect", "MinSeparation", "CriticalFL", "Guard"), ("wrapper", None)),
    **{"FedCS": ("oracle", "success"), "Genie": ("oracle", "speed")},
}
MEASURED = {"DivFL": 10_000, "FedGS": 10_000, "FLDP3S": 1_000, "HiCS": 1_000, "FedCor": 100_000}


def test_kinds_stay():
    found = {name: (each.about.kind, each.about.given) for name, each in TABLE.items()}
    assert {name: kind for name, kind in found.items() if kind != ("policy", None)} == KINDS
    known = {name: each.about.measured_up_to for name, each in TABLE.items()}
    assert {name: most for name, most in known.items() if most is not None} == MEASURED


WHOLE, RATE, POSITIVE = "a whole number >= 1", "a number >= 0 and <= 1", "a number > 0"
BOUNDS = {  # of a setting that is a number
    f"{WHOLE}; it is the number of clients that train in a round": " ".join(
        f"{name}.cohort_size" for name, each in TABLE.items() if "cohort_size" in [field.name for field in fields(each)]
    ),
    RATE: """ActiveFL.alpha1 ActiveFL.alpha3 CSUCB.floor Oort.explore Oort.decay Oort.explore_least Oort.cutoff
        Oort.fairness Oort.excluded RBCSF.guarantee SFedAvg.memory Pisces.explore Pisces.decay Pisces.explore_least
        DELTA.beta GreedyFed.memory""",
    "a number >= 0": """ActiveFL.alpha2 CSUCB.queue_weight Oort.alpha RBCSF.penalty RBCSF.exploration Pisces.beta
        BSFL.alpha FedCBS.exploration FedGS.alpha HiCS.gamma HiCS.balance Guard.probation Genie.alpha""",
    f"{POSITIVE} and <= 1": """ActiveFL.clip PowerOfChoice.clip UCBCS.gamma Oort.clip FedCor.beta FedCor.gamma
        FedGS.epsilon""",
    f"{POSITIVE} and <= 0.5": "F3AST.beta",
    POSITIVE: """CSUCB.tau_min CSUCB.tau_max Oort.step RBCSF.ridge RBCSF.queue_cap RBCSF.deadline E3CS.max_step
        FedCor.noise BSFL.beta BSFL.tau_min BSFL.tau_max FedGS.sigma2 FedGS.time_limit HiCS.temperature FedCS.deadline
        Genie.beta""",
    "a number >= 1": """PowerOfChoice.batch F3AST.most FedGS.neighbours FedGS.rebuild_every FedGS.restarts
        OverSelect.factor Guard.cap Guard.weight""",
    WHOLE: """TiFL.tiers TiFL.interval Clustered.width Oort.window Oort.at_most RBCSF.context DivFL.width
        DivFL.candidates FedCor.dimension OptimalSampling.steps DELTA.width FLIPS.clusters FedCBS.draws REFL.window
        HiCS.clusters HiCS.horizon FedLECC.worst FedLECC.clusters MinSeparation.rounds MinSeparation.at_most""",
    "a whole number >= 2": "E3CS.horizon FedCor.warmup FedCor.interval FedCor.samples",
    "a whole number >= 3; the cohort is drawn from it": "OptimalSampling.pool",
    "a whole number >= 0": "BSFL.steps Guard.window",
    "a number or 'optimal'": "E3CS.learning_rate",
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_setting_that_is_no_number_is_refused_with_its_bound(bound):
    for setting in BOUNDS[bound].split():
        name, key = setting.split(".")
        given = {"cohort_size": "x"} if key == "cohort_size" else {"cohort_size": 3, key: "x"}
        with pytest.raises(fp.SettingError) as caught:
            example(TABLE[name], truth=0.5, **given)
        assert str(caught.value) == f"{name}: {key} = 'x', but must be {bound}"


def test_no_number_of_a_policy_is_nan_or_below_its_bound():
    for name, each in TABLE.items():
        for field in fields(each):
            if type(field.default) in (int, float):
                for bad in (math.nan, -1, True):
                    with pytest.raises(fp.SettingError, match=rf"^{name}: {field.name} = {bad}, but must be "):
                        example(each, 3, 0.5, **{field.name: bad})
