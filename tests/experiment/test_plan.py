"""Plans: what should exist."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.core.errors import ConfigError
from fedpick.experiment import Config, Experiment, load_experiment

EPS = "import fedpick as fp\nclass Eps(fp.Uniform):\n    pass\n"


def plan(**changes):
    return Experiment(
        **{"policy": ["uniform", "e3cs(quota=0.5)"], "seeds": 2, "rounds": 20, "cohort_size": 5} | changes
    )


def keys(experiment):
    return {config.key for config in experiment.configs()}


def test_every_combination_is_a_run():
    wide = plan(world=["volatile", "ideal"], cohort_size=[5, 10], data=[None, "digits"], seeds=3)
    assert len(keys(wide)) == 2 * 2 * 2 * 2 * 3 == len(wide.configs())


def test_a_key_is_made_of_what_a_run_is_and_of_nothing_else():
    base = Config("e3cs(quota=0.5)", 5, 20, 0, {"name": "volatile"})
    same = [
        replace(base, policy="E3CS( quota = .5 )"),
        replace(base, rounds=999),
        replace(base, checkpoint_every=3),
        replace(base, world={"name": "Volatile"}),
    ]
    assert {each.key for each in same} == {base.key}
    others = [
        replace(base, policy="e3cs(quota=0.4)"),
        replace(base, cohort_size=6),
        replace(base, seed=1),
        replace(base, world={"name": "ideal"}),
        replace(base, world={"name": "volatile", "num_clients": 50}),
        replace(base, data={"name": "digits"}),
        replace(base, data={"name": "digits"}, train={"precision": "bfloat16"}),
    ]
    assert len({each.key for each in [base, *others]}) == len(others) + 1


def test_a_key_does_not_depend_on_the_place_in_a_list():
    assert keys(plan()) == keys(plan(policy=["e3cs(quota=0.5)", "uniform"], seeds=[1, 0]))


def test_a_policy_given_twice_is_compared_once_which_is_said():
    texts = ["over-select(uniform, 1.3)", "over-select(uniform,1.3)", "uniform"]
    said = re.escape("policy over-select(uniform, 1.3) is given more than once; its runs are made once")
    with pytest.warns(UserWarning, match=said):
        found = plan(policy=texts)
    assert found.policy == ("over-select(uniform, 1.3)", "uniform")
    assert found.only(rounds=3).policy == found.policy  # without a warning, which would be an error here


def test_a_changed_file_is_another_run(tmp_path):
    file = tmp_path / "eps.py"
    file.write_text(EPS)
    before = keys(plan(policy=f"{file}:Eps"))
    assert keys(plan(policy=f"{file}:Eps")) == before
    file.write_text(EPS + "# changed\n")
    assert not keys(plan(policy=f"{file}:Eps")) & before


def test_a_moved_file_is_the_same_run(tmp_path):
    (tmp_path / "a").mkdir()
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "eps.py").write_text(EPS)
    assert keys(plan(policy=f"{tmp_path}/eps.py:Eps")) == keys(plan(policy=f"{tmp_path}/a/eps.py:Eps"))


NAMES = st.sets(st.sampled_from(["uniform", "e3cs", "bsfl"]), min_size=1)


@settings(max_examples=25)
@given(seeds=st.integers(1, 4), rounds=st.integers(1, 50), policies=NAMES)
def test_a_plan_survives_json_and_contains_itself(seeds, rounds, policies):
    one = plan(policy=sorted(policies), seeds=seeds, rounds=rounds)
    again = Experiment(**json.loads(json.dumps(one.as_dict())))
    assert keys(again) == keys(one)
    assert one.within(again)
    assert again.within(one)
    assert one.within(plan(policy=["uniform", "e3cs", "bsfl"], seeds=4, rounds=50))
    assert not plan(policy=["uniform", "e3cs", "bsfl", "cs-ucb"]).within(one)


def test_a_plan_from_the_disk_names_code_and_does_not_import_it(tmp_path):
    file = tmp_path / "eps.py"
    file.write_text(EPS)
    kept = Experiment(**json.loads(json.dumps(plan(policy=[f"{file}:Eps", "uniform"]).as_dict())))
    assert kept.policy == ("eps.py:Eps", "uniform")
    assert keys(kept) == keys(plan(policy=[f"{file}:Eps", "uniform"]))
    with pytest.raises(ConfigError, match=r"eps.py:Eps: this plan uses code of yours, .* -p eps.py:Eps"):
        kept.naming([])
    assert kept.naming([f"{file}:Eps"]).configs()[0].build().policy.cohort_size == 5
    file.write_text(EPS + "# changed\n")
    with pytest.raises(ConfigError, match="has changed since this plan was made"):
        kept.naming([f"{file}:Eps"])


def test_policies_and_classes_of_this_process_go_where_texts_go():
    class Mine(fp.Uniform):
        pass

    configs = plan(policy=["uniform", Mine, fp.E3CS(5, quota=0.2)]).configs()
    assert [config.policy for config in configs[::2]] == ["uniform", "Mine", "E3CS(quota=0.2)"]
    assert type(configs[2].build().policy) is Mine
    assert configs[4].build().policy == fp.E3CS(5, quota=0.2)


def test_worlds_and_data_of_this_process(tmp_path):
    world = fp.worlds.named("volatile", 30)
    config = plan(world=world, policy="uniform").configs()[0]
    assert config.build().world is world
    assert config.key == plan(world=fp.worlds.named("volatile", 30), policy="uniform").configs()[0].key
    assert config.key != plan(world=fp.worlds.named("volatile", 31), policy="uniform").configs()[0].key


STUDY = """
policy = ["uniform", "rules/eps.py:Eps"]
cohort_size = [3, 5]
seeds = [4, 7]
rounds = 12
[[world]]
name = ["volatile", "ideal"]
num_clients = 20
[[world]]
name = "e3cs"
[data]
name = "digits"
[train]
lr = [0.05, 0.1]
"""


def test_a_file_says_what_python_says(tmp_path, monkeypatch):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/eps.py").write_text(EPS)
    (tmp_path / "study.toml").write_text(STUDY)
    worlds = [{"name": "volatile", "num_clients": 20}, {"name": "ideal", "num_clients": 20}, {"name": "e3cs"}]
    wanted = Experiment(
        policy=["uniform", f"{tmp_path}/rules/eps.py:Eps"],
        world=worlds,
        cohort_size=[3, 5],
        data="digits",
        train=[{"lr": 0.05}, {"lr": 0.1}],
        seeds=[4, 7],
        rounds=12,
    )
    found = load_experiment(tmp_path / "study.toml")
    assert keys(found) == keys(wanted)
    assert len(found.configs()) == 2 * 3 * 2 * 2 * 2
    monkeypatch.chdir(tmp_path.parent)
    assert keys(load_experiment(f"{tmp_path.name}/study.toml")) == keys(wanted)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policy": []}, "policy = \\[\\]"),
        ({"policy": "e3sc"}, "did you mean 'e3cs'"),
        ({"seeds": 0}, "seeds = 0, but must be"),
        ({"seeds": []}, "seeds = \\[\\]"),
        ({"world": []}, "world = \\[\\]"),
        ({"world": "volatil"}, "did you mean 'volatile'"),
        ({"world": "volatile(deadlin=3)"}, "did you mean 'deadline'"),
        ({"train": {"lr": 0.1}}, "no data to train on"),
    ],
)
def test_a_mistake_in_a_plan_is_said(changes, says):
    with pytest.raises(fp.FedpickError, match=says):
        plan(**changes).configs()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Config("uniform", 200, world={"name": "volatile"}), "cohort_size = 200, but there are only 100 clients"),
        (
            Config("uniform", 5, world={"name": "volatile", "num_clients": 40}, data={"name": "{file}"}),
            "the data has 3 clients, but the world 40",
        ),
    ],
)
def test_what_does_not_fit_together_is_said(config, says, tmp_path):
    import numpy as np

    file = tmp_path / "mine.npz"
    np.savez(file, x=np.zeros((9, 4), np.float32), y=np.arange(9) % 2, client=np.arange(9) // 3)
    if config.data:
        config = replace(config, data={"name": str(file)})
    with pytest.raises(ConfigError, match=says):
        config.build()


def test_data_of_a_file_brings_its_clients(tmp_path):
    import numpy as np

    file = tmp_path / "mine.npz"
    np.savez(file, x=np.zeros((9, 4), np.float32), y=np.arange(9) % 2, client=np.repeat(["a", "b", "c"], [2, 3, 4]))
    run = Config("uniform", 2, world={"name": "volatile"}, data={"name": str(file)}).build()
    assert run.world.clients.sizes.tolist() == [2.0, 3.0, 4.0]


TRAINER = """
import numpy as np
from fedpick.core.types import Updates


class Still:
    def __init__(self, data, lr=0.1):
        self.data, self.lr = data, lr

    def init(self, seed):
        return np.zeros(2)

    def probe(self, model, ids, batch, rng):
        return np.ones(len(ids))

    def train(self, model, ids, used, epochs, round, rng):
        return Updates(np.where(used, 1.0, np.nan), payload=ids)

    def aggregate(self, model, choice, outcome, updates):
        return model + self.lr

    def evaluate(self, model, round):
        return {"accuracy": float(model[0])}
"""


def test_a_trainer_of_ones_own_is_played_without_ours(tmp_path):
    (tmp_path / "loop.py").write_text(TRAINER)
    text = f"{tmp_path}/loop.py:Still(lr=0.5)"
    config = Config("uniform", 5, 3, world={"name": "ideal"}, data={"name": "digits"}, train={"trainer": text})
    records = list(config.build().rounds(3))
    assert [record.metrics["accuracy"] for record in records] == [0.5, 1.0, 1.5]
    with pytest.raises(ConfigError, match="must name a trainer in a file of yours"):
        replace(config, train={"trainer": text, "lr": 0.1}).build()


OWN_PARTS = """
import numpy as np
import fedpick as fp
from fedpick import data


class Odd:
    def init(self, clients, rng):
        return {}

    def draw(self, memory, clients, round, rng):
        return np.arange(len(clients)) % 2 == 1

    def mask(self, memory, drawn, clients, round, clock):
        return drawn


def hospital(num_clients=12):
    return fp.worlds.named("ideal", num_clients)


def halves(dataset, num_clients, rng):
    return data.IID()(dataset, num_clients, rng)


def made(num_clients, rng):
    return data.Synthetic(1.0, 1.0)(num_clients, rng)
"""


def test_parts_of_worlds_worlds_and_data_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_PARTS)
    here = f"{tmp_path}/mine.py"
    run = Config("uniform", 3, world={"name": "ideal", "num_clients": 10, "availability": f"{here}:Odd"}).build()
    assert next(iter(run.rounds(1))).ids.tolist() != []
    assert set(next(iter(run.rounds(2))).ids % 2) == {1}
    assert len(Config("uniform", 3, world={"name": f"{here}:hospital"}).build().world.clients) == 12
    assert len(Config("uniform", 3, world={"name": f"{here}:hospital", "num_clients": 7}).build().world.clients) == 7
    run = Config("uniform", 3, world={"name": "ideal", "num_clients": 9}, data={"name": f"{here}:made"}).build()
    assert len(run.world.clients) == 9
    digits = {"name": "digits", "partition": f"{here}:halves"}
    assert len(Config("uniform", 3, world={"name": "ideal", "num_clients": 9}, data=digits).build().world.clients) == 9


def test_on_another_machine_a_run_uses_the_code_that_was_sent(tmp_path):
    from fedpick._support import user_code
    from fedpick.experiment.executors import node
    from fedpick.experiment.executors.job import Job

    (tmp_path / "here").mkdir()
    (tmp_path / "here/eps.py").write_text(EPS)
    config = plan(policy=f"over-select({tmp_path}/here/eps.py:Eps, 1.2)").configs()[0]
    node.unpack(tmp_path / "there" / node.CODE, user_code.sources(config.references()))
    (tmp_path / "here/eps.py").unlink()
    job = node._moved(Job(config, tmp_path / "elsewhere"), tmp_path / "there")
    assert job.config.key == config.key
    assert job.config.as_dict() == config.as_dict()
    assert job.config.build().policy.cohort_size == 5


def test_a_world_whose_clients_are_not_the_datas_is_refused():
    people = fp.data.Synthetic(1.0, 1.0)(12, fp.rng.stream(0, 0, "data"))
    trainer = fp.learn.Trainer(people, fp.learn.logistic((60,), 10), batch=10, steps=2)
    with pytest.raises(fp.ContractError, match="the world has 40 clients, but the trainer's data 12"):
        fp.Run(fp.Uniform(3), fp.worlds.named("ideal", 40), trainer=trainer)
    with pytest.raises(fp.ContractError, match="client 0 has 500 examples in the world, but"):
        fp.Run(fp.Uniform(3), fp.worlds.named("ideal", 12), trainer=trainer)


@pytest.mark.parametrize(
    ("world", "before"),
    [
        (lambda: fp.World(), "World-5d87e652"),
        (lambda: fp.World(clients=fp.worlds.phone_clients(30)), "World-83e8c810"),
        (lambda: fp.worlds.named("volatile", 20), "World-604b36d0"),
        (lambda: fp.worlds.named("fedgs-ymf", 20), "World-3b9440c7"),
    ],
)
def test_a_world_that_is_an_object_is_called_as_in_0_1(world, before):
    """Its name is a part of its runs' keys; `Clients`, which it holds, was in fedpick.types then."""
    plan = Experiment("uniform", world(), 5, None)
    assert [config.labels["world"] for config in plan.configs()] == [before] * 5
