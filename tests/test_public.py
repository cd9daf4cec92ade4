"""The public surface: what is exported, and that nothing of the core needs an extra."""

import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import fedpick as fp

CONTRACT = (
    "Clients View Choice Outcome Status policy checks admit retire OverSelect sampling solvers graph theory rng "
    "Uniform SizeWeighted FedCS PowerOfChoice ActiveFL E3CS CSUCB BSFL RBCSF FedGS Genie FixedProbabilities"
)


def modules():
    return [m.name for m in pkgutil.walk_packages(fp.__path__, "fedpick.")]


def test_the_contract_s_names_are_there_and_listed():
    assert set(CONTRACT.split()) <= set(fp.__all__)
    for name in fp.__all__:
        assert getattr(fp, name) is not None


@pytest.mark.parametrize("name", modules())
def test_every_module_lists_what_it_offers_or_is_private(name):
    module = importlib.import_module(name)
    for offered in getattr(module, "__all__", []):
        assert hasattr(module, offered), f"{name}.__all__ names {offered}, which is not there"
    assert module.__doc__, f"{name} does not say what it is for"


def test_the_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+", fp.__version__)


def test_the_core_imports_without_any_extra():
    code = """
import sys
extras = 'jax optax flwr nvflare typer rich matplotlib pandas pyarrow jinja2'.split()
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in extras:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import fedpick
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_library_never_prints():
    import pathlib

    for path in pathlib.Path(fp.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*print\(", path.read_text(), flags=re.M), path
