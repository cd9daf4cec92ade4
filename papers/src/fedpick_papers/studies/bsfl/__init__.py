"""BSFL: Ben Ami, Cohen & Zhao (2023), https://arxiv.org/abs/2303.10373; a module for each figure."""

__all__: list[str] = []  # each module has a STUDY, or STUDIES of a family
