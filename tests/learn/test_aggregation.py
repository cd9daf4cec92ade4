"""From updates to the next model: weights of the mean, servers, and that one bad update poisons nothing."""

import itertools
from typing import Any

import jax
import numpy as np
import optax
import pytest
from small_data import SIZES, data_of, same_bits

import fedpick as fp
from fedpick import learn
from fedpick.core.errors import MissingError
from fedpick.learn import aggregation
from fedpick.learn.jax import forms
from fedpick.learn.trainer import Trainer
from fedpick.simulate.round import Updates

pytestmark = pytest.mark.usefixtures("quick_start")

IDS = np.array([4, 2, 0, 4, 6])  # one of them twice
RETURNED = np.array([True, False, True, True, True])
INCLUSION = np.array([0.4, 0.1, 0.7, 0.4, 0.9])
WEIGHTS = np.array([1.0, 5.0, 2.0, 0.0, 3.0])


def trainer_with(**settings: Any) -> Trainer:
    return Trainer(data_of("regression"), learn.linear((6,)), **settings)


def step(trainer: Trainer, model: Any, delta: Any, choice: fp.Choice, returned: np.ndarray = RETURNED) -> Any:
    """Aggregate updates of the clients that trained: all but the second."""
    at = np.array([0, 2, 3, 4])
    status = np.where(returned, fp.Status.DONE, fp.Status.FAILED)
    outcome = fp.Outcome(status, np.ones(5), np.ones(5))
    return trainer.aggregate(model, choice, outcome, Updates(np.ones(5), payload=(delta, at, np.arange(4))))


def deltas(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.normal(size=(6, 6, 1)).astype(np.float32), "b": rng.normal(size=(6, 1)).astype(np.float32)}
    ]  # room for two more than trained


def mean_update(delta: Any, weights: np.ndarray) -> Any:
    """The weighted sum over the clients that trained."""
    return jax.tree.map(lambda leaf: np.tensordot(weights[[0, 2, 3, 4]], leaf[:4].astype(np.float64), axes=1), delta)


WANTED = {
    "fedavg": RETURNED * SIZES[IDS] / (RETURNED * SIZES[IDS]).sum(),
    "mean": RETURNED / RETURNED.sum(),
    "o2": RETURNED * SIZES[IDS] / SIZES.sum(),
    "horvitz-thompson": RETURNED * SIZES[IDS] / SIZES.sum() / INCLUSION,
    "fedau": RETURNED * SIZES[IDS] / SIZES.sum() / np.array([2, 1, 1, 2, 1]),  # before any interval has ended
}


@pytest.mark.parametrize("name", learn.AGGREGATIONS)
def test_weights_of_the_mean(name: str) -> None:
    trainer = trainer_with(aggregation=name)
    model, delta = trainer.init(1), deltas()
    after = step(trainer, model, delta, fp.Choice(IDS, INCLUSION))
    wanted = jax.tree.map(lambda w, d: w + d, model["params"], mean_update(delta, WANTED[name]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), after["params"], wanted)


def test_a_policys_weights_take_the_place_of_sizes() -> None:
    trainer = trainer_with()
    model, delta = trainer.init(1), deltas()
    after = step(trainer, model, delta, fp.Choice(IDS, weights=WEIGHTS))
    shares = RETURNED * WEIGHTS / 6.0
    wanted = jax.tree.map(lambda w, d: w + d, model["params"], mean_update(delta, shares))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), after["params"], wanted)


def seen_choices(policy: Any, clients: fp.Clients, draws: int = 300) -> dict[tuple[int, ...], fp.Choice]:
    """Every choice that the policy can make in round 1, by its ids in the order in which they stand."""
    losses = np.arange(len(clients), dtype=float)
    view = fp.View(1, np.ones(len(clients), bool), clients, probe=lambda ids, /, *, batch=None: losses[ids])
    choices = (policy.select(policy.init(clients), view, np.random.default_rng(seed)) for seed in range(draws))
    return {tuple(choice.ids.tolist()): choice for choice in choices}


@pytest.mark.parametrize("m", [1, 2, 3])
def test_drawing_by_size_with_replacement_counts_size_once(m: int) -> None:
    """By enumeration: each client's mean weight is its share of the data."""
    sizes = np.array([1, 1, 8])
    seen, expected = seen_choices(fp.SizeWeighted(m), fp.Clients(sizes), draws=3 * 10**m), np.zeros(3)
    for ids in itertools.product(range(3), repeat=m):
        choice = next(seen[order] for order in itertools.permutations(ids) if order in seen)
        weights = aggregation.fedavg(choice, np.ones(m, bool), sizes)
        np.add.at(expected, choice.ids, weights * np.prod(sizes[list(ids)] / 10))
    np.testing.assert_allclose(expected, [0.1, 0.1, 0.8], rtol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "m", "odds"),
    [
        ([1, 1, 8], 2, {(0, 2): 0.5, (1, 2): 0.5}),  # the largest is always in, and stands for itself alone
        ([2, 2, 2], 2, {(0, 1): 1 / 3, (0, 2): 1 / 3, (1, 2): 1 / 3}),
        ([1, 1, 8], 3, {(0, 1, 2): 1.0}),
        ([1, 3], 1, {(0,): 0.25, (1,): 0.75}),
    ],
)
def test_drawing_by_size_without_replacement_counts_size_once(
    sizes: list[int], m: int, odds: dict[tuple[int, ...], float]
) -> None:
    seen = seen_choices(fp.SizeWeighted(m, replace=False), fp.Clients(sizes))
    assert {tuple(sorted(ids)) for ids in seen} == set(odds)
    expected = np.zeros(len(sizes))
    for ids, choice in seen.items():
        weights = aggregation.fedavg(choice, np.ones(m, bool), np.array(sizes))
        expected[choice.ids] += weights * odds[tuple(sorted(ids))]
    np.testing.assert_allclose(expected, np.array(sizes) / sum(sizes), rtol=1e-12)


@pytest.mark.parametrize("variant", ["pow-d", *(pytest.param(v, marks=pytest.mark.slow) for v in ("cpow-d", "rpow-d"))])
def test_power_of_choice_draws_candidates_by_size_and_weighs_equally(variant: str) -> None:
    sizes = np.array([1, 1, 8, 2])
    for choice in seen_choices(fp.PowerOfChoice(2, 3, variant=variant), fp.Clients(sizes)).values():
        assert aggregation.fedavg(choice, np.ones(2, bool), sizes).tolist() == [0.5, 0.5]


def test_weights_that_are_all_zero_leave_the_model_as_it_is() -> None:
    trainer = trainer_with()
    model = trainer.init(1)
    after = step(trainer, model, deltas(), fp.Choice(IDS, weights=np.where(RETURNED, 0.0, 1.0)))
    assert same_bits(after["params"], model["params"])


def test_weights_that_are_used_as_they_are_are_not_divided_by_their_sum() -> None:
    model, delta = trainer_with().init(1), deltas()
    choice = fp.Choice(IDS, INCLUSION, WEIGHTS, normalise=False)
    wanted = jax.tree.map(lambda w, d: w + d, model["params"], mean_update(delta, RETURNED * WEIGHTS))
    for name in ("fedavg", "horvitz-thompson"):
        after = step(trainer_with(aggregation=name), model, delta, choice)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), after["params"], wanted)


def subsets(count: int) -> list[np.ndarray]:
    every = itertools.product([False, True], repeat=count)
    return [np.flatnonzero(mask) for mask in every]


@pytest.mark.parametrize("name", ["fedavg", "horvitz-thompson"])
def test_independent_draws_with_weights_as_they_are_give_full_participation_in_expectation(name: str) -> None:
    """By enumeration of all cohorts; divided by their sum, the same weights do not."""
    sizes, chance = np.array([1.0, 2.0, 5.0, 12.0]), np.array([0.3, 0.9, 0.5, 1.0])
    for normalise, unbiased in ((False, True), (True, False)):
        expected = np.zeros(4)
        for ids in subsets(4):
            odds = np.prod(np.where(np.isin(np.arange(4), ids), chance, 1 - chance))
            choice = fp.Choice(ids, weights=(sizes / sizes.sum() / chance)[ids], normalise=normalise)
            if odds > 0:
                rule = aggregation.AGGREGATIONS["fedavg" if normalise else name]
                expected[ids] += odds * rule.weights(choice, np.ones(len(ids), bool), sizes)
        assert np.allclose(expected, sizes / sizes.sum(), rtol=1e-12, atol=0) is unbiased


def fedau_twin(rounds: list[list[int]], clients: int, cutoff: int = 50) -> list[list[float]]:
    """Algorithm 2 of Wang & Ji (2024), line by line: the weights of each round."""
    weight, count, waited = [1.0] * clients, [0] * clients, [0] * clients
    told = []
    for took_part in rounds:
        told.append(list(weight))
        for n in range(clients):
            waited[n] += 1
            if n in took_part or waited[n] == cutoff:
                weight[n] = waited[n] if count[n] == 0 else (count[n] * weight[n] + waited[n]) / (count[n] + 1)
                count[n] += 1
                waited[n] = 0
    return told


def test_fedau_is_the_papers_algorithm() -> None:
    rng, rule = np.random.default_rng(4), aggregation.FedAU()
    sizes, chance = np.ones(6), np.array([0.9, 0.5, 0.2, 0.05, 0.0, 0.6])
    rounds = [np.flatnonzero(rng.random(6) < chance).tolist() for _ in range(160)]
    memory = rule.init(6)
    for took_part, wanted in zip(rounds, fedau_twin(rounds, 6), strict=True):
        every, returned = fp.Choice(np.arange(6)), np.isin(np.arange(6), took_part)
        found, _ = rule.apply(memory, every, np.ones(6, bool), sizes)
        np.testing.assert_allclose(6 * found, wanted, rtol=1e-12)
        _, memory = rule.apply(memory, every, returned, sizes)
    assert max(fedau_twin(rounds, 6)[-1]) == 50.0  # whoever never came


def test_fedau_comes_to_full_participation_though_no_rate_is_known() -> None:
    """After many rounds the mean weight of each client is its share, which that of a plain mean is not."""
    rng, rule, rounds = np.random.default_rng(0), aggregation.FedAU(), 6000
    sizes, chance = np.array([1.0, 3.0, 2.0]), np.array([0.9, 0.3, 0.1])
    memory, held, plain = rule.init(3), np.zeros(3), np.zeros(3)
    every = fp.Choice(np.arange(3))
    for t in range(rounds):
        returned = rng.random(3) < chance
        weights, memory = rule.apply(memory, every, returned, sizes)
        if returned.any() and t >= rounds // 2:
            held += weights / (rounds // 2)
            plain += aggregation.fedavg(every, returned, sizes) / (rounds // 2)
    # the rate of who came 10% of 3,000 rounds is known to 5.5%, and the estimate of 1/rate as well
    np.testing.assert_allclose(held, sizes / sizes.sum(), rtol=4 * np.sqrt(2) * 0.055)
    assert np.abs(plain / (sizes / sizes.sum()) - 1).max() > 0.5


def test_fedaus_memory_is_kept_with_the_model() -> None:
    trainer = trainer_with(aggregation="fedau")
    model, delta = trainer.init(1), deltas()
    after = step(trainer, model, delta, fp.Choice(IDS))
    assert after["aggregation"]["intervals"].tolist() == [1, 0, 0, 0, 1, 0, 1]
    assert after["aggregation"]["waited"].tolist() == [0, 1, 1, 1, 0, 1, 0]
    assert model["aggregation"]["waited"].tolist() == [0] * 7


def test_horvitz_thompson_is_unbiased() -> None:
    """Over Bernoulli cohorts with known chances, the mean of the sums is the mean over all clients."""
    rng = np.random.default_rng(0)
    chance, values = rng.uniform(0.2, 1.0, len(SIZES)), rng.normal(size=len(SIZES))
    sums = []
    for _ in range(4000):
        chosen = np.flatnonzero(rng.random(len(SIZES)) < chance)
        choice = fp.Choice(chosen, chance[chosen])
        weights = aggregation.AGGREGATIONS["horvitz-thompson"].weights(choice, np.ones(len(chosen), bool), SIZES)
        sums.append(weights @ values[chosen])
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - SIZES @ values / SIZES.sum()) < 4 * error


@pytest.mark.parametrize("inclusion", [None, np.array([0.4, np.inf, 0.7, 0.4, 0.9])])
def test_horvitz_thompson_needs_the_chances(inclusion: Any) -> None:
    trainer = trainer_with(aggregation="horvitz-thompson")
    with pytest.raises(MissingError, match=r"divides by Choice.inclusion, but this policy does not know it; use one"):
        step(trainer, trainer.init(1), deltas(), fp.Choice(IDS, inclusion))


@pytest.mark.parametrize("server", [None, "fedadam(lr=0.1)"])
def test_an_update_that_is_not_used_may_hold_anything(server: str | None) -> None:
    trainer = trainer_with(server=server)
    model, delta = trainer.init(1), deltas()
    returned = RETURNED & (np.arange(5) != 2)
    clean = step(trainer, model, delta, fp.Choice(IDS), returned)
    for poison in (np.nan, np.inf):
        bad = jax.tree.map(np.copy, delta)
        for leaf in jax.tree.leaves(bad):
            leaf[1] = leaf[4:] = poison  # the second that trained, and the padding
        assert same_bits(step(trainer, model, bad, fp.Choice(IDS), returned), clean)


@pytest.mark.parametrize("clients", [5, 40, 100])
def test_the_sum_does_not_depend_on_the_room(clients: int) -> None:
    """A run resumed, or on other devices, pads its cohorts differently."""
    rng = np.random.default_rng(2)
    shapes = [(), (1,), (2,), (7,), (6, 1), (12, 10)]
    params = [np.zeros(shape, np.float32) for shape in shapes]
    for _ in range(3):
        delta = [rng.normal(size=(clients, *shape)).astype(np.float32) for shape in shapes]
        weights = rng.random(clients).astype(np.float32)
        first = forms.combine(None, params, (), delta, weights)[0]
        for more in (1, 5):
            wide = [np.concatenate([leaf, np.zeros((more, *leaf.shape[1:]), np.float32)]) for leaf in delta]
            padded = forms.combine(None, params, (), wide, np.append(weights, np.zeros(more, np.float32)))[0]
            assert same_bits(first, padded)


# ---- servers


def momentum(g: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["v"] = 0.7 * state.get("v", 0.0) + g
    return 0.5 * state["v"]


def adam(g: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    """With Kingma's correction of the first rounds."""
    m = state["m"] = 0.8 * state.get("m", 0.0) + 0.2 * g
    v = state["v"] = 0.95 * state.get("v", 0.0) + 0.05 * g**2
    return 0.5 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-2)


def yogi(g: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    """Likewise; both memories start at 1e-6."""
    m = state["m"] = 0.8 * state.get("m", 1e-6) + 0.2 * g
    old = state.get("v", 1e-6)
    v = state["v"] = old - 0.05 * np.sign(old - g**2) * g**2
    return 0.5 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-2)


def adagrad(g: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    """Algorithm 2 of Reddi et al. with beta_1 = 0; v_{-1} = tau^2, the least that they allow."""
    v = state["v"] = state.get("v", 1e-2**2) + g**2
    return 0.5 * g / (np.sqrt(v) + 1e-2)


SERVERS = {
    "fedavgm(lr=0.5, momentum=0.7)": momentum,
    "fedadam(lr=0.5, b1=0.8, b2=0.95, eps=0.01)": adam,
    "fedyogi(lr=0.5, b1=0.8, b2=0.95, eps=0.01)": yogi,
    "fedadagrad(lr=0.5, eps=0.01)": adagrad,
}


@pytest.mark.parametrize("server", SERVERS)
def test_servers_for_three_rounds(server: str) -> None:
    trainer = trainer_with(server=server)
    model = trainer.init(1)
    slow = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model["params"])
    memories: list[dict[str, Any]] = [{}, {}]
    for t in (1, 2, 3):
        delta = deltas(t)
        model = step(trainer, model, delta, fp.Choice(IDS))
        leaves, tree = jax.tree.flatten(slow)
        updates = jax.tree.leaves(mean_update(delta, WANTED["fedavg"]))
        moved = [w - SERVERS[server](-d, m, t) for w, d, m in zip(leaves, updates, memories, strict=True)]
        slow = jax.tree.unflatten(tree, moved)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), model["params"], slow)


DEFAULTS = {
    "fedavgm": "fedavgm(lr=1.0, momentum=0.9)",
    "fedadam": "fedadam(lr=0.01, b1=0.9, b2=0.99, eps=0.001)",
    "fedyogi": "fedyogi(lr=0.01, b1=0.9, b2=0.99, eps=0.001)",
    "fedadagrad": "fedadagrad(lr=0.01, eps=0.001)",
}


@pytest.mark.parametrize("server", learn.SERVERS)
def test_settings_of_servers_that_are_not_given_are_the_papers(server: str) -> None:
    ends = []
    for text in (server, DEFAULTS[server]):
        trainer = trainer_with(server=text)
        model = trainer.init(1)
        for t in (1, 2, 3):
            model = step(trainer, model, deltas(t), fp.Choice(IDS))
        ends.append(model["params"])
    assert same_bits(*ends)


def test_every_server_is_tested() -> None:
    assert {text.partition("(")[0] for text in SERVERS} == set(learn.SERVERS)


def test_a_server_of_ones_own() -> None:
    """Any optax optimiser; plain SGD with rate 1 is no server at all."""
    plain, own = trainer_with(), trainer_with(server=optax.sgd(1.0))
    model, delta = plain.init(1), deltas()
    one = step(plain, model, delta, fp.Choice(IDS))
    other = step(own, own.init(1), delta, fp.Choice(IDS))
    assert same_bits(one["params"], other["params"])
