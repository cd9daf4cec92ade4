"""Which files and packages a program consists of, found by reading its source."""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick
from fedpick._support.program_files import Code, digest, is_local, read_code, version_of


@pytest.fixture
def project(tmp_path):
    def put(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__in__", "/").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return put


def names(code: Code) -> set[str]:
    return set(code.modules) - {""}


def test_imports_are_followed_through_local_files(project):
    root = project(
        main_py="import net\nfrom parts.deep import thing\nimport parts.side as s, json\n",
        net_py="def f():\n    import late\n",
        late_py="",
        unused_py="",
        parts__in____init___py="from . import given\nfrom .rel import X\n",
        parts__in__given_py="",
        parts__in__rel_py="from ..nowhere import Y\nfrom .deep.inner import Z\n",
        parts__in__side_py="",
        parts__in__alone_py="",
        parts__in__deep__in____init___py="",
        parts__in__deep__in__thing_py="import importlib\nimportlib.import_module('named')\n",
        parts__in__deep__in__inner_py="",
        named_py="",
    )
    code = read_code(root / "main.py")
    parts = {"parts", "parts.given", "parts.rel", "parts.side", "parts.deep", "parts.deep.thing", "parts.deep.inner"}
    assert names(code) == {"net", "late", "named", *parts}
    assert code.packages == {}


def test_a_folder_without_init_is_a_package(project):
    root = project(main_py="from models.net import Net\nimport models.other\n", models__in__net_py="Net = 1\n")
    assert names(read_code(root / "main.py")) == {"models.net"}


def test_circles_end(project):
    root = project(main_py="import a", a_py="import b", b_py="import a\nimport main")
    assert names(read_code(root / "main.py")) == {"a", "b", "main"}


def test_installed_packages_count_by_version_and_fedpick_and_the_library_not_at_all(project):
    root = project(main_py="import numpy as np, os, fedpick\nimport jax.numpy\nimport sklearn_is_not_there\n")
    code = read_code(root / "main.py")
    assert code.packages == {"numpy": np.__version__, "jax": version("jax")}
    assert names(code) == set()
    assert version_of("yaml") == version("PyYAML")  # whose distribution has another name


def test_nothing_is_run(project):
    root = project(main_py="import loud", loud_py="raise RuntimeError('run')", broken_py="def (")
    assert names(read_code(root / "main.py")) == {"loud"}
    assert "loud" not in sys.modules
    assert read_code(root / "broken.py").modules == {"": root / "broken.py"}


def test_a_named_module_brings_its_package(project, monkeypatch):
    root = project(pkg__in____init___py="", pkg__in__loop_py="from .net import Net", pkg__in__net_py="Net = 1")
    monkeypatch.syspath_prepend(root)
    assert names(read_code(root / "pkg" / "loop.py", "pkg.loop")) == {"pkg", "pkg.loop", "pkg.net"}


def test_files_that_are_read_are_parts_and_files_that_are_written_are_not(project, monkeypatch, tmp_path):
    root = project(
        main_py="""
DATA = "table.csv"
with open("weights.bin", "rb") as f: pass
with open("log.txt", "w") as f: pass
frame.to_csv("out.csv")
np.save("kept.npy", x)
HERE = Path(__file__).parent / "deep" / "more.json"
THERE = os.path.join(os.path.dirname(__file__), "deep", "third.json")
(Path("deep") / "written.json").write_text("...")
"a text. of two sentences", "", "none.csv"
"""
    )
    (root / "deep").mkdir()
    deep = ("deep/more.json", "deep/third.json", "deep/written.json")
    for name in ("table.csv", "weights.bin", "log.txt", "out.csv", "kept.npy", *deep):
        (root / name).write_text(name)
    found = {path.name for path in read_code(root / "main.py").data}
    assert found == {"table.csv", "weights.bin", "more.json", "third.json"}


@given(st.text(max_size=60))
def test_any_text_can_stand_in_a_source(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("any") / "main.py"
    file.write_text(f"X = {text!r}\n", encoding="utf-8", errors="surrogatepass")
    assert read_code(file).data == set()


@given(st.binary(max_size=80))
def test_any_bytes_can_be_a_source(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("any") / "main.py"
    file.write_bytes(content)
    assert read_code(file).modules[""] == file


def test_what_is_local(tmp_path):
    assert is_local(tmp_path / "x.py")
    assert not is_local(Path(np.__file__))
    assert not is_local(Path(fedpick.__file__))
    assert not is_local(Path(sys.modules["json"].__file__))
    (tmp_path / "x.py").write_text("1")
    before = digest(tmp_path / "x.py")
    (tmp_path / "x.py").write_text("2")
    assert digest(tmp_path / "x.py") != before
