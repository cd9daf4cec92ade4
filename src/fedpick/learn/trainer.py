"""The trainer of `fedpick.simulate.round`: data, a model, and how clients and server learn."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from fedpick._support.text import make
from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, SettingError
from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome, Status, Updates
from fedpick.data.federated import Federated
from fedpick.learn import aggregation, batches, cohort, dense, evaluation, late
from fedpick.learn.batches import Drawn
from fedpick.learn.checking import check_settings
from fedpick.learn.local import Local, Trained
from fedpick.learn.measures import Metric, check_metrics
from fedpick.learn.models import Model, check_outputs
from fedpick.learn.reports import (
    OF_DATA,
    check_reports,
    needs_vectors,
    of_data,
    of_server,
    vectors,
)
from fedpick.learn.tested import Tested

__all__ = ["Trainer"]


@lru_cache
def _initial(model: Model) -> Callable[[jax.Array], Any]:
    # Called once: XLA took 2.2 s to make code for one small layer's random numbers as fast as it can be.
    return jax.jit(model.init, compiler_options={"xla_backend_optimization_level": 1})


@dataclass(eq=False)
class Trainer(Tested):
    """Trains cohorts of clients on their data, aggregates and evaluates.

    Args:
        data: what each client holds.
        model: what is trained.
        lr: learning rate of the clients: a number, or a function of the round (`fedpick.core.schedules`).
        batch: examples per local step.
        steps: local steps per epoch, in full batches; None: an epoch is one pass over the client's data. The world
            decides how many epochs each client trains (`World.epochs`: 1 to 4 by default, as in E3CS).
        momentum: of local SGD; reset in each round.
        weight_decay: of local SGD.
        prox: FedProx's mu; 0 is FedAvg.
        aggregation: "fedavg", "mean", "o2", "horvitz-thompson" or "fedau"; see `fedpick.learn.aggregation`.
        late_beta: beta of the weight of late updates, in worlds that keep them (`World.late`); REFL's.
        server: the server's optimiser: an optax one, or a text such as "fedadam(lr=0.01)"; None adds the mean update.
        evaluate_every: rounds between evaluations on the held-out data; the last round of a run is evaluated only if
            it is a multiple of this.
        spread_every: rounds between passes over all the clients' own data, for the global training loss and the spread
            of accuracy over clients; None: at every evaluation, 0: never.
        metrics: what is measured of the model besides accuracy and loss, on the held-out data: "macro_f1",
            "balanced_accuracy", "auroc", "perplexity", "mae", "rmse" (see `fedpick.learn.measures`), or functions of
            outputs and targets (arrays with a row per example) that return a number, or a dict of some. A function
            says whether larger is better with an attribute, unless its name tells: score.directions = {"score":
            "larger"}.
        reports: what clients report besides their loss: "update_norm", "embedding" (functional, FedGS (12)), "update",
            "sketch_32" (of the update, of any width: `fedpick.graph.sketch`), "output_update" (of the output layer's
            biases: the last array with one number per output); of the model that they were sent, on all
            of their data: "squared_loss" (mean of the examples' squared losses), "accuracy". Computed by the server:
            "shapley", what an update is worth on 1,000 test examples (at most half), which are then left out of tests.
        precision: "float32", or "bfloat16" for activations over float32 weights.
        form: "scan", "vmap" (see `fedpick.learn.cohort`), "loop" (see `fedpick.learn.dense`), or "auto": the
            fastest one on this machine for this model.

    >>> from fedpick import data, learn
    >>> people = data.Synthetic(1.0, 1.0)(num_clients=10, rng=rngs.stream(0, 0, "data"))
    >>> trainer = Trainer(people, learn.logistic((60,), 10), lr=0.05, batch=50, steps=5)
    >>> sorted(trainer.evaluate(trainer.init(seed=1), round=10))
    ['accuracy', 'spread', 'test_loss', 'train_loss', 'worst_decile']
    """

    data: Federated
    model: Model
    lr: float | Callable[[int], float] = 0.05
    batch: int = 50
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    aggregation: str = "fedavg"
    late_beta: float = 0.35
    server: optax.GradientTransformation | str | None = None
    evaluate_every: int = 10
    spread_every: int | None = None
    metrics: tuple[Metric, ...] = ()
    reports: tuple[str, ...] = ("update_norm",)
    precision: str = "float32"
    form: str = "auto"
    _padded: tuple[int, int] = field(default=(0, 0), init=False, repr=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if isinstance(self.server, str):
            self.server = make(
                self.server, "server optimiser", aggregation.SERVERS, values={}, example="fedadam(lr=0.01)"
            )
        empty = np.flatnonzero(self.data.sizes == 0)
        if len(empty):
            raise ContractError(f"client {empty[0]} has no examples; leave such clients out of the partition")
        shapes = check_outputs(self.model, self.data.dataset)
        self._size = sum(int(np.prod(shape)) for shape in shapes)
        check_reports(self.reports, self.model, shapes, self.data.dataset)
        check_metrics(self.metrics, self.data.dataset)
        in_loop = dense.suits(self.model, self.data.dataset, self.precision)
        if self.form == "auto":
            self.form = "loop" if in_loop else "scan" if jax.default_backend() == "cpu" else "vmap"
        elif self.form == "loop" and not in_loop:
            raise SettingError(
                f"Trainer: form = 'loop', which trains only logistic, linear, or an mlp without dropout of at most "
                f"{dense.SMALL:,} weights, in float32 on a CPU, not {self.model.name!r} of {self._size:,} parameters "
                "here; use form='auto'"
            )
        self._local = Local(self.momentum, self.weight_decay, self.prox, self.precision)
        self.devices = jax.local_device_count() if self.form != "vmap" else 1  # that a cohort is dealt out to

    # ---- the model

    @property
    def megabytes(self) -> float:
        """Size of one message that carries the model, in units of 1e6 bytes."""
        return 4.0 * self._size / 1e6

    def init(self, seed: int) -> Any:
        """The model before the first round, and the server's state."""
        params = _initial(self.model)(jax.random.key(int(rngs.stream(seed, 0, "model").integers(2**31))))
        state = [] if self.server is None else jax.tree.leaves(self._optimiser.init(params))
        if self.form == "loop":
            params = jax.tree.map(np.asarray, params)
            return {"params": params, "server": state, **self._memory(None)}
        # On its device, as later models are: else all that takes a model would be compiled again in the second round.
        started = jax.device_put({"params": params, "server": state}, jax.local_devices()[0])
        return {**started, **self._memory(None)}

    def _memory(self, after: tuple[Any, Choice, Bools] | None) -> dict[str, Any]:
        """What the aggregation remembers, if it does: at the start, or after a round (model, choice, who returned)."""
        rule = aggregation.AGGREGATIONS[self.aggregation]
        if not isinstance(rule, aggregation.FedAU):
            return {}
        if after is None:
            return {"aggregation": rule.init(len(self.data))}
        model, choice, returned = after
        return {"aggregation": rule.learn(model["aggregation"], choice, returned)}

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        assert isinstance(self.server, optax.GradientTransformation)
        return self.server

    # ---- the round

    def probe(self, model: Any, ids: Ints, batch: int | None, rng: np.random.Generator) -> Floats:
        """Loss of the model on all of these clients' data, or on a mini-batch of each."""
        chosen = batches.seen(self.data, ids, batch, rng)
        if not chosen:
            return np.empty(0)
        starts = np.concatenate([[0], np.cumsum([len(part) for part in chosen])])
        params = self.everywhere(model["params"])
        loss, _ = evaluation.score(self.model, params, self._arrays, np.concatenate(chosen))
        return evaluation.segment_means(loss, starts)

    def train(
        self, model: Any, ids: Ints, used: Bools, epochs: Floats, round: int, rng: np.random.Generator
    ) -> Updates:
        """Train the chosen clients whose updates will be used, and no others."""
        at = np.flatnonzero(used)
        if not len(at):
            return Updates(np.full(len(ids), np.nan))
        trained = self.train_all(model["params"], self.draw(ids, at, epochs, round, rng))
        updates = self.updates(model["params"], trained, at, len(ids), np.arange(len(at)))
        return self.examined(model["params"], updates, ids, at, round)

    def longest(self, at: Ints, epochs: Floats) -> int:
        """Steps of the client that holds the most, were it to train as often as any of these."""
        times = np.array([epochs[at].max(initial=1)]).astype(np.int64)
        return int(batches.steps_of(np.array([self.data.sizes.max()]), times, self.batch, self.steps)[0])

    def draw(self, ids: Ints, at: Ints, epochs: Floats, round: int, rng: np.random.Generator) -> Drawn:
        """Batches, dropout keys and rates of the clients that train, padded to the largest shape seen so far."""
        clients = -(-len(ids) // self.devices) * self.devices
        self._padded = max(clients, self._padded[0]), max(self.longest(at, epochs), self._padded[1])
        drawn = Drawn.empty(*self._padded, self.batch)
        self.draw_into(drawn, slice(0, len(at)), ids, at, epochs, round, rng)
        return drawn

    def draw_into(
        self, drawn: Drawn, place: slice, ids: Ints, at: Ints, epochs: Floats, round: int, rng: np.random.Generator
    ) -> None:
        """The same, written to these places of what is there."""
        drawn.lr[place] = self.lr(round) if callable(self.lr) else self.lr
        mine = batches.Batches(*(part[place] for part in drawn.batches.parts()))
        batches.draw(self.data, ids[at], epochs[at].astype(np.int64), self.batch, self.steps, rng, mine)
        drawn.keys[place] = rng.integers(0, 2**32, (len(at), 2), dtype=np.uint32)

    def train_all(self, params: Any, drawn: Drawn, owner: Any = None) -> Trained:
        """Train on what `draw` returned; with an `owner`, from several stacked models (see `cohort.train`)."""
        arrays = self._arrays
        if isinstance(arrays, dense.Rows):
            return dense.train(arrays, self._local, params, drawn.batches, drawn.lr, owner)
        return cohort.train(self.model, self._local, self.form, arrays, params, *drawn, owner)

    def updates(self, sent: Any, trained: Trained, at: Ints, chosen: int, slots: Ints) -> Updates:
        """Results in the order of the cohort: the clients at positions `at` of the `chosen` trained, in these slots."""
        loss, norm = np.full(chosen, np.nan), np.full(chosen, np.nan)
        loss[at], norm[at] = np.asarray(trained.loss)[slots], np.asarray(trained.norm)[slots]
        reports: dict[str, Any] = {"update_norm": norm} if "update_norm" in self.reports else {}
        for name, found in vectors(self.reports, self.model, self.data.dataset, sent, trained.delta).items():
            reports[name] = np.full((chosen, found.shape[1]), np.nan)
            reports[name][at] = found[slots]
        return Updates(loss, reports, payload=(trained.delta, at, slots), valid=np.isfinite(norm))

    def part(self, updates: Updates, positions: Ints) -> Updates:
        """The updates of some of the clients that `train` was called with, in this order."""
        return late.part(updates, positions)

    @property
    def needs_vectors(self) -> bool:
        """Whether a report is made of the updates themselves."""
        return needs_vectors(self.reports)

    def examined(self, sent: Any, updates: Updates, ids: Ints, at: Ints, round: int) -> Updates:
        """The updates with the reports that take a pass over data: the clients', or the server's for validation."""
        found = of_server(self.reports, self.model, self.data, sent, updates, ids, round)
        if any(name in OF_DATA for name in self.reports):
            params = self.everywhere(sent)
            for name, values in of_data(self.reports, self.model, self.data, self._arrays, params, ids[at]).items():
                found[name] = np.full(len(ids), np.nan)
                found[name][at] = values
        return replace(updates, reports={**updates.reports, **found})

    @property
    def remembers(self) -> bool:
        """Whether the aggregation's weights depend on the rounds before."""
        return isinstance(aggregation.AGGREGATIONS[self.aggregation], aggregation.FedAU)

    def weights(self, choice: Choice, outcome: Outcome, model: Any = None) -> Floats:
        """Aggregation weight of each chosen client's update; 0 for clients that are not DONE.

        Args:
            choice: of the policy.
            outcome: of the round.
            model: before the round, which an aggregation that remembers needs.
        """
        returned = np.asarray(outcome.status) == Status.DONE
        rule = aggregation.AGGREGATIONS[self.aggregation]
        if isinstance(rule, aggregation.FedAU):
            return rule.weights(model["aggregation"], choice, returned, self.data.sizes)
        return rule(choice, returned, self.data.sizes)

    def keep(self, choice: Choice, updates: Updates) -> tuple[Ints, dict[str, Any]]:
        """(positions of usable updates, arrays to keep of them, a row each), for `aggregate` in a later round."""
        return late.keep(updates, self._base(choice))

    def _base(self, choice: Choice) -> Floats:
        """What each chosen client's update counts for beside the others."""
        if self.aggregation == "mean":
            return np.ones(len(choice))
        return self.data.sizes[choice.ids].astype(np.float64) if choice.weights is None else choice.weights

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates, delayed: Any = None) -> Any:
        """The next model, from the clients that are DONE.

        Args:
            model: before the round.
            choice: of the policy.
            outcome: of the round.
            updates: of the chosen clients.
            delayed: updates of earlier rounds that have come in this one: what `keep` gave, with "round" (in which each
                was sent) and "now" (this round).
        """
        if delayed is None:
            delta, at, slots = updates.payload
            weights = np.zeros(len(jax.tree.leaves(delta)[0]), np.float32)
            weights[slots] = self.weights(choice, outcome, model)[at]
        else:
            returned = np.asarray(outcome.status) == Status.DONE
            delta, weights = late.with_late(
                model["params"], updates, self._base(choice), returned, choice, delayed, self.late_beta
            )
        params, state = model["params"], ()
        if self.server is not None:
            shape = jax.tree.structure(self._optimiser.init(params))
            state = jax.tree.unflatten(shape, model["server"])
        if self.form == "loop":
            step = dense.mean(delta, weights)
            if self.server is None:
                params = dense.plus(params, step)
            else:
                params, state = aggregation.moved(self.server, params, state, step)
        else:
            params, state = aggregation.combine(self.server, params, state, delta, weights)
        memory = self._memory((model, choice, np.asarray(outcome.status) == Status.DONE))
        return {"params": params, "server": jax.tree.leaves(state), **memory}
