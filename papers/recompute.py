"""Compute intervals and verdicts of the headline claims again, from the stored numbers of each seed.

This program shares no code with fedpick or fedpick-papers: it has its own reading of each headline claim, of the rules
(docs/studies/rules.md) and of result.json. It also decides every other part of a claim anew, from the numbers in
docs/studies/verdicts.json. It exits with 1 and names what differs.

    python papers/recompute.py [docs/studies]
"""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import stats

SERIOUS = ("contradicted", "no difference", "undecided", "direction only")


def interval(x, level):
    """Mean, and the ends of its t-interval."""
    mean, error = np.mean(x), np.std(x, ddof=1) / math.sqrt(len(x))
    half = stats.t.ppf((1 + level) / 2, len(x) - 1) * error
    return mean, mean - half, mean + half


def part(x, n, rule, *, size=None, half=None, margin=None, low=-math.inf, high=math.inf, ratio=False, **_):
    """The verdict on one of n parts."""
    x = np.asarray(x, dtype=float)
    if len(x) < 3:
        return "undecided"
    chance = 0.5 ** (len(x) - 1) if np.ptp(x) <= 1e-12 * abs(x.mean()) else 0.0  # of the sign test, if all are alike
    if chance >= 0.05:
        return "undecided"
    _, left, right = interval(x, 0.95)
    _, all_left, all_right = interval(x, 1 - 0.05 / n) if chance < 0.05 / n else (x.mean(), -math.inf, math.inf)
    if rule == "within":
        if low <= left and right <= high:
            return "reproduced"
        return "contradicted" if all_right < low or all_left > high else "undecided"
    if left > 0:
        if size is None or left > size:
            return "reproduced"
        wide = (right - left) / 2 > (size / 2 if half is None else half)
        return "direction only" if all_right < size or wide else "reproduced"
    if size is None and margin is not None and -margin < all_left and all_right < margin:
        return "no difference"
    if all_right <= 0 or (size is not None and all_right < size / 2):
        return "contradicted"
    return "undecided"


def claim(parts):
    """The verdict on a claim from its parts: (rule, numbers, how)."""
    if all(len(x) < 3 for _, x, _ in parts):
        return "too few seeds"
    found = {part(x, len(parts), rule, **how) for rule, x, how in parts}
    return next((each for each in SERIOUS if each in found), "reproduced")


# ---- the headline claims, each read from result.json by a function of its own


def more(a, b, **how):
    """a > b, by differences."""
    return ("above", np.subtract(a, b), how)


def times(a, b, **how):
    """a > b, by ratios; a size is a factor."""
    how = {"margin": math.log(1.05), **how}
    if how.get("size"):
        how["size"] = math.log(how["size"])
    return ("above", np.log(a) - np.log(b), how)


def between(x, **bounds):
    return ("within", np.asarray(x, dtype=float), bounds)


def chain(of, names, make=more, **how):
    return [make(of[a], of[b], **how) for a, b in pairwise(names)]


def e3cs_fairness(r):
    of = {name.partition(",")[0]: x for name, x in r["variance"].items()}  # multinomialNR comes last: it is the paper's
    return chain(of, ["FedCS", "E3CS-0", "E3CS-0.5", "pow-d", "E3CS-0.8", "Random"])


def e3cs_returned(r):
    of, same = {**r["cep"]["iid"], **r["cep"]["multinomial"]}, 0.02 * r["cohort_size"] * r["rounds"]
    equal = ["E3CS-inc", "E3CS-0.8"]
    parts = chain(of, ["FedCS", "E3CS-0", "E3CS-0.5"]) + [more(of["E3CS-0.5"], of[name]) for name in equal]
    parts += [between(np.subtract(of[equal[0]], of[equal[1]]), low=-same, high=same)]
    return parts + [more(of[name], of["Random"]) for name in equal] + [more(of["Random"], of["pow-d"])]


def e3cs_regret(r):
    last = [by[str(max(map(int, by)))] for by in r["rows"].values()]
    return [more(one["bound"], one["regret"]) for one in last if np.mean(one["bound"]) <= np.mean(one["uniform"])]


def e3cs_speed(r):
    pairs = [("pow-d", "Random"), ("E3CS-0", "FedCS"), ("E3CS-inc", "FedCS")]
    pairs += [("Random", name) for name in ("E3CS-0.5", "E3CS-0", "E3CS-inc")]
    return [times(r["first"][a][level], r["first"][b][level]) for level in (0, 1) for a, b in pairs]


def e3cs_end(r):
    return [more(r["final"]["E3CS-0"], r["final"]["FedCS"])]  # one seed


def poc_speed(r):
    return chain(r["reached"]["30"], ["rand", "d=6", "d=9", "d=15", "d=30"], times)


def poc_adaptive(r):
    reached, floor = r["reached"]["30"], r["floor"]["30"]
    return [
        between(np.divide(reached["ada"], reached["d=30"]), low=0.95, high=1.05),
        times(floor["d=30"], floor["ada"]),
        between(np.log(floor["ada"]) - np.log(floor["rand"]), high=math.log(2)),
    ]


def poc_logistic(r):
    parts = []
    for one in r["problems"]["power-law sizes"].values():
        rand, pow_d = ([x or r["rounds"] for x in one["reached"][name]] for name in ("rand", "d=10m"))
        parts.append(times(rand, pow_d, size=3))
    return parts


def poc_images(r):
    of = r["partitions"]["alpha = 2"]["0.0005"]["accuracy"]
    return [more(of["d=6"], of["rand"], size=10), more(of["d=6"], of["afl"], size=5)]


def poc_bound(r):
    assert min(min(x) for x in r["slack"].values()) > 0  # it holds
    return "vacuous" if min(min(x) for x in r["least_bound"].values()) > 1 else None


def bsfl_regret(r):
    return [more(x, r["final"]["BSFL"]) for name, x in r["final"].items() if name != "BSFL"]


def bsfl_logarithm(r):
    slope = dict(r["exponent"])
    ours = 1 - np.array(slope.pop("BSFL"))
    return [("above", ours, {"size": 1 - 1.5 / math.log(r["rounds"]), "half": 0.1})] + [
        between(x, low=0.85) for x in slope.values()
    ]


def over_time(of):
    return [times(x, row["BSFL"]) for row in of.values() for name, x in row.items() if name != "BSFL"]


def bsfl_loss(r):
    return over_time(r["loss"]["sizes differ"])


def bsfl_image_loss(r):
    return over_time(r["best"]["loss"])


def bsfl_annealing(r):
    wins = 100 * np.mean([of["wins"]["reached"]["ALSA"] for of in r["sizes"].values()], axis=0)
    return [("above", wins - 50, {"size": 98.3 - 50, "half": 2})]


def rbcsf_time(r):
    return [more(r["seconds"]["Random"], r["seconds"]["RBCS-F(1)"])]


def rbcsf_queues(r):
    return [between(x, high=0.1) for x in r["growth"].values()]


def rbcsf_share(r):
    beta, allowed = r["guarantee"], math.sqrt(r["rounds"] / r["longer"])
    missing = [
        [np.maximum(beta - np.array(r[when][name]), 0) for when in ("least", "least_later")]
        for name in r["least"]
        if name.startswith("RBCS-F")
    ]
    return [between(after - allowed * before, high=0) for before, after in missing]


def rbcsf_bound(r):
    bounds, regret = r["bound"]["base 2"], r["regret"]["base 2"]
    assert all(bounds[V] > max(x) for V, x in regret.items())
    return "vacuous" if min(bounds.values()) > np.mean(r["random"]["base 2"]) else None


def rbcsf_fair(r):
    names = [f"RBCS-F({V})" for V in (1, 10, 50, 100)]
    return [each for row in r["final"].values() for each in chain(row, names, margin=1.0)]


PRINTED = {  # FedGS, Table 2: LN and MDF, the lowest of the baselines and of FedGS
    "LN": {"UniformSample": 0.320, "MDSample": 0.322, "Power-of-Choice": 0.362, "FedProx": 0.346, "FedGS": 0.305},
    "MDF": {"UniformSample": 0.362, "MDSample": 0.326, "Power-of-Choice": 0.301, "FedProx": 0.410, "FedGS": 0.310},
}


def fedgs_losses(r):
    """The losses by mode, with the paper's scale and sigma^2 at alpha = 1."""
    return {mode: {**of, "FedGS(1)": of["FedGS(1), printed"]} for mode, of in r["loss"].items() if "," not in mode}


def lowest(of, names):
    return min(names, key=lambda name: np.mean(of[name]))


def alphas(of):
    return [name for name in of if name.startswith("FedGS(") and name.endswith(")")]


def fedgs_absence(r):
    loss = fedgs_losses(r)
    away = [mode for mode in loss if mode != "IDL"]

    def worst(name):
        return max((np.log(loss[m][name]) - np.log(loss["IDL"][name]) for m in away), key=np.mean)

    parts = []
    for name in alphas(loss["IDL"]):
        for other in ("UniformSample", "MDSample"):
            parts.append(("above", worst(other) - worst(name), {"margin": math.log(1.05)}))
        parts.append(between(worst(name), high=math.log(1.05)))
    return parts


def fedgs_lowest(r):
    of = fedgs_losses(r)["LN"]
    ours = lowest(of, alphas(of))
    rival = lowest(of, ["UniformSample", "MDSample", "FedProx", "Power-of-Choice"])
    printed = PRINTED["LN"]
    return [
        times(of[rival], of[ours], size=min(x for name, x in printed.items() if name != "FedGS") / printed["FedGS"])
    ]


def fedgs_many_data_first(r):
    of, printed = fedgs_losses(r)["MDF"], PRINTED["MDF"]
    ours = lowest(of, alphas(of))
    parts = [times(of[name], of[ours], size=printed[name] / printed["FedGS"]) for name in ("UniformSample", "MDSample")]
    size = printed["FedGS"] / printed["Power-of-Choice"]
    return [*parts, times(of[ours], of["Power-of-Choice"], size=size)]


def fedgs_counts(r):
    return [more(of["UniformSample"], of["FedGS(1), printed"]) for of in r["variance"].values()]


def fedgs_graph(r):
    of = r["scores"]["fashion-mnist"]
    return [more(of["func-sim"]["F1"], of["cos-sim"]["F1"], size=0.8218 - 0.5448)]


HEADLINES = {  # study, words in the claim: how it is read
    ("e3cs/fig3", "Fairness of selection"): e3cs_fairness,
    ("e3cs/fig4", "CEP over the whole session"): e3cs_returned,
    ("e3cs/theorem1", "regret"): e3cs_regret,
    ("e3cs/table2-non-iid", "training faster"): e3cs_speed,
    ("e3cs/table3-non-iid", "ends lowest"): e3cs_end,
    ("power-of-choice/quadratic", "K = 30: pow-d converges faster"): poc_speed,
    ("power-of-choice/quadratic", "K = 30: adapow-d"): poc_adaptive,
    ("power-of-choice/fig4", "d = 10m reaches"): poc_logistic,
    ("power-of-choice/fig5", "alpha = 2, learning rate 0.0005: pow-d is more"): poc_images,
    ("power-of-choice/theorem31", "bound"): poc_bound,
    ("bsfl/fig5", "regret is lower"): bsfl_regret,
    ("bsfl/fig5", "logarithmic"): bsfl_logarithm,
    ("bsfl/fig8", "smallest test loss"): bsfl_loss,
    ("bsfl/fig6", "lowest test loss"): bsfl_image_loss,
    ("bsfl/fig4", "nearly all runs"): bsfl_annealing,
    ("rbcs-f/fig3", "less time than random"): rbcsf_time,
    ("rbcs-f/fig2", "flattens"): rbcsf_queues,
    ("rbcs-f/fig4", "In the long run"): rbcsf_share,
    ("rbcs-f/regret", "regret"): rbcsf_bound,
    ("rbcs-f/fig6-cifar10", "The fairer"): rbcsf_fair,
    ("fedgs/table2-authors", "Absence costs"): fedgs_absence,
    ("fedgs/table2-authors", "under LN is of FedGS"): fedgs_lowest,
    ("fedgs/table2-authors", "Under MDF FedGS beats"): fedgs_many_data_first,
    ("fedgs/fig4-counts", "all seven modes"): fedgs_counts,
    ("fedgs/table3", "cos-sim on fashion"): fedgs_graph,
}


def differences(headline, stored):
    """What our reading of a headline claim gives otherwise than the stored one: verdict or intervals."""
    found = headline
    verdict = found if isinstance(found, str) else claim(found)
    if verdict != stored["verdict"]:
        return [f"{verdict}, stored is {stored['verdict']}"]
    if isinstance(found, str) or verdict == "too few seeds":
        return []
    if len(found) != len(stored["parts"]):
        return [f"{len(found)} parts, stored are {len(stored['parts'])}"]
    ours, theirs = (sorted(interval(x, 0.95) for x in of) for of in ([x for _, x, _ in found], numbers(stored)))
    return [
        f"interval {a}, stored is {b}"
        for a, b in zip(ours, theirs, strict=True)
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12)
    ]


def numbers(stored):
    return [each["values"] for each in stored["parts"]]


def settings(each):
    return {name: value for name, value in each.items() if name not in ("values", "what", "verdict", "rule")}


def main(folder):
    """Print what was computed; the number of differences."""
    rows, wrong, parts = json.loads((folder / "verdicts.json").read_text()), [], 0
    for row in rows:
        for each in row["parts"]:
            if "values" in each:
                parts += 1
                verdict = part(each["values"], len(row["parts"]), each["rule"], **settings(each))
                if verdict != each["verdict"]:
                    wrong.append(f"{row['study']}: {each['what']}: {verdict}, stored is {each['verdict']}")
        if row["parts"] and all("values" in each for each in row["parts"]):
            again = claim([(each["rule"], each["values"], settings(each)) for each in row["parts"]])
            if again != row["verdict"] and row["verdict"] not in ("vacuous", "not testable here"):
                wrong.append(f"{row['study']}: {row['claim']}: {again}, stored is {row['verdict']}")
    left = {(row["study"], row["claim"]) for row in rows if row["headline"]}
    for (study, words), read in HEADLINES.items():
        stored = next(row for row in rows if row["study"] == study and words in row["claim"] and row["headline"])
        left.discard((study, stored["claim"]))
        result = json.loads((folder / study / "result.json").read_text())
        wrong += [f"{study}: {stored['claim']}: {each}" for each in differences(read(result), stored)]
    wrong += [f"{study}: {words}: is a headline claim, and not computed here" for study, words in left]
    print(
        f"{len(HEADLINES)} headline claims and {parts} parts of {len(rows)} claims computed again, {len(wrong)} differ"
    )
    print("\n".join(wrong))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/studies")) > 0)
