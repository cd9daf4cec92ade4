"""The public surface: what is exported, and that nothing of the core needs an extra."""

import importlib
import pkgutil
import re
import subprocess
import sys
import types

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


def private(name):
    return any(part.startswith("_") for part in name.split("."))


def complaints(module):
    """What is wrong with a module's docstring and list of public names."""
    name, found = module.__name__, []
    if not module.__doc__:
        found.append(f"{name} has no docstring")
    if not private(name) and not hasattr(module, "__all__"):
        found.append(f"{name} has no __all__: list its public names, or begin its own name with _")
    missing = [offered for offered in getattr(module, "__all__", []) if not hasattr(module, offered)]
    found += [f"{name}.__all__ names {offered}, which is not there" for offered in missing]
    return found


@pytest.mark.parametrize("name", modules())
def test_every_module_lists_what_it_offers_or_is_private(name):
    assert complaints(importlib.import_module(name)) == []


def test_a_module_without_a_list_of_public_names_is_noticed():
    module = types.ModuleType("fedpick.policies.mine", "A policy.")
    assert complaints(module) == [
        "fedpick.policies.mine has no __all__: list its public names, or begin its own name with _"
    ]
    module.__all__ = ["Mine"]
    assert complaints(module) == ["fedpick.policies.mine.__all__ names Mine, which is not there"]
    assert complaints(types.ModuleType("fedpick.policies._mine")) == ["fedpick.policies._mine has no docstring"]


def test_the_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+", fp.__version__)


def test_the_core_imports_without_any_extra():
    code = """
import sys
import types
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
