"""Writes what the repository keeps of the table of policies: the README's list, and the names for type checkers.

`make policies` runs it; a test fails where either is not what the policies' files say.
"""

import inspect
import re
from pathlib import Path
from typing import Any

from fedpick.policies import TABLE

__all__ = ["ROOT", "listing", "readme", "stub", "summary", "write"]

ROOT = Path(__file__).parent.parent.parent
_STUB = ROOT / "src" / "fedpick" / "policies" / "__init__.pyi"
_LIST = re.compile(r"(<!-- policies:begin[^>]*-->\n\n).*?(\n\n<!-- policies:end -->)", re.S)


def summary(policy: type[Any]) -> str:
    """The first line of the class's docstring."""
    return (inspect.getdoc(policy) or "").splitlines()[0].removesuffix(".").replace("|", "\\|")


def listing(link: str | None = None) -> str:
    """All policies as a table in Markdown; `link` makes a page's address from its name, None: no links to pages."""
    rows = ["| policy | what it does | in text | paper |", "| --- | --- | --- | --- |"]
    for name, policy in TABLE.items():
        about = policy.about
        page = f"`fp.{name}`" if link is None else f"[`fp.{name}`]({link.format(about.names[0])})"
        texts = ", ".join(f"`{text}`" for text in (*about.names, *about.variants))
        paper = f"[{about.paper.short}]({about.paper.url})" if about.paper else "our own"
        rows.append(f"| {page} | {summary(policy)} | {texts} | {paper} |")
    return "\n".join(rows)


def readme(text: str) -> str:
    """The README with its list of policies as it is now."""
    return _LIST.sub(lambda found: found[1] + listing() + found[2], text)


def stub() -> str:
    """What type checkers and editors see of `fedpick.policies`."""
    where = sorted((policy.__module__, name) for name, policy in TABLE.items())
    return "\n".join(
        [
            '"""Written by `make policies`: what `fedpick.policies` finds when it is imported."""',
            "",
            "from typing import Any",
            "",
            *(f"from {module} import {name} as {name}" for module, name in where),
            "",
            "TABLE: dict[str, type[Any]]",
            "__all__ = [",
            *(f'    "{name}",' for name in sorted(TABLE, key=lambda name: (not name.isupper(), name))),
            "]",
            "",
        ]
    )


def write() -> None:
    """Write both."""
    _STUB.write_text(stub())
    page = ROOT / "README.md"
    page.write_text(readme(page.read_text()))


if __name__ == "__main__":
    write()
