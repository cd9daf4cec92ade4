"""Whether a change of the code changes no result: named configurations, played before and after it, bit for bit.

    python benchmarks/same_bits.py list
    python benchmarks/same_bits.py write OLD          # at the commit before
    python benchmarks/same_bits.py write NEW          # at the commit after, on the same machine
    python benchmarks/same_bits.py compare OLD NEW    # a line for each configuration; exit code 1 if one differs

`write` makes one .npz file for each configuration: all columns of its tables, the model, the policy's state and the
choices' weights. It uses public names only, and reads the files of runs by their formats (Parquet, .npz), so that
modules may move in between: PYTHONPATH decides which fedpick is played. Real times are in no file; servers are played
with a clock that moves only when the script says so. `write --old-draws` plays with the draws of 0.2, to compare a
version from 0.3 on with one of before. Columns that only the new version has are counted, and are no difference.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from configurations import servers, simulated
from configurations.arrays import differences

CONFIGURATIONS = simulated.CONFIGURATIONS | servers.CONFIGURATIONS


def file_of(folder: Path, name: str) -> Path:
    """The archive of a configuration."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", name).strip("-") + ".npz")


def write(folder: Path, names: list[str], old_draws: bool) -> None:
    """Play configurations, and write an archive for each; perhaps with the draws of 0.2."""
    if old_draws:
        from fedpick.worlds import world

        world.OLD_DRAWS = True
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for name in names:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            found = CONFIGURATIONS[name](Path(scratch))
        with file_of(folder, name).open("wb") as file:
            np.savez(file, **{key.replace("/", "|"): array for key, array in found.items()})
        print(f"{name}: {len(found)} arrays, {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(names)} configurations in {time.monotonic() - begun:.0f} s, in {folder}")


def write_compiled(folder: Path, names: list[str], old_draws: bool) -> int:
    """Play everything twice in other processes, and keep the second time; returns the exit code.

    Sums of compiled loops may be in another order in the process that compiles them than in those that find their code
    on disk. So the first process compiles all code into a new folder, and the second one finds it there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        around = {**os.environ, "NUMBA_CACHE_DIR": f"{scratch}/numba", "FEDPICK_COMPILED": f"{scratch}/xla"}
        only = [word for name in names for word in ("--only", name)] + ["--old-draws"] * old_draws
        for target in (f"{scratch}/first", str(folder)):
            command = [sys.executable, __file__, "write", target, "--once", *only]
            done = subprocess.run(command, env=around, check=False)
            if done.returncode:
                return done.returncode
    return 0


def compare(old: Path, new: Path, names: list[str], all: bool) -> int:
    """Print a line for each configuration, or for all arrays that differ; returns 1 if one differs or is missing."""
    bad = 0
    for name in names:
        pair = []
        for folder in (old, new):
            path = file_of(folder, name)
            if path.exists():
                with np.load(path) as arrays:
                    pair.append({key.replace("|", "/"): arrays[key] for key in arrays.files})
        new_too = {} if len(pair) < 2 else {key: value for key, value in pair[1].items() if key in pair[0]}
        if len(pair) < 2:
            print(f"MISSING  {name}: not in both folders")
            bad += 1
        elif lines := differences(pair[0], new_too):
            print(f"DIFFERS  {name}: {len(lines)} of {len(pair[0])} arrays; {lines[0]}")
            print("".join(f"           {line}\n" for line in lines[1:] * all), end="")
            bad += 1
        else:
            more = f", and {len(pair[1]) - len(pair[0])} more in the new one" if len(pair[1]) > len(pair[0]) else ""
            print(f"equal    {name}: {len(pair[0])} arrays{more}")
    print(f"{len(names) - bad} of {len(names)} configurations are equal, bit for bit")
    return int(bad > 0)


def main() -> int:
    """Read the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Play named configurations; compare two such folders bit for bit.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the names")
    written = commands.add_parser("write", help="play, and write an archive for each")
    written.add_argument("folder", type=Path)
    written.add_argument("--old-draws", action="store_true", help="with the draws of fedpick 0.2, for 0.3 and later")
    written.add_argument("--once", action="store_true", help="in this process, with compiled code as it is found")
    both = commands.add_parser("compare", help="compare two folders; exit code 1 if a configuration differs")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    both.add_argument("--all", action="store_true", help="print every array that differs")
    for command in commands.choices.values():
        command.add_argument("--only", action="append", metavar="NAME", help="one configuration; may be repeated")
    given = parser.parse_args()
    names = given.only or list(CONFIGURATIONS)
    if unknown := [name for name in names if name not in CONFIGURATIONS]:
        parser.error(f"no configuration is called {unknown[0]!r}; see the command list")
    if given.command == "list":
        print("\n".join(names))
        return 0
    if given.command == "write":
        if not given.once:
            return write_compiled(given.folder, names, given.old_draws)
        write(given.folder, names, given.old_draws)
        return 0
    return compare(given.old, given.new, names, given.all)


if __name__ == "__main__":
    sys.exit(main())
