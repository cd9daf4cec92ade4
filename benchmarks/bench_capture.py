"""How many places can false reports gain? Every policy and lie, 1 and 10 liars of 100, with and without Guard.

Also measures the price of a guard if all clients are honest, in worlds and with seeds on which no default was chosen:
accuracy, and rounds to an accuracy. Writes the tables in docs/trust.md, and benchmarks/results/capture/.

    python benchmarks/bench_capture.py            everything, about twenty minutes on two cores
    python benchmarks/bench_capture.py --only price       or shares
    python benchmarks/bench_capture.py --quick    three policies and short runs, printed and not written
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import fedpick as fp
from _manifest import manifest
from arena import CLIENTS, COHORT, LIES, POLICIES, ROUNDS, capture

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "capture", HERE.parent / "docs" / "trust.md"
BEGIN, END = "<!-- made by make bench-capture -->\n", "<!-- end -->\n"
OFTEN = {"evaluate_every": 5}
BEGIN_PRICE = "<!-- made by make bench-capture: the price -->\n"
PRICED = [("bursts", name) for name in ("uniform", "pow-d(candidates=50)", "e3cs(quota=0.5)", "oort", "bsfl")]
PRICED += [("phones", "rbcs-f")]  # it needs a context, which bursts does not have


def share(case: tuple[str, str, int, bool, int]) -> float:
    """One cell: policy, lie, liars, guarded, rounds."""
    name, lie, liars, guarded, rounds = case
    policy = POLICIES[name](COHORT)
    return capture(fp.Guard(policy) if guarded else policy, LIES[lie], liars, rounds=rounds)


def cells(names: list[str], rounds: int) -> dict[tuple[str, str, int, bool], float]:
    """The share of the places that liars take, by policy, lie, liars, guarded."""
    cases = [(n, lie, liars, on, rounds) for n in names for lie in LIES for liars in (10, 1) for on in (False, True)]
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(share, cases, chunksize=8)
        return {case[:4]: value for case, value in zip(cases, found, strict=True)}


def table(found: dict[tuple[str, str, int, bool], float], names: list[str], liars: int) -> Iterator[str]:
    """Shares in percent, bare and guarded, as Markdown."""
    yield "| policy | " + " | ".join(LIES) + " |"
    yield "| --- |" + " ---: |" * len(LIES)
    digits = 0 if liars > 1 else 1

    def cell(name: str, lie: str) -> str:
        bare, guarded = (f"{100 * found[name, lie, liars, on]:.{digits}f}" for on in (False, True))
        fair = 2.0 * liars / CLIENTS
        return f"**{bare}** {guarded}" if found[name, lie, liars, False] > fair else f"{bare} {guarded}"

    for name in names:
        yield f"| `{name}` | " + " | ".join(cell(name, lie) for lie in LIES) + " |"


def variants(name: str) -> list[str]:
    """A policy without a guard, with one, and with one that has no probation."""
    return [name, f"guard({name})", f"guard({name}, probation=0)"]


def price(world: str, name: str, rounds: int, seeds: list[int]) -> dict[str, Any]:
    """What a guard costs where nobody lies: best accuracy, and rounds to an accuracy that all three reach."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"cohort_size": COHORT, "rounds": rounds, "seeds": seeds, "out": folder, "train": OFTEN}
        results = fp.compare(variants(name), world=world, **options)
        curves = results.rounds().dropna(subset="accuracy")
    best = curves.pivot_table(index="round", columns=["policy", "seed"], values="accuracy").cummax()
    sides = sorted(dict.fromkeys(best.columns.get_level_values(0)), key=lambda text: ("Guard" in text, len(text)))
    assert len(sides) == 3, sides
    target = 0.95 * float(best.iloc[-1].min())
    reached = (best >= target).idxmax()
    last = np.array([best[side].iloc[-1].to_numpy() for side in sides])
    error = (last[1:] - last[0]).std(axis=1, ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.zeros(2)
    return {
        "world": world,
        "policy": name,
        "accuracy": last.mean(axis=1).tolist(),
        "error": error.tolist(),  # standard errors of the differences to the first, paired by seed
        "target": target,
        "rounds": [float(reached[side].mean()) for side in sides],
    }


def prices(rows: list[dict[str, Any]], rounds: int, seeds: list[int]) -> Iterator[str]:
    """As Markdown."""
    yield f"Best accuracy in {rounds} rounds, and rounds to 95% of the lowest best of a line's runs, if **all clients"
    yield f"are honest**: `synthetic(1, 1)`, 100 clients, cohorts of {COHORT}, means over {len(seeds)} seeds."
    yield "Differences are to the policy without a guard, ± two standard errors, paired by seed; bold: outside of that."
    yield ""
    yield "| world | policy | accuracy | with a guard | `probation=0` | rounds | with a guard | `probation=0` |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        bare, *guarded = row["accuracy"]
        cells = []
        for accuracy, error in zip(guarded, row["error"], strict=True):
            text = f"{accuracy - bare:+.3f} ± {2 * error:.3f}"
            cells.append(f"**{text}**" if abs(accuracy - bare) > 2 * error else text)
        took = " | ".join(f"{each:.0f}" for each in row["rounds"])
        yield f"| `{row['world']}` | `{row['policy']}` | {bare:.3f} | {cells[0]} | {cells[1]} | {took} |"


def page(found: dict[tuple[str, str, int, bool], float], names: list[str], rounds: int) -> Iterator[str]:
    """The tables of what is captured, with what to know about them."""
    worst = {
        (liars, on): 100 * max(v for key, v in found.items() if key[2:] == (liars, on))
        for liars in (1, 10)
        for on in (False, True)
    }
    yield f"Percent of all places in {rounds} rounds of {COHORT} which **ten of {CLIENTS} clients** get by lying;"
    yield "10 would be equal. First without a guard, then with `fp.Guard` and its defaults; bold: more than twice the"
    yield f"equal share. The highest is {worst[10, False]:.0f}% without and {worst[10, True]:.0f}% with a guard."
    yield ""
    yield "They report " + "; ".join(f"*{name}*: {lie.what}" for name, lie in LIES.items()) + "."
    yield ""
    yield from table(found, names, 10)
    yield ""
    yield f"**One client**, whose equal share is 1.0: at most {worst[1, False]:.1f}% without and {worst[1, True]:.1f}%"
    yield "with a guard."
    yield ""
    yield from table(found, names, 1)


def write(name: str, marks: tuple[str, str], lines: list[str], kept: dict[str, Any], settings: dict[str, Any]) -> None:
    """Put tables between their marks of the page, and the numbers beside the other results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    (RESULTS / ("manifest.json" if name == "capture" else f"{name}-manifest.json")).write_text(
        json.dumps(manifest(settings), indent=1) + "\n"
    )
    begin, end = marks
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end, 1)[1])


def measure_shares(quick: bool) -> None:
    """What liars take."""
    names = ["Uniform", "rpow-d(100)", "CSUCB"] if quick else list(POLICIES)
    rounds = 100 if quick else ROUNDS
    found = cells(names, rounds)
    kept = [{"policy": p, "lie": x, "liars": n, "guarded": on, "share": v} for (p, x, n, on), v in found.items()]
    lines = list(page(found, names, rounds))
    print(*lines, sep="\n", flush=True)
    if not quick:
        write("capture", (BEGIN, END), lines, {"shares": kept}, {"rounds": rounds})


def measure_price(quick: bool) -> None:
    """What a guard costs."""
    rounds, seeds = (40, [11]) if quick else (150, [11, 12, 13, 14])
    settings = {"rounds": rounds, "seeds": seeds}
    rows: list[dict[str, Any]] = []
    for pair in PRICED[:1] if quick else PRICED:
        rows.append(price(*pair, rounds, seeds))
        print(rows[-1], flush=True)
        if not quick:  # line by line: it takes a while
            write("price", (BEGIN_PRICE, END), list(prices(rows, rounds, seeds)), {"price": rows}, settings)
    print(*prices(rows, rounds, seeds), sep="\n", flush=True)


def main() -> None:
    """Measure, then write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few policies, short runs, nothing written")
    parser.add_argument("--only", choices=["shares", "price"], help="one of the two")
    options = parser.parse_args()
    if options.only != "price":
        measure_shares(options.quick)
    if options.only != "shares":
        measure_price(options.quick)


if __name__ == "__main__":
    main()
