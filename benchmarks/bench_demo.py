"""How long does a comparison take from the command to its table? Six policies, 3 seeds, 200 rounds each, on the CPU.

Logistic regression on Synthetic(1, 1), 20 of 100 clients, which train for 1 to 4 epochs of 30 steps and may be late or
fail. The comparison is run with an empty folder for compiled code, then again with the one that the first run filled.
Every process of a comparison makes its data once; what that takes, and what it would take to get them from a file that
the first process wrote, is measured in fresh processes. Writes table and manifest to benchmarks/results/demo/.

    python benchmarks/bench_demo.py               two comparisons
    python benchmarks/bench_demo.py --quick       of 20 rounds: a smoke test
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _manifest import manifest

RESULTS = Path(__file__).parent / "results" / "demo"
POLICIES = [
    "uniform",
    "e3cs(quota=0)",
    "e3cs(quota=0.5)",
    "rpow-d(candidates=50)",
    "over-select(uniform, 1.5)",
    "fedcs",
]
GOALS = {"nothing compiled": 25.0, "all compiled": 12.0}  # seconds on two idle cores

DATA = ("synthetic(1, 1)", "digits", "fashion-mnist")
REPEATS = 5
MAKING = """
import json, sys, tempfile, time
import numpy as np
from fedpick.data.settings import build_data
started = time.process_time()
federated = build_data({"name": sys.argv[1]}, 100)
made = time.process_time() - started
data = federated.dataset
arrays = [data.x, data.y, data.test_x, data.test_y, federated.examples, federated.starts]
with tempfile.TemporaryFile() as file:
    for array in arrays:
        np.save(file, array)
    file.seek(0)
    started = time.process_time()
    for array in arrays:
        assert np.load(file).nbytes == array.nbytes
    print(json.dumps([made, time.process_time() - started]))
"""


def making(name: str) -> dict[str, list[float]]:
    """Processor seconds to make a data set of 100 clients, and to read its arrays from a file; each time anew."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run([sys.executable, "-c", MAKING, name], check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return {"made": [made for made, _ in found], "read": [read for _, read in found]}


def shown(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def compare(rounds: int, compiled: Path) -> dict[str, float]:
    """Wall-clock and processor seconds of one comparison, and the machine's load when it began."""
    command = [sys.executable, "-m", "fedpick", "compare", "--world", "volatile", "--rounds", str(rounds)]
    command += ["--seeds", "3", *(part for policy in POLICIES for part in ("-p", policy))]
    settings = os.environ | {"FEDPICK_COMPILED": str(compiled), "JAX_PLATFORMS": "cpu"}
    settings["NUMBA_CACHE_DIR"] = str(compiled / "numba")
    with tempfile.TemporaryDirectory() as folder:
        load, before = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run([*command, "--out", folder], env=settings, check=True, capture_output=True)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": wall, "processor": used, "load": load}


def main() -> None:
    """Measure, then write table and manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 rounds: a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for table and manifest")
    options = parser.parse_args()
    rounds = 20 if options.quick else 200
    with tempfile.TemporaryDirectory() as compiled:
        found = {name: compare(rounds, Path(compiled)) for name in GOALS}
    cores = len(os.sched_getaffinity(0))
    data = {name: making(name) for name in DATA}
    lines = [
        f"{3 * len(POLICIES)} runs of {rounds} rounds, from the command to the table, on {cores} cores.",
        "",
        "| compiled code | seconds (goal, idle) | processor seconds | load of the machine before |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, row in found.items():
        lines.append(
            f"| {name} | {row['seconds']:.1f} ({GOALS[name]:g}) | {row['processor']:.1f} | {row['load']:.1f} |"
        )
    lines += [
        "",
        f"The comparison's {cores + 1} processes each make the data, once. Processor seconds for that, and for reading "
        f"the same arrays from a file instead, median and quartiles of {REPEATS} fresh processes:",
        "",
        "| data | made | read |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {shown(times['made'])} | {shown(times['read'])} |" for name, times in data.items()),
    ]
    saved = cores * statistics.median(data[DATA[0]]["made"]) / found["all compiled"]["processor"]
    lines += [
        "",
        f"To make the data of this comparison once and hand them over could save at most {saved:.1%} of its processor "
        "time, and is not done.",
    ]
    text = "\n".join(lines) + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "demo.md").write_text(text)
    settings = {"quick": options.quick, "rounds": rounds, "policies": POLICIES, "found": found, "data": data}
    (options.out / "manifest.json").write_text(json.dumps(manifest(settings), indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
