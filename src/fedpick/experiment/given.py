"""What policies are given beyond the others, and that all runs of a plan are tested on the same examples."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedpick._support import user_code
from fedpick.core.protocol import Traits, traits
from fedpick.policies.text import policy as policy_from_text

__all__ = ["given_to", "needs_server_data", "tested_alike", "train_text"]

_WORDS = {  # needs -> words beside a policy's name, in the order in which they are shown
    "labels": "label counts",
    "features": "features",
    "context": "context",
    "probe": "losses on request",
    "norms": "norms on request",
}


def given_to(about: Traits) -> list[str]:
    """What a policy needs that others do without: of the server, of the clients' data, and reports besides losses.

    >>> import fedpick as fp
    >>> [given_to(fp.traits(each)) for each in (fp.Uniform(2), fp.GreedyFed(2), fp.OverSelect(fp.FLIPS(2), 1.3))]
    [[], ['server data'], ['label counts']]
    """
    found = ["server data"] if about.valued & about.needs else []
    found += [words for need, words in _WORDS.items() if need in about.needs]
    return found + [f"report {each.name}" for each in about.reports if each.name in about.needs and not each.server]


def needs_server_data(policy: Any) -> bool:
    """Whether a policy values updates on examples of the server; False for code of the user's own that a text names.

    Args:
        policy: as text, an object, or a class or a function that makes one.
    """
    if isinstance(policy, str) and user_code.references(policy):  # a plan imports no code
        return False
    try:
        if isinstance(policy, str):
            policy = policy_from_text(policy, cohort_size=1)
        elif isinstance(policy, type) or not hasattr(policy, "select"):
            policy = policy(cohort_size=1)
    except Exception:  # an oracle without the truth; mistakes are reported when the run is built
        return False
    about = traits(policy)
    return bool(about.valued & about.needs)


def tested_alike(
    train: Iterable[dict[str, Any]], policies: Iterable[Any], data: Iterable[Mapping[str, Any] | None]
) -> list[dict[str, Any]]:
    """Settings of [train] with which all policies are tested on the same examples.

    If one of them needs examples of the server, which are taken from the test examples, all are tested without them. A
    trainer of the user's own decides itself what it tests on.
    """
    found = list(train)
    if all(each is None for each in data) or not any(map(needs_server_data, policies)):
        return found
    from fedpick.data.settings import SERVER_EXAMPLES  # training is an extra

    return [each if "trainer" in each else {"set_aside": SERVER_EXAMPLES, **each} for each in found]


def train_text(settings: Mapping[str, Any], set_aside: int = 0) -> str:
    """The label of settings of [train]; with the test examples that the trainer set aside, also if not in the settings.

    >>> train_text({"lr": 0.1}, set_aside=1000)
    'lr=0.1, set_aside=1000'
    """
    known = {"set_aside": set_aside, **settings} if set_aside else settings
    shown = {key: user_code.shown(value) if isinstance(value, str) else value for key, value in known.items()}
    return ", ".join(f"{key}={value!r}" for key, value in sorted(shown.items()))
