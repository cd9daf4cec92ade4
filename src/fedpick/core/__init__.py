"""The ground that every room stands on: types, the policies' protocol and state, errors, random streams."""

__all__: list[str] = []
