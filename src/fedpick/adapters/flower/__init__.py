"""Any policy as a Flower strategy: in `Selected` the policy chooses the clients, the base strategy does the rest.

`strategy` is the strategy, `base` the one that it wraps; `exchange` is a round's messages and replies, `grids` Flower's
connection to the clients, `messages` those that ask for losses and descriptions, `models` the model as it is kept.
"""

__all__: list[str] = []
