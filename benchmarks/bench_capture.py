"""How many places can false reports gain? Every policy and lie, 1 and 10 liars of 100, with and without Guard.

Also measures the price of a guard if all clients are honest: rounds and simulated hours to an accuracy. Writes the
tables in docs/trust.md, and benchmarks/results/capture/.

    python benchmarks/bench_capture.py            everything, about ten minutes on two cores
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
PRICED = ("uniform", "e3cs(quota=0.5)", "pow-d(candidates=50)", "rpow-d(candidates=50)", "active-fl", "bsfl", "fedgs")


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


def price(policies: tuple[str, ...], rounds: int, seeds: int) -> list[dict[str, Any]]:
    """What a guard costs where nobody lies: accuracy, and rounds and hours to an accuracy that both reach."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in policies:
            pair = [name, f"guard({name})"]
            results = fp.compare(
                pair, world="volatile", cohort_size=10, rounds=rounds, seeds=seeds, out=folder, train=OFTEN
            )
            curves = results.rounds()
            metric = curves.pivot_table(index="round", columns=["policy", "seed"], values="accuracy")
            clock = curves.pivot_table(index="round", columns=["policy", "seed"], values="clock")
            best = metric.cummax()
            target = 0.95 * float(best.iloc[-1].min())  # all of them reach it
            reached = (best >= target).idxmax()
            hours = {key: float(clock.loc[at, key]) / 3600 for key, at in reached.items()}
            order = list(dict.fromkeys(key[0] for key in reached.index))
            sides = sorted(order, key=lambda text: text.lower().startswith("guard"))
            rows.append(
                {
                    "policy": name,
                    "target": target,
                    "accuracy": [float(best[side].iloc[-1].mean()) for side in sides],
                    "rounds": [float(np.mean([reached[key] for key in reached.index if key[0] == s])) for s in sides],
                    "hours": [float(np.mean([hours[key] for key in reached.index if key[0] == s])) for s in sides],
                }
            )
            print(rows[-1], flush=True)
    return rows


def prices(rows: list[dict[str, Any]]) -> Iterator[str]:
    """As Markdown."""
    yield "| policy | best accuracy | accuracy reached | rounds to it | simulated hours to it |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in rows:
        a, r, h = row["accuracy"], row["rounds"], row["hours"]
        yield (
            f"| `{row['policy']}` | {a[0]:.3f} {a[1]:.3f} | {row['target']:.3f} | {r[0]:.0f} {r[1]:.0f} | "
            f"{h[0]:.2f} {h[1]:.2f} |"
        )


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


def write(lines: list[str], kept: dict[str, Any], settings: dict[str, Any]) -> None:
    """Put the tables between the marks of the page, and the numbers beside the other results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "capture.json").write_text(json.dumps(kept, indent=1) + "\n")
    (RESULTS / "manifest.json").write_text(json.dumps(manifest(settings), indent=1) + "\n")
    text = PAGE.read_text()
    PAGE.write_text(text.split(BEGIN)[0] + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + text.split(END)[1])


def main() -> None:
    """Measure, then write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three policies, short runs, nothing written")
    options = parser.parse_args()
    names = ["Uniform", "rpow-d(100)", "CSUCB"] if options.quick else list(POLICIES)
    rounds, played, seeds = (100, 40, 1) if options.quick else (ROUNDS, 200, 3)
    settings = {"rounds": rounds, "rounds of training": played, "seeds": seeds}
    found = cells(names, rounds)
    kept = [{"policy": p, "lie": x, "liars": n, "guarded": on, "share": v} for (p, x, n, on), v in found.items()]
    lines = list(page(found, names, rounds))
    print(*lines, sep="\n", flush=True)
    if not options.quick:
        write(lines, {"shares": kept}, settings)
    rows = price(PRICED[:1] if options.quick else PRICED, played, seeds)
    lines += [
        "",
        f"**The price** if all are honest: world `volatile`, cohorts of 10, `synthetic(1, 1)`, {played} rounds,",
        f"means of {seeds} seeds, first without a guard, then with. The accuracy to reach is 95% of the lowest best",
        "accuracy among the runs of a pair.",
        "",
        *prices(rows),
    ]
    print(*prices(rows), sep="\n")
    if not options.quick:
        write(lines, {"shares": kept, "price": rows}, settings)


if __name__ == "__main__":
    main()
