"""FedGS, Table 2, on Synthetic(0.5, 0.5): the printed losses, and how the text's claims are judged."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Floats
from fedpick.worlds import Always, LessDataFirst, LogNormal, MoreDataFirst, SinLogNormal
from fedpick_papers.studies._stats import interval, show
from fedpick_papers.studies._study import Finding, Result, beside
from fedpick_papers.studies._verdicts import Limit, Order, above, judge, most, order, within
from fedpick_papers.studies.fedgs._common import BEST, best

__all__ = ["CHOSEN", "LIMITS", "PARTS", "as_printed", "body", "claims", "mode_of", "printed"]

PARTS = {"IDL": Always, "LN": LogNormal, "SLN": SinLogNormal, "LDF": LessDataFirst, "MDF": MoreDataFirst}
# Table 2, Synthetic(0.5, 0.5): IDL, LN, SLN, LDF, MDF.
PRINTED = {
    "UniformSample": (0.302, 0.320, 0.324, 0.330, 0.362),
    "MDSample": (0.302, 0.322, 0.328, 0.328, 0.326),
    "Power-of-Choice": (0.691, 0.362, 0.352, 0.557, 0.301),
    "FedProx": (0.301, 0.346, 0.376, 0.319, 0.410),
    "FedGS(0)": (0.307, 0.305, 0.320, 0.309, 0.310),
    "FedGS(0.5)": (0.311, 0.306, 0.319, 0.308, 0.311),
    "FedGS(1)": (0.328, 0.306, 0.318, 0.308, 0.311),
    "FedGS(2)": (0.306, 0.307, 0.320, 0.308, 0.311),
    "FedGS(5)": (0.317, 0.307, 0.321, 0.309, 0.311),
}
BASELINES = ("UniformSample", "MDSample", "FedProx")  # those whose order with FedGS the paper claims in every mode
LIMITS = {"about as good": Limit(1.05, "times the loss: in print FedGS loses at most 5% by absence, for every alpha")}


def _ratio(a: ArrayLike, b: ArrayLike) -> str:
    """Geometric mean of a/b with its 95% interval, in words."""
    gap = interval(np.log(a) - np.log(b))
    width = f" ({np.exp(gap.low):.2f} to {np.exp(gap.high):.2f})" if np.isfinite(gap.half) else ""
    return f"{np.exp(gap.mean):.2f}{width}"


def mode_of(name: str) -> str:
    """The paper's mode of a column: "MDF" of "MDF, beta = 0.7", which is another degree of it."""
    return name.partition(",")[0]


def printed(mode: str) -> dict[str, float]:
    """The column of the table."""
    return {name: row[list(PARTS).index(mode_of(mode))] for name, row in PRINTED.items()}


def body(result: Result) -> str:
    """All losses beside the printed ones, and how many clients are there."""
    modes = list(result["loss"])
    ours = {name: [show(result["loss"][mode][name], 3) for mode in modes] for name in result["loss"][modes[0]]}
    paper = {name: [f"{printed(mode)[name]:.3f}" for mode in modes] for name in PRINTED}
    ours[f"clients there, of {result['clients']}"] = [f"{np.mean(result['present'][mode]):.1f}" for mode in modes]
    return beside(["lowest test loss", *modes], ours, paper) + (
        "\nbeta of MDF is 0.5 where nothing is said. 'FedGS(1), printed' has scale and sigma^2 as in print, the others "
        "as fedpick has them by default.\n"
    )


def _worst(loss: Mapping[str, Mapping[str, list[float]]], name: str) -> tuple[Floats, str]:
    """The mode that is worst for this method compared with IDL: logarithms of the factor by seed, and a text."""
    costs = {m: np.log(of[name]) - np.log(loss["IDL"][name]) for m, of in loss.items() if m != "IDL"}
    mode = max(costs, key=lambda m: float(costs[m].mean()))
    return costs[mode], f"{name} {np.exp(costs[mode].mean()) - 1:+.1%} ({mode})"


def _beaten(mode: str, loss: Mapping[str, list[float]], claim: str, size: float | None = None) -> Order:
    """An order of two by their ratio, with the printed size where the paper's numbers have this order."""
    a, b = claim.split(" > ")
    size = float(np.log(printed(mode)[a] / printed(mode)[b])) if size is None else size
    return order(loss, claim, digits=3, ratio=True, sizes={claim: size} if size > 0 else None)


def as_printed(loss: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """The losses with FedGS(1) of the scale and sigma^2 in print, in the modes of the paper."""
    return {mode: {**of, "FedGS(1)": of["FedGS(1), printed"]} for mode, of in loss.items() if "," not in mode}


CHOSEN = (
    "MDF's beta is not printed: 0.5, which is judged, was fitted: with it the losses are nearer to the printed ones; "
    "0.7, as in the authors' configurations, stands beside it. FedGS with alpha = 1 is judged with the scale and "
    "sigma^2 in print ('FedGS(1), printed' in the table); with other alphas only fedpick's defaults were run"
)
SPLIT = "Their oracle graph compares the clients' true models, ours label shares; each seed draws data of its own"


def claims(result: Result, data: str = SPLIT) -> list[Finding]:
    """What the text claims of the table; `data` says in words how the data was made."""
    loss = as_printed(result["loss"])
    gs = [name for name in PRINTED if name.startswith("FedGS")]
    silent = (
        f"{result['rounds']} rounds and {result['cohort_size']} of {result['clients']} clients (the authors' "
        "configurations have 300 and 6; the paper's appendix is not at hand). UniformSample and FedGS average by data "
        f"size, MDSample, FedProx and Power-of-Choice equally, as in their code. {data}"
    )
    worst = {name: _worst(loss, name) for name in PRINTED}
    allowed = float(np.log(LIMITS["about as good"].value))
    costs = [
        check
        for name in gs
        for check in (
            *(above(worst[n][0] - worst[name][0], f"{n} loses more than {name}", ratio=True) for n in BASELINES[:2]),
            within(worst[name][0], f"{name} loses little", high=allowed, ratio=True),
        )
    ]
    findings = [
        Finding(
            "Absence costs FedGS at most 5% for every alpha, and less than UniformSample and MDSample (the worst mode "
            "against IDL)",
            "'no more than 5% for all the values of alpha'; UniformSample 19.8% (MDF), MDSample 8.6% (LDF)",
            "; ".join(words for _, words in worst.values()),
            judge(costs),
            "the text calls UniformSample's loss the worst; in its own table FedProx loses 36% (MDF). " + silent,
        )
    ]
    rivals = (*BASELINES, "Power-of-Choice")
    for mode in ("LN", "SLN", "LDF"):
        (name, rival), (first, second) = best(loss[mode], rivals), best(printed(mode), rivals)
        low, high = printed(mode)[first], printed(mode)[second]
        orders = [_beaten(mode, loss[mode], f"{each} > FedGS(1)") for each in rivals]
        findings += [
            Finding(
                f"The lowest loss under {mode} is of FedGS, with some alpha",
                f"'the best performance': {low:.3f} against {high:.3f} of the best other method",
                f"{rival} over {name}: {_ratio(loss[mode][rival], loss[mode][name])}",
                judge(_beaten(mode, loss[mode], f"{rival} > {name}", float(np.log(high / low))).checks),
                BEST,
            ),
            Finding(
                f"FedGS(1) has a lower loss under {mode} than every other method",
                "over FedGS(1): "
                + "; ".join(f"{n} {printed(mode)[n] / printed(mode)['FedGS(1)']:.2f}" for n in rivals),
                "; ".join(f"{n} {_ratio(loss[mode][n], loss[mode]['FedGS(1)'])}" for n in rivals),
                judge([check for one in orders for check in one.checks]),
                "alpha = 1 was chosen beforehand, so that chance does not favour it",
                extension=True,
            ),
        ]
    ideal = loss["IDL"]
    close = [
        within(np.log(ideal["FedGS(2)"]) - np.log(ideal[n]), f"FedGS(2) over {n}", high=allowed, ratio=True)
        for n in BASELINES[:2]
    ]
    others = [name for name in PRINTED if name != "Power-of-Choice"]
    pow_d = [check for n in others for check in _beaten("IDL", ideal, f"Power-of-Choice > {n}").checks]
    biased, named = loss["MDF"], printed("MDF")
    (name, _), (first, _) = best(biased, BASELINES), best(named, BASELINES)
    links = [(n, name, n, first) for n in BASELINES[:2]] + [(name, "Power-of-Choice", first, "Power-of-Choice")]
    gains = [_beaten("MDF", biased, f"{a} > {b}", float(np.log(named[x] / named[y]))) for a, b, x, y in links]
    positive = {
        mode: np.exp(np.mean([np.log(of[name]) for name in gs if name != "FedGS(0)"], axis=0))
        for mode, of in loss.items()
    }
    helped = [
        above(
            np.log(of["FedGS(0)"]) - np.log(positive[mode]),
            f"{mode}: FedGS(0) > the mean of alpha > 0",
            ratio=True,
        )
        for mode, of in loss.items()
    ]
    findings += [
        Finding(
            "With everyone there (IDL), FedGS is about as good as UniformSample and MDSample",
            "0.306 (alpha = 2) against 0.302",
            "loss of FedGS(2) over theirs: "
            + "; ".join(f"{name} {_ratio(ideal['FedGS(2)'], ideal[name])}" for name in BASELINES[:2]),
            judge(close),
        ),
        Finding(
            "Under MDF FedGS beats UniformSample and MDSample, and Power-of-Choice is best",
            "14.3% and 4.9% better; Power-of-Choice 0.301 against 0.310",
            f"loss over that of {name}: "
            + "; ".join(f"{n} {_ratio(biased[n], biased[name])}" for n in (*BASELINES[:2], "Power-of-Choice")),
            judge([check for one in gains for check in one.checks]),
            "0.310 is the best alpha's, and so is ours. This rule was changed on 2026-11-16, after the run: alpha = "
            "1 was judged",
        ),
        Finding(
            "Power-of-Choice is far worse than the others under IDL",
            "'almost 200% worse than the others'; in the table 0.691 against 0.301 to 0.328",
            "loss over the others': " + "; ".join(f"{n} {_ratio(ideal['Power-of-Choice'], ideal[n])}" for n in others),
            judge(pow_d),
            "the paper's example of 'extremely unstable across different availability modes'. The sizes asked for are "
            "the table's; 0.691 is 129% above UniformSample's 0.302. This rule was changed on 2026-11-16, after the "
            "run: only "
            "UniformSample was compared",
        ),
        Finding(
            "alpha > 0 improves on alpha = 0 in most modes",
            "said after 'For CIFAR10 and FashionMNIST'; here 6 of 20 printed entries are lower than alpha = 0's",
            "loss of alpha > 0 over that of alpha = 0: "
            + "; ".join(f"{mode} {_ratio(positive[mode], of['FedGS(0)'])}" for mode, of in loss.items()),
            judge([most(helped, "alpha > 0 improves in most modes")]),
            "by the geometric mean over the four alpha > 0; each is in the table. In print, 6 of this data set's 20 "
            "entries are lower than that of alpha = 0 and 12 higher, by 0.001 to 0.002 but for IDL: the sentence is "
            "counted in fedgs/table2-cifar10. " + ". ".join(check.seen for check in helped),
            extension=True,
        ),
    ]
    return findings
