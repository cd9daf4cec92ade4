"""What a study is: settings as data, jobs identified by their items, and a small score function."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpick.core.errors import require, unknown_name
from fedpick_papers.studies._causes import POWER, Root, root_of
from fedpick_papers.studies._stats import ALONE
from fedpick_papers.studies._verdicts import FEWEST, TOO_MANY, Judged, Limit, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Finding",
    "Found",
    "Item",
    "Job",
    "Measurement",
    "Reproduction",
    "Result",
    "Settings",
    "Study",
    "beside",
    "canonical",
    "seeds_of",
]

NUMBERS = "0.3"  # the minor version of fedpick since which equal jobs give equal numbers
# Studies whose numbers are still those of 0.1: they draw no durations and no failures, and no client twice in a round.
SAME_SINCE_0_1 = (
    *("bsfl/fig4", "bsfl/theorem2", "divfl/rounds", "fedau/participation", "fedcor/rounds", "fedgs/built-cifar10"),
    *("fedgs/built-fashion-mnist", "fedgs/built-synthetic", "fedgs/fig3", "fedgs/table3", "optimal/bits"),
    *("power-of-choice/fig1", "power-of-choice/quadratic", "power-of-choice/quadratic-centred"),
    "power-of-choice/theorem31",
)
CHEAP = 4  # factor: a study proposes at most this many times its number of seeds

Settings = Mapping[str, Any]
Item = Mapping[str, Any]
Measurement = dict[str, Any]  # arrays and plain data under names; see `_storage`
Result = dict[str, Any]
Job = Callable[[Item, Path], Measurement]


def canonical(item: Item) -> str:
    """An item as a text that does not depend on the order of its fields.

    >>> canonical({"seed": 0, "policy": "uniform"}) == canonical({"policy": "uniform", "seed": 0})
    True
    """
    return json.dumps(item, sort_keys=True, separators=(",", ":"))


def seeds_of(settings: Settings) -> range:
    """The seeds of a study: `seeds` of them, from `seed0` on.

    >>> list(seeds_of({"seeds": 3, "seed0": 100}))
    [100, 101, 102]
    """
    first = int(settings.get("seed0", 0))
    return range(first, first + int(settings["seeds"]))


def _rounds(item: Item) -> float:
    return float(item.get("rounds", 1))


class Found:
    """The measurements of a study, by item."""

    def __init__(self, pairs: Iterable[tuple[Item, Measurement]]) -> None:
        self._by = {canonical(item): measurement for item, measurement in pairs}

    def __getitem__(self, item: Item) -> Measurement:
        return self._by[canonical(item)]

    def __len__(self) -> int:
        return len(self._by)


@dataclass(frozen=True)
class Finding:
    """A claim of a paper and our result.

    Args:
        claim: in words.
        paper: what the paper prints, or that it prints nothing.
        ours: our figure with its 95% interval over seeds.
        judged: the verdict, and why; see `_verdicts`.
        note: details, and our choices where the paper gives none.
        extension: whether it is an extension of ours, which is shown but is no claim of the paper.
    """

    claim: str
    paper: str
    ours: str
    judged: Judged
    note: str = ""
    extension: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict alone."""
        return self.judged.verdict

    @property
    def reason(self) -> str:
        """Why the verdict is not "reproduced", and how many seeds would decide; "" if there is nothing to say."""
        return self._because(len(self.judged.reasons))

    @property
    def short(self) -> str:
        """The reason with the worst of the parts alone."""
        left = len(self.judged.reasons) - 1
        more = f"; {left} more {'is' if left == 1 else 'are'} in the notes" if left > 0 else ""
        return self._because(1) + more

    def _because(self, most: int) -> str:
        seeds, parts = self.judged.seeds, []
        if seeds is not None:
            many = f"More than {TOO_MANY:,} seeds" if seeds > TOO_MANY else f"About {seeds:,} seeds"
            parts.append(f"{many} would decide")
        return ". ".join([*parts, *filter(None, [self.judged.parts]), *self.judged.reasons[:most]])


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment of a paper.

    Args:
        id: "paper/figure".
        title: one line.
        paper: citation.
        settings: all settings, as plain data; `seeds` is the number of seeds, `seed0` (default 0) the first.
        quick: the settings that `--quick` changes: rounds, seeds and how often is evaluated; of images, the network.
        items: settings -> one item (plain data) per job. An item contains everything that the measurement depends on: a
            finished job is found by it.
        job: (item, folder of the job) -> measurement; it runs in other processes. `_runs.Played` is a run of a policy;
            any function at the top level of a module is possible.
        gather: (settings, measurements) -> the result, small plain data.
        score: result -> findings.
        plot: result -> the paper's figure.
        limits: the thresholds that the score function uses, each with a reason; fixed before the full run.
        about: a paragraph for the page: data, model, rounds, and what is chosen by us.
        body: result -> further tables of the page, as Markdown.
        version: of the job; increased when it would measure something else for the same item.
        kept_with: id of a study whose jobs are kept together with this one's, so that none is done twice; "": this one.
        trains: whether the job trains models, so that its measurement depends on the kind of device.
        cost: item -> relative duration of the job, for the estimate of the time left.
    """

    id: str
    title: str
    paper: str
    settings: Settings
    quick: Settings
    items: Callable[[Settings], Sequence[Item]]
    job: Job
    gather: Callable[[Settings, Found], Result]
    score: Callable[[Result], list[Finding]]
    plot: Callable[[Result], "Figure"]
    limits: Mapping[str, Limit] = field(default_factory=dict)
    about: str = ""
    body: Callable[[Result], str] | None = None
    version: int = 1
    kept_with: str = ""
    trains: bool = False
    cost: Callable[[Item], float] = _rounds

    def choose(self, quick: bool = False, **changes: Any) -> dict[str, Any]:
        """The settings, in full or quick, with these changes."""
        settings = {**self.settings, "seed0": 0}
        for name in changes:
            if name not in settings:
                raise unknown_name(f"setting of {self.id}", name, list(settings))
        chosen = {**settings, **(self.quick if quick else {}), **changes}
        for name, least in (("seeds", 1), ("seed0", 0)):
            whole = isinstance(chosen[name], int) and not isinstance(chosen[name], bool)
            require(whole and chosen[name] >= least, f"{self.id}: {name}", chosen[name], f"a whole number >= {least}")
        return chosen

    @property
    def numbers(self) -> str:
        """The minor version of fedpick since which equal jobs of this study give equal numbers."""
        return "0.1" if self.id in SAME_SINCE_0_1 else NUMBERS

    def jobs(self, settings: Settings) -> int:
        """Number of jobs with these settings."""
        return len({canonical(item) for item in self.items(settings)})


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A study that was run.

    Args:
        study: what was run.
        settings: with which.
        result: what was gathered.
        findings: of the result.
        limits_first: whether the thresholds were fixed before the run.
        numbers: `Study.numbers` when it was run; "": as now.
        seconds: that the last run took; None: not recorded.
    """

    study: Study
    settings: dict[str, Any]
    result: Result
    findings: list[Finding]
    limits_first: bool = True
    numbers: str = ""
    seconds: float | None = None

    @property
    def earlier(self) -> str:
        """Of which draws and rules the result is, if they are not today's; else ""."""
        return f"before fedpick {self.study.numbers}" if self.numbers not in ("", self.study.numbers) else ""

    @property
    def shown(self) -> list[Finding]:
        """What its page shows: the paper's claims; if it has none, extensions of ours."""
        return [one for one in self.findings if not one.extension] or self.findings

    @property
    def beyond(self) -> list[Finding]:
        """Extensions of ours that its page does not show."""
        return [one for one in self.findings if one.extension] if self.shown is not self.findings else []

    def root(self, finding: Finding) -> Root | None:
        """The root cause of a verdict on a claim of the paper."""
        return None if finding.extension else root_of(self.study.id, finding.claim, finding.verdict)

    def about(self) -> str:
        """What was done: the paragraph of the study, and its numbers of rounds and seeds."""
        counted = [
            f"{self.settings[name]:,} {name if self.settings[name] != 1 else name[:-1]}"
            for name in ("rounds", "seeds")
            if isinstance(self.settings.get(name), int)
        ]
        return ". ".join(part for part in (self.study.about, ", ".join(counted)) if part)

    def table(self, findings: Sequence[Finding] | None = None) -> str:
        """Findings as a Markdown table; by default those of the page."""
        shown = self.shown if findings is None else findings
        rows = [[f.claim, f.paper, f.ours, f"**{f.verdict}**{self._kind(f)}"] for f in shown]
        head = ["claim", "paper", "ours (mean and 95% interval over seeds)", "verdict"]
        if self.settings.get("seeds") == 1:
            head[2] = "ours (one seed, so no interval)"
            rows = [[self._once(cell) for cell in row] for row in rows]
        elif self.settings.get("seeds") == 2:
            head[2] = "ours (two seeds, so no intervals)"
        return table([head, ["---"] * len(head), *rows]) if rows else ""

    def _kind(self, finding: Finding) -> str:
        root = self.root(finding)
        return f" ({root.kind})" if root and root != POWER else ""

    def why(self, findings: Sequence[Finding] | None = None) -> str:
        """Why claims are not reproduced, as a Markdown list; by default those of the page."""
        lines = []
        for one in self.shown if findings is None else findings:
            root = self.root(one)
            cause = f" Cause, {root.kind}: {root.what}." if root and root != POWER else ""
            if one.reason:
                lines.append(f"- *{one.verdict}*: {one.claim}. {self._once(one.short)}.{cause}\n")
        return "".join(lines)

    def _once(self, text: str) -> str:
        """The text without "(one seed)" after each number, if the study has one seed."""
        return text.replace(ALONE, "") if self.settings.get("seeds") == 1 else text

    def more(self) -> tuple[int, str] | None:
        """The number of seeds that would decide undecided claims, with a text; None if no affordable number would.

        To add seeds because a claim is undecided is to look twice: what is decided then is a little less sure than 95%.
        """
        seeds = self.settings.get("seeds", 0)
        wanted = [f.judged.seeds or FEWEST for f in self.findings if f.verdict in ("undecided", "too few seeds")]
        near = [each for each in wanted if seeds < each <= CHEAP * seeds]
        if wanted and seeds < FEWEST:
            return FEWEST, f"{FEWEST} seeds are the fewest that can decide a claim"
        claims = "one more claim" if len(near) == 1 else f"{len(near)} more claims"
        return (max(near), f"{max(near)} seeds would decide about {claims}") if near else None

    def again(self) -> str:
        """The command that gives this result, and what more seeds would decide, as Markdown."""
        seeds, more = self.settings.get("seeds"), self.more()
        given = f" --seeds {seeds}" if seeds not in (None, self.study.settings.get("seeds")) else ""
        text = f"Again: `fedpick reproduce {self.study.id}{given}`."
        return text if more is None else f"{text} `--seeds {more[0]}` adds to these runs: {more[1]}."

    def body(self) -> str:
        """Further tables."""
        return self._once(self.study.body(self.result)) if self.study.body else ""

    def notes(self) -> str:
        """The findings' notes and the thresholds, as Markdown lists."""
        by_note: dict[str, list[str]] = {}
        for finding in self.shown:
            if finding.note:
                by_note.setdefault(finding.note, []).append(finding.claim)
        notes = [f"- {'; '.join(claims)}: {self._once(note)}." for note, claims in by_note.items()]
        parts = [f"- {f.claim}: {self._once(f.reason)}." for f in self.shown if f.reason != f.short]
        limits = [f"- {name}: {limit.value:g} ({limit.why}){limit.dated}" for name, limit in self.study.limits.items()]
        first = self.limits_first and not any(limit.changed for limit in self.study.limits.values())
        when = "fixed before the run" if first else "some of them set or changed after the run"
        lists = [("Notes", notes), ("All parts that do not hold", parts), (f"Thresholds, {when}", limits)]
        return "\n".join(f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in lists if lines)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table.

    >>> print(table([["a", "b|c"], ["---", "---"]]), end="")
    | a | b\\|c |
    | --- | --- |
    """
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def beside(head: Sequence[str], ours: Mapping[str, Sequence[str]], paper: Mapping[str, Sequence[str]]) -> str:
    """Our numbers with the printed ones in brackets, as a Markdown table with a heading.

    Args:
        head: of the first column and of the others.
        ours: a row for each name, as texts.
        paper: the same in print; rows may be missing.

    >>> print(beside(["scheme", "45%"], {"Random": ["275"]}, {"Random": ["533"]}), end="")
    ## Beside the paper's
    <BLANKLINE>
    Ours, with the printed numbers in brackets.
    <BLANKLINE>
    | scheme | 45% |
    | --- | ---: |
    | Random | 275 (533) |
    """
    rows = [
        [name, *(f"{a} ({b})" for a, b in zip(row, paper[name], strict=True))] if name in paper else [name, *row]
        for name, row in ours.items()
    ]
    lines = table([head, ["---", *["---:"] * (len(head) - 1)], *rows])
    return f"## Beside the paper's\n\nOurs, with the printed numbers in brackets.\n\n{lines}"
