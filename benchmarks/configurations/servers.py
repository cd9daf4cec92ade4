"""Configurations of servers: the session and Flower's strategy, scripted, with a clock that only the script moves."""

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import fedpick as fp
from configurations.arrays import Found, files_of

FLOWER_TESTS = Path(__file__).resolve().parents[2] / "tests" / "flower"  # its fake grid uses Flower only


class Clock:
    """Stands still until it is moved, or somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.now += max(seconds, 1e-6)


@contextmanager
def scripted_time() -> Iterator[Clock]:
    """Replace `monotonic` and `sleep` in all of fedpick's modules, whatever they are called."""
    with tempfile.TemporaryDirectory() as spare:  # imports what is imported on first use
        session = fp.Session(fp.Uniform(1), state=f"{spare}/s", model=f"{spare}/m", records=f"{spare}/r", late=1)
        with session.round(available=["a"]) as r:
            r.model = {"w": np.zeros(1)}
        session.close()
    clock = Clock()
    proxy = SimpleNamespace(**{**vars(time), "monotonic": clock.monotonic, "sleep": clock.sleep})
    instead = {id(time.monotonic): clock.monotonic, id(time.sleep): clock.sleep, id(time): proxy}
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if name == "fedpick" or name.startswith("fedpick."):
                for key, value in list(vars(module).items()):
                    if id(value) in instead:
                        patches.enter_context(mock.patch.object(module, key, instead[id(value)]))
        yield clock


def killed(folder: Path, copy: Path) -> Path:
    """A copy of a server's folders as a kill at this moment would leave them: with a journal, without a last write."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.lock"))
    return copy


def note_round(found: Found, session: Any, r: Any) -> None:
    """Note how a session's round ended, and its weights."""
    record = r.record
    for name in ("ids", "inclusion", "status", "duration", "loss", "clock", "seconds", "messages", "megabytes"):
        found[f"round {record.round}/{name}"] = np.asarray(getattr(record, name))
    found[f"round {record.round}/chosen"] = np.array(r.chosen, dtype=str)
    found[f"round {record.round}/names"] = np.array(session.names, dtype=str)
    if r.weights is not None:
        found[f"round {record.round}/weights"] = np.array(list(r.weights.values()))


def session_with_names(folder: Path) -> Found:
    """Failures, impossible losses, surplus, silence, newcomers, leavers, a retirement; killed and continued."""
    found: Found = {}
    policy = fp.OverSelect(fp.Guard(fp.E3CS(4, quota=0.3)), 1.5)

    def open_in(place: Path) -> fp.Session:
        return fp.Session(policy, state=place / "state", records=place / "records", deadline=30.0, seed=11)

    def play(session: fp.Session, clock: Clock, until: int) -> None:
        while (number := session.round_number + 1) <= until:
            draws = fp.rng.stream(1, number, "script")
            names = {f"phone-{k}": 10.0 + k for k in range(number // 3, 12 + number // 2) if draws.random() < 0.9}
            with session.round(available=names) as r:
                for at, name in enumerate(r.chosen):
                    clock.sleep(2.0)
                    luck = draws.random()
                    if luck < 0.15:
                        r.failed(name, "scripted")
                    elif luck < 0.25:
                        r.done(name, loss=float("nan"), seconds=1.0)
                    elif luck < 0.85:
                        r.done(name, loss=luck + at, seconds=1.0 + 5.0 * luck, arrived=2.0 * (at + 1))
            note_round(found, session, r)
            session.measure({"accuracy": number / 50})

    with scripted_time() as clock:
        first = open_in(folder / "a")
        play(first, clock, 7)
        again = killed(folder / "a", folder / "b")
        first.close()
        second = open_in(again)
        play(second, clock, 10)
        second.retire(["phone-5", "phone-9", "nobody"])
        play(second, clock, 24)
        second.close()
        third = open_in(again)
        play(third, clock, 27)
        third.close()
    return found | files_of(again)


def session_with_late_updates(folder: Path) -> Found:
    """Updates that come one or two rounds late are kept and averaged; the model is kept and given back."""
    found: Found = {}

    def open_in(place: Path) -> fp.Session:
        folders = {name: place / name for name in ("state", "model", "records")}
        return fp.Session(fp.REFL(3), deadline=10.0, late=2, seed=4, **folders)

    def play(session: fp.Session, clock: Clock, until: int) -> None:
        kept = session.model
        w = np.zeros(3) if kept is None else kept["w"]
        owed: list[tuple[str, int, NDArray[Any]]] = []
        while (number := session.round_number + 1) <= until:
            draws = fp.rng.stream(2, number, "script")
            for name, of, update in owed[:2]:
                session.keep(name, update, round=of, size=20.0 + of)
            owed = owed[2:]
            names = session.free([f"phone-{k}" for k in range(10) if draws.random() < 0.8])
            with session.round(available=names) as r:
                for name in r.chosen:
                    clock.sleep(1.0)
                    update = draws.normal(size=3) - w
                    if draws.random() < 0.6:
                        r.done(name, loss=float(np.square(update).mean()), seconds=2.0, update=update, arrived=3.0)
                    else:
                        owed.append((name, number, update))
                parts = r.parts()
                for part in parts:
                    w = w + part.weight * part.update
                found[f"round {number}/late by"] = np.array([part.rounds for part in parts])
                found[f"round {number}/parts"] = np.array([part.weight for part in parts])
                r.model, r.megabytes = {"w": w}, 0.5
            note_round(found, session, r)

    with scripted_time() as clock:
        first = open_in(folder / "a")
        play(first, clock, 8)
        again = killed(folder / "a", folder / "b")
        first.close()
        second = open_in(again)
        play(second, clock, 24)
        second.close()
    return found | files_of(again)


def session_with_functions(folder: Path) -> Found:
    """The server's functions: probes, a context, embeddings of updates, values of updates."""
    found: Found = {}
    width = 4

    def probe(names: list[str], batch: int | None) -> NDArray[Any]:
        return np.array([float(name.split("-")[1]) % 5 for name in names])

    def context(round: int, names: list[str], idle: NDArray[Any]) -> NDArray[Any]:
        return np.column_stack([np.ones(len(names)), np.arange(len(names)) % 4, np.asarray(idle, dtype=float)])

    def value(updates: dict[str, Any]) -> dict[str, float]:
        return {name: -float(np.square(update - 1.0).sum()) for name, update in updates.items()}

    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "probe": (fp.PowerOfChoice(3, 6), {}),
        "context": (fp.RBCSF(3), {"context": context}),
        "embed": (fp.FedGS(3, graph="embedding"), {"embed": lambda update: update}),
        "value": (fp.GreedyFed(3), {"value": value}),
    }
    with scripted_time() as clock:
        for case, (policy, settings) in cases.items():
            session = fp.Session(policy, records=folder / case, state=folder / f"{case}-state", **settings)
            rounds: Found = {}
            for number in range(1, 11):
                draws = fp.rng.stream(3, number, "script")
                names = [f"phone-{k}" for k in range(8 + number // 4)]
                with session.round(available=names, probe=probe) as r:
                    for name in r.chosen:
                        clock.sleep(1.0)
                        r.done(name, loss=draws.random(), seconds=1.0, update=draws.normal(size=width), arrived=1.5)
                note_round(rounds, session, r)
            session.close()
            found |= {f"{case}/{name}": array for name, array in rounds.items()}
    return found | files_of(folder)


@contextmanager
def flower_identity() -> Iterator[None]:
    """What Flower's messages need outside of a server."""
    from flwr.supercore.task_identity import TaskIdentity

    with ExitStack() as patches:
        for name in ("run_id", "task_id", "node_id"):
            patches.enter_context(mock.patch.object(TaskIdentity, f"_{name}", 1))
        yield


def flower(folder: Path, policy: Any, late: int) -> Found:
    """A scripted grid: nodes that add to the model, are slow, fail, send what cannot be used, come and go."""
    sys.path.insert(0, str(FLOWER_TESTS))
    try:
        from fake_flower import FakeGrid, content, model, replies
    finally:
        sys.path.remove(str(FLOWER_TESTS))
    from flwr.app import Error
    from flwr.serverapp.strategy import FedAvg

    from fedpick.flower import Selected

    def adds(amount: float, seconds: float) -> Callable[[Any], tuple[float, Any]]:
        def behave(message: Any) -> tuple[float, Any]:
            if message.metadata.message_type == "evaluate.probe":
                return 0.1, content(loss=amount)
            if message.metadata.message_type.startswith("evaluate"):
                return 0.1, content(accuracy=0.5 + amount / 100)
            sent = message.content.array_records["arrays"]["w"].numpy()
            move = np.array([amount, 1.0 / amount])
            return seconds, content(model(*(sent + move)), train_loss=1.0 / amount, num_examples=int(10 * amount))

        return behave

    nodes = {k: adds(float(k), seconds=1.0 + k / 2) for k in range(1, 9)}
    nodes[3] = adds(3.0, seconds=14.0)  # later than the deadline
    nodes[5] = replies(Error(2, "scripted"))
    nodes[6] = replies(content(model(float("nan"), 0.0), train_loss=0.1))
    found: Found = {}
    with scripted_time() as clock, flower_identity():
        grid = FakeGrid(clock, nodes)
        random.seed(7)  # Flower's strategies draw from it, in which order nodes are sent messages

        def serve(rounds: int) -> None:
            folders = {name: folder / name for name in ("state", "model", "records")}
            base = FedAvg(fraction_evaluate=0.5, min_evaluate_nodes=2)
            strategy = Selected(base, policy, deadline=10.0, late=late, seed=7, wait=0.0, **folders)

            def look(number: int, arrays: Any) -> None:
                found[f"model/{strategy.round}"] = arrays["w"].numpy()
                if number and strategy.last is not None:
                    for name in ("ids", "inclusion", "status", "duration", "loss", "clock", "seconds"):
                        found[f"round {strategy.round}/{name}"] = np.asarray(getattr(strategy.last, name))
                if strategy.round == 3:  # newcomers
                    grid.nodes |= {k: adds(float(k), seconds=2.0) for k in (9, 10, 11)}
                if strategy.round == 5:  # leavers, and one that recovers
                    del grid.nodes[1], grid.nodes[8]
                    grid.nodes[5] = adds(5.0, seconds=3.0)

            strategy.start(grid, model(0.5, 0.25), num_rounds=rounds, timeout=60.0, evaluate_fn=look)

        serve(6)
        serve(4)  # a restart
    found["asked"] = np.array(grid.asked())
    found["sent"] = np.array([f"{each.metadata.message_type} {each.metadata.dst_node_id}" for each in grid.sent])
    return found | files_of(folder)


CONFIGURATIONS: dict[str, Callable[[Path], Found]] = {
    "session, names": session_with_names,
    "session, keep": session_with_late_updates,
    "session, functions": session_with_functions,
    "flower": lambda folder: flower(folder, fp.OverSelect(fp.E3CS(3, quota=0.5), 1.4), 0),
    "flower, late updates": lambda folder: flower(folder, fp.Guard(fp.F3AST(4)), 2),
    "flower, probes": lambda folder: flower(folder, fp.PowerOfChoice(3, 6), 0),
}
