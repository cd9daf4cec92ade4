"""Results belong to the code that ran: every local file, data file and package version is a part of a run's key."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from fedpick._support import user_code
from fedpick.experiment import Experiment
from fedpick.experiment.code import Reader, code_of

LOOP = """
import numpy as np
from fedpick.core.types import Updates
from {net} import GAIN

class Trainer:
    def __init__(self, data, reports=()):
        self.data, self.reports = data, tuple(reports)
    def init(self, seed):
        return np.zeros(3)
    def probe(self, model, ids, batch, rng):
        return np.ones(len(ids))
    def train(self, model, ids, used, epochs, round, rng):
        return Updates(np.where(used, 1.0, np.nan))
    def aggregate(self, model, choice, outcome, updates):
        return model + GAIN
    def evaluate(self, model, round):
        return {{"accuracy": float(model[0]) / 100}}
"""


@pytest.fixture
def loop(tmp_path):
    """A trainer of the user's own, whose model is in a second file."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "loop.py").write_text(LOOP.format(net="net"))
    (folder / "net.py").write_text("GAIN = 1.0\n")
    return folder / "loop.py"


def compare(out, trainer, policies=("uniform",), **more):
    settings = {"world": "ideal(num_clients=8)", "cohort_size": 2, "seeds": 2, "rounds": 5, "executor": "serial"}
    return fp.compare(list(policies), data="synthetic(1, 1)", train={"trainer": trainer}, out=out, **(settings | more))


def accuracy(results):
    return results.frame()["accuracy"].tolist()


def test_a_module_that_a_named_file_imports_is_a_part_of_the_run(loop, tmp_path):
    assert accuracy(compare(tmp_path / "out", f"{loop}:Trainer")) == [0.05, 0.05]
    (loop.parent / "net.py").write_text("GAIN = 2.0\n")  # the same size, perhaps in the same second
    assert accuracy(compare(tmp_path / "out", f"{loop}:Trainer")) == [0.1, 0.1]
    (loop.parent / "net.py").write_text("GAIN = 1.0\n")
    again = compare(tmp_path / "out", f"{loop}:Trainer", tell=lambda *_: pytest.fail("it was run again"))
    assert accuracy(again) == [0.05, 0.05]


def test_what_changed_deep_below_is_seen_in_a_process_that_imported_it_before(loop, tmp_path):
    (loop.parent / "net.py").write_text("from deep import GAIN\n")
    (loop.parent / "deep.py").write_text("GAIN = 3.0\n")
    assert user_code.load(f"{loop}:Trainer")(None).aggregate(0, *"xyz") == 3.0
    (loop.parent / "deep.py").write_text("GAIN = 4.0\n")
    assert user_code.load(f"{loop}:Trainer")(None).aggregate(0, *"xyz") == 4.0


def test_modules_of_one_name_in_two_folders_do_not_meet(loop, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "loop.py").write_text(LOOP.format(net="net"))
    (other / "net.py").write_text("GAIN = 7.0\n")
    assert user_code.load(f"{loop}:Trainer")(None).aggregate(0, *"xyz") == 1.0
    assert user_code.load(f"{other}/loop.py:Trainer")(None).aggregate(0, *"xyz") == 7.0
    assert user_code.load(f"{loop}:Trainer")(None).aggregate(0, *"xyz") == 1.0


def test_a_module_by_its_dots_is_imported_anew_where_it_changed(tmp_path, monkeypatch):
    (tmp_path / "pkg_here").mkdir()
    (tmp_path / "pkg_here" / "__init__.py").write_text("")
    (tmp_path / "pkg_here" / "loop.py").write_text("from .net import GAIN\n")
    (tmp_path / "pkg_here" / "net.py").write_text("GAIN = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert user_code.load("pkg_here.loop:GAIN") == 1
    before = user_code.fingerprint("pkg_here.loop:GAIN")
    (tmp_path / "pkg_here" / "net.py").write_text("GAIN = 2\n")
    assert user_code.load("pkg_here.loop:GAIN") == 2
    assert user_code.differences(before, user_code.fingerprint("pkg_here.loop:GAIN")) == ["net.py has changed"]


def test_a_package_counts_by_its_version(loop, monkeypatch):
    before = user_code.fingerprint(f"{loop}:Trainer")
    monkeypatch.setattr("fedpick._support.program_files.version_of", lambda name: "99.0")
    after = user_code.fingerprint(f"{loop}:Trainer")
    assert user_code.differences(before, after) == [f"numpy was {np.__version__} and is 99.0"]


def test_a_data_file_is_a_part_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def keys():
        plan = Experiment("uniform", data={"name": "mine.npz"}, world="ideal", cohort_size=1, seeds=1, rounds=1)
        return [config.key for config in plan.configs()]

    x, y = np.zeros((8, 2), np.float32), np.arange(8) % 2
    np.savez("mine.npz", x=x, y=y, client=np.arange(8) // 2)
    before = keys()
    assert keys() == before
    np.savez("mine.npz", x=x + 1, y=y, client=np.arange(8) // 2)
    assert keys() != before


def test_a_trace_and_a_file_in_a_policys_settings_are_parts_of_the_run(tmp_path):
    (tmp_path / "away.csv").write_text("1")
    read = Reader().read(["volatile", f"trace('{tmp_path}/away.csv')", "uniform", "e3cs(sampler='pivotal')"])
    assert list(read) == [f"{tmp_path}/away.csv"]
    assert read[f"{tmp_path}/away.csv"].startswith("away.csv ")


def test_a_comparison_is_not_continued_with_other_code(loop, tmp_path):
    from typer.testing import CliRunner

    from fedpick.cli.app import app

    compare(tmp_path / "out", f"{loop}:Trainer")
    (loop.parent / "net.py").write_text("GAIN = 2.0\n")
    command = ["resume", str(tmp_path / "out"), "--own", f"{loop}:Trainer", "--rounds", "6"]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, fp.errors.ChangedError)
    assert "loop.py:Trainer: net.py has changed since this plan was made" in str(refused.exception)
    compare(tmp_path / "out", f"{loop}:Trainer")  # now there is a plan with the new code, too: that one goes on
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "a plan is not continued: loop.py:Trainer: net.py has changed" in " ".join(done.output.split())
    reached = [json.loads(p.read_text())["config"]["rounds"] for p in (tmp_path / "out").glob("runs/*/manifest.json")]
    assert sorted(reached) == [5, 5, 6, 6]


def test_on_another_machine_a_run_has_all_files_of_its_code(loop, tmp_path):
    from fedpick.experiment.executors import node

    (loop.parent / "net.py").write_text("from parts.deep import GAIN\nTABLE = 'table.csv'\n")
    (loop.parent / "parts").mkdir()
    (loop.parent / "parts" / "__init__.py").write_text("")
    (loop.parent / "parts" / "deep.py").write_text("GAIN = 5.0\n")
    (loop.parent / "table.csv").write_text("1,2")
    sent = user_code.sources([f"{loop}:Trainer"])
    assert set(sent) == {"loop.py", "net.py", "parts/__init__.py", "parts/deep.py", "table.csv"}
    node.unpack(tmp_path / "there", sent)
    assert user_code.load(f"{tmp_path}/there/loop.py:Trainer")(None).aggregate(0, *"xyz") == 5.0
    other = tmp_path / "other"
    other.mkdir()
    (other / "eps.py").write_text("import net\n")
    (other / "net.py").write_text("")
    with pytest.raises(fp.ConfigError, match="another file of this name is used in the same run"):
        user_code.sources([f"{loop}:Trainer", f"{other}/eps.py:Eps"])


# --- Objects -----------------------------------------------------------------------------------------------------


def test_a_federated_object_trains_with_the_librarys_trainer(tmp_path):
    people = fp.data.Synthetic(1.0, 1.0)(12, fp.rng.stream(0, 0, "data"))
    results = fp.compare(
        ["uniform", "e3cs"], data=people, world="ideal", cohort_size=3, seeds=2, rounds=10, out=tmp_path,
        train={"lr": 0.1}, executor="serial",
    )  # fmt: skip
    assert results.frame()["accuracy"].between(0.05, 1).all()
    assert results.frame()["num_clients"].unique().tolist() == [12]


@pytest.fixture
def my_loop(loop, monkeypatch):
    """The same trainer, imported as a module by the user."""
    monkeypatch.syspath_prepend(loop.parent)
    for name in ("loop", "net"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    yield importlib.import_module("loop")
    for name in ("loop", "net"):
        sys.modules.pop(name, None)


def test_a_trainer_is_a_class_a_function_or_an_object(my_loop, tmp_path):
    def factory(data):
        return my_loop.Trainer(data)

    people = fp.data.Synthetic(1.0, 1.0)(8, fp.rng.stream(0, 0, "data"))
    forms = [my_loop.Trainer, partial(my_loop.Trainer, reports=()), factory, my_loop.Trainer(people)]
    for i, trainer in enumerate(forms):
        results = compare(tmp_path / f"{i}", trainer)
        assert accuracy(results) == [0.05, 0.05]
        assert results.runs[0].train.startswith(("trainer='Trainer", "trainer='factory"))
    assert compare(tmp_path / "text", f"{my_loop.__file__}:Trainer").runs[0].train == "trainer='loop.py:Trainer'"
    both = compare(tmp_path / "all", forms[0], seeds=1)
    assert len(both.runs) == 1


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"trainer": 3}, "trainer = 3, but must be a text such as"),
        ({"trainer": print, "lr": 0.1}, "lr beside a trainer of your own, which has its own settings"),
        ({"trainer": dict}, "dict: has no method init"),
        ({"trainer": lambda data: 1 / 0}, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_trainer_is_refused(train, says, tmp_path):
    with pytest.raises(fp.ConfigError, match=says):
        fp.compare("uniform", data="synthetic(1, 1)", train=train, world="ideal", out=tmp_path, seeds=1, rounds=1)


def test_the_code_of_an_object_is_that_of_its_file_and_of_what_it_imports(my_loop):
    said = code_of(my_loop.Trainer)
    assert said == user_code.fingerprint(f"{my_loop.__file__}:Trainer")
    assert code_of(my_loop.Trainer(None)) == code_of(partial(my_loop.Trainer, reports=())) == said
    (Path(my_loop.__file__).parent / "net.py").write_text("GAIN = 9.0\n")
    assert user_code.differences(said, code_of(my_loop.Trainer)) == ["net.py has changed"]
    assert code_of(fp.E3CS(5)) == code_of(fp.OverSelect(fp.E3CS(5), 1.3)) == code_of(print) == ""


def test_the_code_of_what_a_policy_wraps_counts():
    @dataclass(frozen=True)
    class Mine(fp.Uniform):
        pass

    assert "test_code.py" in code_of(fp.OverSelect(Mine(5), 1.3))
    assert "test_code.py" in code_of(fp.World(fp.Clients(np.ones(3)), latency=_Slow()))


@dataclass(frozen=True)
class _Slow(fp.worlds.PerClient):
    """A part of a world."""

    seconds: float = 1.0


def test_a_file_that_changed_after_its_import_is_refused(my_loop):
    file = Path(my_loop.__file__)
    file.write_text(file.read_text().replace("model + GAIN", "model - GAIN"))
    with pytest.raises(fp.ConfigError, match=r"has changed since this process imported it \(Trainer.aggregate\)"):
        code_of(my_loop.Trainer)
    os.utime(file, (0, 0))  # Python itself takes a file of the same second and size for unchanged
    importlib.reload(my_loop)
    assert code_of(my_loop.Trainer)
    file.write_text(file.read_text() + "\n# a remark, and code that the class does not use\nX = 1\n")
    assert code_of(my_loop.Trainer)


SCRIPT = """
import fedpick as fp
import net
from dataclasses import dataclass
from fedpick.experiment.code import code_of

LIMIT = {limit}
UNUSED = {unused}

def helper(x):
    return x + {step}

@dataclass(frozen=True)
class Mine(fp.Uniform):
    def select(self, state, view, rng):
        helper(LIMIT)
        return super().select(state, view, net.GAIN)

print(code_of(Mine))
"""


def test_of_a_script_only_what_the_class_uses_counts(loop):
    def said(limit=1, unused=1, step=1):
        script = loop.parent / "script.py"
        script.write_text(SCRIPT.format(limit=limit, unused=unused, step=step))
        return subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout

    first = said()
    assert said(unused=2) == first
    changes = [said(limit=2), said(step=2)]
    (loop.parent / "net.py").write_text("GAIN = 2.0\n")
    assert len({first, *changes, said()}) == 4


def test_the_folder_of_a_run_with_other_code_says_what_changed(loop, tmp_path):
    from fedpick.experiment import Config
    from fedpick.store import Tables

    def configured():
        train = {"trainer": f"{loop}:Trainer"}
        return Config("uniform", 2, 3, data={"name": "synthetic(1, 1)"}, train=train).as_dict()

    Tables(tmp_path / "run", configured()).close()
    (loop.parent / "net.py").write_text("GAIN = 2.0\n")
    with pytest.raises(fp.StoreError, match=r"seed 0; loop.py:Trainer: net.py has changed\); choose another folder"):
        Tables(tmp_path / "run", configured())
