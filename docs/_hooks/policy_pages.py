"""Adds to the page of each policy what the policy itself says: settings, needs, promises, cost, what it trusts.

A page holds the rule, written by hand, and the line `<!-- facts: E3CS -->`. The facts come from the class, its
docstrings, `fp.traits`, a few played rounds (`probing`) and the results of `make bench-select`.
"""

import dataclasses
import functools
import html
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import probing

import fedpick as fp
from fedpick.policies.text import find_policy, policy_names
from fedpick_papers.studies.tournament.table import gap, ranks

__all__ = ["POLICIES", "facts", "needs_table", "on_page_markdown", "tournament"]

ROOT = Path(__file__).parent.parent.parent
_MARK = re.compile(r"<!-- facts: (\w+) -->")
_TABLE = "<!-- what policies need to see -->"
_TRUTH = np.linspace(0.1, 0.9, probing.K)
# Every policy, in the order of the list; those that need more than a cohort size are given it.
POLICIES: dict[str, dict[str, Any]] = {
    "Uniform": {"": fp.Uniform(4)},
    "SizeWeighted": {"": fp.SizeWeighted(4), "replace=False": fp.SizeWeighted(4, replace=False)},
    "FixedProbabilities": {"": fp.FixedProbabilities(4, p=_TRUTH)},
    "FedCS": {"": fp.FedCS(4, success=_TRUTH)},
    "PowerOfChoice": {
        "": fp.PowerOfChoice(4, candidates=8),
        "variant='rpow-d'": fp.PowerOfChoice(4, candidates=8, variant="rpow-d"),
    },
    "ActiveFL": {"": fp.ActiveFL(4)},
    "E3CS": {"": fp.E3CS(4, quota=0.5)},
    "CSUCB": {"": fp.CSUCB(4)},
    "BSFL": {"": fp.BSFL(4)},
    "Genie": {"": fp.Genie(4, speed=_TRUTH)},
    "RBCSF": {"": fp.RBCSF(4)},
    "FedGS": {"": fp.FedGS(4), "graph='embedding'": fp.FedGS(4, graph="embedding")},
    "Oort": {"": fp.Oort(4)},
    "Clustered": {"": fp.Clustered(4), "by='updates'": fp.Clustered(4, by="updates")},
    "DivFL": {"": fp.DivFL(4)},
    "TiFL": {"": fp.TiFL(4)},
    "F3AST": {"": fp.F3AST(4)},
    "REFL": {"": fp.REFL(4)},
    "OptimalSampling": {"": fp.OptimalSampling(4)},
    "HiCS": {"": fp.HiCS(4)},
    "FedCor": {"": fp.FedCor(4)},
    "GreedyFed": {"": fp.GreedyFed(4)},
    "SFedAvg": {"": fp.SFedAvg(4)},
    "OverSelect": {"": fp.OverSelect(fp.Uniform(4), 1.3)},
    "MinSeparation": {"": fp.MinSeparation(fp.Uniform(4), 3)},
    "Guard": {"": fp.Guard(fp.Uniform(4))},
}
_WRAPPERS = ("OverSelect", "MinSeparation", "Guard")
_SAID = {
    "status": "who answered",
    "duration": "durations",
    "loss": "training losses",
    "probe": "losses before the choice (a probe)",
    "norms": "lengths of all updates before the choice",
    "context": "a context for each client",
    "features": "features of the clients' data",
    "sizes": "data sizes",
}
# Names of the benchmark's rows, where it has one.
_MEASURED = {
    "Uniform": "Uniform",
    "SizeWeighted": "SizeWeighted",
    "FixedProbabilities": "FixedProbabilities",
    "FedCS": "FedCS, success",
    "PowerOfChoice": "pow-d",
    "ActiveFL": "ActiveFL",
    "E3CS": "E3CS, quota 0.5",
    "CSUCB": "CS-UCB",
    "BSFL": "BSFL",
    "Genie": "Genie",
    "RBCSF": "RBCS-F",
    "FedGS": "FedGS",
}


@functools.cache
def _reads(name: str, form: str) -> list[str]:
    return probing.reads(POLICIES[name][form])


def _seen(name: str, form: str) -> str:
    """What its choices depend on, in words."""
    policy = POLICIES[name][form]
    reports = " and ".join(
        f"`{each.name}`"
        + (" (computed by the server)" if each.server else "")
        + (f" (if nobody gives it: {each.instead})" if each.instead else "")
        for each in fp.traits(policy).reports
    )
    said = [f"reports: {reports}" if each == "report" else _SAID[each] for each in _reads(name, form)]
    return ", ".join(said) or "nothing but who is available"


def _cell(text: str) -> str:
    return " ".join(html.escape(text, quote=False).replace("|", "\\|").split())


def _arguments(maker: type) -> dict[str, str]:
    """What the docstring says about each setting."""
    block = re.search(r"Args:\n((?: {4}.*\n|\n)*)", inspect.cleandoc(maker.__doc__ or "") + "\n\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", block[1], re.M) if block else []
    return {name: " ".join(text.split()) for name, text in entries}


def _settings(maker: type) -> str:
    told = _arguments(maker)
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for entry in dataclasses.fields(maker):
        default = "" if entry.default is dataclasses.MISSING else f"`{entry.default!r}`"
        meaning = told.get(entry.name, "number of clients per round" if entry.name == "cohort_size" else "")
        rows.append(f"| `{entry.name}` | {default} | {_cell(meaning)} |")
    return "\n".join(rows)


def _promises(name: str, policy: Any) -> str:
    said, choice = fp.traits(policy), probing.play(policy)[-1]
    size = "exactly `min(cohort_size, available)` clients" if said.fixed_size else "a number of clients that may differ"
    if said.asks != said.cohort_size:
        size = f"`{said.asks}` clients where `{said.cohort_size}` answers are kept (with factor 1.3)"
    parts = [f"chooses {size}", "a client can be drawn twice" if said.replace else "no client twice"]
    if name in _WRAPPERS:
        return "; ".join([*parts, "the rest as the policy inside"])
    parts.append("inclusion probabilities are " + ("known" if choice.inclusion is not None else "not known"))
    if choice.weights is not None:
        parts.append("gives aggregation weights" + ("" if choice.normalise else ", used as they are"))
    return "; ".join(parts)


def _cost(name: str) -> str | None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "select" / "select.json").read_text())["rows"]
    mine = [row for row in rows if row["policy"] == _MEASURED.get(name)]
    if not mine:
        return None
    row = max(mine, key=lambda each: each["clients"])
    return f"{row['round_ms']:.1f} ms for a round with {row['cohort']:,} of {row['clients']:,} clients"


def tournament(name: str, stored: Path = ROOT / "docs" / "studies" / "tournament") -> str:
    """How the policy did in the stored tournaments; empty if it was in none."""
    told, rows = "", []
    for file in sorted(stored.glob("*/result.json")):
        result = json.loads(file.read_text())
        first, data = result["reference"], file.parent.name
        over = {metric: ranks(result, metric) for metric in ("accuracy", "hours", "worst")}
        for called, text in result["policies"].items():
            maker = find_policy(text.split("(")[0])
            if getattr(maker, "func", maker).__name__ != name or called not in over["accuracy"]:
                continue
            gaps = {world: gap(result, world, called) for world in result["worlds"] if called != first}
            cells = [
                f"[{data}](../studies/tournament/{data}/findings.md)"
                + (f" ({len(result['worlds'])} worlds, {len(over['accuracy'])} policies)" if data == "cifar10" else ""),
                f"`{called}`",
                ", ".join(world for world, each in gaps.items() if each.low > 0) or ("none" if gaps else "-"),
                ", ".join(world for world, each in gaps.items() if each.high < 0) or ("none" if gaps else "-"),
                *(f"{by[called].mean:.1f}" for by in over.values()),
            ]
            rows.append(f"| {' | '.join(cells)} |")
            told = (
                f"In the tournament all policies had the same budget of messages, in {len(result['worlds'])} worlds. "
                f"Higher or lower: final accuracy against `{first}`, beyond chance for all policies together. Ranks "
                f"are means over the worlds among {len(over['accuracy'])} policies; 1 is best."
            )
    if not rows:
        return ""
    head = (
        "| data | as | higher in | lower in | rank by accuracy | by hours to a level | by the worst tenth of clients |"
    )
    return "\n".join(["\n\n## When it won and lost\n", told, "", head, "| --- " * 4 + "| ---: " * 3 + "|", *rows])


def facts(name: str) -> str:
    """What a policy says about itself, in Markdown."""
    maker = getattr(fp, name)
    forms = POLICIES[name]
    said = fp.traits(forms[""])
    texts = [text for text, each in policy_names().items() if getattr(each, "func", each) is maker]
    trusts = re.search(
        r"^Trusts: (.*?)(?:\n\n|\Z)",
        inspect.cleandoc(sys.modules[maker.__module__].__doc__ or "") + "\n\n",
        re.M | re.S,
    )
    rows = [
        ("in Python", f"[`fp.{name}`](../reference/policies.md#fedpick.policies.{name})"),
        ("in text", ", ".join(f"`{text}`" for text in texts)),
        *((f"its choice depends on{', `' + form + '`' if form else ''}", _seen(name, form)) for form in forms),
        ("promises", _promises(name, forms[""])),
    ]
    if said.oracle:
        rows.append(("oracle", "yes: it knows what no server knows, and is a bound to compare with"))
    if _cost(name):
        rows.append(("cost", f"{_cost(name)} ([all sizes](../benchmarks.md))"))
    if trusts:
        rows.append(("trusts", _cell(trusts[1])))
    table = ["| | |", "| --- | --- |", *(f"| {what} | {how} |" for what, how in rows)]
    return "## In short\n\n" + "\n".join(table) + "\n\n## Settings\n\n" + _settings(maker) + tournament(name)


def _secure(name: str, form: str) -> str:
    """Whether it works if the server sees only the sum of the updates."""
    policy, seen = POLICIES[name][form], set(_reads(name, form))
    reports = fp.traits(policy).reports if "report" in seen else ()
    of_updates = ("sketch", "update", "output", "embedding")
    if any(each.server or each.name.startswith(of_updates) for each in reports):
        return "no: it needs each client's own update, or something made from it"
    if "norms" in seen:
        return "with `steps=`: sums are enough (AOCS); else it needs each length"
    if seen & {"loss", "probe"} or reports:
        return "yes, but each client's own loss or score is sent in the clear beside the sum"
    if "duration" in seen:
        return "yes: the server measures times itself"
    return "yes"


def _private(name: str, form: str) -> str:
    seen = set(_reads(name, form))
    if any(each.server for each in fp.traits(POLICIES[name][form]).reports):
        return "nothing; the server values the update it gets"
    if seen <= {"status", "duration", "context"}:
        return "nothing about the data is told"
    if seen <= {"status", "duration", "context", "sizes"}:
        return "only the data size is told"
    return "what is told is computed from the data and needs its own noise"


def needs_table() -> str:
    """Every policy, what it needs to see of one client, and what that means."""
    rows = [
        "| policy | its choice depends on | under secure aggregation | what it tells about a client's data |",
        "| --- | --- | --- | --- |",
    ]
    for name, forms in POLICIES.items():
        if name in _WRAPPERS:
            continue
        for form in forms:
            label = f"[`{name}`](policies/{_slug(name)}.md)" + (f" `{form}`" if form else "")
            rows.append(f"| {label} | {_seen(name, form)} | {_secure(name, form)} | {_private(name, form)} |")
    return "\n".join(rows)


_ONE_WORD = ("BSFL", "DivFL", "E3CS", "F3AST", "FedCor", "FedCS", "FedGS", "GreedyFed", "HiCS", "REFL", "TiFL")


def _slug(name: str) -> str:
    """The file of a policy's page."""
    special = {
        "ActiveFL": "active-fl",
        "CSUCB": "cs-ucb",
        "OptimalSampling": "optimal",
        "RBCSF": "rbcs-f",
        "SFedAvg": "s-fedavg",
        **{each: each.lower() for each in _ONE_WORD},
    }
    return special.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs with the text of each page."""
    markdown = _MARK.sub(lambda found: facts(found[1]), markdown)
    return markdown.replace(_TABLE, needs_table()) if _TABLE in markdown else markdown
