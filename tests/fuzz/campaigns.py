"""Attacks that `make fuzz` and the tests share: each step is made from one number, and either passes or is a finding.

What is attacked either gives the right result or a FedpickError; a wrong result, another exception, or one that takes
too long is a finding.
"""

import io
import itertools
import json
import random
import shutil
import string
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import numpy as np
from findings import Finding, attacked
from outsiders import forged, told
from servers import crowd, forks, heads, messages, rotten, sizes, slow

import fedpick as fp
from fedpick.core.state import pack
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.experiment.files import config_of, load, load_experiment
from fedpick.experiment.worlds import PARTS
from fedpick.policies.text import policy_names
from fedpick.report.results import load as load_results
from fedpick.server.memory import Memory
from fedpick.store import Folder
from fedpick.worlds import WORLDS

# --- what is attacked: made once, copied for each step


@cache
def _home() -> Path:
    return Path(tempfile.mkdtemp(prefix="fedpick-fuzz-"))


def _config(policy: str = "e3cs(quota=0.5)", seed: int = 7, rounds: int = 23, every: int = 5) -> Config:
    return Config(policy, 4, rounds, seed, {"name": "volatile", "num_clients": 20}, every)


@cache
def half_played() -> Path:
    """A run that was killed at round 12 of 23, after it had been joined at round 6."""
    path, short = _home() / "half", _config(rounds=6)
    execute(short, path)
    with Folder(path, _config().as_dict(), 5) as folder:
        run = _config().build()
        run.state = folder.restore(run.state, run.world.clients)
        for record in run.rounds(17):
            folder.append(record, run.state)
    return path


@cache
def ended() -> dict[str, bytes]:
    """The tables of the same run, played through."""
    path = execute(_config(), _home() / "whole")
    return {name: (path / name).read_bytes() for name in ("rounds.parquet", "selections.parquet")}


@cache
def compared() -> tuple[Path, str]:
    """A folder of four finished runs, and its summary."""
    root = _home() / "compared"
    for policy in ("uniform", "e3cs(quota=0.5)"):
        for seed in (0, 1):
            execute(_config(policy, seed, 12), root / f"{policy[:4]}-{seed}")
    return root, load_results(root).table("json")


@cache
def served() -> tuple[Path, dict[int, dict[str, np.ndarray]]]:
    """The folder of a session after rounds 1 to 6, and what the policy knew after each."""
    folder, known = _home() / "served", {}
    session = fp.Session(fp.E3CS(3, quota=0.3), state=folder, limits=fp.server.Limits(checkpoint_every=4))
    names = [f"phone-{k}" for k in range(8)]
    for number in range(1, 7):
        with session.round(available=names[: 4 + number % 4]) as r:
            for at, name in enumerate(r.chosen):
                _ = r.done(name, loss=at / 7, seconds=3.0) if at % 3 else r.failed(name)
        known[number] = {name: np.array(value, copy=True) for name, value in pack(session.roster.state).items()}
    session.close()
    return folder, known


# --- mutations


def mutate(rng: random.Random, content: bytes) -> bytes:
    """One change of a file's bytes."""
    if not content:
        return rng.randbytes(20)
    data, at = bytearray(content), rng.randrange(len(content))
    kind = rng.randrange(9)
    if kind <= 2:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 3:
        data[at] = rng.randrange(256)
    elif kind == 4:
        length = rng.randrange(1, 64)
        data[at : at + length] = rng.randbytes(length)
    elif kind == 5:
        del data[at:]
    elif kind == 6:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 7:
        other = rng.randrange(len(data))
        data[at:at] = data[other : other + rng.randrange(1, 128)]
    else:
        data[at : at + rng.choice((512, 4096))] = bytes(min(len(data) - at, 512))
    return bytes(data)


def _mutate_folder(rng: random.Random, folder: Path) -> str:
    """Change, remove, or swap files of a folder, as a failing disk or a careless copy does."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    one, other = rng.choice(files), rng.choice(files)
    kind = rng.randrange(10)
    if kind <= 6:
        one.write_bytes(mutate(rng, one.read_bytes()))
        return f"changed {one.name}"
    if kind == 7:
        one.unlink()
        return f"removed {one.name}"
    same = [path for path in files if path.suffix == one.suffix and path != one]
    other = rng.choice(same or [path for path in files if path != one])
    shutil.copy(other, one)
    return f"copied {other} over {one}"


def _manifest_change(rng: random.Random, folder: Path) -> str:
    """Another setting in the manifest, typed by hand."""
    file = rng.choice(sorted(folder.rglob("manifest.json")))
    change = rng.choice(["seed", "cohort_size", "policy", "num_clients"])
    content = json.loads(file.read_text())
    if change == "policy":
        content["config"]["policy"] = "e3cs(quota=0.9)"
    elif change == "num_clients":
        content["config"]["world"]["num_clients"] = 21
    else:
        content["config"][change] += 1
    file.write_text(json.dumps(content, indent=1))
    return f"{change} changed in the manifest"


@contextmanager
def _copy(source: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        target = Path(place) / "copy"
        shutil.copytree(source, target)
        yield target


# --- the campaigns, each of which takes a number


def bits(number: int) -> None:
    """One flipped bit in a run's tables, which are read."""
    rng, (root, _) = random.Random(f"bits {number}"), compared()
    source = root / "e3cs-0"
    name = rng.choice(["selections.parquet"] * 3 + ["rounds.parquet"])
    read = fp.store.read_selections if name.startswith("sel") else fp.store.read_rounds
    expected = read(source)
    with _copy(source) as run:
        data = bytearray((run / name).read_bytes())
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        (run / name).write_bytes(data)
        with attacked(f"bit {bit} of {name}"):
            if not read(run).equals(expected):
                raise Finding(f"bit {bit} of {name} gives other numbers")


def resume(number: int) -> None:
    """A half-played run is changed, and goes on as `fedpick resume` does."""
    rng = random.Random(f"resume {number}")
    with _copy(half_played()) as run:
        what = _manifest_change(rng, run) if number % 10 == 0 else _mutate_folder(rng, run)
        with attacked(f"resume after {what}"):
            execute(config_of(run), run)
            for name, content in ended().items():
                if (run / name).read_bytes() != content:
                    raise Finding(f"resume after {what}: another {name}")


def summary(number: int) -> None:
    """Finished runs are changed, and summed up."""
    rng, (root, expected) = random.Random(f"summary {number}"), compared()
    with _copy(root) as runs:
        what = _manifest_change(rng, runs) if number % 10 == 0 else _mutate_folder(rng, runs)
        with attacked(f"summary after {what}"):
            left = len(list(runs.rglob("manifest.json")))
            if load_results(runs).table("json") != expected and left == 4:  # a run that is not there is not silent
                raise Finding(f"summary after {what}: other numbers")


def session(number: int) -> None:
    """The folder of a session is changed, and read by the next server."""
    rng, (source, known) = random.Random(f"session {number}"), served()
    with _copy(source) as folder:
        what = _mutate_folder(rng, folder)
        with attacked(f"session after {what}"):
            again = fp.Session(fp.E3CS(3, quota=0.3), state=folder)
            assert isinstance(again.memory, Memory)
            reached = again.round_number
            if reached == 0 and not again.names:  # the state was removed, and nothing is left to be wrong
                return
            for name, value in pack(again.roster.state).items():
                if reached not in known or not np.array_equal(known[reached][name], value, equal_nan=True):
                    raise Finding(f"session after {what}: another {name} after round {reached}")


def state(number: int) -> None:
    """A state file is changed, and loaded."""
    rng = random.Random(f"state {number}")
    policy, clients = fp.BSFL(3), fp.Clients(np.arange(1.0, 9.0))
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        path = Path(place) / "s.npz"
        fp.save_state(policy, policy.init(clients), path, round=3)
        expected = pack(policy.init(clients))
        path.write_bytes(mutate(rng, path.read_bytes()))
        with attacked("a state"):
            loaded, notes = fp.load_state(policy, path, clients)
            same = all(np.array_equal(expected[name], value, equal_nan=True) for name, value in pack(loaded).items())
            if not same or notes != {"round": 3}:
                raise Finding("a state with other numbers")


_VALUES = [
    *("0", "1", "-1", "2.5", "1e400", "-0.0", "10**13", "nan", "inf", "None", "True", "''", "'inc'", "'x'", "b'x'", "...", "1j"),
    *("[]", "[1]", "(1, 2, 3)", "{}", "{'a': 1}", "{1}", "[[[[]]]]", "99999999999999999999", "1e-320", "-5", "0.5", "3"),
    *("uniform", "e3cs", "linear", "'pivotal'", "'quality'", "lambda: 0", "__import__('os')", "a.b", "x[0]", "*", "not 1"),
    *("'\\x00'", "'\x1b[2J'", "'" + "a" * 300 + "'", "-" * 30 + "1", "(" * 60 + ")" * 60, "'$x_{$'", "1_000", "0x10", "1 if 1 else 2"),
    *("{[]: 1}", "{{}}", "1" + "0" * 400, "-" * 5000, "a-" * 5000),
]  # fmt: skip


def _settings(rng: random.Random, maker: Callable[..., object] | None) -> str:
    import inspect

    names = list(inspect.signature(maker).parameters) if maker is not None else ["cohort_size", "p", "spell"]
    given = [
        (f"{rng.choice(names)}=" if names and rng.random() < 0.8 else "") + rng.choice(_VALUES)
        for _ in range(rng.randrange(4))
    ]
    return f"({', '.join(given)})" if given else ""


def _text(rng: random.Random, known: dict[str, Callable[..., object]]) -> str:
    name = rng.choice(list(known))
    text = name + _settings(rng, known[name])
    kind = rng.randrange(8)
    if kind == 0:
        text = f"over-select({text}, {rng.choice(_VALUES)})"
    elif kind == 1:
        text = mutate(rng, text.encode()).decode("utf-8", "replace")
    elif kind == 2:
        text = "".join(rng.choice(string.printable) for _ in range(rng.randrange(30)))
    elif kind == 3:
        text = f"{rng.choice(list(known))}({text})"
    return text


def texts(number: int) -> None:
    """A policy's or a world's text."""
    rng = random.Random(f"texts {number}")
    if number % 2:
        text = _text(rng, dict(policy_names()))
        with attacked(f"policy {text!r}"):
            config = Config(text, 4, 3, 1, {"name": rng.choice(["volatile", "phones", "ideal"]), "num_clients": 12})
            for _ in config.build().rounds(3):
                pass
        return
    settings: dict[str, object] = {"name": rng.choice(list(WORLDS)), "num_clients": 12}
    for part, makers in PARTS.items():
        if rng.random() < 0.5:
            settings[part] = _text(rng, dict(makers))
    for key in ("deadline", "epochs", "probe_share", "wait", "model_megabytes", "num_clients"):
        if rng.random() < 0.15:
            settings[key] = rng.choice([0, -1, 2.5, "x", [], [1, 2], None, True, 1e400, 10**13, {}, "slowest", 3])
    with attacked(f"world {settings!r}"):
        config = Config("uniform", 4, 3, 1, settings)
        for _ in config.build().rounds(3):
            pass


_TOML = """policy = "e3cs(quota=0.5)"
cohort_size = 4
rounds = 12
seed = 3
checkpoint_every = 5

[world]
name = "volatile"
num_clients = 12
deadline = 12.0
availability = "bernoulli(p=0.8)"
volatility = "bursts(spell=5)"
epochs = [1, 2]
"""
_LINES = [
    *("num_clients = 10000000000000", "cohort_size = 2.5", "rounds = -1", "seed = 1e3", "world = 3", "policy = 3", "[data]"),
    *("[train]", "[[world]]", "name = [1]", "epochs = []", "deadline = nan", "deadline = inf", "seed = 1979-05-27", "x = {a=1}"),
    *("availability = 3", "availability = ''", 'policy = ["uniform"]', "seeds = 3", "seeds = [1, 1]", "cohort_size = [4, []]"),
    *("name = 'nowhere'", 'volatility = "bursts(spell=(1,2,3))"', 'latency = "gamma(low=-1)"', "checkpoint_every = true"),
    *('policy = "rpow-d(schedule=0)"', "batch = 2.5", "rounds = 99999999999999999999", "seed = 99999999999999999999999"),
    *('availability = "trace(\'/dev/null\')"', "num_clients = 0", "num_clients = true", "[world.name]", "wait = 'x'"),
    *("deadline = 1" + "0" * 400, "num_clients = 1" + "0" * 400, "num_clients = 100000000", "seed = 1" + "0" * 400),
]  # fmt: skip


def toml(number: int) -> None:
    """A configuration file."""
    rng = random.Random(f"toml {number}")
    lines = _TOML.splitlines()
    for _ in range(rng.randrange(1, 4)):
        kind, at = rng.randrange(4), rng.randrange(len(lines))
        if kind == 0:
            lines[at] = rng.choice(_LINES)
        elif kind == 1:
            lines.insert(at, rng.choice(_LINES))
        elif kind == 2 and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + rng.choice(["0", "-1", "2.5", "''", "[]", "{}", "nan", "true"])
        else:
            lines[at] = mutate(rng, lines[at].encode()).decode("utf-8", "replace")
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        file = Path(place) / "c.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        with attacked(f"TOML {lines!r}"):
            load(file) if rng.random() < 0.6 else load_experiment(file).configs()


# --- files made to harm


def _npy(shape: str, dtype: str = "<f8", body: bytes = b"") -> bytes:
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def hostile_archives() -> Iterator[tuple[str, bytes]]:
    """State files that no save_state ever wrote, by what is wrong with them."""
    meta = {"format": 1, "fedpick": "0.1.0", "policy": "Uniform", "settings": "", "clients": 8, "notes": {}}
    good = io.BytesIO()
    np.lib.format.write_array(good, np.zeros(8, dtype=np.int64))

    def archive(
        text: bytes | str, member: bytes = good.getvalue(), how: int = zipfile.ZIP_STORED, name: str = "counts.npy"
    ) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as out:
            out.writestr("fedpick.json", text)
            out.writestr(name, member)
        return file.getvalue()

    text = json.dumps(meta)
    yield "a member of 1 GB, deflated", archive(text, bytes(2**28), zipfile.ZIP_DEFLATED)
    for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED):
        yield f"compression {how}", archive(text, how=how)
    encrypted = bytearray(archive(text))
    for at in range(len(encrypted) - 4):
        if encrypted[at : at + 4] == b"PK\1\2":
            encrypted[at + 8] |= 1
        if encrypted[at : at + 4] == b"PK\3\4":
            encrypted[at + 6] |= 1
    yield "encrypted members", bytes(encrypted)
    for shape in (
        "(10000000000000,)",
        "(-1,)",
        "(8, 0)",
        "(2.5,)",
        "'x'",
        "()",
        "(" + "1, " * 3000 + ")",
        "(True,)",
        "8",
    ):
        yield f"shape {shape[:20]}", archive(text, _npy(shape, "'<f8'", bytes(64)))
    for dtype in ("'|O'", "'<M8[ns]'", "[('a', '<f8')]", "'<U10'", "'V8'", "3", "'<f8', 'x'", "None", "'S0'", "'<c16'"):
        yield f"dtype {dtype}", archive(text, _npy("(8,)", dtype, bytes(64)))
    yield "a version of .npy to come", archive(text, b"\x93NUMPY\x09\x00" + bytes(100))
    yield "no .npy", archive(text, b"hello")
    yield "an empty member", archive(text, b"")
    yield "nested 100,000 deep", archive("[" * 100_000 + "]" * 100_000)
    yield "nested tables", archive('{"a":' * 50_000 + "1" + "}" * 50_000)
    for other in ("3", "null", "[]", '"x"', "{", "", "\xff", '{"format": 1}', '{"format": []}', '{"format": 2}', "NaN"):
        yield f"the text {other}", archive(other)
    for key, value in (
        *(("policy", 3), ("policy", ["Uniform"]), ("clients", "8"), ("clients", -1), ("clients", [8]), ("notes", 3)),
        *(("notes", None), ("notes", "abc"), ("notes", [1]), ("fedpick", "9.9.9"), ("fedpick", {}), ("members", 3)),
        *(("members", []), ("members", ["counts", "counts"]), ("format", 1.5), ("format", "1"), ("members", [[]])),
    ):
        yield f"{key} {value!r}", archive(json.dumps({**meta, key: value}))
    for lacking in ("policy", "clients", "notes", "format"):
        yield f"no {lacking}", archive(json.dumps({key: value for key, value in meta.items() if key != lacking}))
    yield "the name of another folder", archive(text, name="../../counts.npy")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(file, "w") as out:
            out.writestr("fedpick.json", text)
            out.writestr("counts.npy", good.getvalue())
            out.writestr("counts.npy", good.getvalue())
    yield "a member twice", file.getvalue()
    yield "a folder in it", archive(text, b"", name="counts.npy/")
    yield "nothing", b""
    yield "a text file", b"hello\n" * 100


def hostile(number: int) -> None:
    """A state file made to harm."""
    cases = list(_hostile_cases())
    what, content = cases[number % len(cases)]
    policy, clients = fp.Uniform(3), fp.Clients(np.ones(8))
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        (Path(place) / "state.npz").write_bytes(content)
        with attacked(f"a state file: {what}"):
            fp.load_state(policy, Path(place) / "state.npz", clients)
        with attacked(f"the state of a session: {what}"):
            fp.Session(policy, state=place)


@cache
def _hostile_cases() -> tuple[tuple[str, bytes], ...]:
    return tuple(hostile_archives())


def hostile_data() -> Iterator[tuple[str, str, bytes]]:
    """(what is wrong, name, bytes) of data files of one's own."""

    def npz(how: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as out:
            for name, content in members.items():
                out.writestr(f"{name}.npy", content)
        return file.getvalue()

    def npy(values: object) -> bytes:
        file = io.BytesIO()
        np.lib.format.write_array(file, np.asarray(values))
        return file.getvalue()

    x, y = npy(np.zeros((4, 2), np.float32)), npy([0, 1, 0, 1])
    huge = _npy("(1000000000000, 2)", "'<f4'")
    yield "a header that promises terabytes", "a.npz", npz(x=huge, y=y)
    yield "a bomb", "a.npz", npz(zipfile.ZIP_DEFLATED, x=_npy("(50000000, 2)", "'<f4'", bytes(400_000_000)), y=y)
    yield "labels that need memory", "a.npz", npz(x=x, y=npy([0, 1, 0, 2**40]))
    yield "labels below 0", "a.npz", npz(x=x, y=npy([0, 1, 0, -5]))
    yield "labels of text", "a.npz", npz(x=x, y=npy(["a", "b", "c", "d"]))
    yield "labels of two axes", "a.npz", npz(x=x, y=npy([[0], [1], [0], [1]]))
    yield "labels NaN", "a.npz", npz(x=x, y=npy([0.0, np.nan, 1.0, np.inf]))
    yield "a scalar", "a.npz", npz(x=npy(3.0), y=npy(1))
    yield "other lengths", "a.npz", npz(x=x, y=npy([0, 1]))
    yield "pickled objects", "a.npz", npz(x=_npy("(4,)", "'|O'", bytes(32)), y=y)
    yield "clients of two axes", "a.npz", npz(x=x, y=y, client=npy([[1, 2], [3, 4], [1, 2], [3, 4]]))
    yield "too few clients", "a.npz", npz(x=x, y=y, client=npy([1]))
    yield (
        "a test set of another width",
        "a.npz",
        npz(x=x, y=y, test_x=npy(np.zeros((2, 3), np.float32)), test_y=npy([0, 1])),
    )
    yield "half a test set", "a.npz", npz(x=x, y=y, test_x=npy(np.zeros((2, 2), np.float32)))
    yield "no examples", "a.npz", npz(x=npy(np.zeros((0, 2), np.float32)), y=npy(np.zeros(0, int)))
    yield "complex numbers", "a.npz", npz(x=npy(np.zeros((4, 2), complex)), y=y)
    yield "no archive", "a.npz", b"hello"
    yield "no Parquet", "a.parquet", b"PAR1" + bytes(40) + b"PAR1"
    for what, content in _parquets():
        yield what, "a.parquet", content


def _parquets() -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(values: int, deep: int = 1) -> "pa.Array":
        """One row of this many zeros, each in lists of one but for the outermost."""
        found, each = pa.array(np.zeros(values, np.float32)), np.arange(values + 1, dtype=np.int32)
        for _ in range(deep - 1):
            found = pa.ListArray.from_arrays(pa.array(each), found)
        return pa.ListArray.from_arrays(pa.array([0, values], pa.int32()), found)

    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["a" * 1_000_000]))
    for what, columns in {
        "rows of other lengths": {"x": [[1.0], [1.0, 2.0]], "y": [0, 1]},
        "texts": {"a": ["x", "y"], "y": [0, 1]},
        "no inputs": {"y": [0, 1]},
        "nothing": {},
        "nulls": {"a": [None, 1.0], "y": [0, 1]},
        "null labels": {"a": [1.0, 2.0], "y": [None, 1]},
        "null clients": {"a": [1.0, 2.0], "y": [0, 1], "client": [None, "a"]},
        "clients of lists": {"a": [1.0, 2.0], "y": [0, 1], "client": [[1], [2, 3]]},
        "tests of text": {"a": [1.0, 2.0], "y": [0, 1], "test": ["no", "yes"]},
        "texts as labels": {"a": [1.0, 2.0], "y": ["a", "b"]},
        "deep lists": {"x": [[[[1.0]]], [[[2.0]]]], "y": [0, 1]},
        "labels of dates": {"a": [1.0, 2.0], "y": np.array(["2020-01-01", "2021-01-01"], "M8[D]")},
        "a row of many values": {"x": lists(80_000_000), "y": [0]},
        "a row of many nested lists": {"x": lists(30_000_000, 4), "y": [0]},
        "many long names": {"a": np.zeros(100_000), "y": np.zeros(100_000), "client": names},
        "many long texts": {"a": names, "y": np.zeros(100_000)},
    }.items():
        file = io.BytesIO()
        pq.write_table(pa.table(columns), file, compression="zstd")
        yield what, file.getvalue()


@cache
def _data_cases() -> tuple[tuple[str, str, bytes], ...]:
    return tuple(hostile_data())


def data(number: int) -> None:
    """A data file of one's own, made to harm."""
    cases = _data_cases()
    what, name, content = cases[number % len(cases)]
    from fedpick.data.files import load_file

    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        file = Path(place) / name
        file.write_bytes(content if number < len(cases) else mutate(random.Random(f"data {number}"), content))
        with attacked(f"data: {what}"):
            load_file(file)


def hostile_sources() -> Iterator[tuple[str, str, bytes]]:
    """(what is wrong, which reader, bytes) of official files of data sets."""
    import gzip

    def tgz(*members: tuple[str, bytes, str]) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as out:
            for name, content, link in members:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                if link:
                    entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, link, 0
                out.addfile(entry, io.BytesIO(content) if not link else None)
        return file.getvalue()

    batch = "cifar-10-batches-bin/data_batch_1.bin"
    yield "a tar that links to itself", "cifar", tgz((batch, b"", batch.split("/")[1]))
    yield (
        "a tar of two links in a ring",
        "cifar",
        tgz((batch, b"", "b"), ("cifar-10-batches-bin/b", b"", "data_batch_1.bin")),
    )
    yield "a tar bomb", "cifar", tgz((batch, bytes(2**29), ""))
    yield "an empty tar", "cifar", tgz()
    yield "a gzip bomb", "idx", gzip.compress(bytes(2**29))
    yield "idx of 255 axes", "idx", gzip.compress(b"\0\0\x08\xff" + b"\xff\xff\xff\xff" * 255)
    yield "idx of terabytes", "idx", gzip.compress(b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 3)
    yield "idx of nothing", "idx", b""
    yield "letters bomb", "ocr", gzip.compress(b"1\ta\t" + b"0\t" * 200_000_000)
    yield "letters of nonsense", "ocr", gzip.compress(b"\t" * 400)
    yield "letters without numbers", "ocr", gzip.compress(b"x\t" * 133 + b"x\n")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("gzip/emnist-letters-train-images-idx3-ubyte.gz", bytes(2**29))
    yield "a zip bomb", "emnist", file.getvalue()
    yield "no zip", "emnist", b"PK\5\6" + bytes(10)


@cache
def _source_cases() -> tuple[tuple[str, str, bytes], ...]:
    return tuple(hostile_sources())


def sources(number: int) -> None:
    """An official file of a data set, made to harm."""
    from fedpick.data.sources import formats

    cases = _source_cases()
    what, reader, content = cases[number % len(cases)]
    names = {
        "cifar": "cifar-10-binary.tar.gz",
        "idx": "train-images-idx3-ubyte.gz",
        "ocr": "letter.data.gz",
        "emnist": "gzip.zip",
    }
    read = {
        "cifar": formats.read_cifar_binary,
        "idx": formats.read_idx,
        "ocr": formats.read_ocr_letters,
        "emnist": partial(formats.read_emnist, "letters"),
    }[reader]
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place:
        (Path(place) / names[reader]).write_bytes(content)
        with attacked(f"{reader}: {what}"):
            read(Path(place))


# ---- promises of a policy


APART = 1000  # rounds of one step
INSIDE = (
    "uniform",
    "e3cs(quota=0.5)",
    "oort",
    "rpow-d(candidates=8)",
    "cs-ucb",
    "over-select(bsfl, 1.5)",
    "guard(tifl)",
)


def separation(number: int) -> None:
    """A thousand rounds of MinSeparation: clients are away, fail, join and leave; the state is saved and loaded."""
    rng, draw = random.Random(f"separation {number}"), np.random.default_rng(number)
    apart, most = rng.randint(1, 9), rng.choice([None, rng.randint(1, 300)])
    policy = fp.policy(f"min-separation({rng.choice(INSIDE)}, {apart}, {most})", cohort_size=rng.randint(1, 6))
    names = list(range(12))  # of the clients, in the order of the state
    state, fresh, log = policy.init(fp.Clients(np.ones(len(names)))), len(names), list[tuple[int, int]]()
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place, attacked("min-separation"):
        for t in range(1, APART + 1):
            event = rng.random()
            if event < 0.02:  # a restart
                fp.save_state(policy, state, Path(place) / "state.npz")
                state, _ = fp.load_state(policy, Path(place) / "state.npz", fp.Clients(np.ones(len(names))))
            elif event < 0.04:
                state, names, fresh = fp.admit(policy, state, fp.Clients(np.ones(1))), [*names, fresh], fresh + 1
            elif event < 0.06 and len(names) > 1:
                gone = rng.randrange(len(names))
                names = [name for at, name in enumerate(names) if at != gone]
                state = fp.retire(policy, state, np.arange(len(names) + 1) != gone)
            there = draw.random(len(names)) < rng.choice([0.2, 0.7, 1.0])
            seen = fp.View(t, clients=fp.Clients(np.ones(len(names))), available=there)
            choice = policy.select(state, seen, draw)
            status = draw.choice([0, 1, 2, 3], len(choice), p=[0.7, 0.1, 0.1, 0.1])
            outcome = fp.Outcome(status, draw.uniform(0.5, 2.0, len(choice)), draw.gamma(2.0, size=len(choice)))
            state = policy.observe(state, seen, choice, outcome)
            log += [(names[at], t) for at in choice.ids.tolist()]
        by_client: dict[int, list[int]] = {}
        for name, t in log:
            by_client.setdefault(name, []).append(t)
        for name, rounds in by_client.items():
            close = any(b - a < apart for a, b in itertools.pairwise(rounds))
            if close or (most is not None and len(rounds) > most):
                raise Finding(f"{policy}: client {name} took part in rounds {rounds}"[:300])


CAMPAIGNS: dict[str, Callable[[int], None]] = {
    each.__name__: each
    for each in (bits, resume, summary, session, state, texts, toml, hostile, data, sources, separation, forged, told)
}
CAMPAIGNS |= {each.__name__: each for each in (sizes, crowd, heads, messages, rotten, forks, slow)}
