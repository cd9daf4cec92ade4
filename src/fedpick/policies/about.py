"""What a policy's file says about the policy: its names in text, its kind and its paper.

A class in `fedpick/policies/` with an attribute `about` is a policy of the library, and listed nowhere else: exports,
text forms, citations, pages, the README's table, benchmarks and tests are made from what is found there. Its one-line
summary is the first line of its docstring; numbers of equations and algorithms in its file are those of its paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["KINDS", "About", "Kind", "Paper"]

Kind = Literal["baseline", "policy", "wrapper", "oracle"]
_TYPES = {"journal": "article", "booktitle": "inproceedings", "institution": "techreport", "note": "misc"}
KINDS: tuple[Kind, ...] = ("baseline", "policy", "wrapper", "oracle")  # in the order of lists


@dataclass(frozen=True)
class Paper:
    """A paper to cite, in the words of BibTeX."""

    key: str
    authors: str
    title: str
    year: int  # 0: none
    venue: str  # one or more BibTeX fields: "journal = {...},\n  doi = {...}"; the first decides the entry's type
    url: str = ""

    @property
    def bibtex(self) -> str:
        """The entry."""
        lines = [f"author = {{{self.authors}}}", f"title = {{{self.title}}}", self.venue]
        lines += [f"year = {{{self.year}}}"] if self.year else []
        return f"@{_TYPES[self.venue.split()[0]]}{{{self.key},\n  " + ",\n  ".join(lines) + "\n}\n"

    @property
    def short(self) -> str:
        """How text refers to it.

        >>> Paper("chen2024", "Chen, Huancheng and {Ben Ami}, Dan", "Title", 2024, "").short
        'Chen & Ben Ami 2024'
        """
        names = [author.split(",")[0].strip("{}") for author in self.authors.split(" and ")]
        return f"{' & '.join(names) if len(names) < 3 else names[0] + ' et al.'} {self.year}"


@dataclass(frozen=True)
class About:
    """What a policy is.

    Args:
        names: in text, the first is that of its page.
        paper: None for a policy of our own.
        kind: "baseline", "policy", "wrapper" (its setting `policy` is another policy) or "oracle".
        variants: further names in text, each of which sets `variant` to itself.
        given: the setting without a default, a number in (0, 1] for each client or a function of fp.Clients; None: the
            policy can be made from `cohort_size` alone (a wrapper from `policy` alone).
        forms: other settings with which the choice depends on other things, for its page.
        measured_up_to: number of clients beyond which benchmarks do not measure it; None: no limit.
    """

    names: tuple[str, ...]
    paper: Paper | None = None
    kind: Kind = "policy"
    variants: tuple[str, ...] = ()
    given: str | None = None
    forms: tuple[Mapping[str, Any], ...] = field(default=())
    measured_up_to: int | None = None
