"""What the numbers say, in sentences: which policy is better, which is not, and what it costs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedpick.core.errors import printable
from fedpick.core.metrics import LABELS
from fedpick.report.groups import direction_of
from fedpick.report.intervals import Interval
from fedpick.report.layout import listed, short
from fedpick.report.summaries import Summary
from fedpick.report.tables import Units, cell_of, columns_of, fitting, group_name, metric_columns

__all__ = ["verdict"]

MANY = 4  # comparisons, from which on a sentence reminds that one in twenty excludes 0 by chance


class _Measure(NamedTuple):
    """A score that policies are compared by, and how a sentence calls it."""

    score: str
    name: str
    larger: bool  # whether larger values are better
    digits: int

    def value(self, row: Summary) -> str:
        return cell_of(row.scores[self.score], self.digits).main

    def gap(self, row: Summary) -> str:
        """The difference to the reference."""
        return cell_of(row.scores[self.score], self.digits).below

    def interval(self, row: Summary) -> Interval:
        """The same as numbers, of a row that has a difference."""
        gap = row.scores[self.score].difference
        assert gap is not None
        return gap

    def in_units(self, units: Units) -> "_Measure":
        return self._replace(name=units.fill(self.name), digits=units.digits(self.name, self.digits))


# What decides after the main metric, accuracy and the test loss: the first in which policies differ.
_MAIN = (_Measure("returned", "models returned in time", True, 0), _Measure("hours", "simulated {time}", False, 2))
_COSTS = (  # what a better policy may cost
    _Measure("hours", "{time}", False, 2),
    _Measure("gigabytes", "{sent}", False, 1),
    _Measure("worst_decile", "accuracy of the worst tenth of clients", True, 3),
    _Measure("jain", "fairness (Jain)", True, 2),
    _Measure("never", "share of clients never chosen", False, 2),
)


def verdict(rows: Sequence[Summary]) -> list[str]:
    """Sentences about the rows of one block, the most important first."""
    rows, units = fitting(rows)
    known = [each for each in (*_decisive(rows), *_MAIN) if all(each.score in row.scores for row in rows)]
    if not known:
        return []
    main = next((each for each in known if _differ(rows, each.score)), known[0]).in_units(units)
    base = next((row.base for row in rows if row.base is not None), None)
    reference = next((row for row in rows if row.group is base), None)
    others = [row for row in rows if row.scores[main.score].difference is not None]
    if reference is None or not others:
        return _without_differences(rows, main)
    sentences, best = _compared(others, reference, main)
    sentences += _sooner(others, reference, units)
    sentences += [text for row in best[:2] for text in _costs(row, reference, units, main.score)]
    if len(others) >= MANY:
        sentences.append(
            f"Each is a 95% interval by itself: of {len(others)} such differences, one in twenty excludes 0 by chance."
        )
    return sentences


def _decisive(rows: Sequence[Summary]) -> Iterator[_Measure]:
    """The main metrics, then accuracy and the test loss; without those whose better direction is not known."""
    columns = metric_columns(rows, [row.metric for row in rows if row.metric])
    columns |= {"accuracy": (LABELS["accuracy"], 3), "test_loss": (LABELS["test_loss"], 3)}
    for score, (name, digits) in columns.items():
        way = direction_of((row.group for row in rows), score)
        if way is not None:
            yield _Measure(score, name.replace("{", "{{").replace("}", "}}"), way == "larger", digits)


def _differ(rows: Sequence[Summary], score: str) -> bool:
    """Whether some policy differs from the reference with some seed."""
    gaps = [row.scores[score].difference for row in rows]
    return any(gap is not None and (gap.mean != 0.0 or gap.has_width) for gap in gaps)


def _name(row: Summary) -> str:
    return short(group_name(row.group), 60)


def _without_differences(rows: Sequence[Summary], main: _Measure) -> list[str]:
    """One policy, one seed, or real clients."""
    simulated, runs = rows[0].group.block.simulated, rows[0].group.runs
    if len(rows) == 1:
        seeds = f", over {len(runs)} seeds" if len(runs) > 1 else ", with one seed" * simulated
        return [f"{_name(rows[0])}: {main.name} {main.value(rows[0])} after {len(runs[0].rounds):,} rounds{seeds}."]
    order = sorted(rows, key=lambda row: row.scores[main.score].over.mean, reverse=main.larger)
    texts = [f"{_name(row)} {main.value(row)}" for row in order]
    once = "one seed each" if simulated else "each ran once, with clients of its own"
    why = "the runs are not paired" if len(runs) > 1 else f"{once}: a difference may be chance"
    return [f"{main.name[0].upper()}{main.name[1:]}, best first: {', '.join(texts)} ({why})."]


def _compared(rows: Sequence[Summary], reference: Summary, main: _Measure) -> tuple[list[str], list[Summary]]:
    """Who is better and worse than the reference; returns also the better rows, best first."""
    better: list[Summary] = []
    worse: list[Summary] = []
    unclear: list[Summary] = []  # the interval includes 0
    fixed: list[Summary] = []  # no interval: the same difference with every seed
    bound: list[Summary] = []
    for row in sorted(rows, key=lambda row: row.scores[main.score].over.mean, reverse=main.larger):
        gap = main.interval(row)
        if row.group.oracle:
            bound.append(row)
        elif gap.clear:
            (better if (gap.mean > 0) == main.larger else worse).append(row)
        else:
            (unclear if gap.has_width else fixed).append(row)

    def with_gaps(found: Sequence[Summary]) -> str:
        return listed([f"{_name(row)} ({main.gap(row)})" for row in found])

    name, value = _name(reference), main.value(reference)
    sentences = []
    if better:
        best = better[0]
        sentences.append(
            f"{_name(best)} is better than {name}: {main.name} {main.value(best)} against {value}, a difference of "
            f"{main.gap(best)} (paired over {main.interval(best).n} seeds)."
        )
        if better[1:]:
            sentences.append(f"{'So is' if len(better) == 2 else 'So are'} {with_gaps(better[1:])}.")
    elif worse or unclear:
        sentences.append(f"No policy is clearly better than {name} in {main.name}, which has {value}.")
    if worse:
        sentences.append(f"Clearly worse than {name} in {main.name}: {with_gaps(worse)}.")
    if unclear:
        seeds = main.interval(unclear[0]).n
        sentences.append(f"Not told apart from {name} by {seeds} seeds: {with_gaps(unclear)}; the intervals include 0.")
    if fixed:
        sentences.append(f"The same difference to {name} in {main.name} with every seed: {with_gaps(fixed)}.")
    if bound:
        sentences.append(f"Knows what no server knows, so it is a bound and no competitor: {with_gaps(bound)}.")
    return sentences, better


def _sooner(rows: Sequence[Summary], reference: Summary, units: Units) -> list[str]:
    """Who reaches the target clearly sooner, in rounds and in time; and who does not always reach it."""
    columns = columns_of([*rows, reference], units)
    if "rounds_to" not in columns:
        return []
    sentences = []
    target = printable(str(reference.target))
    for score, unit in (("rounds_to", "rounds"), ("hours_to", f"simulated {units.time}")):
        if score not in columns:
            continue
        measure = _Measure(score, unit, False, columns[score][1])
        clear = [(gap.mean, row) for row in rows if (gap := row.scores[score].difference) and gap.clear]
        sooner = [(mean, row) for mean, row in clear if mean < 0 and not row.group.oracle]
        if sooner:
            row = min(sooner, key=lambda each: each[0])[1]
            sentences.append(
                f"{_name(row)} reaches {target} soonest in {unit}: {measure.value(row)} against "
                f"{measure.value(reference)} of {_name(reference)}, a difference of {measure.gap(row)}."
            )
    for row in (reference, *rows):
        reached, seeds = row.scores["rounds_to"].reached, len(row.group.runs)
        if reached is not None and reached < seeds:
            sentences.append(f"{_name(row)} reaches {target} with {reached} of {seeds} seeds.")
    return sentences


def _costs(row: Summary, reference: Summary, units: Units, main: str) -> list[str]:
    """What else is clearly different for a better policy: time, traffic, the worst-off clients, and fairness."""
    texts = []
    for measure in (each.in_units(units) for each in _COSTS):
        score = row.scores.get(measure.score)
        gap = None if score is None or measure.score == main else score.difference
        if gap is None or measure.score not in reference.scores:
            continue
        if gap.clear or (gap.n > 1 and not gap.has_width and gap.mean != 0.0):  # or the same with several seeds
            word = "better" if (gap.mean > 0) == measure.larger else "worse"
            texts.append(f"{measure.name} {measure.gap(row)} ({word})")
    return [f"With {_name(row)}, compared with {_name(reference)}: {'; '.join(texts)}."] if texts else []
