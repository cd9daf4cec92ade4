"""Label counts: who may read them, what they cost, and how clients tell them to a server."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies import TABLE
from fedpick.policies.text import example
from zoo import zoo

pytest.importorskip("pyarrow")  # the core alone has no runs

COUNTS = np.random.default_rng(0).integers(1, 20, (12, 5))


def fleet(labels=COUNTS):
    parts = {"availability": fp.worlds.Always(), "volatility": fp.worlds.Reliable()}
    return fp.World(fp.Clients(np.ones(12), labels), model_megabytes=1.0, deadline=None, **parts)


@pytest.mark.parametrize("name", zoo(3))
def test_only_policies_that_declare_it_read_labels(name):
    """Each plays with others' counts as with its own, unless it declares that it reads them."""
    policy = zoo(3)[name]
    chosen = []
    for labels in (COUNTS, COUNTS[::-1]):
        rng = np.random.default_rng(1)
        clients = fp.Clients(np.arange(1.0, 13.0), labels, rng.dirichlet(np.ones(4), 12))
        state = policy.init(clients)
        for t in range(1, 7):
            losses, there = rng.random(12), rng.random(12) < 0.7
            seen = fp.View(
                t,
                there,
                clients,
                context=np.ones((12, fp.traits(policy).context or 3)),
                probe=lambda ids, batch=None, losses=losses: losses[ids],
                norms=lambda ids, losses=losses: losses[ids],
            )
            choice = policy.select(state, seen, fp.rng.stream(0, t, "policy"))
            chosen.append(choice.ids.tolist())
            ids = np.unique(choice.ids)
            reports = {
                spec.name: np.tile(losses[ids, None], spec.width or 5) if spec.width != 0 else losses[ids]
                for spec in fp.traits(policy).reports
            }
            told = fp.Outcome(np.zeros(len(ids), int), 1.0 + losses[ids], losses[ids], reports)
            state = policy.observe(state, seen, fp.Choice(ids), told)
    assert (chosen[:6] != chosen[6:]) == ("labels" in fp.traits(policy).needs)


def test_a_world_without_labels_is_refused():
    need = [each for each in TABLE.values() if "labels" in fp.traits(example(each, 3, np.full(12, 0.5))).needs]
    assert {fp.FLIPS, fp.FedCBS, fp.FedLECC} <= set(need)
    for listed in need:
        with pytest.raises(
            fp.MissingError, match=rf"{listed.__name__} needs Clients\.labels, the label counts of each"
        ):
            fp.Run(listed(3), fleet(None), 0)


@pytest.mark.parametrize("policy", [fp.FLIPS(3, stragglers=False), fp.FedCBS(3), fp.Uniform(3)])
def test_the_counts_are_charged_once_four_bytes_each(policy):
    plain = [record.megabytes for record in fp.Run(fp.Uniform(3), fleet(), 0).rounds(3)]
    found = [record.megabytes for record in fp.Run(policy, fleet(), 0).rounds(3)]
    extra = 0.0 if isinstance(policy, fp.Uniform) else 4e-6 * 12 * 5
    np.testing.assert_allclose(np.subtract(found, plain), [extra, 0.0, 0.0], atol=1e-12)


def names_with(counts):
    return {f"c{i}": {"size": float(each.sum()), "labels": each.tolist()} for i, each in enumerate(counts)}


def test_clients_tell_a_session_their_counts_which_survive_a_restart(tmp_path):
    pytest.importorskip("filelock")
    chosen = []
    for rounds in ([4], [1, 1, 1, 1]):
        ids, folder = [], tmp_path / str(len(rounds))
        for count in rounds:
            with fp.Session(fp.FLIPS(3), state=folder) as session:
                for _ in range(count):
                    with session.round(names_with(COUNTS)) as round:
                        for name in round.chosen:
                            round.done(name, loss=1.0, seconds=1.0)
                    ids.append(sorted(round.chosen))
        assert session.roster.clients.labels.tolist() == COUNTS.tolist()
        chosen.append(ids)
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    "told", [{"size": 5.0}, {"size": 5.0, "labels": [1, -2]}, {"size": 5.0, "labels": [np.nan, 1]}, {"labels": "many"}]
)
def test_a_session_that_is_told_no_counts_refuses_the_policy(told):
    with (
        fp.Session(fp.FedCBS(2)) as session,
        pytest.raises(fp.MissingError, match="the policy needs labels, but none of 2 clients gave any"),
        session.round({"ada": told, "bob": None}),
    ):
        pass


def test_a_client_that_tells_none_or_others_is_enrolled_all_the_same(caplog):
    with fp.Session(fp.FedCBS(2)) as session:
        told = {
            "ada": {"size": 3, "labels": [1, 2]},
            "bob": {"size": 2, "labels": [1, 1]},
            "cyd": {"labels": [1, 2, 3]},
        }
        with session.round({**told, "dan": 7}) as round:
            for name in round.chosen:
                round.done(name, loss=1.0)
        assert session.roster.clients.labels.tolist() == [[1, 2], [1, 1], [0, 0], [0, 0]]
    assert "ignored the 3 labels of a newcomer: other clients have 2" in caplog.text
