"""What does a stranger wait for? Clones the repository, runs its make targets there, and writes times and disk.

    python benchmarks/bench_clone.py                  make setup and make demo
    python benchmarks/bench_clone.py --test           and make test
    python benchmarks/bench_clone.py --readme         and the README's lines
    python benchmarks/bench_clone.py --stored --readme    only these, from the stored results

Processor seconds count all processes below; seconds of the clock depend on what else the machine does and on how fast
packages are downloaded. Writes table and manifest to benchmarks/results/clone/.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

from _manifest import manifest

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "clone"


def megabytes(folder: Path) -> float:
    """Size of all files below a folder, on disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) / 1e6


def timed(target: str, folder: Path) -> dict[str, float]:
    """Seconds and processor seconds of a make target."""
    before, load = resource.getrusage(resource.RUSAGE_CHILDREN), os.getloadavg()[0]
    began = time.perf_counter()
    subprocess.run(["make", target], cwd=folder, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": used, "load": load}


def sentences(found: dict[str, dict]) -> str:
    """What was measured, in words; seconds of the clock only if the machine had nothing else to do."""
    said = []
    for name, row in found["targets"].items():
        idle = row["load"] < 0.5
        said.append(
            f"`make {name}` {row['seconds']:.0f} s"
            if idle
            else f"`make {name}` {row['processor']:.0f} s of processor time"
        )
    disk = found["megabytes"]
    text = (
        f"Measured in a fresh clone on {found['cores']} cores: {', '.join(said)}. On disk: the checkout "
        f"{disk['checkout']:.0f} MB, its environment with all tools for development "
        f"{disk['environment'] / 1000:.1f} GB, the runs of the demo {disk['demo']:.0f} MB."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def write_readme(found: dict[str, dict]) -> None:
    """Replace the README's lines."""
    page = ROOT / "README.md"
    pattern = re.compile(r"(<!-- clone:begin[^>]*-->).*?(<!-- clone:end -->)", re.S)
    page.write_text(pattern.sub(lambda old: f"{old[1]}\n\n{sentences(found)}\n\n{old[2]}", page.read_text()))


def main() -> None:
    """Measure, then write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="make test, too")
    parser.add_argument("--readme", action="store_true", help="write the README's lines")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stored", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if options.stored:
        write_readme(json.loads((options.out / "clone.json").read_text()))
        return
    targets = ["setup", "demo", *(["test"] if options.test else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fedpick"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(folder)], check=True)
        rows = {target: timed(target, folder) for target in targets}
        disk = {"environment": megabytes(folder / ".venv"), "demo": megabytes(folder / "fedpick-runs")}
        disk["checkout"] = megabytes(folder) - disk["environment"] - disk["demo"]
    lines = ["| command | seconds | processor seconds | load of the machine before |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| `make {name}` | {row['seconds']:.0f} | {row['processor']:.0f} | {row['load']:.1f} |"
        for name, row in rows.items()
    ]
    lines += [
        "",
        f"Disk: checkout {disk['checkout']:.0f} MB, environment in .venv {disk['environment'] / 1000:.1f} GB, "
        f"runs of the demo {disk['demo']:.0f} MB. Measured on {os.cpu_count()} cores.",
    ]
    text = "\n".join(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "clone.md").write_text(text + "\n")
    found = {"targets": rows, "megabytes": disk, "cores": os.cpu_count()}
    (options.out / "clone.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "manifest.json").write_text(json.dumps(manifest({"targets": targets}), indent=1) + "\n")
    if options.readme:
        write_readme(found)
    print(text)


if __name__ == "__main__":
    main()
