"""`make fuzz`: random attacks for as long as there is time; what is found is added to tests/fuzz/found.txt.

python tests/fuzz/attack.py                        # ten minutes, all campaigns in turn, other numbers each time
python tests/fuzz/attack.py --seconds 60 --only texts
python tests/fuzz/attack.py --only bits --count 2000 --seed 0     # a campaign of a given size, as docs/reliability.md
"""

import argparse
import os
import resource
import secrets
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from campaigns import CAMPAIGNS, Finding

FOUND = Path(__file__).parent / "found.txt"
MOST_MEMORY = 6 * 2**30  # bytes of address space above what is taken at the start


def main() -> int:
    """Attack, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--count", type=int, help="steps of each campaign, in place of a time")
    parser.add_argument("--only", choices=list(CAMPAIGNS), action="append")
    parser.add_argument("--seed", type=int, help="the first number; random unless given")
    given = parser.parse_args()
    os.environ.setdefault("FEDPICK_DEBUG", "0")
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + MOST_MEMORY,) * 2)
    first = secrets.randbelow(2**40) if given.seed is None else given.seed
    until, done, findings = time.monotonic() + given.seconds, Counter[str](), []
    number = first
    while given.count is None or number < first + given.count:
        for name in given.only or CAMPAIGNS:
            if given.count is None and time.monotonic() > until:
                break
            try:
                CAMPAIGNS[name](number)
            except Finding as error:
                findings.append(f"{name} {number}  # {str(error)[:160]!r}")
                print(f"FOUND {findings[-1]}", flush=True)
                traceback.print_exception(error.__cause__ or error, limit=-4)
            done[name] += 1
        else:
            number += 1
            continue
        break
    print(f"first number {first}: " + ", ".join(f"{count} {name}" for name, count in done.items()))
    print(f"{len(findings)} findings in {sum(done.values())} steps")
    if findings and given.count is None:
        with FOUND.open("a") as file:
            file.writelines(f"{line}\n" for line in findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
