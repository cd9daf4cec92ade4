"""Balanced, the library's own policy, beside those that it is to replace as the first one to try."""

__all__: list[str] = []  # each module has a STUDY
