"""A paragraph for the methods section of a paper: what was done, in LaTeX, with the keys of `citations`."""

from collections.abc import Sequence
from pathlib import Path

from fedpick._version import __version__
from fedpick.core.errors import FedpickError
from fedpick.data.settings import OWN, TRAINING, known_name, usual_partition
from fedpick.report import citations
from fedpick.report.formats import latex_text
from fedpick.report.layout import listed
from fedpick.report.paces import comparisons
from fedpick.report.summaries import Summary
from fedpick.report.tables import group_name
from fedpick.store.manifest import read_manifest

__all__ = ["cited", "paragraph"]

_NAMED = ("model", "lr", "momentum", "batch", "steps")  # settings of training that are named even if not given


def _cite(keys: Sequence[str]) -> str:
    return f"~\\cite{{{','.join(dict.fromkeys(keys))}}}" if keys else ""


def _code(text: str) -> str:
    return f"\\texttt{{{latex_text(text[:200])}}}"


def cited(blocks: Sequence[Sequence[Summary]]) -> list[str]:
    """Keys of everything that the paragraph cites."""
    keys: list[str] = []
    for rows in blocks:
        block = rows[0].group.block
        keys += citations.keys_of(block.world, citations.WORLDS) + citations.keys_of(block.data, citations.DATA)
        keys += citations.cited_pace(block.pace)
        keys += [key for row in rows for key in citations.cited_policies(row.group.policy)]
    return list(dict.fromkeys([*keys, "fedpick"]))


def _where(rows: Sequence[Summary]) -> str:
    """Clients, cohort, rounds and data of a block."""
    block, group = rows[0].group.block, rows[0].group
    clients = max(row.group.num_clients for row in rows)
    rounds = len(group.runs[0].rounds)
    cohort = "the policy's number of" if block.cohort_size is None else f"{block.cohort_size:,}"
    if block.buffered:
        return _without_rounds(rows, clients)
    if not block.simulated:
        return f"{cohort} of {clients:,} real clients in each of {rounds:,} rounds (server: {latex_text(block.engine)})"
    pace = f" at the pace {_code(block.pace)}" if block.pace else ""
    return f"{cohort} of {clients:,} clients in each of {rounds:,} rounds{pace} in {_world(rows)}"


def _without_rounds(rows: Sequence[Summary], clients: int) -> str:
    """The same of asynchronous training."""
    block, group = rows[0].group.block, rows[0].group
    server = "" if block.simulated else f" (real clients; server: {latex_text(block.engine)})"
    text = f"whom of {clients:,} clients to ask whenever others have answered{server}, without rounds"
    text += f"{_cite(citations.cited_pace(block.pace))} at the pace {_code(block.pace)}, until the model has moved "
    text += f"{len(group.runs[0].rounds):,} times"
    return f"{text}, in {_world(rows)}" if block.simulated else text


def _world(rows: Sequence[Summary]) -> str:
    """World and data of a block."""
    block, group = rows[0].group.block, rows[0].group
    text = f"the world {_code(str(block.world))}{_cite(citations.keys_of(block.world, citations.WORLDS))}"
    if block.data is None:
        return text + "; only the selection is simulated"
    partition, more, whole = _defaults(group.runs[0].info.folder)
    divided = f", divided by {_code(partition)}" if partition else ""
    text += f"; the clients train on {_code(block.data)}{_cite(citations.keys_of(block.data, citations.DATA))}{divided}"
    settings = ", ".join(part for part in (block.train, more) if part)
    text += f" with the settings {_code(settings)}" if settings else ""
    return text + (" (an epoch is one pass over a client's examples)" if whole else "")


def _defaults(folder: Path) -> tuple[str, str, bool]:
    """What the user left at its default: the partition, the settings of training, and whether an epoch is a whole pass.

    Empty for runs of another version, whose defaults may have been others, and for runs with the user's trainer.
    """
    manifest = read_manifest(folder)
    data, train = manifest["config"].get("data"), manifest["config"].get("train") or {}
    if manifest.get("fedpick") != __version__ or not (isinstance(data, dict) and isinstance(train, dict)):
        return "", "", False  # also where "about" names data that the run did not have
    if "trainer" in train:
        return "", "", False
    try:
        name = known_name(data)
    except FedpickError:  # data that was an object
        return "", "", False
    usual = TRAINING.get(name or "", OWN)
    more = {key: value for key, value in usual.items() if key in _NAMED and key not in train}
    whole = not {**usual, **train}["steps"]
    settings = ", ".join(f"{key}={value}" for key, value in more.items() if value)
    return "" if "partition" in data else usual_partition(name), settings, whole


def paragraph(blocks: Sequence[Sequence[Summary]], reference: str) -> str:
    """The paragraph about the rows of each block, which are compared with the reference."""
    rows = [row for each in blocks for row in each]
    names = {group_name(row.group): citations.cited_policies(row.group.policy) for row in rows}
    policies = listed([f"{_code(name)}{_cite(keys)}" for name, keys in names.items()])
    seeds = sorted({seed for row in rows for seed in row.group.seeds})
    fewest = min(len(row.group.seeds) for row in rows)
    simulated = all(row.group.block.simulated for row in rows)
    several = len(names) > 1
    sentences = [f"We compare the client selection policies {policies}." if several else f"The policy is {policies}."]
    sentences.append(f"{'Each' if several else 'It'} chooses {_where(blocks[0])}.")
    sentences += [f"A further setting: {_where(each)}." for each in blocks[1:]]
    if simulated:
        whole = seeds[-1] - seeds[0] + 1 == len(seeds) > 2
        which = f"{seeds[0]} to {seeds[-1]}" if whole else listed([str(seed) for seed in seeds])
        number = f"{len(seeds)} seeds ({which})" if len(seeds) > 1 else f"one seed ({which})"
        sentences.append(f"Every policy is run with {number}.")
        if several:
            sentences.append(
                "With the same seed all policies meet the same clients, availability, delays and failures, so that "
                f"differences to {_code(reference)} are paired by seed."
            )
    if fewest > 1:
        sentences.append("We give means over seeds with 95\\,\\% $t$-intervals.")
    levels = sorted({latex_text(str(each.row.target)) for each in comparisons(rows) if each.row.target is not None})
    if levels:
        sentences.append(
            "Paces are compared by the simulated time, the traffic and the clients' trainings until "
            f"{listed(levels)} is reached, as ratios for the same policy and seed: geometric means over seeds with "
            "95\\,\\% $t$-intervals of the logarithms."
        )
    oracles = [name for name in names if name.endswith("(oracle)")]
    if oracles:
        sentences.append(f"{listed([_code(each) for each in oracles])} knows what no server knows and is a bound.")
    made = {str(read_manifest(row.group.runs[0].info.folder).get("fedpick", __version__)) for row in rows}
    version = listed(sorted(latex_text(each[:40]) for each in made))
    sentences.append(f"All runs were made with fedpick {version}{_cite(['fedpick'])}.")
    return " ".join(sentences) + "\n"
