"""Optimal sampling: probabilities against the paper's formula, unbiasedness by enumeration, rounds in two phases."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies.optimal_sampling import approximate, optimal
from zoo import outcome, view

LENGTHS = st.lists(st.floats(0.0, 100.0).map(lambda x: round(x, 3)), min_size=1, max_size=8)


def formula(u, m):
    """(7): for the largest l with 0 < m + l - n <= (sum of the l smallest) / (l-th smallest), the l smallest share."""
    n, order = len(u), np.argsort(u, kind="stable")
    rise = np.sort(u)
    p = np.ones(n)
    for l in range(n, 0, -1):  # noqa: E741
        if 0 < m + l - n <= rise[:l].sum() / rise[l - 1] + 1e-12:
            p[order[:l]] = (m + l - n) * rise[:l] / rise[:l].sum()
            break
    return np.minimum(p, 1.0)


@settings(max_examples=80, deadline=None)
@given(u=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8), m=st.integers(1, 9))
def test_the_probabilities_are_those_of_the_formula(u, m):
    u = np.array(u)
    p = optimal(u, m)
    np.testing.assert_allclose(p, formula(u, min(m, len(u))), rtol=1e-6)
    assert p.sum() == pytest.approx(min(m, len(u)))


@settings(max_examples=80, deadline=None)
@given(u=LENGTHS, m=st.integers(1, 9))
def test_no_division_by_nothing_and_no_length_no_question(u, m):
    """The public code's 0/0, where all probabilities are 1 or all lengths 0, gives numbers here."""
    u = np.array(u)
    for p in (optimal(u, m), approximate(u, m, 4)):
        assert np.isfinite(p).all()
        assert ((p >= 0) & (p <= 1)).all()
        assert (p[u == 0] == 0).all()
        assert p.sum() <= m + 1e-9

    def faulty(u, m):  # the loop of the public code: the second sum is 0 once nobody is below 1
        p = np.minimum(m * u / u.sum(), 1.0)
        for _ in range(4):
            p = np.minimum((m - len(u) + np.sum(p < 1)) / np.sum(p[p < 1]) * p, 1.0)
        return p

    with np.errstate(all="ignore"):
        assert np.isnan(faulty(np.array([1.0, 1.0]), 2)).any()
    assert approximate(np.array([1.0, 1.0]), 2, 4).tolist() == [1.0, 1.0]


def test_a_few_steps_of_aocs_come_to_the_optimum():
    """Each step caps more clients and gives what they cannot use to the others; one step is not enough."""
    u = np.random.default_rng(0).lognormal(0, 2.5, 200)
    exact = optimal(u, 100)
    steps = [approximate(u, 100, count) for count in (0, 1, 2, 3, 4)]
    errors = [np.abs(p - exact).max() for p in steps]
    assert 0 < np.count_nonzero(steps[0] == 1.0) < np.count_nonzero(steps[1] == 1.0) < np.count_nonzero(exact == 1.0)
    assert errors[1] > 0.4
    assert errors[0] > errors[1] > errors[2] > errors[3] > errors[4]
    assert errors[4] < 1e-12
    assert steps[4].sum() == pytest.approx(100)


@pytest.mark.parametrize("steps", [None, 2])
def test_the_mean_aggregate_is_full_participation_by_enumeration(steps):
    sizes, norms = np.array([5.0, 1.0, 3.0, 1.0]), np.array([1.0, 9.0, 0.5, 0.0])
    share = sizes / sizes.sum()
    p = optimal(share * norms, 2) if steps is None else approximate(share * norms, 2, steps)
    expected = np.zeros(4)
    for mask in itertools.product([False, True], repeat=4):
        odds = np.prod(np.where(mask, p, 1 - p))
        ids = np.flatnonzero(mask)
        if odds > 0 and len(ids):
            choice = fp.Choice(ids, p[ids], share[ids] / p[ids], normalise=False)
            expected[ids] += odds * choice.shares(np.ones(len(ids), bool)) * norms[ids]
    np.testing.assert_allclose(expected, share * norms, rtol=1e-12)


def test_draws_are_independent_with_these_probabilities_and_weights():
    clients, norms, draws = fp.Clients([5.0, 1.0, 3.0]), np.array([1.0, 9.0, 0.5]), 1000
    policy, rng, counts, sizes = fp.OptimalSampling(1), np.random.default_rng(0), np.zeros(3), []
    p = optimal(clients.sizes / 9 * norms, 1)
    for _ in range(draws):
        choice = policy.select(policy.init(clients), view(clients, norms=lambda ids: norms[ids]), rng)
        counts[choice.ids] += 1
        sizes.append(len(choice))
        if len(choice):
            np.testing.assert_allclose(choice.inclusion, p[choice.ids])
            np.testing.assert_allclose(choice.weights, clients.sizes[choice.ids] / 9 / p[choice.ids])
            assert not choice.normalise
    assert (np.abs(counts / draws - p) <= 4 * np.sqrt(p * (1 - p) / draws)).all()
    assert abs(np.mean(sizes) - 1.0) <= 4 * np.std(sizes) / np.sqrt(draws)
    assert min(sizes) == 0 < 1 < max(sizes)  # not a fixed number


def test_whoever_fails_or_says_nonsense_is_not_asked_and_a_liar_is_asked_once_at_most():
    clients = fp.Clients(np.ones(5))
    norms = np.array([np.nan, np.inf, -1.0, 1.0, 1e12])
    policy = fp.OptimalSampling(2)
    choice = policy.select(policy.init(clients), view(clients, norms=lambda ids: norms[ids]), np.random.default_rng(0))
    assert choice.ids.tolist() == [3, 4]
    assert choice.weights.tolist() == [0.5, 0.5]  # of the two who answered
    nothing = policy.select(
        policy.init(clients), view(clients, norms=lambda ids: np.nan * ids), np.random.default_rng(0)
    )
    assert len(nothing) == 0


def test_a_client_whose_update_is_0_is_never_drawn_but_its_data_count():
    policy, clients = fp.OptimalSampling(2), fp.Clients([4.0, 2.0, 2.0])
    seen = view(clients, norms=lambda ids: np.array([0.0, 1.0, 1.0]))
    choice = policy.select(policy.init(clients), seen, np.random.default_rng(0))
    assert choice.ids.tolist() == [1, 2]
    assert choice.weights.tolist() == [0.25, 0.25]


def test_only_a_pool_trains_and_the_shares_are_of_the_pool():
    """Each is in the pool as often as any other; inclusion and weights are those given the pool."""
    clients, norms, asked = fp.Clients([5.0, 1.0, 3.0, 2.0, 9.0, 4.0]), np.array([1.0, 9.0, 0.5, 2.0, 1.0, 3.0]), []
    policy, rng, draws, pools = fp.OptimalSampling(1, pool=3), np.random.default_rng(0), 1200, np.zeros(6)

    def tell(ids):
        asked.append(ids)
        return norms[ids]

    for _ in range(draws):
        choice = policy.select(policy.init(clients), view(clients, norms=tell), rng)
        pool = asked[-1]
        pools[pool] += 1
        assert len(np.unique(pool)) == 3
        share = dict(zip(pool.tolist(), clients.sizes[pool] / clients.sizes[pool].sum(), strict=True))
        p = dict(zip(pool.tolist(), optimal(np.array([share[k] * norms[k] for k in pool.tolist()]), 1), strict=True))
        np.testing.assert_allclose(choice.inclusion, [p[k] for k in choice.ids.tolist()])
        np.testing.assert_allclose(choice.weights, [share[k] / p[k] for k in choice.ids.tolist()])
    assert (np.abs(pools / draws - 0.5) <= 4 * np.sqrt(0.25 / draws)).all()
    assert len(asked) == draws


def test_of_equal_sizes_a_pool_is_unbiased_for_everyone_by_enumeration():
    norms, expected = np.array([1.0, 9.0, 0.5, 2.0]), {True: np.zeros(4), False: np.zeros(4)}
    for equal, sizes in ((True, np.ones(4)), (False, np.array([5.0, 1.0, 3.0, 1.0]))):
        for pool in itertools.combinations(range(4), 3):
            ids = np.array(pool)
            expected[equal][ids] += 0.25 * norms[ids] * sizes[ids] / sizes[ids].sum()  # E(w/p U) = w U given the pool
    np.testing.assert_allclose(expected[True], norms / 4)
    assert np.abs(expected[False] - norms * [0.5, 0.1, 0.3, 0.1]).max() > 0.01


def test_newcomers_leavers_and_only_those_who_are_there():
    policy, clients = fp.OptimalSampling(9), fp.Clients(np.ones(3))
    seen = view(clients, 1, [True, False, True], norms=lambda ids: np.ones(len(ids)))
    choice = policy.select(policy.init(clients), seen, np.random.default_rng(0))
    assert choice.ids.tolist() == [0, 2]
    state = policy.observe(policy.init(clients), seen, choice, outcome(choice, np.random.default_rng(0)))
    assert fp.admit(policy, fp.retire(policy, state, [2, 1]), fp.Clients([1.0])).counts.tolist() == [1, 0, 0]


def test_what_is_missing_is_said():
    clients, policy = fp.Clients(np.ones(2)), fp.OptimalSampling(1)
    with pytest.raises(fp.MissingError, match=r"view\.norms is None"):
        policy.select(policy.init(clients), view(clients, norms=None), np.random.default_rng(0))
    with pytest.raises(fp.ContractError, match="return one length per id"):
        policy.select(policy.init(clients), view(clients, norms=lambda ids: [1.0]), np.random.default_rng(0))
    with pytest.raises(fp.MissingError, match="needs rounds in two phases"):
        fp.Run(policy, fp.World())
    with pytest.raises(fp.MissingError, match="which a session does not have"):
        fp.Session(policy)
    with pytest.raises(fp.SettingError, match="OptimalSampling: steps = 0"):
        fp.OptimalSampling(2, steps=0)
    with pytest.raises(fp.SettingError, match="OptimalSampling: pool = 1, but must be a whole number >= 2"):
        fp.OptimalSampling(2, pool=1)


# ---- two phases in a simulated run


@pytest.fixture(scope="module")
def scene():
    pytest.importorskip("jax")  # the core alone trains nothing
    from fedpick import learn

    people = fp.data.Synthetic(1.0, 1.0)(num_clients=12, rng=fp.rng.stream(0, 0, "data"))
    trainer = learn.Trainer(people, learn.logistic((60,), 10), lr=0.05, batch=20, steps=3, evaluate_every=1)
    world = fp.World(
        people.clients,
        availability=fp.worlds.Always(),
        volatility=fp.worlds.Reliable(),
        latency=fp.worlds.PerClient(tuple(np.arange(1.0, 13.0))),
        deadline=None,
        epochs=(1,),
        model_megabytes=2.0,
    )
    return trainer, world


def test_all_train_and_the_chosen_send_what_they_have(scene):
    """With a place for everyone the model is that of a round in which all take part; each is trained once."""
    trainer, world = scene
    every, plain = fp.Run(fp.OptimalSampling(12), world, 0, trainer), fp.Run(fp.Uniform(12), world, 0, trainer)
    one, other = next(iter(every.rounds(1))), next(iter(plain.rounds(1)))
    assert one.ids.tolist() == other.ids.tolist() == list(range(12))
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-5)
    assert one.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=1e-4)


def test_what_is_sent_is_charged_and_the_round_lasts_as_long_as_the_slowest_asked(scene):
    trainer, world = scene
    run = fp.Run(fp.OptimalSampling(3), world, 1, trainer)
    for record in run.rounds(5):
        sent = len(record.ids)
        assert record.seconds == 12.0
        assert record.messages == 2 * 12 + 2 * sent
        assert record.megabytes == pytest.approx(2.0 * (12 + sent) + 12 * 4e-6)
    assert run.state.world.clock == 60.0


def test_only_the_pool_is_charged(scene):
    trainer, world = scene
    for record in fp.Run(fp.OptimalSampling(2, pool=5), world, 1, trainer).rounds(3):
        sent = len(record.ids)
        assert record.messages == 2 * 5 + 2 * sent
        assert record.megabytes == pytest.approx(2.0 * (5 + sent) + 5 * 4e-6)


def test_late_and_failed_clients_are_never_chosen(scene):
    trainer, world = scene
    hard = replace(world, deadline=6.5, volatility=fp.worlds.SuccessRates((0.5,)))
    for record in fp.Run(fp.OptimalSampling(4), hard, 2, trainer).rounds(6):
        assert (record.status == fp.Status.DONE).all()
        assert (record.ids < 6).all()


@pytest.mark.slow
def test_runs_in_a_stack_end_as_they_do_alone(scene):
    from fedpick.simulate.together import play_together

    trainer, world = scene
    policies = [fp.OptimalSampling(3), fp.Uniform(3)]
    alone = [list(fp.Run(policy, world, 3, trainer).rounds(3)) for policy in policies]
    stacked = list(play_together([fp.Run(policy, world, 3, replace(trainer)) for policy in policies], 3))
    for r in range(2):
        for t in range(3):
            assert stacked[t][r].ids.tolist() == alone[r][t].ids.tolist()
            assert stacked[t][r].metrics["train_loss"] == pytest.approx(alone[r][t].metrics["train_loss"], rel=1e-4)


def test_a_policy_that_asks_twice_or_chooses_strangers_is_told(scene):
    trainer, world = scene

    class Twice(fp.OptimalSampling):
        def select(self, state, view, rng):
            view.norms(np.array([0]))
            return super().select(state, view, rng)

    class Stranger(fp.OptimalSampling):
        def select(self, state, view, rng):
            view.norms(np.array([0]))
            return fp.Choice([1])

    with pytest.raises(fp.ContractError, match="called twice in a round"):
        next(iter(fp.Run(Twice(2), world, 0, trainer).rounds(1)))
    with pytest.raises(fp.ContractError, match="client 1 was chosen, but was not asked"):
        next(iter(fp.Run(Stranger(2), world, 0, trainer).rounds(1)))
