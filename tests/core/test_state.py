"""States: saved and loaded without loss, refused when they do not fit, grown and shrunk with the clients."""

import json
import math
import zipfile
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.core import schedules
from fedpick.core.state import pack, settings_hash, state_fields, unpack
from fedpick.experiment.identity import policy_text
from zoo import outcome, view, zoo

CLIENTS = fp.Clients(
    np.arange(1.0, 13.0),
    np.random.default_rng(2).integers(0, 9, (12, 4)),
    np.random.default_rng(1).dirichlet(np.ones(4), 12),
)


def played(policy, rounds=4, clients=CLIENTS):
    state = policy.init(clients)
    for round in range(1, rounds + 1):
        context = {"context": np.full((len(clients), fp.traits(policy).context or 3), 1.0)}
        seen = view(clients, round, **context)
        choice = policy.select(state, seen, fp.rng.stream(0, round, "policy"))
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(round)))
    return state


@pytest.mark.parametrize("name", zoo(3))
def test_saving_and_loading_gives_the_same_state(name, tmp_path):
    policy = zoo(3)[name]
    state = played(policy)
    fp.save_state(policy, state, tmp_path / "state.npz", round=4)
    loaded, notes = fp.load_state(policy, tmp_path / "state.npz", CLIENTS)
    assert notes == {"round": 4}
    assert type(loaded) is type(state)
    for (name_a, _, a), (name_b, _, b) in zip(state_fields(state), state_fields(loaded), strict=True):
        assert name_a == name_b
        assert type(a) is type(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", zoo(3))
def test_every_policy_refuses_a_state_for_another_number_of_clients(name, tmp_path):
    policy = zoo(3)[name]
    fp.save_state(policy, played(policy), tmp_path / "state.npz")
    fewer = CLIENTS.take(np.arange(9))
    with pytest.raises(fp.StateError, match=r"is for 12 clients, but 9 are enrolled.*fp\.admit or fp\.retire"):
        fp.load_state(policy, tmp_path / "state.npz", fewer)


def test_the_file_is_npz_and_json_without_pickle(tmp_path):
    fp.save_state(fp.BSFL(3), played(fp.BSFL(3)), tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz", allow_pickle=False) as arrays:
        assert arrays["speed.counts"].sum() == 12
    with zipfile.ZipFile(tmp_path / "state.npz") as archive:
        meta = json.loads(archive.read("fedpick.json"))
    assert (meta["format"], meta["policy"], meta["clients"]) == (1, "BSFL", 12)


@given(cut=st.integers(0, 400))
def test_a_truncated_file_is_refused_and_left_as_it_was(cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "state.npz"
    fp.save_state(fp.E3CS(3), played(fp.E3CS(3)), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut * 4, len(whole) - 1)])
    before = path.read_bytes()
    with pytest.raises(fp.StateError, match="not a complete fedpick state"):
        fp.load_state(fp.E3CS(3), path, CLIENTS)
    assert path.read_bytes() == before


def test_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "state.npz"
    fp.save_state(fp.E3CS(3), played(fp.E3CS(3)), path)
    raw = bytearray(path.read_bytes())
    at = raw.find(b"NUMPY") + 150  # inside the first array
    raw[at] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(fp.StateError, match="not a complete fedpick state"):
        fp.load_state(fp.E3CS(3), path, CLIENTS)


@pytest.mark.parametrize(
    ("saved", "loading", "says"),
    [
        (fp.E3CS(3), fp.BSFL(3), "holds the state of E3CS, but the policy is BSFL"),
        (fp.OverSelect(fp.E3CS(3)), fp.E3CS(3), r"holds the state of OverSelect\(E3CS\), but the policy is E3CS"),
        (
            fp.FedCS(3, success=CLIENTS.sizes),
            fp.FedCS(deadline=1, theta=np.ones((12, 3))),
            "has field 'known' as float64 of",
        ),
    ],
)
def test_a_foreign_state_is_refused(saved, loading, says, tmp_path):
    fp.save_state(saved, played(saved), tmp_path / "s.npz")
    with pytest.raises(fp.StateError, match=says):
        fp.load_state(loading, tmp_path / "s.npz", CLIENTS)


def test_a_state_of_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpick.core.state.FORMAT", 2)
    fp.save_state(fp.E3CS(3), played(fp.E3CS(3)), tmp_path / "s.npz")
    monkeypatch.undo()
    with pytest.raises(fp.StateError, match=r"state format 2, but this is fedpick .* reads format 1"):
        fp.load_state(fp.E3CS(3), tmp_path / "s.npz", CLIENTS)


def test_fields_that_are_missing_or_too_many_are_named(tmp_path):
    @dataclass
    class Small:
        a: np.ndarray

    @dataclass
    class Large:
        a: np.ndarray
        b: np.ndarray

    @dataclass(frozen=True)
    class Either:
        kind: type
        cohort_size: int = 1

        def init(self, clients):
            return self.kind(*[np.zeros(len(clients))] * len(self.kind.__dataclass_fields__))

    fp.save_state(Either(Small), Either(Small).init(CLIENTS), tmp_path / "s.npz")
    with pytest.raises(fp.StateError, match="has no field 'b', which the policy needs"):
        fp.load_state(Either(Large), tmp_path / "s.npz", CLIENTS)
    fp.save_state(Either(Large), Either(Large).init(CLIENTS), tmp_path / "l.npz")
    with pytest.raises(fp.StateError, match="has fields that the policy does not: b"):
        fp.load_state(Either(Small), tmp_path / "l.npz", CLIENTS)


def test_no_file_says_how_to_start(tmp_path):
    with pytest.raises(fp.StateError, match=r"there is no such file; start anew with policy\.init"):
        fp.load_state(fp.E3CS(3), tmp_path / "none.npz", CLIENTS)


def test_a_failed_save_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "s.npz"
    fp.save_state(fp.E3CS(3), played(fp.E3CS(3)), path)
    before = path.read_bytes()
    bad = fp.E3CS(3).init(CLIENTS)
    bad.eta = object()  # cannot be written without pickle
    with pytest.raises(ValueError, match="allow_pickle"):
        fp.save_state(fp.E3CS(3), bad, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s.npz"]


@pytest.mark.parametrize("name", zoo(3))
def test_admit_keeps_the_old_and_appends_what_init_gives(name):
    policy = zoo(3)[name]
    state = played(policy)
    if hasattr(policy, "before_admit"):
        state = policy.before_admit(state)
    old = {name: np.array(value, copy=True) for name, _, value in state_fields(state)}
    newcomers = CLIENTS.take([0, 1, 2, 3])
    fresh = {name: np.asarray(value) for name, _, value in state_fields(policy.init(newcomers))}
    for field, kind, value in state_fields(fp.admit(policy, state, newcomers)):
        array = np.asarray(value)
        if kind == "shared":
            np.testing.assert_array_equal(array, old[field])
        elif kind == "pairs":
            assert array.shape == ((16, 16) if old[field].size else (0, 0))
            np.testing.assert_array_equal(array[:12, :12], old[field])
            assert np.isnan(array[12:]).all()
        else:
            np.testing.assert_allclose(array[:12], old[field], rtol=1e-12, atol=1e-12)  # shifted twice: rounding
            if fresh[field].shape[1:] == old[field].shape[1:]:
                np.testing.assert_array_equal(array[12:], fresh[field])
            else:
                assert np.isnan(array[12:]).all()


@pytest.mark.parametrize("name", zoo(3))
def test_retire_keeps_the_named_clients_in_order(name):
    policy = zoo(3)[name]
    state = played(policy)
    old = {name: np.array(value, copy=True) for name, _, value in state_fields(state)}
    keep = np.array([7, 0, 3])
    for field, kind, value in state_fields(fp.retire(policy, state, keep)):
        expected = old[field]
        if kind == "client":
            expected = expected[keep]
        elif kind == "pairs" and expected.size:
            expected = expected[keep][:, keep]
        np.testing.assert_array_equal(np.asarray(value), expected)


def test_retire_takes_a_mask_too():
    policy = fp.Uniform(2)
    state = played(policy)
    mask = np.arange(12) % 2 == 0
    np.testing.assert_array_equal(fp.retire(policy, state, mask).counts, state.counts[::2])


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ([0, 0], "names a client twice"),
        ([12], "names client 12, but the state has clients 0 to 11"),
        ([0.5], "float64"),
    ],
)
def test_retire_refuses_nonsense(keep, says):
    policy = fp.Uniform(2)
    with pytest.raises(fp.ContractError, match=says):
        fp.retire(policy, policy.init(CLIENTS), keep)


# --- a state is used up once observe was given it ---


@dataclass
class Mixed:
    floats: np.ndarray
    signed: np.ndarray
    unsigned: np.ndarray
    flags: np.ndarray
    names: np.ndarray
    sizes: np.ndarray
    settings: np.ndarray
    frozen: np.ndarray


@dataclass(frozen=True, eq=False)
class Sharing:
    """Its first state holds arrays of the clients and of its own settings."""

    cohort_size: int
    table: np.ndarray

    def init(self, clients):
        frozen = np.ones(2)
        frozen.flags.writeable = False
        return Mixed(
            np.ones(2, np.float32),
            np.ones(2, np.int8),
            np.ones(2, np.uint16),
            np.array([True, False]),
            np.array(["a", "b"]),
            clients.sizes,
            self.table,
            frozen,
        )

    def observe(self, state, view, choice, outcome):
        return state


def test_a_used_up_state_is_spoiled_but_for_what_is_not_its_own():
    clients, policy = fp.Clients([1.0, 2.0]), Sharing(1, np.array([5.0, 6.0]))
    old, none = policy.init(clients), np.empty(0)
    view = fp.View(1, np.ones(2, bool), clients)
    new = fp.state.observe(policy, old, view, fp.Choice([]), fp.Outcome([], none, none), spoil=True)
    assert np.isnan(old.floats).all()
    assert old.signed.tolist() == [-128, -128]
    assert old.unsigned.tolist() == [65535, 65535]
    assert old.flags.tolist() == [False, True]
    assert clients.sizes.tolist() == [1.0, 2.0]
    assert policy.table.tolist() == [5.0, 6.0]
    for entry in fields(Mixed):
        np.testing.assert_array_equal(getattr(new, entry.name), getattr(policy.init(clients), entry.name))


@pytest.mark.parametrize("name", zoo(5))
def test_every_policy_learns_the_same_whether_or_not_its_old_states_are_spoiled(name):
    def play(spoil):
        policy, draw = zoo(5)[name], np.random.default_rng(1)
        clients = fp.Clients(draw.integers(1, 9, 12), draw.integers(0, 9, (12, 3)), draw.dirichlet(np.ones(3), 12))
        state = policy.init(clients)
        for round in range(1, 6):
            seen = view(clients, round, context=np.full((12, fp.traits(policy).context or 3), 1.0))
            choice = policy.select(state, seen, fp.rng.stream(2, round, "policy"))
            state = fp.state.observe(policy, state, seen, choice, outcome(choice, draw), spoil=spoil)
        return fp.state.pack(state)

    spoiled = play(True)
    for field, value in play(False).items():
        np.testing.assert_array_equal(spoiled[field], value)


@pytest.mark.parametrize(("switch", "spoiled"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_switch_is_an_environment_variable(switch, spoiled, monkeypatch):
    monkeypatch.delenv("FEDPICK_DEBUG", raising=False)
    if switch is not None:
        monkeypatch.setenv("FEDPICK_DEBUG", switch)
    policy, clients = fp.Uniform(1), fp.Clients([1.0, 2.0])
    old = policy.init(clients)
    choice = fp.Choice([0])
    fp.state.observe(policy, old, view(clients), choice, outcome(choice, np.random.default_rng(0)))
    assert (old.counts.min() < 0) == spoiled


USERS = {"__name__": "mine"}
exec("def graph(clients): return clients\nfalls = lambda t: 1 / t", USERS)

# Written before any module had moved. States on disk and the keys of run folders contain such hashes.
HASHES = [
    (fp.Uniform(2), "dc7d9ce61955c12f"),
    (fp.SizeWeighted(2, replace=False), "47c558323a7502e1"),
    (fp.FixedProbabilities(1, [0.2, 0.8]), "95ca35738875292f"),
    (fp.E3CS(5, quota=0.3), "bea9b6f9e4922221"),
    (fp.E3CS(5, quota=schedules.Linear(0.0, 1.0, 100)), "6789b9e01f3ca5e7"),
    (fp.E3CS(5, quota=schedules.Step(0.2, 0.8, 10)), "e86b179e2c835665"),
    (fp.OverSelect(fp.E3CS(2, quota=0.3), 1.5), "c01b080ccef87b56"),
    (fp.Guard(fp.OverSelect(fp.Oort(4), 1.3)), "7569c27bd7011d86"),
    (fp.PowerOfChoice(2, schedule=schedules.Halving(100, every=5)), "0dc321c7d995945a"),
    (fp.RBCSF(3, exploration=math.sqrt), "15c0599b88d92356"),
    (fp.RBCSF(3, exploration=USERS["falls"]), "89df854516bd2c76"),
    (fp.FedGS(2, graph=USERS["graph"]), "3d9cce4087ba1595"),
    (fp.FedGS(2, graph=np.eye(3)), "3e6c118fb7c4388a"),
    (fp.FedCS(2, success=[0.1, 0.9]), "0d32891aa66a0e3f"),
    (fp.BSFL(3), "1ba5371f4f46078d"),
    (fp.CSUCB(3), "eff920778f83db41"),
    (fp.GreedyFed(3), "ec12f0ef537c9ef9"),
    (fp.MinSeparation(3), "898754711130cb47"),
    (fp.SFedAvg(3), "5f8819c00213163b"),
    (fp.TiFL(3), "96b446e23688b746"),
    (fp.REFL(3), "25b77926966f094a"),
    (fp.OptimalSampling(3), "8dcab22dd58f7d6c"),
    (fp.HiCS(3), "dd395791e17a00c6"),
    (fp.FedCor(3), "67395f2e429cbb23"),
    (fp.F3AST(3), "3b743a9f48ee5617"),
    (fp.DivFL(3), "0f875e6a2f2183aa"),
    (fp.Clustered(3), "c233a977b999ab6e"),
    (fp.ActiveFL(3), "4875443dd11f06a9"),
    (fp.Guard(fp.E3CS(5)), "e5f0d8236276d677"),  # of before it had `weight`
]


@pytest.mark.parametrize(("policy", "expected"), HASHES)
def test_a_hash_of_settings_never_changes(policy, expected):
    assert settings_hash(policy) == expected


def test_a_setting_that_was_added_is_in_the_hash_where_it_is_not_the_default():
    assert settings_hash(fp.Guard(fp.E3CS(5), weight=1.5)) == settings_hash(fp.Guard(fp.E3CS(5)))
    assert len({settings_hash(fp.Guard(fp.E3CS(5), weight=each)) for each in (1.5, 2.0, None)}) == 3


def test_the_texts_of_policies_in_run_keys_never_change():
    texts = [policy_text(partial(fp.E3CS, quota=schedules.Linear(0.0, 1.0, 100))), policy_text(HASHES[13][0])]
    assert texts == ["E3CS#1c3bc3", "FedCS#6a6367"]


def test_a_module_that_moves_changes_no_hash(monkeypatch):
    policy = fp.OverSelect(fp.E3CS(2, quota=schedules.Step(0.2, 0.8, 10)), 1.5)
    before = settings_hash(policy)
    for kind, module in ((fp.E3CS, "fedpick.policies.bandits"), (schedules.Step, "fedpick.core.schedules")):
        monkeypatch.setattr(kind, "__module__", module)
    assert settings_hash(policy) == before


def test_a_new_policy_is_hashed_by_its_name():
    new = type("New", (fp.Uniform,), {"__module__": "fedpick.policies.new"})
    before = settings_hash(new(2))
    new.__module__ = "fedpick.policies.renamed"
    assert settings_hash(new(2)) == before != settings_hash(fp.Uniform(2))


def test_a_state_of_an_earlier_version_gets_the_fields_that_it_lacks(tmp_path):
    """BSFL's state has `untimed` since 0.3."""
    policy, clients = fp.OverSelect(fp.Guard(fp.BSFL(2)), 1.5), fp.Clients([10, 20, 30])
    state = policy.init(clients)
    arrays = {name: np.asarray(value) for name, value in pack(state).items()}
    lacking = {name: value for name, value in arrays.items() if not name.endswith("untimed")}
    assert len(lacking) == len(arrays) - 1
    loaded = unpack(state, lacking, 3, "a file:")
    assert loaded.inner.speed.untimed.tolist() == [0, 0, 0]
    with pytest.raises(fp.StateError, match=r"has no field 'inner\.speed\.counts', which the policy needs"):
        unpack(state, {name: v for name, v in arrays.items() if not name.endswith("counts")}, 3, "a file:")
