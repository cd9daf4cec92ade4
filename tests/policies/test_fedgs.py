"""FedGS against brute force over (16), and a graph that grows as clients report."""

import itertools

import numpy as np
import pytest

import fedpick as fp
from zoo import outcome, view

LABELS = np.random.default_rng(4).dirichlet(np.full(4, 0.3), 11)
CLIENTS = fp.Clients(np.arange(1.0, 12.0), features=LABELS)


def objective(cohort, distance, counts, alpha, m, scale):
    """(14) times N - 1, written out: diversity of the cohort minus z'1."""
    n = len(counts)
    pairs = sum(distance[i, j] for i in cohort for j in cohort if i != j)
    per = n * (n - 1) if scale == "paper" else m * (m - 1)
    z = [2 * (counts[k] - counts.mean() - m / n) + 1 for k in cohort]
    return alpha * pairs / per * (n - 1) - sum(z)


def twin_distance(features, epsilon=0.1, sigma2=0.3):
    """Cosine, edges exp(-V/sigma2), Floyd-Warshall in loops, unreachable twice the largest, scaled to 1."""
    n = len(features)
    v = np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in features] for a in features])
    h = np.where(v >= epsilon, np.exp(-v / sigma2), np.inf)
    np.fill_diagonal(h, 0.0)
    for k, i, j in itertools.product(range(n), repeat=3):
        h[i, j] = min(h[i, j], h[i, k] + h[k, j])
    h[np.isinf(h)] = 2 * h[np.isfinite(h)].max()
    return h / h.max()


def test_the_graph_of_the_features_is_the_paper_s():
    np.testing.assert_allclose(fp.FedGS(3).init(CLIENTS).distance, twin_distance(LABELS), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", ["cohort", "paper"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 5.0, 40.0])
def test_every_choice_attains_the_optimum_of_16(alpha, scale):
    policy = fp.FedGS(4, alpha=alpha, scale=scale)
    state, distance = policy.init(CLIENTS), twin_distance(LABELS)
    for round in range(1, 31):
        here = fp.rng.stream(1, round, "here").random(11) < 0.8
        seen = view(CLIENTS, round, available=here)
        ids = np.flatnonzero(here)
        m = min(4, len(ids))
        counts = state.counts.copy()
        choice = policy.select(state, seen, fp.rng.stream(1, round, "policy"))
        best = max(objective(c, distance, counts, alpha, m, scale) for c in itertools.combinations(ids.tolist(), m))
        found = objective(choice.ids.tolist(), distance, counts, alpha, m, scale)
        assert found == pytest.approx(best, abs=1e-9)
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(round)))
        assert (state.counts - counts).sum() == m


def test_alpha_0_keeps_counts_within_one_when_all_are_there():
    policy = fp.FedGS(4, alpha=0.0)
    state = policy.init(CLIENTS)
    for round in range(1, 40):
        seen = view(CLIENTS, round)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
        assert np.ptp(state.counts) <= 1


def test_ties_are_broken_at_random():
    policy = fp.FedGS(1, alpha=0.0)
    state, rng, draws = policy.init(CLIENTS), np.random.default_rng(0), 5_000
    counts = np.zeros(11)
    for _ in range(draws):
        counts[policy.select(state, view(CLIENTS), rng).ids] += 1
    p = 1 / 11
    assert np.all(np.abs(counts / draws - p) <= 4.5 * np.sqrt(p * (1 - p) / draws))


def test_weights_are_sizes_normalised_over_the_cohort():
    policy = fp.FedGS(3)
    choice = policy.select(policy.init(CLIENTS), view(CLIENTS), np.random.default_rng(0))
    sizes = CLIENTS.sizes[choice.ids]
    np.testing.assert_allclose(choice.weights, sizes / sizes.sum())
    assert choice.inclusion is None


def test_cohorts_are_more_balanced_than_uniform_ones():
    """One label per client: with distances, a cohort of 5 holds all 5 labels; drawn uniformly it seldom does."""
    labels = np.eye(5)[np.arange(30) % 5]
    clients = fp.Clients(np.ones(30), features=labels)

    def missing(policy):
        state, total = policy.init(clients), 0
        for round in range(1, 31):
            seen = view(clients, round)
            choice = policy.select(state, seen, fp.rng.stream(2, round, "policy"))
            total += np.count_nonzero(labels[choice.ids].sum(axis=0) == 0)
            state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(round)))
        return total

    assert missing(fp.FedGS(5)) == 0
    assert missing(fp.Uniform(5)) > 20


def test_without_features_the_graph_grows_from_reports():
    clients = fp.Clients(np.ones(11))
    policy = fp.FedGS(3)
    state = policy.init(clients)
    assert state.distance.shape == (0, 0)
    heard = set()
    for round in range(1, 5):
        seen = view(clients, round)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        status = np.array([0, 3, 2])  # the third fails: its report is not to be used
        report = fp.Outcome(status, np.ones(3), np.ones(3), {"embedding": LABELS[choice.ids]})
        state = policy.observe(state, seen, choice, report)
        heard |= set(choice.ids[:2].tolist())
        known = np.sort(list(heard))
        np.testing.assert_allclose(state.distance[np.ix_(known, known)], twin_distance(LABELS[known]), atol=1e-9)
        others = np.setdiff1d(np.arange(11), known)
        assert np.isnan(state.distance[others]).all()


@pytest.mark.parametrize("graph", ["auto", "features"])
def test_a_graph_of_features_learns_from_no_report(graph):
    policy, seen = fp.FedGS(2, graph=graph), view(CLIENTS)
    state = policy.init(CLIENTS)
    before = state.distance.copy()
    named = {name: np.eye(2) for name in ("features", "embedding", "update")}
    state = policy.observe(state, seen, fp.Choice([0, 1]), fp.Outcome([0, 0], [1, 1], [1, 1], named))
    np.testing.assert_array_equal(state.distance, before)
    np.testing.assert_array_equal(state.vectors, LABELS)


def test_reports_that_nobody_can_use_do_not_settle_their_width():
    clients = fp.Clients(np.ones(4))
    policy = fp.FedGS(2, graph="embedding")
    state, seen = policy.init(clients), view(clients)
    useless = fp.Outcome([2, 0], [1, 1], [1, 1], {"embedding": [[1.0], [np.nan]]})
    state = policy.observe(state, seen, fp.Choice([0, 1]), useless)
    useful = fp.Outcome([0, 0], [1, 1], [1, 1], {"embedding": np.eye(2)})
    state = policy.observe(state, seen, fp.Choice([2, 3]), useful)
    np.testing.assert_array_equal(state.vectors[2:], np.eye(2))


def test_the_graph_is_rebuilt_only_every_so_many_rounds():
    clients = fp.Clients(np.ones(11))
    policy = fp.FedGS(4, graph="update", rebuild_every=3)
    state, sizes = policy.init(clients), []
    for round in range(1, 7):
        seen = view(clients, round)
        choice = fp.Choice(np.array([round, round + 1, round + 2, round + 3]) % 11)
        report = fp.Outcome(np.zeros(4, int), np.ones(4), np.ones(4), {"update": LABELS[choice.ids]})
        state = policy.observe(state, seen, choice, report)
        sizes.append(int(np.isfinite(state.distance.diagonal()).sum()))
    assert sizes == [0, 0, 6, 6, 6, 9]


def test_a_newcomer_with_features_is_placed_after_the_next_round():
    policy = fp.FedGS(3)
    old = CLIENTS.take(np.arange(9))
    state = fp.admit(policy, policy.init(old), CLIENTS.take([9, 10]))
    assert np.isnan(state.distance.diagonal()[9:]).all()
    seen = view(CLIENTS, 50)
    choice = policy.select(state, seen, np.random.default_rng(0))  # works before it is placed
    assert len(choice) == 3
    state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
    np.testing.assert_allclose(state.distance, twin_distance(LABELS), atol=1e-9)


def test_secure_dot_products_give_the_graph_of_the_features():
    dots = fp.graph.secure_similarity(LABELS, np.random.default_rng(0))
    hidden = fp.Clients(CLIENTS.sizes, features=fp.graph.vectors_from_similarity(dots))
    np.testing.assert_allclose(fp.FedGS(3).init(hidden).distance, twin_distance(LABELS), atol=1e-6)


def test_distances_can_be_given():
    line = np.abs(np.subtract.outer(np.arange(11.0), np.arange(11.0)))
    policy = fp.FedGS(2, graph=line)
    choice = policy.select(policy.init(CLIENTS), view(CLIENTS), np.random.default_rng(0))
    assert choice.ids.tolist() == [0, 10]


def test_the_same_seed_gives_the_same_cohort_whatever_the_restarts_found():
    policy = fp.FedGS(4, restarts=2)
    state = policy.init(CLIENTS)
    a, b = (policy.select(state, view(CLIENTS), np.random.default_rng(9)).ids for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"alpha": -1.0}, fp.SettingError, "FedGS: alpha = -1.0, but must be a number >= 0"),
        ({"sigma2": 0.0}, fp.SettingError, "sigma2 = 0.0, but must be a number > 0"),
        ({"epsilon": 1.5}, fp.SettingError, "epsilon = 1.5, but must be a number > 0 and <= 1"),
        ({"scale": "papers"}, fp.UnknownNameError, "unknown scale of FedGS 'papers'; did you mean 'paper'\\?"),
        ({"neighbours": 0}, fp.SettingError, "neighbours = 0, but must be a number >= 1"),
        ({"restarts": 0}, fp.SettingError, "restarts = 0, but must be a number >= 1"),
        ({"rebuild_every": 0}, fp.SettingError, "rebuild_every = 0, but must be a number >= 1"),
        ({"time_limit": 0.0}, fp.SettingError, "time_limit = 0.0, but must be a number > 0"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(settings, error, says):
    with pytest.raises(error, match=says):
        fp.FedGS(3, **settings)


def test_missing_and_misshapen_graphs_are_named():
    bare = fp.Clients(np.ones(4))
    with pytest.raises(
        fp.MissingError, match=r"graph='features', but Clients\.features is None; give features of shape"
    ):
        fp.FedGS(2, graph="features").init(bare)
    with pytest.raises(fp.ContractError, match="features has length 3, but there are 4 clients"):
        fp.FedGS(2).init(fp.Clients(np.ones(4), features=np.ones((3, 2))))
    with pytest.raises(
        fp.ContractError, match=r"graph has shape \(3, 3\), but distances between 4 clients need \(4, 4\)"
    ):
        fp.FedGS(2, graph=np.zeros((3, 3))).init(bare)
    with pytest.raises(fp.SettingError, match="graph holds a distance that is negative, NaN or infinite"):
        fp.FedGS(2, graph=np.full((4, 4), np.nan)).init(bare)
    policy = fp.FedGS(2, graph="embedding")
    state, seen = policy.init(bare), view(bare)
    report = fp.Outcome([0, 0], [1, 1], [1, 1], {"embedding": np.eye(2)})
    state = policy.observe(state, seen, fp.Choice([0, 1]), report)
    wider = fp.Outcome([0, 0], [1, 1], [1, 1], {"embedding": np.ones((2, 3))})
    with pytest.raises(fp.ContractError, match="a report has 3 columns, but earlier ones had 2"):
        policy.observe(state, seen, fp.Choice([2, 3]), wider)


def test_too_many_clients_for_a_matrix_are_refused_with_the_memory_it_would_take(monkeypatch):
    monkeypatch.setattr("fedpick.policies.fedgs.MOST_CLIENTS", 10)
    with pytest.raises(fp.SettingError, match="clients = 11, but must be at most 10; their distances would take 0 GiB"):
        fp.FedGS(3).init(CLIENTS)
    fp.FedGS(3, alpha=0.0).init(CLIENTS)


def test_without_rounds_a_task_counts_when_it_ends_not_when_the_model_moves():
    """The choice is that of a state in which those of `view.ended` are counted, each as often as it is there."""
    ended = np.array([3, 3, 5, 0, 3])
    for alpha in (0.0, 1.0):
        policy = fp.FedGS(4, alpha=alpha)
        state, counted = policy.init(CLIENTS), policy.init(CLIENTS)
        state.counts[:] = counted.counts[:] = [2, 2, 2, 0, 1, 1, 2, 1, 2, 2, 2]
        np.add.at(counted.counts, ended, 1)
        now, later = (fp.View(3, np.ones(11, dtype=bool), CLIENTS, ended=each) for each in (ended, None))
        picks = [policy.select(s, v, np.random.default_rng(7)).ids for s, v in ((state, now), (counted, later))]
        np.testing.assert_array_equal(*picks)
        assert state.counts[3] == 0


@pytest.mark.parametrize(("concurrency", "size"), [(5, 5), (4, 20), (12, 3)])
def test_without_rounds_whoever_is_asked_was_asked_least_of_the_idle(concurrency, size):
    """A twin counts asks in plain Python; slow clients, vanished ones and several answers in one move included."""
    asks, several = [0] * 20, 0

    class Spy(fp.FedGS):
        def select(self, state, view, rng):
            nonlocal several
            several += max(np.bincount(view.ended, minlength=1)) > 1
            choice = super().select(state, view, rng)
            left = [k for k in np.flatnonzero(view.available).tolist() if k not in choice.ids]
            for k in choice.ids.tolist():
                assert asks[k] <= min((asks[each] for each in left), default=asks[k])
            for k in choice.ids.tolist():
                asks[k] += 1
            return choice

    seconds = np.exp(np.random.default_rng(0).normal(0.0, 1.5, 20))
    world = fp.World(
        fp.Clients(np.ones(20)),
        volatility=fp.worlds.SuccessRates((0.9,)),  # the others vanish, until they time out
        latency=fp.worlds.PerClient(seconds),
        deadline=None,
    )
    pace = fp.Buffered(concurrency, size, timeout=30.0)
    run = fp.Run(Spy(concurrency, alpha=0.0), world, 1, pace=pace)
    records = list(run.rounds(until=600 // size))
    assert {fp.Status.DONE, fp.Status.LATE} <= set(np.concatenate([record.status for record in records]).tolist())
    assert several > 0 or size < 20
    told = np.bincount(np.concatenate([record.ids for record in records]), minlength=20)
    working = [task.client for task in run.state.stream.stream.flying.values()]
    np.testing.assert_array_equal(run.state.policy.counts, told)
    np.testing.assert_array_equal(told + np.bincount(working, minlength=20), asks)
