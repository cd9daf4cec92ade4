"""Headline claims of the policies that most comparisons have, on a small task; a module for each."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
