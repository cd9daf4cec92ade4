"""How many places can false reports gain? Every policy and lie, 1 and 10 liars of 100, with and without Guard.

Also measures the price of a guard if all clients are honest, with seeds on which no default was chosen:
accuracy, and rounds to an accuracy. Writes the tables in docs/trust.md, and benchmarks/results/capture/.

    python benchmarks/bench_capture.py                          everything, about 40 minutes of one core
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
from arena import CLIENTS, COHORT, LIES, POLICIES, ROUNDS, capture
from fedpick._support import devices

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "capture", HERE.parent / "docs" / "trust.md"
BEGIN, END = "<!-- made by make bench-capture -->\n", "<!-- end -->\n"
BEGIN_PRICE = "<!-- made by make bench-capture: the price -->\n"
PRICED = [("bursts", name) for name in ("uniform", "pow-d(candidates=50)", "e3cs(quota=0.5)", "oort", "bsfl")]
PRICED += [("phones", "rbcs-f")]  # it needs a context, which bursts does not have
PRICE_ROUNDS, SEEDS, OFTEN = 150, range(31, 43), {"evaluate_every": 5}
GUARDS = ("{}", "guard({})", "guard({}, probation=0)")
SLOW = ("BSFL", "DivFL", "FedCor", "bsfl")  # begun first, so that no worker is left alone with them
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
Row = dict[str, Any]


def code() -> str:
    """A hash of what decides a result: rows of different code are not put into one table."""
    files = [HERE / "arena.py", *sorted((Path(fp.__file__).parent).glob("*/*.py"))]
    kept = [path for path in files if path.parent.name in ("benchmarks", "policies", "sampling", "solvers")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in kept)).hexdigest()[:12]


def share(job: Row) -> Row:
    """One cell: the share of the places that liars take."""
    policy = POLICIES[job["policy"]](COHORT)
    guarded = fp.Guard(policy) if job["guarded"] else policy
    return {**job, "share": capture(guarded, LIES[job["lie"]], job["liars"], rounds=job["rounds"])}


def train(job: Row) -> Row:
    """One run of honest clients: the rounds at which the model was judged, and its accuracy."""
    from fedpick.experiment.plan import Experiment

    (config,) = Experiment(
        policy=GUARDS[job["guard"]].format(job["policy"]),
        world=job["world"],
        cohort_size=COHORT,
        rounds=job["rounds"],
        seeds=[job["seed"]],
        data="synthetic(1, 1)",
        train=OFTEN,
    ).configs()
    found = {each.round: each.metrics.get("accuracy", np.nan) for each in config.build().rounds(job["rounds"])}
    judged = {round: float(value) for round, value in found.items() if not np.isnan(value)}
    return {**job, "judged": list(judged), "accuracy": [round(value, 5) for value in judged.values()]}


def share_jobs(names: Iterable[str], rounds: int) -> list[Row]:
    """All cells of these policies."""
    return [
        {"policy": name, "lie": lie, "liars": liars, "guarded": on, "rounds": rounds}
        for name in names
        for lie in LIES
        for liars in (10, 1)
        for on in (False, True)
    ]


def price_jobs(pairs: Iterable[tuple[str, str]], rounds: int, seeds: Iterable[int]) -> list[Row]:
    """All runs of these worlds and policies."""
    return [
        {"world": world, "policy": name, "guard": guard, "seed": seed, "rounds": rounds}
        for world, name in pairs
        for guard in range(len(GUARDS))
        for seed in seeds
    ]


def key(row: Row) -> str:
    """What a row is about, without what was found."""
    names = ("world", "policy", "lie", "liars", "guarded", "guard", "seed", "rounds")
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


def page(rows: list[Row]) -> Iterator[str]:
    """The tables of what is captured, with what to know about them."""
    found = {(row["policy"], row["lie"], row["liars"], row["guarded"]): row["share"] for row in rows}
    cells = 4 * len(LIES)
    names = [name for name in POLICIES if sum(row["policy"] == name for row in rows) == cells]
    worst = {
        (liars, on): 100 * max(v for key, v in found.items() if key[2:] == (liars, on) and key[0] in names)
        for liars in (1, 10)
        for on in (False, True)
    }
    yield f"Percent of all places in {rows[0]['rounds']} rounds of {COHORT} that **ten of {CLIENTS} clients** get by"
    yield "false reports; 10 would be equal. First without a guard, then with `fp.Guard` and its defaults; bold: more"
    yield f"than twice the equal share. The highest is {worst[10, False]:.0f}% without and {worst[10, True]:.0f}% with"
    yield "a guard."
    missing = [f"`{name}`" for name in POLICIES if name not in names]
    if missing:
        yield f"Not measured yet: {', '.join(missing)}."
    yield ""
    yield "They report " + "; ".join(f"*{name}*: {lie.what}" for name, lie in LIES.items()) + "."
    yield ""
    yield from table(found, names, 10)
    yield ""
    yield f"**One client**, whose equal share is 1.0: at most {worst[1, False]:.1f}% without and {worst[1, True]:.1f}%"
    yield "with a guard."
    yield ""
    yield from table(found, names, 1)


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
        "accuracy": last.mean(axis=1).tolist(),
        "error": (spread / np.sqrt(len(seeds))).tolist(),  # standard errors of the differences, paired by seed
        "target": target,
        "rounds": np.mean(reached, axis=1).tolist(),
        "seeds": seeds,
    }


def priced(runs: list[Row]) -> Iterator[Row]:
    """The lines of the table of prices whose runs are complete."""
    for world, name in PRICED:
        own = [run for run in runs if (run["world"], run["policy"]) == (world, name)]
        complete = {run["seed"] for run in own}
        for guard in range(len(GUARDS)):
            complete &= {run["seed"] for run in own if run["guard"] == guard}
        if complete:
            yield price([run for run in own if run["seed"] in complete])


def prices(rows: list[Row], rounds: int) -> Iterator[str]:
    """As Markdown."""
    counts = sorted({len(row["seeds"]) for row in rows})
    yield f"Best accuracy in {rounds} rounds, and rounds to 95% of the lowest best of a line's runs, if **all clients"
    yield f"are honest**: `synthetic(1, 1)`, 100 clients, cohorts of {COHORT}, means over"
    yield f"{' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} seeds. Differences are to the policy"
    yield "without a guard, ± two standard errors, paired by seed; bold: outside of that."
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
    known = [*POLICIES, *(name for _, name in PRICED)]
    unknown = [name for name in options.policies or () if name not in known]
    if unknown:
        parser.error(f"unknown policy {unknown[0]!r}; there are: {', '.join(known)}")
    wanted = options.policies or (["Uniform", "rpow-d(100)", "CSUCB", "uniform"] if options.quick else known)
    names = [name for name in POLICIES if name in wanted] if options.only != "price" else []
    pairs = [pair for pair in PRICED if pair[1] in wanted] if options.only != "shares" else []
    shares = share_jobs(names, 100 if options.quick else ROUNDS)
    runs = price_jobs(pairs, 40 if options.quick else PRICE_ROUNDS, list(SEEDS)[:2] if options.quick else SEEDS)
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
