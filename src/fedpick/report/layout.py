"""Lay out a table as lines of text that fit a terminal: a policy, its numbers and its differences are in one line."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["SAME", "Cell", "Line", "Row", "Sheet", "fold", "lay", "listed", "short"]

Line = list[tuple[str, str]]  # pieces of text with their styles: "", "bold", "dim"
GAP = 2  # blanks between columns
MOST_LINES = 3  # lines of a heading, at most
LONGER = 1.6  # a table with names beside the numbers may have so many times the lines of one with names above
SAME = "same"  # a difference of 0; a column of such differences is left out


def short(text: str, most: int) -> str:
    """Text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


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
    verdict: list[str] = field(default_factory=list)  # sentences between table and notes


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
    """A column: heading, and for each row a text and its style."""

    head: str
    texts: list[str]
    styles: list[str]
    left: bool = False  # a column of names: aligned to the left, with its heading in one line

    @property
    def width(self) -> int:
        """The length of the longest text, or of the longest word of the heading."""
        words = [self.head] if self.left else self.head.split()
        width = max(*map(len, self.texts), *map(len, words), 1)
        while len(textwrap.wrap(self.head, width)) > MOST_LINES:
            width += 1
        return width

    def pad(self, text: str) -> str:
        """A text as wide as the column."""
        return text.ljust(self.width) if self.left else text.rjust(self.width)


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


def lay(sheet: Sheet, width: int) -> Iterator[Line]:
    """The lines of a table no wider than `width`: a policy's numbers and differences are in one line, beside its name.

    Columns that do not fit continue below. If names beside the numbers take much room, they stand above them.
    """
    for text in textwrap.wrap(sheet.title, width):
        yield [(text, "bold")]
    scores, rows = _columns(sheet), len(sheet.rows)
    names = [
        _Column(head, [row.names[i] for row in sheet.rows], ["bold"] * rows, left=True)
        for i, head in enumerate(sheet.names)
    ]
    beside = _panels(scores, width - _wide(names) - GAP)
    above = _panels(scores, width - GAP) or [[column] for score in scores for column in score]
    if beside is not None and len(beside) * (5 + rows) <= LONGER * len(above) * (5 + 2 * rows):
        parts = [list(_part([*names, *columns], [[]] * rows, 0)) for columns in beside]
    else:
        parts = [list(_part(columns, _folded(sheet, width), GAP)) for columns in above]
    for i, lines in enumerate(parts):
        yield from [[], *lines] if i else lines
    for sentence in sheet.verdict:
        for text in textwrap.wrap(sentence, width, break_on_hyphens=False):
            yield [(text, "")]
    for note in sheet.notes:
        for text in textwrap.wrap(note, width, break_on_hyphens=False):
            yield [(text, "dim")]


def _folded(sheet: Sheet, width: int) -> list[list[str]]:
    """The names of each row as lines above its numbers."""
    found = []
    for row in sheet.rows:
        pairs = zip(sheet.names, row.names, strict=True)
        named = [f"{head}: {name}" if name[:1].isdigit() else name for head, name in pairs]
        found.append(fold(" · ".join(name for name in named if name), width))
    return found


def _part(columns: Sequence[_Column], above: Sequence[Sequence[str]], indent: int) -> Iterator[Line]:
    """The lines of a part of a table.

    Args:
        columns: of the part.
        above: lines before each row.
        indent: blanks before the columns.
    """
    margin: Line = [(" " * indent, "")] if indent else []
    heads = [textwrap.wrap(column.head, column.width) or [""] for column in columns]
    height = max(map(len, heads), default=0)
    for line in zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True):
        yield margin + _spaced([(column.pad(text), "bold") for column, text in zip(columns, line, strict=True)])
    rule: Line = [("─" * (indent + _wide(columns)), "dim")]
    yield rule
    for i, lines in enumerate(above):
        yield from ([(text, "bold")] for text in lines)
        yield margin + _spaced([(column.pad(column.texts[i]), column.styles[i]) for column in columns])
    yield rule


def _spaced(line: Line) -> Line:
    """The pieces with blanks between them."""
    return [each for piece in line for each in ((" " * GAP, ""), piece)][1:]
