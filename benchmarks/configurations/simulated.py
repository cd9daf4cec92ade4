"""Simulated configurations: policies, worlds, trainers and executors, by `fp.compare` and `fp.Run`."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fedpick as fp
from configurations.arrays import Found, differences, files_of, runs_of

Tell = Callable[[int, int], None]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@contextmanager
def choices_noted() -> Iterator[Found]:
    """Note ids, weights and inclusion probabilities of all choices, which the records do not hold completely."""
    found: Found = {}
    classes = [getattr(fp, name) for name in fp.__all__ if isinstance(getattr(fp, name), type)]

    def noting(select: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(select)
        def noted(self: Any, state: Any, view: Any, rng: Any) -> Any:
            choice = select(self, state, view, rng)
            for part in ("ids", "weights", "inclusion"):
                if (value := getattr(choice, part)) is not None:
                    found[f"choices/{len(found):05d} {name} round {view.round} {part}"] = np.array(value)
            return choice

        return noted

    with ExitStack() as patches:
        for each in classes:
            if "select" in vars(each) and each is not fp.Policy:
                patches.enter_context(mock.patch.object(each, "select", noting(each.select, each.__name__)))
        yield found


def silent(index: int, round: int) -> None:
    """In place of a bar of progress."""


def compared(policy: Any, folder: Path, *, executor: str = "serial", tell: Tell = silent, **settings: Any) -> Found:
    """The files of a small comparison, and its choices where runs are played one after another."""
    usual: dict[str, Any] = {"world": VOLATILE, "cohort_size": 4, "data": None, "seeds": 1, "rounds": 12}
    with choices_noted() as noted:
        fp.compare(policy, out=folder, executor=executor, device="cpu", tell=tell, **usual | settings)
    return runs_of(folder) | (noted if executor == "serial" else {})


VOLATILE = {"name": "volatile", "num_clients": 24}
MLP = {"model": "mlp(hidden=(16,))", "evaluate_every": 2}
DIGITS = {"data": "digits", "train": MLP, "rounds": 8}
SYNTHETIC = {"data": "synthetic(1, 1)", "train": {"evaluate_every": 5}, "rounds": 10}
LATE = {**SYNTHETIC, "world": {**VOLATILE, "deadline": 5.0, "late": 3}, "rounds": 16}


def trained(**train: Any) -> dict[str, Any]:
    """Settings of a run on the digits, with these of [train] in place of the usual ones."""
    return {**DIGITS, "train": {**MLP, **train}}


SIMULATED: dict[str, tuple[Any, dict[str, Any]]] = {
    # nothing is trained
    "uniform": ("uniform", {"seeds": 2, "rounds": 30}),
    "phones": ("uniform", {"world": {"name": "phones", "num_clients": 40}, "rounds": 30}),
    "e3cs": ("e3cs(quota=0.5)", {"rounds": 30}),
    "cs-ucb": ("cs-ucb", {"rounds": 30}),
    "bsfl": ("bsfl", {"world": {"name": "bsfl", "num_clients": 20}, "rounds": 30}),
    "rbcs-f, context": ("rbcs-f", {"world": {"name": "rbcs-f", "num_clients": 40}, "rounds": 20}),
    "f3ast": ("f3ast", {"rounds": 30}),
    "genie and fedcs, truths": (["genie", "fedcs"], {"rounds": 10}),
    "size-weighted, with replacement": ("size-weighted(replace=True)", SYNTHETIC),
    "min-separation": ("min-separation(e3cs(quota=0.5), 3)", {"rounds": 30}),
    "guard": ("guard(e3cs(quota=0.5))", {"world": {"name": "bursts", "num_clients": 24}, "rounds": 40}),
    "over-select of guard": ("over-select(guard(cs-ucb, cap=1.2), 1.5)", {"rounds": 30}),
    # trained
    "logistic": ("uniform", SYNTHETIC),
    "mlp": ("active-fl", DIGITS),
    "mlp, scan": ("uniform", trained(form="scan")),
    "mlp, vmap": ("uniform", trained(form="vmap")),
    "mlp, bfloat16": ("uniform", trained(form="scan", precision="bfloat16")),
    "cnn": ("uniform", {**trained(model="cnn(channels=(4,), hidden=(16,), kernel=3)"), "rounds": 4}),
    "over-select of oort": ("over-select(oort, 1.4)", {**SYNTHETIC, "rounds": 20}),
    "late updates, refl": ("refl", LATE),
    "late updates, over-select": ("over-select(uniform, 1.5)", LATE),
    "pow-d, probes": ("pow-d(candidates=8)", DIGITS),
    "cpow-d, probes on a batch": ("cpow-d(candidates=8)", DIGITS),
    "optimal, two phases": ("optimal", SYNTHETIC),
    "optimal, two phases and late updates": ("optimal", LATE),
    "clustered, with replacement": ("clustered", SYNTHETIC),
    "fedgs, graph of features": ("fedgs", {**DIGITS, "world": {"name": "fedgs-yc", "num_clients": 24}}),
    "fedgs, graph of embeddings": ("fedgs(graph='embedding')", {**DIGITS, "rounds": 6}),
    "fedcor": ("fedcor(warmup=3, interval=4)", {**SYNTHETIC, "rounds": 12}),
    "divfl": ("divfl", SYNTHETIC),
    "tifl": ("tifl", {**SYNTHETIC, "rounds": 20}),
    "hics": ("hics", SYNTHETIC),
    "greedyfed, values": ("greedyfed", {**DIGITS, "rounds": 10}),
    "s-fedavg, values": ("s-fedavg", {**DIGITS, "rounds": 5}),
    "fedau": ("uniform", trained(aggregation="fedau")),
    "horvitz-thompson and fedadam": ("f3ast", trained(aggregation="horvitz-thompson", server="fedadam")),
    "o2, prox, dropout, schedule": (
        "e3cs(quota=0.5)",
        trained(
            model="mlp(hidden=(16,), dropout=0.2)",
            aggregation="o2",
            prox=0.1,
            momentum=0.5,
            lr="halving(0.1, every=3)",
            metrics=["macro_f1", "auroc"],
        ),
    ),
    "policy and trainer of the user": (
        ["uniform", f"{EXAMPLES / 'my_policy.py'}:RoundRobin", "pow-d(candidates=8)"],
        {**SYNTHETIC, "train": {"trainer": f"{Path(__file__).parent / 'loop.py'}:Loop(lr=0.1)"}},
    ),
    "stacked": (["uniform", "pow-d(candidates=8)"], {**DIGITS, "seeds": 3, "executor": "stacked"}),
    "stacked, logistic and late updates": (["uniform", "refl"], {**LATE, "seeds": 2, "executor": "stacked"}),
}


def resumed(folder: Path) -> Found:
    """A comparison stopped on the way and continued, then made longer; it must end as one without a break."""
    whole, broken = folder / "whole", folder / "broken"
    policies = ["e3cs(quota=0.5)", "guard(oort)"]
    expected = compared(policies, whole, **LATE)

    def stop(index: int, round: int) -> None:
        if round >= 5:
            raise KeyboardInterrupt

    try:
        compared(policies, broken, **{**LATE, "rounds": 9}, tell=stop)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the comparison was not stopped")
    for rounds in (9, LATE["rounds"]):
        compared(policies, broken, **{**LATE, "rounds": rounds})
    found = runs_of(broken)
    expected = {name: array for name, array in expected.items() if not name.startswith("choices/")}
    if lines := differences(expected, found):
        raise AssertionError(f"a continued run differs from one without a break: {lines[0]}")
    return found


def played(folder: Path) -> Found:
    """`fp.Run` with objects: a world with parts of its own, data made in Python, a trainer; left and continued."""
    rng = fp.rng.stream(5, 0, "data")
    held = fp.data.Synthetic(1.0, 1.0)(num_clients=20, rng=rng)
    world = fp.World(
        held.clients,
        availability=fp.worlds.Bernoulli(0.8),
        volatility=fp.worlds.SuccessRates((0.5, 0.8, 1.0)),
        latency=fp.worlds.Gamma(),
        deadline=15.0,
        epochs=(1, 2, 3),
    )
    model = fp.learn.logistic(held.dataset.inputs, held.dataset.classes)
    trainer = fp.learn.Trainer(held, model, lr=0.05, batch=20, steps=4, reports=("update_norm", "squared_loss"))
    run = fp.Run(fp.OverSelect(fp.Oort(5, step=1.0), 1.4), world, seed=3, trainer=trainer)
    found: Found = {}
    for until in (6, 12):
        for record in run.rounds(until=until):
            for name in ("ids", "inclusion", "status", "duration", "loss", "clock", "seconds", "messages", "megabytes"):
                found[f"round {record.round}/{name}"] = np.asarray(getattr(record, name))
            found |= {f"round {record.round}/{name}": np.asarray(value) for name, value in record.metrics.items()}
    fp.save_state(run.policy, run.state.policy, folder / "state.npz")
    flat = {f"model/{at}": np.asarray(leaf) for at, leaf in enumerate(leaves(run.state.model))}
    return found | flat | files_of(folder)


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of nested dicts, lists and tuples, keys in order."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from leaves(each)
    elif tree is not None:
        yield tree


CONFIGURATIONS: dict[str, Callable[[Path], Found]] = {
    **{
        name: functools.partial(lambda policy, settings, folder: compared(policy, folder, **settings), *each)
        for name, each in SIMULATED.items()
    },
    "resumed": resumed,
    "run of objects": played,
}
