"""Late updates that are kept: the whole run against a loop, checkpoints, what is too old, and who is busy."""

import copy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedpick as fp
from fedpick import learn
from fedpick.engine.weights import late_weights
from fedpick.simulate.together import play_together
from fedpick.store.checkpoint import pack_run, unpack_run
from fedpick.worlds import Always, PerClient, Reliable, ReplayedFlags, World

sys.path.insert(0, str(Path(__file__).parents[1] / "learn"))
from small_data import SIZES, data_of, model_of

pytestmark = pytest.mark.usefixtures("quick_start")

TIMES = np.array([1.0, 1.0, 2.5, 1.0, 2.5, 5.5, 9.5])  # with a deadline of 2: in time, or 1, 2 and 4 rounds late
SEED = 3


class OnceThere(Always):
    """All are there in the first round, and nobody after it."""

    def mask(self, memory, drawn, clients, round, clock):
        return np.full(len(clients), round == 1)


def world(rounds, **changes):
    parts = {"availability": Always(), "volatility": Reliable(), "latency": PerClient(TIMES), "epochs": (1,)}
    return World(data_of("floats").clients, **{**parts, "deadline": 2.0, "late": rounds, **changes})


def trainer(**options):
    return learn.Trainer(data_of("floats"), model_of("floats"), lr=0.3, batch=8, evaluate_every=100, **options)


def flat(tree, row=None):
    return np.concatenate(
        [np.asarray(leaf if row is None else leaf[row], float).ravel() for leaf in jax.tree.leaves(tree)]
    )


def twin(rounds, limit, beta, base):
    """The parameters after so many rounds of all who are free, by a loop over updates as plain vectors."""
    own = trainer()
    model, clock, waiting = own.init(SEED), 0.0, []
    for t in range(1, rounds + 1):
        busy = {k for k, _, due, _ in waiting if due > clock}
        ids = np.array([k for k in range(7) if k not in busy])
        done = TIMES[ids] <= 2.0
        vectors = {}
        for mask, name in ((done, "train"), (~done, "train late")):
            if mask.any():
                trained = own.train(model, ids, mask, np.ones(len(ids)), t, fp.rng.stream(SEED, t, name))
                delta, at, slots = trained.payload
                vectors |= {int(ids[i]): flat(delta, s) for i, s in zip(at, slots, strict=True)}
        new = [(int(k), t, clock + TIMES[k], vectors[int(k)]) for k in ids[~done]]
        clock += 2.0 if (~done).any() else 1.0
        came = [each for each in waiting if each[2] <= clock and t - each[1] <= limit]
        waiting = [each for each in waiting if each[2] > clock] + new
        parts = [(base(k), vectors[int(k)]) for k in ids[done]]
        mean = sum(b * v for b, v in parts) / sum(b for b, _ in parts)
        n = len(parts)
        # As printed: how far the mean of those in time moves when the late one joins them.
        L = [np.sum((mean - (v + n * mean) / (n + 1)) ** 2) / np.sum(mean**2) for *_, v in came]
        for (k, sent, _, v), own_L in zip(came, L, strict=True):
            weight = (1 - beta) / (t - sent + 1) + beta * (1 - np.exp(-own_L / max(L)))
            parts.append((weight * base(k), v))
        moved = flat(model["params"]) + sum(b * v for b, v in parts) / sum(b for b, _ in parts)
        leaves, at = [], 0
        for leaf in jax.tree.leaves(model["params"]):
            leaves.append(moved[at : at + leaf.size].reshape(leaf.shape).astype(np.float32))
            at += leaf.size
        model = {**model, "params": jax.tree.unflatten(jax.tree.structure(model["params"]), leaves)}
    return flat(model["params"])


@pytest.mark.parametrize(("limit", "options"), [(5, {}), (1, {"late_beta": 0.8}), (5, {"aggregation": "mean"})])
def test_a_run_is_the_loop_over_its_updates(limit, options):
    base = (lambda k: 1.0) if "aggregation" in options else (lambda k: float(SIZES[k]))
    run = fp.Run(fp.Uniform(7), world(limit), SEED, trainer(**options))
    for _ in run.rounds(until=8):
        pass
    wanted = twin(8, limit, options.get("late_beta", 0.35), base)
    np.testing.assert_allclose(flat(run.state.model["params"]), wanted, rtol=2e-4, atol=2e-5)


def test_without_it_late_updates_are_dropped_and_with_it_the_others_train_as_before():
    plain, kept = (fp.Run(fp.Uniform(7), world(limit), SEED, trainer()) for limit in (0, 5))
    one, other = next(plain.rounds(until=1)), next(kept.rounds(until=1))
    np.testing.assert_array_equal(one.status, other.status)
    np.testing.assert_array_equal(flat(plain.state.model["params"]), flat(kept.state.model["params"]))
    assert plain.state.late == {}
    assert plain.state.flight.busy == []
    flight = kept.state.flight.pack()
    assert flight["client"].tolist() == [2, 4, 5, 6]
    assert flight["due"].tolist() == [2.5, 2.5, 5.5, 9.5]
    assert kept.state.late["task"].tolist() == flight["id"].tolist() == [2, 4, 5, 6]
    second = next(kept.rounds(until=2))
    assert second.ids.tolist() == [0, 1, 3]  # the others are busy
    assert second.messages == 3 + 3 + 2  # clients 2 and 4 have sent theirs, too
    assert kept.state.flight.busy == [5, 6]
    for _ in kept.rounds(until=5):
        pass
    assert sorted(kept.state.flight.ids) == sorted(kept.state.late["task"].tolist())


def test_what_comes_later_than_the_limit_is_not_awaited_and_its_client_is_free_again():
    run = fp.Run(fp.Uniform(7), world(2), SEED, trainer())
    records = list(run.rounds(until=4))
    assert [record.ids.tolist() for record in records[:3]] == [list(range(7)), [0, 1, 3], [0, 1, 2, 3, 4]]
    # The update of client 6, sent in round 1, would come at 9.5: in round 4 it is three rounds late.
    assert 6 in records[3].ids
    assert records[3].clock < 9.5


def test_a_client_that_fails_is_awaited_like_one_that_is_slow():
    silent = world(2, volatility=ReplayedFlags([[1, 1, 1, 1, 1, 1, 0]]))
    run = fp.Run(fp.Uniform(7), silent, SEED, trainer())
    records = list(run.rounds(until=4))
    assert records[0].status[6] == fp.Status.LATE
    assert [6 in record.ids for record in records] == [True, False, False, True]


def test_nobody_there_and_one_busy_waits_no_longer_than_the_wait():
    """The round lasted until the busy client answered: 1,930 s in place of 60."""
    away = world(5, latency=PerClient(np.full(7, 1930.0)), availability=OnceThere(), wait=60.0)
    run = fp.Run(fp.Uniform(7), away, SEED, trainer())
    assert [record.seconds for record in run.rounds(until=3)] == [2.0, 60.0, 60.0]


def test_with_the_mean_late_updates_of_weights_that_stand_as_they_are_are_divided_too():
    """The weights added up to 10.5."""

    class AsTheyAre(fp.Uniform):
        def select(self, state, view, rng):
            ids = np.flatnonzero(view.available)
            return fp.Choice(ids, weights=np.full(len(ids), 3.0), normalise=False)

    one, other = fp.Uniform(7), AsTheyAre(7)
    runs = [fp.Run(each, world(5), SEED, trainer(aggregation="mean")) for each in (one, other)]
    for run in runs:
        for _ in run.rounds(until=4):
            pass
    np.testing.assert_array_equal(*(flat(run.state.model["params"]) for run in runs))


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint_with_the_updates_that_were_under_way():
    whole, half = (fp.Run(fp.Uniform(7), world(5), SEED, trainer()) for _ in range(2))
    wanted = [record.ids.tolist() for record in whole.rounds(until=7)]
    found = [record.ids.tolist() for record in half.rounds(until=3)]
    assert half.state.late
    kept = {name: np.array(value) for name, value in pack_run(half.state).items()}
    fresh = fp.Run(fp.Uniform(7), world(5), SEED, trainer())
    again = fp.Run(
        fp.Uniform(7), world(5), SEED, trainer(), unpack_run(copy.deepcopy(fresh.state), kept, 7, "checkpoint")
    )
    found += [record.ids.tolist() for record in again.rounds(until=7)]
    assert found == wanted
    np.testing.assert_array_equal(flat(again.state.model["params"]), flat(whole.state.model["params"]))


@pytest.mark.slow
def test_stacked_runs_keep_late_updates_too():
    def runs():
        return [fp.Run(fp.Uniform(5), world(limit), seed, trainer()) for limit, seed in ((5, 0), (0, 1), (5, 2))]

    alone, together = runs(), runs()
    for run in alone:
        for _ in run.rounds(until=6):
            pass
    for _ in play_together(together, until=6):
        pass
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(
            flat(one.state.model["params"]), flat(other.state.model["params"]), rtol=1e-4, atol=1e-5
        )
        assert one.state.flight.pack()["client"].tolist() == other.state.flight.pack()["client"].tolist()


def test_a_round_of_late_updates_alone_moves_the_model():
    slow = world(5, latency=PerClient(np.full(7, 2.5)))
    run = fp.Run(fp.Uniform(7), slow, SEED, trainer())
    before = flat(run.state.model["params"])
    next(run.rounds(until=1))
    np.testing.assert_array_equal(flat(run.state.model["params"]), before)
    record = next(run.rounds(until=2))
    assert len(record.ids) == 0  # all are busy; the server waits for the first, and then has the updates
    assert (record.seconds, record.clock) == (0.5, 2.5)
    assert np.abs(flat(run.state.model["params"]) - before).max() > 1e-4


def test_in_two_phases_who_is_late_with_its_length_counts_with_its_share_when_its_update_comes():
    """Of seven, 0, 1 and 3 are in time, and all are asked for; 2 and 4 come in round 2, with REFL's weight."""
    run = fp.Run(fp.OptimalSampling(7), world(5), SEED, trainer(reports=("update_norm",)))
    first = next(run.rounds(until=1))
    assert first.ids.tolist() == [0, 1, 3]
    assert run.state.flight.busy == [2, 4, 5, 6]
    np.testing.assert_allclose(run.state.late["base"], SIZES[[2, 4, 5, 6]] / SIZES.sum())
    # Seven are told the model and tell a length; three are asked for their update. Four send theirs later.
    assert first.messages == 2 * 7 + 3 + 3
    assert first.megabytes == pytest.approx(run.world.model_megabytes * (7 + 3) + 4e-6 * 7)
    before, held = flat(run.state.model["params"]), dict(run.state.late)
    own = trainer(reports=("update_norm",))
    ids = np.array([0, 1, 3])
    trained = own.train(run.state.model, ids, np.ones(3, bool), np.ones(3), 2, fp.rng.stream(SEED, 2, "train"))
    second = next(run.rounds(until=2))
    assert second.ids.tolist() == [0, 1, 3]  # the others are busy
    share = SIZES[ids] / SIZES[ids].sum()
    parts = [flat(trained.payload[0], slot) for slot in trained.payload[2]]
    mean = share @ parts
    leaves = len([name for name in held if name.startswith("delta/")])
    came = [np.concatenate([held[f"delta/{i}"][row].ravel() for i in range(leaves)]) for row in (0, 1)]
    weights = late_weights(np.ones(2), np.array([np.sum((v - mean) ** 2) for v in came]), 0.35)
    wanted = before + mean + sum(w * b * v for w, b, v in zip(weights, held["base"], came, strict=False))
    np.testing.assert_allclose(flat(run.state.model["params"]), wanted, rtol=2e-4, atol=2e-5)


def test_in_two_phases_with_everybody_late_the_updates_come_in_the_next_round():
    slow = world(5, latency=PerClient(np.full(7, 2.5)))
    run = fp.Run(fp.OptimalSampling(3), slow, SEED, trainer(reports=("update_norm",)))
    before = flat(run.state.model["params"])
    assert len(next(run.rounds(until=1)).ids) == 0
    np.testing.assert_array_equal(flat(run.state.model["params"]), before)
    next(run.rounds(until=2))
    assert np.abs(flat(run.state.model["params"]) - before).max() > 1e-4


def test_weights_of_late_updates():
    found = late_weights(np.array([1, 2, 4]), np.array([4.0, 1.0, 2.0]), 0.35)
    wanted = [0.65 / (t + 1) + 0.35 * (1 - np.exp(-d / 4.0)) for t, d in ((1, 4.0), (2, 1.0), (4, 2.0))]
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(late_weights(np.array([1]), np.zeros(1), 0.35), [0.325])


def test_what_cannot_be_is_said_before_the_first_round():
    with pytest.raises(fp.SettingError, match="World: late = -1, but must be a whole number of rounds >= 0"):
        world(-1)
    with pytest.raises(fp.SettingError, match=r"Trainer: late_beta = 2\.0, but must be in \[0, 1\]"):
        trainer(late_beta=2.0)
    with pytest.raises(fp.MissingError, match="World: late = 3, but there is no trainer"):
        fp.Run(fp.Uniform(2), world(3))
    with pytest.raises(fp.SettingError, match="the aggregation 'o2' has no place for late updates"):
        fp.Run(fp.Uniform(2), world(3), 0, trainer(aggregation="o2"))


class Own:
    """A trainer of the user's own, with no more than a trainer must have, and an aggregation that has a place."""

    aggregation = "fedavg"

    def init(self, seed):
        return {"w": np.zeros(1)}

    def probe(self, model, ids, batch, rng):
        return np.ones(len(ids))

    def train(self, model, ids, used, epochs, round, rng):
        return fp.Updates(np.ones(len(ids)))

    def aggregate(self, model, choice, outcome, updates, delayed=None):
        return model

    def evaluate(self, model, round):
        return {}


def test_a_trainer_of_ones_own_needs_a_method_to_keep_late_updates():
    with pytest.raises(fp.MissingError, match="World: late = 3, but there is no trainer that can keep late updates"):
        fp.Run(fp.Uniform(2), world(3), 0, Own())
    assert len(list(fp.Run(fp.Uniform(2), world(0), 0, Own()).rounds(2))) == 2  # without them it is one


def test_a_trainer_of_ones_own_needs_methods_to_train_single_tasks():
    with pytest.raises(fp.MissingError, match="this trainer cannot train single tasks"):
        fp.Run(fp.Uniform(2), world(0), 0, Own(), pace=fp.Buffered(2, 2))
