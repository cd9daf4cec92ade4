"""FedCor: the greedy choice and what is learned, against the paper's formulas on whole matrices; the authors' fault."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

import fedpick as fp
from fedpick.policies.fedcor import embed, greedy
from zoo import outcome, view


def twin_greedy(S, p, alpha, able, m):
    """The paper's loop: the client that lowers the expected loss of all the most, then the covariance given it."""
    S, chosen = S.copy(), []
    for _ in range(m):
        gain = {
            k: alpha[k] * sum(p[i] * S[i, k] for i in range(len(p))) / np.sqrt(S[k, k]) for k in able if k not in chosen
        }
        k = max(gain, key=gain.get)
        chosen.append(k)
        S = S - np.outer(S[:, k], S[k]) / S[k, k]
    return chosen


def likelihood(X, changes, weights, noise):
    """Of what was seen of each round, given the discounted means."""
    seen = np.isfinite(changes)
    mean = np.nansum(changes * weights, axis=1) / np.maximum((seen * weights).sum(axis=1), 1e-300)
    C, total = X @ X.T + noise**2 * np.eye(len(X)), 0.0
    for s, weight in enumerate(weights):
        at = np.flatnonzero(seen[:, s])
        if len(at):
            total += weight * multivariate_normal.logpdf(changes[at, s], mean[at], C[np.ix_(at, at)])
    return total


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(2, 9), m=st.integers(1, 6), noise=st.sampled_from([0.05, 0.5]))
def test_the_greedy_choice_is_the_papers(seed, count, m, noise):
    rng = np.random.default_rng(seed)
    X, p, alpha = rng.normal(size=(count, 3)), rng.dirichlet(np.ones(count)), 0.9 ** rng.integers(0, 5, count)
    able = rng.permutation(count)[: max(1, count - 2)]
    m = min(m, len(able))
    found = greedy(X, noise, p, alpha, able, m)
    assert found.tolist() == twin_greedy(X @ X.T + noise**2 * np.eye(count), p, alpha, able.tolist(), m)


def test_with_all_changes_seen_it_learns_the_best_matrix_there_is():
    """Maximum likelihood: no small step in any direction does better, and it beats the matrix that made the changes."""
    rng = np.random.default_rng(0)
    true, noise = rng.normal(size=(6, 2)), 0.3
    changes = true @ rng.normal(size=(2, 60)) + noise * rng.normal(size=(6, 60)) + 1.0
    weights = 0.99 ** np.arange(60)
    X = embed(changes, weights, 2, noise)
    best = likelihood(X, changes, weights, noise)
    assert best >= likelihood(true, changes, weights, noise)
    for _ in range(10):
        assert likelihood(X + 1e-3 * rng.normal(size=X.shape), changes, weights, noise) <= best
    # As the changes are many, the covariance found is near the true one: within four standard errors of an entry.
    wanted = true @ true.T + noise**2 * np.eye(6)
    error = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) * np.square(weights).sum()) / weights.sum()
    assert (np.abs(X @ X.T + noise**2 * np.eye(6) - wanted) <= 4.5 * error).all()


def test_with_changes_missing_each_step_makes_them_likelier(monkeypatch):
    rng = np.random.default_rng(1)
    changes = rng.normal(size=(7, 2)) @ rng.normal(size=(2, 12)) + 0.2 * rng.normal(size=(7, 12))
    changes[rng.random((7, 12)) < 0.3] = np.nan
    changes[3] = np.nan  # never heard
    weights = 0.9 ** np.arange(12)
    found = []
    for steps in range(0, 30, 3):
        monkeypatch.setattr("fedpick.policies.fedcor.STEPS", steps)
        found.append(likelihood(embed(changes, weights, 2, 0.2), changes, weights, 0.2))
    assert (np.diff(found) > -1e-9).all()
    assert found[-1] > found[0] + 1.0
    assert (embed(changes, weights, 2, 0.2)[3] == 0.0).all()


def play(policy, losses_of, rounds, clients, availability=None, seed=0):
    """(state, choices, rounds in which it probed), where `losses_of(round)` are the clients' losses before it."""
    state, choices, probed = policy.init(clients), [], []
    for t in range(1, rounds + 1):

        def probe(ids, batch=None, t=t):
            probed.append(t)
            return losses_of(t)[ids]

        seen = view(clients, t, None if availability is None else availability(t), probe=probe)
        choice = policy.select(state, seen, fp.rng.stream(seed, t, "policy"))
        choices.append(choice)
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(t)))
    return state, choices, probed


def test_it_learns_from_uniform_rounds_and_probes_before_and_after_them():
    policy, clients = fp.FedCor(2, warmup=3, interval=4, samples=4, dimension=2), fp.Clients(np.ones(5))
    rng = np.random.default_rng(0)
    losses = np.cumsum(rng.normal(size=(20, 5)), axis=0)
    state, choices, probed = play(policy, lambda t: losses[t], 12, clients)
    assert [t for t in range(1, 13) if policy.samples_in(t)] == [1, 2, 3, 7, 11]
    assert probed == [1, 2, 3, 4, 7, 8, 11, 12]
    assert [t for t, choice in enumerate(choices, 1) if choice.inclusion is not None] == [1, 2, 3, 7, 11]
    # Four changes are kept, of rounds 2, 3, 7 and 11: that of round 1 has given way.
    assert sorted(state.when.tolist()) == [2, 3, 7, 11]
    for at, t in enumerate(state.when.tolist()):
        np.testing.assert_allclose(state.changes[:, at], losses[t + 1] - losses[t])
    weights = 0.95 ** (12 - state.when)
    np.testing.assert_allclose(state.vectors, embed(state.changes, weights, 2, 0.01))
    assert state.counts.sum() == 2  # learned in round 12, before that round's cohort was chosen


@pytest.mark.parametrize("warmup", [2, 5])
def test_the_warm_up_has_as_many_uniform_rounds_as_it_says(warmup):
    """X is learned before the cohort of the round after it, whose choice differs from that of an empty X."""
    policy, clients = fp.FedCor(2, warmup=warmup, interval=50, dimension=2), fp.Clients(np.ones(6))
    losses = np.cumsum(np.random.default_rng(0).normal(size=(20, 6)), axis=0)
    state, choices, probed = play(policy, lambda t: losses[t], warmup + 2, clients)
    assert [choice.inclusion is not None for choice in choices] == [True] * warmup + [False] * 2
    assert probed == list(range(1, warmup + 2))
    changes = np.full((6, 25), np.nan)
    changes[:, :warmup] = np.diff(losses[1 : warmup + 2], axis=0).T
    weights = np.zeros(25)
    weights[:warmup] = 0.95 ** np.arange(warmup, 0, -1)
    X = embed(changes, weights, 2, 0.01)
    S = X @ X.T + 0.01**2 * np.eye(6)
    assert choices[warmup].ids.tolist() == sorted(twin_greedy(S, np.full(6, 1 / 6), np.ones(6), range(6), 2))
    assert state.counts.sum() == 4  # of the two cohorts since X was learned


def test_clients_without_a_change_are_chosen_last_also_where_others_fall_as_the_rest_rises():
    """The gain of one that moves against most is negative; that of one without a change is not."""
    policy, clients = fp.FedCor(3, warmup=3, interval=50, dimension=2), fp.Clients(np.ones(6))
    drift = np.cumsum(np.random.default_rng(0).normal(size=20))
    losses = 50.0 + drift[:, None] * np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0])
    heard = np.array([True, True, False, True, False, False])
    state, _, _ = play(policy, lambda t: losses[t], 4, clients, lambda t: heard)
    assert state.vectors[3] @ state.vectors[[0, 1, 3]].sum(axis=0) < 0.0 == np.abs(state.vectors[~heard]).max()
    choice = policy.select(state, view(clients, 5), np.random.default_rng(0))
    assert choice.ids.tolist() == [0, 1, 3]
    more = fp.FedCor(5, warmup=3, interval=50, dimension=2)
    drawn = np.zeros(6)
    for seed in range(200):
        drawn[more.select(state, view(clients, 5), np.random.default_rng(seed)).ids] += 1
    assert drawn[heard].tolist() == [200, 200, 200]
    assert (np.abs(drawn[~heard] / 200 - 2 / 3) <= 4 * np.sqrt(2 / 9 / 200)).all()  # by lot


def test_a_few_clients_are_enough_to_learn_the_rounds_by(monkeypatch):
    """With more clients than FEW, rows are within the error of their own changes of those from all clients."""
    rng = np.random.default_rng(0)
    true, noise = rng.normal(size=(900, 2)), 0.1
    changes = true @ rng.normal(size=(2, 20)) + noise * rng.normal(size=(900, 20))
    changes[rng.random(changes.shape) < 0.2] = np.nan
    whole = embed(changes, np.ones(20), 2, noise)
    monkeypatch.setattr("fedpick.policies.fedcor.FEW", 300)
    monkeypatch.setattr("fedpick.policies.fedcor.BLOCK", 64)
    part = embed(changes, np.ones(20), 2, noise)
    gap = np.abs(part @ part[:50].T - whole @ whole[:50].T)
    assert gap.max() > 0.0
    assert np.sqrt(np.mean(gap**2)) < 0.5 * noise  # 16 changes tell a row within noise / 4 each way
    assert np.isfinite(part).all()


def test_of_two_clients_that_move_as_one_only_one_is_chosen_and_annealing_takes_turns():
    """Clients 0 and 1 go together, as do 2 and 3; a cohort of two has one of each pair, and both get their turn."""
    policy, clients = fp.FedCor(2, warmup=10, interval=50, beta=0.8, dimension=2), fp.Clients(np.ones(4))
    rng = np.random.default_rng(3)
    pair = np.cumsum(rng.normal(size=(60, 2)), axis=0)
    losses = np.repeat(pair, 2, axis=1) + 0.001 * rng.normal(size=(60, 4)) + 50.0
    state, choices, _ = play(policy, lambda t: losses[t], 50, clients)
    chosen = np.array([choice.ids for choice in choices[11:]])
    assert ((chosen[:, 0] < 2) & (chosen[:, 1] >= 2)).all()
    assert np.bincount(chosen.ravel(), minlength=4).min() >= 10
    assert state.vectors.any()


def test_clients_away_in_a_sampled_round_and_newcomers_are_learned_when_they_are_heard():
    policy, clients = fp.FedCor(2, warmup=4, interval=3, dimension=2), fp.Clients(np.ones(6))
    rng = np.random.default_rng(2)
    losses = rng.normal(size=(40, 7))
    away = lambda t: np.arange(6) != (0 if t <= 5 else -1)  # noqa: E731
    state, _, _ = play(policy, lambda t: losses[t, :6], 5, clients, away)
    assert not state.vectors[0].any()
    assert state.vectors[1:].any(axis=1).all()
    state = fp.admit(policy, fp.retire(policy, state, [1, 2, 3, 4, 5]), fp.Clients([1.0, 1.0]))
    assert not state.vectors[5:].any()
    people = fp.Clients(np.ones(7))
    for t in range(6, 12):
        seen = view(people, t, probe=lambda ids, batch=None, t=t: losses[t][ids])
        choice = policy.select(state, seen, fp.rng.stream(0, t, "policy"))
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(t)))
    assert state.vectors.any(axis=1).all()


def halves(t):
    return np.arange(8) % 2 == t % 2


@pytest.mark.parametrize("there", [halves, lambda t: np.random.default_rng(t).random(8) < 0.5])
def test_the_change_of_a_client_that_was_away_is_that_since_it_was_last_asked_by_round(there):
    """Against a loop with dictionaries; with halves that take turns, nobody is asked in two rounds in a row."""
    policy, clients = fp.FedCor(2, warmup=6, interval=5, samples=6, dimension=6), fp.Clients(np.ones(8))
    losses = np.cumsum(np.random.default_rng(0).normal(size=(40, 8)), axis=0)
    state, choices, probed = play(policy, lambda t: losses[t], 38, clients, there)
    asked, columns = {}, {}  # client -> (round, loss); round -> client -> change
    for t in probed:
        now = {int(k): losses[t][k] for k in np.flatnonzero(there(t))}
        rate = {k: (loss - asked[k][1]) / (t - asked[k][0]) for k, loss in now.items() if k in asked}
        if policy.samples_in(t - 1) and rate:
            columns[t - 1] = rate
            columns = {s: columns[s] for s in sorted(columns)[-6:]}
        elif columns:
            newest = columns[max(columns)]
            newest |= {k: each for k, each in rate.items() if not any(k in column for column in columns.values())}
        asked |= {k: (t, loss) for k, loss in now.items()}
    assert sorted(state.when.tolist()) == sorted(columns)
    for at, t in enumerate(state.when.tolist()):
        wanted = [columns[t].get(k, np.nan) for k in range(8)]
        np.testing.assert_allclose(state.changes[:, at], wanted)
    assert state.vectors.any(axis=1).all()  # all are learned
    greedy_rounds = [t for t, choice in enumerate(choices, 1) if choice.inclusion is None]
    assert greedy_rounds == [t for t in range(7, 39) if not policy.samples_in(t)]


def test_halves_that_take_turns_are_chosen_from_by_what_was_learned():
    """0, 2 move as one, as do 4, 6 in the one half; 1, 3 and 5, 7 in the other: a cohort has one of each pair."""
    policy, clients = fp.FedCor(2, warmup=20, interval=50, dimension=4), fp.Clients(np.ones(8))
    rng = np.random.default_rng(4)
    pair = np.cumsum(rng.normal(size=(60, 4)), axis=0)
    losses = pair[:, [0, 1, 0, 1, 2, 3, 2, 3]] + 0.001 * rng.normal(size=(60, 8)) + 50.0
    _, choices, _ = play(policy, lambda t: losses[t], 50, clients, halves)
    for choice in choices[21:]:
        assert choice.ids[0] < 4 <= choice.ids[1]


def test_the_authors_fault_a_leave_one_out_sum_over_groups_misses_the_clients():
    """Their loop counts groups of changes: with one group of six clients, it judges the first client alone."""
    rng = np.random.default_rng(5)
    X = np.repeat(np.eye(2), 3, axis=0)  # 0, 1, 2 move as one, and 3, 4, 5 do
    change = X @ rng.normal(size=2)
    wrong = X.copy()
    wrong[4:] *= -3.0  # of clients that the first has nothing to do with

    def leave_one_out(X, groups, terms):
        total = 0.0
        for values in groups:
            inverse = np.linalg.inv(X @ X.T + 0.1**2 * np.eye(len(X)))
            pull = inverse @ values
            for i in range(terms(groups, values)):
                total += norm.logpdf(values[i], values[i] - pull[i] / inverse[i, i], np.sqrt(1 / inverse[i, i]))
        return total

    theirs = lambda groups, values: len(groups)  # noqa: E731
    right = lambda groups, values: len(values)  # noqa: E731
    gap = {rule: leave_one_out(X, [change], rule) - leave_one_out(wrong, [change], rule) for rule in (theirs, right)}
    assert gap[right] > 10.0
    assert gap[theirs] == pytest.approx(0.0, abs=1e-9)
    both = np.column_stack([change, -change])
    assert likelihood(X, both, np.ones(2), 0.1) > likelihood(wrong, both, np.ones(2), 0.1) + 10.0
    found = embed(both, np.ones(2), 2, 0.1)
    assert likelihood(found, both, np.ones(2), 0.1) >= likelihood(X, both, np.ones(2), 0.1)


def test_what_was_probed_survives_in_the_journal(tmp_path):
    """A server that was killed learns the same changes again from its journal."""
    pytest.importorskip("filelock")  # the core alone has no session
    policy = fp.FedCor(2, warmup=2, interval=2, samples=3, dimension=2)
    names = [f"c{i}" for i in range(5)]
    states = []
    for crash in (False, True):
        folder, told = tmp_path / str(crash), np.random.default_rng(0).normal(size=(8, 5))

        def play_rounds(count, folder=folder, told=told):
            session = fp.Session(policy, state=folder, limits=fp.server.Limits(checkpoint_every=100))
            with session:
                for _ in range(count):
                    t = session.round_number + 1
                    with session.round(
                        names, probe=lambda who, batch, t=t: [told[t][int(w[1:])] for w in who]
                    ) as round:
                        for name in round.chosen:
                            round.done(name, loss=1.0, seconds=1.0)
            return session.roster.state

        if crash:
            for _ in range(6):
                state = play_rounds(1)
        else:
            state = play_rounds(6)
        states.append(state)
    np.testing.assert_array_equal(states[0].changes, states[1].changes)
    np.testing.assert_array_equal(states[0].vectors, states[1].vectors)
    assert states[0].vectors.any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"warmup": 1}, "FedCor: warmup = 1, but must be a whole number >= 2"),
        ({"interval": 1}, "FedCor: interval = 1, but must be a whole number >= 2"),
        ({"samples": 1}, "FedCor: samples = 1, but must be a whole number >= 2"),
        ({"dimension": 0}, "FedCor: dimension = 0, but must be a whole number >= 1"),
        ({"beta": 0.0}, r"FedCor: beta = 0\.0, but must be a number > 0 and <= 1"),
        ({"gamma": 1.5}, r"FedCor: gamma = 1\.5, but must be a number > 0 and <= 1"),
        ({"noise": 0.0}, r"FedCor: noise = 0\.0, but must be a number > 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(options, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.FedCor(**{"cohort_size": 2, **options})


def test_without_a_probe_it_says_so():
    policy, clients = fp.FedCor(2), fp.Clients(np.ones(4))
    with pytest.raises(fp.MissingError, match="FedCor asks all clients for their loss"):
        policy.select(policy.init(clients), view(clients, probe=None), np.random.default_rng(0))
    with pytest.raises(fp.ContractError, match=r"view\.probe returned shape"):
        policy.select(policy.init(clients), view(clients, probe=lambda ids: np.ones(2)), np.random.default_rng(0))


@pytest.mark.parametrize("size", [0.09, 0.11, 0.25, 0.9])
def test_what_varies_more_than_the_noise_is_kept(size):
    found = embed(np.array([[size, -size]]), np.ones(2), 1, 0.1)  # the variance is size^2
    np.testing.assert_allclose(found, [[np.sqrt(max(size**2 - 0.01, 0.0))]])
