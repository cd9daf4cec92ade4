"""An experiment (also called a plan): policies x worlds x cohort sizes x data x training settings x seeds.

It lists the runs that should exist. Every run is a `Config`, and its key is a hash of its settings. So a plan with
more runs executes only those that are missing, one with more rounds continues the existing runs, and two plans share
the runs that both contain.
"""

import itertools
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import ChangedError, ConfigError, unknown_name
from fedpick.core.metrics import ALWAYS, LABELS, MEASURED, metrics_text
from fedpick.data.objects import is_data
from fedpick.experiment.code import Reader, code_of, named_files, named_references
from fedpick.experiment.config import Config, texts_of
from fedpick.experiment.datasets import data_settings
from fedpick.experiment.given import tested_alike
from fedpick.experiment.identity import fingerprint, policy_text
from fedpick.experiment.paces import WORLDS_OWN, pace_text
from fedpick.experiment.trainers import OBJECTS, is_trainer, with_names
from fedpick.experiment.worlds import DEFAULT_WORLD, Unnamed, named_world, stored_world, world_settings
from fedpick.worlds import World

__all__ = ["Experiment", "with_metric"]


@dataclass(frozen=True)
class Experiment:
    """The runs to make; each setting is one value or a list.

    Args:
        policy: texts such as "e3cs(quota=0.5)" and "my_policy.py:EpsGreedy"; in Python also policies and their classes.
            The others are compared with the first.
        world: names such as "volatile", texts such as "volatile(deadline=9)", or settings of [world].
        cohort_size: clients chosen per round.
        data: names such as "digits", or settings of [data]; None or "none": no training. In Python also what
            `fedpick.data.read` takes: data sets of PyTorch (a list or dict: one for each client), Hugging Face, pandas.
        train: settings of [train]; in Python, "trainer" may also be a trainer, its class, or a function that makes it.
        seeds: a number of seeds, or a list of seeds.
        rounds: of every run.
        checkpoint_every: rounds between checkpoints.
        pace: texts such as "buffered(concurrency=30, size=10)", `fp.Rounds` or `fp.Buffered`; "rounds" or None: rounds
            with the world's settings.
        code: the code and the data files of the user's own, for a plan that was read from a file; None reads them.

    >>> plan = Experiment(policy=["uniform", "e3cs(quota=0.5)"], cohort_size=[5, 10], seeds=3, rounds=50)
    >>> len(plan.configs()), plan.configs()[0].policy
    (12, 'uniform')
    """

    policy: Any
    world: Any = DEFAULT_WORLD
    cohort_size: Any = 20
    data: Any = None
    train: Any = field(default_factory=dict)
    seeds: Any = 5
    rounds: int = 500
    checkpoint_every: int = 100
    pace: Any = WORLDS_OWN
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
        for text in _distinct(text for text in texts if texts.count(text) > 1):
            warnings.warn(f"policy {text} is given more than once; its runs are made once", stacklevel=3)
        put("policy", _distinct(policies, policy_text))
        put("world", _distinct([_world(each) for each in _several(self.world)], _settings_text))
        put("cohort_size", _distinct(_several(self.cohort_size)))
        put("pace", _distinct(pace_text(each) for each in _several(self.pace)))
        every = [self.data] if is_data(self.data) else _several(self.data)  # a list of data sets is one: its clients
        put("data", _distinct([data_settings(each) for each in every], _settings_text))
        train = tested_alike([_train(each) for each in _several(self.train)], policies, self.data)
        put("train", _distinct(train, _settings_text))
        for name in ("world", "cohort_size", "pace", "data", "train"):
            if not getattr(self, name):
                raise ConfigError(f"{name} = [], but must have at least one entry; leave it out for the default")
        seeds = range(self.seeds) if isinstance(self.seeds, int) else _several(self.seeds)
        if isinstance(self.seeds, bool) or not seeds:
            raise ConfigError(f"seeds = {self.seeds!r}, but must be a whole number >= 1, or a list of seeds")
        put("seeds", _distinct(seeds))
        if any(self.train) and all(each is None for each in self.data):
            raise ConfigError("train is given, but no data to train on; add data, such as 'digits'")

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> "Experiment":
        """A plan from its settings in a plan's file or in manifests."""
        return cls(**{**settings, "world": [stored_world(each) for each in _several(settings["world"])]})

    def configs(self) -> list[Config]:
        """All runs, without duplicates."""
        return list(self._configs)

    @cached_property
    def _configs(self) -> list[Config]:
        found: dict[str, Config] = {}
        reader = Reader()
        for data, train, world, size, pace, policy, seed in itertools.product(
            self.data, self.train, self.world, self.cohort_size, self.pace, self.policy, self.seeds
        ):
            train = {} if data is None else train
            objects = {"world": world, "data": data or {}, "trainer": train}
            made = {name: each["made"] for name, each in objects.items() if "made" in each}
            made |= {} if isinstance(policy, str) else {"policy": policy}
            made |= {"train": train["objects"]} if "objects" in train else {}
            settings: dict[str, Any] = {
                "policy": policy if isinstance(policy, str) else policy_text(policy),
                "world": _plain(world),
                "data": None if data is None else _plain(data),
                "train": _plain(train),
            }
            config = Config(
                **settings,
                cohort_size=size,
                rounds=self.rounds,
                seed=seed,
                checkpoint_every=self.checkpoint_every,
                pace=pace,
                code=self._code(settings, made, reader),
                made=made,
            )
            found.setdefault(config.key, config)
        return list(found.values())

    def _code(self, settings: Mapping[str, Any], made: Mapping[str, Any], reader: Reader) -> dict[str, str]:
        """The code and the data of the user's own that a run depends on, by name."""
        texts = texts_of(*settings.values())
        if self.code is not None:  # of all that the plan's file lists, what this run uses
            used = [user_code.shown(each) for each in named_references(texts)]
            files = [each for each in named_files(texts) if each in self.code]
            return {each: self.code.get(each, "") for each in (*used, *files)}
        found = reader.read(texts)
        for name, each in made.items():
            if name == "train":
                found |= {str(settings["train"][key]): text for key, thing in each.items() if (text := code_of(thing))}
                continue
            text = code_of(each)
            if text and name == "trainer":
                found[str(settings["train"]["trainer"])] = text
            elif text:
                found[user_code.shown(settings["policy"] if name == "policy" else settings[name]["name"])] = text
        return found

    @property
    def has_objects(self) -> bool:
        """Whether it contains Python objects, which cannot be stored in a plan's file."""
        sections = (each for each in (*self.world, *self.data, *self.train) if each)
        return not all(isinstance(each, str) for each in self.policy) or any(OBJECTS & each.keys() for each in sections)

    def references(self) -> list[str]:
        """References to the user's own code ("FILE.py:Name", with paths) in the settings."""
        policies = [{"policy": each} for each in self.policy]
        return named_references(texts_of("", *policies, *self.world, *self.data, *self.train))

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
                return user_code.replace_references(value, now) if user_code.references(value) else value
            if isinstance(value, dict):
                return {key: named(each) for key, each in value.items()}
            return value

        texts = {name: [named(each) for each in getattr(self, name)] for name in ("policy", "world", "data", "train")}
        current = self.only(**texts, code=None)
        after = current.fingerprints()
        for name, before in (self.code or {}).items():
            if name in after and before and after[name] != before:
                what = "; ".join(user_code.differences(before, after[name]))
                raise ChangedError(
                    f"{name}: {what} since this plan was made, so results would not belong to the same run; restore "
                    "what it was, or start a new comparison: the same command of fedpick compare keeps both"
                )
        return current

    def fingerprints(self) -> dict[str, str]:
        """The code and the data files of the user's own, see `user_code.fingerprint`."""
        return {name: text for config in self.configs() for name, text in (config.code or {}).items()}

    def as_dict(self) -> dict[str, Any]:
        """The plan for a file, which names the user's own files without their folders."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                kept = {
                    key: each for key, each in value.items() if key not in OBJECTS and not isinstance(each, Unnamed)
                }
                return {key: plain(each) for key, each in kept.items()}
            if isinstance(value, list | tuple):
                return [plain(each) for each in value]
            return user_code.shown(value) if isinstance(value, str) else value

        policies = [user_code.shown(each) if isinstance(each, str) else policy_text(each) for each in self.policy]
        rest = [entry.name for entry in fields(self) if entry.name not in ("policy", "code")]
        code = self.fingerprints()
        if self.pace == (WORLDS_OWN,):
            rest.remove("pace")
        return {"policy": policies, **{name: plain(getattr(self, name)) for name in rest}} | (
            {"code": code} if code else {}
        )

    def within(self, other: "Experiment") -> bool:
        """Whether another plan contains all runs of this one, with at least as many rounds."""
        mine, theirs = self.as_dict(), other.as_dict()
        if self.rounds > other.rounds or not mine.get("code", {}).items() <= theirs.get("code", {}).items():
            return False
        lists = ("policy", "world", "cohort_size", "data", "train", "seeds")
        same = all(set(map(_settings_text, mine[name])) <= set(map(_settings_text, theirs[name])) for name in lists)
        return same and set(self.pace) <= set(other.pace)

    def measuring(self, metric: str | None) -> tuple["Experiment", str | None]:
        """The same plan with this metric measured in all its runs, and the metric's name in results."""
        if metric is None:
            return self, None
        found = [with_metric(train, metric) for train in self.train]
        return self.only(train=[train for train, _ in found]), found[0][1]

    def only(self, **changes: Any) -> "Experiment":
        """The same plan with these settings changed."""
        return replace(self, **changes)


def _distinct(values: Iterable[Any], name: Any = None) -> list[Any]:
    """The values without duplicates, in the order of first occurrence; values with equal `name(value)` are equal."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(value if name is None else name(value), value)
    return list(found.values())


def _several(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, list | tuple | range) else [value]


def _check_policy(policy: Any) -> None:
    """Raise unless it is a text, a policy, or a class or function that makes one."""
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
        return named_world(value)
    if not isinstance(value, World):
        raise ConfigError(
            f"world = {value!r:.80}, but must be a text such as 'volatile', settings such as {{'name': 'volatile'}}, "
            "or an fp.World"
        )
    return {"name": f"World-{fingerprint(value)}", "made": value}


def _train(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"train = {value!r:.80}, but must be settings such as {{'lr': 0.1, 'model': 'logistic'}}")
    found = metrics_text(value or {})
    trainer = found.get("trainer")
    if trainer is None or isinstance(trainer, str) or OBJECTS & found.keys():
        return with_names(found)
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
    name = f"{type(trainer).__name__}-{fingerprint(trainer)}" if is_trainer(trainer) else policy_text(trainer)
    return {"trainer": name, "made": trainer}


def with_metric(train: Mapping[str, Any], metric: str) -> tuple[dict[str, Any], str]:
    """Settings of [train] with which a metric is measured, and its name in results.

    Args:
        train: settings of [train].
        metric: a name, or a function of the user's own: "my.py:score".

    >>> with_metric({"lr": 0.1}, "macro_f1")
    ({'lr': 0.1, 'metrics': 'macro_f1'}, 'macro_f1')
    >>> with_metric({"trainer": "loop.py:Trainer"}, "quality")
    ({'trainer': 'loop.py:Trainer'}, 'quality')
    """
    settings = metrics_text(train)
    name = metric.rpartition(":")[2] if user_code.is_reference(metric) else metric
    if "trainer" in settings or metric in LABELS:
        return settings, name
    if metric in ALWAYS:
        return settings, ALWAYS[metric]
    if metric not in MEASURED and not user_code.is_reference(metric):
        raise unknown_name("metric", metric, [*MEASURED, "my.py:score"])
    before = settings.get("metrics")
    return metrics_text({**settings, "metrics": [before, metric] if before else metric}), name


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the object that they stand for."""
    return {key: value for key, value in settings.items() if key not in OBJECTS}
