"""Lay out a table as lines of text that fit a terminal: a policy, its numbers and its differences are in one line."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["SAME", "Cell", "Line", "Row", "Sheet", "fold", "lay"]

Line = list[tuple[str, str]]  # pieces of text with their styles: "", "bold", "dim"
GAP = 2  # blanks between columns
MOST_LINES = 3  # of a heading
LONGER = 1.6  # times as many lines as with names above the numbers are worth having them beside
SAME = "same"  # a difference of 0; a column of such differences is left out


@dataclass(frozen=True)
class Cell:
    """A number as text, its difference (in some formats below it), and whether the difference's interval excludes 0."""

    main: str
    below: str = ""
    clear: bool = False


@dataclass(frozen=True)
class Row:
    """Names, such as policy and world, then numbers."""

    names: list[str]
    cells: list[Cell]


@dataclass(frozen=True)
class Sheet:
    """A table ready to be written in any format."""

    title: str
    names: list[str]  # headings of the columns of names
    heads: list[str]  # headings of the columns of numbers
    rows: list[Row]
    notes: list[str] = field(default_factory=list)  # below the table


def fold(text: str, width: int) -> list[str]:
    """Break a name after brackets, commas and blanks; in the middle of a word only if the word is longer than a line.

    >>> fold("over-select(e3cs(quota=0.5), factor=1.3)", 22)
    ['over-select(', 'e3cs(quota=0.5),', 'factor=1.3)']
    """
    lines = [""]
    for piece in _pieces(text, width):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    whole = [line.strip() for line in lines]
    return [line[i : i + width] for line in whole for i in range(0, max(len(line), 1), width)]


def _pieces(text: str, width: int) -> list[str]:
    """The pieces of a name between possible breaks; a call such as "e3cs(quota=0.5)," is one piece if it fits."""
    found: list[str] = []
    for piece in re.findall(r"[^\s(,]*\([^()]*\)[,)]*\s*|[^\s(,]*[(,]+\s*|[^\s(,]+\s*", text):
        small = re.findall(r"[^\s(,]*[(,]+\s*|[^\s(,]+\s*", piece)
        found += [piece] if len(piece.rstrip()) <= width else small
    return found


@dataclass(frozen=True)
class _Column:
    """A column of numbers: heading, a text and its style for each row, and its width."""

    head: str
    texts: list[str]
    styles: list[str]

    @property
    def width(self) -> int:
        """Of the longest number or the longest word of the heading."""
        width = max(*map(len, self.texts), *(len(word) for word in self.head.split()), 1)
        while len(textwrap.wrap(self.head, width)) > MOST_LINES:
            width += 1
        return width


def _columns(sheet: Sheet) -> list[list[_Column]]:
    """For each score its column, and that of its differences if there are any ("*": the interval excludes 0)."""
    found = []
    for j, head in enumerate(sheet.heads):
        cells = [row.cells[j] for row in sheet.rows]
        columns = [_Column(head, [cell.main for cell in cells], [""] * len(cells))]
        if {cell.below for cell in cells} - {"", SAME}:
            blank = " " if any(cell.clear for cell in cells) else ""
            texts = [cell.below + ("*" if cell.clear else blank) for cell in cells]
            columns.append(_Column("difference", texts, ["bold" if cell.clear else "dim" for cell in cells]))
        found.append(columns)
    return found


def _wide(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _panels(scores: list[list[_Column]], width: int) -> list[list[_Column]] | None:
    """Divide the columns into as few parts as possible that fit the width, with about equally many; None if none does.

    A score and its differences stay together.
    """

    def parts(most: int) -> list[list[_Column]]:
        found: list[list[_Column]] = [[]]
        inside = 0
        for score in scores:
            if found[-1] and (_wide([*found[-1], *score]) > width or inside == most):
                found.append([])
                inside = 0
            found[-1] += score
            inside += 1
        return found

    if any(_wide(score) > width for score in scores):
        return None
    fewest = len(parts(len(scores)))
    return next((found for most in range(1, len(scores)) if len(found := parts(most)) == fewest), parts(len(scores)))


def _heading(heads: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> Iterator[Line]:
    columns = [textwrap.wrap(head, width) or [""] for head, width in zip(heads, widths, strict=True)]
    height = max(map(len, columns), default=0)
    for i in range(height):
        line: Line = []
        for lines, width, to_left in zip(columns, widths, left, strict=True):
            at = i - (height - len(lines))
            text = lines[at] if at >= 0 else ""
            line.append((text.ljust(width) if to_left else text.rjust(width), "bold"))
        yield _spaced(line)


def _spaced(line: Line) -> Line:
    out: Line = []
    for i, piece in enumerate(line):
        out += [(" " * GAP, "")] * (i > 0) + [piece]
    return out


def lay(sheet: Sheet, width: int) -> Iterator[Line]:
    """The lines of a table no wider than `width`: a policy's numbers and differences are in one line, beside its name.

    Columns that do not fit continue below. If names beside the numbers take much room, they stand above them.
    """
    for text in textwrap.wrap(sheet.title, width):
        yield [(text, "bold")]
    scores = _columns(sheet)
    names = [max(len(head), *(len(row.names[i]) for row in sheet.rows), 1) for i, head in enumerate(sheet.names)]
    beside = _panels(scores, width - sum(names) - GAP * len(names))
    above = _panels(scores, width - GAP) or [[column] for score in scores for column in score]
    rows = len(sheet.rows)
    if beside is not None and len(beside) * (5 + rows) <= LONGER * len(above) * (5 + 2 * rows):
        made = [list(_rows_beside(sheet, names, columns)) for columns in beside]
    else:
        made = [list(_rows_above(sheet, columns, width)) for columns in above]
    for i, lines in enumerate(made):
        yield from [[], *lines] if i else lines
    for note in sheet.notes:
        for text in textwrap.wrap(note, width, break_on_hyphens=False):
            yield [(text, "dim")]


def _rule(width: int) -> Line:
    return [("─" * width, "dim")]


def _numbers(columns: Sequence[_Column], i: int) -> Line:
    return [(column.texts[i].rjust(column.width), column.styles[i]) for column in columns]


def _rows_beside(sheet: Sheet, names: list[int], columns: list[_Column]) -> Iterator[Line]:
    widths = [*names, *(column.width for column in columns)]
    heads = [*sheet.names, *(column.head for column in columns)]
    yield from _heading(heads, widths, [True] * len(names) + [False] * len(columns))
    rule = _rule(sum(widths) + GAP * (len(widths) - 1))
    yield rule
    for i, row in enumerate(sheet.rows):
        named: Line = [(text.ljust(room), "bold") for text, room in zip(row.names, names, strict=True)]
        yield _spaced([*named, *_numbers(columns, i)])
    yield rule


def _rows_above(sheet: Sheet, columns: list[_Column], width: int) -> Iterator[Line]:
    indent: Line = [(" " * GAP, "")]
    widths = [column.width for column in columns]
    for line in _heading([column.head for column in columns], widths, [False] * len(widths)):
        yield indent + line
    rule = _rule(GAP + _wide(columns))
    yield rule
    for i, row in enumerate(sheet.rows):
        named = (
            f"{head}: {name}" if name[:1].isdigit() else name for head, name in zip(sheet.names, row.names, strict=True)
        )
        for text in fold(" · ".join(name for name in named if name), width):
            yield [(text, "bold")]
        yield indent + _spaced(_numbers(columns, i))
    yield rule
