"""PyTorch models as users give them: from the command line and Python, without JAX, and with mistakes."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` runs this")

import torch
from networks import Cnn, Mlp, data_of, trainer_of
from torch import nn

import fedpick as fp
from fedpick.core.errors import FedpickError

ROOT = Path(__file__).parents[2]
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden=8, dropout=0.2):
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, 10),
        )

    def forward(self, x):
        return self.body(x)

class Needs(Net):
    def __init__(self, hidden):
        super().__init__(hidden)

class Nothing(nn.Module):
    def forward(self, x):
        return x.log()

class Lost(Net):
    def forward(self, x):
        return super().forward(x) / 0.0 - super().forward(x) / 0.0

class Narrow(Net):
    def forward(self, x):
        return super().forward(x)[:, :7]

class Pair(Net):
    def forward(self, x):
        return super().forward(x), x

class Large(Net):
    def forward(self, x):
        return super().forward(torch.cat([x, x], dim=1))

class Broken(Net):
    def __init__(self):
        raise ZeroDivisionError("no")

def loss(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.1)

def mean_loss(outputs, y):
    return nn.functional.cross_entropy(outputs, y)

number = 3
made = Net()
"""

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "optax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def run(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(code)
    command = [sys.executable, "program.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


COMPARE = ["compare", "-p", "uniform", "-p", "power-of-choice", "--data", "digits", "-k", "20", "-m", "4"]


def test_the_command_line_compares_without_jax_and_continues(folder: Path) -> None:
    """In this process: nothing imports JAX, and JAX cannot be imported; more rounds continue the runs."""
    program = BLOCK + "from fedpick.cli import main\nmain()"
    options = [*COMPARE, "--model", "net.py:Net(hidden=6)", "--seeds", "1", "--workers", "1", "--out", "out"]
    for rounds in ("10", "20"):
        done = run(folder, program, *options, "--rounds", rounds)
        assert done.returncode == 0, done.stderr
    frame = fp.load(folder / "out").frame()
    assert len(frame) == 2
    assert (frame["accuracy"] > 0.2).all()


def test_processes_give_the_same_files(folder: Path) -> None:
    code = BLOCK + (
        "import fedpick as fp\n"
        "if __name__ == '__main__':\n"
        "    for how in ('serial', 'processes', 'stacked'):\n"
        "        fp.compare(['uniform', 'e3cs'], data='digits', model='net.py:Net', cohort_size=4, seeds=1,\n"
        "                   rounds=10, world={'num_clients': 20}, out=how, executor=how, workers=2)\n"
    )
    done = run(folder, code)
    assert done.returncode == 0, done.stderr
    frames = [fp.load(folder / how).frame() for how in ("serial", "processes", "stacked")]
    numbers = [frame.select_dtypes("number").to_numpy() for frame in frames]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    np.testing.assert_array_equal(numbers[0], numbers[2])


def test_python_takes_a_class_and_a_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects, whose code is a part of the runs' key: they are not taken for each other."""
    monkeypatch.chdir(folder)
    settings: dict[str, Any] = {"data": "digits", "cohort_size": 4, "seeds": 1, "rounds": 10, "out": "out"}
    settings |= {"world": {"num_clients": 20}, "executor": "serial"}

    def smooth(outputs: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.1)

    def net() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    results = [
        fp.compare("uniform", model=net, **settings),
        fp.compare("uniform", model=net, train={"loss": smooth}, **settings),
        fp.compare("uniform", model=net(), **settings),
        fp.compare("uniform", model="net.py:made", train={"loss": "net.py:loss"}, **settings),
    ]
    accuracies = [float(each.frame()["accuracy"].iloc[0]) for each in results]
    assert len(list((folder / "out" / "runs").iterdir())) == 4
    assert min(accuracies) > 0.2


def own_lines(*sources: str) -> int:
    """Lines of a user's program, without those that are empty or of docstrings."""
    count = 0
    for source in sources:
        documented = [
            node.body[0]
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
        ]
        words = {line for each in documented for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
        count += sum(bool(line.strip()) and n not in words for n, line in enumerate(source.splitlines(), 1))
    return count


def without(source: str, *names: str) -> str:
    """A program without these functions, and without imports that only they need."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", "") not in names]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = source.splitlines()
    for node in ast.parse(source).body:
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        unused = is_import and not used & {each.asname or each.name.split(".")[0] for each in node.names}
        if getattr(node, "name", "") in names or unused:
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines)


@pytest.mark.parametrize("data", ["mine.py:data", "clients.py:sites", "clients.py:partitions"])
def test_the_trial(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command on the page with fewer rounds: own module, policy and data, six policies; 25 lines at most."""
    from fedpick import cli

    folder = ROOT / "examples" / "pytorch"
    mine, clients = ((folder / name).read_text() for name in ("mine.py", "clients.py"))
    text = (ROOT / "docs" / "pytorch.md").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^    fedpick (compare .*mine\.py:Net)$", text, flags=re.MULTILINE)
    if data == "mine.py:data":
        lines = own_lines(mine)
    else:
        pytest.importorskip("flwr_datasets")
        others = [name for name in ("sites", "partitions") if name not in data]
        lines = own_lines(without(mine, "data")) + own_lines(without(clients, *others)) - 1  # one import of fedpick
        command = re.sub(r"mine\.py:data --partition \"[^\"]*\"", data, command)
    assert lines <= 25
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command.replace("examples/", f"{ROOT}/examples/"))
    assert f"{folder}/{data}" in arguments
    options = ["-t", "10", "-s", "1", "-k", "20", "-m", "3", "--workers", "1", "--out", "out"]
    monkeypatch.setattr(sys, "argv", ["fedpick", *arguments, *options])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    frame = fp.load(tmp_path / "out").frame()
    assert len(frame) == 6
    assert frame["accuracy"].notna().all()
    assert (tmp_path / "out" / "results.png").exists()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("Needs", "net.py:Needs: missing 1 required positional argument: 'hidden'; its settings are hidden"),
        (
            "number",
            "is int, but must be a fedpick.learn.Model (for JAX: return Model(init, apply)) or a torch.nn.Module",
        ),
        ("Nothing", "the model 'net.py:Nothing' has no parameters to train; use layers such as nn.Linear"),
        ("Lost", "the model 'net.py:Lost' gives NaN for the first inputs of digits before any training"),
        ("Narrow", "gives outputs of shape (2, 7) for 2 inputs, but digits has 10 labels: it must give (2, 10)"),
        ("Pair", "the model 'net.py:Pair': forward returns tuple, but must return a tensor of outputs"),
        (
            "Large",
            "cannot take the inputs of digits, of shape (8, 8, 1), given as (1, 8, 8) (channels first): RuntimeError",
        ),
        ("Broken", "net.py:Broken: ZeroDivisionError: no"),
    ],
)
def test_a_mistake_in_a_model_is_one_sentence(
    model: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedpick import cli

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["fedpick", *COMPARE, "--model", f"net.py:{model}", "--rounds", "2"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert says in printed
    assert "Traceback" not in printed


def mean_loss(outputs: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(outputs, y)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"place": "cuda"}, "place = 'cuda', but PyTorch finds 0 such GPUs here; use place = 'cpu', or install"),
        ({"place": "tpu"}, "place = 'tpu', but must be 'cpu', 'cuda' or 'cuda:1'"),
        ({"form": "vmap"}, "form = 'vmap', but a PyTorch model has only the form 'auto'"),
        ({"loss": mean_loss}, "the loss 'mean_loss' gives shape () for 2 examples, but must give a loss for each"),
        ({"loss": lambda outputs: outputs}, "the loss '<lambda>' cannot take outputs of shape (2, 4) and targets of"),
        ({"loss": "mine"}, "loss = 'mine', but must be a function (outputs, targets) -> losses, or None"),
        ({"optimizer": "lion"}, "unknown optimiser of the clients 'lion'"),
        ({"clip": 0.0}, "Trainer: clip = 0.0, but must be > 0, or None"),
        ({"server": object()}, "but a PyTorch model takes a text such as 'fedadam(lr=0.01)'"),
        ({"server": "fedsgd"}, "unknown server optimiser 'fedsgd'"),
    ],
)
def test_a_mistake_in_a_setting_is_one_sentence(
    settings: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(FedpickError) as caught:
        trainer_of("floats", lambda: Mlp((6,), 4), **settings)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Cnn, "cannot be made: ValueError: not enough values to unpack"),
        (lambda hidden: nn.Linear(6, hidden), "needs hidden: give a function that makes it, such as functools.partial"),
        (lambda: 3, "is int, but must be a fedpick.learn.Model (for JAX"),
        (7, "the model 7 is int, but must be a fedpick.learn.Model (for JAX"),
    ],
)
def test_what_is_no_module_in_python(model: Any, says: str) -> None:
    with pytest.raises(FedpickError) as caught:
        trainer_of("floats", model)
    assert says in str(caught.value)


def test_settings_of_pytorch_are_refused_for_a_model_of_jax() -> None:
    for settings in ({"loss": mean_loss}, {"clip": 1.0}, {"optimizer": "adam"}, {"place": "cuda"}):
        with pytest.raises(FedpickError, match="which only PyTorch models have, but 'linear 6-4' is trained with JAX"):
            trainer_of("floats", fp.learn.logistic((6,), 4), **settings)
    trainer = trainer_of("floats", fp.learn.logistic((6,), 4))
    model = trainer.init(0)
    with pytest.raises(FedpickError, match=r"is JAX's, and has no torch\.nn\.Module"):
        trainer.module(model)


def test_an_old_pytorch_is_one_sentence() -> None:
    from fedpick.learn.torch import check_version

    check_version("2.4.0+cpu")
    with pytest.raises(FedpickError, match=r"PyTorch 2\.3\.1 is installed, but fedpick needs 2\.4 or newer"):
        check_version("2.3.1")


def test_a_run_says_what_it_computed_on() -> None:
    assert trainer_of("floats", Mlp).computes_on == "cpu"
    assert data_of("floats").dataset.classes == 4
