"""What updates are worth on the server's validation data: against a loop, and apart from the test data."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_data import data_of, model_of

import fedpick as fp
from fedpick import learn
from fedpick.core.types import Updates
from fedpick.learn.evaluation import split_test
from fedpick.learn.reports import of_server
from fedpick.simulate.round import _reported
from fedpick.simulate.together import play_together
from fedpick.worlds import Always, PerClient, Reliable, World

pytestmark = pytest.mark.usefixtures("quick_start")


def make(reports=("update_norm", "shapley"), **options):
    return learn.Trainer(data_of("floats"), model_of("floats"), lr=0.3, batch=8, reports=reports, **options)


def test_the_report_is_the_shapley_value_of_minus_the_validation_loss():
    trainer = make()
    model, ids = trainer.init(0), np.array([4, 0, 1, 3])
    used = np.array([True, False, True, True])
    updates = trainer.train(model, ids, used, np.ones(4), 1, np.random.default_rng(0))
    delta, at, slots = updates.payload
    data = trainer.data.dataset
    valued, _ = split_test(data, trainer.set_aside)

    def value(members):
        params = model["params"]
        if members:
            sizes = trainer.data.sizes[ids[at[list(members)]]]
            for share, i in zip(sizes / sizes.sum(), members, strict=True):
                params = jax.tree.map(lambda w, d, share=share, i=i: w + share * d[slots[i]], params, delta)
        loss, _ = trainer.placed("test").launch(trainer.model, trainer.backend.everywhere(params), valued)()
        return -loss.mean()

    wanted = np.full(4, np.nan)
    orders = list(itertools.permutations(range(3)))
    for i in range(3):
        adds = [value(order[: order.index(i) + 1]) - value(order[: order.index(i)]) for order in orders]
        wanted[at[i]] = np.mean(adds)
    np.testing.assert_allclose(updates.reports["shapley"], wanted, rtol=1e-3, atol=1e-5)
    assert len(data.test_x) == 11
    assert len(valued) == 5


def test_what_it_values_on_is_not_what_it_is_tested_on():
    trainer, plain = make(), make(("update_norm",))
    data = trainer.data.dataset
    valued, tested = split_test(data, trainer.set_aside)
    assert set(tested) | set(valued) == set(range(11))
    assert not set(tested) & set(valued)
    assert len(split_test(data, plain.set_aside)[1]) == 11
    model = trainer.init(0)
    loss, right = trainer.placed("test").launch(trainer.model, trainer.backend.everywhere(model["params"]), tested)()
    found = trainer.evaluate(model, 10)
    assert found["test_loss"] == pytest.approx(loss.mean())
    assert found["accuracy"] == pytest.approx(right.mean())


def test_trainers_that_set_as_many_examples_aside_are_tested_on_the_same():
    plain, valued = make(("update_norm",), set_aside=5), make(set_aside=5)
    assert make().set_aside == 1000  # unless said otherwise, with the report
    model = valued.init(0)
    assert plain.evaluate(model, 10) == valued.evaluate(model, 10)
    assert len(split_test(plain.data.dataset, plain.set_aside)[1]) == 6
    with pytest.raises(fp.errors.SettingError, match="set_aside"):
        make(set_aside=-1)


def test_an_update_that_is_no_number_has_no_value_and_spoils_no_other():
    trainer = make()
    model, ids = trainer.init(0), np.array([4, 0, 3])
    updates = trainer.train(model, ids, np.ones(3, bool), np.ones(3), 1, np.random.default_rng(0))
    delta, at, slots = updates.payload
    broken = jax.tree.map(lambda leaf: jnp.asarray(leaf).at[slots[1]].set(np.nan), delta)
    spoiled = Updates(updates.loss, {}, (broken, at, slots), np.array([True, False, True]))
    args = trainer.backend, trainer.model, trainer.data, model["params"], spoiled, ids, 1, trainer.set_aside
    found = of_server(trainer.reports, *args)["shapley"]
    assert np.isnan(found[1])
    assert np.isfinite(found[[0, 2]]).all()


def test_nothing_is_valued_if_the_model_that_was_sent_has_no_loss():
    trainer = make()
    model, ids = trainer.init(0), np.array([4, 0, 3])
    updates = trainer.train(model, ids, np.ones(3, bool), np.ones(3), 1, np.random.default_rng(0))
    lost = jax.tree.map(lambda leaf: leaf * np.nan, model["params"])
    args = trainer.backend, trainer.model, trainer.data, lost, updates, ids, 1, trainer.set_aside
    found = of_server(trainer.reports, *args)["shapley"]
    assert np.isnan(found).all()


def runs():
    data = data_of("floats")
    world = World(
        data.clients, availability=Always(), volatility=Reliable(), latency=PerClient(1.0), epochs=(1,), deadline=None
    )
    return [fp.Run(fp.GreedyFed(2), world, seed, make()) for seed in (0, 1)]


@pytest.mark.slow
def test_stacked_runs_value_as_runs_alone():
    alone = [list(run.rounds(until=5)) for run in runs()]
    together = list(zip(*play_together(runs(), until=5), strict=True))
    for one, other in zip(alone, together, strict=True):
        assert [r.ids.tolist() for r in one] == [r.ids.tolist() for r in other]
    state = runs()[0]
    for _ in state.rounds(until=5):
        pass
    assert state.state.policy.valued.sum() > 0


def test_it_costs_no_message_and_is_missing_by_name():
    outcome = fp.Outcome([0, 0], np.ones(2), np.ones(2), {"shapley": [1.0, 2.0]})
    assert _reported(fp.GreedyFed(2), fp.Clients(np.ones(2)), outcome) == 0.0
    data = data_of("floats")
    with pytest.raises(
        fp.MissingError, match="GreedyFed needs the report 'shapley', but this trainer reports update_n"
    ):
        fp.Run(fp.GreedyFed(2), World(data.clients), 0, make(("update_norm",)))
    bare = fp.data.Federated(
        fp.data.Dataset("bare", data.dataset.x, data.dataset.y, data.dataset.x[:0], data.dataset.y[:0], 4),
        data.examples,
        data.starts,
    )
    with pytest.raises(fp.SettingError, match="bare has no test examples"):
        learn.Trainer(bare, model_of("floats"), reports=("shapley",))
