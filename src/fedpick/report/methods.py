"""A paragraph for the methods section of a paper: what was done, in LaTeX, with the keys of `citations`."""

from collections.abc import Sequence
from pathlib import Path

from fedpick._version import __version__
from fedpick.core.errors import FedpickError
from fedpick.report import citations
from fedpick.report.formats import latex_text
from fedpick.report.groups import Summary
from fedpick.report.tables import group_name
from fedpick.store.manifest import read_manifest

__all__ = ["cited", "paragraph"]

_NAMED = ("model", "lr", "momentum", "batch", "steps")  # settings of training that are said if left at their defaults


def _cite(keys: Sequence[str]) -> str:
    return f"~\\cite{{{','.join(dict.fromkeys(keys))}}}" if keys else ""


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _code(text: str) -> str:
    return f"\\texttt{{{latex_text(text[:200])}}}"


def cited(blocks: Sequence[Sequence[Summary]]) -> list[str]:
    """Keys of everything that the paragraph cites."""
    keys: list[str] = []
    for rows in blocks:
        block = rows[0].group.block
        keys += citations.keys_of(block.world, citations.WORLDS) + citations.keys_of(block.data, citations.DATA)
        keys += [key for row in rows for key in citations.cited_policies(row.group.policy)]
    return list(dict.fromkeys([*keys, "fedpick"]))


def _where(rows: Sequence[Summary]) -> str:
    """Clients, cohort, rounds and data of a block."""
    block, group = rows[0].group.block, rows[0].group
    clients = max(run.info.num_clients or 0 for row in rows for run in row.group.runs)
    rounds = len(group.runs[0].rounds)
    cohort = "the policy's number of" if block.cohort_size is None else f"{block.cohort_size:,}"
    if block.engine != "simulator":
        return f"{cohort} of {clients:,} real clients in each of {rounds:,} rounds (server: {latex_text(block.engine)})"
    world = f"the world {_code(str(block.world))}{_cite(citations.keys_of(block.world, citations.WORLDS))}"
    said = f"{cohort} of {clients:,} clients in each of {rounds:,} rounds in {world}"
    if block.data is None:
        return said + "; only the selection is simulated"
    partition, more, whole = _defaults(group.runs[0].info.folder)
    divided = f", divided by {_code(partition)}" if partition else ""
    said += f"; the clients train on {_code(block.data)}{_cite(citations.keys_of(block.data, citations.DATA))}{divided}"
    settings = ", ".join(part for part in (block.train, more) if part)
    said += f" with the settings {_code(settings)}" if settings else ""
    return said + (" (an epoch is one pass over a client's examples)" if whole else "")


def _defaults(folder: Path) -> tuple[str, str, bool]:
    """What the user left at its default: the partition, the settings of training, and whether an epoch is a whole pass.

    Nothing for runs of another version, whose defaults may have been others, and with a trainer of the user's own.
    """
    manifest = read_manifest(folder)
    data, train = manifest["config"]["data"], manifest["config"].get("train") or {}
    if manifest.get("fedpick") != __version__ or "trainer" in train:
        return "", "", False
    try:
        from fedpick.data.settings import known_name, usual_partition
        from fedpick.learn.settings import DEFAULTS, OWN  # JAX is an extra

        name = known_name(data)
    except (ImportError, FedpickError):  # data that was an object
        return "", "", False
    usual = DEFAULTS.get(name or "", OWN)
    more = {key: value for key, value in usual.items() if key in _NAMED and key not in train}
    whole = not {**usual, **train}["steps"]
    said = ", ".join(f"{key}={value}" for key, value in more.items() if value)
    return "" if "partition" in data else usual_partition(name), said, whole


def paragraph(blocks: Sequence[Sequence[Summary]], reference: str) -> str:
    """The paragraph.

    Args:
        blocks: the rows of each block.
        reference: the policy that the others are compared with.
    """
    rows = [row for each in blocks for row in each]
    names = {group_name(row.group): citations.cited_policies(row.group.policy) for row in rows}
    policies = _listed([f"{_code(name)}{_cite(keys)}" for name, keys in names.items()])
    seeds = sorted({seed for row in rows for seed in row.group.seeds})
    fewest = min(len(row.group.seeds) for row in rows)
    simulated = all(row.group.block.engine == "simulator" for row in rows)
    said = [f"We compare the client selection policies {policies}." if len(names) > 1 else f"The policy is {policies}."]
    said.append(f"It chooses {_where(blocks[0])}." if len(names) == 1 else f"Each chooses {_where(blocks[0])}.")
    said += [f"A further setting: {_where(each)}." for each in blocks[1:]]
    if simulated:
        whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
        which = f"{seeds[0]} to {seeds[-1]}" if whole else _listed([str(seed) for seed in seeds])
        number = f"{len(seeds)} seeds ({which})" if len(seeds) > 1 else f"one seed ({which})"
        said.append(f"Every policy is run with {number}.")
        if len(names) > 1:
            said.append(
                "With the same seed all policies meet the same clients, availability, delays and failures, so that "
                f"differences to {_code(reference)} are paired by seed."
            )
    if fewest > 1:
        said.append("We give means over seeds with 95\\,\\% $t$-intervals.")
    oracles = [name for name in names if name.endswith("(oracle)")]
    if oracles:
        said.append(f"{_listed([_code(each) for each in oracles])} knows what no server knows and is a bound.")
    made = {str(read_manifest(row.group.runs[0].info.folder).get("fedpick", __version__)) for row in rows}
    version = _listed(sorted(latex_text(each[:40]) for each in made))
    said.append(f"All runs were made with fedpick {version}{_cite(['fedpick'])}.")
    return " ".join(said) + "\n"
