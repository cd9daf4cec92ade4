"""Connected clients of a framework: names that are not unique, and newcomers that do not answer."""

import logging

import pytest

import fedpick as fp
from fedpick.adapters.presence import Connection, Presence, SelfDescription, distinct

log = logging.getLogger("test")


def test_who_shares_a_name_gets_neither_history_nor_anothers_name(caplog):
    named = [("same", 0), ("same", 1), ("node:0", 2), ("own", 3)]
    found = distinct(named, lambda node: f"node:{node}", log)
    assert found == {"node:0'": 0, "node:1": 1, "node:0": 2, "own": 3}
    assert "2 connected nodes share the identity 'same'" in caplog.text


def presence(asks=True, enrolled=(), identity="auto"):
    session = fp.Session(fp.Uniform(2), host=fp.server.Host("Selected", log))
    if enrolled:
        session.roster.enrol(list(enrolled), fp.Clients([1.0] * len(enrolled)))
    return Presence[int](session, asks, identity)


def test_each_is_asked_until_it_answers_and_three_times_at_most(caplog):
    asked, who = [], presence()

    def ask(nodes, first):
        asked.append((nodes, first))
        return {1: SelfDescription("bus", {"size": 5.0})} if len(asked) == 2 and 1 in nodes else {}

    assert who.ask([1, 2], ask) == {}
    assert who.ask([1, 2], ask) == {1: SelfDescription("bus", {"size": 5.0})}
    assert who.ask([1, 2], ask) == {1: SelfDescription("bus", {"size": 5.0}), 2: SelfDescription()}
    assert who.ask([1, 2], ask) == {1: SelfDescription("bus", {"size": 5.0}), 2: SelfDescription()}
    assert asked == [([1, 2], True), ([1, 2], True), ([2], False)]
    assert [record.args for record in caplog.records] == [(2, 2), (1, 2), (1, 1)]  # so many of these did not answer
    who.identified([Connection(1)], ask, "registered")  # the other is not connected any more
    assert who.ask([1, 2], lambda nodes, first: {2: SelfDescription("tram")}) == {
        1: SelfDescription("bus", {"size": 5.0}),
        2: SelfDescription("tram"),
    }


def test_only_newcomers_are_asked_to_describe_themselves():
    def ask(nodes, first):
        assert (nodes, first) == ([2], False)
        return {2: SelfDescription("", {"size": 7.0})}

    found = {"old": 1, "new": 2}
    assert presence(enrolled=["old"]).described(found, ask) == {"old": None, "new": {"size": 7.0}}
    assert presence(asks=False).described(found, ask) == {"old": None, "new": None}


def names(identity, auto="registered", said=None):
    """Identities of three connections, the second without a key, the third without a name, too."""
    found = [Connection(1, b"key", "one", "2026", "x"), Connection(2, b"", "two", "2025", "y"), Connection(3)]
    return list(presence(identity=identity).identified(found, lambda nodes, first: said or {}, auto))


def test_a_client_is_recognised_as_the_setting_says():
    key = "key:2c70e12b7a0646f92279f427c7b38e73"  # SHA-256
    assert names("registered") == names("auto") == [key, "name:two", "node:3"]
    assert names("node-id") == ["node:1", "node:2", "node:3"]
    assert names("auto", "simulation") == names("simulation") == ["partition:0", "partition:1", "partition:2"]
    assert names(lambda info: f"own {info}") == ["own x", "own y", "own None"]
    said = {1: SelfDescription("bus"), 3: SelfDescription.of("n" * 201, {})}
    assert names("reported", said=said) == ["reported:bus", "node:3"]  # the second may yet answer


def test_partitions_are_the_order_of_registration():
    found = [Connection(node, since=since) for node, since in ((1, "b"), (2, "c"), (3, "a"))]
    who = presence(identity="simulation")
    assert who.identified(found, lambda nodes, first: {}, "") == {"partition:0": 3, "partition:1": 1, "partition:2": 2}


def test_an_unknown_identity_is_told_at_once():
    with pytest.raises(fp.errors.FedpickError, match="identity of Selected"):
        presence(identity="registred")


@pytest.mark.parametrize(
    ("name", "kept"), [("bus", "bus"), ("n" * 200, "n" * 200), ("n" * 201, ""), (7, ""), (None, "")]
)
def test_a_name_that_is_no_text_or_too_long_is_ignored(name, kept):
    assert SelfDescription.of(name, {"size": 3.0, "loss": 1.0}) == SelfDescription(kept, {"size": 3.0})
