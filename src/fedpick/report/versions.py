"""Versions of the user's own code among the runs of a report, which are shown apart and never compared unasked."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fedpick._support import user_code
from fedpick.report.runs import RunInfo
from fedpick.store.manifest import MANIFEST

__all__ = ["tell_apart"]


def tell_apart(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], list[str]]:
    """The runs with the versions of their code, and a note for each name that has several."""
    seen: dict[str, dict[str, RunInfo]] = {}
    for run in runs:
        for name, text in run.code.items():
            if run.simulated:
                seen.setdefault(name, {}).setdefault(text, run)
    several = {name: versions for name, versions in seen.items() if len(versions) > 1}
    if not several:
        return list(runs), []
    found = []
    for run in runs:
        named = {name: short(text) for name, text in run.code.items() if name in several}
        mine = [text for name, text in named.items() if name in run.policy]
        rest = [f"{name} (code {text})" for name, text in named.items() if name not in run.policy]
        found.append(replace(run, version=", ".join(f"code {text}" for text in mine), around=", ".join(rest)))
    return found, [_note(name, versions) for name, versions in several.items()]


def short(text: str) -> str:
    """The name of a version of code.

    >>> short("loop.py 1f2e3d4c5b6a7988, numpy 2.3.1")
    '3d571a'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _note(name: str, versions: dict[str, RunInfo]) -> str:
    texts = sorted(versions, key=lambda text: _written(versions[text]))
    changed = user_code.differences(texts[-2], texts[-1])
    said = ", ".join(f"{short(text)} ({_written(versions[text]):%Y-%m-%d %H:%M})" for text in texts)
    return (
        f"{name}: these runs are of {len(texts)} versions of the code, which are not compared with each other: {said}; "
        f"in the last, {'; '.join(changed)}. fedpick compare shows the runs of the current code alone"
    )


def _written(run: RunInfo) -> datetime:
    return datetime.fromtimestamp((run.folder / MANIFEST).stat().st_mtime)
