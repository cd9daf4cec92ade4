"""Asynchronous runs: every policy plays or is refused, checkpoints, training of what is in flight, and mistakes."""

from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import numpy as np
import pytest

import fedpick as fp
from fedpick import worlds
from fedpick.engine.stream import Job
from fedpick.experiment.executors import execute
from fedpick.learn.reports import gives
from fedpick.policies import TABLE
from fedpick.policies.e3cs import allocate
from fedpick.policies.text import example
from fedpick.simulate import stream
from fedpick.simulate.run import Run
from fedpick.store import read_rounds, read_selections
from fedpick.store.checkpoint import pack_run, unpack_run
from zoo import sizes, some_slow

PACE = fp.Buffered(concurrency=8, size=4, timeout=20.0)
CLIENTS = 30
POLICIES = {
    f"{name}{'-' + '-'.join(map(str, form.values())) if form else ''}": (listed, form)
    for name, listed in TABLE.items()
    if listed.about.kind != "wrapper"
    for form in ({}, *listed.about.forms)
}
REFUSED = {
    *("SizeWeighted", "Clustered", "Clustered-updates", "DELTA"),  # draw with replacement
    *("PowerOfChoice", "FedCor", "OptimalSampling"),  # ask clients first
    *("GreedyFed", "SFedAvg"),  # the server values updates of one version
    *("BSFL", "Genie", "CSUCB", "RBCSF", "TiFL"),  # of a round's length
    *("Balanced", "Balanced-labels", "Balanced-none"),
    *("DivFL", "FLIPS", "FedCBS", "FedLECC", "FedLECC-True", "FLDP3S"),  # of a cohort
}


def fleet(**changes):
    clients = fp.Clients(np.arange(1.0, CLIENTS + 1.0), np.eye(10)[np.arange(CLIENTS) % 10] + 1.0, np.eye(CLIENTS))
    parts = {
        "availability": worlds.MarkovOnOff(20, 5),
        "volatility": worlds.SuccessRates((0.9,)),
        "latency": worlds.LogNormalTime(),
    }
    return fp.World(clients, deadline=20.0, **{**parts, **changes})


def digits(num_clients=CLIENTS, **settings):
    data = fp.data.Synthetic(1.0, 1.0)(num_clients=num_clients, rng=fp.rng.stream(0, 0, "data"))
    trainer = fp.learn.Trainer(data, fp.learn.logistic((60,), 10), lr=0.05, batch=20, steps=3, **settings)
    return fp.World(data.clients, deadline=20.0, latency=worlds.LogNormalTime(), epochs=(1, 2)), trainer


WRAPPERS = {
    "guard": fp.Guard,
    "apart": lambda policy: fp.MinSeparation(policy, 3),
    "guard-apart": lambda policy: fp.Guard(fp.MinSeparation(policy, 3)),
    "apart-guard": lambda policy: fp.MinSeparation(fp.Guard(policy), 3),
}
REASONS = "needs rounds: .*Use fp.Rounds, or another policy under fp.Buffered"


def trained_run(policy, pace=PACE):
    """With a trainer that gives the reports which the policy needs or wants; it has no `loss_std`."""
    world, trainer = digits(reports=tuple(filter(gives, fp.traits(policy).collect(fleet().clients))))
    return Run(policy, world, 1, trainer, pace=pace)


def plays(run, commits=300):
    """Play, and check what holds for each policy; returns the records."""
    records = list(run.rounds(until=commits))
    ended = [each for record in records for each in record.tasks]
    assert [record.round for record in records] == list(range(1, commits + 1))
    assert all(sum(each.status == fp.Status.DONE for each in record.tasks) == 4 for record in records)
    assert len({each.task.id for each in ended}) == len(ended)
    working = [(each.task.client, each.task.sent_at, each.at) for each in ended]
    for client in {client for client, _, _ in working}:
        spells = sorted((sent, at) for other, sent, at in working if other == client)
        assert all(sent >= at for (_, at), (sent, _) in pairwise(spells))  # one task at a time
    return records


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_plays_300_commits_or_says_why_not(name):
    listed, form = POLICIES[name]
    policy = example(listed, 8, sizes, **form)
    if name in REFUSED:
        with pytest.raises(fp.SettingError, match=f"{type(policy).__name__} {REASONS}"):
            Run(policy, fleet(), 1, pace=PACE)
        return
    needs = any(report.name in fp.traits(policy).needs for report in fp.traits(policy).reports)
    run = trained_run(policy) if needs else Run(policy, fleet(), 1, pace=PACE)
    records = plays(run)
    counts = getattr(run.state.policy, "counts", None)
    if counts is not None and "FedGS" not in name:
        chosen = np.concatenate([record.ids for record in records])
        np.testing.assert_array_equal(counts, np.bincount(chosen, minlength=len(counts)))


WRAPPED = [(name, wrapper) for name in POLICIES if name not in REFUSED for wrapper in ("guard", "apart")]


@pytest.mark.parametrize(
    ("name", "wrapper"), some_slow([*WRAPPED, ("Oort", "guard-apart"), ("Oort", "apart-guard")], 9)
)
def test_every_policy_plays_300_commits_with_a_trainer_inside_each_wrapper(name, wrapper):
    listed, form = POLICIES[name]
    policy = WRAPPERS[wrapper](example(listed, 8, sizes, **form))
    records = plays(trained_run(policy))
    assert np.isfinite(np.concatenate([record.loss[record.status == fp.Status.DONE] for record in records])).all()
    if "apart" in wrapper:
        last = {}
        for record in records:
            for client in record.ids.tolist():
                assert record.round - last.get(client, -9) >= 3
                last[client] = record.round


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_refuses_what_is_refused_without(wrapper):
    for name in sorted(REFUSED):
        listed, form = POLICIES[name]
        policy = example(listed, 8, sizes, **form)
        if fp.traits(policy).replace and "apart" in wrapper:
            continue  # MinSeparation itself refuses it
        with pytest.raises(fp.SettingError, match=f"{type(WRAPPERS[wrapper](policy)).__name__} {REASONS}"):
            Run(WRAPPERS[wrapper](policy), fleet(), 1, pace=PACE)


class TwinOfE3CS:
    """Exp3 with several plays, an ask at a time, in plain Python: what the run's weights must be."""

    def __init__(self, policy):
        self.policy, self.logs, self.open = policy, np.zeros(CLIENTS), {}

    def ask(self, task, available, wanted, version):
        """(16) and (17) need p, k and sigma of the ask, by the weights that the policy then had."""
        n = int(available.sum())
        k = min(wanted, n)
        sigma = self.policy.share(version + 1) * k / n
        p, capped = allocate(self.logs[available], k, sigma)
        at = np.flatnonzero(np.flatnonzero(available) == task.client)[0]
        self.open[task.id] = p[at], capped[at], k, n, sigma

    def end(self, ended):
        p, capped, k, n, sigma = self.open.pop(ended.task.id)
        if ended.status == fp.Status.DONE and not capped:
            self.logs[ended.task.client] += (k - n * sigma) * 0.5 * 1.0 / (p * n)


@pytest.mark.parametrize("quota", [0.0, 0.5])
def test_e3cs_learns_with_the_odds_of_each_ask(quota, monkeypatch):
    policy = fp.E3CS(8, quota=quota)
    run = Run(policy, fleet(), 1, pace=PACE)
    twin = TwinOfE3CS(policy)
    give = stream._Play.give

    def noted(self, tasks, choice):
        view = self.view()  # after the asking: who was asked is busy now
        for task in tasks:
            available = view.available.copy()
            available[[each.client for each in tasks]] = True
            twin.ask(task, available, self.pace.concurrency - len(self.stream.flying) + len(tasks), task.version)
        give(self, tasks, choice)

    monkeypatch.setattr(stream._Play, "give", noted)
    for record in run.rounds(until=120):
        for each in record.tasks:
            twin.end(each)
        np.testing.assert_allclose(run.state.policy.log_weights, twin.logs, rtol=1e-9, atol=1e-12)
    assert np.ptp(twin.logs) > 0


def test_the_refused_are_those_that_are_listed():
    assert set(POLICIES) >= REFUSED
    with pytest.raises(fp.SettingError, match="OverSelect needs rounds: without rounds no answer is surplus"):
        Run(fp.OverSelect(fp.Uniform(5)), fleet(), 1, pace=PACE)
    with pytest.raises(fp.SettingError, match="MinSeparation needs rounds: it makes rounds short"):
        Run(fp.MinSeparation(fp.BSFL(5), 2), fleet(), 1, pace=PACE)


def test_only_policies_that_have_the_setting_are_told_to_draw_without_replacement():
    with pytest.raises(fp.SettingError, match="at once; use replace=False"):
        Run(fp.SizeWeighted(5), fleet(), 1, pace=PACE)
    for policy in (fp.DELTA(5), fp.Clustered(5)):
        with pytest.raises(fp.SettingError) as error:
            Run(policy, fleet(), 1, pace=PACE)
        assert "replace=False" not in str(error.value)


def test_in_one_commit_a_client_may_be_twice_and_is_counted_twice():
    world = fp.World(
        fp.Clients([1.0, 1.0]),
        availability=worlds.Always(),
        volatility=worlds.Reliable(),
        latency=worlds.PerClient((1.0, 10.0)),
        deadline=None,
    )
    run = Run(fp.Uniform(2), world, 0, pace=fp.Buffered(2, size=4))
    record = next(run.rounds(until=1))
    assert record.ids.tolist() == [0, 0, 0, 0]
    assert run.state.policy.counts.tolist() == [4, 0]
    assert record.clock == 4.0


def goes_on(commits, where, policy, **settings):
    """Compare what follows a checkpoint with the run that was not interrupted."""

    def fresh():
        world, trainer = digits(12)
        return Run(policy, world, 3, trainer, pace=fp.Buffered(6, size=3, timeout=9.0, **settings))

    whole, kept = fresh(), {}
    records = []
    for record in whole.rounds(until=commits):
        records.append(record)
        if record.round in where:
            kept[record.round] = {name: np.array(value) for name, value in pack_run(whole.state).items()}
    trained = [any(name.startswith("stream/trained/rows") for name in arrays) for arrays in kept.values()]
    assert any(trained)  # but not used yet
    for round, arrays in kept.items():
        again = fresh()
        again.state = unpack_run(again.state, arrays, 12, "here")
        for mine, theirs in zip(again.rounds(until=commits), records[round:], strict=True):
            assert (mine.clock, mine.messages, mine.metrics) == (theirs.clock, theirs.messages, theirs.metrics)
            np.testing.assert_equal([vars_of(each) for each in mine.tasks], [vars_of(each) for each in theirs.tasks])
        for one, other in zip(leaves(again), leaves(whole), strict=True):
            np.testing.assert_array_equal(one, other)


def vars_of(ended):
    return [
        *(getattr(ended.task, name) for name in ended.task.__slots__),
        *(getattr(ended, n) for n in ("at", "weight")),
    ]


def leaves(run):
    return jax.tree.leaves(run.state.model)


@pytest.mark.parametrize("policy", [fp.Oort(6), fp.E3CS(6, quota=0.3)], ids=str)
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(policy):
    goes_on(20, [1, 7, 12, 19], policy)


def test_a_corrected_run_goes_on_from_a_checkpoint_bit_for_bit():
    goes_on(16, [1, 9], fp.Uniform(6), correct=True)


def test_a_run_with_a_bound_goes_on_from_a_checkpoint_bit_for_bit():
    goes_on(16, [1, 9], fp.Uniform(6), bound=2)


@pytest.mark.slow
def test_a_run_goes_on_from_each_of_50_checkpoints_bit_for_bit():
    goes_on(51, list(range(1, 51)), fp.Oort(6))


def test_a_folder_continues(tmp_path):
    config = fp.experiment.Config(
        "uniform", 6, 12, 0, {"name": "volatile", "num_clients": 20}, 5, pace="buffered(concurrency=6, size=3)"
    )
    execute(config, tmp_path / "whole")
    execute(replace(config, rounds=7), tmp_path / "cut")
    execute(config, tmp_path / "cut")
    for read in (read_rounds, read_selections):
        np.testing.assert_equal(read(tmp_path / "cut").to_pydict(), read(tmp_path / "whole").to_pydict())
    columns = read_selections(tmp_path / "whole").column_names
    assert {"task", "sent", "staleness", "weight"} <= set(columns)


def test_what_is_in_flight_is_trained_in_one_call_and_as_one_by_one():
    data = fp.data.Synthetic(1.0, 1.0)(num_clients=12, rng=fp.rng.stream(0, 0, "data"))
    trainer = fp.learn.Trainer(data, fp.learn.logistic((60,), 10), lr=0.05, batch=20, steps=3)
    model = trainer.init(1)
    other = {**model, "params": jax.tree.map(lambda leaf: leaf + 0.5, model["params"])}
    tasks = [
        Job(id, client, version, 0.0) for id, (client, version) in enumerate([(3, 1), (7, 0), (3, 0), (5, 1), (0, 0)])
    ]
    epochs = np.array([1.0, 2.0, 1.0, 2.0, 1.0])

    def train(some):
        rngs = [fp.rng.stream(9, task.id, "train task") for task in some]
        return trainer.train_tasks({0: model, 1: other}, some, epochs[[task.id for task in some]], rngs, 8)

    together, rows = train(tasks)
    for at, task in enumerate(tasks):
        alone, row = train([task])
        # Both are sums of at most 6 float32 steps over at most 20 examples, in another order at most.
        np.testing.assert_allclose(together.loss[at], alone.loss[0], rtol=1e-5)
        for name in rows:
            np.testing.assert_allclose(rows[name][at], row[name][0], rtol=1e-4, atol=1e-6)


def test_fedasync_mixes_models():
    data = fp.data.Synthetic(1.0, 1.0)(num_clients=4, rng=fp.rng.stream(0, 0, "data"))
    trainer = fp.learn.Trainer(data, fp.learn.logistic((60,), 10), lr=0.05, batch=20, steps=3)
    model, sent = trainer.init(1), trainer.init(2)
    rows = {f"delta/{i}": np.full((1, *leaf.shape), 0.25, np.float32) for i, leaf in enumerate(leaves_of(model))}
    moved = trainer.move(model, rows, np.array([0.6]), sent=sent)
    for new, x, x_sent in zip(leaves_of(moved), leaves_of(model), leaves_of(sent), strict=True):
        np.testing.assert_allclose(new, 0.4 * x + 0.6 * (x_sent + 0.25), atol=1e-6)


def leaves_of(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model["params"])]


def test_a_fleet_that_never_answers_in_time_is_an_error_and_no_endless_loop():
    world = fleet(latency=worlds.PerClient(50.0), availability=worlds.Always())
    with pytest.raises(
        fp.FedpickError, match=r"none of the last [\d,]+ tasks can be used: .* LATE; a longer timeout than 20 s"
    ):
        next(Run(fp.Uniform(8), world, 0, pace=PACE).rounds(until=1))


def test_a_fleet_that_is_never_there_is_an_error_and_no_endless_loop():
    world = fleet(availability=worlds.Bernoulli(0.0))
    with pytest.raises(fp.FedpickError, match="Uniform: nobody could be asked for 600,060 simulated seconds"):
        next(Run(fp.Uniform(8), world, 0, pace=PACE).rounds(until=1))


@dataclass(frozen=True, eq=False)
class Greedy:
    """A policy that ignores how many are wanted."""

    cohort_size: int

    def init(self, clients):
        return fp.Uniform(1).init(clients)

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available))

    def observe(self, state, view, choice, outcome):
        return state


def test_a_policy_that_chooses_more_than_are_wanted_is_refused():
    with pytest.raises(fp.ContractError, match=r"Greedy, version 0: chose \d+ clients, but only 8 are wanted"):
        next(Run(Greedy(8), fleet(), 0, pace=PACE).rounds(until=1))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"concurrency": 0}, "concurrency = 0, but must be a whole number >= 1"),
        ({"concurrency": 2, "refill": 3}, "refill = 3, but must be at most concurrency = 2"),
        ({"concurrency": 2, "size": None}, "size, every and bound are all None"),
        ({"concurrency": 2, "timeout": np.inf}, "timeout = inf, but must be > 0 and finite"),
        (
            {"concurrency": 2, "mixing": "polynomial"},
            "size = 10, but must be 1, without every and bound, with a mixing",
        ),
        ({"concurrency": 2, "size": 1, "mixing": "linear"}, "mixing = 'linear', but must be None"),
        ({"concurrency": 2, "size": 1, "mixing": "hinge", "alpha": 1.5}, r"alpha = 1\.5, but must be in \(0, 1\]"),
        ({"concurrency": 2.5}, r"concurrency = 2\.5, but must be a whole number"),
        ({"concurrency": 2, "bound": -1}, "bound = -1, but must be a whole number >= 0"),
        (
            {"concurrency": 2, "size": 1, "mixing": "constant", "bound": 2},
            "size = 1, but must be 1, without every and bound",
        ),
        ({"concurrency": 2, "oldest": -1}, "oldest = -1, but must be a whole number >= 0"),
    ],
)
def test_impossible_settings_are_errors(settings, says):
    with pytest.raises(fp.FedpickError, match=f"Buffered: {says}"):
        fp.Buffered(**settings)


def test_shares_of_answers_follow_the_rates():
    """Uniform choice among the idle: with times (1, 1, 4) and two at work, shares are 5/12, 5/12 and 1/6."""
    world = fp.World(
        fp.Clients([1.0, 1.0, 1.0]),
        availability=worlds.Always(),
        volatility=worlds.Reliable(),
        latency=worlds.PerClient((1.0, 1.0, 4.0)),
        deadline=None,
    )
    count = 4000
    ids = [record.ids[0] for record in Run(fp.Uniform(2), world, 0, pace=fp.Buffered(2, size=1)).rounds(until=count)]
    shares = np.array([5 / 12, 5 / 12, 1 / 6])
    # Answers of one client are further apart than independent draws would be: the binomial error bounds theirs.
    assert (np.abs(np.bincount(ids) / count - shares) <= 4 * np.sqrt(shares * (1 - shares) / count)).all()
