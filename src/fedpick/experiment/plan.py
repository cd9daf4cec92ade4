"""An experiment (also called a plan): policies x worlds x cohort sizes x data x training settings x seeds.

It only says which runs should exist. Every run is a `Config`, and its key is a hash of its settings. So a plan with
more runs executes only those that are missing, one with more rounds continues the existing runs, and two plans share
the runs that both contain.
"""

import hashlib
import itertools
import json
import pickle
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import ChangedError, ConfigError, bare_name
from fedpick.core.metrics import metrics_text
from fedpick.experiment.building import current_names, is_trainer, world_label, world_settings
from fedpick.experiment.code import Reader, code_of, named_files, named_references
from fedpick.experiment.config import Config
from fedpick.experiment.identity import policy_text
from fedpick.worlds import World

__all__ = ["Experiment", "distinct"]


@dataclass(frozen=True)
class Experiment:
    """The runs to make; each setting is one value or a list.

    Args:
        policy: texts such as "e3cs(quota=0.5)" and "my_policy.py:EpsGreedy"; in Python also policies and their classes.
            The others are compared with the first.
        world: names such as "volatile", texts such as "volatile(deadline=9)", or settings of [world].
        cohort_size: clients chosen per round.
        data: names such as "digits", or settings of [data]; None or "none": no training.
        train: settings of [train]; in Python, "trainer" may also be a trainer, its class, or a function that makes it.
        seeds: a number of seeds, or a list of seeds.
        rounds: of every run.
        checkpoint_every: rounds between checkpoints.
        code: the code and the data files of the user's own, for a plan that was read from a file; None reads them.

    >>> plan = Experiment(policy=["uniform", "e3cs(quota=0.5)"], cohort_size=[5, 10], seeds=3, rounds=50)
    >>> len(plan.configs()), plan.configs()[0].policy
    (12, 'uniform')
    """

    policy: Any
    world: Any = "volatile"
    cohort_size: Any = 20
    data: Any = None
    train: Any = field(default_factory=dict)
    seeds: Any = 5
    rounds: int = 500
    checkpoint_every: int = 100
    code: dict[str, str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        def put(name: str, value: list[Any]) -> None:
            object.__setattr__(self, name, tuple(value))

        policies = _several(self.policy)
        if not policies:
            raise ConfigError("policy = [], but must have at least one entry; write policy = ['uniform', 'e3cs']")
        for each in policies:
            _check_policy(each)
        texts = [policy_text(each) for each in policies]
        for text in distinct(text for text in texts if texts.count(text) > 1):
            warnings.warn(f"policy {text} is given more than once; its runs are made once", stacklevel=3)
        put("policy", distinct(policies, policy_text))
        put("world", distinct([_world(each) for each in _several(self.world)], _settings_text))
        put("cohort_size", distinct(_several(self.cohort_size)))
        put("data", distinct([_data(each) for each in _several(self.data)], _settings_text))
        put("train", distinct([_train(each) for each in _several(self.train)], _settings_text))
        for name in ("world", "cohort_size", "data", "train"):
            if not getattr(self, name):
                raise ConfigError(f"{name} = [], but must have at least one entry; leave it out for the default")
        seeds = range(self.seeds) if isinstance(self.seeds, int) else _several(self.seeds)
        if isinstance(self.seeds, bool) or not seeds:
            raise ConfigError(f"seeds = {self.seeds!r}, but must be a whole number >= 1, or a list of seeds")
        put("seeds", distinct(seeds))
        trains = [each for each in self.train if each]
        if trains and all(each is None for each in self.data):
            raise ConfigError("train is given, but no data to train on; add data, such as 'digits'")

    def configs(self) -> list[Config]:
        """All runs, without duplicates."""
        found: dict[str, Config] = {}
        reader = Reader()
        for data, train, world, size, policy, seed in itertools.product(
            self.data, self.train, self.world, self.cohort_size, self.policy, self.seeds
        ):
            made = {} if isinstance(policy, str) else {"policy": policy}
            sides = {"world": world, "data": data or {}, "trainer": train}
            made |= {name: each["made"] for name, each in sides.items() if "made" in each}
            config = Config(
                policy=policy if isinstance(policy, str) else policy_text(policy),
                cohort_size=size,
                rounds=self.rounds,
                seed=seed,
                world=_plain(world),
                checkpoint_every=self.checkpoint_every,
                data=None if data is None else _plain(data),
                train={} if data is None else _plain(train),
                code={},
                made=made,
            )
            config = replace(config, code=self._code(config, reader))
            found.setdefault(config.key, config)
        return list(found.values())

    def _code(self, config: Config, reader: Reader) -> dict[str, str]:
        """The code and the data of the user's own that a run depends on, by name."""
        if self.code is not None:  # of all that the plan's file lists, what this run uses
            used = [user_code.shown(each) for each in config.references()]
            files = [each for each in named_files(config.texts()) if each in self.code]
            return {each: self.code.get(each, "") for each in (*used, *files)}
        found = reader.read(config.texts())
        for name, each in config.made.items():
            text = code_of(each)
            if text:
                found[str(config.labels[name] if name != "trainer" else config.train[name])] = text
        return found

    @property
    def has_objects(self) -> bool:
        """Whether it contains Python objects, which cannot be stored in a plan's file."""
        sides = [*self.world, *self.train, *(each for each in self.data if each is not None)]
        return not all(isinstance(each, str) for each in self.policy) or any("made" in each for each in sides)

    def references(self) -> list[str]:
        """References to the user's own code ("FILE.py:Name", with paths) in the settings."""
        sides = [{"policy": each} for each in self.policy if isinstance(each, str)]
        sides += [each for each in (*self.world, *self.data, *self.train) if each]
        return named_references(text for side in sides for text in side.values() if isinstance(text, str))

    def naming(self, references: Sequence[str]) -> "Experiment":
        """This plan, read from a file, with the paths of the user's own code.

        A plan's file never makes fedpick import code: the user must name it again. Code that is not named, or has
        changed, raises.

        Args:
            references: "FILE.py:Name", with the files' current paths.
        """
        now = {user_code.shown(each): each for each in references}
        for name in self.references():
            if name not in now:
                raise ConfigError(
                    f"{name}: this plan uses code of yours, which fedpick imports only if you name it; add it with its "
                    f"path: -p {name}"
                )

        def named(value: Any) -> Any:
            if isinstance(value, str):
                return user_code.replace_references(value, now)
            if isinstance(value, dict):
                return {key: named(each) for key, each in value.items()}
            return value

        sides: dict[str, Any] = {
            name: [named(each) for each in getattr(self, name)] for name in ("policy", "world", "data", "train")
        }
        current = replace(self, **sides, code=None)
        self._check_unchanged(current.hashes())
        return current

    def _check_unchanged(self, now: Mapping[str, str]) -> None:
        """Raise if code or data of the user's own are not what they were when this plan was made."""
        for name, before in (self.code or {}).items():
            if name in now and before and now[name] != before:
                what = "; ".join(user_code.differences(before, now[name]))
                raise ChangedError(
                    f"{name}: {what} since this plan was made, so results would not belong to the same run; restore "
                    "what it was, or start a new comparison: the same command of fedpick compare keeps both"
                )

    def hashes(self) -> dict[str, str]:
        """The code and the data files of the user's own, see `user_code.fingerprint`."""
        return {name: said for config in self.configs() for name, said in (config.code or {}).items()}

    def as_dict(self) -> dict[str, Any]:
        """The plan for a file, which names the user's own files without their folders."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: plain(each) for key, each in value.items() if key != "made"}
            if isinstance(value, list | tuple):
                return [plain(each) for each in value]
            return user_code.shown(value) if isinstance(value, str) else value

        policies = [user_code.shown(each) if isinstance(each, str) else policy_text(each) for each in self.policy]
        rest = {
            entry.name: plain(getattr(self, entry.name))
            for entry in fields(self)
            if entry.name not in ("policy", "code")
        }
        code = self.hashes()
        return {"policy": policies, **rest} | ({"code": code} if code else {})

    def within(self, other: "Experiment") -> bool:
        """Whether another plan contains all runs of this one, with at least as many rounds."""
        mine, theirs = self.as_dict(), other.as_dict()
        sides = ("policy", "world", "cohort_size", "data", "train", "seeds")
        code, known = mine.get("code", {}), theirs.get("code", {})
        same = all(known.get(name) == said for name, said in code.items())
        return (
            same
            and self.rounds <= other.rounds
            and all(
                {_settings_text(each) for each in mine[name]} <= {_settings_text(each) for each in theirs[name]}
                for name in sides
            )
        )

    @property
    def title(self) -> str:
        """A short description, for plots."""
        data = [str(each["name"]) for each in self.data if each is not None]
        sizes = ", ".join(map(str, self.cohort_size))
        where = ", ".join(map(world_label, map(_plain, self.world)))
        many = f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else f"seed {self.seeds[0]}"
        return f"{where}{' with ' + ', '.join(data) if data else ''}: {sizes} clients a round, {many}"

    def only(self, **changes: Any) -> "Experiment":
        """The same plan with these settings changed."""
        return replace(self, **changes)


def distinct(values: Iterable[Any], name: Any = None) -> list[Any]:
    """The values without duplicates, in the order of first occurrence; values with equal `name(value)` are equal."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(value if name is None else name(value), value)
    return list(found.values())


def _several(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, list | tuple | range) else [value]


def _check_policy(policy: Any) -> None:
    """Raise unless it is a text, a policy, or what makes one."""
    makes = callable(policy) if not isinstance(policy, type) else hasattr(policy, "select")
    if not (isinstance(policy, str) or makes or hasattr(policy, "select")):
        raise ConfigError(
            f"policy = {policy!r:.80}, but must be a text such as 'e3cs(quota=0.5)', a policy such as fp.E3CS(20), or "
            "a class of policies"
        )


def _settings_text(settings: Any) -> str:
    return json.dumps(settings, sort_keys=True, default=lambda x: x.tolist() if hasattr(x, "tolist") else repr(x))


def _world(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return world_settings(value)
    if isinstance(value, Mapping):
        return current_names(dict(value))
    if not isinstance(value, World):
        raise ConfigError(
            f"world = {value!r:.80}, but must be a text such as 'volatile', settings such as {{'name': 'volatile'}}, "
            "or an fp.World"
        )
    return {"name": f"World-{_fingerprint(value)}", "made": value}


def _data(value: Any) -> dict[str, Any] | None:
    if value is None or (isinstance(value, str) and bare_name(value) == "none"):
        return None
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping):
        return dict(value)
    name = getattr(getattr(value, "dataset", None), "name", None)
    if name is None:  # not an fp.data.Federated
        raise ConfigError(
            f"data = {value!r:.80}, but must be a text such as 'digits' or 'mine.npz', settings such as {{'name': "
            "'digits'}, an fp.data.Federated, or None for no training"
        )
    return {"name": f"{name}-{_fingerprint(value)}", "made": value}


def _train(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"train = {value!r:.80}, but must be settings such as {{'lr': 0.1, 'model': 'logistic'}}")
    found = metrics_text(value or {})
    trainer = found.get("trainer")
    if trainer is None or isinstance(trainer, str) or "made" in found:
        return found
    if not callable(trainer) and not is_trainer(trainer):
        raise ConfigError(
            f"train: trainer = {trainer!r:.80}, but must be a text such as 'loop.py:Trainer(lr=0.1)', a class, a "
            "function that makes a trainer, or a trainer"
        )
    if len(found) > 1:
        raise ConfigError(
            f"train: {', '.join(sorted(set(found) - {'trainer'}))} beside a trainer of your own, which has its own "
            "settings; use functools.partial(MyTrainer, lr=0.1)"
        )
    name = f"{type(trainer).__name__}-{_fingerprint(trainer)}" if is_trainer(trainer) else policy_text(trainer)
    return {"trainer": name, "made": trainer}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the object that they stand for."""
    return {key: value for key, value in settings.items() if key != "made"}


def _fingerprint(value: Any) -> str:
    try:
        return hashlib.blake2b(pickle.dumps(value, protocol=5), digest_size=4).hexdigest()
    except Exception as error:
        raise ConfigError(
            f"{type(value).__name__} cannot be pickled, so it cannot be identified ({error}); put it into a file and "
            "name it: 'my_file.py:name'"
        ) from None
