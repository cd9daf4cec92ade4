"""Attacks by those who send a server messages, or a person a folder of runs: texts that harm who looks at them."""

import csv
import io
import json
import random
import tempfile
from pathlib import Path

import numpy as np
from findings import Finding, attacked
from rich.console import Console

import fedpick as fp
from fedpick.report.formats import FORMATS
from fedpick.report.results import load
from fedpick.report.trackers import source_of
from fedpick.store import Tables, read_rounds

TEXTS = (  # that a terminal, a spreadsheet, a page or a file would take for something else
    *(
        "\x1b[2J\x1b[1;1H",
        "\x1b]0;owned\x07",
        "\x1b]8;;http://x.example\x1b\\click\x1b]8;;\x1b\\",
        "\x9b31m",
        "\x08" * 9,
    ),
    *('=HYPERLINK("http://x.example","y")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(1+1)", "\t=1+1", "\r=1+1", '"=1,2'),
    *("\ud800", "x\udcff", "\x00", "a\r\nb", "</script><script>", "\u202eabc", "\u2028", "%\n\n\\input{x}", "$x_{$"),
    *("", "uniform", "accuracy", "fresh_model", "forgotten", "round", "policy", "loss", "x" * 100_000, "ü" * 400, "🙂"),
)
VALUES = (  # in place of another value of a JSON file
    *(
        None,
        True,
        0,
        -1,
        0.5,
        1e300,
        float("inf"),
        2**63,
        10**9,
        10**400,
        [],
        {},
        [[[]]],
        {"a": {"b": 1}},
        "",
        "0.5",
        "mnist",
        "synthetic",
    ),
    *TEXTS[:20],
)


def _text(rng: random.Random) -> str:
    return rng.choice(TEXTS) + rng.choice(("", "", " (x)", rng.choice(TEXTS)))


def _record(round: int, rng: random.Random, metrics: dict[str, float]) -> fp.Record:
    ids = np.array(sorted(rng.sample(range(12), 4)))
    return fp.Record(
        round=round,
        clock=60.0 * round,
        seconds=60.0,
        available=12,
        messages=8,
        megabytes=4.0,
        ids=ids,
        inclusion=np.full(4, 1 / 3),
        status=np.array([0, 0, rng.randrange(3), 0], dtype=np.int8),
        duration=np.full(4, 20.0),
        loss=np.ones(4),
        metrics=metrics,
    )


def _look(folder: Path) -> None:
    """Show the results in a folder in every way; a control character or a formula is a finding."""
    results = load(folder)
    for format in (*FORMATS, "page"):
        text = results.page() if format == "page" else str(results.table(format))
        text.encode()  # a lone surrogate is an error
        if found := sorted({char for char in text if not char.isprintable() and char not in "\n"} - {"\t"}):
            raise Finding(f"{format} holds {found!r}")
        if format != "csv":
            continue
        for row in csv.DictReader(io.StringIO(text)):
            for name, value in row.items():
                if value[:1] in tuple("=+-@\t\r") and name not in ("values", "seeds"):
                    try:
                        float(value)
                    except ValueError:
                        raise Finding(f"a spreadsheet would compute {value!r} in column {name}") from None
    shown = io.StringIO()
    Console(file=shown, width=100, emoji=False).print(results.table(), results.trouble())
    settings = [text for run in results.runs for text in source_of(run).settings.values()]
    for text in (shown.getvalue(), *settings):
        if not text.replace("\n", "").isprintable():
            raise Finding(f"a control character in {text!r}")
    results.frame(), results.rounds()


def forged(number: int) -> None:
    """A folder of runs from somebody else, whose manifests hold anything, with the right sums."""
    rng = random.Random(f"forged {number}")
    world: dict[str, object] = {"name": "volatile", "num_clients": 12}
    said: dict[str, object] = {"policy": "uniform", "cohort_size": 4, "rounds": 3, "seed": 0, "checkpoint_every": 5}
    said |= rng.choice(({"world": world}, {"world": world, "data": {"name": "mnist"}}, {"engine": "flower"}))
    about: dict[str, object] = {"world": "w", "data": rng.choice([None, "mnist"]), "train": "", "num_clients": 12}
    about |= {"policy": "uniform", "engine": "simulator"}
    for _ in range(rng.randrange(1, 4)):
        table = rng.choice((said, about, about, world))
        keys = [*table, "directions", "lacking", "oracle", "device", "code", "train", "about"]
        table[rng.choice(keys)] = rng.choice((rng.choice(VALUES), _text(rng), {_text(rng): _text(rng)}))
    if rng.random() < 0.3:
        about["policy"] = said["policy"] = _text(rng)
    with (
        tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place,
        attacked(f"forged {said!r}, about {about!r}"[:300]),
    ):
        for seed in range(rng.choice([1, 2])):
            with Tables(Path(place) / f"run-{seed}", {**said, "seed": seed} if seed else said) as tables:
                metrics = {rng.choice(["accuracy", "f1", "=1+1", "\x1b[2J"]): rng.random()}
                tables.write([_record(t + 1, rng, metrics) for t in range(3)], list(metrics))
                tables.join(3)
                tables.note(about)
        _look(Path(place))


def told(number: int) -> None:
    """A server whose clients call themselves and their metrics anything; what is recorded is shown."""
    rng = random.Random(f"told {number}")
    wrong = (7, None, b"x", [1], {}, float("nan"), 10**5000, "x" * 501, "")
    numbers = (
        0.5,
        1,
        True,
        10**400,
        -(10**400),
        float("nan"),
        float("inf"),
        np.float32(2),
        np.complex128(1j),
        "x",
        [1.0],
    )
    with tempfile.TemporaryDirectory(prefix="fedpick-fuzz-") as place, attacked("what clients tell"):
        folder, names = (
            Path(place),
            [name for name in dict.fromkeys(_text(rng) for _ in range(6)) if 0 < len(name) <= 500],
        )
        session = fp.Session(fp.Uniform(3), state=folder / "state", records=folder / "run")
        for _ in range(4):
            with session.round(["ada", *names, *rng.sample(wrong, 3)]) as r:
                for name in r.chosen:
                    r.done(name, loss=rng.choice(numbers), seconds=rng.choice(numbers), size=rng.choice(numbers))
                r.done(rng.choice(wrong), reports={_text(rng): rng.choice(numbers)})
            session.keep(rng.choice(wrong), 1.0, round=rng.choice(wrong)) if session.late.rounds else None
            session.measure({_text(rng): rng.choice(numbers) for _ in range(3)}, training=rng.random() < 0.5)
        session.close()
        if read_rounds(folder / "run")["round"].to_pylist() != [1, 2, 3, 4]:
            raise Finding("a round is not recorded")
        again = fp.Session(fp.Uniform(3), state=folder / "state")
        if again.names != session.names or json.dumps(again.names) != json.dumps(session.names):
            raise Finding("other names after a restart")
        _look(folder / "run")
