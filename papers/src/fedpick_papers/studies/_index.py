"""The index: of every table and figure of the five papers the state and the verdicts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedpick_papers.studies._study import Finding, Reproduction, table
from fedpick_papers.studies._verdicts import VERDICTS

__all__ = ["PAPERS", "Entry", "index_page", "summary"]


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
PAPERS: dict[str, tuple[Entry, ...]] = {
    "E3CS (Huang et al. 2022)": (
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
    ),
    "Power-of-Choice (Cho et al. 2021)": (
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
    ),
    "BSFL (Ben Ami et al. 2023)": (
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
    "RBCS-F (Huang et al. 2021)": (
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
        Entry("Theorem 4", "the guaranteed share", ("rbcs-f/fig4",)),
    ),
    "FedGS (Wang et al. 2023)": (
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


def _counts(findings: Sequence[Finding]) -> list[int]:
    """Number of the papers' claims with each verdict; extensions of ours do not count."""
    verdicts = [finding.verdict for finding in findings if not finding.extension]
    return [verdicts.count(each) for each in VERDICTS]


def summary(outcomes: Sequence[Reproduction]) -> str:
    """The numbers in a sentence, and as a table."""
    outcomes = [outcome for outcome in outcomes if outcome.study.paper]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    counts = _counts(findings)
    run = {outcome.study.id for outcome in outcomes}
    entries = [entry for paper in PAPERS.values() for entry in paper]
    testable = [entry for entry in entries if entry.left not in NO_RESULT]
    shown = sum(any(id in run for id in entry.studies) for entry in testable)
    extensions = sum(finding.extension for finding in findings)
    counted = [outcome for outcome in outcomes if not all(finding.extension for finding in outcome.findings)]
    few = [f.judged.as_claimed for f in findings if f.judged.as_claimed is not None and not f.extension]
    undecided = (
        f" {counts[VERDICTS.index('undecided')]} claims are undecided; {len(few)} of these have one or two seeds, too "
        f"few for any verdict, and in {sum(few)} of the {len(few)} all means are as claimed."
    )
    sentence = (
        f"{sum(counts)} claims of the five papers were judged, in {len(counted)} studies. The studies rerun {shown} of "
        f"the {len(testable)} tables, figures and theorems with a result to compare, wholly or in part; the other "
        f"{len(entries) - len(testable)} are drawings and lists of settings. {extensions} extensions of ours are "
        "shown, but not counted."
    )
    numbers = table([list(VERDICTS), ["---:"] * len(VERDICTS), [str(count) for count in counts]])
    return f"{sentence}{undecided if few else ''}{_earlier(outcomes)}\n\n{numbers}"


def _earlier(outcomes: Sequence[Reproduction]) -> str:
    """How many of the studies are of earlier draws and rules, as a sentence; "": none."""
    there = [outcome.earlier for outcome in outcomes if outcome.earlier]
    return f" {len(there)} of the studies are of the draws and rules {there[0]}; their pages say so." if there else ""


def _words(findings: Sequence[Finding]) -> str:
    counts = zip(_counts(findings), VERDICTS, strict=True)
    return ", ".join(f"{count} {verdict}" for count, verdict in counts if count) or "only extensions of ours"


def _link(id: str) -> str:
    return f"[{id}]({id}/findings.md)"


def _titled(one: Reproduction) -> str:
    return f"{one.study.title} (draws and rules {one.earlier})" if one.earlier else one.study.title


def _once(there: Sequence[Reproduction], shown_in: Mapping[str, str]) -> str:
    """The verdicts of these studies; for a study in `shown_in` only the row that has them: none is read twice."""
    new = [one for one in there if one.study.id not in shown_in]
    several = len(there) > 1
    parts = [(f"{one.study.id.partition('/')[2]}: " if several else "") + _words(one.findings) for one in new]
    rows = dict.fromkeys(shown_in[one.study.id] for one in there if one.study.id in shown_in)
    return "; ".join([*parts, *(f"see {row}" for row in rows)])


def index_page(outcomes: Sequence[Reproduction]) -> str:
    """The page index.md."""
    by_id = {outcome.study.id: outcome for outcome in outcomes}
    rows = [["study", "what", "seeds", *VERDICTS], ["---", "---", *["---:"] * (1 + len(VERDICTS))]]
    rows += [
        [_link(id), _titled(one), str(one.settings["seeds"]), *(str(n or "") for n in _counts(one.findings))]
        for id, one in by_id.items()
        if one.study.paper
    ]
    extensions = [[_link(id), _titled(one)] for id, one in by_id.items() if not one.study.paper]
    parts = [
        "# The papers' experiments, rerun\n",
        "Each page sets a paper's claims beside our figures, with 95% intervals over seeds, and a verdict for each "
        "claim. `fedpick reproduce` and `fedpick judge` write them, and this page.\n",
        summary(outcomes),
        "- *reproduced*: the paired interval excludes 0 on the claim's side; where a size is printed, it contains the "
        "size or lies beyond it, with a half-width of at most half that size.\n"
        "- *direction only*: it excludes 0 on that side, but lies below the printed size or is wider.\n"
        "- *contradicted*: it excludes the claim or a part of it: it lies on the other side of 0 or, where a size is "
        "printed, contains 0 but not even half the size.\n"
        "- *undecided*: too few seeds; the page says about how many would decide. Some studies were given more for "
        "that: what a second look decides is a little less sure than 95%.\n"
        "- *vacuous*: the claim holds, but so it would for anything.\n"
        "- *not testable here*: for a reason that is named.\n",
        "## The studies\n",
        table(rows),
        *(["## Beyond the papers\n", table([["study", "what"], ["---", "---"], *extensions])] if extensions else []),
        "## All tables and figures\n",
    ]
    for paper, entries in PAPERS.items():
        rows = [["", "what", "rerun in", "verdicts of the whole study", "left out"], ["---"] * 5]
        shown_in: dict[str, str] = {}
        for entry in entries:
            there = [by_id[id] for id in entry.studies if id in by_id]
            missing = [f"{id}: not run yet" for id in entry.studies if id not in by_id]
            left = "; ".join([*missing, *([entry.left] if entry.left else [])])
            links = ", ".join(_link(one.study.id) for one in there) or "not run"
            rows.append([entry.name, entry.what, links, _once(there, shown_in), left])
            shown_in |= {one.study.id: entry.name for one in there if one.study.id not in shown_in}
        parts += [f"### {paper}\n", table(rows)]
    return "\n".join(parts)
