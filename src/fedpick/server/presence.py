"""The connected clients of a framework: one name for each connection, and what newcomers say about themselves."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from fedpick.core.errors import unknown_name

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Connection", "Identity", "Presence", "Said", "distinct"]

MOST_TIMES = 3  # requests to a client that does not answer
LONGEST_NAME = 200  # characters
Node = TypeVar("Node")  # how a framework calls a connection, such as Flower's node id
Identity = Callable[[Any], str]  # a framework's description of a connection -> a name that stays when it reconnects


class Connection(NamedTuple, Generic[Node]):
    """A connection, as a framework knows it."""

    node: Node
    key: bytes = b""  # its authenticated public key
    name: str = ""  # that it was registered with
    since: str = ""  # when it was registered
    info: Any = None  # the framework's own description of it

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


class Said(NamedTuple):
    """A client's description of itself: its name, and size and features, not validated yet."""

    name: str = ""
    about: dict[str, Any] | None = None

    @classmethod
    def of(cls, name: Any, metrics: Mapping[str, Any]) -> Self:
        """What a client sent; a name that is no text, or a long one, is ignored."""
        good = isinstance(name, str) and len(name) <= LONGEST_NAME
        return cls(name if good else "", {key: metrics[key] for key in ("size", "features") if key in metrics})


# (connections, whether no client has ever answered) -> the descriptions that came
Ask = Callable[[list[Node], bool], dict[Node, Said]]


def distinct(
    named: Sequence[tuple[str, Node]], otherwise: Callable[[Node], str], log: logging.Logger
) -> dict[str, Node]:
    """name -> connection; where connections share a name, each gets one of its own.

    Args:
        named: names and connections.
        otherwise: the name of a connection whose own is not unique.
        log: gets a warning.
    """
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
        identity: how a client is recognised when it reconnects: "registered" (its key, else its name, else its node
            id), "node-id", "simulation" (the order of registration), "reported" (the name that it says), or a function
            of the framework's description. "auto": as the adapter says.
    """

    def __init__(self, session: "Session", asks: bool, identity: str | Identity = "auto") -> None:
        if not callable(identity) and identity not in IDENTITIES:
            raise unknown_name(f"identity of {session.owner}", identity, list(IDENTITIES))
        self.session, self.roster, self.asks, self.identity = session, session.roster, asks, identity
        self._said: dict[Node, Said] = {}
        self._asked: Counter[Node] = Counter()

    def identified(self, found: Sequence[Connection[Node]], ask: Ask[Node], auto: str) -> dict[str, Node]:
        """identity -> connection; what others have said that are not connected any more is forgotten.

        Args:
            found: all that are connected.
            ask: asks them for their names, where these are the identities.
            auto: which identity "auto" is.
        """
        there = {each.node for each in found}
        self._said = {node: said for node, said in self._said.items() if node in there}
        self._asked = Counter({node: times for node, times in self._asked.items() if node in there})
        identity = auto if self.identity == "auto" else self.identity
        if identity == "simulation":
            # Ids and keys are random in every simulation, but nodes are registered in the order of their partitions.
            ordered = sorted(found, key=lambda each: each.since)
            named = [(f"partition:{at}", each) for at, each in enumerate(ordered)]
        elif identity == "reported":
            said = self.ask([each.node for each in found], ask)
            heard = [(said[each.node].name, each) for each in found if each.node in said]  # others may yet answer
            named = [(f"reported:{name}" if name else each.node_id, each) for name, each in heard]
        elif callable(identity):
            named = [(str(identity(each.info)), each) for each in found]
        else:
            named = [(each.registered if identity == "registered" else each.node_id, each) for each in found]
        own = distinct(named, lambda each: each.node_id, self.session.log)
        return {name: each.node for name, each in own.items()}

    def ask(self, nodes: list[Node], ask: Ask[Node]) -> dict[Node, Said]:
        """What these connections have said; a `Said` without a name for those that did not answer often enough."""
        new = [node for node in nodes if node not in self._said and self._asked[node] < MOST_TIMES]
        if new:
            said = ask(new, not self.roster.names and not self._said)
            if len(said) < len(new):
                self.session.log.warning(
                    "%d of %d newcomers did not describe themselves", len(new) - len(said), len(new)
                )
            self._said |= said
            self._asked.update(new)
        return {n: self._said.get(n, Said()) for n in nodes if n in self._said or self._asked[n] >= MOST_TIMES}

    def described(self, found: dict[str, Node], ask: Ask[Node]) -> dict[str, Any]:
        """The session's `available`: names, and the newcomers' descriptions of themselves."""
        available: dict[str, Any] = dict.fromkeys(found)
        new = {name: node for name, node in found.items() if name not in self.roster.index}
        if self.asks and new:
            said = self.ask(list(new.values()), ask)
            available |= {name: said[node].about for name, node in new.items() if node in said}
            # After the enrolment only the name is needed.
            self._said |= {node: Said(self._said[node].name) for node in said if node in self._said}
        return available
