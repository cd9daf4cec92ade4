"""The public surface: what is exported, and that nothing of the core needs an extra."""

import ast
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys
import types

import pytest

import fedpick as fp

CONTRACT = (
    "Clients View Choice Outcome Status policy checks admit retire OverSelect sampling solvers graph rng "
    "Uniform SizeWeighted FedCS PowerOfChoice ActiveFL E3CS CSUCB BSFL RBCSF FedGS Genie FixedProbabilities "
    "Oort MinSeparation Clustered DivFL TiFL F3AST REFL OptimalSampling HiCS FedCor GreedyFed SFedAvg Guard "
    "Updates Trainer check_policy data learn DataError"
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
    if name.startswith("fedpick.learn.torch."):
        pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` imports it")
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


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after this."""
    found = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return set(found.stdout.split())


def test_import_fedpick_loads_nothing_heavy_until_it_is_used():
    heavy = {"numpy", "scipy", "numba", "jax", "pyarrow", "fedpick.policies", "fedpick.worlds", "fedpick.core.state"}
    assert not heavy & loaded_after("import fedpick; fedpick.__version__")
    assert not heavy - {"numpy"} & loaded_after("import fedpick; fedpick.Clients([1.0]); fedpick.errors; fedpick.rng")


def test_worlds_need_neither_numba_nor_scipy():
    assert not {"scipy", "numba"} & loaded_after("import fedpick as fp; fp.worlds.named('volatile').init(0)")


def test_listing_policies_needs_neither_numba_nor_scipy():
    listing = "import sys; sys.argv = ['fedpick', 'policies']; import fedpick as fp, fedpick.cli; fp.E3CS(3); "
    try_it = "try: fedpick.cli.main()\nexcept SystemExit: pass"
    assert not {"scipy", "numba"} & loaded_after(f"{listing}\n{try_it}")


@pytest.mark.slow
def test_scipys_graphs_are_loaded_for_fedgs_alone():
    assert "scipy.sparse" not in loaded_after("import fedpick as fp; list(fp.Run(fp.E3CS(5), fp.World()).rounds(2))")
    assert "scipy.sparse.csgraph" in loaded_after("import fedpick as fp; fp.Run(fp.FedGS(5), fp.World())")


def test_every_lazy_name_stands_where_type_checkers_are_told():
    """The tables that are used at run time, against the imports under TYPE_CHECKING."""
    tree = ast.parse(pathlib.Path(fp.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert told.pop("*") == "fedpick.policies"
    assert all(alias.asname in (None, alias.name) for node in imports for alias in node.names)
    rooms = {name for name, module in told.items() if module in ("fedpick", "fedpick.core")}
    assert rooms == set(fp._SHOWN)
    assert {name: f"fedpick.{room}" for name, room in fp._WHERE.items()} == {
        name: module for name, module in told.items() if name not in rooms
    }
    assert set(fp.__all__) == {*fp._SHOWN, *fp._WHERE, *fp.policies.TABLE, "__version__"}
    assert set(fp.__all__) <= set(dir(fp))


@pytest.mark.slow
def test_every_room_can_be_reached_in_a_fresh_interpreter():
    code = "import fedpick as fp\nfor name in fp._ROOMS: assert getattr(fp, name).__name__.endswith(f'.{name}')"
    loaded_after(code)


def test_every_room_can_be_reached_and_an_unknown_name_is_an_attribute_error():
    for name in fp._ROOMS:
        assert fp.__getattr__(name).__name__.endswith(f".{name}")
    for name in ("E4CS", "e3cs", "world", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'fedpick' has no attribute '{name}'"):
            getattr(fp, name)


def test_the_library_never_prints():
    for path in pathlib.Path(fp.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*print\(", path.read_text(), flags=re.M), path


def test_no_module_stands_loose_at_the_top():
    root = pathlib.Path(fp.__file__).parent
    assert {path.name for path in root.iterdir() if path.is_file()} == {
        *("__init__.py", "__main__.py", "_version.py", "py.typed")
    }
