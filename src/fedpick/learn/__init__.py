"""Training on real data: models, and a cohort of clients in one compiled call (needs the extra `learn`: JAX, optax).

data = fp.data.Dirichlet(alpha=0.3)(fp.data.load("fashion-mnist"), 100, fp.rng.stream(0, 0, "data"))
trainer = fp.learn.Trainer(data, fp.learn.mlp((28, 28, 1), 10, hidden=(64, 30)), lr=0.005, batch=64, steps=30)
run = fp.Run(fp.Uniform(10), fp.World(data.clients), seed=1, trainer=trainer)
"""

from fedpick._support import devices
from fedpick.core.errors import MissingError

devices.reserve()
try:
    import jax  # noqa: F401
    import optax  # noqa: F401
except ImportError as error:
    raise MissingError(
        f"training needs {error.name}: pip install 'fedpick[learn]', or train nothing with --data none"
    ) from None

from fedpick.learn.jax.cache import keep_compiled  # noqa: E402

keep_compiled()

from fedpick.learn.aggregation import AGGREGATIONS  # noqa: E402
from fedpick.learn.jax.forms import SERVERS  # noqa: E402
from fedpick.learn.jax.models import MODELS, Model, cnn, linear, logistic, mlp, model  # noqa: E402
from fedpick.learn.trainer import Trainer  # noqa: E402

__all__ = ["AGGREGATIONS", "MODELS", "SERVERS", "Model", "Trainer", "cnn", "linear", "logistic", "mlp", "model"]
