"""Why a claim was not reproduced: the root causes, each with the claims that it explains and what would settle it.

A verdict other than "reproduced" is of one of four kinds. Several claims can have one root, which is counted once. What
is undecided for want of seeds needs no entry here.
"""

from typing import Literal, NamedTuple, get_args

from fedpick_papers.studies._verdicts import Verdict

__all__ = ["KINDS", "POWER", "ROOTS", "Root", "root_of"]

Kind = Literal["the paper", "our setting", "stand-in data", "too little power"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OPEN: tuple[Verdict, ...] = ("undecided", "too few seeds")


class Root(NamedTuple):
    """A root cause.

    Args:
        kind: whose it is.
        what: the cause, in a sentence.
        settles: what would settle it: data, settings, or a question to the authors; "": nothing is open.
        claims: (study, words in the claim; "": all claims of the study) that it explains.
    """

    kind: Kind
    what: str
    settles: str
    claims: tuple[tuple[str, str], ...]


POWER = Root("too little power", "too few seeds", "more seeds", ())
ROOTS: dict[str, tuple[Root, ...]] = {
    "e3cs": (
        Root(
            "our setting",
            "pow-d needs losses: the data on which it trains in Fig. 3, and its d, are not printed, but decide how "
            "often it chooses whom",
            "the data and d of pow-d in Fig. 3 and 4",
            (("e3cs/fig3", "Fairness of selection"),),
        ),
        Root(
            "the paper",
            "'all the 25 clients' holds in few of our seeds: E3CS-0 concentrates on somewhat fewer clients; the paper "
            "shows one run",
            "the authors' counts, or those of more of their runs",
            (("e3cs/fig3", "shares its choice over all"),),
        ),
        Root(
            "stand-in data",
            "other letters stand in for EMNIST's; after the paper's 400 rounds the accuracy on them still rises",
            "EMNIST-Letters; or several times the rounds on these letters",
            tuple((f"e3cs/table2-{kind}", "") for kind in ("non-iid", "iid", "non-iid-fedprox", "iid-fedprox")),
        ),
    ),
    "power-of-choice": (
        Root(
            "the paper",
            "the printed accuracies, rounds to 60% and gains over rand are not found: with the learning rate 0.0005 "
            "gains are a few points, here and in a public rerun by others; with the printed 0.005 there are hardly any",
            "the authors' logs of Fig. 5 and Table 1, with the learning rate in them",
            (
                *((f"power-of-choice/table{n}", "printed one") for n in (1, 2)),
                *((f"power-of-choice/table{n}", "more accurate than rand") for n in (1, 2)),
                *((f"power-of-choice/table{n}", "lower R60") for n in (1, 2)),
                ("power-of-choice/fig5", "more accurate than rand"),
                ("power-of-choice/fig8", ""),
                ("power-of-choice/fig11", "more accurate than rand"),
            ),
        ),
        Root(
            "the paper",
            "rpow-d's proxy, a loss that the client has just trained on, is never refreshed: where data differ "
            "much, it is no better than rand or afl",
            "the authors' runs of rpow-d with alpha = 0.3",
            (("power-of-choice/table1", "more accurate than afl"), ("power-of-choice/fig11", "more accurate than afl")),
        ),
        Root(
            "the paper",
            "all variants lie within one or two points of one another, so that an order among them says little",
            "",
            (("power-of-choice/fig11", "between pow-d and rand"),),
        ),
        Root(
            "our setting",
            "each seed draws a Synthetic(1,1) of its own; the paper has one data set, whose optimum (about 0.46) lies "
            "higher than that of most draws, and its level of 0.7 is moved with the optimum",
            "the data set of Fig. 4",
            (
                ("power-of-choice/fig4", "reaches the level about"),
                ("power-of-choice/fig4", "slightly higher"),
                ("power-of-choice/fig4", "rounds of Fig. 4(c)"),
            ),
        ),
        Root(
            "the paper",
            "for half of the printed rounds adapow-d has d = K, with which it does not get to the loss that rand ends "
            "with; so the least loss cannot come three times sooner",
            "what 'the minimum global loss value' is",
            (("power-of-choice/fig4", "least loss"),),
        ),
        Root(
            "our setting",
            "the grid of models over which rho_bar is the least is not printed ('a large range'): ours are the "
            "models of each run, among which the skew at one can be far from that at another",
            "the grid of Fig. 3",
            (("power-of-choice/quadratic", "rho_"),),
        ),
        Root(
            "stand-in data",
            "MNIST's digits stand in for EMNIST's, and on them all policies end within two points",
            "EMNIST's digits",
            (("power-of-choice/fig9", ""),),
        ),
        Root(
            "the paper",
            "the bounds of Theorems 3.1 and A.1 are above the loss at the start in every round that was run",
            "",
            (("power-of-choice/theorem31", ""), ("power-of-choice/theoremA1", "")),
        ),
    ),
    "bsfl": (
        Root(
            "our setting",
            "how the bounds and bonuses of the annealed problems are drawn, and for how many steps they are annealed, "
            "is not printed: ours are uniform, with 30,000 steps",
            "the problems of Fig. 4, and which of the two readings of (19) was run",
            (("bsfl/fig4", "nearly all runs"),),
        ),
        Root(
            "the paper",
            "the gap between the best and the second best cohort goes to 0, since g is continuous: so the regret is "
            "sublinear, but not logarithmic",
            "the law of latency behind Fig. 5 and 8",
            (("bsfl/fig5", "logarithmic"), ("bsfl/fig8", "logarithmic")),
        ),
        Root(
            "our setting",
            "the law of latency, alpha and beta are not printed: with ours BSFL is ahead early or not at all, and "
            "at the end all are equal",
            "the settings of Fig. 5 to 10",
            (
                ("bsfl/fig5", "smallest test loss"),
                ("bsfl/fig8", "smallest test loss"),
                *((f"bsfl/fig{n}", "BSFL reaches") for n in (6, 7, 9, 10)),
                ("bsfl/weights", "shorter the rounds"),
            ),
        ),
        Root(
            "the paper",
            "the bound of Theorem 1 is so large that a random choice keeps it, too",
            "",
            (("bsfl/regret", ""),),
        ),
        Root(
            "the paper", "classic annealing keeps the bound on neighbours, too", "", (("bsfl/theorem2", "neighbours"),)
        ),
    ),
    "rbcs-f": (
        Root(
            "the paper",
            "the bound of Theorem 3 is above the length of a round of any policy",
            "",
            (("rbcs-f/regret", ""),),
        ),
        Root(
            "our setting",
            "the values of V and gamma_1 and the training's settings are not printed: neighbouring values of ours "
            "are too close to differ by a point",
            "the values of V and gamma_1 in Fig. 5 and 6",
            (("rbcs-f/fig6-", ""), ("rbcs-f/fig5", "")),
        ),
    ),
    "fedgs": (
        Root(
            "our setting",
            "the authors' Power-of-Choice is another one than ours: theirs ends with a far higher loss under IDL "
            "and LDF",
            "d and the weights of Power-of-Choice in Table 2",
            (
                ("fedgs/table2-authors", "printed losses under IDL"),
                ("fedgs/table2-authors", "printed losses under LDF"),
                ("fedgs/table2-authors", "Power-of-Choice is far worse"),
            ),
        ),
        Root(
            "our setting",
            "MDF's beta is not printed; with 0.5 FedGS has the printed losses, but MDSample and UniformSample have "
            "higher ones than printed",
            "beta of MDF in Table 2",
            (("fedgs/table2-authors", "MDF"),),
        ),
        Root(
            "our setting",
            "how the models behind Table 3 were trained is not printed: with ours cos-sim finds most edges",
            "the training of the models behind Table 3",
            (("fedgs/table3", ""),),
        ),
        Root(
            "too little power",
            "too few seeds to tell a printed size of a few percent",
            "more seeds",
            (("fedgs/table2-authors", "under SLN"), ("fedgs/table2-fashion-mnist", "")),
        ),
    ),
}


def root_of(study: str, claim: str, verdict: Verdict) -> Root | None:
    """The root cause of a verdict; None if the claim is reproduced, or nobody has looked into it yet."""
    if verdict == "reproduced":
        return None
    if verdict in OPEN:
        return POWER
    for root in ROOTS.get(study.partition("/")[0], ()):
        for where, words in root.claims:
            if (study == where or (where.endswith("-") and study.startswith(where))) and words in claim:
                return root
    return None
