"""The configuration of a run: plain data that can be stored in a file or a manifest, or sent to another process.

policy = "e3cs(quota=0.5)"              # or one of your own: "my_policy.py:EpsGreedy(eps=0.1)"
cohort_size = 20
rounds = 500
seed = 0
checkpoint_every = 100

[world]
name = "volatile"
num_clients = 100
deadline = 12.0
availability = "bernoulli(p=0.8)"
latency = "gamma(low=1, high=8)"
volatility = "bursts(spell=5)"

[data]                                  # leave out to simulate the selection without training
name = "digits"
partition = "dirichlet(alpha=0.3, at_least=2)"

[train]
model = "mlp(hidden=(64, 30))"
lr = 0.05
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpick._support import user_code
from fedpick._version import NUMBERS
from fedpick.core.errors import ConfigError, FedpickError, bare_name
from fedpick.core.metrics import check_directions, metrics_text
from fedpick.core.protocol import Trainer, traits
from fedpick.experiment.code import Reader, named_references
from fedpick.experiment.given import given_to, train_text
from fedpick.experiment.paces import WORLDS_OWN, pace_of, pace_text
from fedpick.experiment.trainers import build_trainer, made_trainer
from fedpick.experiment.worlds import MISTAKES, Unnamed, base_world, named_world, whole_world, world_label
from fedpick.policies.text import canonical_policy
from fedpick.simulate.abilities import DirectedTrainer, SizedTrainer
from fedpick.simulate.run import Run, check_fit, megabytes_of, policy_for
from fedpick.store.checkpoint import RunState
from fedpick.worlds import WORLDS, World

__all__ = ["Config", "texts_of"]

LONGEST_NAME = 120  # characters of a folder's name
MOST_ASKED = 100  # clients that a policy may ask in a round, as a multiple of all clients
MOST_ROUNDS = 999_999_999  # the names of parts have nine digits
_LABELS = {
    "policy": "{}",
    "world": "{}",
    "cohort_size": "m{}",
    "pace": "{}",
    "data": "{}",
    "train": "{}",
    "seed": "seed{}",
}


@dataclass(frozen=True)
class Config:
    """The settings of one run.

    Args:
        policy: as text.
        cohort_size: clients chosen per round.
        rounds: number of rounds.
        seed: of all random numbers.
        world: settings of [world]; without a name it is the world "volatile".
        checkpoint_every: rounds between checkpoints.
        data: settings of [data]; None: no training.
        train: settings of [train].
        pace: as text, such as "buffered(concurrency=30, size=10)"; "rounds": rounds with the world's settings.
        code: the code and the data files of the user's own that the texts name (see `user_code.fingerprint`); None
            reads them.
        made: "policy", "world", "data" or "trainer" as objects, and "train" with a model or a loss, which replace those
            described by the texts.
    """

    policy: str
    cohort_size: int = 20
    rounds: int = 500
    seed: int = 0
    world: dict[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 100
    data: dict[str, Any] | None = None
    train: dict[str, Any] = field(default_factory=dict)
    pace: str = WORLDS_OWN
    code: dict[str, str] | None = None
    made: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("cohort_size", "rounds", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} = {value!r}, but must be a whole number >= 1")
            if value > MOST_ROUNDS:
                raise ConfigError(f"{name} = {value!r}, but must be at most {MOST_ROUNDS:,}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed = {self.seed!r}, but must be a whole number >= 0 and below 2**63")
        if not isinstance(self.policy, str):
            raise ConfigError(f"policy = {self.policy!r}, but must be a text such as 'e3cs(quota=0.5)'")
        if not isinstance(self.world, dict):
            raise ConfigError(f"world = {self.world!r}, but must be a section: [world], then name = 'volatile'")
        if self.data is not None and not isinstance(self.data, dict):
            raise ConfigError(f"data = {self.data!r}, but must be a section: [data], then name = 'fashion-mnist'")
        if not isinstance(self.train, dict):
            raise ConfigError(f"train = {self.train!r}, but must be a section: [train], then lr = 0.05")
        object.__setattr__(self, "world", named_world(self.world))
        object.__setattr__(self, "train", metrics_text(self.train))
        object.__setattr__(self, "pace", pace_text(self.pace))
        if self.train and self.data is None:
            raise ConfigError("[train] is given, but no [data] to train on; add [data], then name = 'fashion-mnist'")
        made = self.made.get("policy")
        if made is not None and not isinstance(made, type):
            self._check_size(made)  # before its key is used, which is the same for objects of other sizes
        if self.code is None:
            object.__setattr__(self, "code", Reader().read(self.texts()))

    def _check_size(self, policy: Any) -> None:
        """Raise if a policy chooses another number of clients than tables and texts would say."""
        size = traits(policy).cohort_size
        if size is not None and size != self.cohort_size:
            raise ConfigError(
                f"policy = {self.policy!r}: has cohort_size = {size}, but the run's is {self.cohort_size}; make them "
                "equal, or leave the policy's out (in Python, give its class or a text)"
            )

    def texts(self) -> list[str]:
        """The settings that are texts, which may name code and data of the user's own."""
        return texts_of(self.policy, self.world, self.data, self.train)

    def references(self) -> list[str]:
        """References to the user's own code ("FILE.py:Name") in the settings."""
        return named_references(self.texts())

    def with_code_in(self, folder: Path) -> "Config":
        """The same run with the user's own files in this folder, for another machine."""

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: moved(each) for key, each in value.items()}
            here = isinstance(value, str) and user_code.references(value)
            return user_code.moved(user_code.shown(value), folder) if here else value

        return replace(self, **{name: moved(getattr(self, name)) for name in ("policy", "world", "data", "train")})

    def as_dict(self) -> dict[str, Any]:
        """The settings for a manifest, which names the user's own files without their folders."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "made"}
        named = {key: value for key, value in self.world.items() if not isinstance(value, Unnamed)}
        found |= {"policy": user_code.shown(self.policy), "world": _shown(named)}
        if self.data is None:
            del found["data"], found["train"]
        else:
            found |= {"data": _shown(self.data), "train": _shown(self.train)}
        if not self.code:
            del found["code"]
        if self.pace == WORLDS_OWN:
            del found["pace"]
        return found

    @cached_property
    def labels(self) -> dict[str, Any]:
        """The labels of policy, world, data, ... in tables and folder names."""
        policy = user_code.shown(self.policy if "policy" in self.made else canonical_policy(self.policy))
        data = None
        if self.data is not None:
            rest = [f"{key}={value!r}" for key, value in sorted(self.data.items()) if key != "name"]
            data = user_code.shown(" ".join([str(self.data.get("name")), *rest]))
        return {
            "policy": policy,
            "world": world_label(self._world()),
            "cohort_size": self.cohort_size,
            "data": data,
            "train": train_text(self.train),
            "seed": self.seed,
            **({} if self.pace == WORLDS_OWN else {"pace": self.pace}),
        }

    def _world(self) -> dict[str, Any]:
        """The settings of [world], with the world's name spelled as in WORLDS."""
        name = str(self.world["name"])
        listed = next((each for each in WORLDS if bare_name(each) == bare_name(name)), name)
        return {**self.world, "name": listed}

    @cached_property
    def key(self) -> str:
        """A hash of the settings that determine the records; rounds and checkpoint_every do not count."""
        return self._hash()

    @property
    def combination(self) -> str:
        """A hash that runs share if only their seeds differ."""
        return self._hash(seed=0)

    def _hash(self, **changes: Any) -> str:
        parts = {
            **self.labels,
            "world": _shown(self._world()),
            "code": self.code or {},
            "fedpick": NUMBERS.split("."),
            **changes,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    @property
    def folder_name(self) -> str:
        """A readable name for the run's folder: its labels, cut to a maximal length, then its key."""
        parts = [
            form.format(self.labels[name]) for name, form in _LABELS.items() if self.labels.get(name) not in (None, "")
        ]
        words = [re.sub(r"[^A-Za-z0-9.=_-]+", "-", each).strip("-.") for each in parts]
        return "_".join(words)[: LONGEST_NAME - 11].strip("-_.") + "_" + self.key

    def keep(self, run: Run) -> None:
        """Keep the run that `build` made, for its next call in this process."""
        vars(self)["_kept"] = run

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def build(self) -> Run:
        """Build the run, or give the one that was kept."""
        kept: Run | None = vars(self).pop("_kept", None)
        if kept is not None:
            return kept
        world, federated = self._world_and_data()
        if self.cohort_size > len(world.clients):
            raise ConfigError(
                f"cohort_size = {self.cohort_size}, but there are only {len(world.clients)} clients; reduce it, or "
                "increase num_clients"
            )
        policy, reports = self._policy(world)
        trainer = None if federated is None else self._trainer(federated, reports)
        pace: Any = pace_of(self.pace)
        try:
            if trainer is None or self._sized(world):
                return Run(policy, world, self.seed, trainer, pace=pace)
            if isinstance(trainer, SizedTrainer):
                return Run(policy, replace(world, model_megabytes=trainer.megabytes), self.seed, trainer, pace=pace)
            check_fit(policy, world, trainer, pace)
            model = trainer.init(self.seed)
            world = replace(world, model_megabytes=megabytes_of(model))
            state = RunState(policy.init(world.clients), world.init(self.seed), model)
            return Run(policy, world, self.seed, trainer, state, pace)
        except FedpickError:
            raise
        except MISTAKES as error:  # from the policy's init, or that of a trainer of the user's own
            where = user_code.place(error)
            raise ConfigError(f"policy = {self.policy!r}: {type(error).__name__}: {error}{where}") from None

    def _world_and_data(self) -> tuple[World, Any]:
        """The world, with the clients of the data if there is some, and the data."""
        made = self.made.get("world")
        world = base_world(self.world) if made is None else made
        if self.data is None:
            return (whole_world(world, self.world) if made is None else world), None
        from fedpick.data.settings import build_data  # training is an extra

        federated = build_data(self.data, len(world.clients), self.made.get("data"))
        if len(federated) != len(world.clients):
            if made is not None or "num_clients" in self.world:
                raise ConfigError(
                    f"the data has {len(federated)} clients, but the world {len(world.clients)}; make the numbers "
                    "equal, or leave num_clients out"
                )
            world = base_world({**self.world, "num_clients": len(federated)})
        if made is not None:
            return replace(world, clients=federated.clients), federated
        return whole_world(world, self.world, federated.clients), federated

    def _sized(self, world: World) -> bool:
        """Whether the settings say how large a message with a model is."""
        return "model_megabytes" in self.world or (
            "world" in self.made and world.model_megabytes != World.model_megabytes
        )

    def _trainer(self, federated: Any, reports: tuple[str, ...]) -> Trainer:
        try:
            if "trainer" in self.made:
                return made_trainer(self.made["trainer"], federated, reports)
            known = None if "data" in self.made else self.data
            return build_trainer(federated, known, {**self.train, **self.made.get("train", {})}, reports)
        except FedpickError:
            raise
        except MISTAKES as error:
            given = ", ".join(f"{key} = {value!r}" for key, value in self.train.items()) or "the defaults"
            raise ConfigError(f"[train] {given}: {type(error).__name__}: {error}{user_code.place(error)}") from None

    def _policy(self, world: World) -> tuple[Any, tuple[str, ...]]:
        """The policy, and the names of the reports that it wants from clients."""
        policy = self.made.get("policy")
        try:
            if policy is None:
                policy = policy_for(self.policy, world, self.cohort_size, self.seed)
            elif isinstance(policy, type) or not hasattr(policy, "select"):
                policy = policy(cohort_size=self.cohort_size)
            asks = traits(policy).asks
            if asks is not None and asks > MOST_ASKED * len(world.clients):  # some choose with replacement
                raise ConfigError(
                    f"policy = {self.policy!r}: asks {asks} of {len(world.clients)} clients; choose fewer"
                )
            self._check_size(policy)
            return policy, tuple(traits(policy).collect(world.clients))
        except FedpickError:
            raise
        except MISTAKES as error:  # a setting whose type the policy did not expect
            raise ConfigError(f"policy = {self.policy!r}: {error}; see fedpick policies for its settings") from None

    def about(self, run: Run) -> dict[str, Any]:
        """The manifest's "about": what reports need, so that they build no run."""
        declared_by = traits(run.policy)
        about = {**self.labels, "num_clients": len(run.world.clients), "oracle": declared_by.oracle}
        about |= {"given": given_to(declared_by), "engine": "simulator"}
        if aside := getattr(run.trainer, "set_aside", 0):  # it is tested on other examples than without
            about["train"] = train_text(self.train, aside)
        declared = run.trainer.directions if isinstance(run.trainer, DirectedTrainer) else None
        directions = check_directions(declared, "the trainer")
        return about | ({"directions": directions} if directions else {})


def texts_of(policy: str, *sections: Mapping[str, Any] | None) -> list[str]:
    """A policy's text, and all texts in the settings of [world], [data] and [train]."""
    found = (value for settings in sections for value in (settings or {}).values())
    return [policy, *(value for value in found if isinstance(value, str))]


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: user_code.shown(value) if isinstance(value, str) else value for key, value in settings.items()}
