"""Splits: exact where the papers say how many, uniform where they say at random, and errors that tell the fix."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions import (
    IID,
    Dirichlet,
    DirichletLabels,
    LabelsPerClient,
    LogNormalSizes,
    PowerLawSizes,
    PrimaryLabel,
    hold_out,
    partition,
    share_out,
)
from fedpick.errors import ContractError, SettingError, UnknownNameError


def rng(seed=0):
    return np.random.default_rng(seed)


def labelled(*counts, name="toy"):
    """A data set with this many examples of each label, in no order."""
    y = rng(99).permutation(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    return Dataset(name, np.zeros((len(y), 1), np.float32), y, classes=len(counts))


REGRESSION = Dataset("line", np.zeros((50, 1), np.float32), np.zeros(50, np.float32))
EVEN = labelled(*[60] * 10)
UNEVEN = labelled(400, 10, 90, 0, 250, name="uneven")

DISJOINT = [
    "iid",
    "iid(size=7)",
    "iid(size=power-law(at_least=2))",
    "iid(size=log-normal(sigma=1, at_least=1, mean=9))",
    "primary-label(0.8, size=5, overlap=False)",
    "dirichlet-labels(100, size=10, overlap=False)",
    "dirichlet(1, at_least=2)",
    "dirichlet(50)",
    "labels-per-client(1)",
    "labels-per-client(2)",
    "labels-per-client(3, size=6)",
    "labels-per-client(2, size=log-normal(sigma=1, at_least=4))",
]
SHARED = [
    "iid(size=100, overlap=True)",
    "primary-label(0.5, size=20)",
    "primary-label(0.7, size=power-law(mean=20))",
    "dirichlet-labels(1, size=10)",
    "dirichlet-labels(0.1, size=log-normal(sigma=0.5, mean=12, at_least=3))",
]


def sets(split):
    return [set(split.examples_of(k).tolist()) for k in range(len(split))]


@pytest.mark.parametrize("text", DISJOINT + SHARED)
@given(clients=st.integers(1, 12), seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_every_split_is_whole(text, clients, seed):
    for data in (EVEN, UNEVEN):
        try:
            split = partition(text, data, clients, rng(seed))
        except SettingError:  # too much wanted of a label of the uneven data: said, never dealt
            assert data is UNEVEN
            continue
        held = sets(split)
        assert len(split) == clients
        assert min(split.sizes) >= 1
        assert [len(one) for one in held] == split.sizes.tolist()  # a client has nothing twice
        if text in DISJOINT:
            assert len(set().union(*held)) == split.sizes.sum()
        again = partition(text, data, clients, rng(seed))
        np.testing.assert_array_equal(split.examples, again.examples)
        np.testing.assert_array_equal(split.starts, again.starts)


@pytest.mark.parametrize(
    "text", ["iid", "dirichlet", "primary-label(size=20)", "labels-per-client", "dirichlet-labels(size=20)"]
)
def test_another_seed_is_another_split(text):
    one, other = (partition(text, EVEN, 5, rng(seed)) for seed in (1, 2))
    assert not np.array_equal(one.examples, other.examples)


# Sizes


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 1000))
def test_shares_sum_to_the_total_and_are_off_by_less_than_one(weights, total):
    exact = np.array(weights) / sum(weights) * total
    shares = share_out(np.array([total]), np.array([weights]))[0]
    assert shares.sum() == total
    assert np.abs(shares - exact).max() < 1 + 1e-9


@pytest.mark.parametrize("law", [PowerLawSizes(at_least=3), LogNormalSizes(at_least=3), LogNormalSizes(0.0)])
@given(clients=st.integers(1, 40), total=st.integers(400, 5000))
def test_laws_give_everything_and_their_least_to_everyone(law, clients, total):
    sizes = law(clients, rng(clients), total)
    assert sizes.sum() == total
    assert sizes.min() >= law.at_least


def test_the_power_law_is_the_papers():
    """P(x) = 3x^2 has P(x <= t) = t^3 and mean 3/4."""
    K = 40_000
    sizes = PowerLawSizes(at_least=1)(K, rng(), total=1000 * K) / 1000 * 0.75
    for t in (0.3, 0.5, 0.9):
        assert abs((sizes <= t).mean() - t**3) < 4.5 * np.sqrt(t**3 * (1 - t**3) / K) + 0.005


def test_the_log_normal_law_has_its_sigma():
    K = 40_000
    logs = np.log(LogNormalSizes(1.5, at_least=1)(K, rng(), total=10_000 * K) - 1.0)
    assert abs(logs.std() - 1.5) < 4.5 * 1.5 / np.sqrt(2 * K) + 0.005


# IID


def test_iid_gives_equal_parts_of_a_regression_too():
    split = IID()(REGRESSION, 3, rng())
    assert split.sizes.tolist() == [16, 16, 16]
    assert split.labels is None


@pytest.mark.parametrize("overlap", [False, True])
def test_iid_examples_are_equally_likely(overlap):
    draws, data = 4_000, labelled(6, 4)
    first = np.zeros(len(data))
    for seed in range(draws):
        first[IID(size=3, overlap=overlap)(data, 2, rng(seed)).examples_of(1)] += 1
    assert np.abs(first / draws - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / draws)


def test_clients_that_draw_independently_share_as_many_as_chance_has_it():
    data, K, n = EVEN, 200, 60
    split = IID(size=n, overlap=True)(data, K, rng())
    drawn = np.bincount(split.examples, minlength=len(data))  # binomial(K, n / N)
    p = n / len(data)
    assert abs(drawn.var() - K * p * (1 - p)) < 0.25 * K * p  # 4 sd of a variance of 600: sqrt(2 / 600) = 6%


def test_more_clients_than_examples_must_share():
    assert (IID(size=2, overlap=True)(labelled(3, 2), 50, rng()).sizes == 2).all()


# PrimaryLabel


def primary_label_twin(data, clients, share, size, rng):
    """The paper's words, one client after the other; counts of labels only."""
    table = []
    for _ in range(clients):
        primary = rng.choice([label for label in range(data.classes) if (data.y == label).any()])
        own = rng.choice(np.flatnonzero(data.y == primary), round(share * size), replace=False)
        rest = rng.choice(np.flatnonzero(data.y != primary), size - len(own), replace=False)
        table.append(np.bincount(data.y[np.concatenate([own, rest])], minlength=data.classes))
    return np.array(table)


@pytest.mark.parametrize("data", [labelled(100, 100, 100), labelled(200, 0, 100, 30)])
def test_primary_labels_are_drawn_as_the_paper_says(data):
    K, size, share = 3_000, 20, 0.8
    fast = PrimaryLabel(share, size)(data, K, rng(1)).labels
    slow = primary_label_twin(data, K, share, size, rng(2))
    assert (fast.max(axis=1) >= 16).all()
    for own in np.flatnonzero(np.bincount(data.y)):  # the same mix given the primary label, and as many of each
        mine, its = (table[table[:, own] >= 16] for table in (fast, slow))
        assert abs(len(mine) - len(its)) < 4.5 * np.sqrt(2 * K / 3)
        error = np.sqrt(mine.var(axis=0) / len(mine) + its.var(axis=0) / len(its))
        assert (np.abs(mine.mean(axis=0) - its.mean(axis=0)) <= 4.5 * error).all()
        assert np.abs(mine.var(axis=0) - its.var(axis=0)).max() < 0.3  # of at most 1.2


def test_primary_label_has_its_share_exactly():
    split = PrimaryLabel(share=0.5, size=30)(EVEN, 40, rng())
    assert (np.sort(split.labels, axis=1)[:, -1] == 15).all()
    everything = PrimaryLabel(share=1.0, size=30)(EVEN, 40, rng())
    assert (np.count_nonzero(everything.labels, axis=1) == 1).all()


def test_a_label_that_has_too_few_examples_is_nobodys_primary_label():
    split = PrimaryLabel(share=0.8, size=50)(labelled(39, 40, 200), 300, rng())
    assert set(split.labels.argmax(axis=1)) == {1, 2}
    mostly = PrimaryLabel(share=0.2, size=100)(labelled(960, 60), 100, rng())  # label 0 leaves only 60 others
    assert (mostly.labels == [80, 20]).all()


# DirichletLabels


def test_dirichlet_labels_have_the_moments_of_their_dirichlet():
    alpha, K, n, L = 0.4, 4_000, 300, 4
    data = labelled(*[400] * L)
    mixes = DirichletLabels(alpha, size=n)(data, K, rng()).labels / n
    variance = (1 / L) * (1 - 1 / L) / (L * alpha + 1)
    assert np.abs(mixes.mean(axis=0) - 1 / L).max() < 4.5 * np.sqrt(variance / K)
    assert np.abs(mixes.var(axis=0) - variance).max() < 0.08 * variance  # bounded kurtosis: 4.5 sd is below 7%


def test_a_large_alpha_is_the_same_mix_for_all_and_a_small_one_label():
    alike = DirichletLabels(1e6, size=50)(EVEN, 20, rng())
    assert np.abs(alike.labels - 5).max() <= 1
    apart = DirichletLabels(0.001, size=50)(EVEN, 20, rng())
    assert (apart.labels.max(axis=1) >= 49).mean() >= 0.8


# Dirichlet


def dirichlet_twin(data, clients, alpha, at_least, rng):
    """The rule in plain words: shares for everyone, those who are full set to 0, drawn again until all have enough."""
    N = len(data)
    while True:
        table = [[0] * data.classes for _ in range(clients)]
        for label in range(data.classes):
            there = int((data.y == label).sum())
            if there == 0:
                continue
            shares = rng.dirichlet([alpha] * clients)
            shares = [share if sum(row) < N / clients else 0.0 for share, row in zip(shares, table, strict=True)]
            total, given, upto = sum(shares), 0, 0.0
            for k, share in enumerate(shares):
                upto += share / total
                cut = int(upto * there + 1e-9)
                table[k][label] = cut - given
                given = cut
        if min(sum(row) for row in table) >= at_least:
            return np.array(table)


@pytest.mark.parametrize("data", [labelled(40, 40, 40), labelled(100, 0, 30, 60, 7)])
@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_the_dirichlet_rule_is_the_papers(data, alpha):
    draws, K = 1_500, 4
    fast = np.array([Dirichlet(alpha, at_least=3)(data, K, rng(seed)).labels for seed in range(draws)])
    slow = np.array([dirichlet_twin(data, K, alpha, 3, rng(10_000 + seed)) for seed in range(draws)])
    for what in (lambda t: t, lambda t: t**2, lambda t: t.sum(axis=2) ** 2, lambda t: t.sum(axis=2).min(axis=1)):
        mine, its = what(fast), what(slow)
        error = np.sqrt((mine.var(axis=0) + its.var(axis=0)) / draws)
        assert (np.abs(mine.mean(axis=0) - its.mean(axis=0)) <= 4.5 * error + 1e-9).all()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 8), st.floats(0.1, 10), st.integers(0, 999))
def test_dirichlet_gives_all_the_data_once(counts, clients, alpha, seed):
    assume(sum(counts) >= 20 * clients)
    split = Dirichlet(alpha, at_least=1)(labelled(*counts), clients, rng(seed))
    assert sorted(split.examples.tolist()) == list(range(sum(counts)))
    # Full clients take no more: whoever exceeds N/K did so with its last label alone.
    last = np.array([row[np.flatnonzero(row)[-1]] for row in split.labels])
    assert ((split.sizes - last) * clients < sum(counts)).all()


# LabelsPerClient


def test_fedgs_has_two_labels_and_equal_sizes():
    split = LabelsPerClient(2)(EVEN, 100, rng())
    assert (np.count_nonzero(split.labels, axis=1) == 2).all()
    assert (split.sizes == 6).all()
    pairs = {tuple(np.flatnonzero(row)) for row in split.labels}
    assert len(pairs) > 25  # of 45: not the same few again and again


@given(st.lists(st.integers(0, 80), min_size=1, max_size=7), st.integers(1, 4), st.integers(1, 15), st.integers(0, 999))
def test_labels_per_client_are_exact_and_evenly_in_demand(counts, labels, clients, seed):
    assume(labels <= np.count_nonzero(counts))
    assume(min(count for count in counts if count) >= clients)  # else a label may have fewer examples than holders
    split = LabelsPerClient(labels)(labelled(*counts), clients, rng(seed))
    assert (np.count_nonzero(split.labels, axis=1) == labels).all()
    holders = np.count_nonzero(split.labels, axis=0)
    given_away = split.labels.sum(axis=0)
    np.testing.assert_array_equal(given_away, np.where(holders > 0, counts, 0))
    for label in np.flatnonzero(holders):
        parts = split.labels[:, label][split.labels[:, label] > 0]
        assert parts.max() - parts.min() <= 1
    if len(set(counts)) == 1:
        assert holders.max() - holders.min() <= 1


def test_sizes_of_few_labels_can_be_given_or_skewed():
    given_size = LabelsPerClient(3, size=10)(EVEN, 20, rng())
    assert (given_size.sizes == 10).all()
    assert sorted(given_size.labels[0][given_size.labels[0] > 0]) == [3, 3, 4]
    skewed = LabelsPerClient(2, size=LogNormalSizes(1.0, at_least=4))(EVEN, 20, rng())
    assert skewed.sizes.sum() == 600
    assert skewed.sizes.max() > 4 * skewed.sizes.min()
    assert (np.count_nonzero(skewed.labels, axis=1) == 2).all()


# hold_out


def hold_out_is_right(split, share, after):
    tested = set(after.held.tolist())
    assert len(after) == len(split)
    for k in range(len(split)):
        before, mine, stays = split.examples_of(k), after.held_of(k).tolist(), after.examples_of(k).tolist()
        assert len(mine) == min(round(share * len(before)), len(before) - 1)
        assert set(mine) <= set(before.tolist())
        assert stays == [example for example in before.tolist() if example not in tested]
        assert stays


@pytest.mark.parametrize("text", DISJOINT + SHARED)
@given(share=st.floats(0, 0.3), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_what_anyone_holds_out_nobody_trains_on(text, share, seed):
    split = partition(text, EVEN, 8, rng(seed))
    try:
        after = hold_out(split, share, rng(seed + 1))
    except SettingError:  # the others hold out all that a client has
        assert text in SHARED
        return
    hold_out_is_right(split, share, after)
    if text in DISJOINT:
        assert len(after.examples) + len(after.held) == len(split.examples)
    np.testing.assert_array_equal(after.held, hold_out(split, share, rng(seed + 1)).held)


def test_held_out_examples_are_equally_likely():
    split, draws = IID()(labelled(10, 10), 2, rng()), 4_000
    count = np.zeros(20)
    for seed in range(draws):
        count[hold_out(split, 0.3, rng(seed)).held] += 1
    assert np.abs(count / draws - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / draws)


def test_one_example_always_stays():
    split = Federated(EVEN, np.array([0, 1, 2]), np.array([0, 1, 3]))
    after = hold_out(split, 0.99, rng())
    assert after.sizes.tolist() == [1, 1]


# Errors

ERRORS = [
    ("iid", EVEN, 0, "IID: num_clients = 0, but must be an integer >= 1"),
    ("iid", EVEN, 601, "IID: num_clients = 601, but must be <= 600, the number of examples of toy; every client needs"),
    ("iid(overlap=True)", EVEN, 601, "IID: num_clients = 601, but must be <= 600"),
    ("iid(size=0)", EVEN, 2, "IID: size = 0, but must be an integer >= 1, a law of sizes, or None for all the data"),
    ("iid(size=True)", EVEN, 2, "IID: size = True, but must be an integer >= 1"),
    ("iid(size='big')", EVEN, 2, "IID: size = 'big', but must be an integer >= 1"),
    (
        "iid(size=500)",
        EVEN,
        2,
        "IID: examples for 2 clients = 1000, but must be <= 600, for toy has no more and nothing is "
        "given twice; take at most 1 clients, or a size of at most 300, or overlap=True",
    ),
    (
        "iid(size=601, overlap=True)",
        EVEN,
        1,
        "IID: largest client = 601, but must be <= 600, the examples of toy; take a smaller size",
    ),
    ("iid(size=log-normal(mean=100))", EVEN, 7, "IID: examples for 7 clients = 700, but must be <= 600"),
    (
        "iid(size=log-normal(at_least=100))",
        EVEN,
        7,
        "LogNormalSizes: at_least * num_clients = 700, but must be <= 600, the "
        "examples to give; take fewer clients or a lower at_least",
    ),
    ("iid(size=log-normal(sigma=-1))", EVEN, 7, "LogNormalSizes: sigma = -1, but must be in [0, 10]"),
    ("iid(size=log-normal(mean=2))", EVEN, 7, "LogNormalSizes: mean = 2, but must be finite and >= at_least = 10"),
    ("iid(size=power-law(a=0))", EVEN, 7, "PowerLawSizes: a = 0, but must be in [0.01, 1e6]; the paper has 3"),
    ("iid(size=power-law(at_least=0))", EVEN, 7, "PowerLawSizes: at_least = 0, but must be an integer >= 1"),
    ("primary-label(1.2)", EVEN, 2, "PrimaryLabel: share = 1.2, but must be in [0, 1]; the paper has 0.8"),
    ("primary-label", REGRESSION, 2, "PrimaryLabel goes by label, but line is a regression (classes = 0); use iid"),
    (
        "primary-label(size=100)",
        EVEN,
        2,
        "PrimaryLabel: client 0 wants 80 examples of one label and 20 of the others, but no label of toy has so many "
        "(60 of 600 at most); take a smaller size",
    ),
    ("primary-label(0.1, size=100)", labelled(120), 20, "wants 10 examples of one label and 90 of the others, but no"),
    (
        "dirichlet-labels(1e6, size=100)",
        labelled(10, 590),
        2,
        "label 0 wanted by one client = 50, but must be <= 10, for toy has no more; take a size smaller by 80%",
    ),
    ("primary-label(1.0, size=50, overlap=False)", EVEN, 12, "wanted by all clients ="),
    ("primary-label(1.0, size=50, overlap=False)", EVEN, 12, "%, or fewer clients, or overlap=True"),
    (
        "dirichlet-labels(0)",
        EVEN,
        2,
        "DirichletLabels: alpha = 0, but must be in [0.001, 1e6]; the larger, the more alike",
    ),
    (
        "dirichlet-labels(0.01, size=60, overlap=False)",
        EVEN,
        10,
        "but must be <= 60, for toy has no more and nothing is",
    ),
    ("dirichlet(1e9)", EVEN, 2, "Dirichlet: alpha = 1000000000.0, but must be in [0.001, 1e6]"),
    ("dirichlet(at_least=0)", EVEN, 2, "Dirichlet: at_least = 0, but must be an integer >= 1"),
    ("dirichlet(tries=0)", EVEN, 2, "Dirichlet: tries = 0, but must be an integer >= 1"),
    (
        "dirichlet(at_least=301)",
        EVEN,
        2,
        "Dirichlet: at_least * num_clients = 602, but must be <= 600, the examples of toy; "
        "take fewer clients or a lower at_least",
    ),
    (
        "dirichlet(0.01, at_least=30, tries=5)",
        EVEN,
        19,
        "Dirichlet: in 5 tries the poorest of 19 clients held at most 0 "
        "examples, but at_least = 30; raise alpha = 0.01, lower at_least or take fewer clients",
    ),
    (
        "labels-per-client(11)",
        EVEN,
        2,
        "LabelsPerClient: labels = 11, but must be <= 10, the labels that toy has examples",
    ),
    ("labels-per-client(5)", UNEVEN, 2, "LabelsPerClient: labels = 5, but must be <= 4, the labels that uneven has"),
    ("labels-per-client(0)", EVEN, 2, "LabelsPerClient: labels = 0, but must be an integer >= 1"),
    (
        "labels-per-client(3, size=2)",
        EVEN,
        2,
        "LabelsPerClient: size = 2, but must be >= labels = 3; every label needs",
    ),
    (
        "labels-per-client(2, size=40)",
        EVEN,
        20,
        "LabelsPerClient: examples for 20 clients = 800, but must be <= 600, for toy "
        "has no more and nothing is given twice; take at most 15 clients, or a size of at most 30",
    ),
    (
        "labels-per-client(10)",
        EVEN,
        61,
        "LabelsPerClient: clients that hold label 0 = 61, but must be <= 60, its examples; "
        "take fewer clients or labels per client, or a larger mean",
    ),
]


@pytest.mark.parametrize(("text", "data", "clients", "message"), ERRORS)
def test_what_cannot_be_made_is_an_error_with_the_fix(text, data, clients, message):
    with pytest.raises(SettingError) as error:
        partition(text, data, clients, rng())
    assert message in str(error.value)


def test_the_fix_of_too_many_examples_works():
    data = labelled(*[6000] * 10)
    with pytest.raises(SettingError, match="at most 120 clients, or a size of at most 300, or overlap=True"):
        IID(size=500)(data, 200, rng())
    assert len(IID(size=500)(data, 120, rng())) == 120
    assert len(IID(size=300)(data, 200, rng())) == 200
    assert len(IID(size=500, overlap=True)(data, 200, rng())) == 200


def test_an_unknown_partition_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown partition 'dirichlt'; did you mean 'dirichlet'"):
        partition("dirichlt(0.3)", EVEN, 2, rng())
    with pytest.raises(UnknownNameError, match="did you mean 'log-normal'"):
        partition("iid(size=lognorml())", EVEN, 2, rng())


def test_errors_of_holding_out():
    split = IID()(EVEN, 3, rng())
    with pytest.raises(SettingError, match=r"hold_out: share = 1, but must be in \[0, 1\); something must stay"):
        hold_out(split, 1, rng())
    with pytest.raises(ContractError, match="hold_out: 60 examples are held out already; give the split before that"):
        hold_out(hold_out(split, 0.1, rng()), 0.1, rng())
    same = Federated(EVEN, np.arange(40) % 2, np.arange(0, 41, 2))  # twenty clients with the same two examples
    with pytest.raises(SettingError, match="left for training of client 0 = 0, but must be >= 1; the others hold its"):
        hold_out(same, 0.5, rng())
