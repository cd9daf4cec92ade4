"""What a policy learned belongs to its settings: a state, and each entry of a journal, say which they were."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest

import fedpick as fp
from fedpick._support import user_code
from fedpick.core import schedules
from fedpick.core.state import settings_hash

NAMES = ["ada", "bob", "cyd", "dan"]


def serve(policy, folder, rounds=3, every=50):
    with fp.Session(policy, state=folder, limits=fp.server.Limits(checkpoint_every=every)) as session:
        for _ in range(rounds):
            with session.round(available=NAMES) as r:
                for at, name in enumerate(r.chosen):
                    _ = r.done(name, loss=0.5, seconds=1.0) if at else r.failed(name)
    return session


@pytest.mark.parametrize("every", [1, 50])  # with and without a journal
def test_other_settings_on_an_old_state_are_refused_and_it_is_said_what_to_do(tmp_path, every):
    serve(fp.E3CS(2, quota=0.3), tmp_path, every=every)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    says = r"was learned with E3CS\(.*quota=0\.3.*but the policy is E3CS\(.*quota=0\.9.*Start the server with the"
    with pytest.raises(fp.StateError, match=says):
        fp.Session(fp.E3CS(2, quota=0.9), state=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert fp.Session(fp.E3CS(cohort_size=2, quota=0.3), state=tmp_path).round_number == 3


def test_a_journal_of_other_settings_is_refused(tmp_path):
    serve(fp.E3CS(2, quota=0.3), tmp_path / "one")
    serve(fp.E3CS(2, quota=0.9), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "journal", tmp_path / "one" / "journal")
    with pytest.raises(fp.StateError, match=r"journal: was learned with other settings or code"):
        fp.Session(fp.E3CS(2, quota=0.3), state=tmp_path / "one")


@dataclass(frozen=True)
class Mine:
    """A policy of the user's own."""

    cohort_size: int = 2
    table: object = None


def test_settings_are_told_apart_by_value_and_not_by_where_they_are_in_memory():
    def same(one, other):
        return settings_hash(one) == settings_hash(other)

    assert same(fp.OverSelect(fp.E3CS(2, quota=0.3), 1.5), fp.OverSelect(fp.E3CS(2, quota=0.3), 1.5))
    assert not same(fp.OverSelect(fp.E3CS(2, quota=0.3), 1.5), fp.OverSelect(fp.E3CS(2, quota=0.4), 1.5))
    assert not same(fp.E3CS(2), fp.Uniform(2))
    assert same(Mine(table=np.arange(3)), Mine(table=np.arange(3)))
    assert not same(Mine(table=np.arange(3)), Mine(table=np.arange(4)))
    assert not same(Mine(table=np.zeros(3)), Mine(table=np.zeros(3, np.float32)))
    assert same(Mine(table={"b": 1, "a": object()}), Mine(table={"a": object(), "b": 1.0}))
    halving = [fp.PowerOfChoice(2, schedule=schedules.Halving(100, every=n)) for n in (5, 5, 6)]
    assert same(*halving[:2])
    assert not same(*halving[1:])


def test_the_code_of_a_user_s_own_policy_is_among_its_settings(tmp_path):
    file, hashes = tmp_path / "mine.py", []
    for body in ("return 1", "return 2"):
        file.write_text(f"class Mine:\n    cohort_size = 2\n    def select(self): {body}\n")
        hashes.append(settings_hash(user_code.load(f"{file}:Mine")()))
    assert hashes[0] != hashes[1]
