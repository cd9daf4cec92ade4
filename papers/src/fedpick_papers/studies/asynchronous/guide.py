"""The page "Rounds or asynchronous?", written from the results of these studies."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies._stats import interval, show
from fedpick_papers.studies._study import Reproduction, Result, table
from fedpick_papers.studies.asynchronous import scale, tied
from fedpick_papers.studies.asynchronous._play import cell_of, ratio, shown
from fedpick_papers.studies.asynchronous.policies import ROUNDS, STREAM, faster
from fedpick_papers.studies.asynchronous.speed import OURS, RIVAL

__all__ = ["NEEDED", "guide"]

NEEDED = ("asynchrony/speed", "asynchrony/tied", "fedbuff/updates", "papaya/scale", "asynchrony/policies")


def than(logs: Floats, better: str = "times as fast") -> str:
    """A ratio in words that say whether it is beyond chance.

    >>> than(np.log([3.0, 3.5, 4.0])), than(np.log([0.9, 1.2, 1.1]))
    ('3.48 (2.43 to 4.97) times as fast', 'not beyond chance: 1.06 (0.73 to 1.53) times as fast')
    """
    return f"{shown(logs)} {better}" if interval(logs).clear else f"not beyond chance: {shown(logs)} {better}"


def _longer(logs: Floats) -> str:
    return than(logs, "times as long")


def _reached(result: Result, kind: str, C: int, sigma: float) -> str:
    cell = cell_of(result, kind, C, sigma)
    missed = result["seeds"] - cell["reached"]
    return f"; {missed} of {result['seeds']} runs missed the level" if missed else ""


def _speed(result: Result) -> str:
    head = ["spread of durations", *(f"{C} at once" for C in result["C"])]
    rows = [head, ["---", *["---:"] * len(result["C"])]]
    words = {0.5: "0.5 (even)", 1.0: "1 (phones)", 1.5: "1.5 (a few very slow)"}
    for sigma in result["sigma"]:
        gains = [shown(ratio(result, "seconds", RIVAL, OURS, C, sigma)) for C in result["C"]]
        rows.append([words.get(sigma, f"{sigma:g}"), *gains])
    return table(rows)


def _answer(speed: Result, held: Result, link: Mapping[str, str]) -> list[str]:
    few, many = min(speed["C"]), max(speed["C"])
    most, least = (ratio(speed, "seconds", RIVAL, OURS, C, 1.0) for C in (many, few))
    messages = ratio(speed, "messages", OURS, RIVAL, many, 1.0)
    C, sigma = held["parts"][tied.TIED]["C"][0], held["parts"][tied.TIED]["sigma"][0]
    hurt = tied.slower(held, "FedBuff")
    return [
        f"- **Asynchronous, if many clients work at once and some are slow.** With {many} at once and sigma 1, FedBuff "
        f"reached a level {than(most)} as rounds with over-selection, with {shown(messages)} times their messages "
        f"([how]({link['asynchrony/speed']})).\n",
        f"- **Either, if few do.** With {few} at once it was {than(least)}.\n",
        f"- **Rounds, if slow clients hold data that the others lack,** or if updates are masked. There, with {C} at "
        f"once and sigma {sigma:g}, FedBuff took {_longer(hurt)} as with the same data dealt out by chance "
        f"([how]({link['asynchrony/tied']})).\n",
    ]


def _hurts(held: Result, link: Mapping[str, str]) -> list[str]:
    free, together = held["parts"][tied.FREE], held["parts"][tied.TIED]
    C, sigma = together["C"][0], together["sigma"][0]
    share = 100 * float(np.mean(cell_of(together, "FedBuff", C, sigma)["slow"]))
    gain = ratio(together, "seconds", "over-selection", "FedBuff", C, sigma)
    fixed, cost = (ratio(part, "seconds", "FedBuff", "FedBuff, corrected", C, sigma) for part in (together, free))
    over = tied.slower(held, "over-selection")
    return [
        f"- **Data that go with speed.** Fast clients answer more often: the slowest quarter gave {share:.0f}% of the "
        f"answers. Over-selection drops slow clients, too, and took {_longer(over)} as without the tie"
        f"{_reached(together, 'over-selection', C, sigma)}; beside it, FedBuff was {than(gain)}"
        f"{_reached(together, 'FedBuff', C, sigma)}. `fp.Buffered(correct=True)`, which weighs each client as it "
        f"should, was {than(fixed)} as FedBuff without it{_reached(together, 'FedBuff, corrected', C, sigma)}; where "
        f"data and speed are apart, {than(cost)}. [All figures]({link['asynchrony/tied']}).\n",
        "- **Secure aggregation.** Pairwise masks need to know the cohort, and an answer's weight before it is sent; "
        "here the weight depends on when the answer comes. Use rounds ([what works with it](privacy.md)).\n",
        "- **Few clients at once.** See the table: there is nobody to wait for.\n",
        "- **Policies that choose a cohort as a whole,** or that make rounds short, are refused, with the reason "
        "([which](experiments.md#without-rounds)).\n",
    ]


def _updates(result: Result, link: Mapping[str, str]) -> str:
    sigma, low, high = result["sigma"][0], min(result["C"]), max(result["C"])
    middle = 100 if 100 in result["C"] else high
    grown = [
        float(np.exp(np.mean(np.log(cell_of(result, kind, high, sigma)["answers"]))))
        / float(np.exp(np.mean(np.log(cell_of(result, kind, low, sigma)["answers"]))))
        for kind in ("rounds", "FedBuff")
    ]
    fewer = ratio(result, "answers", "rounds", "FedBuff", middle, sigma)
    single = ratio(result, "answers", "FedAsync", "FedBuff", middle, sigma)
    return (
        f"From {low} to {high:,} clients at once, the client updates until a level grew {grown[0]:.0f}-fold in "
        f"rounds and {grown[1]:.0f}-fold with FedBuff. At {middle}, rounds needed {shown(fewer)} times FedBuff's "
        f"updates (the paper: 3.3), FedAsync {shown(single)} times (up to 2.5). "
        f"[All figures]({link['fedbuff/updates']}).\n"
    )


def _large(result: Result, link: Mapping[str, str]) -> str:
    C, parts = result["C"][0], []
    for sigma in result["sigma"]:
        gain, sent = (ratio(result, measure, scale.RIVAL, scale.OURS, C, sigma) for measure in ("seconds", "messages"))
        ours, theirs = (
            show(100 * np.asarray(cell_of(result, kind, C, sigma)["slow"]), 0, "%")
            for kind in (scale.OURS, scale.RIVAL)
        )
        parts.append(
            f"at sigma {sigma:g} {shown(gain)} times as fast, with {shown(sent)} times fewer messages, and the slowest "
            f"quarter gave {ours} of the answers (over-selection: {theirs})"
        )
    return (
        f"With {C:,} of {result['clients']:,} clients at once, FedBuff (K = 100) was beside over-selection "
        f"{'; '.join(parts)}. Papaya's claims are 5 and 8 times. [All figures]({link['papaya/scale']}).\n"
    )


def _policies(result: Result, link: Mapping[str, str]) -> str:
    counts = []
    for world, cells in result["worlds"].items():
        gains = [faster(cell) for cell in cells.values()]
        known = [each for each in gains if each is not None]
        above = sum(float(np.mean(each)) > 0 for each in known)
        higher = sum(np.mean(cell[STREAM]["accuracy"]) > np.mean(cell[ROUNDS]["accuracy"]) for cell in cells.values())
        counts.append(
            f"in the world *{world}* {above} of the {len(known)} that reached the level under both paces were sooner "
            f"without rounds, and {higher} of {len(cells)} were more accurate after the same time"
        )
    return (
        f"{len(result['policies'])} policies ran under both paces, with ten clients at once and {result['seeds']} "
        f"seeds: {'; '.join(counts)}. [The table]({link['asynchrony/policies']}).\n"
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
        "asks another client whenever one has ended, and the model moves after K answers, some of which began from "
        "an older model. What is true of the small tasks below need not be true of yours: [compare both]"
        "(experiments.md#without-rounds) in a world like your fleet.\n",
        "## The answer\n",
        *_answer(speed, held, link),
        "## How much sooner\n",
        "Time to a level: rounds with over-selection over FedBuff (K = 10), both with the same clients at once "
        f"({seeds} seeds, 95% intervals). Durations are log-normal; the spread is their sigma.\n",
        _speed(speed),
        "## More clients at once\n",
        _updates(results["fedbuff/updates"], link),
        _large(results["papaya/scale"], link),
        "## Where asynchrony hurts\n",
        *_hurts(held, link),
        "## Which policies\n",
        _policies(results["asynchrony/policies"], link),
        "## How it was measured\n",
        "Softmax regression in simulation, with rates of the server tuned for each pace on other seeds; of the "
        "policies, nothing was tuned. Times are of clients only: a server's own work takes no time. `fedpick judge` "
        "writes this page from the results.\n",
    ]
    return "\n".join(parts).replace(").\n\n- ", ").\n- ")
