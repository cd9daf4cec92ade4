"""Training with JAX: models, forms of training (`forms`), reports, and what they are made of."""

__all__: list[str] = []  # `fedpick.learn` offers its models
