"""The page "Which policy should I use?", written from the tournament: each sentence has its figures."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedpick import policy as policy_from_text
from fedpick import traits
from fedpick.core.protocol import Traits
from fedpick_papers.studies._study import Reproduction, Result, table
from fedpick_papers.studies.tournament._play import METRICS, ORACLES
from fedpick_papers.studies.tournament.table import FEW, better, chance, cost, gap, ranks, speedup

__all__ = ["guide"]

ASKED = {
    "ideal": "Everyone is there, nobody fails, all are equally fast",
    "volatile": "Clients fail at random, some often and some seldom",
    "volatile with memory": "Clients crash for several rounds",
    "stragglers": "Some clients are slow, and you have a deadline",
    "LN": "Clients are away, each with a probability of its own",
    "SLN": "Clients are away, and more of them at some hours",
    "YC": "Clients come and go with the data that they hold",
    "halves": "Half of the clients is there, then the other half",
    "all troubles": "All of this at once",
}
NEEDS = {
    "probe": "asks clients for their loss before it chooses",
    "norms": "lets all clients train, and only the chosen send their update",
    "context": "reads what the server knows about each client's next time",
    "features": "needs features of the clients' data",
}


def _traits(result: Result, name: str) -> Traits:
    m = result["cohort_size"]
    text = result["policies"][name].replace("{2m}", str(2 * m)).replace("{5m}", str(5 * m)).replace("{rounds}", "200")
    return traits(policy_from_text(text, cohort_size=m))


def _needs(result: Result, name: str) -> str:
    """What the policy asks for or reads, in words."""
    about = _traits(result, name)
    parts = [NEEDS[each] for each in sorted(about.needs) if each in NEEDS]
    parts += [
        f"needs `{each.name}`, which the server computes from the updates"
        if each.server
        else f"reads the clients' report `{each.name}`" + (f", where they have no {each.unless}" if each.unless else "")
        for each in about.reports
    ]
    return "; ".join(parts) or "nothing"


def _means(result: Result, world: str, name: str, metric: str) -> float:
    values = result["worlds"][world]["policies"][name][metric]
    return float(np.mean([x for x in values if x is not None] or [np.nan]))


def _price(result: Result, world: str, name: str) -> list[tuple[str, str]]:
    """What the policy costs beside the reference, except messages: pairs of what, and how much."""
    first = result["reference"]
    jain = [_means(result, world, each, "jain") for each in (name, first)]
    waste = [f"{_means(result, world, each, 'wasted'):.0f}%" for each in (name, first)]
    worst = gap(result, world, name, "worst")
    parts = [("Jain's index", f"{jain[0]:.2f} instead of {jain[1]:.2f}")]
    if waste[0] != waste[1]:
        parts.append(("work not used", f"{waste[0]} instead of {waste[1]}"))
    if worst.clear:
        parts.append(("accuracy of the worst tenth of the clients", f"{worst.mean:+.1f} points"))
    return parts


def _messages(result: Result, world: str, name: str) -> str:
    times = f"{cost(result, world, name):.1f}"
    return "as many messages a round" if times == "1.0" else f"{times} times the messages a round"


def _sentence(result: Result, world: str, name: str) -> str:
    first, seen = result["reference"], gap(result, world, name)
    had, has = (_means(result, world, each, "accuracy") for each in (first, name))
    fast = speedup(result, world, name)
    pace = ""
    if fast is not None and fast.clear:
        way = "sooner" if fast.mean > 0 else "later"
        pace = f" It reaches the level {np.exp(abs(fast.mean)):.1f} times {way}."
    needs = _needs(result, name)
    asks = "" if needs == "nothing" else f" It {needs}."
    messages = _messages(result, world, name) + (f" as {first}" if cost(result, world, name) < 1.05 else "")
    price = "; ".join(f"{what}: {much}" for what, much in _price(result, world, name))
    return (
        f"**{name}** ends {seen.mean:.1f} ± {seen.half:.1f} points above {first} ({has:.1f} and {had:.1f}%).{pace} It "
        f"costs {messages} ({price}).{asks}"
    )


def _advice(result: Result, world: str, data: str) -> str:
    first, won = result["reference"], better(result, world)
    names = [name for name in result["policies"] if name not in (*ORACLES, first)]
    lost = sorted((n for n in names if gap(result, world, n).high < 0), key=lambda n: gap(result, world, n).mean)
    lines = [_sentence(result, world, name) for name in won[:3]]
    if not won:
        lines = [f"No policy ends above {first} beyond chance: take {first}."]
        if result["seeds"] < FEW:
            lines = [f"No policy ends above {first} beyond chance, but {result['seeds']} seeds tell only large gains."]
    elif len(won) > 3:
        also = [f"{n} {gap(result, world, n).mean:+.1f} ({_messages(result, world, n)})" for n in won[3:]]
        lines.append(f"Also above {first}: {', '.join(also)}.")
    fast = {name: speedup(result, world, name) for name in names if name not in won}
    sooner = [n for n, seen in fast.items() if seen is not None and seen.low > 0]
    if sooner:
        by = sorted(sooner, key=lambda n: -fast[n].mean)  # type: ignore[union-attr]
        shown = "; ".join(
            f"{n} {np.exp(fast[n].mean):.1f} times "  # type: ignore[union-attr]
            f"({', '.join([_messages(result, world, n), *(f'{a} {b}' for a, b in _price(result, world, n))])})"
            for n in by[:3]
        )
        lines.append(f"At the level sooner than {first}, but not above it in the end: {shown}.")
    by_rounds = {name: gap(result, world, name, "by_rounds") for name in names if cost(result, world, name) > 1.05}
    more = {name: seen for name, seen in by_rounds.items() if seen.low > 0 and name not in won}
    if more:
        shown = ", ".join(f"{n} {seen.mean:+.1f} ({_messages(result, world, n)})" for n, seen in more.items())
        lines.append(f"Above {first} after as many rounds, which cost more messages: {shown}.")
    if lost:
        shown = ", ".join(f"{n} ({gap(result, world, n).mean:+.1f})" for n in lost)
        lines.append(f"Below {first}: {shown}.")
    return f"*{data}.* " + " ".join(lines)


def _overall(result: Result, data: str) -> list[str]:
    lines = []
    for metric, (words, _, _) in METRICS.items():
        by = ranks(result, metric)
        spread = max(each.mean for each in by.values()) - min(each.mean for each in by.values())
        if spread < 1e-9:
            lines.append(f"- *{data}, {words}*: all policies are equal.")
            continue
        order = sorted(by, key=lambda name: by[name].mean)
        best = ", ".join(f"{name} ({by[name].mean:.1f} ± {by[name].half:.1f})" for name in order[:3])
        first, lowest = result["reference"], [name for name in order[-2:] if name not in order[:3]]
        parts = [f"best {best}"]
        if first not in (*order[:3], *lowest):
            parts.append(f"{first} {by[first].mean:.1f} ± {by[first].half:.1f}")
        if lowest:
            parts.append("last " + ", ".join(f"{name} ({by[name].mean:.1f})" for name in lowest))
        lines.append(f"- *{data}, {words}*: {'; '.join(parts)}.")
    return lines


def _many(result: Result) -> str:
    """Which policies spend their messages before they choose, as a sentence; "": none."""
    names = [name for name in result["policies"] if name not in ORACLES]
    ways = {"probe": "ask many clients for their loss before they choose", "norms": "let all clients train"}
    parts = []
    for need, words in ways.items():
        who = sorted(n for n in names if need in _traits(result, n).needs and cost(result, "ideal", n) > 1.5)
        parts += [f"{words} ({', '.join(who)})"] if who else []
    if not parts:
        return ""
    return (
        f"Policies that {' or '.join(parts)} have far fewer rounds for the same messages, so that they end low here. "
    )


def _earlier(outcomes: Sequence[Reproduction]) -> str:
    """That figures are of earlier draws and rules, as a sentence; "": none are."""
    there = {one.study.title.rpartition("on ")[2]: one.earlier for one in outcomes if one.earlier}
    return f" The figures on {', '.join(there)} are of the draws and rules {min(there.values())}." if there else ""


def guide(outcomes: Sequence[Reproduction], link: Mapping[str, str]) -> str:
    """The page.

    Args:
        outcomes: of the tournament, one for each data set.
        link: where the page of each is, by the study's id.
    """
    results = {one.study.title.rpartition("on ")[2]: one.result for one in outcomes}
    some = max(results.values(), key=lambda result: len(result["worlds"]))
    first, cases = some["reference"], sum(len(result["worlds"]) for result in results.values())
    whole = {data: result for data, result in results.items() if len(result["worlds"]) == len(some["worlds"])}
    part = {data: result for data, result in results.items() if data not in whole}
    fewer = "".join(
        f", and on {data} {len(result['policies'])} policies in {len(result['worlds'])} of these worlds"
        for data, result in part.items()
    )
    pages = "; ".join(f"[{one.study.title}]({link[one.study.id]})" for one in outcomes)
    seeds = ", ".join(f"{result['seeds']} seeds on {data}" for data, result in results.items())
    parts = [
        "# Which policy should I use?\n",
        f"Below is which policy ended above {first} in each of nine worlds, what it costs beside {first}, and which "
        f"ended below. The figures are from a tournament: every policy in nine worlds{fewer}, with the same budget of "
        f'messages ({seeds}); "ends" means the final test accuracy within this budget, and Jain\'s index (1: all '
        "equally) how evenly clients were chosen. Policies that came later are not in it. What is true of these data "
        f"and worlds need not be true of yours: `fedpick compare` tells.{_earlier(outcomes)}\n",
        "## By what troubles you\n",
    ]
    for world, asked in ASKED.items():
        there = [(data, result) for data, result in results.items() if world in result["worlds"]]
        parts += [f"### {asked}\n", *(f"{_advice(result, world, data)}\n" for data, result in there)]
    parts += [
        "## Over all nine worlds\n",
        f"Mean ranks among {len(ranks(some, 'accuracy'))} policies; 1 is best.\n",
    ]
    parts += ["\n".join(line for data, result in whole.items() for line in _overall(result, data)) + "\n"]
    for data, result in part.items():
        worlds = ", ".join(result["worlds"])
        parts.append(f"On {data}, among {len(ranks(result, 'accuracy'))} policies in {worlds}:\n")
        parts.append("\n".join(_overall(result, data)) + "\n")
    rows = [
        ["policy", "what it asks for or reads", "messages a round in the ideal world, uniform = 1"],
        ["---", "---", "---:"],
    ]
    for name in some["policies"]:
        if name not in ORACLES:
            rows.append([name, _needs(some, name), f"{cost(some, 'ideal', name):.1f}"])
    parts += ["## What they cost\n", table(rows)]
    parts += [
        "## How policies were compared\n",
        f"A policy is called better or worse than {first} if the paired interval excludes 0 at a level "
        f"({chance(some):.1%} for all policies) at which all that are compared are right together in 95% of such "
        f"comparisons, within one world: of the {cases} worlds and data sets here, about {0.05 * cases:.1f} would name "
        f"some policy by chance alone. {_many(some)}The comparison after as many rounds "
        "was added, and times were made to differ by chance where devices are equal, after the results of a first "
        "tournament were seen.\n",
        f"All figures: {pages}. `fedpick judge` writes this page from them.\n",
    ]
    return "\n".join(parts)
