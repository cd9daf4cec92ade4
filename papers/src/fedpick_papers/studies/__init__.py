"""The papers' experiments as data, each with a score function that compares the paper's claims with our results.

    outcome = fedpick_papers.studies.reproduce("e3cs/fig4", quick=True, out="out")
    outcome.findings                       # claim, the paper's figure, our figure with its interval, verdict

Every finished job is stored under OUT/.jobs at once: the same call continues after an interruption, and with more seeds
runs only what is missing. The results are in OUT/e3cs/fig4: result.json, findings.md, figure.png, figure.svg,
manifest.json.

>>> "e3cs/fig4" in STUDIES
True
"""

import importlib
import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpick.core.errors import StoreError, unknown_name
from fedpick_papers.studies._each import call_each
from fedpick_papers.studies._jobs import conduct, runs_of
from fedpick_papers.studies._progress import Progress
from fedpick_papers.studies._save import (
    NOT_DRAWN,
    check_page,
    save,
    save_figure,
    save_guide,
    save_index,
    save_paces,
    save_page,
    save_runs,
    save_summary,
)
from fedpick_papers.studies._storage import JOBS, pack
from fedpick_papers.studies._study import Finding, Reproduction, Result, Study

__all__ = [
    "JOBS",
    "NOT_DRAWN",
    "STUDIES",
    "Finding",
    "Progress",
    "Reproduction",
    "Study",
    "check_page",
    "command",
    "draw",
    "judge",
    "pack",
    "reproduce",
    "reproduce_quickly",
    "save",
    "save_guide",
    "save_index",
    "save_paces",
    "save_summary",
]


log = logging.getLogger(__name__)
# Settings that may differ between a stored result and its study; older results have the paper's numbers among them.
_FREE = ("seeds", "seed0", "rounds", "paper")


class _Studies(Mapping[str, Study]):
    """Studies by id; each is imported when first used. A module has one `STUDY`, or `STUDIES` of a family."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, id: str) -> Study:
        module = importlib.import_module(f"fedpick_papers.studies.{self._modules[id]}")
        family: Sequence[Study] = getattr(module, "STUDIES", None) or (module.STUDY,)
        return next(study for study in family if study.id == id)

    def __contains__(self, id: object) -> bool:
        return id in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


STUDIES: Mapping[str, Study] = _Studies(
    {
        "e3cs/fig3": "e3cs.fig3",
        "e3cs/fig4": "e3cs.fig4",
        "e3cs/theorem1": "e3cs.theorem1",
        "rbcs-f/fig2": "rbcsf.fig2",
        "rbcs-f/fig3": "rbcsf.fig3",
        "rbcs-f/fig4": "rbcsf.fig4",
        "rbcs-f/theorems": "rbcsf.theorems",
        "rbcs-f/regret": "rbcsf.regret",
        "rbcs-f/regret-literal": "rbcsf.regret",
        "bsfl/fig4": "bsfl.fig4",
        "bsfl/regret": "bsfl.regret",
        "fedgs/fig3": "fedgs.fig3",
        "bsfl/theorem2": "bsfl.theorem2",
        "bsfl/weights": "bsfl.weights",
        "bsfl/quality": "bsfl.quality",
        "fedgs/fig4-counts": "fedgs.counts",
        "power-of-choice/quadratic": "power_of_choice.quadratic",
        "power-of-choice/quadratic-centred": "power_of_choice.quadratic",
        "power-of-choice/theorem31": "power_of_choice.theorem31",
        "power-of-choice/theoremA1": "power_of_choice.theorem31",
        "power-of-choice/fig1": "power_of_choice.fig1",
        "power-of-choice/fig4": "power_of_choice.fig4",
        "power-of-choice/table1": "power_of_choice.table1",
        "power-of-choice/table2": "power_of_choice.table2",
        "power-of-choice/fig8": "power_of_choice.fig8",
        "power-of-choice/fig5": "power_of_choice.fig5",
        "power-of-choice/fig9": "power_of_choice.fig9",
        "power-of-choice/fig11": "power_of_choice.fig11",
        "power-of-choice/fig12": "power_of_choice.fig12",
        "power-of-choice/fig14": "power_of_choice.fig14",
        "fedgs/table2-synthetic": "fedgs.table2_synthetic",
        "fedgs/table2-authors": "fedgs.table2_authors",
        "fedgs/built-synthetic": "fedgs.built",
        "bsfl/fig5": "bsfl.regression",
        "bsfl/fig8": "bsfl.regression",
        "e3cs/letters-quick": "e3cs.letters",
        "e3cs/table2-non-iid": "e3cs.images",
        "e3cs/table2-iid": "e3cs.images",
        "e3cs/table2-non-iid-fedprox": "e3cs.images",
        "e3cs/table2-iid-fedprox": "e3cs.images",
        "e3cs/fig7": "e3cs.fig7",
        "e3cs/table3-non-iid": "e3cs.images",
        "e3cs/table3-iid": "e3cs.images",
        "e3cs/table3-non-iid-fedprox": "e3cs.images",
        "e3cs/table3-iid-fedprox": "e3cs.images",
        "fedgs/table2-cifar10": "fedgs.table2_cifar10",
        "fedgs/table2-fashion-mnist": "fedgs.table2_fashion",
        "fedgs/table3": "fedgs.table3",
        "fedgs/built-cifar10": "fedgs.built",
        "fedgs/built-fashion-mnist": "fedgs.built",
        "bsfl/fig6": "bsfl.images",
        "bsfl/fig7": "bsfl.images",
        "bsfl/fig9": "bsfl.images",
        "bsfl/fig10": "bsfl.images",
        "rbcs-f/fig6-cifar10": "rbcsf.images",
        "rbcs-f/fig6-fashion-mnist": "rbcsf.images",
        "rbcs-f/fig5": "rbcsf.fig5",
        "oort/time": "baselines.oort",
        "fedcor/rounds": "baselines.fedcor",
        "clustered/rounds": "baselines.clustered",
        "divfl/rounds": "baselines.divfl",
        "optimal/bits": "baselines.optimal",
        "refl/device-hours": "baselines.refl",
        "fedau/participation": "baselines.fedau",
        "asynchrony/speed": "asynchronous.speed",
        "asynchrony/tied": "asynchronous.tied",
        "asynchrony/policies": "asynchronous.policies",
        "fedbuff/updates": "asynchronous.updates",
        "papaya/scale": "asynchronous.scale",
        "fedasync/mixing": "asynchronous.mixing",
        "pisces/guided": "asynchronous.guided",
        "balanced/worlds": "balanced.worlds",
        "tournament/synthetic": "tournament.synthetic",
        "tournament/fashion-mnist": "tournament.fashion",
        "tournament/cifar10": "tournament.cifar10",
    }
)


def reproduce(
    id: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    seed0: int = 0,
    workers: int | None = None,
    executor: str = "auto",
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    tell: Callable[[Progress], None] | None = None,
    **changes: Any,
) -> Reproduction:
    """Run a study by its id and compare it with its paper.

    Args:
        id: one of `STUDIES`.
        quick: fewer rounds and seeds.
        seeds: number of seeds; None: the study's.
        seed0: the first seed.
        workers: number of processes; None: one per core; 1: this process.
        executor: "auto", "serial", "processes", "stacked" or "ray"; see `fedpick.experiment.executors.play`.
        device: that models are trained on: "cpu", "gpu", or "auto" for a GPU if there is one.
        out: folder for finished jobs and the result; None stores nothing.
        tell: called with a `Progress` at the start and whenever a job is done.
        changes: settings of the study to change, such as rounds=100.

    >>> reproduce("e3cs/fig5")
    Traceback (most recent call last):
    fedpick.core.errors.UnknownNameError: unknown study 'e3cs/fig5'; did you mean 'e3cs/fig7'? There are: ...
    """
    if id not in STUDIES:
        raise unknown_name("study", id, list(STUDIES))
    study = STUDIES[id]
    if seeds is not None:
        changes["seeds"] = seeds
    settings = study.choose(quick, seed0=seed0, **changes)
    place = None if out is None else Path(out)
    how: Any = {"workers": workers, "executor": executor, "device": device, "out": place, "tell": tell}
    since = time.perf_counter()
    outcome = replace(conduct(study, settings, **how), seconds=round(time.perf_counter() - since, 1))
    if place is not None:
        save(outcome, place / id)
        save_runs(runs_of(study, settings, place, executor, device), place / JOBS / id)
    return outcome


def reproduce_quickly(
    ids: Sequence[str],
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    done: Callable[[Reproduction, float], None] | None = None,
    **how: Any,
) -> list[Reproduction]:
    """Run studies with their quick settings side by side, each from its start to its page in one process.

    Of a quick study, compiling and drawing are the larger part: processes that share one would all compile the same.

    Args:
        ids: of the studies.
        out: folder for finished jobs and results.
        workers: number of processes; None: one per core.
        done: called with each result and the seconds that it took, as soon as it is there.
        how: `seeds` and `seed0`, as in `reproduce`.
    """
    groups: dict[str, list[str]] = {}
    for id in ids:
        groups.setdefault(STUDIES[id].kept_with or id, []).append(id)  # two processes must not do the same job
    work = [(each, os.fspath(out), how) for each in groups.values()]
    work.sort(key=lambda one: -sum(STUDIES[id].jobs(STUDIES[id].choose(True)) for id in one[0]))  # the longest first
    found: dict[str, Reproduction] = {}

    def keep(_: int, results: list[tuple[str, dict[str, Any], Result, list[Finding], float]]) -> None:
        for id, settings, result, findings, seconds in results:
            found[id] = Reproduction(STUDIES[id], settings, result, findings)
            if done:
                done(found[id], seconds)

    # Threads of a matrix product wait for one another where the cores are busy: a fit took ten times as long.
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    call_each(_quickly, work, workers=workers, executor="processes", on_result=keep, variables=one)
    return [found[id] for id in ids]


def _quickly(
    work: tuple[list[str], str, dict[str, Any]],
) -> list[tuple[str, dict[str, Any], Result, list[Finding], float]]:
    """Run studies one after another in this process; a study itself cannot be sent to another process."""
    ids, out, how = work
    results = []
    for id in ids:
        since = time.perf_counter()
        one = reproduce(id, quick=True, workers=1, executor="serial", device="cpu", out=out, **how)
        results.append((id, one.settings, one.result, one.findings, time.perf_counter() - since))
    return results


def judge(id: str, out: str | os.PathLike[str], *, draw: bool = False) -> Reproduction | None:
    """Judge a stored result anew and write its findings.md; nothing runs.

    None if the folder has no such result, or one with settings that the study no longer has (of seeds and rounds there
    may be fewer or more) or without what it measures now: its page would say what was not done.

    Args:
        id: one of `STUDIES`.
        out: the folder that `reproduce` wrote to.
        draw: draw its figure, too, and show it on the page.
    """
    if id not in STUDIES:
        raise unknown_name("study", id, list(STUDIES))
    study, at = STUDIES[id], Path(out) / id
    try:
        result = json.loads((at / "result.json").read_text())
        manifest = json.loads((at / "manifest.json").read_text())
        settings = manifest["settings"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"{at}: cannot read the result ({error}); repeat `{command(id, out)}`") from None
    if _lasting(settings) != _lasting(study.settings):
        log.warning("%s: is of earlier settings; repeat `%s`", at, command(id, out))
        return None
    try:
        findings = study.score(result)
    except KeyError as error:
        log.warning("%s: has no %s, which the study measures now; repeat `%s`", at, error, command(id, out))
        return None
    before = manifest.get("limits") or {}
    same = all(before.get(name) == limit.value for name, limit in study.limits.items())
    made = manifest.get("numbers", "0.1")  # from 0.3 on it is written
    seconds = manifest.get("seconds")
    outcome = Reproduction(study, settings, result, findings, limits_first=same, numbers=made, seconds=seconds)
    save_page(outcome, at, drawn=draw)
    if draw:
        save_figure(study, result, at)
    return outcome


def draw(id: str, out: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Draw the figure of a stored result as figure.png into a folder.

    Args:
        id: one of `STUDIES`.
        out: the folder that `reproduce` wrote to.
        folder: for the figure; made if it is not there.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    result = json.loads((Path(out) / id / "result.json").read_text())
    return save_figure(STUDIES[id], result, folder, kinds=["png"])[0]


def _lasting(settings: Mapping[str, Any]) -> Any:
    """The settings that a result must share with its study, as JSON has them."""
    return {name: value for name, value in json.loads(json.dumps(dict(settings))).items() if name not in _FREE}


def command(
    id: str | Sequence[str] | None,
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    seeds: int | None = None,
    seed0: int = 0,
    workers: int | None = None,
    executor: str = "auto",
    device: str = "auto",
) -> str:
    """The command that continues a study that was stopped, or several, or all studies (no id).

    >>> command("e3cs/fig4", "my results", quick=True, seed0=100)
    "fedpick reproduce e3cs/fig4 --quick --seed0 100 --out 'my results'"
    """
    words = ["fedpick", "reproduce", *([id] if isinstance(id, str) else id or []), *(["--quick"] if quick else [])]
    options = {
        "--seeds": seeds,
        "--seed0": seed0 or None,
        "--workers": workers,
        "--executor": None if executor == "auto" else executor,
        "--device": None if device == "auto" else device,
        "--out": os.fspath(out),
    }
    for name, value in options.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join(words)
