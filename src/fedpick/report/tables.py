"""Tables of runs: scores over seeds, with intervals and paired differences."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from rich.markup import escape
from rich.table import Table

from fedpick import store
from fedpick.errors import StoreError
from fedpick.experiment.building import build_world
from fedpick.experiment.config import Config
from fedpick.report import scores
from fedpick.types import Status

__all__ = ["About", "Groups", "about", "curves", "summary", "trouble"]

Groups = list[tuple[str, list[Path]]]  # for each policy, the folders of its runs, one per seed

COLUMNS = {  # score -> heading, digits; the data hold the other scores, too
    "returned": ("models returned", 0),
    "success": ("of those asked", 2),
    "hours": ("simulated hours", 2),
    "jain": ("fairness (Jain)", 2),
    "never": ("never chosen", 2),
    "gigabytes": ("GB sent", 0),
}
TRAINED = {  # shown in their place where a model was trained; the data hold losses and gigabytes, too
    "accuracy": ("test accuracy", 3),
    "worst_decile": ("worst tenth of clients", 3),
    "rounds_to": ("rounds to {target}", 0),
    "hours_to": ("hours to {target}", 2),
    "returned": ("models returned", 0),
    "jain": ("fairness (Jain)", 2),
}


@dataclass(frozen=True)
class About:
    """What a run's manifest says of it."""

    policy: str
    cohort_size: int | None  # None: as many as the policy likes
    clients: int
    seed: int
    simulated: bool = True


def about(folder: Path) -> About:
    """Read a run's manifest: of the simulator's, or of a deployment's, whose clients have names."""
    said = store.read_manifest(folder)["config"]
    try:
        if "engine" in said:
            names = store.read_clients(folder) or []
            seen = int(pc.max(store.read_selections(folder)["client"]).as_py() or 0) + 1  # some may have come since
            clients = max(len(names), seen)
            return About(str(said["policy"]), said["cohort_size"], clients, int(said["seed"]), simulated=False)
        settings = Config(**said)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{folder}: its manifest.json is not a run's ({type(error).__name__}: {error}); put the right one back"
        ) from None
    return About(settings.policy, settings.cohort_size, len(build_world(settings.world).clients), settings.seed)


def curves(groups: Groups) -> dict[str, list[dict[str, Any]]]:
    """What `plots.comparison` draws: for each policy and seed, returns and clock by round, and counts by client."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, folders in groups:
        found[name] = []
        for folder in folders:
            rounds, selections = store.read_rounds(folder), store.read_selections(folder)
            chosen = scores.counts(selections, about(folder).clients)
            entry = {"cep": scores.cep(rounds), "clock": rounds["clock"].to_numpy(), "counts": chosen}
            for metric in ("accuracy", "test_loss"):
                if metric in rounds.column_names:
                    entry[metric] = rounds[metric].to_numpy().astype(float)
            found[name].append(entry)
        played = min(len(entry["cep"]) for entry in found[name])  # of runs that go on, what all have
        for entry in found[name]:
            entry |= {key: values[:played] for key, values in entry.items() if key != "counts"}
    return found


def _range(numbers: Iterable[int | None]) -> str:
    """One number, or the least and the largest; "?" if none is known."""
    ordered = sorted({each for each in numbers if each is not None})
    if not ordered:
        return "?"
    return f"{ordered[0]:,}" if len(ordered) == 1 else f"{ordered[0]:,} to {ordered[-1]:,}"


def _target(results: dict[str, list[dict[str, float]]]) -> float | None:
    """An accuracy that every policy reached: the last of the worst, down to a step of 5%; None: nothing to reach."""
    if not all("accuracy" in row for rows in results.values() for row in rows):
        return None
    last = [np.mean([row["accuracy"] for row in rows]) for rows in results.values()]
    worst = float(np.min(last))
    return float(np.floor(worst * 20 + 1e-9) / 20) if worst >= 0.05 else None


def _entry(values: list[float], base: list[float] | None) -> dict[str, Any]:
    """One score of one policy as data: mean and interval over seeds, and the paired difference to the first policy."""
    over = scores.interval(values)
    entry: dict[str, Any] = {"mean": over.mean, "values": values}
    if len(values) > 1:
        entry["half"] = over.half
        if base is not None:
            gap = scores.paired(values, base)
            entry["difference"] = {"mean": gap.mean, "half": gap.half, "clear": gap.clear}
    return entry


def _cell(entry: dict[str, Any], digits: int) -> str:
    text = f"{entry['mean']:,.{digits}f}"
    if "half" in entry:
        text += f" ±{entry['half']:,.{digits}f}"
    if "difference" in entry:
        gap = entry["difference"]
        style = "bold" if gap["clear"] else "dim"
        text += f"\n[{style}]{gap['mean']:+,.{digits}f} ±{gap['half']:,.{digits}f}[/]"
    return text


def trouble(folder: Path, most: int = 10) -> Table | None:
    """The clients that failed or were late most often; None if nobody was."""
    selections, names = store.read_selections(folder), store.read_clients(folder)
    client = selections["client"].to_numpy()
    status = np.array(selections["status"].to_pylist())
    count = {name: np.bincount(client[status == name]) for name in (each.name for each in Status)}
    size = int(client.max(initial=-1)) + 1
    lost = sum(np.pad(count[name], (0, size - len(count[name]))) for name in ("LATE", "FAILED"))
    worst = np.argsort(-np.asarray(lost), kind="stable")[:most]
    worst = worst[np.asarray(lost)[worst] > 0]
    if not len(worst):
        return None
    seconds = selections["duration"].to_numpy()
    table = Table(title=f"clients that failed or were late most often ({int(np.count_nonzero(lost))} did at all)")
    for heading in ("client", "chosen", "late", "failed", "seconds when in time"):
        table.add_column(heading, justify="left" if heading == "client" else "right", overflow="fold")
    for k in worst.tolist():
        mine = client == k
        good = seconds[mine & np.isin(status, ("DONE", "SURPLUS")) & np.isfinite(seconds)]
        late, failed = (int(np.count_nonzero(mine & (status == name))) for name in ("LATE", "FAILED"))
        name = str(k) if names is None or k >= len(names) else names[k]
        name = "".join(char if char.isprintable() else "?" for char in name)  # clients may have chosen it
        mean = f"{good.mean():,.1f}" if len(good) else ""
        table.add_row(escape(name), str(int(mine.sum())), str(late), str(failed), mean)
    return table


def summary(groups: Groups) -> tuple[list[Any], dict[str, Any]]:
    """What to print (a table, and how to read it) and the same as data: scores of every policy over seeds."""
    runs = [about(folder) for _, folders in groups for folder in folders]
    seeds = len(groups[0][1])
    results = {
        name: [scores.summary(store.read_rounds(f), store.read_selections(f), about(f).clients) for f in folders]
        for name, folders in groups
    }
    target = _target(results)
    if target is not None:
        for name, folders in groups:
            for row, folder in zip(results[name], folders, strict=True):
                took = scores.reach(store.read_rounds(folder), "accuracy", target) or {}  # all have it: _target says so
                row.update({f"{key}_to": took.get(key, float("nan")) for key in ("rounds", "hours", "gigabytes")})
    rows = [row for each in results.values() for row in each]
    common = [key for key in rows[0] if all(key in row for row in rows)]
    trained = all("test_loss" in row for row in rows)
    columns = {key: value for key, value in (TRAINED if trained else COLUMNS).items() if key in common}
    rounds = _range(len(store.read_rounds(folder)) for _, folders in groups for folder in folders)
    over = f"{seeds} seeds" if seeds > 1 else f"seed {_range(run.seed for run in runs)}"
    of = f"{_range(run.cohort_size for run in runs)} of {_range(run.clients for run in runs)} clients a round"
    table = Table(title=f"{rounds} rounds, {of}, {over}")
    table.add_column("policy", overflow="fold")
    for heading, _ in columns.values():
        heading = heading if all(run.simulated for run in runs) else heading.removeprefix("simulated ")
        table.add_column(heading.format(target=f"{target or 0:.0%}"), justify="right")
    first, data = groups[0][0], {}
    for name, rows in results.items():
        base = None if name == first or len(rows) != len(results[first]) else results[first]
        entries = {
            key: _entry([row[key] for row in rows], None if base is None else [row[key] for row in base])
            for key in common
        }
        data[name] = entries
        table.add_row(escape(name), *(_cell(entries[key], digits) for key, (_, digits) in columns.items()))
    shown: list[Any] = [table]
    if len(results) > 1 and seeds > 1:
        shown.append(
            f"± is a 95% interval over seeds; second lines are differences to {escape(first)}, paired by seed "
            "(bold: clear of 0)"
        )
    for name, folders in groups:
        lost = sum(scores.unusable(store.read_selections(folder)) for folder in folders)
        if lost:
            shown.append(
                f"{escape(name)}: {lost:,} updates were not finite (NaN or infinity) and count as failed; a lower "
                "learning rate may help"
            )
    return shown, data
