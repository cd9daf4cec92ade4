"""Things of the user's own, by name."""

import os
import textwrap

import pytest

import fedpick as fp
from fedpick._support import user_code
from fedpick.core.errors import UnknownNameError
from fedpick.policies.text import canonical_policy

POLICY = """
from dataclasses import dataclass

import fedpick as fp


@dataclass(frozen=True)
class Mine(fp.Uniform):
    eps: float = 0.5


READY = Mine(3)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(POLICY))
    return path


def test_a_policy_of_a_file_is_made_like_a_built_in(file):
    made = fp.policy(f"{file}:Mine(eps=0.1)", cohort_size=4)
    assert (type(made).__name__, made.cohort_size, made.eps) == ("Mine", 4, 0.1)
    assert fp.checks.check_policy(made)


def test_it_goes_into_a_wrapper_and_keeps_its_settings(file):
    made = fp.policy(f"over-select({file}:Mine(eps=0.1), 1.5)", cohort_size=4)
    assert (made.asks, made.policy.eps, made.policy.cohort_size) == (6, 0.1, 4)


def test_one_that_is_made_already_takes_no_settings(file):
    assert fp.policy(f"{file}:READY").cohort_size == 3
    with pytest.raises(fp.SettingError, match="is already an object"):
        fp.policy(f"{file}:READY(eps=0.1)")


def test_a_module_is_named_by_its_dots(file, monkeypatch):
    monkeypatch.syspath_prepend(file.parent)
    assert fp.policy("mine:Mine", cohort_size=2).cohort_size == 2
    assert user_code.fingerprint("mine:Mine") == user_code.fingerprint(f"{file}:Mine")


def test_a_file_that_changed_is_imported_anew(file):
    before = user_code.fingerprint(f"{file}:Mine")
    assert user_code.load(f"{file}:Mine").eps == 0.5
    file.write_text(POLICY.replace("0.5", "0.7"))
    assert user_code.fingerprint(f"{file}:Mine") != before
    assert user_code.load(f"{file}:Mine").eps == 0.7


def test_what_stands_beside_a_file_can_be_imported_and_the_path_is_left_as_it_was(tmp_path):
    import sys

    (tmp_path / "beside_it.py").write_text("VALUE = 41\n")
    (tmp_path / "main.py").write_text("from beside_it import VALUE\nANSWER = VALUE + 1\n")
    before = list(sys.path)
    assert user_code.load(f"{tmp_path / 'main.py'}:ANSWER") == 42
    assert sys.path == before


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("none.py:X", "there is no file 'none.py'"),
        ("no_such_module_at_all:X", "there is no module 'no_such_module_at_all'"),
        ("fedpick.core.rng:strem", "did you mean 'stream'?"),
    ],
)
def test_a_name_that_leads_nowhere_says_so(reference, says):
    with pytest.raises(fp.FedpickError, match=says):
        user_code.load(reference)


@pytest.mark.parametrize("body", ["class\n", "import no_such_thing\n", "raise SystemExit(3)\n", "1 / 0\n"])
def test_a_file_that_cannot_be_imported_is_one_line(tmp_path, body):
    (tmp_path / "bad.py").write_text(body)
    with pytest.raises(fp.ConfigError, match="cannot be imported"):
        user_code.load(f"{tmp_path / 'bad.py'}:X")


def test_a_file_that_lacks_an_extra_says_which(tmp_path):
    (tmp_path / "net.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    with pytest.raises(fp.ConfigError, match=r"No module named 'torch': pip install 'fedpick\[torch\]'$"):
        user_code.load(f"{tmp_path / 'net.py'}:Net")


def test_naming_imports_nothing(tmp_path):
    file = tmp_path / "loud.py"
    file.write_text("raise RuntimeError('imported')\n")
    text = f"over-select({file}:Mine(eps=.1),1.3)"
    assert user_code.references(text) == [f"{file}:Mine"]
    assert canonical_policy(text) == f"over-select({file}:Mine(eps=0.1), 1.3)"
    assert user_code.fingerprint(f"{file}:Mine")


def test_paths_are_seen_from_the_folder_of_the_file_that_names_them(tmp_path):
    moved = user_code.moved("over-select(rules/eps.py:Eps, 1.3)", tmp_path)
    assert moved == f"over-select({tmp_path}/rules/eps.py:Eps, 1.3)"
    assert user_code.moved(f"{tmp_path}/a.py:B", tmp_path / "x") == f"{tmp_path}/a.py:B"
    assert user_code.moved("package.module:B(text='c.py:D')", tmp_path) == "package.module:B(text='c.py:D')"


@pytest.mark.parametrize(
    "text",
    [
        "over-select(uniform,1.3)",
        "OverSelect( Uniform , 1.30)",
        "over_select(uniform(), 1.3)",
        "over-select(uniform, factor=1.3)",
    ],
)
def test_ways_to_write_a_policy_are_one(text):
    wanted = "over-select(uniform, factor=1.3)" if "factor" in text else "over-select(uniform, 1.3)"
    assert canonical_policy(text) == wanted
    assert canonical_policy(canonical_policy(text)) == canonical_policy(text)


def test_settings_have_no_order():
    assert canonical_policy("e3cs(sampler='pivotal', quota=.5)") == canonical_policy(
        'e3cs(quota=0.5,sampler="pivotal")'
    )


def test_an_installed_package_offers_policies_that_are_loaded_when_they_are_named(monkeypatch):
    from fedpick.policies import text

    loaded = []

    class Entry:
        name, value = "theirs", "their.package:Theirs"

        def load(self):
            loaded.append(self.name)
            return fp.Uniform

    monkeypatch.setattr(text, "entry_points", lambda group: [Entry()] if group == "fedpick.policies" else [])
    assert fp.policy("uniform", cohort_size=2)
    assert loaded == []
    assert fp.policy("theirs", cohort_size=2) == fp.Uniform(2)
    assert fp.policy("over-select(theirs, 1.5)", cohort_size=2).policy == fp.Uniform(2)
    assert text.find_policy("Theirs") is fp.Uniform
    assert set(loaded) == {"theirs"}


def test_packages_are_looked_through_again_only_if_some_were_installed(monkeypatch, tmp_path):
    from fedpick.policies import text

    looked = []
    monkeypatch.setattr(text, "entry_points", lambda group: looked.append(group) or [])
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        with pytest.raises(UnknownNameError, match="unknown policy 'theirs'"):
            fp.policy("theirs", cohort_size=2)
    assert len(looked) == 1
    text.installed_policies()["mine"] = None  # the caller's own copy
    assert text.installed_policies() == {}
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    os.utime(tmp_path, ns=(1, 1))  # in case the clock of the file system is coarse
    text.installed_policies()
    assert len(looked) == 2
