"""What can false reports gain? Places and weight under every policy, by every lie of 1 and 10 of 100, and with Guard.

Also measures the price of a guard if all clients are honest, with seeds on which no default was chosen:
accuracy, and rounds to an accuracy. Writes the tables in docs/trust.md, and benchmarks/results/capture/.

    python benchmarks/bench_capture.py                          everything, about 15 minutes of one core
    python benchmarks/bench_capture.py --only shares            or price
    python benchmarks/bench_capture.py --policies Oort DivFL --out FOLDER       a part; on any machine, in any order
    python benchmarks/bench_capture.py --merge FOLDER ...       parts and what is stored, into tables and results
    python benchmarks/bench_capture.py --quick                  few policies and short runs, printed and not written

Each job is kept as a line of FOLDER/shares.jsonl or price.jsonl; jobs that are there already are not done again. Needs
fedpick, numpy, scipy and numba; for the price also jax and optax.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

import fedpick as fp
from _manifest import manifest
from arena import AT, CLIENTS, COHORT, LIES, POLICIES, ROUNDS, capture
from fedpick._support import devices
from fedpick.server.settings import Limits

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "capture", HERE.parent / "docs" / "trust.md"
BEGIN, END = "<!-- made by make bench-capture -->\n", "<!-- end -->\n"
BEGIN_PRICE = "<!-- made by make bench-capture: the price -->\n"
UNEQUAL, ALIKE = "synthetic(1, 1)", "synthetic(1, 1, size=log-normal(sigma=0.5, mean=200))"  # in size
PRICED = [("bursts", name, UNEQUAL) for name in ("uniform", "pow-d(candidates=50)", "e3cs(quota=0.5)", "oort", "bsfl")]
PRICED += [("phones", "rbcs-f", UNEQUAL)]  # it needs a context, which bursts does not have
PRICED += [("bursts", name, ALIKE) for name in ("uniform", "e3cs(quota=0.5)", "bsfl")]
PRICE_ROUNDS, SEEDS, OFTEN = 150, range(31, 39), {"evaluate_every": 5}
LIMIT = "cap=1000, probation=0, weight=30"  # of sizes alone: as a session's, but beside the cohort's median
GUARDS = ("{}", "guard({})", "guard({}, weight=None)", f"guard({{}}, {LIMIT})")
SLOW = ("BSFL", "DivFL", "FedCor", "bsfl")  # begun first, so that no worker is left alone with them
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
DEFENCES = ("none", "sizes", "guard")  # nothing; the session's limit of sizes; this limit and a guard
Row = dict[str, Any]
Found = dict[tuple[str, str, int, str], Row]  # by policy, lie, number of liars and defence


def code() -> str:
    """A hash of what decides a result: rows of different code are not put into one table."""
    files = [HERE / "arena.py", *sorted((Path(fp.__file__).parent).glob("*/*.py"))]
    kept = [path for path in files if path.parent.name in ("benchmarks", "policies", "sampling", "solvers")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in kept)).hexdigest()[:12]


def share(job: Row) -> Row:
    """One cell: what liars have after some rounds."""
    policy, defence = POLICIES[job["policy"]](COHORT), job["defence"]
    guarded = fp.Guard(policy) if defence == "guard" else policy
    at = [round for round in AT if round <= job["rounds"]]
    limits = None if defence == "none" else Limits()
    found = capture(guarded, LIES[job["lie"]], job["liars"], at=at, limits=limits)
    shares = {what: [round(getattr(found[each], what), 5) for each in at] for what in ("places", "weight")}
    return {**job, "at": at, **shares}


def train(job: Row) -> Row:
    """One run of honest clients: the rounds at which the model was judged, and its accuracy."""
    from fedpick.experiment.plan import Experiment

    (config,) = Experiment(
        policy=GUARDS[job["guard"]].format(job["policy"]),
        world=job["world"],
        cohort_size=COHORT,
        rounds=job["rounds"],
        seeds=[job["seed"]],
        data=job["data"],
        train=OFTEN,
    ).configs()
    found = {each.round: each.metrics.get("accuracy", np.nan) for each in config.build().rounds(job["rounds"])}
    judged = {round: float(value) for round, value in found.items() if not np.isnan(value)}
    return {**job, "judged": list(judged), "accuracy": [round(value, 5) for value in judged.values()]}


def share_jobs(names: Iterable[str], rounds: int) -> list[Row]:
    """All cells of these policies."""
    return [
        {"policy": name, "lie": lie, "liars": liars, "defence": defence, "rounds": rounds}
        for name in names
        for lie in LIES
        for liars in (10, 1)
        for defence in DEFENCES
        if defence != "sizes" or lie == "big"  # the limit of sizes changes nothing of the others
    ]


def price_jobs(lines: Iterable[tuple[str, str, str]], rounds: int, seeds: Iterable[int]) -> list[Row]:
    """All runs of these worlds, policies and data."""
    return [
        {"world": world, "policy": name, "data": data, "guard": guard, "seed": seed, "rounds": rounds}
        for world, name, data in lines
        for guard in range(len(GUARDS))
        for seed in seeds
    ]


def key(row: Row) -> str:
    """What a row is about, without what was found."""
    names = ("world", "policy", "data", "lie", "liars", "defence", "guard", "seed", "rounds")
    return json.dumps([row[name] for name in names if name in row])


def read(path: Path) -> list[Row]:
    """The rows of a part; a line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: left out a line that is no JSON: {line[:60]}", file=sys.stderr)
    return rows


def carry_out(what: Any, jobs: list[Row], path: Path, workers: int) -> list[Row]:
    """The rows of these jobs, in their order; each new one is added to the file as soon as it is there."""
    now = code()
    done = {key(row): row for row in read(path) if row["code"] == now}
    missing = sorted((job for job in jobs if key(job) not in done), key=lambda job: not job["policy"].startswith(SLOW))
    print(f"{len(missing)} of {len(jobs)} jobs to do, into {path}", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = manifest({"rounds": jobs[0]["rounds"], "workers": workers, "code": now})
    path.with_name(f"{path.stem}-manifest.json").write_text(json.dumps(about, indent=1) + "\n")
    os.environ.update(ONE | devices.environment())  # read by the workers when they import NumPy and JAX
    spawn = multiprocessing.get_context("spawn")
    with path.open("a") as file, ProcessPoolExecutor(max(1, min(workers, len(missing))), mp_context=spawn) as pool:
        for number, each in enumerate(as_completed([pool.submit(what, job) for job in missing]), 1):
            row = {**each.result(), "code": now}
            file.write(json.dumps(row) + "\n")
            file.flush()
            done[key(row)] = row
            if number % 50 == 0:
                print(f"{number} of {len(missing)}", flush=True)
    return [done[key(job)] for job in jobs]


def cells(found: Found, case: tuple[str, str, int], digits: int, what: str = "places") -> str:
    """Without and with a guard, in percent after the last round; bold: more than twice the equal share."""
    free, kept = (100 * found[(*case, defence)][what][-1] for defence in ("none", "guard"))
    bare = f"{free:.{digits}f}"
    return f"{f'**{bare}**' if free > 2 * 100 * case[2] / CLIENTS else bare} {kept:.{digits}f}"


def table(found: Found, names: list[str], liars: int) -> Iterator[str]:
    """The places of so many liars by policy and lie, and the most weight that they get by any."""
    yield "| policy | " + " | ".join(LIES) + " | weight |"
    yield "| --- |" + " ---: |" * (len(LIES) + 1)
    digits = 0 if liars > 1 else 1
    for name in names:
        row = [cells(found, (name, lie, liars), digits) for lie in LIES]
        free, kept = (
            100 * max(found[name, lie, liars, defence]["weight"][-1] for lie in LIES) for defence in ("none", "guard")
        )
        bare = f"{free:.{digits}f}"
        row.append(f"{f'**{bare}**' if free > 2 * 100 * liars / CLIENTS else bare} {kept:.{digits}f}")
        yield f"| `{name}` | " + " | ".join(row) + " |"


def declared(found: Found, names: list[str]) -> Iterator[str]:
    """What a false size gains: the weight without a limit, with the session's, and with a guard."""
    yield "| policy | ten: no limit | size limit | and a guard | one: no limit | size limit | and a guard |"
    yield "| --- |" + " ---: |" * 6
    for name in names:
        row = [
            f"{100 * found[name, 'big', liars, defence]['weight'][-1]:.{0 if liars > 1 else 1}f}"
            for liars in (10, 1)
            for defence in DEFENCES
        ]
        yield f"| `{name}` | " + " | ".join(row) + " |"


def highest(found: Found, names: list[str]) -> Iterator[str]:
    """The most that liars get under any policy by any lie, after some rounds."""
    yield "| rounds | clients | places | with a guard | weight | with a guard |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    at = next(iter(found.values()))["at"]
    for place, rounds in enumerate(at):
        for liars in (10, 1):
            row = []
            for what in ("places", "weight"):
                for defence in ("none", "guard"):
                    of = {(n, lie): found[n, lie, liars, defence][what][place] for n in names for lie in LIES}
                    name, lie = max(of, key=lambda each: of[each])
                    row.append(f"{100 * of[name, lie]:.{0 if liars > 1 else 1}f} (`{name}`, *{lie}*)")
            yield f"| {rounds} | {liars} | " + " | ".join(row) + " |"


def page(rows: list[Row]) -> Iterator[str]:
    """The tables as Markdown."""
    found = {(row["policy"], row["lie"], row["liars"], row["defence"]): row for row in rows}
    count = len(share_jobs([""], 0))
    names = [name for name in POLICIES if sum(row["policy"] == name for row in rows) == count]
    yield f"Percent of all places in {rows[0]['rounds']} rounds of {COHORT} that **ten of {CLIENTS} clients** get by"
    yield "false reports; 10 would be equal. First without a guard, and sizes as declared; then with `fp.Guard` and the"
    yield "session's limit of sizes, both with their defaults; bold: more than twice the equal share. The last column"
    yield "is the largest share of the weights in the model's changes, whatever they report; it can be above 100 where"
    yield "a policy's weights are used as they are."
    missing = [f"`{name}`" for name in POLICIES if name not in names]
    if missing:
        yield f"Not measured yet: {', '.join(missing)}."
    yield ""
    yield "They report " + "; ".join(f"*{name}*: {lie.what}" for name, lie in LIES.items()) + "."
    yield ""
    yield from table(found, names, 10)
    yield ""
    yield "**One client**, whose equal share is 1.0:"
    yield ""
    yield from table(found, names, 1)
    yield ""
    yield "**After how many rounds.** The most that liars get under any of these policies, by any of these reports, in"
    yield "percent:"
    yield ""
    yield from highest(found, names)
    yield ""
    yield "**A false size** (*big*), percent of the weight: if sizes are believed, with the session's limit, and with"
    yield "the limit and a guard:"
    yield ""
    yield from declared(found, names)


def price(runs: list[Row]) -> Row:
    """What a guard costs one policy: best accuracy, and rounds to an accuracy that all runs reach, by seed."""
    seeds = sorted({run["seed"] for run in runs})
    best = {(run["guard"], run["seed"]): np.maximum.accumulate(run["accuracy"]) for run in runs}
    judged = np.array(runs[0]["judged"])
    last = np.array([[best[guard, seed][-1] for seed in seeds] for guard in range(len(GUARDS))])
    target = 0.95 * float(last.min())
    reached = [[float(judged[np.argmax(best[guard, s] >= target)]) for s in seeds] for guard in range(len(GUARDS))]
    spread = (last[1:] - last[0]).std(axis=1, ddof=1) if len(seeds) > 1 else np.zeros(len(GUARDS) - 1)
    return {
        "world": runs[0]["world"],
        "policy": runs[0]["policy"],
        "data": runs[0]["data"],
        "accuracy": last.mean(axis=1).tolist(),
        "error": (spread / np.sqrt(len(seeds))).tolist(),  # standard errors of the differences, paired by seed
        "target": target,
        "rounds": np.mean(reached, axis=1).tolist(),
        "seeds": seeds,
    }


def priced(runs: list[Row]) -> Iterator[Row]:
    """The lines of the table of prices whose runs are complete."""
    for line in PRICED:
        own = [run for run in runs if (run["world"], run["policy"], run["data"]) == line]
        complete = {run["seed"] for run in own}
        for guard in range(len(GUARDS)):
            complete &= {run["seed"] for run in own if run["guard"] == guard}
        if complete:
            yield price([run for run in own if run["seed"] in complete])


def prices(rows: list[Row], rounds: int) -> Iterator[str]:
    """As Markdown."""
    counts = sorted({len(row["seeds"]) for row in rows})
    yield f"Best accuracy in {rounds} rounds, and rounds to 95% of the lowest best of a line's runs, if **all clients"
    yield f"are honest**: `{UNEQUAL}`, 100 clients whose sizes are log-normal with sigma 2, and for *alike* with sigma"
    yield f"0.5; cohorts of {COHORT}, means over {' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} seeds."
    yield "Differences are to the policy without a guard, ± two standard errors, paired by seed; bold: outside of that."
    yield "The last of three is the limit of sizes alone, 30 times the median of the cohort."
    yield ""
    three = "with a guard | `weight=None` | size limit"
    yield f"| world | policy | accuracy | {three} | rounds | {three} |"
    yield "| --- | --- |" + " ---: |" * 8
    for row in rows:
        bare, *guarded = row["accuracy"]
        cells = []
        for accuracy, error in zip(guarded, row["error"], strict=True):
            text = f"{accuracy - bare:+.3f} ± {2 * error:.3f}"
            cells.append(f"**{text}**" if abs(accuracy - bare) > 2 * error else text)
        took = " | ".join(f"{each:.0f}" for each in row["rounds"])
        world = f"`{row['world']}`" + (", alike" if row["data"] == ALIKE else "")
        yield f"| {world} | `{row['policy']}` | {bare:.3f} | {' | '.join(cells)} | {took} |"


def write(name: str, marks: tuple[str, str], lines: list[str], kept: Row, measured: list[Row]) -> None:
    """Put tables between their marks of the page, and the numbers beside the other results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    head = {each: value for each, value in kept.items() if each != "rows"}
    rows = ",\n".join("  " + json.dumps(row) for row in kept["rows"])  # a line each, so that changes can be read
    before = json.dumps(head, indent=1)[:-2] + "," if head else "{"
    (RESULTS / f"{name}.json").write_text(f'{before}\n "rows": [\n{rows}\n ]\n}}\n')
    (RESULTS / f"{name}-manifest.json").write_text(json.dumps(measured, indent=1) + "\n")
    begin, end = marks
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end, 1)[1])


def merge(folders: list[Path]) -> None:
    """Add the rows of parts to what is stored, and write the tables. Stored rows of other code are dropped."""
    for part, name in (("shares.jsonl", "capture"), ("price.jsonl", "price")):
        new = [row for folder in folders for row in read(folder / part)]
        if not new:
            continue
        codes = sorted({row["code"] for row in new})
        if len(codes) > 1:
            sys.exit(f"{part}: rows of different code, {', '.join(codes)}: measure again those that are older")
        kept = json.loads((RESULTS / f"{name}.json").read_text()).get("rows", []) if RESULTS.exists() else []
        old = [row for row in kept if row["code"] == codes[0]]
        if len(old) < len(kept):
            print(f"{name}.json: dropped {len(kept) - len(old)} rows of other code")
        rows = sorted({key(row): row for row in [*old, *new]}.values(), key=key)
        about = [folder / part.replace(".jsonl", "-manifest.json") for folder in folders]
        measured = [json.loads(path.read_text()) for path in about if path.exists()]
        if name == "capture":
            write(name, (BEGIN, END), list(page(rows)), {"rows": rows}, measured)
        else:
            lines = list(priced(rows))
            text = list(prices(lines, rows[0]["rounds"])) if lines else ["Not measured yet."]
            write(name, (BEGIN_PRICE, END), text, {"price": lines, "rows": rows}, measured)
        print(f"{name}: {len(rows)} rows, into {PAGE}")


def main() -> None:
    """Measure, then write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few policies, short runs, nothing written")
    parser.add_argument("--only", choices=["shares", "price"], help="one of the two")
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="only these: names of a table's lines")
    parser.add_argument("--workers", type=int, default=devices.cores(), help="processes (one per core)")
    parser.add_argument("--out", type=Path, help="keep the jobs' results in this folder, and write no tables")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FOLDER", help="measure nothing; write the tables")
    options = parser.parse_args()
    if options.merge:
        merge(options.merge)
        return
    known = [*POLICIES, *(name for _, name, _ in PRICED)]
    unknown = [name for name in options.policies or () if name not in known]
    if unknown:
        parser.error(f"unknown policy {unknown[0]!r}; there are: {', '.join(known)}")
    wanted = options.policies or (["Uniform", "rpow-d(100)", "CSUCB", "uniform"] if options.quick else known)
    names = [name for name in POLICIES if name in wanted] if options.only != "price" else []
    lines = [line for line in PRICED if line[1] in wanted] if options.only != "shares" else []
    shares = share_jobs(names, 100 if options.quick else ROUNDS)
    runs = price_jobs(lines, 40 if options.quick else PRICE_ROUNDS, list(SEEDS)[:2] if options.quick else SEEDS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        if shares:
            print(*page(carry_out(share, shares, folder / "shares.jsonl", options.workers)), sep="\n", flush=True)
        if runs:
            rows = carry_out(train, runs, folder / "price.jsonl", options.workers)
            print(*prices(list(priced(rows)), rows[0]["rounds"]), sep="\n", flush=True)
        if options.out is None and not options.quick:
            merge([folder])


if __name__ == "__main__":
    main()
