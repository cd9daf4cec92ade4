"""The connected clients of a framework: one name for each connection, and the newcomers' descriptions of themselves."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from fedpick.core.errors import unknown_name
from fedpick.server.session import Session

__all__ = ["Connection", "Identity", "Presence", "SelfDescription", "distinct"]

MOST_TIMES = 3  # requests for a description to a client that does not answer
LONGEST_NAME = 200  # characters
Node = TypeVar("Node")  # a framework's name of a connection, such as Flower's node id
Identity = Callable[[Any], str]  # a framework's description of a connection -> a name that stays when it reconnects


class Connection(NamedTuple, Generic[Node]):
    """A connection, as a framework knows it."""

    node: Node
    key: bytes = b""  # its authenticated public key
    name: str = ""  # that it was registered with
    since: str = ""  # when it was registered
    info: Any = None  # the framework's description of it

    @property
    def registered(self) -> str:
        """Its key, else its name, else its node id."""
        if self.key:
            return "key:" + hashlib.sha256(self.key).hexdigest()[:32]
        return f"name:{self.name}" if self.name else self.node_id

    @property
    def node_id(self) -> str:
        """The node id alone."""
        return f"node:{self.node}"


IDENTITIES = ("auto", "simulation", "reported", "registered", "node-id")


class SelfDescription(NamedTuple):
    """A client's description of itself: its name, size, features and labels, not validated yet."""

    name: str = ""
    about: dict[str, Any] | None = None

    @classmethod
    def of(cls, name: Any, metrics: Mapping[str, Any]) -> Self:
        """The description in a client's message; a name that is no text, or a long one, is ignored."""
        good = isinstance(name, str) and len(name) <= LONGEST_NAME
        return cls(
            name if good else "", {key: metrics[key] for key in ("size", "features", "labels") if key in metrics}
        )


# (connections, whether no client has ever answered) -> the descriptions that came
Ask = Callable[[list[Node], bool], dict[Node, SelfDescription]]


def distinct(
    named: Sequence[tuple[str, Node]], otherwise: Callable[[Node], str], log: logging.Logger
) -> dict[str, Node]:
    """name -> connection; connections that share a name get the name that `otherwise` gives, with a warning."""
    counts = Counter(name for name, _ in named)
    found: dict[str, Node] = {}
    for name, node in named:
        if counts[name] > 1:  # it is not known which one is genuine, so none gets the history of that client
            log.warning("%d connected nodes share the identity %r; their node ids are used", counts[name], name)
            name = otherwise(node)
            while name in counts:  # another client's identity
                name += "'"
        found[name] = node
    return found


class Presence(Generic[Node]):
    """Recognises the connected clients, and asks them about themselves until they answer, at most three times each.

    Args:
        session: that the clients are enrolled in.
        asks: whether newcomers are asked for their size and features.
        identity: one of IDENTITIES (see `fedpick.flower.Selected`), or a function of `Connection.info`.
    """

    def __init__(self, session: Session, asks: bool, identity: str | Identity = "auto") -> None:
        if not callable(identity) and identity not in IDENTITIES:
            raise unknown_name(f"identity of {session.owner}", identity, list(IDENTITIES))
        self.session, self.roster, self.asks, self.identity = session, session.roster, asks, identity
        self._descriptions: dict[Node, SelfDescription] = {}
        self._asked: Counter[Node] = Counter()

    def identified(self, found: Sequence[Connection[Node]], ask: Ask[Node], auto: str) -> dict[str, Node]:
        """identity -> connection, of all that are connected; descriptions of others are forgotten.

        `ask` asks for names, where these are the identities; `auto` is the identity that "auto" stands for.
        """
        there = {each.node for each in found}
        self._descriptions = {node: each for node, each in self._descriptions.items() if node in there}
        self._asked = Counter({node: times for node, times in self._asked.items() if node in there})
        identity = auto if self.identity == "auto" else self.identity
        if identity == "simulation":
            # Ids and keys are random in every simulation, but nodes are registered in the order of their partitions.
            ordered = sorted(found, key=lambda each: each.since)
            named = [(f"partition:{at}", each) for at, each in enumerate(ordered)]
        elif identity == "reported":
            known = self.ask([each.node for each in found], ask)
            answered = [(known[each.node].name, each) for each in found if each.node in known]  # others may yet answer
            named = [(f"reported:{name}" if name else each.node_id, each) for name, each in answered]
        elif callable(identity):
            named = [(str(identity(each.info)), each) for each in found]
        else:
            named = [(each.registered if identity == "registered" else each.node_id, each) for each in found]
        unique = distinct(named, lambda each: each.node_id, self.session.log)
        return {name: each.node for name, each in unique.items()}

    def ask(self, nodes: list[Node], ask: Ask[Node]) -> dict[Node, SelfDescription]:
        """The descriptions of these connections; an empty one for those that were asked three times in vain."""
        new = [node for node in nodes if node not in self._descriptions and self._asked[node] < MOST_TIMES]
        if new:
            answers = ask(new, not self.roster.names and not self._descriptions)
            if missing := len(new) - len(answers):
                self.session.log.warning("%d of %d newcomers did not describe themselves", missing, len(new))
            self._descriptions |= answers
            self._asked.update(new)
        known = {node: self._descriptions.get(node) for node in nodes}
        return {n: d or SelfDescription() for n, d in known.items() if d is not None or self._asked[n] >= MOST_TIMES}

    def described(self, found: dict[str, Node], ask: Ask[Node]) -> dict[str, Any]:
        """The session's `available`: names, and the newcomers' descriptions of themselves."""
        available: dict[str, Any] = dict.fromkeys(found)
        new = {name: node for name, node in found.items() if name not in self.roster.index}
        if self.asks and new:
            known = self.ask(list(new.values()), ask)
            available |= {name: known[node].about for name, node in new.items() if node in known}
            for node in known.keys() & self._descriptions.keys():  # after the enrolment only the name is needed
                self._descriptions[node] = SelfDescription(self._descriptions[node].name)
        return available
