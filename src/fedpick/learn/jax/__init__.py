"""Training with JAX: a cohort of clients in one compiled call (needs the extra `learn`: JAX, optax)."""

from fedpick._support import devices
from fedpick.core.errors import MissingError

devices.reserve()
try:
    import jax  # noqa: F401
    import optax  # noqa: F401
except ImportError as error:
    raise MissingError(
        f"training needs {error.name}: pip install 'fedpick[learn]', or train nothing with --data none; a PyTorch "
        "model (--model net.py:Net) needs only 'fedpick[torch]'"
    ) from None

from fedpick.learn.jax.cache import keep_compiled  # noqa: E402

__all__: list[str] = []  # `fedpick.learn` offers its models

keep_compiled()
