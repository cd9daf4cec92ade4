"""Makes the pages of policies: from their files, and from what is written by hand in docs/policies.

A page by hand holds the rule, and the line `<!-- facts: E3CS -->`. The facts (settings, needs, promises, cost, what is
trusted) come from the class, its docstrings, `fp.traits`, a few played rounds (`probing`) and the results of `make
bench-select`. A policy without a page by hand gets one from the docstring of its file. Lists of policies on other pages
and in the navigation are made here, too.
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
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from policy_table import listing

import fedpick as fp
from fedpick.core.errors import bare_name
from fedpick.policies import TABLE
from fedpick.policies.text import example, find_policy
from fedpick_papers.studies.tournament.table import gap, ranks

__all__ = [
    *("POLICIES", "facts", "navigation", "needs_table", "on_config", "on_files", "on_page_markdown", "page"),
    *("tournament", "trust_table"),
]

ROOT = Path(__file__).parent.parent.parent
_MARK = re.compile(r"<!-- facts: (\w+) -->")
_TRUTH = np.linspace(0.1, 0.9, probing.K)
# Every policy, in its default form ("") and those in which its choice depends on other things.
POLICIES: dict[str, dict[str, Any]] = {
    name: {
        ", ".join(f"{setting}={value!r}" for setting, value in form.items()): example(listed, 4, _TRUTH, **form)
        for form in ({}, *listed.about.forms)
    }
    for name, listed in TABLE.items()
}
_SECTIONS = {"policies": ("baseline", "policy"), "wrappers": ("wrapper",), "oracles": ("oracle",)}
_SAID = {
    "status": "who answered",
    "duration": "durations",
    "loss": "training losses",
    "probe": "losses before the choice (a probe)",
    "norms": "lengths of all updates before the choice",
    "context": "a context for each client",
    "features": "features of the clients' data",
    "labels": "label counts of the clients' data",
    "sizes": "data sizes",
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
    if TABLE[name].about.kind == "wrapper":
        return "; ".join([*parts, "the rest as the policy inside"])
    parts.append("inclusion probabilities are " + ("known" if choice.inclusion is not None else "not known"))
    if choice.weights is not None:
        parts.append("gives aggregation weights" + ("" if choice.normalise else ", used as they are"))
    return "; ".join(parts)


def _cost(name: str) -> str | None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "select" / "select.json").read_text())["rows"]
    about = TABLE[name].about
    called = {bare_name(each) for each in (name, *about.names, *about.variants)}
    labels = [row["policy"] for row in rows if bare_name(re.split(r"[,(]", row["policy"])[0]) in called]
    mine = [row for row in rows if row["policy"] == labels[0]] if labels else []
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
            if getattr(maker, "func", maker) is not TABLE[name] or called not in over["accuracy"]:
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


def _trusts(name: str) -> str:
    """What the docstring of the policy's file says about trust; empty if it says nothing."""
    if TABLE[name].about.kind == "oracle":
        return "nothing that clients report: it knows the truth"
    told = inspect.cleandoc(sys.modules[TABLE[name].__module__].__doc__ or "") + "\n\n"
    found = re.search(r"^Trusts: (.*?)(?:\n\n|\Z)", told, re.M | re.S)
    return _cell(found[1]) if found else ""


def trust_table() -> str:
    """Every policy, and what it trusts."""
    rows = ["| policy | trusts |", "| --- | --- |"]
    for name, listed in TABLE.items():
        rows.append(f"| [`{name}`](policies/{listed.about.names[0]}.md) | {_trusts(name)} |")
    return "\n".join(rows)


def facts(name: str) -> str:
    """What a policy says about itself, in Markdown."""
    maker = getattr(fp, name)
    forms = POLICIES[name]
    said = fp.traits(forms[""])
    texts = (*maker.about.names, *maker.about.variants)
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
    if trusts := _trusts(name):
        rows.append(("trusts", trusts))
    table = ["| | |", "| --- | --- |", *(f"| {what} | {how} |" for what, how in rows)]
    return "## In short\n\n" + "\n".join(table) + "\n\n## Settings\n\n" + _settings(maker) + tournament(name)


def _secure(name: str, form: str) -> str:
    """Whether it works if the server sees only the sum of the updates."""
    policy, seen = POLICIES[name][form], set(_reads(name, form))
    reports = fp.traits(policy).reports if "report" in seen else ()
    of_updates = ("sketch", "update", "output", "embedding")
    if any(each.server or each.name.startswith(of_updates) for each in reports):
        return "no: it needs each client's own update, or something made from it"
    if "labels" in seen:
        more = ", and its loss beside each sum" if seen & {"loss", "probe"} else ""
        return "yes, but each client's label counts are told in the clear, once" + more
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
        if TABLE[name].about.kind == "wrapper":
            continue
        for form in forms:
            label = f"[`{name}`](policies/{TABLE[name].about.names[0]}.md)" + (f" `{form}`" if form else "")
            rows.append(f"| {label} | {_seen(name, form)} | {_secure(name, form)} | {_private(name, form)} |")
    return "\n".join(rows)


def page(name: str) -> str:
    """A page for a policy that has none by hand."""
    told = inspect.cleandoc(sys.modules[TABLE[name].__module__].__doc__ or "")
    paper = TABLE[name].about.paper
    source = f"[{paper.short}]({paper.url}).\n\n" if paper else ""
    return f"# {name}\n\n{source}{html.escape(told, quote=False)}\n\n<!-- facts: {name} -->\n"


def navigation(nav: Any) -> Any:
    """The navigation with the policies' pages where it has `policies: wrapper` and the like."""
    if isinstance(nav, list):
        return [navigation(each) for each in nav]
    if isinstance(nav, dict):
        return {title: navigation(below) for title, below in nav.items()}
    kinds = _SECTIONS.get(nav)
    if kinds is None:
        return nav
    return [f"policies/{each.about.names[0]}.md" for each in TABLE.values() if each.about.kind in kinds]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Called by MkDocs first."""
    config.nav = navigation(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of the site."""
    for name, listed in TABLE.items():
        path = f"policies/{listed.about.names[0]}.md"
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, content=page(name)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs with the text of each page."""
    markdown = _MARK.sub(lambda found: facts(found[1]), markdown)
    for mark, made in _LISTS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown


def _classes() -> str:
    return "\n\n".join(f"::: fedpick.policies.{name}" for name in TABLE)


_LISTS = {
    "<!-- what policies need to see -->": needs_table,
    "<!-- what policies trust -->": trust_table,
    "<!-- all policies -->": lambda: listing("policies/{}.md"),
    "<!-- classes of policies -->": _classes,
}
