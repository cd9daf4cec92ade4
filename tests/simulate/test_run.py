"""One round and many: the flow, what is charged, what is recorded, and that a run can stop and go on."""

import dataclasses
import re
import types
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import worlds
from fedpick.core.errors import ContractError, MissingError, SettingError
from fedpick.simulate.round import Record, RunState, Updates, play
from fedpick.simulate.run import Run, check_fit, policy_for
from fedpick.worlds import World


class Fake:
    """A trainer whose model is a dict of arrays; it writes down what it was asked, in order."""

    def __init__(self, broken: tuple[int, ...] = (), invalid: tuple[int, ...] = (), loss: float = 0.5) -> None:
        self.broken, self.invalid, self.loss = broken, invalid, loss
        self.calls: list[tuple[str, Any]] = []

    def init(self, seed: int) -> dict[str, Any]:
        return {"layer/w": np.full((2, 3), float(seed)), "steps": np.zeros(1, dtype=np.int64)}

    def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
        self.calls.append(("probe", ids.copy()))
        return ids + model["layer/w"].sum()

    def train(self, model: Any, ids: Any, used: Any, epochs: Any, round: int, rng: np.random.Generator) -> Updates:
        self.calls.append(("train", (ids.copy(), used.copy(), epochs.copy())))
        loss = np.full(len(ids), self.loss)
        loss[np.isin(ids, self.broken)] = np.nan
        noise = rng.standard_normal(len(ids))
        return Updates(loss, {"update_norm": np.abs(noise)}, noise, ~np.isin(ids, self.invalid))

    def aggregate(self, model: Any, choice: Any, outcome: Any, updates: Any) -> dict[str, Any]:
        self.calls.append(("aggregate", outcome.status.copy()))
        done = outcome.status == fp.Status.DONE
        return {"layer/w": model["layer/w"] + updates.payload[done].mean(), "steps": model["steps"] + 1}

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        self.calls.append(("evaluate", round))
        return {"accuracy": float(model["layer/w"].mean())} if round % 2 == 0 else {}


@dataclasses.dataclass
class Heard:
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Spy:
    """Chooses the first clients, and keeps the outcomes that it is told."""

    cohort_size: int
    told: list[Any] = dataclasses.field(default_factory=list)

    def init(self, clients: fp.Clients) -> Heard:
        return Heard(np.zeros(len(clients)))

    def select(self, state: Heard, view: fp.View, rng: np.random.Generator) -> fp.Choice:
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])

    def observe(self, state: Heard, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Heard:
        self.told.append((view, choice, outcome))
        return state


def fleet(times: list[float], deadline: float | None = None, works: list[bool] | None = None, **more: Any) -> World:
    return World(
        fp.Clients(np.full(len(times), 10.0), features=np.eye(len(times))),
        availability=more.pop("availability", worlds.Always()),
        volatility=worlds.Reliable() if works is None else worlds.ReplayedFlags([works]),
        latency=worlds.PerClient(times),
        deadline=deadline,
        epochs=more.pop("epochs", (2,)),
        **more,
    )


def first(policy: Any, world: World, trainer: Any = None) -> Record:
    return next(Run(policy, world, 3, trainer).rounds(1))


def same(a: Record, b: Record) -> None:
    for entry in dataclasses.fields(Record):
        if entry.name == "wall":  # real seconds
            continue
        x, y = getattr(a, entry.name), getattr(b, entry.name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y, err_msg=entry.name)
        else:
            assert x == y, entry.name


def all_same(one: list[Record], other: list[Record]) -> None:
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        same(a, b)


# --- one round ---


def test_a_round_goes_probe_train_aggregate_evaluate_in_this_order() -> None:
    trainer = Fake()
    first(fp.PowerOfChoice(2, 4), fleet([1.0] * 6), trainer)
    assert [name for name, _ in trainer.calls] == ["probe", "train", "aggregate", "evaluate"]


def test_only_clients_whose_work_is_used_are_to_be_trained() -> None:
    trainer = Fake()
    record = first(Spy(4), fleet([1.0, 9.0, 1.0, 1.0], 5.0, [True, True, False, True], epochs=(3,)), trainer)
    ids, used, epochs = trainer.calls[0][1]
    assert ids.tolist() == [0, 1, 2, 3]
    assert used.tolist() == [True, False, False, True]
    assert epochs.tolist() == [3.0] * 4
    assert [fp.Status(s).name for s in record.status] == ["DONE", "LATE", "LATE", "DONE"]  # the server cannot tell


def test_losses_of_clients_whose_work_is_not_used_never_reach_the_policy() -> None:
    spy = Spy(4)
    record = first(spy, fleet([1.0, 9.0, 1.0, 1.0], 5.0, [True, True, False, True]), Fake())
    np.testing.assert_array_equal(record.loss, [0.5, np.nan, np.nan, 0.5])
    np.testing.assert_array_equal(spy.told[0][2].loss, record.loss)


@pytest.mark.parametrize(
    "trainer", [Fake(broken=(1,)), Fake(invalid=(1,)), Fake(broken=(1,), invalid=(1,))], ids=["loss", "mask", "both"]
)
def test_an_update_that_is_not_a_number_turns_done_into_failed_for_policy_aggregator_and_record(trainer: Fake) -> None:
    spy = Spy(3)
    record = first(spy, fleet([1.0, 2.0, 3.0]), trainer)
    wanted = [fp.Status.DONE, fp.Status.FAILED, fp.Status.DONE]
    assert record.status.tolist() == wanted
    assert spy.told[0][2].status.tolist() == wanted
    assert next(what for name, what in trainer.calls if name == "aggregate").tolist() == wanted


@dataclasses.dataclass(frozen=True)
class Answers(Spy):
    """Answers what it is told to, from the second round on."""

    answer: Any = None
    replace: bool = False

    def select(self, state: Heard, view: fp.View, rng: np.random.Generator) -> Any:
        return super().select(state, view, rng) if view.round == 1 else self.answer(view)


class ThirdAway(worlds.Always):
    def mask(self, *args: Any) -> Any:
        return np.array([True, True, False, True])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda view: fp.Choice([0, 2]), "it chose client 2, which was not available: choose only where"),
        (lambda view: fp.Choice([1, 0, 1]), "it chose a client twice, client 1; if this is intended"),
        (lambda view: fp.Choice([0, 4]), "it chose client 4, but clients are numbered 0 to 3"),
        (lambda view: fp.Choice([-1]), "it chose client -1, but clients are numbered 0 to 3"),
        (lambda view: [0, 1], "select returned list, but must return fp.Choice: write return fp.Choice(ids)"),
        (lambda view: None, "select returned NoneType, but must return fp.Choice"),
    ],
    ids=["away", "twice", "too high", "negative", "a list", "nothing"],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_choice_against_the_rules_is_refused_and_counts_for_nothing(answer: Any, says: str, wrapped: bool) -> None:
    world = fleet([1.0] * 4, availability=ThirdAway())
    policy: Any = Answers(2, answer=answer)
    run = Run(fp.MinSeparation(policy, 1) if wrapped else policy, world, 3, Fake())
    rounds = run.rounds(until=2)
    next(rounds)
    before = run.state.world.clock
    with pytest.raises(ContractError) as caught:
        next(rounds)
    name = "MinSeparation" if wrapped else "Answers"
    assert str(caught.value).startswith(f"{name}, round 2: {says}")
    assert str(caught.value).endswith(". fedpick check FILE.py:NAME finds such mistakes")
    assert (run.state.round, run.state.world.clock) == (1, before)


def test_a_client_drawn_twice_trains_and_answers_once_and_counts_twice() -> None:
    spy = Answers(3, answer=lambda view: fp.Choice([1, 3, 1], weights=[1, 1, 1]), replace=True)
    trainer = Fake()
    record = list(Run(spy, fleet([1.0] * 4), 3, trainer).rounds(until=2))[1]
    assert record.ids.tolist() == [1, 3]
    assert record.messages == 4
    _, choice, _ = spy.told[1]
    assert (choice.weights.tolist(), choice.copies.tolist()) == ([2.0, 1.0], [2, 1])


@pytest.mark.parametrize("client", [2, 4])
def test_a_client_that_is_away_cannot_be_probed(client: int) -> None:
    world = fleet([1.0] * 4, availability=ThirdAway())
    says = {2: "client 2, which was not available", 4: "client 4, but clients are numbered 0 to 3"}[client]
    run = Run(Answers(2, answer=lambda view: view.probe([1, client])), world, 3, Fake())
    with pytest.raises(ContractError, match=f"view.probe was given {says}"):
        list(run.rounds(until=2))


def test_nobody_may_be_probed() -> None:
    policy = Answers(2, answer=lambda view: fp.Choice(list(range(len(view.probe([]))))))
    assert list(Run(policy, fleet([1.0] * 4), 3, Listing()).rounds(until=2))[1].ids.tolist() == []


class Listing(Fake):
    def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
        return list(ids)


def test_what_is_no_policy_is_said_to_be_none() -> None:
    class Deaf:
        init = select = Spy.select

    for policy, says in (
        (Deaf(), "Deaf: it has no method observe; a policy needs init, select and observe"),
        (Spy, r"the policy is the class Spy, but must be an object: Spy\(cohort_size=...\)"),
        ("uniform", "the policy is 'uniform': it has no method init"),
    ):
        with pytest.raises(ContractError, match=says):
            Run(policy, fleet([1.0]))  # type: ignore[arg-type]


def test_an_infinite_loss_is_an_unusable_update() -> None:
    assert first(Spy(2), fleet([1.0, 1.0]), Fake(loss=np.inf)).status.tolist() == [fp.Status.FAILED] * 2


def test_an_unusable_update_took_the_rounds_time_and_its_message_but_has_no_duration() -> None:
    good = first(Spy(3), fleet([1.0, 2.0, 3.0]), Fake())
    bad = first(Spy(3), fleet([1.0, 2.0, 3.0]), Fake(broken=(2,)))
    assert (bad.messages, bad.megabytes, bad.seconds) == (good.messages, good.megabytes, good.seconds)
    assert good.duration.tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(bad.duration, [1.0, 2.0, np.nan])


def test_a_loss_that_nobody_had_to_report_turns_nobody_into_failed_without_a_trainer() -> None:
    record = first(Spy(3), fleet([1.0, 2.0, 3.0]))
    assert record.status.tolist() == [fp.Status.DONE] * 3
    assert np.isnan(record.loss).all()


def test_the_model_stays_as_it_was_where_nobody_is_done() -> None:
    trainer = Fake()
    run = Run(Spy(2), fleet([1.0, 1.0], works=[False, False]), 3, trainer)
    list(run.rounds(2))
    assert "aggregate" not in [name for name, _ in trainer.calls]
    np.testing.assert_array_equal(run.state.model["layer/w"], np.full((2, 3), 3.0))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (2, 2), ()])
def test_a_trainer_that_gives_not_one_loss_for_each_is_told_what_to_give(shape: tuple[int, ...]) -> None:
    class Wrong(Fake):
        def train(self, *args: Any) -> Updates:
            return Updates(np.zeros(shape))

    text = f"Trainer.train returned losses of shape {shape}, but 2 clients were chosen: return one per client, NaN for"
    with pytest.raises(ContractError, match=re.escape(text)):
        first(Spy(2), fleet([1.0, 1.0]), Wrong())


def test_a_trainer_that_returns_no_updates_is_told_what_to_return() -> None:
    class Bare(Fake):
        def train(self, *args: Any) -> Any:
            return np.zeros(2)

    with pytest.raises(
        ContractError, match=r"Trainer.train returned ndarray, but must return fp.Updates: the losses, and"
    ):
        first(Spy(2), fleet([1.0, 1.0]), Bare())


def test_probes_are_charged_to_the_clock_the_messages_and_the_megabytes() -> None:
    world = fleet([1.0, 2.0, 30.0, 4.0], probe_share=0.5, model_megabytes=7.0)
    trainer = Fake()
    record = first(fp.PowerOfChoice(2, 4), world, trainer)
    asked = trainer.calls[0][1]
    assert sorted(asked.tolist()) == [0, 1, 2, 3]
    slowest = max([1.0, 2.0, 30.0, 4.0][i] for i in record.ids)
    assert record.seconds == 0.5 * 30.0 + slowest  # the server waits for the slowest of the probed, then of the chosen
    assert record.clock == record.seconds
    assert record.messages == 2 + 2 + 2 * 4
    assert record.megabytes == 7.0 * (2 + 2 + 4)  # a probe's answer is one number


def test_a_probe_is_asked_of_the_model_as_it_is() -> None:
    seen: list[float] = []

    class Watch(Fake):
        def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
            seen.append(float(model["steps"][0]))
            return np.zeros(len(ids))

    list(Run(fp.PowerOfChoice(2, 3), fleet([1.0] * 4), 0, Watch()).rounds(3))
    assert seen == [0.0, 1.0, 2.0]


def test_a_policy_without_probe_pays_for_none() -> None:
    record = first(Spy(3), fleet([1.0, 2.0, 3.0], model_megabytes=2.0), Fake())
    assert (record.messages, record.megabytes, record.seconds) == (6, 12.0, 3.0)


def test_who_never_answers_costs_a_message_and_a_model_one_way() -> None:
    record = first(Spy(4), fleet([1.0, 9.0, 1.0, 1.0], 5.0, [True, True, False, True], model_megabytes=2.0))
    assert record.messages == 4 + 2  # what comes after the deadline is not awaited
    assert record.megabytes == 2.0 * 6
    assert record.seconds == 5.0


def test_over_select_keeps_the_first_in_time_and_the_others_are_surplus() -> None:
    times = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0]
    trainer = Fake()
    record = first(fp.OverSelect(Spy(3), 2.0), fleet(times), trainer)
    status = dict(zip(record.ids.tolist(), record.status.tolist(), strict=True))
    assert [i for i, s in status.items() if s == fp.Status.DONE] == [1, 3, 4]
    assert [i for i, s in status.items() if s == fp.Status.SURPLUS] == [0, 2, 5]
    assert record.seconds == 3.0  # it closes with the third answer
    _, used, _ = trainer.calls[0][1]
    assert np.flatnonzero(used).tolist() == [1, 3, 4]
    assert record.messages == 6 + 3  # those that are not needed stop
    assert np.isnan(record.duration[[0, 2, 5]]).all()


@given(
    times=st.lists(st.floats(0.1, 20.0), min_size=4, max_size=12),
    flags=st.lists(st.booleans(), min_size=12, max_size=12),
    m=st.integers(1, 4),
    deadline=st.one_of(st.none(), st.floats(0.5, 20.0)),
)
def test_over_select_never_keeps_more_than_the_cohort_and_no_kept_one_is_slower_than_a_surplus(
    times: list[float], flags: list[bool], m: int, deadline: float | None
) -> None:
    record = first(fp.OverSelect(fp.Uniform(m), 2.0), fleet(times, deadline, flags[: len(times)]))
    done, surplus = record.status == fp.Status.DONE, record.status == fp.Status.SURPLUS
    assert done.sum() <= m
    if surplus.any():
        assert done.sum() == m
        assert record.duration[done].max() <= np.array(times)[record.ids[surplus]].min() or not all(flags)
        assert np.isnan(record.duration[surplus]).all()  # they still worked when the round was closed
        assert record.seconds == record.duration[done].max()
    assert record.messages == len(record.ids) + done.sum()


def test_a_record_says_what_happened() -> None:
    world = fleet([1.0, 2.0, 3.0], availability=worlds.Bernoulli((1.0, 0.0, 1.0)))
    run = Run(fp.Uniform(2), world, 0, Fake())
    one, two = run.rounds(2)
    assert (one.round, one.available, sorted(one.ids.tolist())) == (1, 2, [0, 2])
    assert one.inclusion.tolist() == [1.0, 1.0]
    assert one.clock == one.seconds == 3.0
    assert (two.round, two.clock, two.seconds) == (2, 6.0, 3.0)
    assert one.metrics == {}
    assert two.metrics == {"accuracy": pytest.approx(run.state.model["layer/w"].mean())}


def test_an_inclusion_that_is_not_known_is_nan() -> None:
    assert np.isnan(first(Spy(2), fleet([1.0, 2.0])).inclusion).all()


def test_a_round_in_which_nobody_is_there_is_a_round_with_an_empty_record() -> None:
    trainer = Fake()
    record = first(fp.Uniform(2), fleet([1.0, 2.0], availability=Nobody()), trainer)
    assert (record.round, record.available, len(record.ids), record.messages) == (1, 0, 0, 0)
    assert record.megabytes == 0.0
    assert record.clock == record.seconds  # how long the server waits is the world's to say
    assert "aggregate" not in [name for name, _ in trainer.calls]


class Nobody(worlds.Always):
    def draw(self, memory: Any, clients: fp.Clients, round: int, rng: np.random.Generator) -> Any:
        return np.zeros(len(clients), dtype=bool)


# --- many rounds ---

NAMES = ["uniform", "e3cs(quota=0.5)", "bsfl", "fedgs", "rpow-d", "over-select(e3cs, 1.5)", "cs-ucb", "size-weighted"]


def build(text: str, name: str = "volatile", seed: int = 5) -> Run:
    world = worlds.named(name, 30)
    return Run(policy_for(text, world, 4), world, seed)


@pytest.mark.parametrize("text", NAMES)
def test_the_same_seed_gives_the_same_records(text: str) -> None:
    all_same(list(build(text).rounds(30)), list(build(text).rounds(30)))


def test_another_seed_gives_other_records() -> None:
    one, other = list(build("uniform", seed=1).rounds(20)), list(build("uniform", seed=2).rounds(20))
    assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(one, other, strict=True))


@cache
def uninterrupted(text: str) -> list[Any]:
    return list(build(text).rounds(40))


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), text=st.sampled_from(NAMES))
def test_a_run_that_stops_and_goes_on_gives_the_records_of_one_that_did_not(cuts: list[int], text: str) -> None:
    run, whole = build(text), uninterrupted(text)
    pieces = [record for cut in [*sorted(cuts), 40] for record in run.rounds(cut)]
    all_same(whole, pieces)


def test_an_iterator_left_in_the_middle_loses_nothing() -> None:
    run, got = build("e3cs"), []
    for record in run.rounds(20):
        got.append(record)
        if record.round == 7:
            break
    assert run.state.round == 7
    all_same(list(build("e3cs").rounds(20)), got + list(run.rounds(20)))


def test_a_run_goes_on_past_its_first_horizon() -> None:
    run = build("e3cs(quota='inc', horizon=10)")
    records = list(run.rounds(10)) + list(run.rounds(25))
    assert [record.round for record in records] == list(range(1, 26))
    all_same(list(build("e3cs(quota='inc', horizon=10)").rounds(25)), records)


def test_a_run_that_has_reached_its_horizon_plays_no_round() -> None:
    run = build("uniform")
    list(run.rounds(5))
    assert list(run.rounds(5)) == list(run.rounds(2)) == []


def test_training_runs_are_the_same_at_the_same_seed() -> None:
    def go() -> tuple[list[Record], Any]:
        run = Run(fp.PowerOfChoice(3, 6), worlds.named("volatile", 20), 4, Fake())
        return list(run.rounds(12)), run.state.model

    (one, model), (other, again) = go(), go()
    all_same(one, other)
    np.testing.assert_array_equal(model["layer/w"], again["layer/w"])


def test_a_state_that_is_given_is_gone_on_from() -> None:
    run = build("e3cs")
    list(run.rounds(6))
    on = Run(run.policy, run.world, 5, state=run.state)
    assert next(on.rounds(7)).round == 7


@pytest.mark.parametrize("name", ["volatile", "bursts", "rbcs-f", "phones", "fedgs-sln"])
def test_every_policy_meets_the_same_draws_of_the_world(name: str) -> None:
    def draws(text: str) -> list[Any]:
        seen: list[Any] = []
        plain = worlds.named(name, 24)

        class Watched(World):
            def draw(self, state: Any, *args: Any) -> Any:
                drawn, everyone = super().draw(state, *args), np.arange(24)
                rested = dataclasses.replace(state, idle=np.ones(24, dtype=bool))
                works, seconds = self.works(state, drawn, everyone), self.seconds(rested, drawn, everyone)
                seen.append({"presence": drawn.presence, "works": works, "seconds": seconds, **drawn.latency})
                return drawn

        world = Watched(**{entry.name: getattr(plain, entry.name) for entry in dataclasses.fields(World)})
        list(Run(policy_for(text, world, 4), world, 11).rounds(25))
        return seen

    base = draws("uniform")
    for text in ("e3cs", "bsfl", "over-select(uniform, 2.0)", "size-weighted"):
        other = draws(text)
        assert len(base) == len(other) == 25
        for a, b in zip(base, other, strict=True):
            assert a.keys() == b.keys()
            for key in a:
                np.testing.assert_array_equal(a[key], b[key])


def test_play_moves_the_state_in_place_and_to_the_next_round() -> None:
    world, policy = fleet([1.0, 2.0]), fp.Uniform(1)
    state = RunState(policy.init(world.clients), world.init(0))
    assert play(policy, world, state, 0).round == state.round == 1
    assert play(policy, world, state, 0).round == state.round == 2


# --- what a policy needs and the world does not give ---


@pytest.mark.parametrize(
    ("policy", "world", "text"),
    [
        (
            fp.PowerOfChoice(2),
            worlds.named("ideal", 5),
            "PowerOfChoice asks clients for their loss, but nothing is trained in this run; use a policy that needs no "
            "probe, such as rpow-d, or give a trainer",
        ),
        (
            fp.RBCSF(2),
            worlds.named("volatile", 5),
            "RBCSF needs a context, but the latency Gamma of this world gives none; use a world with latency linear or "
            "device, such as rbcs-f or phones",
        ),
        (
            fp.FedGS(2, graph="features"),
            worlds.named("e3cs", 5),
            "FedGS needs Clients.features, but the clients of this world have none; use a world whose clients have, "
            "such as phones, volatile or fedgs-ln",
        ),
        (
            fp.FedGS(2, graph="embedding"),
            worlds.named("phones", 5),
            "FedGS needs the report 'embedding' of clients that trained, but nothing is trained in this run; use other "
            "settings of it, or give a trainer",
        ),
        (fp.OverSelect(fp.RBCSF(2), 1.5), worlds.named("bsfl", 5), "OverSelect needs a context, but the latency Gamma"),
    ],
)
def test_a_policy_that_needs_more_than_the_world_gives_is_refused_before_the_first_round(
    policy: Any, world: World, text: str
) -> None:
    with pytest.raises(MissingError, match=re.escape(text)):
        Run(policy, world)


def test_the_clients_of_the_trainers_data_must_be_the_worlds() -> None:
    """One client with another size is enough, and so is one more or less."""
    world, trainer = fleet([1.0, 2.0, 3.0]), Fake()

    def held(*sizes: float) -> Fake:
        trainer.data = types.SimpleNamespace(clients=fp.Clients(sizes))
        return trainer

    Run(Spy(2), world, 0, held(10.0, 10.0, 10.0))
    text = "client 1 has 10 examples in the world, but 11 in the trainer's data; make the world with clients="
    with pytest.raises(ContractError, match=text):
        Run(Spy(2), world, 0, held(10.0, 11.0, 10.0))
    for sizes in ((10.0, 10.0), (10.0, 10.0, 10.0, 10.0)):
        text = f"the world has 3 clients, but the trainer's data {len(sizes)}; make the world with clients="
        with pytest.raises(ContractError, match=text):
            Run(Spy(2), world, 0, held(*sizes))


def test_a_context_of_another_width_is_refused_with_the_width_there_is() -> None:
    text = "RBCSF: context = 4, but must be 3, the columns this world gives"
    with pytest.raises(SettingError, match=re.escape(text)):
        check_fit(fp.RBCSF(2, context=4), worlds.named("rbcs-f", 8))
    with pytest.raises(SettingError, match=re.escape("OverSelect: context = 4, but must be 3")):
        check_fit(fp.OverSelect(fp.RBCSF(2, context=4), 1.5), worlds.named("rbcs-f", 8))


def test_a_trainer_gives_the_probe_and_the_reports() -> None:
    check_fit(fp.PowerOfChoice(2), worlds.named("ideal", 5), Fake())
    check_fit(fp.FedGS(2, graph="embedding"), worlds.named("phones", 5), Fake())


@pytest.mark.parametrize("name", ["e3cs", "bursts", "volatile"])
@pytest.mark.parametrize("text", ["fedcs", "FedCS", "over-select(fedcs, 1.5)"])
def test_the_oracle_is_told_the_success_rates_of_the_world(name: str, text: str) -> None:
    world = worlds.named(name, 8)
    policy = policy_for(text, world, 2)
    assert getattr(policy, "policy", policy).success.tolist() == [0.1, 0.1, 0.3, 0.3, 0.6, 0.6, 0.9, 0.9]


def test_the_oracle_with_a_deadline_is_told_the_coefficients_of_the_linear_law() -> None:
    world = worlds.named("rbcs-f", 8)
    run = Run(policy_for("fedcs(deadline=6.0)", world, 2), world)
    np.testing.assert_array_equal(run.state.policy.known, world.latency.theta(world.clients))  # type: ignore[attr-defined]


def test_an_oracle_with_a_deadline_is_told_mean_times_where_there_is_no_context() -> None:
    world = worlds.named("bsfl", 8)
    run = Run(policy_for("fedcs(deadline=4.0)", world, 2, seed=7), world, seed=7)
    np.testing.assert_array_equal(run.state.policy.known, 1.0 + run.state.world.latency["mean"])
    list(run.rounds(3))


def test_the_genie_is_told_the_speeds_of_its_seed() -> None:
    world = worlds.named("bsfl", 8)
    policy = policy_for("genie", world, 2, seed=3)
    np.testing.assert_array_equal(policy.speed, world.truth(3)["speed"])
    assert policy != policy_for("genie", world, 2, seed=4)


def test_what_the_text_says_goes_before_the_truth() -> None:
    world = worlds.named("e3cs", 4)
    assert policy_for("fedcs(success=[0.5, 0.4, 0.3, 0.2])", world, 2).success == [0.5, 0.4, 0.3, 0.2]
    assert policy_for("fedcs(2, [0.5, 0.4, 0.3, 0.2])", world, 2).success == [0.5, 0.4, 0.3, 0.2]


def test_a_policy_that_could_know_but_is_no_oracle_is_told_nothing() -> None:
    assert policy_for("rbcs-f", worlds.named("rbcs-f", 8), 2).theta is None


def test_a_text_that_only_looks_like_an_oracle_is_none() -> None:
    policy = policy_for("e3cs(reward='fedcs')", worlds.named("e3cs", 8), 2)
    assert not fp.traits(policy).oracle


def test_an_oracle_that_cannot_be_told_says_what_it_wants() -> None:
    with pytest.raises(SettingError, match=re.escape("give either success=rates, or deadline=seconds")):
        policy_for("fedcs", World(volatility=worlds.Shift()), 2)
    with pytest.raises(SettingError, match=r"genie: .*'speed'; its settings are cohort_size, speed"):
        policy_for("genie", World(latency=worlds.LogNormalTime()), 2)


# --- policies and parts of a user's own, which can do all that ours can ---


CLAIRVOYANT = """
from dataclasses import dataclass

import numpy as np

import fedpick as fp


@dataclass
class State:
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class Clairvoyant:
    cohort_size: int
    mood: np.ndarray  # which only its world knows

    truths = ["mood"]

    def init(self, clients):
        return State(np.zeros(len(clients)))

    def select(self, state, view, rng):
        there = np.flatnonzero(view.available)
        return fp.Choice(there[np.argsort(-self.mood[there], kind="stable")][: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        return state
"""


class Moody(worlds.Reliable):
    def truth(self, memory: Any, clients: fp.Clients) -> dict[str, Any]:
        return {"mood": np.arange(len(clients)) % 4, "weather": np.zeros(len(clients))}


@pytest.mark.parametrize(("form", "chosen"), [("{}", [3, 7]), ("over-select({}, 1.5)", [2, 3, 7])])
def test_an_oracle_of_ones_own_is_told_what_a_part_of_ones_own_knows(
    form: str, chosen: list[int], tmp_path: Any
) -> None:
    file = tmp_path / "clairvoyant.py"
    file.write_text(CLAIRVOYANT)
    world = dataclasses.replace(fleet([1.0] * 8), volatility=Moody())
    run = Run(policy_for(form.format(f"{file}:Clairvoyant"), world, 2), world)
    assert sorted(next(run.rounds(1)).ids.tolist()) == chosen
    assert fp.traits(run.policy).oracle


@dataclasses.dataclass(frozen=True)
class Listener(Spy):
    """Needs a vector of three numbers of each client."""

    needs = (fp.ReportSpec("gradient", 3),)


class Teller(Fake):
    reports = ("gradient",)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def train(self, model: Any, ids: Any, *args: Any) -> Updates:
        done = super().train(model, ids, *args)
        return dataclasses.replace(done, reports={"gradient": np.zeros((len(ids), self.width))})


@pytest.mark.parametrize("wrap", [lambda policy: policy, lambda policy: fp.OverSelect(policy, 1.5)])
def test_a_report_of_ones_own_is_handed_over_and_its_width_is_checked(wrap: Any) -> None:
    spy = Listener(2)
    first(wrap(spy), fleet([1.0] * 5), Teller(3))
    assert spy.told[0][2].reports["gradient"].shape[1:] == (3,)
    with pytest.raises(ContractError, match=r"the report 'gradient' has shape \(4,\) for each client, but"):
        first(wrap(Listener(2)), fleet([1.0] * 5), Teller(4))
    with pytest.raises(MissingError, match="needs the report 'gradient' of clients that trained"):
        first(wrap(Listener(2)), fleet([1.0] * 5))
    trainer = Fake()
    trainer.reports = ("update_norm",)  # type: ignore[attr-defined]
    with pytest.raises(MissingError, match="needs the report 'gradient', but this trainer reports update_norm"):
        first(wrap(Listener(2)), fleet([1.0] * 5), trainer)


@dataclasses.dataclass(frozen=True)
class Contextual(Spy):
    needs = ("context",)
    context = 5


@pytest.mark.parametrize("wrap", [lambda policy: policy, lambda policy: fp.OverSelect(policy, 1.5)])
def test_a_context_of_ones_own_width_is_checked(wrap: Any) -> None:
    with pytest.raises(SettingError, match="context = 5, but must be 3, the columns this world gives"):
        Run(wrap(Contextual(2)), worlds.named("rbcs-f", 8))


# --- a state is used up once observe was given it ---


def test_under_the_debug_switch_an_old_state_is_ruined_and_the_run_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPICK_DEBUG", "0")
    due = list(build("e3cs").rounds(12))
    monkeypatch.setenv("FEDPICK_DEBUG", "1")
    run = build("e3cs")
    records = list(run.rounds(6))
    old = run.state.policy
    records += run.rounds(12)
    all_same(due, records)
    assert np.isnan(old.log_weights).all()
    assert np.isfinite(run.state.policy.log_weights).all()


class NobodyTrains:
    """A trainer that is asked for the updates of clients none of which answers."""

    reports = ("update_norm",)

    def init(self, seed):
        return np.zeros(1)

    def train(self, model, ids, used, epochs, round, rng):
        assert not used.any()
        return Updates(np.full(len(ids), np.nan))

    def part(self, updates, positions):
        return Updates(updates.loss[positions])

    def evaluate(self, model, round):
        return {}


def test_a_round_of_two_phases_goes_on_when_nobody_answers():
    people = fp.Clients(np.ones(6))
    world = fp.World(people, volatility=fp.worlds.SuccessRates((0.0,)), availability=fp.worlds.Always())
    run = fp.Run(fp.OptimalSampling(2), world, seed=0, trainer=NobodyTrains())
    records = list(run.rounds(2))
    assert [record.round for record in records] == [1, 2]
    assert not any((record.status == fp.Status.DONE).any() for record in records)
