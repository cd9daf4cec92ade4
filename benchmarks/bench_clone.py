"""What does a stranger wait for? Clones the repository, runs its make targets there, and writes times and disk.

    python benchmarks/bench_clone.py                  make demo, with its set-up apart
    python benchmarks/bench_clone.py --test           and make test, with what its set-up adds apart
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


def took(row: dict[str, float]) -> str:
    """Seconds of the clock only if the machine had nothing else to do, else of processor time."""
    return f"{row['seconds']:.0f} s" if row["load"] < 0.5 else f"{row['processor']:.0f} s of processor time"


def gigabytes(megabytes: float) -> str:
    """A size in words."""
    return f"{megabytes / 1000:.1f} GB"


def sentences(found: dict[str, dict]) -> str:
    """What was measured, in words."""
    targets, disk = found["targets"], found["megabytes"]
    text = (
        f"Measured in a fresh clone on {found['cores']} cores: `make demo` sets up {gigabytes(disk['users'])} in "
        f"{took(targets['setup-demo'])} and then takes {took(targets['demo'])}. "
    )
    if "test" in targets:
        text += (
            f"`make test` adds {gigabytes(disk['developers'] - disk['users'])} of tools for development in "
            f"{took(targets['setup'])} and then takes {took(targets['test'])}. "
        )
    text += f"On disk, the checkout has {disk['checkout']:.0f} MB and the runs of the demo {disk['demo']:.0f} MB."
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
    rows, disk = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fedpick"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(folder)], check=True)
        disk["checkout"] = megabytes(folder)
        rows["setup-demo"] = timed("setup-demo", folder)
        disk["users"] = megabytes(folder / ".venv")
        rows["demo"] = timed("demo", folder)
        disk["demo"] = megabytes(folder / "fedpick-runs")
        if options.test:
            rows["setup"] = timed("setup", folder)
            disk["developers"] = megabytes(folder / ".venv")
            rows["test"] = timed("test", folder)
    lines = ["| command | seconds | processor seconds | load of the machine before |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| `make {name}` | {row['seconds']:.0f} | {row['processor']:.0f} | {row['load']:.1f} |"
        for name, row in rows.items()
    ]
    sizes = {"users": "environment for users", "developers": "for development", "demo": "runs of the demo"}
    said = [f"{words} {disk[name]:.0f} MB" for name, words in sizes.items() if name in disk]
    lines += ["", f"Disk: checkout {disk['checkout']:.0f} MB, {', '.join(said)}. Measured on {os.cpu_count()} cores."]
    text = "\n".join(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "clone.md").write_text(text + "\n")
    found = {"targets": rows, "megabytes": disk, "cores": os.cpu_count()}
    (options.out / "clone.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "manifest.json").write_text(json.dumps(manifest({"targets": list(rows)}), indent=1) + "\n")
    if options.readme:
        write_readme(found)
    print(text)


if __name__ == "__main__":
    main()
