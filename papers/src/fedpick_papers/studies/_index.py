"""The index: five papers at a glance, and all verdicts with their numbers as data."""

import json
from collections.abc import Sequence
from typing import Any

from fedpick_papers.studies._causes import KINDS, POWER, Root
from fedpick_papers.studies._pages import counts, headlines, outcomes_of, roots_of
from fedpick_papers.studies._papers import NO_RESULT, PAPERS
from fedpick_papers.studies._study import Reproduction, table
from fedpick_papers.studies._verdicts import RULES, VERDICTS, Verdict

__all__ = ["index_page", "summary", "verdicts_data"]


def _judged(outcomes: Sequence[Reproduction]) -> list[Reproduction]:
    """The studies of the five papers."""
    return [one for paper in PAPERS for one in outcomes_of(paper, outcomes)]


def _by_cause(outcomes: Sequence[Reproduction]) -> str:
    """Claims and root causes of each kind, as a table."""
    rows = [["cause of what is not reproduced", "claims", "root causes"], ["---", "---:", "---:"]]
    there = roots_of(outcomes)
    for kind in KINDS:
        mine = {root: of for root, of in there.items() if root.kind == kind}
        studies = {one.study.id for one, _ in there.get(POWER, [])} if kind == POWER.kind else set()
        roots = len([root for root in mine if root is not POWER]) + len(studies)
        unit = f"{roots} ({len(studies)} studies)" if studies else str(roots)
        rows.append([kind, str(sum(map(len, mine.values()))), unit])
    return table(rows)


def summary(outcomes: Sequence[Reproduction]) -> str:
    """The numbers in a few sentences, and as tables."""
    mine = _judged(outcomes)
    findings = [finding for one in mine for finding in one.findings]
    run = {one.study.id for one in mine}
    entries = [entry for paper in PAPERS.values() for entry in paper.entries]
    testable = [entry for entry in entries if entry.left not in NO_RESULT]
    shown = sum(any(id in run for id in entry.studies) for entry in testable)
    counted = [one for one in mine if sum(counts(one.findings))]
    sentence = (
        f"{sum(counts(findings))} claims of the five papers were judged, in {len(counted)} studies, which rerun "
        f"{shown} of "
        f"the {len(testable)} tables, figures and theorems that have a result and are listed, wholly or in part. "
        f"The rules were last changed on {RULES[-1][0]}, after these runs."
    )
    numbers = table([list(VERDICTS), ["---:"] * len(VERDICTS), [str(count) for count in counts(findings)]])
    return f"{sentence}{_earlier(mine)}\n\n{numbers}\n{_by_cause(mine)}"


def _earlier(outcomes: Sequence[Reproduction]) -> str:
    """How many of the studies are of earlier draws and rules, as a sentence; "": none."""
    there = [one.earlier for one in outcomes if one.earlier]
    return f" {len(there)} of the studies are of the draws and rules {there[0]}; their pages say so." if there else ""


def index_page(outcomes: Sequence[Reproduction]) -> str:
    """The page index.md."""
    mine = _judged(outcomes)
    short: tuple[Verdict, ...] = ("reproduced", "direction only", "no difference", "contradicted")
    papers = [["paper", "claims", *short, "open"], ["---", *["---:"] * (2 + len(short))]]
    claims = [["paper", "headline claim", "verdict", "cause"], ["---"] * 4]
    for paper, about in PAPERS.items():
        of = outcomes_of(paper, mine)
        if not of:
            continue
        found = dict(zip(VERDICTS, counts([f for one in of for f in one.findings]), strict=True))
        rest = sum(found.values()) - sum(found[name] for name in short)
        row = [f"[{about.name}]({paper}/index.md)", str(sum(found.values()))]
        papers.append([*row, *(str(found[name]) for name in short), str(rest)])
        for i, (words, one, finding) in enumerate(headlines(paper, of)):
            root = one.root(finding)
            name = about.name.partition(" (")[0] if not i else ""
            cells = [f"[{words}]({one.study.id}/findings.md)", f"**{finding.verdict}**", root.kind if root else ""]
            claims.append([name, *cells])
    others = ", ".join(f"[{one.study.id}]({one.study.id}/findings.md)" for one in outcomes if one not in mine)
    parts = [
        "# Five papers, rerun\n",
        "What five papers claim, beside what we find: [how it is judged](rules.md). A verdict is about a claim as "
        "it is "
        "printed; whether the cause of a failure is the paper or our rerun stands beside it.\n",
        table(papers),
        "*Open*: undecided, too few seeds, vacuous or not testable here.\n",
        "## Headline claims\n",
        table(claims),
        "## All claims\n",
        summary(outcomes),
        f"Studies beyond the five papers: {others}.\n" if others else "",
    ]
    return "\n".join(part for part in parts if part)


def verdicts_data(outcomes: Sequence[Reproduction]) -> str:
    """All verdicts on the papers' claims with the numbers they are made of, as JSON."""
    rows: list[dict[str, Any]] = []
    for paper in PAPERS:
        mine = outcomes_of(paper, outcomes)
        first = [(one.study.id, finding.claim) for _, one, finding in headlines(paper, mine)]
        for one in mine:
            for finding in one.findings:
                if not finding.extension:
                    parts = [
                        {**check.part.data(), "verdict": check.verdict} if check.part else {"verdict": check.verdict}
                        for check in finding.judged.checks
                    ]
                    root: Root | None = one.root(finding)
                    row: dict[str, Any] = {"study": one.study.id, "claim": finding.claim, "verdict": finding.verdict}
                    row |= {"cause": root.kind if root else None, "why": root.what if root else None}
                    rows.append({**row, "headline": (one.study.id, finding.claim) in first, "parts": parts})
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
