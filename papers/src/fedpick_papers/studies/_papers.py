"""The five papers: their tables and figures, headline claims, deviations of our reruns, and reruns by others."""

from typing import NamedTuple

__all__ = ["NO_RESULT", "PAPERS", "Entry", "Paper", "Rerun"]


class Entry(NamedTuple):
    """A table or figure of a paper.

    Args:
        name: as the paper numbers it.
        what: it shows.
        studies: that rerun it, or parts of it.
        left: what of it was not run, and why; "" if nothing is left.
    """

    name: str
    what: str
    studies: tuple[str, ...] = ()
    left: str = ""


DRAWING = "a drawing, without a result"
SETTINGS = "a list of settings, without a result"
FORMULA = "a plot of a formula, without a result"
NO_RESULT = (DRAWING, SETTINGS, FORMULA)
DIGITS = "on MNIST's digits, since EMNIST cannot be had here"
LETTERS = "on other letters, since EMNIST cannot be had here"
TABLE2 = (
    "e3cs/letters-quick",
    "e3cs/table2-non-iid",
    "e3cs/table2-iid",
    "e3cs/table2-non-iid-fedprox",
    "e3cs/table2-iid-fedprox",
)
TABLE3 = ("e3cs/table3-non-iid", "e3cs/table3-iid", "e3cs/table3-non-iid-fedprox", "e3cs/table3-iid-fedprox")
FIG6 = ("rbcs-f/fig6-cifar10", "rbcs-f/fig6-fashion-mnist")
ENTRIES: dict[str, tuple[Entry, ...]] = {
    "e3cs": (
        Entry("Fig. 1", "the effect of fairness", (), DRAWING),
        Entry("Fig. 2", "deadline-based aggregation", (), DRAWING),
        Entry("Table I", "settings of the training", (), SETTINGS),
        Entry("Fig. 3", "times of selection", ("e3cs/fig3",)),
        Entry("Fig. 4", "success ratio and CEP", ("e3cs/fig4",)),
        Entry("Fig. 5", "test accuracy on EMNIST-Letters", TABLE2, LETTERS),
        Entry("Table II", "rounds to a level and final accuracy, EMNIST-Letters", TABLE2, LETTERS),
        Entry("Fig. 6", "test accuracy on CIFAR-10", TABLE3),
        Entry("Table III", "rounds to a level and final accuracy, CIFAR-10", TABLE3),
        Entry("Fig. 7", "other cohort sizes (appendix B)", ("e3cs/fig7",)),
        Entry("Theorem 1", "bound of the regret", ("e3cs/theorem1",)),
        Entry("Abstract", "twice as fast, and as accurate at the end", ("e3cs/table3-non-iid-fedprox",)),
    ),
    "power-of-choice": (
        Entry("Fig. 1", "a toy example with two clients", ("power-of-choice/fig1",)),
        Entry("Fig. 2", "global loss, quadratic", ("power-of-choice/quadratic", "power-of-choice/quadratic-centred")),
        Entry("Fig. 3", "selection skew, quadratic", ("power-of-choice/quadratic",)),
        Entry("Fig. 4", "global loss, Synthetic(1,1)", ("power-of-choice/fig4",)),
        Entry("Fig. 5", "other d, Fashion-MNIST", ("power-of-choice/fig5",)),
        Entry("Fig. 6", "all variants, Fashion-MNIST", ("power-of-choice/table1", "power-of-choice/table2")),
        Entry("Table 1", "R60, t_comp and accuracy, alpha = 0.3", ("power-of-choice/table1",)),
        Entry("Fig. 7", "who is selected, quadratic", ("power-of-choice/quadratic",)),
        Entry("Table 2", "R60, t_comp and accuracy, alpha = 2", ("power-of-choice/table2",)),
        Entry("Fig. 8", "intermittent availability", ("power-of-choice/fig8",)),
        Entry("Fig. 9", "EMNIST digits, K = 500", ("power-of-choice/fig9",), DIGITS),
        Entry("Fig. 10", "EMNIST digits, K = 500, all variants", ("power-of-choice/fig9",), DIGITS),
        Entry("Fig. 11", "Fashion-MNIST, C = 0.1", ("power-of-choice/fig11",)),
        *(Entry(f"Fig. {n}", "batches of 128", ("power-of-choice/fig12",)) for n in (12, 13)),
        *(Entry(f"Fig. {n}", "100 local steps", ("power-of-choice/fig14",)) for n in (14, 15)),
        Entry("Theorem 3.1", "bound of the convergence", ("power-of-choice/theorem31",)),
        Entry("Theorem A.1", "bound with a fixed learning rate", ("power-of-choice/theoremA1",)),
    ),
    "bsfl": (
        Entry("Fig. 1", "the scheme of communication", (), DRAWING),
        Entry("Fig. 2", "g for several beta", (), FORMULA),
        Entry("Fig. 3", "graphs of states", ("bsfl/theorem2",)),
        Entry("Fig. 4", "energy over steps, ALSA and SA", ("bsfl/fig4",)),
        Entry("Fig. 5", "linear regression, iid", ("bsfl/fig5", "bsfl/regret")),
        Entry("Fig. 6", "Fashion-MNIST, iid", ("bsfl/fig6",)),
        Entry("Fig. 7", "CIFAR-10, iid", ("bsfl/fig7",)),
        Entry("Fig. 8", "linear regression, non-iid", ("bsfl/fig8",)),
        Entry("Fig. 9", "Fashion-MNIST, non-iid", ("bsfl/fig9",)),
        Entry("Fig. 10", "CIFAR-10, non-iid", ("bsfl/fig10",)),
        Entry("Theorem 1", "bound of the regret", ("bsfl/regret",)),
        Entry("Theorem 2", "convergence of ALSA", ("bsfl/theorem2",)),
        Entry("Section III-B", "quality of data in g", ("bsfl/quality",)),
        Entry("Section III-C", "what alpha and beta do", ("bsfl/weights",)),
    ),
    "rbcs-f": (
        Entry("Fig. 1", "federated learning", (), DRAWING),
        Entry("Table 1", "settings of the clients", (), SETTINGS),
        Entry("Table 2", "parameters", (), SETTINGS),
        Entry("Fig. 2", "the queues", ("rbcs-f/fig2",)),
        Entry("Fig. 3", "training time", ("rbcs-f/fig3",)),
        Entry("Fig. 4", "pulls of each client", ("rbcs-f/fig4",)),
        Entry("Fig. 5", "fairness alone, Fashion-MNIST and CIFAR-10", ("rbcs-f/fig5",)),
        Entry("Fig. 6", "accuracy over rounds, Fashion-MNIST and CIFAR-10", FIG6),
        Entry("Appendix E", "accuracy over time", FIG6),
        Entry("Regret (23), (24)", "regret and its bound", ("rbcs-f/regret", "rbcs-f/regret-literal")),
        *(Entry(f"Theorem {n}", what, ("rbcs-f/theorems",)) for n, what in ((1, "queues"), (2, "drift"))),
        Entry("Theorem 4", "the guaranteed share", ("rbcs-f/fig4",)),
    ),
    "fedgs": (
        Entry("Fig. 1", "a motivating example", (), DRAWING),
        Entry("Fig. 2", "two kinds of local data", (), DRAWING),
        Entry("Fig. 3", "the oracle graph", ("fedgs/fig3",)),
        Entry("Table 1", "modes of availability", (), SETTINGS),
        Entry(
            "Table 2",
            "lowest test loss on three data sets",
            (
                "fedgs/table2-synthetic",
                "fedgs/table2-authors",
                "fedgs/table2-cifar10",
                "fedgs/table2-fashion-mnist",
            ),
        ),
        Entry("Fig. 4", "sampling counts", ("fedgs/fig4-counts",)),
        Entry("Fig. 5", "test loss over rounds", ("fedgs/table2-cifar10", "fedgs/table2-fashion-mnist")),
        Entry("Table 3", "graphs built from models", ("fedgs/table3",)),
        Entry(
            "Appendix B",
            "FedGS on graphs built from models",
            ("fedgs/built-synthetic", "fedgs/built-cifar10", "fedgs/built-fashion-mnist"),
            "the appendix is not at hand: without its numbers",
        ),
        Entry("Theorem 1", "distance on the graph and the update", ("fedgs/fig3",)),
    ),
}


class Rerun(NamedTuple):
    """What others found with the same settings, from their published logs.

    Args:
        who: they are, and where.
        what: was run.
        found: numbers, by what they are of, each with the printed one.
    """

    who: str
    what: str
    found: tuple[tuple[str, float, float], ...]


class Paper(NamedTuple):
    """A paper.

    Args:
        name: of the algorithm, with authors and year.
        claim: what the paper says of it, in a sentence.
        entries: its tables, figures and theorems.
        headlines: (study, words in the claim, the claim in a few words): what a reader would ask about first.
        deviations: (what, in the paper, here).
        reruns: by others.
    """

    name: str
    claim: str
    entries: tuple[Entry, ...]
    headlines: tuple[tuple[str, str, str], ...]
    deviations: tuple[tuple[str, str, str], ...]
    reruns: tuple[Rerun, ...] = ()


PEERS = "github.com/peng-ju/Power-of-Choice, with a ReScience report"
PAPERS: dict[str, Paper] = {
    "e3cs": Paper(
        "E3CS (Huang et al. 2022)",
        "An adversarial bandit learns which clients fail, and a quota keeps the choice fair: training is up to twice "
        "as fast as with random choice, and ends as accurate.",
        ENTRIES["e3cs"],
        (
            ("e3cs/fig3", "Fairness of selection", "who is chosen: the order of fairness"),
            ("e3cs/fig4", "CEP over the whole session", "how many updates return: the order"),
            ("e3cs/theorem1", "below the bound", "the regret is below its bound"),
            ("e3cs/table2-non-iid", "training faster", "more early participation is faster (letters)"),
            ("e3cs/table3-non-iid", "ends lowest", "unfair choices end lower (CIFAR-10)"),
        ),
        (
            ("data of Table II", "EMNIST-Letters, which cannot be had here", "handwritten letters of another data set"),
            ("levels of Table II", "65, 75 and 85%", "45, 55 and 65%: the letters are harder"),
            (
                "iid division of Table III",
                "not said whether clients share images",
                "they may: of 45,000, some 27,000 are used",
            ),
            ("pow-d in Fig. 3 and 4", "what it trains on is not said", "a logistic regression on Fashion-MNIST"),
            ("seeds of Table III", "not said", "one (a GPU ran them): numbers, no verdicts"),
            ("E3CS-0 before E3CS-inc", "'>' in the first quarter", "not asked for: until then both are one policy"),
        ),
    ),
    "power-of-choice": Paper(
        "Power-of-Choice (Cho et al. 2021)",
        "Choosing the clients with the highest loss among d candidates converges three times as fast as random choice, "
        "with a bias that grows with d, and ends 10 points more accurate.",
        ENTRIES["power-of-choice"],
        (
            ("power-of-choice/quadratic", "K = 30: pow-d converges faster", "the larger d, the faster (quadratic)"),
            ("power-of-choice/quadratic", "K = 30: adapow-d", "adapow-d is fast and ends where rand does"),
            ("power-of-choice/fig4", "d = 10m reaches", "3 times as fast with d = 10m (logistic regression)"),
            (
                "power-of-choice/fig5",
                "alpha = 2, learning rate 0.0005: pow-d is more",
                "10 points more accurate (images)",
            ),
            ("power-of-choice/theorem31", "", "the error is below the bound"),
        ),
        (
            (
                "learning rate on images",
                "0.005",
                "0.0005, with 0.005 beside it: with 0.005, 60% comes ten times too early",
            ),
            ("division of the images", "three seeds", "eight, one for each seed of the run"),
            ("Synthetic(1,1), Fig. 4", "one data set", "one for each seed, and the level moved with its optimum"),
            ("data of Fig. 9 and 10", "EMNIST digits, which cannot be had here", "MNIST's digits"),
            ("e_k in Fig. 2", "'an arbitrary vector'", "uniform up to 100, as in the authors' supplement"),
            ("grid of Fig. 3", "'a large range'", "the models of each run"),
            ("rounds of Fig. 2", "not said", "40,000: adapow-d has its last d for 20,000"),
        ),
        (
            Rerun(
                PEERS,
                "Fashion-MNIST, alpha = 0.3, rate 0.0005, one seed; accuracy is the mean of the last five rounds of "
                "400",
                (
                    ("rand, R60", 86, 234),
                    ("pow-d (d = 6), R60", 48, 89),
                    ("rand, accuracy in %", 68.97, 64.87),
                    ("pow-d (d = 6), accuracy in %", 71.79, 76.47),
                ),
            ),
        ),
    ),
    "bsfl": Paper(
        "BSFL (Ben Ami et al. 2023)",
        "A bandit that chooses fast clients and keeps all of them in use has a logarithmic regret, and reaches a lower "
        "loss sooner than others.",
        ENTRIES["bsfl"],
        (
            ("bsfl/fig5", "regret is lower", "the lowest regret"),
            ("bsfl/fig5", "logarithmic", "and a logarithmic one"),
            ("bsfl/fig8", "smallest test loss", "the smallest loss over time (regression)"),
            ("bsfl/fig6", "lowest test loss", "the smallest loss over time (Fashion-MNIST)"),
            ("bsfl/fig4", "nearly all runs", "ALSA beats annealing in 98.3% of runs"),
        ),
        (
            ("law of latency", "not printed", "a minimum plus a gamma law, mean by client"),
            ("alpha, beta", "not printed", "1 and 1; others in bsfl/weights"),
            ("problems of Fig. 4", "not printed", "uniform bounds and bonuses, 30,000 steps"),
            ("choice of a cohort", "annealing (ALSA)", "exact, by sorting; ALSA in Fig. 4"),
            ("CS-UCB-Q's floor and weight", "not printed", "0.5 and 1"),
            ("seeds on images", "not said", "3 to 5"),
        ),
    ),
    "rbcs-f": Paper(
        "RBCS-F (Huang et al. 2021)",
        "A contextual bandit with queues trains in much less time than random choice, while every client keeps a "
        "guaranteed share in the long run.",
        ENTRIES["rbcs-f"],
        (
            ("rbcs-f/fig3", "less time than random", "less time than random choice"),
            ("rbcs-f/fig2", "flattens", "the queues stay bounded"),
            ("rbcs-f/fig4", "In the long run", "every client gets its share (Theorem 4)"),
            ("rbcs-f/regret", "below the bound", "the regret is below its bound"),
            ("rbcs-f/fig6-cifar10", "The fairer", "the fairer, the more accurate (CIFAR-10)"),
        ),
        (
            ("values of V", "not printed", "1, 10, 50, 100"),
            ("base of the logarithm in the latency", "not printed", "2 (Shannon)"),
            ("gamma_1, gamma_2", "not printed", "0.1, 1 and 10"),
            ("training's settings on images", "not printed", "SGD 0.01 with momentum 0.9, batches of 40"),
            ("rounds for Theorem 4", "500, and 'the long run'", "500 and 10,000"),
            ("seeds on images", "not said", "3"),
        ),
    ),
    "fedgs": Paper(
        "FedGS (Wang et al. 2023)",
        "Choosing clients that are far apart on a graph of their data, with equal counts, gives a lower loss "
        "whoever is available.",
        ENTRIES["fedgs"],
        (
            ("fedgs/table2-authors", "Absence costs", "absence costs at most 5%"),
            ("fedgs/table2-authors", "under LN is of FedGS", "the lowest loss under LN (Synthetic)"),
            ("fedgs/table2-authors", "Under MDF FedGS beats", "better than sampling under MDF"),
            ("fedgs/fig4-counts", "all seven modes", "fairer than uniform sampling"),
            (
                "fedgs/table3",
                "func-sim finds more of the oracle's edges than cos-sim on fashion",
                "func-sim finds the graph",
            ),
        ),
        (
            ("scale and sigma^2, alpha = 1", "N(N-1), 0.01", "the same"),
            ("scale and sigma^2, other alphas", "N(N-1), 0.01", "M(M-1), 0.3: only these were run"),
            (
                "oracle graph of Synthetic",
                "of the clients' true models",
                "of label shares; true models on the page of extensions",
            ),
            ("beta of MDF", "not printed", "0.5, which is nearer to the print than the 0.7 of the authors' files"),
            ("rounds and clients a round", "in an appendix not at hand", "300 and 6 of 30, as in the authors' files"),
            ("training behind Table 3", "not printed", "ten local steps"),
            ("seeds on CIFAR-10", "three", "one (a GPU ran it): numbers, no verdicts"),
        ),
    ),
}
