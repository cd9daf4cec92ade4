"""Tables as text: no line is too wide, no number is lost, names break where a reader would."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpick.report.layout import SAME, Cell, Row, Sheet, fold, lay

names = st.text(alphabet="abcdef(),=0.5 -'", max_size=60)


def text(sheet, width):
    return ["".join(piece for piece, _ in line) for line in lay(sheet, width)]


@given(names, st.integers(1, 40))
def test_folding_loses_nothing_and_fits(name, width):
    lines = fold(name, width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(name.split())


@given(names, st.integers(1, 40))
def test_a_name_breaks_after_brackets_commas_and_blanks_alone(name, width):
    pieces = re.findall(r"[^\s(,]*[(,]+|[^\s(,]+", name)
    if max(map(len, pieces), default=0) > width:
        return  # a word that is longer than a line must be cut
    lines, at = fold(name, width), 0
    squeezed = name.strip()
    for line in lines[:-1]:
        at = squeezed.index(line, at) + len(line)
        assert squeezed[at - 1] in "(," or squeezed[at : at + 1].isspace(), (line, lines)


def sheet(policies, columns=6, seen="0.812 ±0.012", below="+0.012 ±0.004"):
    heads = ["test accuracy", "worst tenth of clients", "rounds to 80%", "hours to 80%", "models returned", "fairness"]
    rows = [
        Row([name], [Cell(seen, below if i else "", clear=bool(i % 2)) for _ in range(columns)])
        for i, name in enumerate(policies)
    ]
    return Sheet("a title of some length: 500 rounds, 5 seeds", ["policy"], heads[:columns], rows, ["a note " * 20])


POLICIES = ["uniform", "e3cs(quota=0.5, sampler='pivotal')", "over-select(e3cs(quota=0.5), factor=1.3)"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("columns", [1, 3, 6])
def test_every_number_is_there_and_no_line_is_too_wide(width, columns):
    lines = text(sheet(POLICIES, columns), width)
    assert max(map(len, lines)) <= width
    whole = "\n".join(lines)
    assert whole.count("0.812 ±0.012") == 3 * columns
    assert whole.count("+0.012 ±0.004*") == columns  # the one that is clear
    assert whole.count("+0.012 ±0.004") == 2 * columns


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("policies", [POLICIES, ["uniform", "fedgs", "e3cs(quota=0.5)"]])
def test_names_are_whole_and_a_difference_is_in_the_line_of_its_number(policies, width):
    lines = text(sheet(policies), width)
    for name in policies:
        assert any(line == name or line.startswith(f"{name} ") for line in lines)
    assert all(line.index("0.812") < line.index("+0.012") for line in lines if "+0.012" in line)


def test_short_names_stand_beside_their_numbers():
    for width in (60, 80, 120):
        lines = [line for line in text(sheet(["uniform", "fedgs", "e3cs(quota=0.5)"]), width) if "0.812" in line]
        assert all(line.startswith(("uniform ", "fedgs ", "e3cs(quota=0.5) ")) for line in lines)


def test_long_names_stand_above_where_the_columns_would_take_many_more_lines():
    lines = text(sheet([name + ", " + "x" * 20 for name in POLICIES]), 100)
    assert "uniform, " + "x" * 20 in lines


def test_columns_that_do_not_fit_go_on_below_in_even_parts():
    lines = text(sheet(["uniform", "fedgs"]), 80)
    heads = [line.count("difference") for line in lines if "difference" in line]
    assert heads == [2, 2, 2]
    assert sum(line.startswith("uniform ") for line in lines) == 3


def test_a_column_without_differences_takes_no_room():
    rows = [Row(["a"], [Cell("1,000")]), Row(["b"], [Cell("1,000", SAME)])]
    assert text(Sheet("", ["policy"], ["x"], rows), 80)[0].split() == ["policy", "x"]


def test_marks_do_not_shift_the_numbers():
    rows = [Row(["a"], [Cell("10 ±1", "+3 ±4")]), Row(["b"], [Cell("20 ±1", "+3 ±1", clear=True)])]
    lines = text(Sheet("", ["policy"], ["x"], rows), 80)
    ends = {line.rstrip("* ").__len__() for line in lines if "±" in line}
    assert len(ends) == 1


def test_a_remark_in_brackets_is_not_torn():
    assert fold("fedcs (oracle)", 12) == ["fedcs", "(oracle)"]
    assert fold("over-select(fedcs, 1.3) (oracle)", 24) == ["over-select(fedcs, 1.3)", "(oracle)"]
