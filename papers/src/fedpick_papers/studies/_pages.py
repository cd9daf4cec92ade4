"""The pages of the five papers, of what we would change in their experiments, and of the rules."""

from collections.abc import Mapping, Sequence

from fedpick_papers.studies._causes import KINDS, POWER, ROOTS, Root
from fedpick_papers.studies._papers import PAPERS, Paper, Rerun
from fedpick_papers.studies._study import Finding, Reproduction, table
from fedpick_papers.studies._verdicts import RULES, VERDICTS

__all__ = ["beyond_page", "counts", "headlines", "outcomes_of", "paper_page", "rules_page", "words"]

OUTSIDE = "../index.md"


def outcomes_of(paper: str, outcomes: Sequence[Reproduction]) -> list[Reproduction]:
    """The studies of a paper."""
    return [one for one in outcomes if one.study.id.startswith(f"{paper}/")]


def counts(findings: Sequence[Finding]) -> list[int]:
    """Number of the papers' claims with each verdict; extensions of ours do not count."""
    verdicts = [finding.verdict for finding in findings if not finding.extension]
    return [verdicts.count(each) for each in VERDICTS]


def words(findings: Sequence[Finding]) -> str:
    """The numbers of verdicts in words."""
    found = zip(counts(findings), VERDICTS, strict=True)
    return ", ".join(f"{count} {verdict}" for count, verdict in found if count) or "extensions only"


def headlines(paper: str, outcomes: Sequence[Reproduction]) -> list[tuple[str, Reproduction, Finding]]:
    """The headline claims of a paper that were judged: each in a few words, with its study."""
    by_id = {one.study.id: one for one in outcomes}
    found = []
    for id, claim, short in PAPERS[paper].headlines:
        if id in by_id:
            of = [each for each in by_id[id].findings if claim in each.claim and not each.extension]
            found += [(short, by_id[id], each) for each in of[:1]]
    return found


def roots_of(outcomes: Sequence[Reproduction]) -> dict[Root, list[tuple[Reproduction, Finding]]]:
    """The root causes, each with the claims that it explains."""
    found: dict[Root, list[tuple[Reproduction, Finding]]] = {}
    for one in outcomes:
        for finding in one.findings:
            root = one.root(finding)
            if root is not None:
                found.setdefault(root, []).append((one, finding))
    return found


def paper_page(paper: str, outcomes: Sequence[Reproduction]) -> str:
    """index.md of a paper: what it claims, what held, what did not and why, and what would settle it."""
    about, mine = PAPERS[paper], outcomes_of(paper, outcomes)
    counted = [one for one in mine if counts(one.findings) != [0] * len(VERDICTS)]
    findings = [finding for one in mine for finding in one.findings]
    head = [f"# {about.name}\n", f"{about.claim}\n"]
    head.append(f"{sum(counts(findings))} claims: {words(findings)}. [All papers]({OUTSIDE}) · [rules](../rules.md)\n")
    parts = [
        *head,
        "## What it claims\n",
        table(
            [["claim", "verdict", "cause"], ["---"] * 3]
            + [
                [f"[{short}]({_page(one)})", f"**{f.verdict}**", _kind(one, f)]
                for short, one, f in headlines(paper, mine)
            ]
        ),
        "## What held\n",
        table([["in the paper", "reproduced", "other verdicts"], ["---"] * 3, *_by_entry(about, mine)]),
        "## What did not, and why\n",
        _causes(mine),
        "## Deviations from the paper\n",
        table([["what", "the paper", "here"], ["---"] * 3, *(list(row) for row in about.deviations)]),
        "## Reruns by others\n",
        "\n".join(_rerun(one) for one in about.reruns) or "We know of none with published numbers.\n",
        "## Computing time\n",
        _time(counted),
        "## What would settle the open points\n",
        _open(paper, mine),
        "Extensions of ours: [what we would change](beyond.md).\n",
    ]
    return "\n".join(parts)


def _page(one: Reproduction) -> str:
    return f"{one.study.id.partition('/')[2]}/findings.md"


def _kind(one: Reproduction, finding: Finding) -> str:
    root = one.root(finding)
    return root.kind if root else ""


def _by_entry(about: Paper, mine: Sequence[Reproduction]) -> list[list[str]]:
    """A row for each table or figure with a result; a study that several share is in the first of them."""
    by_id, rows, seen = {one.study.id: one for one in mine}, [], set()
    for entry in about.entries:
        if entry.studies and not any(id in by_id for id in entry.studies):
            rows.append([f"{entry.name}: not run yet", "", ""])
        there = [by_id[id] for id in entry.studies if id in by_id and id not in seen]
        seen |= {one.study.id for one in there}
        findings = [finding for one in there for finding in one.findings]
        if sum(counts(findings)):
            links = ", ".join(f"[{one.study.id.partition('/')[2]}]({_page(one)})" for one in there)
            others = ", ".join(
                f"{n} {verdict}"
                for n, verdict in zip(counts(findings), VERDICTS, strict=True)
                if n and verdict != "reproduced"
            )
            rows.append([f"{entry.name}: {links}", f"{counts(findings)[0]} of {sum(counts(findings))}", others])
    return rows


def _causes(mine: Sequence[Reproduction]) -> str:
    lines = []
    for root, of in sorted(roots_of(mine).items(), key=lambda one: KINDS.index(one[0].kind)):
        if root is not POWER:
            lines.append(f"- *{root.kind}* ({_claims(of)}): {root.what}.")
    few = [(one, finding) for one, finding in roots_of(mine).get(POWER, [])]
    if few:
        lines.append(f"- *{POWER.kind}* ({_claims(few)}): more seeds would decide.")
    return "\n".join(lines) + "\n" if lines else "All held.\n"


def _claims(of: Sequence[tuple[Reproduction, Finding]]) -> str:
    studies = dict.fromkeys(one for one, _ in of)
    links = ", ".join(f"[{one.study.id.partition('/')[2]}]({_page(one)})" for one in studies)
    return f"{len(of)} claim{'s' if len(of) > 1 else ''}: {links}"


def _rerun(one: Rerun) -> str:
    rows = [["what", "theirs", "printed"], ["---", "---:", "---:"]]
    rows += [[name, f"{found:g}", f"{printed:g}"] for name, found, printed in one.found]
    return f"{one.who}. {one.what}:\n\n{table(rows)}"


def _time(counted: Sequence[Reproduction]) -> str:
    """How long the studies took, where it was recorded."""
    known = {one.study.id.partition("/")[2]: one.seconds for one in counted if one.seconds is not None}
    jobs = sum(one.study.jobs({**one.study.settings, **one.settings}) for one in counted)
    text = f"{len(counted)} studies, {jobs:,} jobs. "
    if not known:
        return text + "The time of these runs was not recorded; runs from 2026-11-19 on record it.\n"
    took = ", ".join(f"{name} {seconds / 60:,.0f} min" for name, seconds in known.items())
    return f"{text}Recorded, on a shared core: {took}; not recorded: the other {len(counted) - len(known)}.\n"


def _open(paper: str, mine: Sequence[Reproduction]) -> str:
    there = roots_of(mine)
    lines = [f"- {root.settles}" for root in ROOTS[paper] if root in there and root.settles]
    for one in mine:
        more = one.more()
        if more is not None:
            lines.append(f"- {one.study.id.partition('/')[2]}: about {more[0]} seeds")
    return "\n".join(dict.fromkeys(lines)) + "\n" if lines else "Nothing is open.\n"


def beyond_page(paper: str, outcomes: Sequence[Reproduction]) -> str:
    """beyond.md of a paper: extensions of ours, which no verdict on the paper counts."""
    parts = [
        f"# What we would change: {PAPERS[paper].name}\n",
        "Other settings, samplers and data than the paper's, by the same rules. Nothing here counts for or against it. "
        "[The paper](index.md)\n",
    ]
    for one in outcomes_of(paper, outcomes):
        name = one.study.id.partition("/")[2]
        if one.beyond:
            parts += [f"## [{name}]({_page(one)}): {one.study.title}\n", one.table(one.beyond)]
            why = one.why(one.beyond)
            parts += [f'<details markdown="1">\n<summary>Why</summary>\n\n{why}\n</details>\n'] if why else []
        elif not any(not finding.extension for finding in one.findings):
            parts.append(f"## [{name}]({_page(one)}): {one.study.title}\n")
            parts.append("The whole study is an extension; its page has the verdicts.\n")
    return "\n".join(parts)


MEANING: Mapping[str, str] = {
    "reproduced": "the 95% interval excludes 0 on the claim's side; where a size is printed, it also contains it, "
    "with a "
    "half-width of at most half that size, or lies beyond it",
    "direction only": "it excludes 0 on that side, but lies below the printed size or is too wide to tell it",
    "no difference": "of a claim that A is more than B: the whole interval lies within a margin of 0, one point of "
    "accuracy or a twentieth of a ratio",
    "contradicted": "it excludes the claim or a part of it: it lies on the other side of 0 or, where a size is "
    "printed, "
    "contains 0 but not even half the size",
    "undecided": "none of these; the page says about how many seeds would decide",
    "too few seeds": "one or two: numbers, and no verdict",
    "vacuous": "the claim holds, but so it would for anything",
    "not testable here": "for a reason that is named",
}


def rules_page() -> str:
    """rules.md: how a claim is judged, why it may fail, and when the rules were changed."""
    return "\n".join(
        [
            "# How the papers' claims are judged\n",
            "A claim has one part or several. A part is one number per seed, such as the difference of two policies on "
            "the same seed, and is judged by the t-interval of its mean:\n",
            *(f"- *{verdict}*: {MEANING[verdict]}." for verdict in VERDICTS),
            "\nA claim holds if all its parts hold, each at 95%. It fails if one part fails; so what contradicts one "
            "of n parts must hold at the level 1 - 0.05/n (Bonferroni). Seeds that were added because a claim was "
            "undecided are a second look: what they decide is a little less sure.\n",
            "Every verdict other than *reproduced* has a cause:\n",
            "- *the paper*: its statement or its printed numbers do not follow from its own settings.\n"
            "- *our setting*: the paper does not print a setting that matters, and ours is a guess; it is named.\n"
            "- *stand-in data*: the paper's data cannot be had here.\n"
            "- *too little power*: more seeds are needed.\n",
            "Several claims may have one root cause, which is counted once. `papers/recompute.py`, which shares no "
            "code "
            "with the project, computes intervals and verdicts of the headline claims again; CI runs it.\n",
            "## Changes after results were known\n",
            *(f"- {day}: {text}." for day, text in RULES),
            "\nThresholds and readings of single studies that were changed are dated on their pages.\n",
        ]
    )
