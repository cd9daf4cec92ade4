"""The page "Rounds or asynchronous?", written from the results of these studies."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies._stats import interval, show
from fedpick_papers.studies._study import Reproduction, Result, table
from fedpick_papers.studies.asynchronous import scale, tied
from fedpick_papers.studies.asynchronous._play import at_edge, cell_of, ratio
from fedpick_papers.studies.asynchronous.policies import ROUNDS, STREAM, faster
from fedpick_papers.studies.asynchronous.speed import OURS, RIVAL

__all__ = ["NEEDED", "guide"]

NEEDED = ("asynchrony/speed", "asynchrony/tied", "fedbuff/updates", "papaya/scale", "asynchrony/policies")


def _range(logs: Floats) -> str:
    seen = interval(logs)
    return f"{np.exp(seen.low):.1f} to {np.exp(seen.high):.1f}"


def number(logs: Floats) -> str:
    """A ratio: the geometric mean and its 95% interval.

    >>> number(np.log([3.0, 3.5, 4.0]))
    '3.5 (2.4 to 5.0)'
    """
    return f"{np.exp(np.mean(logs)):.1f} ({_range(logs)})"


def than(logs: Floats, better: str = "fast") -> str:
    """A ratio in words that say whether it is beyond chance.

    >>> than(np.log([3.0, 3.5, 4.0])), than(np.log([0.9, 1.2, 1.1]))
    ('3.5 (2.4 to 5.0) times as fast', 'about as fast (0.7 to 1.5 times)')
    """
    return f"{number(logs)} times as {better}" if interval(logs).clear else f"about as {better} ({_range(logs)} times)"


def _speed(result: Result) -> str:
    head = ["sigma", *(f"{C} at once" for C in result["C"])]
    rows = [head, ["---:", *["---:"] * len(result["C"])]]
    for sigma in result["sigma"]:
        gains = [number(ratio(result, "seconds", RIVAL, OURS, C, sigma)) for C in result["C"]]
        rows.append([f"{sigma:g}", *gains])
    return table(rows)


def _edge(result: Result) -> str:
    found = [name.replace(", C = ", " with ").replace(", sigma = ", " at once, sigma ") for name, _ in at_edge(result)]
    return f"At the edge of the rates tried, so perhaps faster with others: {'; '.join(found)}.\n" if found else ""


def _answer(speed: Result) -> list[str]:
    few, many = min(speed["C"]), max(speed["C"])
    most, least = (ratio(speed, "seconds", RIVAL, OURS, C, 1.0) for C in (many, few))
    messages = ratio(speed, "messages", OURS, RIVAL, many, 1.0)
    return [
        f"- **Asynchronous, if many clients work at once and some are slow.** With {many} at once (sigma 1), FedBuff "
        f"reached a level {than(most)} as rounds with over-selection, with {number(messages)} times their messages.",
        f"- **Either, if few clients work at once.** With {few} at once it was {than(least)}.",
        "- **Rounds that wait for all, or `correct=True`, if slow clients hold data that the others lack.** "
        "Otherwise the model learns the fast clients' data better, for good.",
        "- **Rounds, if updates are masked** by secure aggregation.\n",
    ]


def _tied(held: Result) -> str:
    rows = [["pace", "time, tied over apart", "accuracy in the end: apart", "tied"], ["---", "---:", "---:", "---:"]]
    for kind in tied.PACES:
        ends = [show(held["late"][drawn][kind], 1, "%") for drawn in (tied.FREE, tied.TIED)]
        rows.append([kind, number(tied.slower(held, kind)), *ends])
    return table(rows)


def _slower(result: Result) -> str:
    """The policies that reach the level later without rounds, beyond chance."""
    found = [
        f"{policy} {number(gain)} times as fast (*{world}*)"
        for world, cells in result["worlds"].items()
        for policy, cell in cells.items()
        if (gain := faster(cell)) is not None and interval(gain).high < 0
    ]
    return f"Slower without rounds: {', '.join(found)}. " if found else ""


def _hurts(held: Result, policies: Result, link: Mapping[str, str]) -> list[str]:
    free, together = held["parts"][tied.FREE], held["parts"][tied.TIED]
    C, sigma = together["C"][0], together["sigma"][0]
    share = 100 * float(np.mean(cell_of(together, "FedBuff", C, sigma)["slow"]))
    gain = ratio(together, "seconds", "over-selection", "FedBuff", C, sigma)
    costs = [ratio(part, "seconds", "FedBuff, corrected", "FedBuff", C, sigma) for part in (free, together)]
    missed = [f"{kind}: {cell_of(together, kind, C, sigma)['reached']}" for kind in tied.PACES]
    short = any(cell_of(together, kind, C, sigma)["reached"] < held["seeds"] for kind in tied.PACES)
    reached = f" The level was reached by ({', '.join(missed)} of {held['seeds']} seeds)." if short else ""
    return [
        f"**Data that go with speed.** Fast clients answer more often: with {C} at once and sigma {sigma:g}, the "
        f"slowest quarter gave {share:.0f}% of the answers. Below, that quarter holds most of one label (tied), or "
        f"clients are slow by chance (apart); accuracy is after {held['long']:,} answers, 100% being the best "
        f"possible.{reached}\n",
        _tied(held),
        f"Over-selection drops slow clients, too; FedBuff was {than(gain)}. "
        f"`fp.Buffered(correct=True)` gives each client the weight of its data; until the level it took "
        f"{than(costs[1], 'long')} as FedBuff without it, and {than(costs[0], 'long')} where data and speed are apart. "
        f"[All figures]({link['asynchrony/tied']}).\n",
        "**Secure aggregation.** Pairwise masks need the cohort, and an answer's weight before it is sent; here that "
        "depends on when it comes ([what works with it](privacy.md)).\n",
        f"**Some policies.** {_slower(policies)}Those that choose a whole cohort, or shorten rounds, are refused "
        "([which](experiments.md#without-rounds)).\n",
    ]


def _updates(result: Result, link: Mapping[str, str]) -> str:
    sigma, low, high = result["sigma"][0], min(result["C"]), max(result["C"])
    middle = 100 if 100 in result["C"] else high
    grown = []
    for kind in ("rounds", "FedBuff"):
        many, few = (np.log(cell_of(result, kind, C, sigma)["answers"]) for C in (high, low))
        grown.append(number(many - few))
    fewer, single = (ratio(result, "answers", kind, "FedBuff", middle, sigma) for kind in ("rounds", "FedAsync"))
    return (
        f"From {low} to {high:,} clients at once, the client updates until a level grew {grown[0]} times in rounds and "
        f"{grown[1]} times with FedBuff. At {middle}, rounds needed {number(fewer)} times FedBuff's updates (its "
        f"paper: 3.3), FedAsync {number(single)} times (up to 2.5). "
        f"[All figures]({link['fedbuff/updates']}).\n"
    )


def _large(result: Result, link: Mapping[str, str]) -> str:
    C = result["C"][0]
    rows = [["sigma", "times as fast", "times fewer messages", "FedBuff's slow quarter", "over-selection's"]]
    rows.append(["---:"] * len(rows[0]))
    for sigma in result["sigma"]:
        gains = [ratio(result, measure, scale.RIVAL, scale.OURS, C, sigma) for measure in ("seconds", "messages")]
        shares = [100 * np.asarray(cell_of(result, kind, C, sigma)["slow"]) for kind in (scale.OURS, scale.RIVAL)]
        rows.append([f"{sigma:g}", *map(number, gains), *(show(each, 1, "%") for each in shares)])
    return (
        f"With {C:,} of {result['clients']:,} clients at once, FedBuff (K = 100) beside over-selection (Papaya "
        f"claims 5 times as fast and nearly 8 times less traffic), and the share of the answers that the slowest "
        f"quarter gave ([all figures]({link['papaya/scale']})):\n\n{table(rows)}"
    )


def _policies(result: Result, link: Mapping[str, str]) -> str:
    counts = []
    for world, cells in result["worlds"].items():
        known = [gain for cell in cells.values() if (gain := faster(cell)) is not None]
        above = sum(float(np.mean(each)) > 0 for each in known)
        higher = sum(np.mean(cell[STREAM]["accuracy"]) > np.mean(cell[ROUNDS]["accuracy"]) for cell in cells.values())
        counts.append(f"{above} of {len(known)} and {higher} of {len(cells)} in *{world}*")
    return (
        f"{len(result['policies'])} policies ran under both paces, with ten clients at once, {result['seeds']} seeds "
        "and nothing tuned. So many were sooner without rounds, of those that always reached the level, and more "
        f"accurate after the same time: {'; '.join(counts)}. [The table]({link['asynchrony/policies']}).\n"
    )


def guide(outcomes: Sequence[Reproduction], link: Mapping[str, str]) -> str:
    """The page.

    Args:
        outcomes: of the studies that are `NEEDED`.
        link: where the page of each is, by its id.
    """
    results = {one.study.id: one.result for one in outcomes}
    speed, held = results["asynchrony/speed"], results["asynchrony/tied"]
    seeds = speed["seeds"]
    parts = [
        "# Rounds or asynchronous?\n",
        "In a round, the server waits for the last client that it needs. Without rounds (`fp.Buffered`, FedBuff) it "
        "asks another client whenever one has ended, and the model moves after K answers, some of which began from an "
        "older model. The tasks here are small: [compare both](experiments.md#without-rounds) in a world like yours.\n",
        "## The answer\n",
        *_answer(speed),
        "## How much sooner\n",
        "Time to a level of rounds with over-selection, divided by that of FedBuff (K = 10) with as many clients at "
        f"once. Durations are log-normal with this sigma ({seeds} seeds, 95% intervals; "
        f"[all figures]({link['asynchrony/speed']})).\n",
        _speed(speed),
        _edge(speed),
        "## More clients at once\n",
        _updates(results["fedbuff/updates"], link),
        _large(results["papaya/scale"], link),
        "## Where asynchrony hurts\n",
        *_hurts(held, results["asynchrony/policies"], link),
        "## Which policies\n",
        _policies(results["asynchrony/policies"], link),
        "## How it was measured\n",
        "Softmax regression in simulation, with the server's learning rate tuned for each pace on other seeds; "
        "policies were tried on the digits. The server's own work takes no time.\n",
    ]
    return "\n".join(parts)
