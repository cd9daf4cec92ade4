"""The table of policies: a policy is added by its file, and is then everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedpick as fp
from fedpick.policies import TABLE
from fedpick.policies.about import KINDS

pytest.importorskip("mkdocs")  # the core alone has no pages to list policies on

ROOT = Path(__file__).parent.parent.parent
TOY = '''"""Toy: the clients with the largest data sets.

Doe & Roe (2031), "Toys".

Trusts: data sizes.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, present
from fedpick.policies.about import About, Paper
from fedpick.core.types import Choice, Clients, Outcome, View

__all__ = ["Toy"]

PAPER = Paper("doe2031toys", "Doe, Jane and Roe, Rick", "Toys", 2031, "journal = {Play}", "https://toys.org")


@dataclass(frozen=True, eq=False)
class Toy(ByValue):
    """The largest data sets first.

    Args:
        cohort_size: m.
        variant: "toy" or "small-toy", the smallest instead.
    """

    cohort_size: int
    variant: str = "toy"

    about = About(("toy", "plaything"), PAPER, variants=("small-toy",), forms=({"variant": "small-toy"},))

    def __post_init__(self) -> None:
        check.cohort_size(self)

    def init(self, clients: Clients) -> None:
        """Nothing is learned."""

    def select(self, state: None, view: View, rng: np.random.Generator) -> Choice:
        """The m largest, or smallest."""
        ids = present(view)
        sizes = view.clients.sizes[ids] * (1.0 if self.variant == "toy" else -1.0)
        return Choice(ids[solvers.top(sizes, self.cohort_size)])

    def observe(self, state: None, view: View, choice: Choice, outcome: Outcome) -> None:
        """Nothing is learned."""
'''
SEEN = """
import json, sys
sys.path[:0] = ["docs/_hooks", "benchmarks", "tests"]
import fedpick as fp
import fedpick.policies
seen = {}
seen["export"] = fp.Toy is fedpick.policies.Toy
seen["listed"] = all("Toy" in names for names in (fp.__all__, dir(fp), fedpick.policies.__all__))
star = {}
exec("from fedpick import *", star)
seen["star"] = star["Toy"] is fp.Toy
seen["text"] = [fp.policy(f"{name}(3)").variant for name in ("toy", "Plaything", "small-toy")]
seen["inside"] = type(fp.policy("over-select(toy)", cohort_size=4).policy).__name__

from fedpick.cli.app import app
from typer.testing import CliRunner
shown = CliRunner().invoke(app, ["policies"])
seen["command"] = "The largest data sets first" in shown.output
checked = CliRunner().invoke(app, ["check", "small-toy"])
seen["check"] = checked.exit_code, "Toy keeps all rules" in checked.output

from fedpick.report import citations
seen["cited"] = citations.cited_policies("guard(small-toy)")
seen["bibtex"] = citations.bibtex(["doe2031toys"])

import policy_table
policy_table.write()
seen["readme"] = [line for line in open("README.md") if "fp.Toy" in line]
seen["stub"] = [line.strip() for line in open("src/fedpick/policies/__init__.pyi") if "Toy" in line]

import policy_pages
from mkdocs.config import load_config
from mkdocs.structure.files import get_files
config = policy_pages.on_config(load_config("mkdocs.yml"))
seen["nav"] = json.dumps(config.nav).count("policies/toy.md")
config.plugins._current_plugin = "policy_pages"  # as while MkDocs runs it
made = policy_pages.on_files(get_files(config), config).get_file_from_path("policies/toy.md")
page = policy_pages.on_page_markdown(made.content_string)
seen["page"] = [part in page for part in ("# Toy", "Doe & Roe 2031", "data sizes", "`small-toy`", "Settings")]
lists = [policy_pages.on_page_markdown(open(f"docs/{name}.md").read()) for name in ("policies", "reference/policies")]
seen["lists"] = "policies/toy.md" in lists[0], "::: fedpick.policies.Toy" in lists[1]
seen["needs"] = policy_pages.needs_table().count("policies/toy.md")

import arena, bench_select, zoo
seen["benches"] = "Toy" in [entry.name for entry in bench_select.ENTRIES], "Toy" in arena.POLICIES
seen["zoo"] = [policy.variant for policy in zoo.zoo(3).values() if isinstance(policy, fp.Toy)]
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a copy of the repository shows of a policy whose file was added to it, and nothing else."""
    copy = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "studies", "figures", "results")
    for name in ("src", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore if name != "src" else None)
    shutil.copytree(ROOT / "benchmarks/results/select", copy / "benchmarks/results/select")
    (copy / "tests").mkdir()
    for name in ("README.md", "mkdocs.yml", "tests/zoo.py"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "src/fedpick/policies/toy.py").write_text(TOY)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "NO_MKDOCS_2_WARNING": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", SEEN], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_policy_that_is_only_a_file_is_exported_and_has_a_text_form(seen):
    assert (seen["export"], seen["listed"], seen["star"]) == (True, True, True)
    assert seen["text"] == ["toy", "toy", "small-toy"]
    assert seen["inside"] == "Toy"


def test_a_policy_that_is_only_a_file_is_known_to_the_commands_and_cited(seen):
    assert seen["command"]
    assert seen["check"] == [0, True]
    assert seen["cited"] == ["doe2031toys"]
    assert seen["bibtex"].startswith("@article{doe2031toys,\n  author = {Doe, Jane and Roe, Rick},\n")


def test_a_policy_that_is_only_a_file_has_a_page_and_stands_in_all_lists(seen):
    assert seen["readme"] == [
        "| `fp.Toy` | The largest data sets first | `toy`, `plaything`, `small-toy` | "
        "[Doe & Roe 2031](https://toys.org) |\n"
    ]
    assert seen["stub"] == ["from fedpick.policies.toy import Toy as Toy", '"Toy",']
    assert seen["nav"] == 1
    assert all(seen["page"]), seen["page"]
    assert (seen["lists"], seen["needs"]) == ([True, True], 2)


def test_a_policy_that_is_only_a_file_is_measured_and_tested(seen):
    assert seen["benches"] == [True, True]
    assert seen["zoo"] == ["toy", "small-toy"]


def test_the_table_is_by_kind_and_year_and_every_name_is_one_policy_s():
    order = [(KINDS.index(a.kind), a.paper.year if a.paper else 9999) for a in (each.about for each in TABLE.values())]
    assert order == sorted(order)
    names = [name for each in TABLE.values() for name in (*each.about.names, *each.about.variants)]
    assert sorted(names) == sorted(fp.policy_names())
    assert "oort_testing" not in str(TABLE)


def test_kinds_are_what_the_policies_are():
    assert {name for name, each in TABLE.items() if each.about.kind == "wrapper"} == {
        name for name, each in TABLE.items() if "policy" in each.__dataclass_fields__
    }
    assert all(each.about.kind == "oracle" for each in TABLE.values() if getattr(each, "truths", ()))
