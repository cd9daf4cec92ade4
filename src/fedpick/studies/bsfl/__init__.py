"""BSFL: Ben Ami, Cohen & Zhao (2023), a file for each figure."""

__all__: list[str] = []  # each file offers its own study
