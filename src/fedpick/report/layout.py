"""Lay out a table as lines of text that fit a terminal: long names are broken into lines, numbers never."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

__all__ = ["Cell", "Line", "Row", "Sheet", "fold", "lay"]

Line = list[tuple[str, str]]  # pieces of text with their styles: "", "bold", "dim"
GAP = 2  # blanks between columns
NARROWEST = 12  # of a column of names beside the numbers
MOST_LINES = 3  # of a heading, and of a name beside the numbers


@dataclass(frozen=True)
class Cell:
    """A number as text, the difference below it, and whether the difference's interval excludes 0."""

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


def _column(sheet: Sheet, j: int) -> list[tuple[str, str]]:
    """A column's numbers and differences, with "*" where the interval excludes 0, and padded elsewhere."""
    cells = [row.cells[j] for row in sheet.rows]
    blank = " " if any(cell.clear for cell in cells) else ""
    return [(c.main + blank, c.below + ("*" if c.clear else blank if c.below else "")) for c in cells]


def _widths(sheet: Sheet) -> list[int]:
    """Widths of the columns of numbers: the longest number or the longest word of the heading."""
    found = []
    for j, head in enumerate(sheet.heads):
        numbers = [len(text) for pair in _column(sheet, j) for text in pair]
        width = max(*numbers, *(len(word) for word in head.split()), 1)
        while len(textwrap.wrap(head, width)) > MOST_LINES:
            width += 1
        found.append(width)
    return found


def _beside(sheet: Sheet, left: int) -> list[int] | None:
    """Widths of the columns of names if they fit into `left` characters, with the widest folded; else None."""
    widths = [max(len(head), *(len(row.names[i]) for row in sheet.rows), 1) for i, head in enumerate(sheet.names)]
    spare = left - sum(widths) - GAP * (len(widths) - 1)
    if spare >= 0:
        return widths
    widest = widths.index(max(widths))
    widths[widest] += spare
    room = widths[widest]
    if room < max(NARROWEST, len(sheet.names[widest])):
        return None
    pieces = [piece for row in sheet.rows for piece in _pieces(row.names[widest], room)]
    short = all(len(fold(row.names[widest], room)) <= MOST_LINES for row in sheet.rows)
    return widths if short and all(len(piece.rstrip()) <= room for piece in pieces) else None


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


def _numbers(sheet: Sheet, columns: Sequence[int], widths: Sequence[int]) -> list[list[Line]]:
    """For each row the lines of its numbers: means, then differences if there are any."""
    shown = [_column(sheet, j) for j in columns]
    rows = []
    for i, row in enumerate(sheet.rows):
        lines: list[Line] = [[(column[i][0].rjust(w), "") for column, w in zip(shown, widths, strict=True)]]
        if any(column[i][1] for column in shown):
            styles = ["bold" if row.cells[j].clear else "dim" for j in columns]
            below = [column[i][1].rjust(w) for column, w in zip(shown, widths, strict=True)]
            lines.append(list(zip(below, styles, strict=True)))
        rows.append(lines)
    return rows


def _panels(widths: Sequence[int], width: int) -> list[list[int]]:
    """Divide the columns into as few parts as possible that fit the width, with about equally many columns."""

    def parts(most: int) -> list[list[int]]:
        found: list[list[int]] = [[]]
        for j, w in enumerate(widths):
            used = sum(widths[i] + GAP for i in found[-1])
            if found[-1] and (used + GAP + w > width or len(found[-1]) == most):
                found.append([])
            found[-1].append(j)
        return found

    fewest = len(parts(len(widths)))
    return next(found for most in range(1, len(widths) + 1) if len(found := parts(most)) == fewest)


def lay(sheet: Sheet, width: int) -> Iterator[Line]:
    """The lines of a table no wider than `width`: names beside the numbers, or above them if they do not fit.

    If even the numbers do not fit, the columns continue below.
    """
    for text in textwrap.wrap(sheet.title, width):
        yield [(text, "bold")]
    widths = _widths(sheet)
    names = _beside(sheet, width - sum(widths) - GAP * len(widths))
    if names is not None:
        yield from _rows_beside(sheet, names, widths)
    else:
        for i, columns in enumerate(_panels(widths, width)):
            if i:
                yield []
            yield from _rows_above(sheet, columns, [widths[j] for j in columns], width)
    for note in sheet.notes:
        for text in textwrap.wrap(note, width, break_on_hyphens=False):
            yield [(text, "dim")]


def _rule(width: int) -> Line:
    return [("─" * width, "dim")]


def _rows_beside(sheet: Sheet, names: list[int], widths: list[int]) -> Iterator[Line]:
    yield from _heading([*sheet.names, *sheet.heads], [*names, *widths], [True] * len(names) + [False] * len(widths))
    rule = _rule(sum(names) + sum(widths) + GAP * (len(names) + len(widths) - 1))
    yield rule
    blocks = []
    for row, numbers in zip(sheet.rows, _numbers(sheet, range(len(widths)), widths), strict=True):
        folded = [fold(text, room) for text, room in zip(row.names, names, strict=True)]
        named = [
            [(text.ljust(room), "") for text, room in zip(part, names, strict=True)]
            for part in zip_longest(*folded, fillvalue="")
        ]
        empty: Line = [(" " * room, "") for room in names]
        none: Line = [(" " * room, "") for room in widths]
        blocks.append([_spaced([*a, *b]) for a, b in _longest(named, numbers, empty, none)])
    for i, block in enumerate(blocks):
        if i and any(len(each) > 1 for each in blocks):
            yield []
        yield from block
    yield rule


def _longest(a: list[Line], b: list[Line], empty_a: Line, empty_b: Line) -> Iterator[tuple[Line, Line]]:
    for x, y in zip_longest(a, b):
        yield (empty_a if x is None else x), (empty_b if y is None else y)


def _rows_above(sheet: Sheet, columns: list[int], widths: list[int], width: int) -> Iterator[Line]:
    indent: Line = [(" " * GAP, "")]
    for line in _heading([sheet.heads[j] for j in columns], widths, [False] * len(widths)):
        yield indent + line
    rule = _rule(GAP + sum(widths) + GAP * (len(widths) - 1))
    yield rule
    for row, numbers in zip(sheet.rows, _numbers(sheet, columns, widths), strict=True):
        named = (
            f"{head}: {name}" if name[:1].isdigit() else name for head, name in zip(sheet.names, row.names, strict=True)
        )
        for text in fold(" · ".join(name for name in named if name), width):
            yield [(text, "bold")]
        for line in numbers:
            yield indent + _spaced(line)
    yield rule
