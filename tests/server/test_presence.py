"""Connected clients of a framework: names that are not unique, and newcomers that do not answer."""

import logging

import fedpick as fp
from fedpick.server.presence import Presence, Said, distinct
from fedpick.server.roster import Roster

log = logging.getLogger("test")


def test_who_shares_a_name_gets_neither_history_nor_anothers_name(caplog):
    named = [("same", 0), ("same", 1), ("node:0", 2), ("own", 3)]
    found = distinct(named, lambda node: f"node:{node}", log)
    assert found == {"node:0'": 0, "node:1": 1, "node:0": 2, "own": 3}
    assert "2 connected nodes share the identity 'same'" in caplog.text


def presence(asks=True, enrolled=()):
    roster = Roster(fp.Uniform(2))
    if enrolled:
        roster.enrol(list(enrolled), fp.Clients([1.0] * len(enrolled)))
    return Presence[int](roster, asks)


def test_each_is_asked_until_it_answers_and_three_times_at_most():
    asked, who = [], presence()

    def ask(nodes, first):
        asked.append((nodes, first))
        return {1: Said("bus", {"size": 5.0})} if len(asked) == 2 and 1 in nodes else {}

    assert who.ask([1, 2], ask) == {}
    assert who.ask([1, 2], ask) == {1: Said("bus", {"size": 5.0})}
    assert who.ask([1, 2], ask) == {1: Said("bus", {"size": 5.0}), 2: Said()}
    assert who.ask([1, 2], ask) == {1: Said("bus", {"size": 5.0}), 2: Said()}
    assert asked == [([1, 2], True), ([1, 2], True), ([2], False)]
    who.connected([1])
    assert who.ask([1, 2], lambda nodes, first: {2: Said("tram")}) == {1: Said("bus", {"size": 5.0}), 2: Said("tram")}


def test_only_newcomers_are_asked_to_describe_themselves():
    def ask(nodes, first):
        assert (nodes, first) == ([2], False)
        return {2: Said("", {"size": 7.0})}

    found = {"old": 1, "new": 2}
    assert presence(enrolled=["old"]).described(found, ask) == {"old": None, "new": {"size": 7.0}}
    assert presence(asks=False).described(found, ask) == {"old": None, "new": None}
