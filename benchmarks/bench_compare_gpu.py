"""`fedpick compare` on a GPU: many runs in one compiled call (the default there) against one by one.

    python benchmarks/bench_compare_gpu.py [--out FOLDER] [--only synthetic|cifar10] [--rounds N] [--cifar FILE.npz]

Both commands are measured as complete processes: start, compilation, training, evaluation, files and tables. The rate
is the rounds of all runs divided by that time. The runs that are played one by one may be fewer rounds or seeds, since
they take long. Both must give similar results: the largest difference of a final accuracy is reported. `--cifar` reads
images (x, y, test_x, test_y) from a file if CIFAR-10 is not available; the training is E3CS's in both cases.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedpick as fp
from _manifest import manifest

POLICIES = [
    "uniform",
    "e3cs(quota=0)",
    "e3cs(quota=0.5)",
    "rpow-d(candidates=50)",
    "over-select(uniform, 1.5)",
    "fedcs",
]
WORKLOADS = {  # data, rounds of the stacked command, rounds and seeds of the one that plays runs one by one
    "synthetic": ("synthetic(1, 1)", 500, 150, 8),
    "cifar10": ("cifar10", 20, 20, 2),
}
STUDY = """
policy = {policies}
rounds = {rounds}
seeds = {seeds}
[data]
name = "{data}"
"""
FROM_FILE = """
partition = "primary-label(share=0.8, size=500)"
[train]
model = "cifar-cnn"
lr = 0.01
momentum = 0.9
batch = 40
steps = 0
spread_every = 0
"""


def run(data, rounds, seeds, folder, extra):
    """Seconds of one command, from its start to its end."""
    study = folder.with_suffix(".toml")
    text = STUDY.format(policies=json.dumps(POLICIES), rounds=rounds, seeds=seeds, data=data)
    study.write_text(text + (FROM_FILE if data.endswith(".npz") else ""))
    command = [sys.executable, "-m", "fedpick", "compare", str(study), "--out", str(folder), *extra]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return took


def accuracies(folder, rounds):
    """Test accuracy of every run after so many rounds."""
    frame = fp.load(folder).rounds()
    last = frame[(frame["round"] <= rounds) & frame["accuracy"].notna()].groupby(["policy", "seed"])["accuracy"].last()
    return last.sort_index()


def main():
    """Run the commands in turn and write the figures."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu")
    options.add_argument("--only", choices=list(WORKLOADS))
    options.add_argument("--cifar", type=Path)
    options.add_argument("--seeds", type=int, default=8, help="at most, of both commands")
    options.add_argument("--rounds", type=int, help="of both commands, for a trial")
    options.add_argument("--stacked", default="", help="options of the stacked command; none on a GPU")
    chosen = options.parse_args()
    file = chosen.out / "compare.json"
    found = json.loads(file.read_text())["figures"] if file.is_file() else {}
    for name in [chosen.only] if chosen.only else WORKLOADS:
        data, many, few, single = WORKLOADS[name]
        if name == "cifar10" and chosen.cifar is not None:
            data = str(chosen.cifar.resolve())
        many, few = chosen.rounds or many, chosen.rounds or few
        single = min(single, chosen.seeds)
        runs, singles = len(POLICIES) * chosen.seeds, len(POLICIES) * single
        with tempfile.TemporaryDirectory() as folder:
            together = run(data, many, chosen.seeds, Path(folder, "together"), shlex.split(chosen.stacked))
            print(f"{name}: {runs} runs of {many} rounds stacked in {together:.1f} s", flush=True)
            alone = run(data, few, single, Path(folder, "alone"), ["--workers", "1"])
            gap = (accuracies(Path(folder, "together"), few) - accuracies(Path(folder, "alone"), few)).abs().dropna()
            played = json.loads(next(Path(folder, "together").glob("runs/*/manifest.json")).read_text())["about"]
        rates = {"together": runs * many / together, "alone": singles * few / alone}
        found[name] = {
            "data": Path(data).name,
            "runs": {"together": runs, "alone": singles},
            "rounds": {"together": many, "alone": few},
            "seconds": {"together": together, "alone": alone},
            "rounds_per_second": rates,
            "ratio": rates["together"] / rates["alone"],
            "largest_difference_of_accuracy": float(gap.max()) if len(gap) else None,
            "median_difference_of_accuracy": float(gap.median()) if len(gap) else None,
            "device": played["device"],
            "played": played["played"],
            "manifest": manifest({"policies": POLICIES, "seeds": chosen.seeds, "world": "volatile"}),
        }
        print(json.dumps(found[name], indent=1), flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"figures": found}, indent=1) + "\n")
    (chosen.out / "compare.md").write_text(table(found))


def table(found):
    """The figures as a Markdown page."""
    lines = [
        "# `fedpick compare` on a GPU",
        "",
        "Six policies; whole commands, compilation and files included (`make bench-compare-gpu`).",
        "",
        "| data | device | runs stacked, one by one | stacked, rounds/s | one by one, rounds/s | ratio | "
        "accuracies differ by at most |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in found.values():
        rate, runs = each["rounds_per_second"], each["runs"]
        lines.append(
            f"| {each['data']} | {each['device']} | {runs['together']}, {runs['alone']} | "
            f"{rate['together']:.1f} | {rate['alone']:.1f} | "
            f"{each['ratio']:.1f}x | {each['largest_difference_of_accuracy']:.4f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
