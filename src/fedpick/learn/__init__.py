"""Training on real data: models, and the trainer of a cohort of clients, with JAX (extra `learn`) or PyTorch (`torch`).

data = fp.data.Dirichlet(alpha=0.3)(fp.data.load("fashion-mnist"), 100, fp.rng.stream(0, 0, "data"))
trainer = fp.learn.Trainer(data, fp.learn.mlp((28, 28, 1), 10, hidden=(64, 30)), lr=0.005, batch=64, steps=30)
run = fp.Run(fp.Uniform(10), fp.World(data.clients), seed=1, trainer=trainer)

Names are imported when they are first used: a PyTorch model is trained without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpick.learn.aggregation import AGGREGATIONS as AGGREGATIONS
    from fedpick.learn.jax.forms import SERVERS as SERVERS
    from fedpick.learn.jax.models import MODELS as MODELS
    from fedpick.learn.jax.models import Model as Model
    from fedpick.learn.jax.models import cnn as cnn
    from fedpick.learn.jax.models import linear as linear
    from fedpick.learn.jax.models import logistic as logistic
    from fedpick.learn.jax.models import mlp as mlp
    from fedpick.learn.jax.models import model as model
    from fedpick.learn.own import OwnTrainer as OwnTrainer
    from fedpick.learn.trainer import Trainer as Trainer

__all__ = [
    "AGGREGATIONS",
    "MODELS",
    "SERVERS",
    "Model",
    "OwnTrainer",
    "Trainer",
    "cnn",
    "linear",
    "logistic",
    "mlp",
    "model",
]

_WHERE = {"AGGREGATIONS": "aggregation", "SERVERS": "jax.forms", "OwnTrainer": "own", "Trainer": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedpick.learn' has no attribute {name!r}")
    found = getattr(import_module(f"fedpick.learn.{_WHERE.get(name, 'jax.models')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
