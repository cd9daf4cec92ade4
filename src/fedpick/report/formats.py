"""Write a table in several formats: for a terminal, a web page, a paper, a script."""

import csv
import html
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpick.core.errors import printable, unknown_name
from fedpick.report.layout import Cell, Sheet, lay

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["FORMATS", "Table", "format_table", "latex_text"]

WIDTH = 80  # of a table as plain text
FORMATS = ("rich", "text", "markdown", "csv", "json", "latex", "methods", "bibtex")


@dataclass(frozen=True)
class Table:
    """A table that a Rich console fits to its width, `print` shows as 80 columns of text, and a notebook as HTML."""

    sheet: Sheet

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        for line in lay(self.sheet, max(options.max_width, 20)):
            yield Text.assemble(*line, no_wrap=True, overflow="ignore")

    def __str__(self) -> str:
        return _text(self.sheet).rstrip("\n")

    def _repr_html_(self) -> str:
        return _html(self.sheet)


def _text(sheet: Sheet) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lay(sheet, WIDTH)) + "\n"


def _markdown(sheet: Sheet) -> str:
    def safe(text: str) -> str:
        return "".join("\\" + char if char in "\\|*_`<[" else char for char in text)

    def cell(cell: Cell) -> str:
        below = f"**{cell.below}**" if cell.clear else cell.below
        return cell.main.replace("*", "\\*") + (f" ({below})" if below else "")

    lines = [
        "| " + " | ".join([*sheet.names, *sheet.heads]) + " |",
        "| " + " | ".join([*["---"] * len(sheet.names), *["---:"] * len(sheet.heads)]) + " |",
        *("| " + " | ".join([*map(safe, row.names), *map(cell, row.cells)]) + " |" for row in sheet.rows),
    ]
    notes = [f"- {safe(note)}".replace("differences are", "in brackets are differences") for note in sheet.notes]
    said = [each for sentence in sheet.verdict for each in ("", safe(sentence))]
    return "\n".join([safe(sheet.title), "", *lines, *said, *(["", *notes] if notes else [])]) + "\n"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}
_LATEX |= {char: "\\" + char for char in "&%$#_{}"} | {"<": r"\textless{}", ">": r"\textgreater{}", "·": r"$\cdot$"}
_LATEX |= {"−": "$-$", "…": r"\ldots{}", '"': r"{\char34}", "|": r"\textbar{}"}


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is, without control characters.

    >>> print(latex_text("e3cs_1 (50%)"))
    e3cs\\_1 (50\\%)
    """
    return "".join(_LATEX.get(char, char) for char in printable(text))


def _latex(sheet: Sheet) -> str:
    safe = latex_text

    def number(text: str) -> str:
        return f"${text[0]}${safe(text[1:])}" if text[:1] in ("+", "-") else safe(text)

    lines = [f"% {sheet.title}", r"% needs \usepackage{booktabs}"]
    lines += [r"\begin{tabular}{" + "l" * len(sheet.names) + "r" * len(sheet.heads) + "}", r"\toprule"]
    lines += [" & ".join(map(safe, [*sheet.names, *sheet.heads])) + r" \\", r"\midrule"]
    for i, row in enumerate(sheet.rows):
        if i and any(cell.below for each in sheet.rows for cell in each.cells):
            lines.append(r"\addlinespace")
        lines.append(" & ".join([*map(safe, row.names), *(number(cell.main) for cell in row.cells)]) + r" \\")
        if any(cell.below for cell in row.cells):
            below = [rf"\textbf{{{number(c.below)}}}" if c.clear else number(c.below) for c in row.cells]
            lines.append(" & ".join([*[""] * len(row.names), *below]).lstrip() + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in (*sheet.verdict, *sheet.notes))]
    return "\n".join(lines) + "\n"


def _html(sheet: Sheet) -> str:
    def cell(cell: Cell) -> str:
        below = html.escape(cell.below)
        below = f"<strong>{below} *</strong>" if cell.clear else f"<small>{below}</small>" if below else ""
        return f'<td style="text-align: right">{html.escape(cell.main)}{"<br>" if below else ""}{below}</td>'

    heads = "".join(f"<th>{html.escape(head)}</th>" for head in [*sheet.names, *sheet.heads])
    rows = "".join(
        "<tr>"
        + "".join(f'<td style="text-align: left">{html.escape(name)}</td>' for name in row.names)
        + "".join(map(cell, row.cells))
        + "</tr>"
        for row in sheet.rows
    )
    said = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sheet.verdict)
    notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in sheet.notes)
    title = f"<caption>{html.escape(sheet.title)}</caption>"
    return f"<div><table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{said}{notes}</div>"


_CSV = (  # columns before the score
    *("policy", "world", "cohort_size", "pace", "data", "train", "engine", "code", "oracle", "given", "num_clients"),
    *("rounds", "target", "target_metric"),
)


def _cell(value: Any) -> Any:
    """A name for a CSV file: an apostrophe before what a spreadsheet would compute, and no control characters."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value)


def _ratios(ratios: list[dict[str, Any]], key: str) -> Any:
    """Ratios to another pace; several are separated by semicolons."""
    texts = [_to(each["to"]) if key == "to" else each[key] for each in ratios]
    return texts[0] if len(texts) == 1 else "; ".join(map(str, texts))


def _to(other: dict[str, str]) -> Any:
    return _cell(f"{other['policy']}, {other['pace']}")


def _csv(data: dict[str, Any]) -> str:
    """One line per row of the table and score, with all digits."""
    rows = []
    for row in data["rows"]:
        for name, score in row["scores"].items():
            gap, ratios = score.get("difference", {}), score.get("ratios", [])
            rows.append(
                {
                    **{key: _cell(row[key]) for key in _CSV},
                    "score": _cell(name),
                    **{key: score[key] for key in ("mean", "low", "high", "n")},
                    "reached": score.get("reached"),
                    **{f"difference_{key}": _cell(gap.get(key)) for key in ("to", "mean", "low", "high", "n", "clear")},
                    **{f"ratio_{key}": _ratios(ratios, key) for key in ("to", "mean", "low", "high", "n", "clear")},
                    "seeds": " ".join(map(str, row["seeds"])),
                    "values": " ".join("nan" if value is None else repr(value) for value in score["values"]),
                }
            )
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def format_table(format: str, sheet: Callable[[], Sheet], data: Callable[[], dict[str, Any]]) -> Any:
    """The table in a format: text, or for "rich" an object that a Rich console prints."""
    if format not in FORMATS:
        raise unknown_name("format", format, list(FORMATS))
    if format == "json":
        return json.dumps(data(), indent=1) + "\n"
    if format == "csv":
        return _csv(data())
    return {"rich": Table, "text": _text, "markdown": _markdown, "latex": _latex}[format](sheet())
