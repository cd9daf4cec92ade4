"""SCAFFOLD, FedDyn and FedNova: whole runs are those of the papers' lines, and states move by the rule."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import data_of, model_of, same_bits
from test_algorithms import SEED, double, flat, played, resumed, run_of, tree

import fedpick as fp
from fedpick import learn
from fedpick.core.errors import FedpickError, SettingError
from fedpick.learn import algorithms
from fedpick.learn.algorithms import Work, distance
from fedpick.learn.backend import LocalSGD
from fedpick.learn.jax import cohort
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import play_together

__all__ = ["double"]  # a fixture
pytestmark = pytest.mark.usefixtures("quick_start")

Answers = dict[int, tuple[np.ndarray, int]]  # by client: (x - y_i, its local steps)
Local = Callable[[np.ndarray, Callable[[int], np.ndarray], float], Answers]  # (x, added to gradients, mu) -> answers


# ---- the papers' lines


def scaffold(x: np.ndarray, rounds: list[Local], shares: np.ndarray, lr: float) -> np.ndarray:
    """Karimireddy et al. (2020), Algorithm 1 with option II and a global rate of 1; `shares` are 1/N there."""
    variates = np.zeros((len(shares), len(x)))
    for answers in rounds:
        c = (shares[:, None] * variates).sum(axis=0)
        old = variates.copy()
        found = answers(x, lambda i, old=old, c=c: c - old[i], 0.0)
        moved = np.zeros_like(x)
        for i, (gone, steps) in found.items():
            variates[i] = old[i] - c + gone / (steps * lr)
            moved -= gone * shares[i]
        x = x + moved / max(sum(shares[i] for i in found), 1e-300)
    return x


def feddyn(x: np.ndarray, rounds: list[Local], shares: np.ndarray, alpha: float) -> np.ndarray:
    """Acar et al. (2021), Algorithm 1; `shares` are 1/m there."""
    gradients, h = np.zeros((len(shares), len(x))), np.zeros_like(x)
    for answers in rounds:
        old = gradients.copy()
        found = answers(x, lambda i, old=old: -old[i], alpha)
        if not found:
            continue
        theta = {i: x - gone for i, (gone, _) in found.items()}
        for i in found:
            gradients[i] = old[i] - alpha * (theta[i] - x)
            h = h - alpha * shares[i] * (theta[i] - x)
        mean = sum(shares[i] * theta[i] for i in found) / sum(shares[i] for i in found)
        x = mean - h / alpha
    return x


def fednova(
    x: np.ndarray, rounds: list[Local], shares: np.ndarray, lr: float, rho: float = 0.0, mu: float = 0.0
) -> np.ndarray:
    """Wang et al. (2020), eqs. (8) to (10), with the vectors a_i as they are printed for momentum and for FedProx."""
    for answers in rounds:
        found = answers(x, lambda i: np.zeros(1), 0.0)
        if not found:
            continue
        total = sum(shares[i] for i in found)
        d, length = {}, {}
        for i, (gone, steps) in found.items():
            if mu:
                a = [(1 - lr * mu) ** (steps - 1 - k) for k in range(steps)]
            else:
                a = [(1 - rho ** (steps - k)) / (1 - rho) for k in range(steps)]
            length[i] = sum(a)
            d[i] = gone / lr / length[i]
        tau = sum(shares[i] / total * length[i] for i in found)
        x = x - tau * lr * sum(shares[i] / total * d[i] for i in found)
    return x


def by_hand(run: fp.Run, records: list[Any], start: Any, paper: Any, **given: Any) -> np.ndarray:
    """The weights that the paper's lines give for the clients whose answers were used."""
    trainer = run.trainer
    assert isinstance(trainer, Trainer)
    base = np.ones(len(trainer.data)) if trainer.aggregation == "mean" else trainer.data.sizes

    def local(record: Any) -> Local:
        def answers(x: np.ndarray, more: Callable[[int], np.ndarray], mu: float) -> Answers:
            names = ("data", "batch", "steps", "lr", "weight_decay", "momentum")
            how = SimpleNamespace(**{name: getattr(trainer, name) for name in names}, prox=mu or trainer.prox)
            rng, ids = fp.rng.stream(SEED, record.round, "train"), record.ids
            epochs, used = run.state.world.epochs[ids].astype(int), record.status == fp.Status.DONE

            def row(i: int) -> Any:
                return tree(np.broadcast_to(more(i), x.shape), start)

            sent = tree(x, start)
            found = twin.train(how, twin.Network(), sent, ids, used, epochs, record.round, rng, row)
            each = {int(ids[place]): -flat(one.delta) for place, one in found.items()}
            sizes = {i: int(trainer.data.sizes[i]) for i in each}
            return {i: (gone, steps_of(trainer, sizes[i], run, i)) for i, gone in each.items()}

        return answers

    return paper(flat(start), [local(record) for record in records], base / base.sum(), **given)


def steps_of(trainer: Trainer, size: int, run: fp.Run, client: int) -> int:
    return int(run.state.world.epochs[client]) * (trainer.steps or -(-size // trainer.batch))


CASES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "scaffold": ({"algorithm": "scaffold", "aggregation": "mean"}, scaffold, {"lr": 0.25}),
    "scaffold by size": ({"algorithm": "scaffold", "weight_decay": 0.1}, scaffold, {"lr": 0.25}),
    "feddyn": ({"algorithm": "feddyn(alpha=0.5)", "aggregation": "mean"}, feddyn, {"alpha": 0.5}),
    "feddyn by size": ({"algorithm": "feddyn(alpha=0.25)", "momentum": 0.5}, feddyn, {"alpha": 0.25}),
    "fednova": ({"algorithm": "fednova"}, fednova, {"lr": 0.25}),
    "fednova with momentum": ({"algorithm": "fednova", "momentum": 0.5}, fednova, {"lr": 0.25, "rho": 0.5}),
    "fednova with prox": ({"algorithm": "fednova", "prox": 0.5}, fednova, {"lr": 0.25, "mu": 0.5}),
}


QUICK = ("scaffold", "feddyn by size", "fednova with momentum")


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in CASES]
)
def test_rounds_are_those_of_the_paper(name: str, double: None) -> None:
    """Every fourth client fails; float64, so that what differs is no rounding."""
    how, paper, given = CASES[name]
    run = run_of(**how)
    records, start = played(run, 8)
    assert any((record.status != fp.Status.DONE).any() for record in records)
    assert len({int(i) for record in records for i in record.ids}) < sum(len(record.ids) for record in records)
    np.testing.assert_allclose(flat(run.state.model["params"]), by_hand(run, records, start, paper, **given), atol=1e-9)


@pytest.mark.parametrize("form", [pytest.param("vmap", marks=pytest.mark.slow), "loop", "gpu"])
@pytest.mark.parametrize("name", ["scaffold", pytest.param("feddyn by size", marks=pytest.mark.slow)])
def test_in_every_form(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32; a GPU takes the form "vmap", and plain SGD there is another one."""
    how, paper, given = CASES[name]
    if form == "gpu":
        cohort._compiled.cache_clear()
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    run = run_of(**{"precision": "float32", "form": "vmap" if form == "gpu" else form, **how})
    records, start = played(run, 5)
    cohort._compiled.cache_clear()
    found = by_hand(run, records, start, paper, **given)
    np.testing.assert_allclose(flat(run.state.model["params"]), found, atol=2e-5)


@pytest.mark.slow
def test_a_cohort_dealt_out_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for worth in (10**12, 0):
        monkeypatch.setattr(cohort, "WORTH", worth)
        run = run_of(algorithm="scaffold", precision="float32")
        list(run.rounds(4))
        found.append(run.state.model)
    assert same_bits(*found)


# ---- how far a client goes


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.floats(0.0, 0.9),
    st.floats(0.0, 3.0),
    st.floats(0.01, 0.3),
)
@settings(max_examples=60)
def test_the_length_of_a_path(steps: list[int], momentum: float, prox: float, lr: float) -> None:
    """Of each step's gradient alone, how much of it is in the whole way: |a|_1 is their sum."""

    def share(step: int, count: int) -> float:
        w, velocity = 0.0, 0.0
        for each in range(count):
            velocity = momentum * velocity + (each == step) + prox * w
            w -= lr * velocity
        return -w / lr

    found = distance(Work(np.array(steps), np.full(len(steps), lr)), LocalSGD(momentum=momentum, prox=prox))
    np.testing.assert_allclose(found, [sum(share(s, n) for s in range(n)) for n in steps], rtol=1e-9)


@pytest.mark.slow
def test_with_equal_work_fednova_is_fedavg_and_with_unequal_work_it_is_not(double: None) -> None:
    same, other = {"epochs": (1,)}, {"epochs": (1, 5)}
    for place, equal in ((same, True), (other, False)):
        ends = []
        for algorithm in ("fedavg", "fednova"):
            run = run_of(algorithm=algorithm, place=place, steps=3)
            list(run.rounds(4))
            ends.append(flat(run.state.model["params"]))
        assert np.allclose(*ends, atol=1e-9) == equal


# ---- the rule of a client's state


POLICIES = {
    "uniform": lambda: fp.Uniform(3),
    "over-selection": lambda: fp.OverSelect(fp.Uniform(2), 2.0),
    "two phases": lambda: fp.OptimalSampling(2),
    "with replacement": lambda: fp.SizeWeighted(4),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_a_state_moves_when_the_answer_is_used_and_at_no_other_time(algorithm: str, policy: str) -> None:
    run = run_of(POLICIES[policy](), algorithm=algorithm, form="loop", precision="float32")
    ended = set()
    for _ in range(8):
        before = [rows.copy() for rows in run.state.model["algorithm"]["clients"]]
        (record,) = run.rounds(run.state.round + 1)
        after = run.state.model["algorithm"]["clients"]
        moved = {k for old, new in zip(before, after, strict=True) for k in np.argwhere(old != new)[:, 0].tolist()}
        assert moved == set(record.ids[record.status == fp.Status.DONE].tolist())
        ended |= set(record.status.tolist())
        asked = record.messages - 2 * len(record.ids)
    assert len(ended) > 1 or (policy == "two phases" and asked > 0)  # some answers were not used


def test_a_server_optimiser_takes_what_fednova_gives(double: None) -> None:
    """Rate 0.5 without momentum: half of each step."""
    whole, half = run_of(algorithm="fednova"), run_of(algorithm="fednova", server="fedavgm(lr=0.5, momentum=0.0)")
    start = flat(whole.state.model["params"])
    for run in (whole, half):
        list(run.rounds(1))
    steps = [flat(run.state.model["params"]) - start for run in (whole, half)]
    np.testing.assert_allclose(steps[1], 0.5 * steps[0], atol=1e-12)


# ---- stacked, and resumed


@pytest.mark.parametrize("name", ["scaffold by size", "feddyn", "fednova with momentum"])
def test_stacked_runs_are_those_played_alone(name: str) -> None:
    how = {"form": "loop", "precision": "float32", **CASES[name][0]}
    policies = fp.Uniform(4), fp.E3CS(3), fp.OverSelect(fp.Uniform(2), 2.0)
    together, alone = ([run_of(policy, **how) for policy in policies] for _ in range(2))
    list(play_together(together, until=5))
    for mine, wanted in zip(together, alone, strict=True):
        list(wanted.rounds(until=5))
        np.testing.assert_allclose(flat(mine.state.model), flat(wanted.state.model), atol=1e-5)


@pytest.mark.parametrize("name", ["scaffold", "feddyn by size", "fednova"])
def test_resumed_runs_have_the_same_bits(name: str, tmp_path: Path) -> None:
    how = {"form": "loop", "precision": "float32", **CASES[name][0]}
    whole, again = resumed(lambda: run_of(**how), tmp_path / "run")
    assert same_bits(whole.state.model, again.state.model)


# ---- what is sent


def test_scaffold_sends_twice_as_much_but_to_probed_clients() -> None:
    sent = {}
    for algorithm in ("fedavg", "scaffold", "feddyn", "fednova"):
        run = run_of(fp.PowerOfChoice(2, 5), algorithm=algorithm, form="loop", precision="float32")
        run.world = replace(run.world, model_megabytes=run.trainer.megabytes)  # type: ignore[union-attr]
        (record,) = run.rounds(1)
        models = len(record.ids) + int((record.status == fp.Status.DONE).sum())
        sent[algorithm] = record.megabytes, models, (record.messages - models) // 2
    for algorithm, (total, models, probes) in sent.items():
        wanted = 4e-6 * 28 * (models * (2 if algorithm == "scaffold" else 1) + probes)
        assert probes > 2
        assert total == pytest.approx(wanted), algorithm


# ---- what makes no sense


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"algorithm": "scafold"}, "unknown algorithm 'scafold'; did you mean 'scaffold'?"),
        ({"algorithm": "feddyn(alpha=0)"}, "feddyn: alpha = 0, but must be > 0"),
        ({"algorithm": "scaffold", "momentum": 0.9}, "momentum = 0.9, but scaffold takes the mean gradient from"),
        ({"algorithm": "scaffold", "prox": 0.1}, "prox = 0.1, but scaffold takes"),
        ({"algorithm": "scaffold", "aggregation": "o2"}, "aggregation = 'o2', but scaffold takes a mean over"),
        ({"algorithm": "feddyn", "aggregation": "fedau"}, "aggregation = 'fedau', but feddyn takes a mean over"),
        ({"algorithm": "feddyn", "prox": 0.1}, "prox = 0.1, but feddyn has its own"),
        ({"algorithm": "feddyn", "server": "fedadam"}, "server = 'fedadam', but feddyn has its own"),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(FedpickError) as caught:
        Trainer(data_of("floats"), learn.logistic((6,), 4), **given)
    assert says in str(caught.value)


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "fednova"])
def test_neither_late_updates_nor_training_without_rounds(algorithm: str) -> None:
    with pytest.raises(SettingError, match=rf"fp.Buffered: .*{algorithm}.* a whole round.*; use fp.Rounds"):
        run_of(algorithm=algorithm, pace=fp.Buffered(4, size=2, timeout=60.0), precision="float32")
    with pytest.raises(SettingError, match=rf"World: late = 2, but .*{algorithm}.*; use late=0"):
        run_of(algorithm=algorithm, place={"late": 2}, precision="float32")


def test_states_that_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "MOST", 7 * 4 * 28 - 1)
    with pytest.raises(
        SettingError, match=r"7 clients times 0.00 MB are 0.0 GB, but must be at most .* at most 6 clients"
    ):
        Trainer(data_of("floats"), learn.logistic((6,), 4), algorithm="scaffold")
    monkeypatch.setattr(algorithms, "MOST", 7 * 4 * 28)
    trainer = Trainer(data_of("floats"), learn.logistic((6,), 4), algorithm="scaffold")
    assert sum(rows.nbytes for rows in trainer.init(0)["algorithm"]["clients"]) == algorithms.MOST
    Trainer(data_of("floats"), model_of("floats"), algorithm="fednova")
