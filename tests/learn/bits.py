"""Trains and evaluates, and prints digests of every bit: run by the tests with several numbers of devices."""

import hashlib
import json
import sys
from typing import Any

import jax
import numpy as np

import fedpick as fp
from fedpick import data, learn, worlds
from fedpick.learn.jax import cohort, dense
from fedpick.learn.jax.objective import affine_of, losses, prepare


def digest(tree: Any) -> str:
    """Of all numbers of a model, or of a dictionary."""
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()


def run_of(network: str, **settings: Any) -> fp.Run:
    """Five rounds on digits, or on synthetic data: ragged clients, cohorts that shrink, a server with a memory."""
    federated = data.Dirichlet(alpha=0.5)(data.load("digits"), 23, fp.rng.stream(0, 0, "data"))
    if network == "logistic":
        federated = data.Synthetic(1.0, 1.0)(23, fp.rng.stream(0, 0, "data"))
        model = learn.logistic((60,), 10)
    elif network == "cnn":
        model = learn.cnn((8, 8, 1), 10, channels=(4, 8), hidden=(16,), kernel=3, padding="same", dropout=0.2)
        model = learn.Model(model.init, model.apply, model.name, chunk=4)  # 404 blocks, or 135 on three devices
    else:
        model = learn.mlp((8, 8, 1), 10, hidden=(20,), dropout=0.2)
    how = {"momentum": 0.5, "server": "fedadam", "form": "loop" if network == "logistic" else "scan"}
    trainer = learn.Trainer(federated, model, lr=0.05, batch=16, evaluate_every=5, **(how | settings))
    there = worlds.Bernoulli(0.3)
    return fp.Run(
        fp.Uniform(7), fp.World(federated.clients, availability=there, epochs=(1, 2)), seed=3, trainer=trainer
    )


def main(network: str) -> dict[str, Any]:
    run = run_of(network)
    records = list(run.rounds(until=5))
    trainer, model = run.trainer, run.state.model
    assert isinstance(trainer, learn.Trainer)
    dataset = trainer.data.dataset
    whole = trainer.model.apply(model["params"], prepare(dataset.x, affine_of(dataset)), None)  # in one piece
    return {
        "devices": jax.local_device_count(),
        "model": digest(model),
        "records": digest([{"loss": record.loss, **record.metrics} for record in records]),
        "accuracy": records[-1].metrics["accuracy"],
        "train_loss": records[-1].metrics["train_loss"],
        "wanted": float(np.asarray(losses(whole, dataset.y))[trainer.data.examples].mean()),
        "probes": digest(trainer.probe(model, np.arange(23), None, fp.rng.stream(0, 1, "probe"))),
    }


if __name__ == "__main__":
    cohort.WORTH = int(sys.argv[2])
    dense.SHARE = max(int(sys.argv[2]), 1)
    sys.stdout.write(json.dumps(main(sys.argv[1])))
