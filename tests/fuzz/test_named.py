"""What users and files were found to hold that ended in a traceback: each is one line now."""

import subprocess
import sys

import pytest
from findings import attacked

import fedpick as fp
from fedpick._support import devices
from fedpick.cli import main
from fedpick.experiment import worlds
from fedpick.experiment.config import Config
from fedpick.policies.text import canonical_policy
from fedpick.report import files

WORLD = {"name": "volatile", "num_clients": 12}


def play(policy="uniform", **world):
    for _ in Config(policy, 4, 3, 1, {**WORLD, **world}).build().rounds(3):
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rpow-d(schedule=0)", "rpow-d: schedule = 0, but must be a schedule or None"),
        ("e3cs(quota=" + "-" * 3000 + "1)", "cannot read "),
        ("e3cs(quota=" + "(" * 3000 + "1" + ")" * 3000 + ")", "cannot read "),
        ("e3cs(quota=b'x')", "e3cs: quota = b'x', but must be"),
        ("e3cs(max_step='x')", "e3cs: max_step = 'x', but must be a number"),
        ("size-weighted(cohort_size=99999999999999999999)", "asks 99999999999999999999 of 12 clients"),
        ("uniform({[]: 1})", "uniform: cannot read '{[]: 1}'; settings are numbers, texts or lists"),
        ("uniform({{}})", "uniform: cannot read '{{}}'; settings are"),
        (
            "uniform(cohort_size=1" + "0" * 400 + ")",
            "uniform: 1000000000000000000000000000000000000000... is too large",
        ),
        ("e3cs(quota=[1" + "0" * 400 + "])", "is too large; whole numbers go up to 1e300"),
        ("uniform(cohort_size=-1" + "0" * 400 + ")", "is too large; whole numbers"),
        ("uniform(cohort_size=1" + "0" * 5000 + ")", "cannot read the policy 'uniform(cohort_size=1000"),
        ("uniform(cohort_size=2e400)", "uniform: cohort_size = inf, but must be a whole number"),
    ],
)
def test_a_policy_s_text(text, says):
    with pytest.raises(fp.FedpickError) as error:
        play(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        ({"volatility": "bursts(spell=(1,2,3))"}, "bursts: spell = (1, 2, 3), but must be a number"),
        ({"latency": "device(cold_start=99999999999999999999)"}, "whole numbers must be below 2^63: write it as 1e20"),
        ({"latency": f"device(cold_start={2**63})"}, "Device: cold_start = 9223372036854775808, but whole numbers"),
        ({"num_clients": 10**13}, "num_clients = 10000000000000, but must be at most 100,000,000"),
        ({"volatility": "bursts(spell=" + "-" * 3000 + "1)"}, "cannot read "),
    ],
)
def test_a_world_s_text(world, says):
    with pytest.raises(fp.FedpickError) as error:
        play(**world)
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["-" * 100_012, "a-" * 50_000, "uniform(" + "~" * 100_000 + ")", ".py" * 30_000])
def test_a_long_text_is_refused_in_linear_time(text):
    with attacked("a long text"):  # it may take some seconds; an expression that is quadratic takes 100 s and more
        with pytest.raises(fp.FedpickError) as error:
            fp.policy(text)
        canonical_policy(text)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("key", ["deadline", "model_megabytes", "wait", "num_clients"])
def test_a_whole_number_of_400_digits_in_a_world(key):
    with pytest.raises(fp.ConfigError, match=rf"\[world\] {key} = 1000.*, but must be") as error:
        play(**{key: 10**400})
    assert len(str(error.value)) < 300


def test_more_clients_than_memory_are_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(worlds, "memory", lambda: 10**9)
    said = r"num_clients = 100,000,000 needs about 25 GB of memory, but there are 1 GB; write at most 4,000,000"
    with pytest.raises(fp.ConfigError, match=said):
        play(num_clients=10**8)
    play(num_clients=100)


def test_the_memory_of_a_process_is_what_limits_it():
    code = "import resource as r; r.setrlimit(r.RLIMIT_AS, (2**33,) * 2); from fedpick._support.devices import memory; print(memory())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(found.stdout) <= 2**33
    assert int(found.stdout) <= devices.memory()


@pytest.mark.parametrize("given", [{"rounds": 10**9}, {"seed": 2**63}, {"checkpoint_every": 10**12}])
def test_numbers_beyond_what_a_folder_can_name(given):
    with pytest.raises(fp.ConfigError, match="but must be"):
        Config("uniform", **given)


@pytest.mark.parametrize(
    "command",
    [["report"], ["verify"], ["resume"], ["runs"], ["run"], ["compare", "-p", "uniform", "--data", "none", "--out"]],
)
def test_a_name_of_more_than_255_bytes(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fedpick", *command, "x" * 300])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Boom", "Leaves"])
def test_a_constructor_that_raises(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "bad.py").write_text(
        "class Boom:\n    def __init__(self, cohort_size=5): raise RuntimeError('no')\n    select = 0\n"
        "class Leaves:\n    def __init__(self, cohort_size=5): raise SystemExit(3)\n    select = 0\n"
    )
    for command in (["check"], ["compare", "--data", "none", "--out", str(tmp_path / "out"), "-p"]):
        monkeypatch.setattr(sys, "argv", ["fedpick", *command, f"{tmp_path / 'bad.py'}:{name}"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert f"{'RuntimeError: no' if name == 'Boom' else 'SystemExit: 3'}" in " ".join(
            capsys.readouterr().err.split()
        )


@pytest.mark.slow  # draws a figure
def test_a_folder_s_name_with_what_looks_like_mathematics(tmp_path):
    root = tmp_path / "a$x_{$"
    results = fp.compare(["uniform", "e3cs"], data="none", rounds=3, seeds=1, out=root)
    made, missed = files.write(results, tmp_path / "b$x_{$", "results")
    assert missed == []
    assert len(made) == 5


@pytest.mark.slow  # starts a process
def test_no_control_character_of_a_name_reaches_a_terminal(tmp_path):
    hostile = "x\x1b[2J\x07\u202e"
    assert "\x1b" not in str(fp.StoreError(hostile))
    (tmp_path / hostile).mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "fedpick", "report", str(tmp_path / hostile)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "\x1b[2J" not in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
