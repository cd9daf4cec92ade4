"""What the numbers say, in sentences: which policy is better, which is not, and what it costs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedpick.core.metrics import LABELS
from fedpick.report.groups import Score, Summary
from fedpick.report.intervals import Interval
from fedpick.report.legend import printable
from fedpick.report.summaries import way
from fedpick.report.tables import Units, cell_of, columns_of, fitting, group_name, headings

__all__ = ["verdict"]

LONGEST = 60  # characters of a name in a sentence
MANY = 4  # comparisons, from which on a sentence reminds that one in twenty excludes 0 by chance

# What decides: the first in which policies differ, after the main metric, accuracy and the test loss; the score, how a
# sentence calls it, whether more is better, digits.
_MAIN = (
    ("returned", "models returned in time", True, 0),
    ("hours", "simulated {time}", False, 2),
)
_SIDES = {  # what a better policy may cost: how a sentence calls it, whether more is better, digits
    "hours": ("{time}", False, 2),
    "gigabytes": ("{sent}", False, 1),
    "worst_decile": ("accuracy of the worst tenth of clients", True, 3),
    "jain": ("fairness (Jain)", True, 2),
    "never": ("share of clients never chosen", False, 2),
}


class _Compared(NamedTuple):
    """A row's name, and its difference to the reference as text."""

    row: Summary
    name: str
    gap: str


def verdict(rows: Sequence[Summary]) -> list[str]:
    """Sentences about the rows of one block, the most important first."""
    rows, units = fitting(rows)
    known = [each for each in (*_decisive(rows), *_MAIN) if all(each[0] in row.scores for row in rows)]
    if not known:
        return []
    main = next((each for each in known if _differ(rows, each[0])), known[0])
    score, called, more, digits = main = (main[0], units.said(main[1]), main[2], units.digits(main[1], main[3]))
    base = next((row.base for row in rows if row.base is not None), None)
    reference = next((row for row in rows if row.group is base), None)
    ours = [row for row in rows if row.scores[score].difference is not None]
    if reference is None or not ours:
        return _without(rows, score, called, more, digits)
    said, best = _compared(ours, reference, main)
    said += _sooner(ours, reference, units)
    said += [words for row in best[:2] for words in _costs(row, reference, units, score)]
    if len(ours) >= MANY:
        said.append(
            f"Each is a 95% interval by itself: of {len(ours)} such differences, one in twenty excludes 0 by chance."
        )
    return said


def _decisive(rows: Sequence[Summary]) -> Iterator[tuple[str, str, bool, int]]:
    """The main metric, then accuracy and the test loss; not those of which it is not known what is better."""
    names = {name: each for row in rows for name, each in headings(rows, [row.metric] if row.metric else []).items()}
    names |= {"accuracy": (LABELS["accuracy"], 3), "test_loss": (LABELS["test_loss"], 3)}
    for name, (called, digits) in names.items():
        better = way(rows, name)
        if better is not None:
            yield name, called.replace("{", "{{").replace("}", "}}"), better == "larger", digits


def _differ(rows: Sequence[Summary], score: str) -> bool:
    """Whether some policy differs from the reference with some seed."""
    gaps = [row.scores[score].difference for row in rows]
    return any(gap is not None and (gap.mean != 0.0 or gap.has_width) for gap in gaps)


def _certain(gap: Interval) -> bool:
    """Whether the interval excludes 0, or the difference is the same with several seeds."""
    return gap.clear or (gap.n > 1 and not gap.has_width and gap.mean != 0.0)


def _short(row: Summary) -> str:
    name = group_name(row.group)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _value(row: Summary, score: str, digits: int) -> str:
    return cell_of(row.scores[score], digits).main


def _listed(found: Sequence[_Compared]) -> str:
    texts = [f"{each.name} ({each.gap})" for each in found]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _without(rows: Sequence[Summary], score: str, called: str, more: bool, digits: int) -> list[str]:
    """Without differences to a reference: one policy, one seed, or real clients."""
    simulated = rows[0].group.block.engine == "simulator"
    seeds = f", over {len(rows[0].group.runs)} seeds" if len(rows[0].group.runs) > 1 else ", with one seed" * simulated
    rounds = len(rows[0].group.runs[0].rounds)
    if len(rows) == 1:
        after = f"after {rounds:,} rounds{seeds}"
        return [f"{_short(rows[0])}: {called} {_value(rows[0], score, digits)} {after}."]
    order = sorted(rows, key=lambda row: row.scores[score].over.mean, reverse=more)
    texts = [f"{_short(row)} {_value(row, score, digits)}" for row in order]
    once = "one seed each" if simulated else "each ran once, with clients of its own"
    why = "the runs are not paired" if len(rows[0].group.runs) > 1 else f"{once}: a difference may be chance"
    return [f"{called[0].upper()}{called[1:]}, best first: {', '.join(texts)} ({why})."]


def _compared(
    rows: Sequence[Summary], reference: Summary, main: tuple[str, str, bool, int]
) -> tuple[list[str], list[Summary]]:
    """Who is better and worse than the reference; returns also the better rows, best first."""
    score, called, more, digits = main
    better: list[_Compared] = []
    worse: list[_Compared] = []
    unclear: list[_Compared] = []  # the interval includes 0
    fixed: list[_Compared] = []  # no interval: the same difference with every seed
    bound: list[_Compared] = []
    for row in sorted(rows, key=lambda row: row.scores[score].over.mean, reverse=more):
        gap = row.scores[score].difference
        assert gap is not None
        each = _Compared(row, _short(row), cell_of(row.scores[score], digits).below)
        if row.group.oracle:
            bound.append(each)
        elif gap.clear:
            (better if (gap.mean > 0) == more else worse).append(each)
        else:
            (unclear if gap.has_width else fixed).append(each)
    name, value = _short(reference), _value(reference, score, digits)
    said = []
    if better:
        first = better[0]
        said.append(
            f"{first.name} is better than {name}: {called} {_value(first.row, score, digits)} against {value}, a "
            f"difference of {first.gap} (paired over {_pairs(first.row.scores[score])} seeds)."
        )
        if better[1:]:
            said.append(f"{'So is' if len(better) == 2 else 'So are'} {_listed(better[1:])}.")
    elif worse or unclear:
        said.append(f"No policy is clearly better than {name} in {called}, which has {value}.")
    if worse:
        said.append(f"Clearly worse than {name} in {called}: {_listed(worse)}.")
    if unclear:
        seeds = _pairs(unclear[0].row.scores[score])
        said.append(f"Not told apart from {name} by {seeds} seeds: {_listed(unclear)}; the intervals include 0.")
    if fixed:
        said.append(f"The same difference to {name} in {called} with every seed: {_listed(fixed)}.")
    if bound:
        said.append(f"Knows what no server knows, so it is a bound and no competitor: {_listed(bound)}.")
    return said, [each.row for each in better]


def _pairs(score: Score) -> int:
    return 0 if score.difference is None else score.difference.n


def _sooner(rows: Sequence[Summary], reference: Summary, units: Units) -> list[str]:
    """Who reaches the target clearly sooner, in rounds and in time; and who does not always reach it."""
    said = []
    known = columns_of([*rows, reference], units)
    if "rounds_to" not in known:
        return []
    target = printable(str(reference.target))
    for score, unit in (("rounds_to", "rounds"), ("hours_to", f"simulated {units.time}")):
        if score not in known:
            continue
        digits = known[score][1]
        clear = [(gap.mean, row) for row in rows if (gap := row.scores[score].difference) and gap.clear]
        sooner = [(mean, row) for mean, row in clear if mean < 0 and not row.group.oracle]
        if sooner:
            row = min(sooner, key=lambda each: each[0])[1]
            said.append(
                f"{_short(row)} reaches {target} soonest in {unit}: {_value(row, score, digits)} against "
                f"{_value(reference, score, digits)} of {_short(reference)}, a difference of "
                f"{cell_of(row.scores[score], digits).below}."
            )
    for row in (reference, *rows):
        reached, seeds = row.scores["rounds_to"].reached, len(row.group.runs)
        if reached is not None and reached < seeds:
            said.append(f"{_short(row)} reaches {target} with {reached} of {seeds} seeds.")
    return said


def _costs(row: Summary, reference: Summary, units: Units, main: str) -> list[str]:
    """What else is clearly different for a better policy: the worst-off clients, and fairness."""
    texts = []
    for score, (called, more, digits) in _SIDES.items():
        found = None if score == main else row.scores.get(score)
        if found is None or score not in reference.scores or found.difference is None or not _certain(found.difference):
            continue
        word = "better" if (found.difference.mean > 0) == more else "worse"
        texts.append(f"{units.said(called)} {cell_of(found, units.digits(called, digits)).below} ({word})")
    return [f"With {_short(row)}, compared with {_short(reference)}: {'; '.join(texts)}."] if texts else []
