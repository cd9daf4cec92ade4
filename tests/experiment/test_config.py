"""Configurations: what they hold, and one line for every mistake that says where, what, and what to write instead."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick import worlds
from fedpick.core.errors import ConfigError, FedpickError, SettingError, UnknownNameError
from fedpick.experiment import PARTS, Config, build_world, load
from fedpick.experiment import config as configs


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_the_example_of_the_documentation_is_a_configuration(tmp_path: Path) -> None:
    assert configs.__doc__ is not None
    config = load(written(tmp_path, configs.__doc__.split("\n", 2)[2]))
    assert (config.policy, config.cohort_size, config.rounds, config.seed) == ("e3cs(quota=0.5)", 20, 500, 0)
    assert config.checkpoint_every == 100
    run = config.build()
    assert isinstance(run.policy, fp.E3CS)
    assert (run.policy.quota, run.world.deadline, len(run.world.clients)) == (0.5, 12.0, 100)
    assert run.world.availability == worlds.Bernoulli(0.8)
    assert run.world.latency == worlds.Gamma(low=1, high=8)
    assert run.world.volatility == worlds.Bursts(spell=5)
    assert run.trainer.model.name == "mlp 64-64-30-10"
    assert run.world.clients.sizes.sum() == 1617
    assert run.world.model_megabytes == pytest.approx(4e-6 * (64 * 64 + 64 + 64 * 30 + 30 + 30 * 10 + 10))


def test_a_policy_alone_is_a_configuration(tmp_path: Path) -> None:
    assert load(written(tmp_path, "policy = 'uniform'")) == Config("uniform")


MISTAKES: dict[str, tuple[str, str]] = {
    "data that is no section": ("policy = 'uniform'\ndata = 3", "data = 3, but must be a section: [data]"),
    "train that is no section": ("policy = 'uniform'\ntrain = 3", "train = 3, but must be a section: [train]"),
    "nothing to train on": ("policy = 'uniform'\n[train]\nlr = 1", "[train] is given, but no [data] to train on"),
    "unknown data": (
        "policy = 'uniform'\n[data]\nname = 'fashion'",
        "unknown data 'fashion'; did you mean 'fashion-mnist'",
    ),
    "data without a name": ("policy = 'uniform'\n[data]\nseed = 1", "[data] name = None, but must be a text"),
    "misspelt data setting": ("policy = 'uniform'\n[data]\nnam = 'digits'", "unknown setting of [data] 'nam'"),
    "a seed of data under 0": (
        "policy = 'uniform'\n[data]\nname = 'digits'\nseed = -1",
        "[data] seed = -1, but must be a whole number >= 0",
    ),
    "unknown partition": (
        "policy = 'uniform'\n[data]\nname = 'digits'\npartition = 'dirichle'",
        "unknown partition 'dirichle'; did you mean 'dirichlet'?",
    ),
    "a partition that is no text": (
        "policy = 'uniform'\n[data]\nname = 'digits'\npartition = 1",
        "[data] partition = 1, but must be a text",
    ),
    "a partition of data that has one": (
        "policy = 'uniform'\n[data]\nname = 'synthetic(1, 1)'\npartition = 'iid'",
        "synthetic(1, 1) comes with its clients; leave the partition out",
    ),
    "unknown model": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nmodel = 'mpl'",
        "unknown model 'mpl'; did you mean 'mlp'?",
    ),
    "a model that is no text": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nmodel = 3",
        "[train] model = 3, but must be a text",
    ),
    "misspelt train setting": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nbatsh = 3",
        "unknown setting of [train] 'batsh'; did you mean 'batch'?",
    ),
    "a rate that is no rate": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nlr = -0.1",
        "Trainer: lr = -0.1, but must be > 0",
    ),
    "a batch that is no number": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nbatch = 'many'",
        "[train] batch = 'many', but must be a number",
    ),
    "an unknown aggregation": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\naggregation = 'median'",
        "unknown aggregation 'median'",
    ),
    "an unknown server": (
        "policy = 'uniform'\n[data]\nname = 'digits'\n[train]\nserver = 'fedadm'",
        "unknown server optimiser 'fedadm'; did you mean 'fedadam'?",
    ),
    "misspelt key": (
        "policy = 'uniform'\ncohort_sise = 3",
        "unknown setting 'cohort_sise'; did you mean 'cohort_size'? There are: checkpoint_every, cohort_size, data",
    ),
    "misspelt world setting": (
        "policy = 'uniform'\n[world]\ndeadlne = 3",
        "unknown setting of [world] 'deadlne'; did you mean 'deadline'? There are: availability, deadline",
    ),
    "a list of policies": (
        "policy = ['uniform', 'e3cs']",
        "policy is a list, but `fedpick run` makes one run; use `fedpick compare FILE.toml`",
    ),
    "a cohort of more clients than there are": (
        "policy = 'over-select(size-weighted, 200)'\ncohort_size = 100",
        "policy = 'over-select(size-weighted, 200)': asks 20000 of 100 clients; choose fewer",
    ),
    "misspelt policy": ("policy = 'e3sc'", "unknown policy 'e3sc'; did you mean 'e3cs'? There are: "),
    "misspelt setting of a policy": ("policy = 'e3cs(qota=1)'", "'qota'; did you mean 'quota'? There are: "),
    "misspelt part": (
        "policy = 'uniform'\n[world]\navailability = 'markof'",
        "unknown availability 'markof'; did you mean 'markov'? There are: always, bernoulli",
    ),
    "unknown world": (
        "policy = 'uniform'\n[world]\nname = 'volatil'",
        "unknown world 'volatil'; did you mean 'volatile'? There are: bsfl, bursts",
    ),
    "negative deadline": (
        "policy = 'uniform'\n[world]\ndeadline = -1.0",
        "[world] deadline = -1.0, but must be a number of seconds > 0, or 'slowest' to wait for all",
    ),
    "deadline as text": (
        "policy = 'uniform'\n[world]\ndeadline = '12s'",
        "[world] deadline = '12s', but must be a number of seconds > 0, or 'slowest' to wait for all",
    ),
    "endless deadline": ("policy = 'uniform'\n[world]\ndeadline = inf", "[world] deadline = inf, but must be a number"),
    "deadline as list": ("policy = 'uniform'\n[world]\ndeadline = [1]", "[world] deadline = [1], but must be a number"),
    "probe_share as text": (
        "policy = 'uniform'\n[world]\nprobe_share = 'x'",
        "[world] probe_share = 'x', but must be a number >= 0",
    ),
    "probe_share too large": ("policy = 'uniform'\n[world]\nprobe_share = 2", "probe_share = 2, but must be in [0, 1]"),
    "no epochs": (
        "policy = 'uniform'\n[world]\nepochs = []",
        "[world] epochs = [], but must be a whole number >= 1, or several: [1, 2, 3, 4]",
    ),
    "half epochs": (
        "policy = 'uniform'\n[world]\nepochs = [0.5]",
        "[world] epochs = [0.5], but must be a whole number",
    ),
    "cohort of nobody": (
        "policy = 'uniform'\ncohort_size = 0",
        "cohort_size = 0, but must be a whole number >= 1",
    ),
    "cohort as truth": (
        "policy = 'uniform'\ncohort_size = true",
        "cohort_size = True, but must be a whole number >= 1",
    ),
    "half a round": ("policy = 'uniform'\nrounds = 0.5", "rounds = 0.5, but must be a whole number >= 1"),
    "no checkpoint": ("policy = 'uniform'\ncheckpoint_every = 0", "checkpoint_every = 0, but must be a whole number"),
    "negative seed": ("policy = 'uniform'\nseed = -1", "seed = -1, but must be a whole number >= 0"),
    "seed as truth": ("policy = 'uniform'\nseed = true", "seed = True, but must be a whole number >= 0"),
    "policy as number": ("policy = 3", "policy = 3, but must be a text such as 'e3cs(quota=0.5)'"),
    "policy that does not parse": ("policy = 'e3cs('", "cannot read the policy 'e3cs('; write it like e3cs(quota=0.5)"),
    "missing policy": (
        "rounds = 3",
        "policy is missing; add policy = 'e3cs(quota=0.5)'; `fedpick policies` lists them all",
    ),
    "world as text": (
        "policy = 'uniform'\nworld = 'volatile'",
        "world = 'volatile', but must be a section: [world], then name = 'volatile'",
    ),
    "name as list": (
        "policy = 'uniform'\n[world]\nname = ['volatile']",
        "[world] name = ['volatile'], but must be a text such as 'volatile'",
    ),
    "no clients": (
        "policy = 'uniform'\n[world]\nnum_clients = 0",
        "[world] num_clients = 0, but must be a whole number >= 1",
    ),
    "part as number": (
        "policy = 'uniform'\n[world]\nlatency = 5",
        '[world] latency = 5, but must be a text such as latency = "per-client"',
    ),
    "part as section": (
        "policy = 'uniform'\n[world.volatility]\nname = 'bursts'",
        "[world] volatility = {'name': 'bursts'}, but must be a text such as volatility = \"reliable\"",
    ),
    "part with a text for a number": (
        "policy = 'uniform'\n[world]\navailability = \"bernoulli(p='often')\"",
        "often",
    ),
    "part with an impossible number": (
        "policy = 'uniform'\n[world]\navailability = 'bernoulli(p=1.5)'",
        "Bernoulli: p = 1.5, but must be",
    ),
    "part without its setting": (
        "policy = 'uniform'\n[world]\navailability = 'trace'",
        "missing 1 required positional argument: 'path'; its settings are path, unit, repeat",
    ),
    "policy that needs a context": (
        "policy = 'rbcs-f'\n[world]\nname = 'volatile'",
        "RBCSF needs a context, but the latency Gamma of this world gives none; use a world with latency linear or "
        "device, such as rbcs-f or phones",
    ),
    "policy that needs a probe": ("policy = 'pow-d'", "use a policy that needs no probe, such as rpow-d"),
    "policy that needs features": (
        "policy = \"fedgs(graph='features')\"\n[world]\nname = 'e3cs'",
        "FedGS needs Clients.features, but the clients of this world have none; use a world whose clients have",
    ),
    "labels that are not there": (
        "policy = 'uniform'\n[world]\nname = 'e3cs'\navailability = 'y-cycle'",
        "YCycle: it depends on labels, but Clients.labels is None; give (K, L) label counts",
    ),
    "not TOML": (
        "policy = uniform",
        "is not TOML: Invalid value (at line 1, column 10); texts need quotes: policy =",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_the_file_what_is_wrong_and_what_to_write(mistake: str, tmp_path: Path) -> None:
    text, wanted = MISTAKES[mistake]
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert wanted in message
    assert "\n" not in message
    assert caught.value.__suppress_context__


def test_a_file_that_is_not_there_is_said_with_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    text = f'{path}: there is no such file; create it with at least policy = "e3cs(quota=0.5)"'
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        load(path)
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path)  # a folder is none either


def test_a_file_that_is_not_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"policy = '\xff\xfe'")
    with pytest.raises(ConfigError, match="is not TOML: 'utf-8' codec"):
        load(path)


def test_a_file_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "policy = 'uniform'")

    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    text = f"{path}: cannot be read (Permission denied); make it readable, or give another"
    with pytest.raises(ConfigError, match=re.escape(text)):
        load(path)


# --- traces ---


def with_trace(folder: Path, rows: str, text: str = "trace('spells.csv', unit='rounds')") -> Path:
    (folder / "spells.csv").write_text("client,start,end\n" + rows)
    return written(
        folder,
        f'policy = "uniform"\ncohort_size = 3\n[world]\nname = "ideal"\nnum_clients = 4\navailability = "{text}"',
    )


def test_a_trace_with_overlapping_spells_is_one_line_with_both_files(tmp_path: Path) -> None:
    path = with_trace(tmp_path, "2,0,10\n2,5,20\n")
    wanted = (
        f"{path}: {tmp_path / 'spells.csv'}: client 2 has overlapping intervals [0, 10) and [5, 20); join them into one"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(wanted)}$"):
        load(path)


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, "policy = 'uniform'\n[world]\navailability = \"trace('no.csv')\"")
    with pytest.raises(
        ConfigError, match=re.escape(f"{path}: {tmp_path / 'no.csv'}: there is no such trace; give a CSV")
    ):
        load(path)


@pytest.mark.parametrize("text", ["trace('spells.csv', unit='rounds')", "Trace(unit='rounds', path='./spells.csv')"])
def test_the_path_of_a_trace_is_seen_from_the_folder_of_the_file(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with_trace(folder, "2,0,10\n", text)
    config = load("../here/run.toml")
    monkeypatch.chdir(tmp_path)  # whoever builds it later may be anywhere
    record = next(Config(**json.loads(json.dumps(config.as_dict()))).build().rounds(1))
    assert record.ids.tolist() == [2]


def test_an_absolute_path_of_a_trace_stays(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    config = load(with_trace(tmp_path, "1,0,10\n", f"trace('{tmp_path / 'spells.csv'}')"))
    assert config.world["availability"] == f"trace('{tmp_path / 'spells.csv'}')"


# --- as data ---


@given(
    st.builds(
        Config,
        policy=st.sampled_from(["uniform", "e3cs(quota=0.5)", "over-select(uniform, 1.5)"]),
        cohort_size=st.integers(1, 10),
        rounds=st.integers(1, 10**6),
        seed=st.integers(0, 2**63 - 1),
        world=st.fixed_dictionaries(
            {"name": st.sampled_from(list(worlds.WORLDS))},
            optional={
                "num_clients": st.integers(10, 60),
                "deadline": st.one_of(st.just("slowest"), st.floats(0.001, 1e9)),
                "epochs": st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1)),
                "volatility": st.sampled_from(["reliable", "rates", "bursts(spell=3)"]),
            },
        ),
        checkpoint_every=st.integers(1, 1000),
    )
)
def test_a_configuration_survives_json_and_builds_the_same_run(config: Config) -> None:
    again = Config(**json.loads(json.dumps(config.as_dict())))
    assert again == config
    one, other = config.build(), again.build()
    assert (one.world.deadline, one.world.epochs, one.world.volatility) == (
        other.world.deadline,
        other.world.epochs,
        other.world.volatility,
    )
    assert again.key == config.key


def test_plain_data_is_not_the_configuration_itself() -> None:
    config = Config("uniform")
    config.as_dict()["world"]["name"] = "ideal"
    assert config.world == {"name": "volatile"}


def test_a_world_that_is_no_table_is_refused_in_python_too() -> None:
    with pytest.raises(ConfigError, match=re.escape("world = 'volatile', but must be a section: [world], then name")):
        Config("uniform", world="volatile")  # type: ignore[arg-type]


@pytest.mark.parametrize("words", ["slowest", "none", None])
def test_a_world_waits_for_the_slowest_if_it_is_told_so(words: str | None) -> None:
    assert build_world({"name": "volatile", "deadline": words}).deadline is None


def test_one_number_of_epochs_is_enough() -> None:
    assert build_world({"epochs": 3}).epochs == (3,)
    assert build_world({"epochs": [1, 2]}).epochs == (1, 2)


def test_what_a_world_does_not_say_is_as_the_named_world_has_it() -> None:
    plain, changed = worlds.named("volatile"), build_world({"name": "volatile", "availability": "always"})
    assert changed.availability == worlds.Always()
    assert (changed.latency, changed.volatility, changed.deadline) == (plain.latency, plain.volatility, plain.deadline)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_be_named(part: str) -> None:
    wants_a_file = {"trace", "replay"}
    for name in PARTS[part].keys() - wants_a_file:
        world = build_world({"name": "phones", "num_clients": 12, part: name})
        assert isinstance(getattr(world, part), PARTS[part][name])  # type: ignore[arg-type]


def test_a_replayed_matrix_of_the_wrong_width_is_said() -> None:
    with pytest.raises(FedpickError, match=re.escape("flags has shape (1, 2), but must be (T, 3)")):
        build_world({"name": "ideal", "num_clients": 3, "volatility": "replay([[1, 0]])"})


def test_errors_of_a_world_built_in_python_are_of_the_tree() -> None:
    with pytest.raises(UnknownNameError):
        build_world({"nam": "x"})
    with pytest.raises(SettingError):
        build_world({"probe_share": 2})


@given(
    part=st.sampled_from([*PARTS]),
    name=st.sampled_from(sorted({name for makers in PARTS.values() for name in makers})),
    value=st.one_of(
        st.integers(-3, 3), st.floats(), st.text(max_size=4), st.booleans(), st.none(), st.lists(st.integers(-1, 2))
    ),
)
def test_no_setting_of_a_part_brings_anything_but_an_error_of_the_tree(part: str, name: str, value: Any) -> None:
    text = f"{name}({value!r})".replace("nan", "1e999").replace("inf", "1e999")
    with suppress(FedpickError):
        assert build_world({"name": "phones", "num_clients": 6, part: text}).init(0)


@given(
    name=st.sampled_from(["uniform", "e3cs", "bsfl", "fedgs", "rbcs-f", "rpow-d", "cs-ucb", "fedcs", "over-select"]),
    value=st.one_of(st.integers(-3, 3), st.text(max_size=4), st.none(), st.lists(st.integers(-1, 2)), st.booleans()),
    at=st.integers(0, 3),
)
def test_no_setting_of_a_policy_brings_anything_but_an_error_of_the_tree(name: str, value: Any, at: int) -> None:
    arguments = ", ".join(["3"] * at + [repr(value)])
    with suppress(FedpickError):
        assert Config(f"{name}({arguments})", world={"name": "phones", "num_clients": 6}).build()


@pytest.mark.parametrize(
    ("policy", "data", "reports"),
    [
        ("fedgs", "synthetic(1, 1)", ("update_norm",)),  # its clients have features: label shares
        ("fedgs", "quadratic", ("update_norm", "embedding")),
        ("over-select(fedgs(graph='update'), 1.5)", "synthetic(1, 1)", ("update_norm", "update")),
        ("uniform", "synthetic(1, 1)", ("update_norm",)),
    ],
)
def test_the_trainer_reports_what_the_policy_uses(policy: str, data: str, reports: tuple[str, ...]) -> None:
    world = {"name": "ideal", "num_clients": 6}
    run = Config(policy, cohort_size=2, world=world, data={"name": data}).build()
    assert run.trainer is not None
    assert run.trainer.reports == reports


def test_a_part_may_depend_on_the_labels_that_the_data_brings() -> None:
    world = {"name": "ideal", "num_clients": 12, "availability": "y-cycle(beta=0.9)"}
    run = Config("uniform", 3, 5, world=world, data={"name": "digits"}).build()
    assert run.world.clients.labels is not None
    assert len(run.world.clients) == 12
    with pytest.raises(FedpickError, match=r"Clients\.labels is None"):
        Config("uniform", 3, 5, world=world).build()
