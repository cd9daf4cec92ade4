"""Which changes `make mutants` makes, and which tests it gives them."""

import ast
import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import serve  # noqa: E402
from changes import Mutant, functions_of, mutants_of  # noqa: E402

spec = importlib.util.spec_from_file_location("mutants", HERE / "mutants.py")
assert spec is not None
assert spec.loader is not None
mutants = importlib.util.module_from_spec(spec)
sys.modules["mutants"] = mutants
spec.loader.exec_module(mutants)


def changes(source: str) -> set[tuple[str, str]]:
    """Kind and changed source, without the part that stays."""
    return {(each.kind, each.after) for each in mutants_of("src/fedpick/a.py", source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {("boundary", "(a <= b)"), ("comparison turned", "(a >= b)")}),
        ("a is None", {("comparison turned", "(a is not None)")}),
        ("a + b", {("arithmetic", "(a - b)")}),
        ("'x' + b", {("text", "'x_'")}),  # a text cannot be subtracted
        ("a and b and c", {("last operand dropped", "(a and b)"), ("and/or", "(a or b or c)")}),
        ("not a", {("not removed", "(a)")}),
        ("a if b else c", {("condition ignored", "(a)"), ("condition ignored", "(c)")}),
        ("0.1", {("constant", "0.2"), ("constant", "0.05")}),
        ("True", {("constant", "False")}),
        ("f(x, y)", {("arguments swapped", "(f(y, x))")}),
        ("f(x, k=y)", {("keyword dropped", "(f(x))")}),
        ("a['two words']", set()),
        ("f'{x + 1}'", set()),
        ("ValueError('x', 3)", set()),
        ("int | None", set()),
    ],
)
def test_an_expression_is_changed_at_each_place_but_for_its_wording(
    source: str, expected: set[tuple[str, str]]
) -> None:
    assert changes(f"z = {source}") == expected


def test_statements_are_removed_and_defaults_changed() -> None:
    source = '''
def f(x: int = 3, y: int | None = None) -> int:
    """Words."""
    if x:
        raise ValueError(x + 1)
    if y:
        return y
    g()
    return x
'''
    assert changes(source) == {
        *[("constant", "4"), ("constant", "2"), ("None", "1")],
        *[("raise removed", "pass"), ("return removed", "pass"), ("call removed", "pass")],
    }


def test_what_a_module_exports_is_wording() -> None:
    assert changes("__all__ = ['a']\n__all__ += ['b', 'c']") == set()


def test_what_is_changed_is_where_it_was_also_after_letters_of_several_bytes() -> None:
    source = '"""ä"""\nx = "ö", 1 < 2\n'.encode()
    (boundary,) = (each for each in mutants_of("a.py", source) if each.kind == "boundary")
    assert boundary.applied(source).decode() == '"""ä"""\nx = "ö", (1 <= 2)\n'
    assert (boundary.line, boundary.before) == (2, "1 < 2")


def test_mutants_of_a_real_module_are_programs_other_than_it_with_names_of_their_own() -> None:
    source = Path(mutants.ROOT, "src/fedpick/policies/oort.py").read_bytes()
    found, tree = mutants_of("src/fedpick/policies/oort.py", source), ast.dump(ast.parse(source))
    assert len(found) > 50
    assert len({each.name for each in found}) == len(found)
    assert all(ast.dump(ast.parse(each.applied(source))) != tree for each in found)


def test_a_name_stays_when_the_function_moves() -> None:
    source = b"def f(x):\n    return x < 1 or x < 1\n"
    first = mutants_of("a.py", source)
    assert [each.name for each in mutants_of("a.py", b"import os\n\n" + source)] == [each.name for each in first]


def test_a_line_belongs_to_the_innermost_function() -> None:
    source = b"a = 1\nclass C:\n    b = 2\n    def f(\n  self):\n        def g():\n            x\n        return g\n"
    assert functions_of(source) == {6: "C.f", 7: "C.f.g", 8: "C.f"}


def compiled(source: str) -> CodeType:
    return compile(source, "a.py", "exec")


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("def f():\n    return 1\n", "def f():\n    return 2\n", ["f"]),
        ("def f():\n    return (1 <\n        2)\ndef g(): pass", "def f():\n    return 1 <= 2\ndef g(): pass", ["f"]),
        ("class C:\n    def f(self):\n        return 1", "class C:\n    def f(self):\n        return 2", ["C.f"]),
        ("def f():\n    return lambda: 1", "def f():\n    return lambda: 2", ["f", "f.<locals>.<lambda>"]),
        ("a = 1", "a = 2", None),
        ("a = 1", "a = True", None),
        ("def f(a=1): pass", "def f(a=2): pass", None),
        ("class C:\n    a = 1", "class C:\n    a = 2", None),
        ("@g(1)\ndef f(): pass", "@g(2)\ndef f(): pass", None),
        ("def f(a):\n    def g():\n        return a", "def f(a):\n    def g():\n        return 1", None),  # no closure
    ],
)
def test_what_is_inside_functions_is_patched_and_else_the_module_imported(
    before: str, after: str, names: list[str] | None
) -> None:
    found = serve.replaced(compiled(before), compiled(after))
    assert (None if found is None else [code.co_qualname for code in found]) == names


def test_a_patched_function_is_changed_wherever_it_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = "def f():\n    return 1\n\nclass C:\n    g = staticmethod(f)\n"
    (tmp_path / "a.py").write_text(source)
    space: dict[str, Any] = {}
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    exec(serve.compiled(source, "a.py"), space)
    kept = space["f"], space["C"].g
    gc.collect()
    serve.patch({"path": "a.py", "before": source, "after": source.replace("1", "2")})
    gc.unfreeze()
    assert [each() for each in kept] == [2, 2]


def test_processes_that_a_test_starts_have_the_mutant(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("X = 1\n")
    request = {"path": str(tmp_path / "a.py"), "after": "X = 2\n", "way": "import", "native": True}
    request["tests"] = {}

    def played() -> dict[str, Any]:
        serve.prepare(request)
        path = os.pathsep.join([str(HERE), str(tmp_path)])
        command = [sys.executable, "-c", "import a; print(a.X)"]
        env = {**os.environ, "PYTHONPATH": path}
        said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        return {"said": said, "numba": os.environ["NUMBA_CACHE_DIR"]}

    found = serve.supervised(played, 60.0)
    assert found["said"] == "2\n"
    assert found["numba"] != os.environ.get("NUMBA_CACHE_DIR")
    assert "FEDPICK_MUTANTS_CHANGE" not in os.environ


def test_endless_and_ending_work_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> dict[str, Any]:
        while True:
            pass

    assert serve.supervised(lambda: {"result": "passed", "cut": 0}, 5.0)["result"] == "passed"
    assert serve.supervised(lambda: {}["x"], 5.0)["by"].startswith("the process: KeyError")
    assert serve.supervised(endless, 0.2)["by"] == "time"


def test_a_statement_is_its_own_lines_without_those_inside() -> None:
    path = "tests/mutants/changes.py"
    lines = mutants.text(path).splitlines()
    (here,) = (at for at, line in enumerate(lines, 1) if line.startswith("ALIKE = "))
    assert mutants.statement(path, here) == {here}
    (here,) = (at for at, line in enumerate(lines, 1) if line.startswith("def everything"))
    assert mutants.statement(path, here) == {here}


def test_files_of_tests_named_after_the_module_come_first_then_those_that_say_its_names() -> None:
    suite = mutants.Suite.__new__(mutants.Suite)
    named, home, other, beyond = (
        f"tests/{name}.py" for name in ("policies/test_oort", "policies/test_e3cs", "fuzz/test_named", "docs/test_site")
    )
    suite.files = {name: [] for name in (beyond, other, home, named)}
    mutant = Mutant("src/fedpick/policies/oort.py", "Oort.select", 1, "constant", "1", "2", 0, 1)
    assert suite.near(mutant) == [named]
    assert suite.far(mutant)[0] == home
    assert beyond not in suite.far(mutant)


def test_the_rate_leaves_out_what_was_judged_to_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "judged.toml").write_text('[[same]]\nname = "b"\nwhy = "only faster"\n')
    monkeypatch.setattr(mutants, "HERE", tmp_path)
    line = {
        "room": "core",
        "path": "a.py",
        "line": 1,
        "function": "f",
        "kind": "k",
        "before": "1",
        "after": "2",
        "stage": 1,
    }
    results = {"a": "killed", "b": "survived", "c": "survived", "d": "killed", "e": "killed"}
    lines = {name: {**line, "name": name, "result": result} for name, result in results.items()}
    *listed, _, core, total = mutants.report(lines)
    assert [each.split()[:2] for each in listed] == [["same:", "b"], ["survived:", "c"]]
    assert core.split() == ["core", "3", "1", "1", "75.0%", "30.1%", "to", "95.4%"]
    assert total.split()[1:] == core.split()[1:]


@pytest.mark.parametrize(
    ("unchanged", "killed"),
    [
        ({"result": "passed"}, True),
        ({"result": "failed", "by": "tests/a.py::test_b"}, True),  # not endless, at least
        ({"result": "failed", "by": "time"}, False),
    ],
)
def test_tests_that_do_not_end_kill_only_what_they_end_without(unchanged: dict[str, Any], killed: bool) -> None:
    class Asked(mutants.Player):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def ask(self, mutant: Any, way: str, tests: Any, **more: Any) -> dict[str, Any]:
            self.asked.append((tests, more))
            return unchanged

    player = Asked()
    tests = {"tests/a.py": None}
    assert player.confirmed(None, "import", tests, "time") is killed
    assert player.asked == [(tests, {"after": None})]


def test_a_process_in_which_jax_has_begun_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", begun)
    with pytest.raises(AssertionError, match="uses JAX while it is imported"):
        serve.forkable()


def test_what_numba_compiles_is_found_whatever_its_decorator_is_called() -> None:
    source = """
_inner = partial(Native, nogil=True)

@native
def a(): ...

@_inner
def b(): ...

def c(): ...
d = native(c)

@cache
def e(): ...
"""
    assert mutants.native_functions(source) == {"a", "b", "c"}
    assert "train_clients" in mutants.native_functions(mutants.text("src/fedpick/learn/jax/loops.py"))
